#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake under the real PyTorch and CuPy on a real GPU: results, streams, graphs, errors.

    torch_checks.py [PART...]

The parts are plugin compile segments processes cupy, and each is a process of its own.

Speaks TAP. Without a GPU or without the package a part skips and says why.
"""

import collections
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../lib/python")]
MIB = 1 << 20
LIMIT = 240  # s that a part may take
_count = _failed = 0


def ok(passed, what, *notes):
    global _count, _failed
    _count += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_count} - {what}", flush=True)
    for note in () if passed else notes:
        print("#", str(note).replace("\n", "\n# "), flush=True)
    return passed


def skip_all(why):
    print(f"TAP version 13\n1..0 # SKIP {why}")
    sys.exit(0)


def raised(call, kind=Exception):
    """What a call raises: its kind and text."""
    try:
        call()
    except kind as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def live(glake):
    return glake.stats(0)["live"]


def tensors(torch, glake):
    ok(glake.stats() == {} and not torch.cuda.is_initialized(), "nothing is opened before CUDA")
    torch.cuda.init()
    before = live(glake)
    x = torch.arange(10 * MIB, device="cuda", dtype=torch.float32)
    ok(live(glake) - before == 40 * MIB, "a tensor's memory is glake's", live(glake) - before)
    ok(torch.cuda.memory_allocated() == live(glake), "and PyTorch knows how much")
    ok(float(((x + 1) - x).sum()) == 10 * MIB, "kernels compute on it")
    ok(torch.equal(x.cpu(), torch.arange(10 * MIB, dtype=torch.float32)), "copies")
    ok(torch.empty(0, device="cuda").numel() == 0, "an empty tensor")
    del x
    ok(live(glake) == before, "freed", live(glake) - before)
    torch.cuda.reset_peak_memory_stats()
    y = torch.empty(64 * MIB, device="cuda", dtype=torch.uint8)
    del y
    ok(torch.cuda.max_memory_allocated() >= 64 * MIB, "peaks", torch.cuda.max_memory_allocated())
    ok("Active memory" in torch.cuda.memory_summary(), "memory_summary")
    before = torch.cuda.memory_reserved()
    torch.cuda.synchronize()
    syncs = torch.cuda.memory_stats()["num_sync_all_streams"]
    torch.cuda.empty_cache()
    ok(torch.cuda.memory_reserved() < before, "empty_cache gives memory back")
    if torch.cuda.get_allocator_backend() != "pluggable":
        ok(torch.cuda.memory_stats()["num_sync_all_streams"] > syncs, "and is counted")


def shapes(torch):
    """A training loop of sizes that vary, checked against the CPU in double precision."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                                torch.nn.Linear(256, 8)).double()
    twin = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                               torch.nn.Linear(256, 8)).double()
    twin.load_state_dict(model.state_dict())
    model.cuda()
    worst = 0.0
    for i in range(30):
        x = torch.randn(17 + 97 * (i % 7), 64, dtype=torch.double)
        losses = []
        for net, data in ((model, x.cuda()), (twin, x)):
            loss = net(data).square().mean()
            loss.backward()
            with torch.no_grad():
                for weight in net.parameters():
                    weight -= 0.1 * weight.grad
                    weight.grad = None
            losses.append(float(loss.detach()))
        worst = max(worst, abs(losses[0] - losses[1]) / losses[1])
    ok(worst < 1e-9, "a training loop is as on the CPU", worst)


