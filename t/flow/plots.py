#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The picture of policies: no label touches a mark or another label.
"""
import os
import tempfile
import xml.etree.ElementTree as xml

from tap import DATA, done, equal, has, ok, start, tool

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 7.0  # width of a letter of 13 px, about


def picture(path, *args):
    if os.path.exists(path):
        os.unlink(path)
    run = tool(*args)
    ok(os.path.exists(path), f"glakectl {' '.join(args[:3])} draws", run.stderr.decode())
    return xml.parse(path).getroot()


def texts(root):
    """(x, y, anchor, text) of all texts."""
    return [(float(t.get("x")), float(t.get("y")), t.get("text-anchor"), t.text or "")
            for t in root.iter(SVG + "text") if t.get("x")]


def box(text, letter=LETTER, height=11):
    x, y, anchor, said = text
    width = letter * len(said)
    left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
    return left, y - height, left + width, y


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def lines(root, name):
    return [[float(line.get(key)) for key in ("x1", "y1", "x2", "y2")]
            for line in root.iter(SVG + "line") if line.get("class") == name]


def check_policy(folder):
    path = os.path.join(folder, "policy.svg")
    root = picture(path, "bench", "policy", "-d", "soft", "-q", "-r", "1", "--svg", path,
                   f"{DATA}/opt13_N.csv.xz")
    equal(root[0].tag, SVG + "title", "the picture of policies has a title")
    marks = {}
    for mark in root.iter():
        title = mark.find(SVG + "title")
        if mark.tag == SVG + "circle":
            x, y, r = (float(mark.get(key)) for key in ("cx", "cy", "r"))
            marks[title.text.rsplit(": ", 1)[0]] = (x - r, y - r, x + r, y + r)
        elif mark.tag == SVG + "rect" and title is not None:
            x, y, w = (float(mark.get(key)) for key in ("x", "y", "width"))
            marks[title.text.rsplit(": ", 1)[0]] = (x, y, x + w, y + w)
    labels = {text[3]: box(text, 5.8, 9) for text in texts(root) if text[3] in marks}
    equal((len(marks), len(labels)), (16, 16), "each variant has a mark and a label")
    touching = [(a, b) for a in labels for b in marks if overlap(labels[a], marks[b])]
    equal(touching, [], "no label touches a mark")
    touching = [(a, b) for a in labels for b in labels if a < b and overlap(labels[a], labels[b])]
    equal(touching, [], "nor another label")
    grid = lines(root, "grid")
    across = sorted({line[0] for line in grid if line[0] == line[2]})
    up = sorted({line[1] for line in grid if line[1] == line[3]})
    equal((across[0], across[-1], up[0], up[-1]), (64, 544, 112, 396), "ticks at both ends")
    ok("1 000" in [text[3] for text in texts(root)], "thousands stand apart")


def main():
    start()
    with tempfile.TemporaryDirectory() as folder:
        check_policy(folder)
    done()


main()
