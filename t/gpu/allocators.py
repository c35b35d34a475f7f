#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
One table of allocators on a GPU: glake beside those of PyTorch, where that is installed.

    allocators.py [--tool GLAKECTL] [--repeat N] [--timeline FILE.csv] TRACE...

Each recorded job is replayed N times by each allocator, in a process of its own: glake through
glakectl, PyTorch's through its C++ interface (torch_replay.cc, compiled here), so that no time
of Python is in the figures. Columns: a pair of allocate and free of 20 MiB that was freed just
before; the mean and median time of an allocation in the first pass and in the last; the
physical memory held at the peak over the peak of what was live; calls of the driver are in the
times of all of them. With --timeline, what was live and what each had reserved during the first
pass and the last goes to a file, of which timeline.py draws a picture.
"""

import argparse
import contextlib
import csv
import ctypes
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = {
    "PyTorch": "",
    "PyTorch expandable": "expandable_segments:True",
    "PyTorch cudaMallocAsync": "backend:cudaMallocAsync",
}
PAIRS = 20000
SIZE = 20 << 20


def events(path):
    """Sizes (0: free), block numbers and stream numbers of a recorded job."""
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(os.path.splitext(path)[1], open)
    size, ids, stream, live, streams, count = [], [], [], {}, {}, 0
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            pointer = row["Pointer"]
            if row["Action"] == "allocate":
                live[pointer] = count
                size.append(int(row["Size"]))
                ids.append(count)
                count += 1
            elif row["Action"] == "free" and pointer in live:
                size.append(0)
                ids.append(live.pop(pointer))
            else:
                continue
            stream.append(streams.setdefault(row["Stream"], len(streams)))
    return size, ids, stream, len(streams), count


def peak_of(size, ids):
    """The most bytes live at a time."""
    live, peak, sizes = 0, 0, {}
    for n, i in zip(size, ids):
        if n:
            sizes[i] = n
            live += n
            peak = max(peak, live)
        else:
            live -= sizes.pop(i)
    return peak


def compiled(folder):
    """The library that reaches PyTorch's allocator."""
    import torch
    from torch.utils import cpp_extension

    path = os.path.join(folder, "torch_replay.so")
    include = [f"-I{i}" for i in cpp_extension.include_paths() + ["/usr/local/cuda/include"]]
    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", abi, *include,
         os.path.join(HERE, "torch_replay.cc"), "-o", path,
         f"-L{lib}", f"-Wl,-rpath,{lib}", "-lc10", "-lc10_cuda"], check=True)
    return path


