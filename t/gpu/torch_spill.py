#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What it costs to have contents of a fine-tune on the host: OPT-1.3B with random weights, AdamW,
bfloat16, in every way that there is, in one table.

    torch_spill.py [--ways A,B] [--batch 16] [--length 1024] [--layers 24] [--steps N]
                   [--over 1.25] [--chunk GIB] [--row S] [--limit S] [--json FILE] [--gaps]
                   [--device cpu]

plain        everything on the GPU, and once more: does it equal itself?
recompute    checkpoints of every layer
cpu          torch.autograd.graph.save_on_cpu(pin_memory=True)
spilled      glake.spilled_activations(), with a cap of what has to go for the memory of recompute
quarter      the same with a cap of a quarter of what could go, spread over the pass
whole        the same without a cap: all goes that can
optimizer    glake.spilled_optimizer(), its states fetched as gradients come, in parts of --chunk
both         spilled and optimizer
placed       untouched, with a budget that live memory is 1.25 times of (--over), and tier.place=host
helped       with that budget, both helpers: what the states leave over of it, of activations, spread

Every row is a process of its own, forked before CUDA starts, with glake as the allocator.
`live` is what blocks took at their peak, those that were away with them; `held` is what glake
had of the GPU at its peak, physically, and `host` what of the host, locked, or of save_on_cpu
pinned by PyTorch. Ways that spill have a budget, without which the GPU would be filled first:
`spilled` and `whole` what recompute held (--budget GiB: that), `quarter` what plain held less a
quarter of that difference, `optimizer` and `both` nine tenths of the states less than plain and
`spilled`. Losses are compared to the last bit with those of plain. The loss of each step is read when it ends;
what goes to the host then goes on meanwhile. `rate` is tokens a second from the end of the first two steps, which
lock memory of the host, until the GPU has nothing left to do; `step` is their median. FILE has what each step asked
of the driver, and with --gaps when the GPU was without work in two steps more.

--device cpu tries all of it without a GPU and without glake: small, and what is away is a copy.
A row that takes longer than --row seconds is ended with all its processes; with --limit none is begun
after so many.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = "plain again recompute spilled quarter whole optimizer both placed helped cpu".split()
SAVED, STATES = "spilled both quarter whole helped".split(), "optimizer both helped".split()
SLACK = 1.03  # of what has to go: blocks are rounded, and memory is short for a moment
WARM = 2
GIB = 1 << 30


class Copies:
    """In glake's place on a CPU."""
    def __init__(self):
        import torch
        self.torch, self.away = torch, {}

    def view(self, storage):
        return self.torch.tensor([], dtype=self.torch.uint8, device="cpu").set_(storage)

    def why_not(self, tensor, storage):
        return None

    def stream(self, tensor):
        return 0

    def capturing(self):
        return False

    def spill(self, tensor, storage, streams):
        view = self.view(storage)
        self.away[storage.data_ptr()] = view.clone()
        view.fill_(0xff)

    def fetch(self, tensor, storage):
        return self.view(storage).copy_(self.away.pop(storage.data_ptr()))

    def arrive(self, tensor, arrival):
        pass


def peak_of_host(torch):
    """What PyTorch has pinned at most."""
    stats = getattr(torch.cuda, "host_memory_stats", dict)()
    return max(stats.get("allocated_bytes.peak", 0), stats.get("active_bytes.peak", 0))


