#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
How many instructions glake_planner_next takes with 256 requests while one more asks to be let in: two runs with different
numbers of calls are compared. The header says 200 us, in which a processor that does one a ns has 200 000.
"""
import os

from callgrind import build_in, count
from tap import done, note, ok, start

MOST = {"release": 200000, "checked": 400000}
FEW, MANY = 20, 120


def main():
    start()
    most = MOST[build_in(MOST)]
    for state in ("running", "away"):
        counts = [count(os.environ["GLAKE_PLANNER"], calls, state, of=("glake_planner_next",)) for calls in (FEW, MANY)]
        if not ok(all(counts), f"{state}: counted"):
            continue
        call = (counts[1] - counts[0]) / (MANY - FEW)
        note(f"{state}: {call:.0f} instructions a call")
        ok(256 < call <= most, f"{state}: at most {most} instructions, and not too few to be true", f"{call:.0f}")
    done()


main()
