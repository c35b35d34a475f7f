# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The pictures of jobs, as figures of matplotlib: memory over time, and memory against driver time. As SVG their
colours are variables of the style around them, so that one picture is right in the light and in the dark.
"""

import io
import re

from . import tool

COLOURS = {"text": ("#1f2328", "#e6edf3"), "quiet": ("#59636e", "#9198a1"), "line": ("#d1d9e0", "#30363d"),
           "ground": ("#ffffff", "#0d1117"), "live": ("#0969da", "#58a6ff"), "reserved": ("#cf5a00", "#ffa657"),
           "other": ("#8250df", "#d2a8ff")}
# kinds of a map, of links
_LIGHT = "#eef1f4 #2f9e5b #b8860b #8251df #e3b341 #5aa2e0 #e0703a #8fb9b0 #b1bac4 #cf222e #8c959f #6e40c9"
_DARK = "#161b22 #3fb951 #d39922 #a371f7 #e3b342 #58a6fe #f0883e #56a396 #6e7681 #f85149 #8b949e #8957e5"
COLOURS.update({f"k{i}": pair for i, pair in enumerate(zip(_LIGHT.split(), _DARK.split()))})
UNWANTED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
TEXT, QUIET, LINE, GROUND, LIVE, RESERVED, OTHER = (COLOURS[name][0] for name in (
    "text", "quiet", "line", "ground", "live", "reserved", "other"))


def text_of(text):
    """A text from elsewhere as matplotlib is to draw it: as it is, and none that SVG has no place for."""
    return UNWANTED.sub("\ufffd", str(text)).replace("$", r"\$")


def style():
    """The variables, light and dark, as CSS."""
    rows = ["".join(f"--{name}:{pair[dark]};" for name, pair in COLOURS.items()) for dark in (0, 1)]
    return f":root{{{rows[0]}}}@media screen and (prefers-color-scheme:dark){{:root{{{rows[1]}}}}}"


def new(width, height, head=0):
    """A figure of so many pixels, `head` of them for a title above, and matplotlib's settings that all pictures share."""
    matplotlib = tool.pictures()
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "glake", "font.family": "sans-serif", "font.size": 9,
        "text.color": TEXT, "axes.edgecolor": QUIET, "axes.labelcolor": QUIET, "xtick.color": QUIET,
        "ytick.color": QUIET, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.grid": True,
        "grid.color": LINE, "grid.linewidth": 0.7, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "figure.facecolor": GROUND, "axes.facecolor": "none",
        "legend.frameon": False, "legend.labelcolor": TEXT, "axes.formatter.use_mathtext": False})
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    # known beforehand: to measure all texts would take as long as the rest
    figure.subplots_adjust(left=48 / width, right=1 - 14 / width, top=1 - (34 + head) / height, bottom=38 / height)
    return figure


def svg(figure, name, alone=False):
    """A figure as SVG, `name` before its identifiers; with its colours and head where it stands alone."""
    file = io.StringIO()
    figure.patch.set_visible(alone)
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    for key, (light, _) in COLOURS.items():
        text = re.sub(light + r"\b", f"var(--{key})", text)
    text = re.sub(r"\bid=\"|(?<=href=\"#)|(?<=url\(#)", lambda at: f"{at[0]}{name}-", text)
    text = re.sub(r" d=\"[^\"]*\"", lambda path: re.sub(r"(\d\.\d)\d+", r"\1", path[0]), text)
    text = re.sub(r"width=\"[\d.]+pt\" height=\"[\d.]+pt\"|height=\"[\d.]+pt\" width=\"[\d.]+pt\"", "", text, count=1)
    if not alone:
        return re.sub(r" xmlns(:xlink)?=\"[^\"]*\"", "", text).replace("xlink:href", "href")
    return text.replace(">", f"><style>{style()}</style>", 1)


def save(figure, name, write, kind):
    """A figure into a file of a kind, as svg, png or pdf."""
    if kind == "svg":
        return write(svg(figure, name, alone=True).encode())
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=144)
    return write(file.getvalue())


def _memory_axis(axes, most):
    name, of = tool.unit(most)
    axes.set_ylim(0, most * 1.08)
    step = next(step * 10.0 ** power for power in range(-3, 12) for step in (1, 2, 5)
                if most / of / (step * 10.0 ** power) <= 8)
    axes.set_yticks([i * step * of for i in range(int(most * 1.08 / of / step) + 1)],
                    [f"{i * step:g}" for i in range(int(most * 1.08 / of / step) + 1)])
    axes.set_title(name, color=QUIET)


