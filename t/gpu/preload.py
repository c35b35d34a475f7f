#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Programs that know nothing of glake, plain and under libglake-preload.so, on a real GPU:

    t/gpu/preload.py [-l FOLDER] [-p FOLDER] [-u FOLDER] [-o FILE] [NAME...]

runs the programs of preload.cu with the static and the shared runtime and with a default stream
for each thread, and the jobs of preload_jobs.py that have their packages here, and prints one
table. Each must say the same in both runs, and its memory must have gone through glake: of a job
that knows how much it has had, 99 % of that. -l is
where libglake-preload.so and the libraries it needs lie (by default that of a bundle, or
build/lib/front), -p where the programs are or are built with nvcc, -u where UCX is installed, for
the messages of preload_ucx.cu; -o takes what all runs wrote to stderr. Exit status 0: all is well.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ["vectors", "streams", "graph", "meanwhile", "threads", "pitch", "wait", "refused",
            "reset", "entry", "ipc", "odd", "cost"]
# How they are built: the runtime, and whose the default stream is.
KINDS = {"static": ["-cudart", "static"], "shared": ["-cudart", "shared"],
         "threads": ["-cudart", "static", "-default-stream", "per-thread"]}
JOBS = {"cupy": "cupy", "cupy-async": "cupy", "jax": "jax", "torch": "torch",
        "torch-async": "torch", "torch-cached": "torch", "numba": "numba"}
LIMIT = 120  # s that a program may take
UCX_KINDS = ("static", "shared")
# UCX as it comes, without its way over handles between processes, and where it does not watch
# memory but asks for it.
UCX = {"ucx": {}, "ucx-copy": {"UCX_TLS": "^cuda_ipc"},
       "ucx-asks": {"UCX_TLS": "^cuda_ipc", "UCX_MEM_CUDA_HOOK_MODE": "none"}}
UCX_SAYS = {"UCX_LOG_FILE": "stderr"}


def build(folder, ucx):
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(source.stat().st_mtime for source in HERE.glob("preload*.cu*"))
    wanted = [(f"preload-{kind}", [*options, "-Xcompiler", "-pthread", HERE / "preload.cu"])
              for kind, options in KINDS.items()]
    wanted += [(f"preload-ucx-{kind}", [*KINDS[kind], f"-I{ucx}/include", HERE / "preload_ucx.cu",
                                        f"-L{ucx}/lib", "-lucp", "-lucs"])
               for kind in UCX_KINDS if ucx]
    for name, options in wanted:
        program = folder / name
        if not program.exists() or program.stat().st_mtime < newest:
            subprocess.run(["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", program, *options],
                           check=True)


def run(command, env, log):
    """What a program says and writes, its status, and its time in s. One that does not end is ended
    with all its processes."""
    start = time.monotonic()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as job:
        try:
            said, wrote = job.communicate(timeout=LIMIT)
            status = job.returncode
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            said, wrote = job.communicate()
            status = "timeout"
    print(f"== {' '.join(map(str, command))} [{status}]\n{said}{wrote}", file=log, flush=True)
    return said, wrote, status, time.monotonic() - start


def served(wrote):
    """Blocks given, and of the GPU with the most of them bytes live and bytes of pages at most, by
    what the preload said at the end; and what the job has said that it had at most, or 0."""
    rows = [tuple(map(int, row)) for row in re.findall(
        r"GPU \d+: (\d+) blocks given, \d+ taken back, (\d+) bytes live at most on (\d+)", wrote)]
    peak = re.search(r"^peak (\d+)$", wrote, re.M)
    live, pages = max([row[1:] for row in rows] or [(0, 0)])
    return sum(row[0] for row in rows), live, pages, int(peak[1]) if peak else 0


def compare(name, command, preload, libraries, log, more=()):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    env.update(more)
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries + [env.get("LD_LIBRARY_PATH")]))
    plain = run(command, env, log)
    if plain[2] and command[0] == sys.executable:
        print(f"{name:22} skipped: does not run here without it: "
              f"{(plain[1].strip().splitlines() or ['no output'])[-1][:60]}")
        return True
    env.update(LD_PRELOAD=str(preload), GLAKE_LOG_LEVEL="info")
    under = run(command, env, log)
    blocks, live, _, peak = served(under[1])
    good = plain[0] == under[0] and plain[2] == under[2] == 0 and plain[0] and blocks > 0
    good = good and live >= 0.99 * peak
    print(f"{name:22} {'ok' if good else 'WRONG':6} {blocks:8} {live / 2**20:9.1f} "
          f"{plain[3]:7.2f} {under[3]:7.2f}  {under[0].strip()[:60]}", flush=True)
    if not good:
        print(f"    plain [{plain[2]}]: {plain[0].strip()}\n    under [{under[2]}]: "
              f"{under[0].strip()}\n    {under[1].strip()[-600:]}", flush=True)
    return bool(good)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    bundle = HERE / "python-lib"
    build_folder = HERE.parents[1] / "build"
    parser.add_argument("-l", type=Path,
                        default=bundle if bundle.exists() else build_folder / "lib/front")
    parser.add_argument("-p", type=Path,
                        default=HERE / "preload" if bundle.exists() else build_folder / "t/gpu")
    parser.add_argument("-u", type=Path, default=HERE / "ucx" if bundle.exists() else None)
    parser.add_argument("-o", default=os.devnull)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    every = PROGRAMS + list(UCX) + list(JOBS)
    unknown = [name for name in args.names if name not in every]
    if unknown:
        parser.error(f"no {', '.join(unknown)} among {' '.join(every)}")
    preload = args.l.resolve() / "libglake-preload.so"
    ours = [str(args.l.resolve())]
    runtime_at = [str(args.p.resolve()), "/usr/local/cuda/lib64"]
    if args.u and not args.u.exists():
        args.u = None
    build(args.p, args.u)
    good = True
    print(f"{'program':22} {'':6} {'blocks':>8} {'live MiB':>9} {'plain s':>7} {'under s':>7}")
    with open(args.o, "w", encoding="utf-8") as log:
        for name in args.names or every:
            if name in PROGRAMS:
                for kind in KINDS:
                    command = [args.p.resolve() / f"preload-{kind}", name]
                    good &= compare(f"{name} {kind}", command, preload, ours + runtime_at, log)
            elif name in UCX and not args.u:
                print(f"{name:22} skipped: no UCX")
            elif name in UCX:
                for kind in UCX_KINDS:
                    good &= compare(f"{name} {kind}", [args.p.resolve() / f"preload-ucx-{kind}"],
                                    preload, ours + runtime_at + [str(args.u.resolve() / "lib")],
                                    log, UCX[name] | UCX_SAYS)
            elif subprocess.run([sys.executable, "-c", f"import importlib.util as u, sys; "
                                 f"sys.exit(not u.find_spec('{JOBS[name]}'))"],
                                check=False).returncode:
                print(f"{name:22} skipped: no such package")
            else:
                good &= compare(name, [sys.executable, HERE / "preload_jobs.py", name],
                                preload, ours, log)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
