# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The timeline of a replay in characters: columns are time, each as high as the most live memory in it, topped up to what was
reserved then. The gap between the two is what an allocator wastes.
"""

import os
import sys

from . import tool

WIDTH, HEIGHT = 68, 14
BLOCKS = " ▁▂▃▄▅▆▇█"


def _columns(line):
    """(live, reserved) of each column; one without a sample goes on as the last one ended."""
    columns, last, samples = [], (0, 0), list(zip(line["at"], line["live"], line["reserved"]))
    for x in range(WIDTH):
        here = []
        while samples and (samples[0][0] / line["end"] * WIDTH < x + 1 or x + 1 == WIDTH):
            last = samples.pop(0)[1:]
            here.append(last)
        columns.append(tuple(map(max, zip(*here))) if here else last)
    return columns


def _cell(live, reserved, is_unicode):
    """A character by how much of it the live and the reserved memory fill."""
    if not is_unicode:
        return "#" if live >= 0.5 else ":" if reserved >= 0.5 else " "
    if live <= 0.0625:
        return "░" if reserved >= 0.5 else " "
    return BLOCKS[8 if live >= 1 else int(live * 8 + 0.5)]


def text(line):
    """The lines of the chart."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    is_unicode = "utf" in locale.lower() and "utf" in (sys.stdout.encoding or "").lower()
    side, corner, floor, live, reserved = "│└─█░" if is_unicode else "|+-#:"
    columns = _columns(line)
    name, unit = tool.unit(max(most for _, most in columns) or 1)
    top = max(most for _, most in columns) / unit or 1
    cell = top * unit / HEIGHT
    yield f"  {name:>8}"
    for row in reversed(range(HEIGHT)):
        label = f"{top * (row + 1) / HEIGHT:.3g}" if row in (HEIGHT - 1, HEIGHT // 2 - 1) else ""
        yield f"  {label:>8} {side}" + "".join(
            _cell(used / cell - row, most / cell - row, is_unicode) for used, most in columns)
    end = tool.ns_text(line["end"] * 1e3) if line["unit"] == "us" else tool.count_text(line["end"])
    yield f"  {'0':>8} {corner}{floor * WIDTH}"
    yield f"  {'':8}  0{end:>{WIDTH - 1}}"
    yield f"  {'':8}  {live} live   {reserved} reserved (first repeat)"
