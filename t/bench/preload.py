# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What the preload costs a program that never touches a GPU: most that are started under it. The same
program with it and without, one instruction at a time: no time is measured, so that the machine
may do what else it likes. Times of a few starts are noted and judge nothing.
"""
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from callgrind import build_in  # noqa: E402
from tap import done, note, ok, start  # noqa: E402

STEPS, PRELOAD = os.environ["GLAKE_TEST_STEPS"], os.environ["GLAKE_TEST_PRELOAD"]
MOST, TRUE, NOT_ALLOWED = 1.5, "/bin/true", 77
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "LD_"))}


def steps(preload):
    run = subprocess.run([STEPS, preload, TRUE], env=CLEAN, stdout=subprocess.PIPE, timeout=120,
                         check=False)
    if run.returncode == NOT_ALLOWED:
        print("1..0 # SKIP the kernel does not let one process step another here")
        sys.exit(0)
    return int(run.stdout) if not run.returncode else None


def took_us(env):
    begin = time.perf_counter()  # real time
    subprocess.run([TRUE], env=env, check=True)
    return (time.perf_counter() - begin) * 1e6  # real time


def main():
    start()
    build_in(("release", "checked"), callgrind=False)
    plain, under = steps("-"), steps(PRELOAD)
    if ok(plain and under, "counted"):
        note(f"{TRUE}: {plain} instructions, {under} under the preload, {under / plain:.3f} times")
        ok(plain < under <= MOST * plain, f"at most {MOST} times plain", plain, under)
    pairs = [(took_us(CLEAN), took_us({**CLEAN, "LD_PRELOAD": PRELOAD})) for _ in range(100)]
    for name, pick in (("fastest", min), ("median", statistics.median)):
        note(f"{name} of 100 starts: {pick(p[0] for p in pairs):.0f} us plain, "
             f"{pick(p[1] for p in pairs):.0f} us under the preload")
    done()


main()
