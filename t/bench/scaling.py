#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Two threads on two streams beside one: nothing of a hit is shared, so twice the pairs are
expected, and 1.8 times is the aim. The ratio is that of the shortest times of many short
rounds, in which one thread, two threads, and a counter of each thread's own take turns.

Other programs run on the machines that tests run on. So the counter says what the machine had
to give at that time: where two threads of it gain less than 1.6 there were no two free
processors, and nothing can be said. And the limit is 1.4, well below the aim: a shared line in
the hit brings the ratio to 1 or below, while a neighbour that comes and goes moves it by a few
tenths. The best of a few runs counts.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from tap import done, note, ok, start, tool  # noqa: E402

LEAST = 1.4
AIM = 1.8
MACHINE = 1.6
RUNS = 5


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


def measure():
    """The ratio of the library and that of the machine; the former None without hits."""
    run = tool("bench", "-d", "soft", "-q", "-j", "-r", 20, "-t", 2, "alloc")
    if run.returncode:
        note(run.stderr.decode())
        return None, 0
    scale = json.loads(run.stdout)["scale"]
    mode = scale["modes"][0]
    if (mode["name"], mode["block_bytes"]) != ("own streams", 64 << 10):
        return None, 0
    note(f"ratio {mode['best_ratio']}, median {mode['ratio']['median']}, "
         f"machine {scale['machine_best_ratio']}, hits {mode['hits']} of {mode['requests']}")
    if mode["hits"] != mode["requests"]:
        return None, 0
    return mode["best_ratio"], scale["machine_best_ratio"]


def main():
    start()
    if len(os.sched_getaffinity(0)) < 2:
        skip("one processor")
    best, told = 0, False
    for _ in range(RUNS):
        ratio, machine = measure()
        if ratio is None:
            ok(False, "measured, and all were hits")
            done()
        if machine >= MACHINE:
            told = True
            best = max(best, ratio)
        if best >= AIM:
            break
    if not told:
        skip(f"no two processors were free: the machine itself gained less than {MACHINE}")
    ok(best >= LEAST, f"two threads make at least {LEAST} times the pairs of one", best)
    done()


main()