def job(torch, args, way):
    """The step of a way, and what it spills by."""
    import glake
    from torch_models import opt, recomputed

    tiny = args.device == "cpu"
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):  # no default beyond that: each call of PyTorch would ask for it
        model = opt(torch, "1.3b", tiny)
    if args.layers:
        del model.model.decoder.layers[args.layers:]
    model.train()
    if way == "recompute":
        recomputed(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    minimum = {"minimum": 0} if tiny else {}
    saved = states = None
    if way in SAVED:
        saved = glake.spilled_activations(
            cap=args.cap or None, ahead=int(args.ahead * GIB), **minimum)
    if way in STATES:
        states = glake.spilled_optimizer(
            optimizer, early=True, chunk=int(args.chunk * GIB) or None, **minimum)
    kernels = torch.nn.attention.SDPBackend
    kernels = [kernels.FLASH_ATTENTION] + [kernels.MATH] * tiny
    words = model.config.vocab_size
    length = min(args.length, 512) if tiny else args.length
    batch = min(args.batch, 8) if tiny else args.batch

    def under():
        if way == "cpu":
            return torch.autograd.graph.save_on_cpu(pin_memory=not tiny)
        return saved or contextlib.nullcontext()

    def step():
        ids = torch.randint(words, (batch, length), device=args.device)
        with torch.nn.attention.sdpa_kernel(kernels):
            with under():
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step, batch * length, saved, states, optimizer


def driver_of(glake, gpu):
    """Calls of the driver so far that make and move mappings, and the ms of all that it was asked."""
    if not gpu:
        return {}
    stats = glake.stats(0)
    calls = stats.get("driver_calls", {})
    return dict({call: calls.get(call, 0) for call in ("create", "map", "unmap")},
                ms=stats.get("driver_ns", 0) / 1e6)


def gaps(torch, step):
    """What the GPU did in two steps, as PyTorch's profiler tells it: ms of kernels, of copies each way, and
    without a kernel, with the longest pauses: when, how long, and before what; and the longer copies."""
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CUDA]) as told:
        for _ in range(2):
            step().item()
        torch.cuda.synchronize()
    rows = sorted((e.start_ns(), e.duration_ns(), e.name()) for e in told.profiler.kineto_results.events()
                  if str(e.device_type()).endswith("CUDA") and e.duration_ns())
    begun, busy, pauses = rows[0][0], rows[0][0], []
    sums = dict.fromkeys(("kernels", "down", "up", "paused"), 0)
    for start, long, name in rows:
        way = "down" if "Memcpy DtoH" in name else "up" if "Memcpy HtoD" in name else "kernels"
        sums[way] += long / 1e6
        if way != "kernels":
            continue
        if start > busy:
            sums["paused"] += (start - busy) / 1e6
            pauses.append(((busy - begun) / 1e6, (start - busy) / 1e6, name[:60]))
        busy = max(busy, start + long)
    copies = [((start - begun) / 1e6, long / 1e6, name[7:11]) for start, long, name in rows
              if name.startswith("Memcpy") and long > 50e3]
    return dict(sums, step=(busy - begun) / 1e6, copies=copies,
                pauses=sorted(pauses, key=lambda p: -p[1])[:24])


def measure(args, way):
    """One row, in this process."""
    import torch
    import glake
    gpu = args.device != "cpu"
    if gpu:
        glake.use(settings=dict({"pool.budget": args.most} if args.most else {},
                                **{"tier.place": "host"} if way == "placed" else {}))
    else:
        import glake.spilled
        glake.spilled.Mover = Copies
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    wait = torch.cuda.synchronize if gpu else lambda: None
    step, tokens, saved, states, optimizer = job(torch, args, way)
    took, losses, asked = [], [], []
    for number in range(WARM + args.steps):
        if number == WARM:
            wait()
            start = time.perf_counter()
        before, began = driver_of(glake, gpu), time.perf_counter()
        losses.append(step().double().item())  # waits for its own stream
        took.append(time.perf_counter() - began)
        after = driver_of(glake, gpu)
        asked.append({what: after[what] - before[what] for what in after})
    wait()
    row = {"rate": tokens * args.steps / (time.perf_counter() - start), "step": statistics.median(took[WARM:]),
           "took": took, "driver": asked, "losses": [loss.hex() for loss in losses], "loss": losses[-1], "budget": args.most}
    row["states_bytes"] = sum(state.nbytes for kept in optimizer.state.values()
                              for state in kept.values() if torch.is_tensor(state))
    for name, spilled in (("saved", saved), ("states", states)):
        if spilled:
            row[name] = spilled.figures
    if gpu and args.gaps:
        row["gaps"] = gaps(torch, step)
    if gpu:
        stats = glake.stats(0)
        row.update(live=stats["peak_live"], held=stats["peak_reserved"], stats=stats,
                   host=stats["peak_host_held"] or (peak_of_host(torch) if way == "cpu" else 0))
    return row


def imported():
    """What every row needs, before any of them uses a GPU."""
    warnings.filterwarnings("ignore")
    os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTORCH_NVML_BASED_CUDA_CHECK="1",
                      TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
    sys.path[1:1] = [os.path.join(HERE, "../../lib/python")]
    import torch  # noqa: F401
    from transformers import OPTForCausalLM  # noqa: F401


def attempt(args, way):
    """A row, or what was in the way."""
    try:
        return measure(args, way)
    except Exception as error:  # whatever it is belongs into the table
        return {"error": f"{type(error).__name__}: {str(error)[:400]}",
                "at": traceback.format_exc()[-1500:]}


