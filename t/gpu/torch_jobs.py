#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Real jobs of PyTorch on one GPU, with each allocator that it can have, in one table.

    torch_jobs.py [--jobs A,B] [--allocators X,Y] [--steps N] [--rounds N] [--again]
                  [--limit S] [--row S] [--json FILE] [--share]

The jobs are in torch_models.py; nothing is loaded from anywhere. Every row is a process of its
own: one program for each allocator imports PyTorch and waits, and every job is a fork of it from
before CUDA started (--fresh: a new program for each row). An allocator `glake:KEY=VALUE` is glake
with a key of glake.conf set. `rate` is of the steps after the first four, in sequences, images or
tokens a second; with --rounds the median of them, least to most in brackets. `live` is what the
job's tensors took at their peak, `reserved` what the allocator had of the GPU for that, `device`
what the GPU as a whole had less at the end of a step, at most. Losses and tokens of all steps are
compared to the last bit with those of the default allocator; --again runs that twice, to tell jobs
that repeat themselves.
A row that takes longer than --row is ended and says so; with --limit no job is begun that would
probably not be done in that time, as long as the longest before it.
--share puts clocks around the calls of the allocator, whichever it is (torch_share.cc), and adds
what part of the steps they took, and how long each.

    torch_jobs.py --fit GIB [--jobs A,B] ...

finds instead the largest batch with which a job runs when it may have so much of the GPU: glake
by its budget, PyTorch's own two by a memory fraction, which bounds what they reserve.
cudaMallocAsync compares a fraction with live bytes alone, so there the rest of the GPU is taken
away beside it, once the code of the kernels is on the GPU.
"""

import argparse
import ctypes
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

from torch_models import JOBS

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOCATORS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
    "glake": "",
}
WARM = 4
GIB = 1 << 30
GOALS = ("rate >= 99.5 % of the best of the others", "reserved <= 1.01 of live",
         "device memory the smallest")


def is_glake(allocator):
    return allocator.partition(":")[0] == "glake"


def quiet():
    warnings.filterwarnings("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def ballast(torch, args, name):
    """Takes all of the GPU but what --fit leaves, past the allocator."""
    small = argparse.Namespace(**dict(vars(args), tiny=True, batch=0))
    JOBS[name].make(torch, small)[0](0)  # brings the code of the kernels, which is not counted
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    much = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - args.fit * GIB
    error = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(
        ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(much))
    if error:
        raise RuntimeError(f"cuMemAlloc of {much} bytes beside the allocator: {error}")


def bound(torch, args, name, allocator):
    """--fit for PyTorch's own allocators."""
    if allocator == "cudaMallocAsync":
        ballast(torch, args, name)
    elif not is_glake(allocator):
        memory = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(args.fit * GIB / memory)


