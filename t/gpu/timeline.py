#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Draws what allocators.py --timeline has written: what a job had live, and what each allocator had
reserved meanwhile.

    timeline.py FILE.csv -o PICTURE.svg [--job NAME]... [--allocator NAME]... [--first]

A panel for each job, in it the first pass and the last beside each other, over the time as it was
recorded; only the first with --first. The picture is one SVG file that needs nothing else, readable
on light and on dark ground. Allocators: those of ALLOCATORS that the file has figures of.
"""

import argparse
import csv
import sys
from collections import namedtuple
from html import escape
from itertools import count

ALLOCATORS = ["PyTorch", "PyTorch expandable", "glake"]
LABELS = {"PyTorch": "PyTorch's default", "PyTorch expandable": "its expandable segments"}
# light, dark, dashes: to be told from each other without colours too
STROKES = [("#8250df", "#d2a8ff", "7 4"), ("#1a7f37", "#56d364", "2 3"),
           ("#cf5a00", "#ffa657", ""), ("#cf222e", "#ff7b72", "9 3 2 3")]
WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 960, 330, 56, 24, 78, 46
ENTRY = (WIDTH - LEFT - RIGHT) / 4

Row = namedtuple("Row", "last seconds live held")


def read(path):
    """The rows of each job, and the names of the allocators."""
    jobs = {}
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = (reader.fieldnames or [])[5:]
        if not names or reader.fieldnames[:5] != ["job", "pass", "event", "seconds", "live"]:
            sys.exit(f"{path}: is no timeline of allocators.py")
        for row in reader:
            held = {name: int(row[name]) for name in names if row[name]}
            jobs.setdefault(row["job"], []).append(
                Row(row["pass"] != "1", float(row["seconds"]), int(row["live"]), held))
    return jobs, names


def scale(highest):
    """The axis of memory: its unit in bytes and by name, and the step of its ticks in bytes."""
    unit, name = next(((1 << n, u) for n, u in ((30, "GiB"), (20, "MiB")) if highest >= 1 << n),
                      (1 << 10, "KiB"))
    steps = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    return unit, name, unit * next(step for step in steps if highest / unit / step <= 8)


def text(x, y, said, kind="", anchor="start", more=""):
    return (f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>'
            f"{escape(said)}</text>")


def line(x1, y1, x2, y2, kind):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


class Panel:
    """One job."""

    def __init__(self, job, rows, names, top):
        self.job, self.top = job, top
        self.passes = [p for p in ([r for r in rows if r.last == last] for last in (False, True))
                       if p]
        self.names = [name for name in names if any(name in row.held for row in rows)]
        self.live = max(row.live for row in rows)
        self.peaks = {n: max(row.held.get(n, 0) for row in rows) for n in self.names}
        self.unit, self.unit_name, self.step = scale(max(self.live, 1, *self.peaks.values()))
        highest = max(self.live, *self.peaks.values(), 1)
        self.bytes = (int(highest * 1.03 / self.step) + 1) * self.step
        self.seconds = max(rows[-1].seconds, 1e-6)
        self.width = (WIDTH - LEFT - RIGHT) / len(self.passes)

    def x(self, number, seconds):
        return LEFT + (number + seconds / self.seconds) * self.width

    def y(self, size):
        return self.top + PANEL - BOTTOM - size / self.bytes * (PANEL - TOP - BOTTOM)

    def steps(self, number, value):
        """A curve of one pass, which stands where the figures are not known."""
        points = [(row.seconds, value(row)) for row in self.passes[number]]
        points = [(seconds, size) for seconds, size in points if size is not None]
        if not points:
            return ""
        start = 0 if number == 0 else points[0][1]
        path = f"M{self.x(number, 0):.1f} {self.y(start):.1f}"
        for seconds, size in points:
            path += f"H{self.x(number, seconds):.1f}V{self.y(size):.1f}"
        whole = len(points) == len(self.passes[number])
        return path + (f"H{self.x(number, self.seconds):.1f}" if whole else "")

    def legend(self):
        entries = [("live", "live, at most", self.live)]
        entries += [(f"a{i}", LABELS.get(n, n), self.peaks[n]) for i, n in enumerate(self.names)]
        for i, (kind, label, size) in enumerate(entries):
            x, y = LEFT + i * ENTRY, self.top + 44
            if kind == "live":
                yield f'<rect class="area" x="{x:.1f}" y="{y - 9:.1f}" width="24" height="10"/>'
            yield line(x, y - 4, x + 24, y - 4, kind)
            yield text(x + 30, y, label)
            said = f"{size / self.unit:.1f} {self.unit_name}"
            if kind != "live":
                said += f", {size / max(self.live, 1):.3f} of live"
            yield text(x + 30, y + 16, said, "quiet")

    def axes(self):
        for i in range(int(self.bytes / self.step + 0.5) + 1):
            y = self.y(i * self.step)
            yield line(LEFT, y, WIDTH - RIGHT, y, "grid" if i else "axis")
            yield text(LEFT - 8, y + 4.5, f"{i * self.step / self.unit:g}", "quiet", "end")
        yield text(LEFT - 8, self.top + 16, self.unit_name, "quiet", "end")
        y = self.y(0)
        for number in range(len(self.passes)):
            said = "first pass" if number == 0 else "last pass"
            yield text(self.x(number + 0.5, 0), y + 20, f"{said}, {self.seconds:.3g} s as recorded",
                       "quiet", "middle")
            if number:
                yield line(self.x(number, 0), self.top + TOP - 8, self.x(number, 0), y + 5, "axis")

    def draw(self):
        yield text(LEFT, self.top + 18, f"{self.job}: live and reserved GPU memory", "", "start",
                   'font-size="16" font-weight="600"')
        yield from self.legend()
        yield from self.axes()
        for number in range(len(self.passes)):
            live = self.steps(number, lambda row: row.live)
            yield (f'<path class="area" d="{live}V{self.y(0):.1f}'
                   f'H{self.x(number, 0):.1f}Z"/>')
            yield f'<path class="live" d="{live}"/>'
            for i, name in enumerate(self.names):
                path = self.steps(number, lambda row: row.held.get(name))
                if path:
                    yield (f'<path class="a{i}" d="{path}"><title>{escape(name)}</title>'
                           "</path>")


def styles():
    light = dark = ""
    for i, (on_light, on_dark, dashes) in enumerate(STROKES):
        light += (f".a{i} {{ stroke: {on_light}; fill: none; stroke-width: 1.8; "
                  f"stroke-dasharray: {dashes or 'none'} }}\n")
        dark += f".a{i} {{ stroke: {on_dark} }}\n"
    return f"""<style>