def run(args, way):
    """A row of a fork, which is ended with all that it started."""
    source, target = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        with os.fdopen(target, "w", encoding="utf-8") as file:
            file.write(json.dumps(attempt(args, way)))
        os._exit(0)
    os.close(target)
    until, said = time.monotonic() + args.row, b""
    with os.fdopen(source, "rb", buffering=0) as file:
        while select.select([file], [], [], max(until - time.monotonic(), 0))[0]:
            part = file.read(1 << 16)
            if not part:
                break
            said += part
        late = time.monotonic() >= until
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it said it has said
    status = reaped(pid)
    try:
        return json.loads(said)
    except ValueError:
        return {"error": f"ended after {args.row:.0f} s" if late else f"ended {status}"}


def reaped(pid):
    """How a process ended that was killed; one that the driver holds is left after 10 s."""
    for _ in range(1000):
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return -signal.SIGKILL


def budget(args, rows, way):
    """Bytes a way may hold, after what others held before; 0: all."""
    held = {name: row.get("held", 0) for name, row in rows.items()}
    plain, least = held.get("plain", 0), args.budget * GIB or held.get("recompute", 0)
    states = 0.9 * rows.get("plain", {}).get("states_bytes", 0)
    over = rows.get("plain", {}).get("live", 0) / args.over
    return int({
        "spilled": least, "whole": least, "quarter": plain - (plain - least) / 4 if plain and least else 0,
        "optimizer": max(plain - states, 0), "both": max(least - states, 0), "placed": over,
        "helped": over}.get(way, 0))


def cap(args, rows, way):
    """Bytes that have to go for that, or a share of what could; 0: no cap."""
    plain = rows.get("plain", {})
    live = plain.get("live", 0)
    could = live - rows.get("recompute", {}).get("held", live)
    if way == "helped":
        rest = max(SLACK * live * (1 - 1 / args.over) - plain.get("states_bytes", 0), 1)
        return rest / could if could else int(rest) if live else 0
    return {"spilled": int(SLACK * could), "both": int(SLACK * could), "quarter": 0.25}.get(way, 0)


def same(rows, row):
    want = rows.get("plain", {}).get("losses")
    if not want:
        return "nothing to compare with"
    if row is rows["plain"]:
        return ""
    return "yes" if row["losses"] == want else "NO"


HEAD = ("| way | tokens/s | step s | live GiB | held GiB | budget GiB | host GiB | went a step GiB "
        "| ahead, late | losses as plain |\n|---|---|---|---|---|---|---|---|---|---|")


def show(args, rows, way):
    row = rows[way]
    if "error" in row:
        print(f"| {way} | {row['error'][:160]} |", flush=True)
        return
    went, ahead = 0, ""
    if "saved" in row:
        went += row["saved"]["spilled_bytes"]
        ahead = f"{row['saved']['fetched_ahead']}, {row['saved']['fetched_late']}"
    if "states" in row:
        went += row["states"]["spilled_bytes"]
    cells = [row.get("live", 0), row.get("held", 0), row["budget"], row.get("host", 0),
             went / (WARM + args.steps)]
    print(f"| {way} | {row['rate']:.0f} | {row['step']:.3f} | "
          + " | ".join(f"{cell / GIB:.2f}" if cell else "" for cell in cells)
          + f" | {ahead} | {same(rows, row)} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=0, help="of 24; 0: all")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ahead", type=float, default=1, help="GiB fetched ahead")
    parser.add_argument("--budget", type=float, default=0, help="GiB for `spilled`")
    parser.add_argument("--over", type=float, default=1.25, help="live over the budget of `placed`")
    parser.add_argument("--chunk", type=float, default=0.25, help="GiB of states that a step takes at a time")
    parser.add_argument("--row", type=float, default=60)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--gaps", action="store_true", help="what the GPU did in one step more, in the JSON")
    parser.add_argument("--json")
    args = parser.parse_args()
    unknown = set(args.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    began, rows = time.monotonic(), {}
    imported()
    print(HEAD, flush=True)
    for way in args.ways.split(","):
        if time.monotonic() - began > args.limit:
            print(f"| {way} | no time |", flush=True)
            continue
        args.most, args.cap = budget(args, rows, way), cap(args, rows, way)
        rows[way] = run(args, way)
        show(args, rows, way)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump({"options": vars(args), "rows": rows}, file, indent=1)
    return int(any("error" in row or same(rows, row) == "NO" for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
