#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Other runtimes on glake on a real GPU, by the doors of the Python module and by the preload:

    doors.py [-l FOLDER] [NAME...]

The jobs are jax, by the preload, and those of doors_jobs.py: rmm cudf numba cuda_core warp
onnxruntime. Each runs plain and on glake, in processes of their own, and must say the same; and
glake's own counters must show that the memory was glake's. -l is where the libraries lie (by
default those of a bundle, or build/lib/front).

Speaks TAP. Without a GPU or without its package a job skips and says why.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from doors_jobs import JOBS
from preload import served

HERE = Path(__file__).resolve().parent
PACKAGES = {"cuda_core": "cuda.core"}
LIMIT = 240  # s that a job may take
JAX_FROM_GLAKE = 0.99  # of the bytes that JAX knows of
JAX_HELD = 1.05        # of what is live, at the peaks
_count = _failed = 0


def ok(passed, what, *notes):
    global _count, _failed
    _count += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_count} - {what}", flush=True)
    for note in () if passed else notes:
        print("#", str(note).strip().replace("\n", "\n# "), flush=True)
    return passed


def skip(what, why):
    global _count
    _count += 1
    print(f"ok {_count} - {what} # SKIP {why}", flush=True)


def run(command, folder, **more):
    """What a process says and writes, and its status."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    env.update(GLAKE_DRIVER_BACKEND="cuda", GLAKE_LIBRARY_PATH=str(folder), **more)
    paths = [HERE, HERE / "../../lib/python", env.get("PYTHONPATH")]
    env["PYTHONPATH"] = ":".join(str(path) for path in paths if path)
    try:
        done = subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True,
                              text=True, timeout=LIMIT, check=False)
        return done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as slow:
        return "", f"ended after {LIMIT} s\n{slow.stderr}", "timeout"


def last(text):
    """The last line that says something."""
    lines = [line for line in text.splitlines() if any(map(str.isalpha, line))]
    return (lines or ["it says nothing"])[-1][:200]


def has_package(name):
    code = f"import importlib.util as u, sys; sys.exit(not u.find_spec({name!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True,
                          check=False).returncode == 0


def job(name, folder):
    """A job of doors_jobs.py by the Python module."""
    command = [HERE / "doors_jobs.py", name]
    plain = run([*command, "plain"], folder)
    if plain[2]:
        skip(name, f"it does not run here without glake either: {last(plain[1])}")
        return
    ours = run([*command, "glake"], folder)
    if not ok(not ours[2], f"{name}: runs on glake", ours[1]):
        return
    want, got = json.loads(last_json(plain[0])), json.loads(last_json(ours[0]))
    ok(got["result"] == want["result"], f"{name}: says the same as plain", want["result"],
       got["result"])
    facts = got["facts"]
    before, during, after = (facts[when] for when in ("before", "during", "after"))
    wanted = facts["wanted"]
    ok(during["live"] - before["live"] >= wanted,
       f"{name}: the {wanted >> 20} MiB that it holds are glake's", facts)
    ok(after["allocs"] > during["allocs"] > before["allocs"] or name == "onnxruntime",
       f"{name}: {after['allocs'] - before['allocs']} requests were glake's", facts)
    ok(after["frees"] > before["frees"] and after["live"] - before["live"] < wanted // 20,
       f"{name}: freed", facts)


def last_json(text):
    return [line for line in text.splitlines() if line.startswith("{")][-1]


def jax(folder):
    """JAX with cuda_async under the preload."""
    command = [HERE / "preload_jobs.py", "jax"]
    plain = run(command, folder, LD_LIBRARY_PATH=libraries(folder))
    if plain[2]:
        skip("jax", f"it does not run here without glake either: {last(plain[1])}")
        return
    ours = run(command, folder, LD_LIBRARY_PATH=libraries(folder), GLAKE_LOG_LEVEL="info",
               LD_PRELOAD=str(folder / "libglake-preload.so"))
    if not ok(not ours[2], "jax: runs under the preload", ours[1]):
        return
    ok(ours[0] == plain[0], "jax: says the same as plain", plain[0], ours[0])
    blocks, live, pages, peak = served(ours[1])
    print(f"# {blocks} blocks, {live} bytes live on {pages}; JAX has had {peak}")
    ok(blocks > 100, f"jax: {blocks} requests were glake's", ours[1][-2000:])
    ok(peak and live >= JAX_FROM_GLAKE * peak, "jax: its bytes are glake's", live, peak)
    ok(live and pages <= JAX_HELD * live,
       f"jax: {pages / max(live, 1):.3f} of what is live is held", pages, live)


def libraries(folder):
    return ":".join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    bundle = HERE / "python-lib"
    parser.add_argument("-l", type=Path, default=bundle if bundle.exists()
                        else HERE.parents[1] / "build/lib/front")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    every = ["jax", *JOBS]
    unknown = [name for name in args.names if name not in every]
    if unknown:
        parser.error(f"no {', '.join(unknown)} among {' '.join(every)}")
    folder = args.l.resolve()
    print("TAP version 13")
    for name in args.names or every:
        package = PACKAGES.get(name, name)
        if not has_package(package.partition(".")[0]):
            skip(name, f"no {package} here")
        elif name == "jax":
            jax(folder)
        else:
            job(name, folder)
    print(f"1..{_count}")
    return _failed != 0


if __name__ == "__main__":
    sys.exit(main())