def overwritten(torch, record):
    """Whether memory used on a side stream and freed is written over before that has read it."""
    size, side = 8 * MIB, torch.cuda.Stream()
    out = torch.zeros(size, device="cuda")
    torch.cuda.synchronize()
    x = torch.ones(size, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        out.copy_(x)
    if record:
        x.record_stream(side)
    del x
    y = torch.full((size,), 2.0, device="cuda")
    torch.cuda.synchronize()
    del y
    return bool((out != 1).any())


def streams(torch, glake):
    ok(overwritten(torch, record=False), "without record_stream memory is written over")
    ok(not any(overwritten(torch, record=True) for _ in range(5)), "with it it is not")
    before = live(glake)
    failures = []

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(200):
                x = torch.full((1000 + 997 * (i % 50),), float(number), device="cuda")
                y = x * 2 + torch.empty_like(x).fill_(1)
                if not bool((y == 2 * number + 1).all()):
                    failures.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ok(not failures, "eight threads on streams of their own", failures[:3])
    torch.cuda.synchronize()
    ok(live(glake) == before, "leave nothing", live(glake) - before)


def shortage(torch, glake):
    kind, text = raised(lambda: torch.empty(1 << 40, device="cuda", dtype=torch.uint8))
    ok(kind == "OutOfMemoryError" and "CUDA out of memory. Tried to allocate" in text,
       "too much: torch.OutOfMemoryError", kind, text)
    torch.cuda.set_per_process_memory_fraction(0.05)
    kind, text = raised(lambda: torch.empty(20 << 30, device="cuda", dtype=torch.uint8))
    ok(kind == "OutOfMemoryError" and "budget" in text, "more than its fraction", kind, text)
    ok(abs(torch.cuda.get_per_process_memory_fraction() - 0.05) < 0.001, "which is told")
    torch.cuda.set_per_process_memory_fraction(1.0)
    x = torch.empty(20 << 30, device="cuda", dtype=torch.uint8)
    ok(x.numel() == 20 << 30, "without it there is room")
    del x
    glake.trim()
    kept = [torch.empty(MIB, device="cuda")]
    ok(float(kept[0].fill_(3).sum()) == 3.0 * MIB, "and all goes on")


def graphs(torch, glake):
    def run(x):
        y = x * 2
        for _ in range(5):
            y = torch.relu(y @ y.T / 64)[:, : x.shape[1]] + x
        return y.sin()

    static = torch.randn(256, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(static)
    ok(glake.stats(0)["pools"] == 1, "a graph has a pool", glake.stats(0)["pools"])
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        out2 = run(out)
    ok(glake.stats(0)["pools"] == 1, "two graphs share it")
    wrong = 0
    for i in range(20):
        x = torch.randn(256, 256, device="cuda")
        noise = [torch.full((1 + i * 1000,), float("nan"), device="cuda") for _ in range(20)]
        static.copy_(x)
        graph.replay()
        second.replay()
        del noise
        wrong += not torch.equal(out, run(x)) or not torch.equal(out2, run(run(x)))
    ok(not wrong, "replays compute what the program does, whatever is freed beside", wrong)
    del out, out2, second
    graph.reset()
    del graph
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # of the captures' streams, which PyTorch keeps
    glake.trim()
    ok(glake.stats(0)["pools"] == 0, "and the pool goes with the graphs", glake.stats(0)["pools"])

    late = torch.cuda.CUDAGraph()
    with torch.cuda.graph(late):
        kept = torch.ones(MIB, device="cuda")
    late.replay()
    late.reset()
    with torch.cuda.graph(late):
        kept.fill_(3.0)
        out = kept + 1
        del kept
    late.replay()
    ok(float(out.sum()) == 4 * MIB, "a graph uses a tensor of one that is gone")
    del late, out

    torch.manual_seed(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(),
                                  torch.nn.Linear(128, 128)).cuda() for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    graphed = torch.cuda.make_graphed_callables(
        layers[0], (torch.randn(64, 128, device="cuda", requires_grad=True),))
    worst = 0.0
    for _ in range(10):
        x = torch.randn(64, 128, device="cuda")
        for net in (graphed, layers[1]):
            net(x).square().sum().backward()
        pairs = list(zip(layers[0].parameters(), layers[1].parameters()))
        worst = max(worst, *(float((a.grad - b.grad).abs().max()) for a, b in pairs))
        for a, b in pairs:
            a.grad = b.grad = None
    ok(worst < 1e-4, "make_graphed_callables: gradients as without", worst)


def refusals(torch):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.backends.cudnn.benchmark = True
        torch.nn.functional.conv2d(torch.ones(1, 3, 32, 32, device="cuda"),
                                   torch.ones(4, 3, 3, 3, device="cuda"))
    ok(not seen, "cudnn.benchmark, without a word", seen)
    ok("already" in raised(lambda: torch.cuda.memory.change_current_allocator(
        torch.cuda.memory._get_current_allocator()))[1], "no second allocator")


def pictures(torch, glake):
    def blocks():
        """Those that are live now: libraries of CUDA keep some of theirs."""
        return [b["requested_size"] for s in torch.cuda.memory._snapshot()["segments"]
                for b in s["blocks"] if b["state"] == "active_allocated"]

    before = collections.Counter(blocks())
    torch.cuda.memory._record_memory_history(max_entries=1000)
    x = [torch.empty(3 * MIB + i, device="cuda", dtype=torch.uint8) for i in range(8)]
    del x[::2]
    torch.cuda.memory._dump_snapshot("/tmp/glake-snapshot.pickle")
    picture = torch.cuda.memory._snapshot()
    sizes = sorted((collections.Counter(blocks()) - before).elements())
    ok(sizes == [3 * MIB + i for i in (1, 3, 5, 7)], "a snapshot has the live blocks", sizes)
    run = subprocess.run([sys.executable, torch.cuda._memory_viz.__file__ if hasattr(
        torch.cuda, "_memory_viz") else os.path.join(os.path.dirname(torch.__file__), "cuda",
                                                     "_memory_viz.py"),
                          "stats", "/tmp/glake-snapshot.pickle"],
                         capture_output=True, text=True, check=False)
    ok("total_reserved" in run.stdout, "PyTorch's viewer reads it", run.stderr[-500:])
    torch.cuda.memory._record_memory_history(enabled=None)
    with torch.profiler.profile(profile_memory=True) as seen:
        y = torch.empty(5 * MIB, device="cuda", dtype=torch.uint8)
        del y
    memory = [(e.name, e.device_memory_usage) for e in seen.events() if e.device_memory_usage]
    ok(memory == [("aten::empty", 5 * MIB), ("[memory]", -5 * MIB)],
       "PyTorch's profiler is told of it", memory)


def gpu():
    try:
        import torch
    except ImportError:
        skip_all("no PyTorch")
    if not torch.cuda.is_available():
        skip_all("no GPU for PyTorch")
    return torch


def plugin():
    torch = gpu()
    import glake

    glake.use()
    print("TAP version 13")
    for part, arguments in ((tensors, (torch, glake)), (shapes, (torch,)),
                            (streams, (torch, glake)), (shortage, (torch, glake)),
                            (graphs, (torch, glake)), (pictures, (torch, glake)),
                            (refusals, (torch,))):
        kind, text = raised(lambda part=part, arguments=arguments: part(*arguments))
        ok(kind == "nothing", part.__name__, kind, text)


def compiled():
    """torch.compile with graphs of CUDA, as a program asks for it."""
    torch = gpu()
    import glake

    glake.use()
    print("TAP version 13")
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
    net = net.cuda().eval()
    fast = torch.compile(net, mode="reduce-overhead")
    worst = 0.0
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(32, 64, device="cuda")
            worst = max(worst, float((fast(x) - net(x)).abs().max()))
    ok(worst < 1e-4, "reduce-overhead: results as without", worst)
    skips = counters["inductor"].get("cudagraph_skips", 0)
    ok(not skips and glake.stats(0)["pools"] > 0, "and a graph of CUDA was made",
       skips, glake.stats(0)["pools"])


def segments():
    """PyTorch's own allocator on segments of glake."""
    torch = gpu()
    import glake

    print("TAP version 13")
    pool = glake.pool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((64 * MIB,), 1.0, device="cuda")
        small = torch.ones(100, device="cuda")
    other = torch.ones(MIB, device="cuda")
    held = live(glake)
    ok(held >= 256 * MIB + 2 * MIB, "tensors of the pool lie on glake's memory", held)
    ok(torch.cuda.memory_allocated() >= held - 2 * MIB, "PyTorch counts them itself",
       torch.cuda.memory_allocated())
    ok(float(x.sum()) == 64 * MIB and float(small.sum()) == 100, "they work")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = other * 3
    graph.replay()
    ok(float(y.sum()) == 3.0 * MIB, "a graph beside them")
    from torch.multiprocessing.reductions import reduce_tensor
    ok(raised(lambda: reduce_tensor(other))[0] == "nothing", "tensors outside go to processes")
    sent = reduce_tensor(x)[1]
    ok(type(sent[7]).__name__ == "Handle", "so do those of the pool, by glake", sent)
    torch.UntypedStorage._release_ipc_counter_cuda(sent[11], sent[12])
    del x, small
    del pool
    for _ in range(100):  # the thread that keeps what was sent lets it go
        gc.collect()
        torch.cuda.empty_cache()
        if not live(glake):
            break
        time.sleep(0.01)
    ok(live(glake) == 0, "with the pool its memory comes back", live(glake))
    with torch.cuda.use_mem_pool(glake.pool()):
        kind, _ = raised(lambda: torch.empty(1 << 40, device="cuda", dtype=torch.uint8))
    ok(kind == "OutOfMemoryError", "too much is PyTorch's own error", kind)


def neighbour(inbox, outbox, under_glake):
    """Another process: adds one to what it gets, says its sum before, and sends one of its own."""
    import torch

    if under_glake:
        import glake
        glake.use()
    for tensors in iter(inbox.get, None):
        total = sum(int(x.sum(dtype=torch.int64)) for x in tensors)
        for x in tensors:
            x.add_(1)
        torch.cuda.synchronize()
        outbox.put(total)
        outbox.put(torch.full((1000,), 7, device="cuda"))
        del tensors, x


def exchange(torch, glake, context, under_glake):
    who = "a process of glake" if under_glake else "a process of PyTorch's allocator"
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=neighbour, args=(inbox, outbox, under_glake), daemon=True)
    child.start()
    before = live(glake)

    def full(size, word, kind):
        return torch.full((size,), word, device="cuda", dtype=kind)

    def overlapping():
        x = full(1000, 1, torch.float32)
        return [x, x[10:20]]

    for what, make in (
            ("a tensor", lambda: [full(5 * MIB, 2, torch.int32)]),
            ("2.5 GiB", lambda: [full(320 * MIB, 1, torch.int64)]),
            ("a weight", lambda: [torch.nn.Parameter(full(1000, 1, torch.float32), False)]),
            ("two in the same memory", overlapping)):
        tensors = make()
        want = sum(int(x.sum(dtype=torch.int64)) for x in tensors)
        inbox.put(tensors)
        ok(outbox.get(timeout=120) == want, f"{who} gets {what}")
        ok(int(tensors[0][0]) == want // sum(x.numel() for x in tensors) + 1,
           "what it writes there is seen here")
        ok(bool((outbox.get(timeout=60) == 7).all()), "and one of its own comes")
        del tensors
    inbox.put(None)
    child.join(60)
    ok(child.exitcode == 0, "it ends", child.exitcode)
    for _ in range(300):
        if live(glake) == before:
            break
        time.sleep(0.01)
    ok(live(glake) == before, "and nothing of it is left", live(glake) - before)


def processes():
    """Tensors of CUDA in other processes."""
    torch = gpu()
    import glake
    import torch.multiprocessing

    glake.use()
    print("TAP version 13")
    context = torch.multiprocessing.get_context("spawn")
    torch.ones(1, device="cuda")
    for under_glake in (True, False):
        kind, text = raised(lambda under_glake=under_glake: exchange(
            torch, glake, context, under_glake))
        ok(kind == "nothing", f"exchange, glake {under_glake}", kind, text)


def cupy():
    try:
        import cupy as cp
        cp.cuda.runtime.getDeviceCount()
    except Exception as error:
        skip_all(f"no CuPy: {error}")
    import glake

    print("TAP version 13")
    glake.use_cupy()
    x = cp.arange(10 * MIB, dtype=cp.float32)
    ok(live(glake) >= 40 * MIB, "an array's memory is glake's", live(glake))
    ok(float((x + 1 - x).sum()) == 10 * MIB, "kernels compute on it")
    a = cp.random.rand(512, 512)
    ok(abs(float((a @ cp.linalg.inv(a) - cp.eye(512)).max())) < 1e-3, "cuBLAS and cuSOLVER")
    with cp.cuda.Stream(non_blocking=True) as stream:
        y = [cp.full(MIB, i, dtype=cp.int64).sum() for i in range(50)]
        stream.synchronize()
    ok([int(v) for v in y] == [i * MIB for i in range(50)], "on a stream of its own")
    kind, text = raised(lambda: cp.empty(1 << 42, dtype=cp.uint8))
    ok(kind == "OutOfMemoryError", "too much is CuPy's own error", kind, text)
    del x, y, a
    gc.collect()
    ok(live(glake) < 64 * MIB, "freed", live(glake))


PARTS = {"plugin": plugin, "compile": compiled, "segments": segments, "processes": processes,
         "cupy": cupy}


def main():
    if sys.argv[1:2] == ["--part"]:
        PARTS[sys.argv[2]]()
        print(f"1..{_count}")
        return _failed != 0
    wanted = sys.argv[1:] or list(PARTS)
    runs = {name: subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--part", name], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        for name in wanted}
    failed = passed = 0
    until = time.monotonic() + LIMIT
    for name, run in runs.items():
        try:
            said = run.communicate(timeout=max(until - time.monotonic(), 1))[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # a group of its own, with what it has started
            said = run.communicate()[0] + f"not ok - ended after {LIMIT} s\n"
        print(f"# {name}\n{said}", end="", flush=True)
        passed += said.count("\nok ")
        bad = said.count("\nnot ok ")
        failed += bad or run.returncode != 0
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
