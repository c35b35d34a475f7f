#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The pictures: that the timeline shades what is reserved and not live, names its peaks, its limit
and both ends of its axes, and that no label of the policies touches a mark or another label.
"""
import os
import re
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


def plot(folder, job, *more):
    path = os.path.join(folder, "plot.svg")
    return picture(path, "replay", "-q", "-d", "soft", "-r", "1", "-o", path, *more,
                   f"{DATA}/{job}.csv.xz")


def check_labels(root, job):
    """Labels lie inside of the picture and not on each other."""
    labels = [text for text in texts(root) if re.match(r"(peak|limit) ", text[3])]
    boxes = [box(text) for text in labels]
    touching = [(labels[i][3], labels[j][3]) for i in range(len(boxes)) for j in range(i)
                if overlap(boxes[i], boxes[j])]
    equal(touching, [], f"{job}: labels of peaks and limit lie apart")
    ok(all(b[0] >= 72 and b[2] <= 940 for b in boxes), f"{job}: and inside", boxes)
    return [text[3] for text in labels]


def check_timeline(folder):
    root = plot(folder, "opt13_N")
    equal(root[0].tag, SVG + "title", "the picture has a title")
    equal(root[0].text, "opt13_N: live and reserved GPU memory", "which says what it shows")
    classes = [path.get("class") for path in root.iter(SVG + "path")]
    equal(classes, ["between", "area", "live", "reserved"], "what lies between is shaded")
    styles = root.find(SVG + "style").text
    has(styles, "evenodd", "as what is in one of two areas and not in both")
    between = next(p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "between")
    area = next(p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "area")
    ok(between.endswith(area) and len(between) > len(area), "reserved, and live cut out")
    said = texts(root)
    has(" ".join(text[3] for text in said), "29 646 events", "thousands stand apart")
    equal(check_labels(root, "opt13_N"), ["peak live 36.3 GiB", "peak reserved 38.2 GiB"],
          "both peaks are named")
    equal(len(list(root.iter(SVG + "circle"))), 2, "and marked")
    ticks = [text for text in said if re.fullmatch(r"[\d. ]+", text[3])]
    xs = sorted((text[0], text[3]) for text in ticks if text[2] == "middle")
    equal((xs[0], xs[-1]), ((72, "0"), (936, "2.96")), "ticks at both ends of the time")
    ok(all(b[0] - a[0] >= 40 for a, b in zip(xs, xs[1:])), "which do not touch", xs)
    ys = sorted((text[1], text[3]) for text in ticks if text[2] == "end")
    equal((ys[0], ys[-1]), ((96.5, "45"), (408.5, "0")), "and of the memory")
    equal(lines(root, "limit"), [], "no limit where none was given")


def check_limit(folder):
    root = plot(folder, "detect", "--limit", "x1.03")
    label = [text for text in texts(root) if text[3].startswith("limit 31.1 GiB")]
    equal(len(label), 1, "a limit is named")
    drawn = lines(root, "limit")
    equal(len(drawn), 2, "drawn, and in the legend")
    # 0 at 404, 35 GiB at 92
    at = 404 - 31.1 / 35 * 312
    ok(any(abs(line[1] - at) < 1 and line[2] == 936 for line in drawn), "where it is", drawn)
    root = plot(folder, "opt13_N", "--limit", "x5")
    equal(lines(root, "limit"), [], "one that is far away would make the rest small")
    has(" ".join(text[3] for text in texts(root)), "limit 181 GiB", "and is named")
    for job, limit in (("opt13_N", "x1.004"), ("opt13_N", "x1.02"), ("opt13_N", "x1.2"),
                       ("opt13b_LR", "x1.004"), ("opt13b_LR", "x1.02"), ("detect", "x1.02")):
        root = plot(folder, job, "--limit", limit)
        equal(len(check_labels(root, f"{job} {limit}")), 3, "three labels")


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
        check_timeline(folder)
        check_limit(folder)
        check_policy(folder)
    done()


main()