.ground {{ fill: #ffffff }} text {{ fill: #1f2328 }} .quiet {{ fill: #59636e }}
.grid {{ stroke: #d1d9e0 }} .axis {{ stroke: #59636e }}
.live {{ stroke: #0969da; fill: none; stroke-width: 1.2 }}
.area {{ fill: #0969da; fill-opacity: 0.22 }}
{light}@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117 }} text {{ fill: #e6edf3 }} .quiet {{ fill: #9198a1 }}
.grid {{ stroke: #30363d }} .axis {{ stroke: #9198a1 }}
.live {{ stroke: #58a6ff }} .area {{ fill: #58a6ff }}
{dark}}}
</style>"""


def picture(jobs, names):
    """The whole file; names: of the allocators, as they are to stand."""
    height = PANEL * len(jobs) + 8
    title = "Live and reserved GPU memory of " + ", ".join(jobs)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" '
             f'font-size="13">', f"<title>{escape(title)}</title>",
             "<!-- SPDX-License-Identifier: LGPL-2.1-or-later -->", styles(),
             f'<rect class="ground" width="{WIDTH}" height="{height}"/>']
    for at, (job, rows) in enumerate(jobs.items()):
        parts += Panel(job, rows, names, at * PANEL + 8).draw()
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0].strip())
    parser.add_argument("csv")
    parser.add_argument("-o", "--output", required=True, metavar="PICTURE.svg")
    parser.add_argument("--job", action="append", help="all, unless given")
    parser.add_argument("--allocator", action="append",
                        help=f"at most four; unless given, {', '.join(ALLOCATORS)}")
    parser.add_argument("--first", action="store_true", help="the first pass alone")
    args = parser.parse_args()
    jobs, names = read(args.csv)
    wanted = args.allocator or [name for name in ALLOCATORS if name in names]
    for kind, unknown in (("job", set(args.job or []) - set(jobs)),
                          ("allocator", set(wanted) - set(names))):
        if unknown:
            sys.exit(f"{args.csv}: has no {kind} {sorted(unknown)[0]}")
    if len(wanted) > len(STROKES):
        sys.exit(f"at most {len(STROKES)} allocators fit into one picture")
    chosen = {job: [row for row in rows if not (args.first and row.last)]
              for job, rows in jobs.items() if job in (args.job or jobs)}
    if not chosen:
        sys.exit(f"{args.csv}: has no job")
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(picture(chosen, wanted))


if __name__ == "__main__":
    main()
