# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl run: a program becomes what it is, with its memory from glake, and says how much that was."""

import json
import os
import subprocess
import sys
import tempfile

from tap import HUNG, TOOL, done, equal, has, ok, start

FOLDER, PRELOAD = os.environ["GLAKE_TEST_FRONT"], os.environ["GLAKE_TEST_PRELOAD"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE", "LD_"))}
CLEAN.update(GLAKE_MAP_SPAN="64GiB", LC_ALL="C")
ROUTES = (f"{FOLDER}/preload-routes", "proc2")
# The driver of the tests is the program's alone: the tool would look at its GPUs.
CUDA = ("env", f"LD_LIBRARY_PATH={FOLDER}:{os.path.dirname(os.path.dirname(PRELOAD))}")


def run(*words, **env):
    return subprocess.run([TOOL, "run", *words], env={**CLEAN, **env}, capture_output=True, text=True,
                          timeout=HUNG)


def memory():
    ended = run(*CUDA, *ROUTES)
    equal(ended.returncode, 0, "a program ends well")
    equal(json.loads(ended.stdout)["alloc"], 0, "  with nothing from the driver's own allocator")
    has(ended.stderr, "GPU 0: memory comes from glake", "  it says so at its beginning")
    has(ended.stderr, "GPU 0: 17 blocks given, 17 taken back, ", "  and at its end how much that was")
    equal(ended.stderr.count("\n"), 2, "  and no more")
    equal(run("-q", *CUDA, *ROUTES).stderr, "", "with --quiet it says nothing")
    equal(run(*CUDA, *ROUTES, GLAKE_LOG_LEVEL="warning").stderr, "", "nor where the environment asks for less")
    ended = run("--conf", "pool.budget=128MiB", "-q", *CUDA, *ROUTES)
    equal(json.loads(ended.stdout)["total"], 128 << 20, "a setting holds")
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/a.trace"
        equal(run("--trace", trace, "-q", *CUDA, *ROUTES).returncode, 0, "recorded")
        shown = subprocess.run([TOOL, "trace", "show", "--json", trace], env=CLEAN, capture_output=True,
                               text=True, timeout=HUNG)
        equal(json.loads(shown.stdout)["kinds"]["allocate"], 17, "  with all its requests")


def passing():
    """What the driver gave itself is told of, and why it did."""
    ended = subprocess.run([TOOL, "run", *CUDA, f"{FOLDER}/preload-quota"], env=CLEAN, capture_output=True, text=True,
                           input="alloc 10\ncreate 50\ncreate 30\npass 20\n", timeout=HUNG)
    has(ended.stderr, "GPU 0: 1 blocks given", "what glake gave")
    has(ended.stderr, f"the driver itself gave {80 << 20} bytes: 2 pages that the program made", "what the program made itself")
    has(ended.stderr, f"the driver itself gave {20 << 20} bytes: 1 blocks of contexts, pools or captures", "and what glake left to it")


def words():
    equal(run("echo", "-q", "--conf", "--", "x").stdout, "-q --conf -- x\n", "what follows a program is its own")
    equal(run("--", "echo", "x").stdout, "x\n", "two dashes end the options")
    equal(run("echo", "x").stderr, "", "a program without a GPU says nothing")
    equal(run("sh", "-c", "exit 7").returncode, 7, "the status is the program's")
    equal(run("sh", "-c", "kill -TERM $$").returncode, -15, "and the signal that ends it")
    said = run("sh", "-c", "echo $LD_PRELOAD $GLAKE_POOL_BUDGET $GLAKECTL", LD_PRELOAD="libm.so.6").stdout
    equal(said, f"{os.path.realpath(PRELOAD)}:libm.so.6\n", "what is preloaded already stays, and nothing is left behind")


def mistakes():
    for given, status, text in (
            ((), 2, "a program is missing"), (("-c", "pool.budget"), 2, "takes SECTION.KEY=VALUE"),
            (("-c", "pool.budget=much", "true"), 2, "pool.budget: 'much' is not a size"),
            (("-c", "pool.bugdet=1GiB", "true"), 2, "pool.bugdet"),
            (("--quite", "true"), 2, "unknown option '--quite', is it --quiet"),
            (("/no/program",), 127, "/no/program: No such file or directory"),
            (("/etc/passwd",), 126, "/etc/passwd: Permission denied")):
        ended = run(*given)
        equal((ended.returncode, ended.stdout), (status, ""), f"run {' '.join(given)}: {status}")
        has(ended.stderr, text, "  with the reason")
        ok(len(ended.stderr.splitlines()) == 1, "  in a line", ended.stderr)


def main():
    start()
    memory()
    passing()
    words()
    mistakes()
    done()


sys.exit(main())