def timeline(line, width, height=320, head=0):
    """Live and reserved memory over time, what lies between shaded; the figure and its axes."""
    figure = new(width, height, head)
    axes = figure.subplots()
    scale, name = (1, "events") if line["unit"] == "events" else next(
        (scale, name) for scale, name in ((1, "us"), (1e3, "ms"), (1e6, "s")) if line["end"] / scale < 1000 or scale == 1e6)
    at = [value / scale for value in (*line["at"], line["end"])]
    live, reserved = ([*line[key], line[key][-1]] for key in ("live", "reserved"))
    axes.fill_between(at, live, reserved, step="post", color=RESERVED, alpha=0.16, linewidth=0, label="reserved, not live")
    axes.fill_between(at, 0, live, step="post", color=LIVE, alpha=0.22, linewidth=0)
    for key, rows, colour in (("live", live, LIVE), ("reserved", reserved, RESERVED)):
        axes.plot(at, rows, drawstyle="steps-post", color=colour, linewidth=1.4, label=key, gid=key)
    axes.set_xlim(0, line["end"] / scale)
    _memory_axis(axes, max(*live, *reserved, 1))
    axes.set_xlabel(name if scale == 1 and name == "events" else f"time of the job, {name}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize=8)
    return figure, axes


def _best(points):
    """Those that no other one beats in both, by what they hold."""
    rows = sorted(points)
    return [row for row in rows if not any(
        a <= row[0] and b <= row[1] and (a, b) != row[:2] for a, b, *_ in rows)]


def frontier(points, recorded, width, height=280):
    """Reserved memory, as a multiple of live, against driver time: (over, ms, label, chosen); (name, over) of others."""
    figure = new(width, height)
    axes = figure.subplots()
    best = _best([(over, ms) for over, ms, *_ in points])
    axes.plot([over for over, _ in best], [ms for _, ms in best], color=QUIET, linestyle=(0, (5, 4)), linewidth=1.2, gid="front")
    most = max([ms for _, ms, *_ in points] + [0.1])
    overs = [over for over, *_ in points] + [over for _, over in recorded]
    axes.set_ylim(0, most * 1.12)
    axes.set_xlim(min(1, *overs), max(*overs, 1.01) * 1.02)
    span, said = axes.get_xlim()[1] - axes.get_xlim()[0], []
    for over, ms, label, chosen in sorted(points, key=lambda row: not row[3]):
        axes.plot([over], [ms], marker="o", markersize=8 if chosen else 6, color=RESERVED if chosen else LIVE, gid="point")
        if all(abs(over - x) > 0.16 * span or abs(ms - y) > 0.08 * most for x, y in said):
            right = over - axes.get_xlim()[0] > 0.8 * span
            axes.annotate(label, (over, ms), (-7 if right else 7, 5), textcoords="offset points", color=TEXT, fontsize=8,
                          ha="right" if right else "left", fontweight="bold" if chosen else "normal")
            said.append((over, ms))
    for i, (name, over) in enumerate(recorded):
        right = over - axes.get_xlim()[0] > 0.6 * span
        axes.axvline(over, color=OTHER, linewidth=1.6, gid="recorded")
        axes.annotate(text_of(name), (over, 1 - 0.08 * i), (-6 if right else 6, -9), xycoords=("data", "axes fraction"),
                      textcoords="offset points", color=TEXT, fontsize=8, ha="right" if right else "left")
    axes.set_title("ms", color=QUIET)
    axes.set_xlabel("reserved, as a multiple of peak live")
    return figure


def copies(found):
    """What bench copy measured: a panel for each way, a line for each number of links; dashed where memory was busy."""
    figure = new(1080, 380, head=40)
    figure.suptitle("Copies between the host and a GPU: GB/s against the size of a copy, medians of "
                    f"{found['rounds']} rounds", x=0.02, y=0.97, ha="left", fontsize=12)
    figure.subplots_adjust(wspace=0.18)
    cases = found["cases"]
    for axes, (way, title) in zip(figure.subplots(1, 3), (("down", "to the GPU"), ("up", "to the host"), ("both", "both at once"))):
        for links in sorted({case["links"] for case in cases}):
            rows = [case for case in cases if case["links"] == links]
            colour, label = COLOURS[f"k{links}"][0], f"{links} link{'s' * (links > 1)}"
            axes.plot([case["bytes"] for case in rows], [case[f"{way}_gbs"]["median"] for case in rows], color=colour,
                      label=label, marker="o", markersize=2, gid=f"{way}-{links}")
            if any("beside" in case for case in rows):
                axes.plot([case["bytes"] for case in rows], [case["beside"][f"{way}_gbs"] for case in rows], color=colour,
                          linestyle="--", gid=f"{way}-{links}-beside")
        slowed = [case["beside"][f"{way}_memory_slowed_percent"] for case in cases if "beside" in case]
        axes.set_xscale("log", base=2)
        sizes = sorted({case["bytes"] for case in cases})
        axes.set_xticks(sizes[::2], [tool.bytes_text(size) for size in sizes[::2]])
        axes.minorticks_off()
        axes.set_ylim(0)
        axes.set_title(title + (f"; memory up to {max(slowed):.0f} % slower" if slowed else ""))
        axes.legend(fontsize=8)
    return figure
