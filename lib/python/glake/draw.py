# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl draw: a picture of what another command has reported as JSON; what it is of is told by its members."""

import json
import os
import sys

from . import chart, curves, maps, pictures, tool

HELP = """\
usage: glakectl draw FILE.json [-o PICTURE]

Draws what a command has reported with --json: replay --contents, live and reserved
memory over time; map, the address space; bench copy, GB/s by size; kv simulate,
latencies and memory by policy. FILE may be - for standard input. It needs matplotlib,
which makes SVG, PNG and PDF. Without -o the memory over time of replay --contents is
shown in characters, for which nothing is needed.

  -o, --output FILE           the picture, its kind by its name: .svg, .png or .pdf
  -b, --by state|stream|size  of a map: what colours stand for (state)
  -h, --help                  this text
"""


def _timeline(found):
    line = found["contents"]["timeline"]
    figure, axes = pictures.timeline(line, 690, 350, head=24)
    figure.suptitle(f"{pictures.text_of(found['trace'])}: live and reserved GPU memory", x=0.02, y=0.98, ha="left", fontsize=12)
    if found["budget_bytes"] and found["budget_bytes"] < 2 * max(line["reserved"]):
        axes.axhline(found["budget_bytes"], color=pictures.OTHER, linestyle=(0, (6, 4)), linewidth=1.2)
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.08 * found["budget_bytes"]))
        axes.annotate(f"limit {tool.bytes_text(found['budget_bytes'])}", (0, found["budget_bytes"]), (4, 3),
                      textcoords="offset points", fontsize=8)
    for i, (key, place) in enumerate((("live", -13), ("reserved", 6))):
        at = line[key].index(max(line[key]))
        scale = axes.get_xlim()[1] / line["end"]
        x = line["at"][at] * scale
        left = x > 0.75 * axes.get_xlim()[1]
        axes.plot([x], [line[key][at]], marker="o", markersize=4, color=(pictures.LIVE, pictures.RESERVED)[i], gid=f"peak-{key}")
        axes.annotate(f"peak {key} {tool.bytes_text(line[key][at])}", (x, line[key][at]), (-6 if left else 6, place),
                      textcoords="offset points", fontsize=8, ha="right" if left else "left")
    return figure


KINDS = {"contents": lambda found, _: _timeline(found), "points": lambda found, _: curves.figure(found),
         "gpus": maps.figure, "copy": lambda found, _: pictures.copies(found["copy"])}


def run(words):
    """The command; its exit status."""
    given, rest = tool.options("draw", HELP, words)
    path = given.get("output", [None])[-1]
    kind = os.path.splitext(path or "")[1][1:].lower()
    if path and kind not in ("svg", "png", "pdf"):
        raise tool.usage("draw", "-o takes a FILE.svg, .png or .pdf")
    tool.keep("draw", path, rest[0])
    by = given.get("by", ["state"])[-1]
    if by not in ("state", "stream", "size"):
        raise tool.usage("draw", f"--by is state, stream or size, not '{by}'")
    try:
        with (sys.stdin if rest[0] == "-" else open(rest[0], encoding="utf-8")) as file:
            found = json.load(file)
    except OSError as error:
        raise tool.Failure(f"glakectl: {rest[0]}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise tool.Failure(f"glakectl: {rest[0]}: it is no JSON: {error}") from error
    make = next((make for key, make in KINDS.items() if isinstance(found, dict) and key in found), None)
    if not make:
        raise tool.Failure(f"glakectl: {rest[0]}: nothing in it can be drawn; see glakectl draw --help")
    try:
        if path:
            with tool.output(path) as write:
                pictures.save(make(found, by), "picture", write, kind)
        elif "contents" in found:
            print("\n".join(chart.text(found["contents"]["timeline"])))
        else:
            raise tool.usage("draw", "where to draw is missing: -o FILE.svg, .png or .pdf")
    except (OSError, tool.Failure):
        raise
    except Exception as error:  # whatever it has or lacks
        raise tool.Failure(f"glakectl: {rest[0]}: it is not whole: {type(error).__name__}: {error}") from error
    return 0


if __name__ == "__main__":
    tool.main("draw", run)