class Share:
    """What part of the time the allocator's calls take, from its making on."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        for name in ("share_now", "share_ticks", "share_calls"):
            getattr(self.library, name).restype = ctypes.c_uint64
        self.library.share_begin()
        self.began, self.clock = self.library.share_now(), time.perf_counter()

    def said(self):
        ticks = self.library.share_now() - self.began
        took = time.perf_counter() - self.clock
        calls = self.library.share_calls()
        share = self.library.share_ticks() / ticks
        return {"share": share, "calls": calls, "call_ns": share * took / max(calls, 1) * 1e9}


def compiled():
    """Brings the clocks into a library."""
    import torch
    from torch.utils import cpp_extension

    path = os.path.join(tempfile.mkdtemp(), "torch_share.so")
    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    include = cpp_extension.include_paths() + ["/usr/local/cuda/include"]
    subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", *[f"-I{i}" for i in include],
                    os.path.join(HERE, "torch_share.cc"), "-o", path, f"-L{lib}",
                    f"-Wl,-rpath,{lib}", "-lc10", "-lc10_cuda"], check=True)
    return path


def measure(torch, args, name, allocator):
    """One row, in this process."""
    device = "cpu" if args.tiny else "cuda"
    glake = None
    if is_glake(allocator):
        import glake
        settings = dict([allocator.partition(":")[2].split("=", 1)] if ":" in allocator else [])
        if args.fit:
            settings["pool.budget"] = f"{args.fit}GiB"
        glake.use(settings=settings)
    torch.use_deterministic_algorithms(JOBS[name].repeats)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    used, took, losses = 0, [], []
    if device == "cuda":
        torch.cuda.init()
        free_before = torch.cuda.mem_get_info()[0]
        if args.fit:
            bound(torch, args, name, allocator)
    step, samples = JOBS[name].make(torch, args)
    steps = max(int(args.steps * JOBS[name].share), 1)
    for number in range(JOBS[name].fit_steps or 2 if args.fit else WARM + steps):
        if glake and number == WARM:
            warm = glake.stats(0) if device == "cuda" else {}
        if args.library and number == WARM:
            share = Share(args.library)
        wait()
        began = time.perf_counter()
        losses.append(step(number).detach().double())
        wait()
        took.append(time.perf_counter() - began)
        if device == "cuda":
            used = max(used, free_before - torch.cuda.mem_get_info()[0])
    row = {"first_s": took[0], "took_s": took, "device": used, "loss": float(losses[-1]),
           "losses": [float(loss).hex() for loss in losses]}
    if args.library:
        row.update(share.said())
    if glake and device == "cuda":
        now = glake.stats(0)
        row.update(live=now["peak_live"], reserved=now["peak_reserved"], stats=now)
    elif device == "cuda":
        row.update(live=torch.cuda.max_memory_allocated(),
                   reserved=torch.cuda.max_memory_reserved())
    if args.fit:
        return row
    if "stats" in row:
        row["warm"] = {name: now[name] - warm[name] for name in (
            "allocs", "hits", "misses", "stitches", "called", "driver_ns")}
    return dict(row, rate=samples * steps / sum(took[WARM:]), pair_ns=pair(torch))


def pair(torch):
    """ns that a tensor of 1 MiB takes to be made and dropped, Python and all."""
    best = 1e9
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(4000):
            torch.empty(1 << 20, dtype=torch.uint8)
        best = min(best, (time.perf_counter() - began) / 4000 * 1e9)
    return best


def imported():
    quiet()
    import torch
    import transformers
    import torchvision.models.detection  # noqa: F401
    transformers.logging.set_verbosity_error()
    from transformers import LlamaForCausalLM, OPTForCausalLM  # noqa: F401
    return torch


def attempt(torch, args, name, allocator):
    """A row, or what was in the way, as a line of JSON."""
    try:
        return json.dumps(measure(torch, args, name, allocator))
    except Exception as error:  # whatever it is belongs into the table
        text = f"{type(error).__name__}: {str(error)[:600]}"
        oom = any(what in text.lower() for what in ("out of memory", "alloc_failed"))
        return json.dumps({"error": text, "oom": oom})


def ended(pid, seconds):
    """How a process ends, by itself or, after so long, by us."""
    until = time.monotonic() + seconds
    killed = False
    while True:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            if killed:  # the driver holds it
                return -signal.SIGKILL
            os.kill(pid, signal.SIGKILL)
            killed, until = True, until + 10
        time.sleep(0.01)


def nursery(args, allocator):
    """Imports, and then runs a job in a fork for each line that comes in: a job, a batch, s."""
    torch = imported()
    gc.collect()
    gc.freeze()  # a collection of all that is imported takes a third of a second, at any step
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name, batch, seconds = line.split()
        pid = os.fork()
        if not pid:
            args.batch = int(batch)
            print(attempt(torch, args, name, allocator), flush=True)
            os._exit(0)
        print(json.dumps({"ended": ended(pid, float(seconds))}), flush=True)


def command(args, *more):
    own = [sys.executable, os.path.abspath(__file__), "--steps", str(args.steps),
           "--fit", str(args.fit), "--batch", str(args.batch), "--library", args.library]
    return own + ["--tiny"] * args.tiny + list(more)


def environment(allocator):
    conf = ALLOCATORS[allocator.partition(":")[0]]
    path = os.pathsep.join(filter(None, [
        HERE, os.path.join(HERE, "../../lib/python"), os.environ.get("PYTHONPATH")]))
    return dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf, PYTORCH_ALLOC_CONF=conf,
                CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTORCH_NVML_BASED_CUDA_CHECK="1",
                TOKENIZERS_PARALLELISM="false", PYTHONPATH=path)


class Runner:
    """Rows from the nursery of one allocator."""

    def __init__(self, args, allocator):
        self.args, self.allocator, self.child = args, allocator, None
        if not args.fresh:
            self.child = subprocess.Popen(
                command(args, "--nursery", allocator), env=environment(allocator), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ready(self):
        """Waits until it has imported what it needs, which would disturb others' rows."""
        return not self.child or self.answer(("ready",))

    def answer(self, ends):
        row = {"error": "no output"}
        for line in self.child.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                if any(end in said for end in ends):
                    return dict(row, **said)
                row = said
        return {"error": "its nursery has gone"}

    def fresh(self, name, seconds):
        try:
            run = subprocess.run(command(self.args, "--child", name, self.allocator), text=True,
                                 env=environment(self.allocator), capture_output=True,
                                 check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"ended after {seconds:.0f} s"}
        lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
        said = (run.stderr.strip().splitlines() or ["no output"])[-1]
        return json.loads(lines[-1]) if lines else {"error": said}

    def row(self, name, left, batch=0):
        """One row, of at most --row s and not much more than are left."""
        seconds = max(min(self.args.row, left), 5)
        self.args.batch = batch
        if not self.child:
            return self.fresh(name, seconds)
        try:
            self.child.stdin.write(f"{name} {batch} {seconds}\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            return {"error": "its nursery has gone"}
        row = self.answer(("ended",))
        status = row.pop("ended", 0)
        if status == -signal.SIGKILL:
            row["error"] = f"ended after {seconds:.0f} s or by the system"
        elif status:
            row["error"] = f"ended {status}"
        return row

    def close(self):
        if self.child:
            self.child.stdin.close()
            self.child.wait(60)


def largest(fits, guess, most=1024):
    """The most that fits: by strides that double from a guess on, and then by halving."""
    low, high, at, stride = 0, None, guess, max(guess // 16, 1)
    while low < most if high is None else high - low > 1:
        if fits(at):
            low = at
        else:
            high = at
        if high is None:
            at = low + stride
        else:
            at = (low + high) // 2 if low else max(high - stride, 1)
        stride *= 2
    return low


class Late(Exception):
    """There is no time left."""


def fit(args, runners, results, left):
    """The largest batches."""
    print(f"| job in {args.fit} GiB | allocator | largest batch | tried |\n|---|---|---|---|")
    took = [0]
    for name in args.jobs.split(","):
        guess, results[name] = args.batch or JOBS[name].fit_guess or 8, {}
        for allocator, runner in runners.items():
            tried = {}

            def fits(batch, tried=tried, name=name, runner=runner):
                began = left()
                if began < max(took):
                    raise Late
                row = tried[batch] = runner.row(name, began, batch)
                took.append(began - left())
                if "error" in row and not row.get("oom"):
                    raise RuntimeError(row["error"])
                return "error" not in row

            try:
                said = largest(fits, guess)
                guess = max(said, 1)
            except Late:
                fitted = [batch for batch, row in tried.items() if "error" not in row]
                said = f"no time, {max(fitted)} fits" if fitted else "no time"
            except RuntimeError as error:
                said = str(error)[:80]
            results[name][allocator] = {"largest": said, "tried": tried}
            print(f"| {name} | {allocator} | {said} | {' '.join(map(str, tried))} |", flush=True)
            save(args, results)


def verdict(rows, row):
    """Whether the losses are those of the default allocator."""
    default, again = rows.get("default", {}), rows.get("default again", {})
    if again and default.get("losses") != again.get("losses"):
        return "does not repeat"
    if "losses" not in default:
        return "nothing to compare with"
    return "yes" if row["losses"] == default["losses"] else "NO"


def reached(rows):
    """Which of GOALS glake reaches beside the others, for one job; None if it cannot be told."""
    ours = rows.get("glake", {})
    others = [row for allocator, row in rows.items() if not is_glake(allocator)]
    if "error" in ours or not ours.get("live") or all("error" in row for row in others):
        return None
    others = [row for row in others if "error" not in row]
    return (ours["rate"] >= 0.995 * max(row["rate"] for row in others),
            ours["reserved"] <= 1.01 * ours["live"],
            ours["device"] <= min(row["device"] for row in others))


def show(results):
    """The table, in Markdown, and what glake reaches."""
    print("\n| job | allocator | rate | of best | live GiB | reserved GiB | reserved / live "
          "| device GiB | first step s | loss as default |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, rows in results.items():
        good = [row for row in rows.values() if "error" not in row]
        best = max((row["rate"] for row in good), default=1)
        for allocator, row in rows.items():
            if "error" in row:
                print(f"| {name} | {allocator} | {row['error'][:80]} |")
                continue
            live, reserved = row.get("live", 0), row.get("reserved", 0)
            same = verdict(rows, row) if JOBS[name].repeats else "does not repeat"
            spread = (f" ({min(row['rates']):.2f} to {max(row['rates']):.2f})"
                      if len(row.get("rates", [])) > 1 else "")
            print(f"| {name} | {allocator} | {row['rate']:.2f}{spread} | {100 * row['rate'] / best:.1f} % "
                  f"| {live / GIB:.2f} | {reserved / GIB:.2f} | {reserved / max(live, 1):.3f} "
                  f"| {row['device'] / GIB:.2f} | {row['first_s']:.2f} | {same} |", flush=True)
            if "share" in row:
                print(f"# calls of the allocator took {100 * row['share']:.3f} % of the steps "
                      f"({100 * min(row['shares']):.3f} to {100 * max(row['shares']):.3f}), "
                      f"{row['call_ns']:.0f} ns each of {row['calls']}", flush=True)
    told = {name: reached(rows) for name, rows in results.items()}
    count = sum(goals is not None for goals in told.values())
    said = [f"{goal}: {sum(bool(goals and goals[i]) for goals in told.values())} of {count}" + (
        " (not " + ", ".join(n for n, goals in told.items() if goals and not goals[i]) + ")"
        if any(goals and not goals[i] for goals in told.values()) else "")
            for i, goal in enumerate(GOALS)]
    untold = [name for name, goals in told.items() if goals is None]
    print("\nglake, jobs with " + "; ".join(said) + (
        f"; not compared: {', '.join(untold)}" if untold else ""))


def save(args, results):
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


def compare(args, runners, results, left):
    """All rows of all jobs."""
    longest = 0
    for name in args.jobs.split(","):
        if left() < longest:
            print(f"# no time for {name}", flush=True)
            continue
        started, results[name] = left(), {}
        again = {"default again": runners["default"]} if (
            args.again and JOBS[name].repeats and "default" in runners) else {}
        order = list({**runners, **again}.items())
        for _ in range(args.rounds):
            for allocator, runner in order:
                row = runner.row(name, left())
                print(f"# {left():.0f} s left: {name} {allocator}: "
                      f"{row.get('error') or '%.2f' % row['rate']}", flush=True)
                before = results[name].get(allocator, {})
                row["rates"] = before.get("rates", []) + ([row["rate"]] if "rate" in row else [])
                if "error" not in row:
                    row["rate"] = statistics.median(row["rates"])
                if "share" in row:
                    row["shares"] = before.get("shares", []) + [row["share"]]
                    row["share"] = statistics.median(row["shares"])
                results[name][allocator] = row
                save(args, results)
            order.reverse()  # whoever is first finds the GPU cool
        longest = max(longest, started - left())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--jobs", help="of " + ",".join(JOBS))
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json")
    parser.add_argument("--again", action="store_true", help="the default allocator twice")
    parser.add_argument("--rounds", type=int, default=1, help="of all rows, in turn")
    parser.add_argument("--limit", type=float, default=1e6, help="s that all of it may take")
    parser.add_argument("--row", type=float, default=90, help="s that one row may take")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small, and on the CPU")
    parser.add_argument("--fit", type=int, default=0, metavar="GIB")
    parser.add_argument("--batch", type=int, default=0, help="of --fit: the one to begin with")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--library", default="", help=argparse.SUPPRESS)
    parser.add_argument("--nursery", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.nursery:
        return nursery(args, args.nursery)
    if args.child:
        print(attempt(imported(), args, *args.child), flush=True)
        return 0
    args.library = compiled() if args.share else ""
    args.jobs = args.jobs or ",".join(
        name for name, job in JOBS.items() if job.fit_steps or not args.fit)
    runners, results = {name: Runner(args, name) for name in args.allocators.split(",")}, {}
    for runner in runners.values():
        runner.ready()
    until = time.monotonic() + args.limit
    (fit if args.fit else compare)(args, runners, results, lambda: until - time.monotonic())
    for runner in runners.values():
        runner.close()
    if not args.fit:
        show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
