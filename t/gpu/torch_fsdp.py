#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Training that is spread over GPUs by FSDP, with PyTorch's allocator and with glake, in one table.

    torch_fsdp.py [--ranks N] [--size 13b] [--batch N] [--ways A,B] [--allocators X,Y] [--steps N]
                  [--rounds N] [--limit S] [--row S] [--json FILE] [--tiny]

All weights of an OPT in bfloat16, sequences of varying lengths. `fsdp2` is fully_shard, `fsdp1`
FullyShardedDataParallel, which hands memory from stream to stream by record_stream. Every row is a
group of processes, one for each GPU, of which --ranks takes all that are visible, forked from one
that has imported PyTorch and has not begun to use CUDA. Losses of all steps and a sum over all
weights at the end are compared to the last bit with those of the default allocator, rank by rank.
The row `all` has the tokens of all ranks together, and of memory what the worst rank has. GPUs that
run hot become slower from row to row: with --rounds all rows are run so many times, every second time
in the other order, and a second table has the median of the rates of all ranks and of what part of
the default allocator's in the same round they are, least to most in brackets; the JSON is a list of
rounds. `calls`
are collective calls on tensors that are freed at once, each word checked, and a captured one that
is replayed. --tiny is for a machine without GPUs: small, over gloo, two ranks.