def torch_child(library, trace, repeat, points):
    """
    Runs in its own process: replays a job and prints a line of JSON, with what was reserved after
    each of the events in `points`.
    """
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    replay = ctypes.CDLL(library)
    replay.torch_pair.restype = ctypes.c_double
    replay.torch_replay.restype = ctypes.c_long
    default = torch.cuda.current_stream().cuda_stream
    args = (ctypes.c_long(PAIRS), ctypes.c_int64(SIZE), ctypes.c_size_t(default))
    replay.torch_pair(*args)
    pair = min(replay.torch_pair(*args) for _ in range(5))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()

    size, ids, stream, streams, count = events(trace)
    n = len(size)
    side = [torch.cuda.Stream() for _ in range(streams - 1)]
    handles = [default] + [s.cuda_stream for s in side]
    array = lambda values, kind: (kind * len(values))(*values)
    sizes, numbers = array(size, ctypes.c_int64), array(ids, ctypes.c_int64)
    of = array(stream, ctypes.c_int64)
    given, freed = (ctypes.c_double * n)(), ctypes.c_double()
    after, reserved = array(points, ctypes.c_int64), (ctypes.c_int64 * len(points))()
    passes, held = [], []
    for _ in range(repeat):
        allocs = replay.torch_replay(
            ctypes.c_long(n), sizes, numbers, of, ctypes.c_long(count),
            array(handles, ctypes.c_size_t), ctypes.c_long(len(points)), after, given,
            ctypes.byref(freed), reserved)
        if allocs < 0:
            break
        times = sorted(given[:allocs])
        passes.append({"mean": sum(times) / allocs, "p50": times[allocs // 2]})
        held.append(list(reserved))
    print(json.dumps({
        "pair": pair, "passes": passes, "oom": len(passes) < repeat, "held": held,
        "reserved": torch.cuda.max_memory_reserved() / peak_of(size, ids)}))


def torch_row(name, library, trace, repeat, points):
    """One allocator of PyTorch on one job."""
    env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=TORCH[name], PYTORCH_ALLOC_CONF=TORCH[name])
    run = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", library, str(repeat), trace],
        env=env, input=json.dumps(points), capture_output=True, text=True, check=False)
    if run.returncode:
        return {"error": (run.stderr.strip().splitlines() or ["no output"])[-1]}
    return json.loads(run.stdout.splitlines()[-1])


def glake_row(tool, driver, trace, repeat, pair, timeline):
    """glake on one job; with a `timeline`, what was live and reserved goes to that file."""
    run = subprocess.run(
        [tool, "replay", "--driver", driver, "--repeat", str(repeat), "--json", trace,
         *(["--timeline", timeline] if timeline else [])],
        capture_output=True, text=True, check=False)
    if run.returncode:
        return {"error": run.stderr.strip()}
    result = json.loads(run.stdout)
    return {
        "pair": pair, "oom": any(r["oom"] for r in result["repeats"]),
        "passes": [r["malloc_ns"] for r in result["repeats"]],
        "reserved": result["reserved_over_live"]}


def glake_pair(tool, driver):
    """The pair of hits, and a mutex pair in the same run."""
    run = subprocess.run([tool, "bench", "--driver", driver, "--json", "alloc"],
                         capture_output=True, text=True, check=True)
    alloc = json.loads(run.stdout)["alloc"]
    large = [case for case in alloc["cases"] if case["name"] == "16 MiB"][0]
    return large["pair_ns"]["median"], alloc["mutex"]["pair_ns_one_thread"]["median"]


def looked_at(path):
    """The points of glake's timeline, which are the same in each pass, and all its rows."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["pass"] == rows[0]["pass"]], rows


def agrees(points, trace):
    """Whether this program sees in a trace what glakectl does."""
    if not points:
        return True
    size, ids = events(trace)[:2]
    live, sizes, after = 0, {}, []
    for n, i in zip(size, ids):
        live += n - (0 if n else sizes[i])
        sizes[i] = n or sizes[i]
        after.append(live)
    return all(after[int(p["event"])] == int(p["live"]) for p in points)


def put_timeline(writer, job, rows, table):
    """The points of one job, and what each allocator had reserved there."""
    last = len(table["glake"]["passes"])
    for at, row in enumerate(rows):
        first = row["pass"] == "1"
        point = at if first else at - len(rows) // 2
        held = []
        for name in TORCH:
            passes = table.get(name, {}).get("held", [])
            number = 0 if first else last - 1
            held.append(passes[number][point] if number < len(passes) else "")
        writer.writerow([job, *row.values(), *held])


def main():
    """Prints the table."""
    if sys.argv[1:2] == ["--child"]:
        torch_child(sys.argv[2], sys.argv[4], int(sys.argv[3]), json.load(sys.stdin))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--tool", default=os.path.join(HERE, "glakectl"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--timeline", metavar="FILE.csv")
    parser.add_argument("--driver", default="cuda", choices=["cuda", "soft"],
                        help="soft: glake alone, to try this program where no GPU is")
    parser.add_argument("trace", nargs="+")
    args = parser.parse_args()

    pair, mutex = glake_pair(args.tool, args.driver)
    print(f"a mutex pair takes {mutex:.1f} ns here; glake's pair is of 16 MiB, the others' of 20")
    print(f"{'job':<12}{'allocator':<26}{'pair':>8}{'first mean':>12}{'p50':>8}"
          f"{'last mean':>12}{'p50':>8}{'reserved':>10}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            library = compiled(folder)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            print(f"without PyTorch: {error}")
            library = None
        timeline = writer = None
        if args.timeline:
            timeline = os.path.join(folder, "timeline.csv")
            file = stack.enter_context(
                open(args.timeline, "w", encoding="utf-8", newline=""))
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["job", "pass", "event", "seconds", "live", "glake", *TORCH])
        for trace in args.trace:
            job = os.path.basename(trace).split(".")[0]
            rows = {"glake": glake_row(args.tool, args.driver, trace, args.repeat, pair, timeline)}
            points, looks = [], []
            if timeline and rows["glake"].get("passes"):
                points, looks = looked_at(timeline)
            if not agrees(points, trace):
                sys.exit(f"{trace}: glakectl sees other events in it")
            at = [int(point["event"]) for point in points]
            if library:
                rows.update({n: torch_row(n, library, trace, args.repeat, at) for n in TORCH})
            if looks:
                put_timeline(writer, job, looks, rows)
            for name, row in rows.items():
                if "error" in row or not row["passes"]:
                    print(f"{job:<12}{name:<26} {row.get('error', 'out of memory')}")
                    continue
                first, last = row["passes"][0], row["passes"][-1]
                print(f"{job:<12}{name:<26}{row['pair']:>8.0f}{first['mean']:>12.0f}"
                      f"{first['p50']:>8.0f}{last['mean']:>12.0f}{last['p50']:>8.0f}"
                      f"{row['reserved']:>10.4f}{'  out of memory' if row['oom'] else ''}",
                      flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
