# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What a program bears that has nothing to do with GPUs: under the preload the preload alone, and
with libglake nothing that only reports need.
"""
import os
import subprocess

from tap import HUNG, done, equal, ok, start

PRELOAD, PROGRAM = os.environ["GLAKE_TEST_PRELOAD"], os.environ["GLAKE_TRACE_PROGRAM"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "LD_"))}
FIRST, _, OURS = PRELOAD.rpartition(":")
HEAVY = "libkmod libnuma libjson-c libcrypto libzstd liblzma libz.".split()


def mapped(load):
    """Files that a program has in its address space."""
    env = {**CLEAN, **({"LD_PRELOAD": load} if load else {})}
    run = subprocess.run(["/bin/cat", "/proc/self/maps"], env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=False, timeout=HUNG)
    equal((run.returncode, run.stderr), (0, b""), "a program runs and nobody speaks")
    rows = (row.split(None, 5) for row in run.stdout.decode().splitlines())
    return {row[5] for row in rows if len(row) > 5 and row[5].startswith("/")}


def needed(program):
    """Libraries that the dynamic linker would load for a program."""
    run = subprocess.run([program], env={**CLEAN, "LD_TRACE_LOADED_OBJECTS": "1"},
                         stdout=subprocess.PIPE, check=True, timeout=HUNG)
    return [row.split()[0] for row in run.stdout.decode().splitlines()]


def main():
    start()
    plain, under = mapped(FIRST), mapped(PRELOAD)
    ok(plain, "there are libraries to be seen", plain)
    equal(sorted(under - plain), [os.path.realpath(OURS)], "the preload brings itself alone")
    names = needed(PROGRAM)
    ok(any(name.startswith("libglake.so") for name in names), "a program of the library", names)
    equal([name for name in names if name.startswith(tuple(HEAVY))], [],
          "bears no library that it may never need")
    done()


main()