An allocator `glake:KEY=VALUE`, or `glake:KEY=VALUE:KEY=VALUE`, is glake with keys of glake.conf
set; variables GLAKE_* of the environment hold for every row of glake.
"""

import argparse
import json
import os
import select
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../lib/python")]
os.environ.update(
    NCCL_NVLS_ENABLE="0",  # no multicast: on hosts that are shared it may not be used
    CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTORCH_NVML_BASED_CUDA_CHECK="1",
    TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
WARM = 4
BATCHES = {"1.3b": 8, "13b": 1}  # sequences of a rank, for GPUs of 80 GB and four of them with 13b
GIB = 1 << 30


def is_glake(allocator):
    return allocator.partition(":")[0] == "glake"


def choose(torch, allocator):
    """Before CUDA starts."""
    if is_glake(allocator):
        import glake
        glake.use(settings=dict(key.split("=", 1) for key in allocator.split(":")[1:]))
        return glake
    if allocator == "expandable":
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    return None


def sharded(torch, args, way, rank):
    """The model, made whole and alike by each process, then spread."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch_models import opt

    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = opt(torch, args.size, args.tiny).train()
    torch.set_default_dtype(torch.float32)
    layers = model.model.decoder.layers
    if way == "fsdp1":
        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({type(layers[0])}), use_orig_params=True,
            device_id=torch.device(*[args.device, rank][:1 + (args.device == "cuda")]))
    mesh = init_device_mesh(args.device, (args.ranks,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def weigh(torch, model):
    """A sum over this process's weights that differs if a bit of them does."""
    total = 0
    for weight in model.parameters():
        part = weight.detach()
        part = part.to_local() if hasattr(part, "to_local") else part
        words = part.contiguous().view(torch.int16).flatten().long()
        places = torch.arange(1, words.numel() + 1, device=words.device)
        total = (total * 31 + int((words * places).sum())) % (1 << 61)
    return total


def train(torch, args, way, rank, glake):
    from torch_models import lengths_of, repeatable

    cuda = args.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    free_before = torch.cuda.mem_get_info()[0] if cuda else 0
    model = sharded(torch, args, way, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    vocabulary, lengths = model.config.vocab_size, lengths_of(torch, args)
    kernels, batch = repeatable(torch, args), args.batch or (2 if args.tiny else BATCHES[args.size])
    words = torch.Generator(device=args.device).manual_seed(100 + rank)
    used, losses, tokens, steps = 0, [], 0, []
    for number in range(WARM + args.steps):
        shape = (batch, lengths[number % len(lengths)])
        ids = torch.randint(vocabulary, shape, generator=words, device=args.device)
        wait()
        torch.distributed.barrier()
        began = time.perf_counter()
        with torch.nn.attention.sdpa_kernel(kernels):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        asked = time.perf_counter()
        wait()
        step = {"seconds": time.perf_counter() - began, "queued": asked - began}
        if cuda and glake:
            stats = glake.stats(rank)  # of all until then
            step.update({key: stats[key] for key in (
                "called", "stitches", "driver_ns", "driver_calls", "driver_call_ns")})
        steps.append(step)
        if number >= WARM:
            tokens += ids.numel()
        losses.append(float(loss.detach()).hex())
        if cuda:
            used = max(used, free_before - torch.cuda.mem_get_info()[0])
    row = {"rate": tokens / sum(step["seconds"] for step in steps[WARM:]), "losses": losses,
           "device": used, "live": 0, "reserved": 0, "steps": steps}
    if cuda and glake:
        stats = glake.stats(rank)
        row.update(live=stats["peak_live"], reserved=stats["peak_reserved"], stats=stats)
    elif cuda:
        row.update(live=torch.cuda.max_memory_allocated(),
                   reserved=torch.cuda.max_memory_reserved())
    return dict(row, weights=weigh(torch, model))  # which takes memory too


def collectives(torch, args, rank):
    """How many tensors came out wrong."""
    from torch import distributed

    def made(size, word):
        return torch.full((size,), word, device=args.device, dtype=torch.int32)

    wrong, kept, ranks = 0, [], args.ranks
    for i in range(60):
        size = (4096 + 1000 * i * i) if args.tiny else (1 << 16) * (1 + i * 7 % 37)
        x = made(size, i + rank)
        sums = distributed.all_reduce(x, async_op=True)
        y = made(size, 3 * i + rank)
        whole = torch.empty(ranks * size, device=args.device, dtype=torch.int32)
        gathered = distributed.all_gather_into_tensor(whole, y, async_op=True)
        del y  # while it is read, and the next ones want its memory
        for _ in range(3):
            made(size, -7)
        sums.wait()
        gathered.wait()
        kept.append((x.ne(ranks * i + ranks * (ranks - 1) // 2).any(), torch.stack([
            part.ne(3 * i + r).any() for r, part in enumerate(whole.chunk(ranks))]).any()))
        del x, whole
    wrong += sum(int(bad) for pair in kept for bad in pair)
    if args.device == "cuda":
        static = made(4 << 20, 1)
        distributed.all_reduce(static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has a thread
            out = static + 1
            distributed.all_reduce(out)
        for i in range(10):
            static.fill_(i + rank)
            for _ in range(8):
                made(1 << 20, -7)
            graph.replay()
            wrong += int(out.ne(ranks * (i + 1) + ranks * (ranks - 1) // 2).any())
        torch.cuda.synchronize()
        del graph
    return {"wrong": wrong}


def work(torch, args, way, allocator, rank, store):
    """One process of a row."""
    warnings.filterwarnings("ignore")
    glake = choose(torch, allocator)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    if args.tiny:
        torch.set_num_threads(1)  # the ranks are on one processor or two
    if args.device == "cuda":
        torch.cuda.set_device(rank)
        torch.cuda.init()
    torch.distributed.init_process_group(
        "nccl" if args.device == "cuda" else "gloo", init_method=f"file://{store}", rank=rank,
        world_size=args.ranks,
        **({"device_id": torch.device("cuda", rank)} if args.device == "cuda" else {}))
    row = collectives(torch, args, rank) if way == "calls" else train(
        torch, args, way, rank, glake)
    torch.distributed.barrier()
    return row


def visible(torch):
    """How many GPUs there are. A fork looks, since the question begins CUDA."""
    pid = os.fork()
    if not pid:
        count = 0
        try:
            count = torch.cuda.device_count()
        finally:
            os._exit(count)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def born(torch, args, way, allocator, rank, store):
    """Starts one; its number and the pipe that says what it measured."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    os.close(ours)
    try:
        row = work(torch, args, way, allocator, rank, store)
    except Exception as error:  # whatever it is belongs into the table
        row = {"error": f"{type(error).__name__}: {str(error)[:600]}",
               "where": traceback.format_exc(limit=-4)}
    with os.fdopen(theirs, "wb") as pipe:
        pipe.write(json.dumps(row).encode())
    os._exit(0)  # nothing is taken down in order: a peer may hang


def listen(pipes, until):
    """What each of them says in the time. The peers of one that fails hang, and soon are ended."""
    said, waiting = {pipe: b"" for pipe in pipes}, set(pipes)
    while waiting:
        ready = select.select(list(waiting), [], [], max(until - time.monotonic(), 0))[0]
        if not ready:
            break
        for pipe in ready:
            part = os.read(pipe, 65536)
            said[pipe] += part
            if not part:
                waiting.discard(pipe)
            elif said[pipe].startswith(b'{"error"'):
                until = min(until, time.monotonic() + 5)
    return [said[pipe] for pipe in pipes]


def row_of(text):
    """A row; a process that was ended may have said part of one."""
    try:
        return json.loads(text)
    except ValueError:
        return {"error": "ended, or took too long"}


def measure(torch, args, way, allocator, seconds):
    """The rows of all ranks; those that do not answer in time are ended."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        group = [born(torch, args, way, allocator, rank, os.path.join(folder, "store"))
                 for rank in range(args.ranks)]
        rows = listen([pipe for _, pipe in group], until)
        for pid, pipe in group:
            os.kill(pid, signal.SIGKILL)  # ours, and not waited for yet
            os.close(pipe)
            os.waitpid(pid, 0)
    return [row_of(text) for text in rows]


def same(rows, reference):
    """Whether losses and weights are the default allocator's."""
    if not reference or "losses" not in reference:
        return "nothing to compare with"
    return "yes" if [rows["losses"], rows["weights"]] == [
        reference["losses"], reference["weights"]] else "NO"


def ratio(row):
    return row["reserved"] / max(row["live"], 1)


def line(way, allocator, rank, row, equal):
    return (f"| {way} | {allocator} | {rank} | {row['rate']:.0f} | {row['live'] / GIB:.2f} "
            f"| {row['reserved'] / GIB:.2f} | {row.get('ratio', ratio(row)):.3f} | {row['device'] / GIB:.2f} "
            f"| {equal} |")


def spread(values, digits):
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f} to {max(values):.{digits}f})")


def summed(rows):
    """The rate of all ranks; None where one has none."""
    rates = [row.get("rate") for row in rows]
    return sum(rates) if all(rates) else None


def compare(rounds):
    """The second table: rates of the rounds, and against the default allocator of the same one."""
    print("\n| way | allocator | rounds | tokens/s | % of default |\n|---|---|---|---|---|")
    for name in dict.fromkeys(name for results in rounds for name in results):
        way, allocator = name.split(" ", 1)
        rates = [(summed(results.get(name, [{}])), summed(results.get(f"{way} default", [{}])))
                 for results in rounds]
        mine = [rate for rate, _ in rates if rate]
        parts = [100 * rate / theirs for rate, theirs in rates if rate and theirs]
        if mine:
            print(f"| {way} | {allocator} | {len(mine)} | {spread(mine, 0)} "
                  f"| {spread(parts, 1) if parts else 'nothing to compare with'} |")


def show(results):
    print("\n| way | allocator | rank | tokens/s | live GiB | reserved GiB | reserved / live "
          "| device GiB | losses and weights as default |\n|---|---|---|---|---|---|---|---|---|")
    good = True
    for name, rows in results.items():
        way, allocator = name.split(" ", 1)
        reference = results.get(f"{way} default")
        equals = []
        for rank, row in enumerate(rows):
            if "error" in row:
                good = False
                print(f"| {way} | {allocator} | {rank} | {row['error'][:100]} |")
            elif "wrong" in row:
                good = good and not row["wrong"]
                print(f"| {way} | {allocator} | {rank} | {row['wrong']} tensors wrong |")
            else:
                equals.append(same(row, reference and reference[rank]))
                print(line(way, allocator, rank, row, equals[-1]))
        good = good and all(equal == "yes" for equal in equals)
        if len(equals) == len(rows):
            worst = {key: max(row[key] for row in rows) for key in ("live", "reserved", "device")}
            worst.update(ratio=max(map(ratio, rows)), rate=sum(row["rate"] for row in rows))
            print(line(way, allocator, "all", worst,
                       equals[0] if len(set(equals)) == 1 else "NO"))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--ranks", type=int, help="as many as GPUs are visible")
    parser.add_argument("--size", choices=BATCHES, default="1.3b", help="of the model, in weights")
    parser.add_argument("--batch", type=int, help="sequences of a rank in each step")
    parser.add_argument("--ways", default="fsdp2,fsdp1,calls")
    parser.add_argument("--allocators", default="default,glake,expandable")
    parser.add_argument("--again", action="store_true", help="the default allocator twice")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="of all rows")
    parser.add_argument("--limit", type=float, default=1e6, help="begin no row after so many s")
    parser.add_argument("--row", type=float, default=90, help="s that one row may take")
    parser.add_argument("--json")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.device = "cpu" if args.tiny else "cuda"
    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed.fsdp  # noqa: F401
    from transformers import OPTForCausalLM  # noqa: F401
    gpus = 2 if args.tiny else visible(torch)
    args.ranks = args.ranks or gpus
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}")
    if not args.tiny and not 0 < args.ranks <= gpus:
        parser.error(f"--ranks {args.ranks}, but GPUs visible: {gpus}")
    began, rounds = time.monotonic(), []
    wanted = [(way, allocator) for allocator in args.allocators.split(",") + ["default again"] * (
        args.again) for way in args.ways.split(",") if way != "calls" or is_glake(allocator)]
    for number in range(args.rounds):
        rounds.append({})
        for way, allocator in wanted[::-1] if number % 2 else wanted:
            spent = time.monotonic() - began
            if spent > args.limit:
                print(f"# no time for {way} {allocator}", flush=True)
                continue
            rows = measure(torch, args, way, allocator.split()[0],
                           max(min(args.row, args.limit - spent), 5))
            rounds[-1][f"{way} {allocator}"] = rows
            print(f"# {time.monotonic() - began:.0f} s: {way} {allocator}: " + ", ".join(
                row.get("error") or f"{row.get('rate', 0):.0f}" for row in rows), flush=True)
            if args.json:
                with open(args.json, "w", encoding="utf-8") as file:
                    json.dump(rounds, file, indent=1)
    good = all([show(results) for results in rounds])
    if args.rounds > 1:
        compare(rounds)
    return 0 if good and all(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
