#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
How many instructions a request and a free take that the quick bins serve. Two runs with
different numbers of pairs are compared, so that the first requests, which are no hits, do not
count.

The same for a context that is recorded: what an event of its trace adds. The clock of valgrind is
a system call, that of a program is not, so that this says less about the time.

The limits are for a release build; with asserts or without full optimisation another limit
holds, and the test says so.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from callgrind import build_in, count  # noqa: E402
from tap import done, note, ok, start  # noqa: E402

GOAL = 220
LIMITS = {"release": 260, "checked": 400}
EVENT_LIMIT = 140
FEW, MANY = 2000, 12000
SIZES = {"512 B": 512, "64 KiB": 64 << 10, "3 MiB": 3 << 20, "16 MiB": 16 << 20}


def pairs_of(pairs, size, settings=()):
    """Instructions of a run with so many pairs."""
    return count(os.environ["GLAKE_PAIRS"], pairs, size, settings=settings)


def check_recorded():
    with tempfile.TemporaryDirectory(prefix="glake-") as folder:
        settings = {"GLAKE_TRACE_FILE": os.path.join(folder, "%p.trace")}
        counts = [pairs_of(pairs, 512, env) for env in ({}, settings) for pairs in (FEW, MANY)]
        recorded = len(os.listdir(folder))
    if not ok(all(counts) and recorded == 2, "recorded: counted, all hits"):
        return
    few, many, few_recorded, many_recorded = counts
    event = ((many_recorded - few_recorded) - (many - few)) / (MANY - FEW) / 2
    note(f"{event:.1f} instructions an event")
    ok(event <= EVENT_LIMIT, f"at most {EVENT_LIMIT} instructions an event", f"{event:.1f}")
    ok(event > 40, "and not too few to be true", f"{event:.1f}")


def main():
    start()
    build = build_in(LIMITS)
    limit = LIMITS[build]
    if build != "release":
        note(f"no release build: {limit} instead of {LIMITS['release']} is the limit")
    for name, size in SIZES.items():
        few, many = pairs_of(FEW, size), pairs_of(MANY, size)
        if not ok(few and many, f"{name}: counted, all hits"):
            continue
        pair = (many - few) / (MANY - FEW)
        note(f"{name}: {pair:.1f} instructions a pair; the goal is {GOAL}")
        ok(pair <= limit, f"{name}: at most {limit} instructions a pair", f"{pair:.1f}")
        # a probe that runs nothing would pass as well
        ok(pair > 50, f"{name}: and not too few to be true", f"{pair:.1f}")
    check_recorded()
    done()


main()
