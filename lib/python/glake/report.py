# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl report: a trace as one page of HTML that asks for nothing else, and says so itself by its policy of
content. The figures are those of glakectl replay; all of them can be read without the page's script, which only
tells what lies under the pointer. A page has sums and classes alone, so its size does not grow with the events.
"""

import base64
import contextlib
import hashlib
import html
import json
import math
import os
import re

from . import pictures, tool
from .tool import bytes_text, count_text, ns_text

HERE = os.path.dirname(__file__)
HELP = """\
usage: glakectl report [OPTION]... TRACE -o PAGE.html

Makes one page of HTML of an allocation trace, that needs nothing else: live and
reserved memory over time, sizes, lifetimes, streams, driver calls, and memory against
driver time. What is reserved comes from a replay of the trace through the library.
TRACE is one that glake recorded or a log of RAPIDS Memory Manager, plain or packed by
xz, gzip or zstd; - is standard input. It needs matplotlib.

  -o, --output FILE            the page to write, - for standard output; packed where
                               its name ends in .xz or .gz
  -R, --recorded NAME=BYTES    what another allocator reserved for the same job, to be
                               shown beside glake (default=39.4GiB); repeatable
  -f, --frontier auto|yes|no   replay under other values of policy.target too (auto: if
                               the trace has no more than 250000 events)
  -d, --driver auto|soft|cuda  what to replay on (soft)
  -g, --gpu N                  of a trace with several GPUs, the events of this one
  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable
  -L, --lenient                skip and count rows that are wrong
  -j, --json                   the figures as JSON on standard output
  -q, --quiet                  no progress, no remarks
  -h, --help                   this text
"""
TARGETS = (None, 1, 1.005, 1.02, 1.05, 1.1, 1.2)
MOST_EVENTS = 250000  # that are replayed under other targets unasked
STREAMS = 50  # rows of their table
SMALL = 9  # sizes below 2^9 share a row
AGES = ("< 10 us", "< 100 us", "< 1 ms", "< 10 ms", "< 0.1 s", "< 1 s", "< 10 s", "< 100 s", "< 1000 s", "longer",
        "not freed")


def text(value):
    """A text from elsewhere, which may be anything, as the content of an element."""
    return html.escape(pictures.UNWANTED.sub("\ufffd", str(value)))


def figure(value):
    """One whose parts stay on one line."""
    return value.replace(" ", "\xa0")


def target_text(target):
    return "auto" if target is None else f"x{target:g}"


def _recorded(given):
    """What --recorded named: a list of names and bytes."""
    rows = []
    for word in given:
        name, _, value = word.rpartition("=")
        if not tool.size(value):
            raise tool.usage("report", f"--recorded takes NAME=BYTES as default=39.4GiB, not '{word}'")
        if len(os.fsencode(name)) > 63:
            raise tool.usage("report", "--recorded takes a name of up to 63 bytes")
        rows.append((name or "allocator", tool.size(value)))
    if len(rows) > 8:
        raise tool.usage("report", "more than 8 times --recorded")
    return rows


def point_of(replayed, target, configured):
    """A point of the frontier."""
    times = [one["driver_ms"] for one in replayed["repeats"]]
    return {"target": target, "configured": configured, "peak_reserved_bytes": replayed["peak_reserved_bytes"],
            "reserved_over_live": replayed["reserved_over_live"], "first_ms": times[0], "later_ms": sum(times[1:]),
            "ok": replayed["ok"]}


def gather(path, given):
    """All figures that the page shows, its timeline among them, and the exit status."""
    words = ["--repeat", "2", "--driver", given.get("driver", ["soft"])[-1]]
    words += [word for key in ("gpu", "conf") for value in given.get(key, ()) for word in (f"--{key}", value)]
    words += ["--lenient"] * ("lenient" in given)
    quiet = ["--quiet"] * ("quiet" in given)
    status, found = tool.run_json("replay", [*words, *quiet, "--contents", "--", path])
    data, passes = found.pop("contents"), found.pop("repeats")
    for row, calls in zip(passes, data.pop("driver")):
        row["driver_calls"], row["driver_call_ns"] = ({name: pair[i] for name, pair in calls.items()} for i in (0, 1))
    own = None if data["target"] == "auto" else float(data["target"].lstrip("x"))
    points = [point_of({**found, "repeats": passes}, own, True)]
    wanted = given.get("frontier", ["auto"])[-1]
    if wanted == "yes" or (wanted == "auto" and found["events"] <= MOST_EVENTS):
        for target in TARGETS:
            if target != own:
                setting = f"policy.target={'auto' if target is None else target}"
                points.append(point_of(tool.run_json("replay", [*words, "--quiet", "--conf", setting, "--", path])[1],
                                       target, False))
    points.sort(key=lambda point: point["target"] or 0)
    keys = ("trace", "events", "streams", "job_s", "rows", "skipped", "cut_off", "peak_live_bytes", "driver",
            "peak_reserved_bytes", "reserved_over_live", "ok", "failure")
    named = [{"name": name, "reserved_bytes": size, "reserved_over_live": size / found["peak_live_bytes"]}
             for name, size in _recorded(given.get("recorded", ()))]
    for row in named:
        if row["reserved_bytes"] < found["peak_live_bytes"]:
            raise tool.usage("report", f"--recorded {row['name']}={row['reserved_bytes']} is less than the "
                                       f"{found['peak_live_bytes']} bytes that were live")
    data.update({key: found[key] for key in keys if key in found}, frontier=points, recorded=named, passes=[
        {key: row[key] for key in ("driver_ms", "driver_calls", "driver_call_ns", "hits", "misses", "failed")}
        for row in passes])
    return data, status


def number(count, what):
    return f"{figure(count_text(count))} {what}{'' if count == 1 else 's'}"


def _words(data):
    """What the job and its replay did, in sentences."""
    first, last = data["passes"][0], data["passes"][-1]
    soft = data["driver"] == "soft"
    job = (f"The job made {number(data['allocations'], 'allocation')} and {number(data['events'] - data['allocations'], 'free')}"
           f" on {number(data['streams'], 'stream')} and {number(data['threads'], 'thread')}")
    if data["job_s"]:
        job += f", in {figure(ns_text(data['job_s'] * 1e9))}"
    job += (f". At its peak {figure(bytes_text(data['peak_live_bytes']))} were live; its largest block has "
            f"{figure(bytes_text(data['largest_bytes']))}.")
    if data["program"]:
        job += f" It was recorded from <code><bdi>{text(data['program'])}</bdi></code>."
    calls = [sum(one["driver_calls"].values()) for one in (first, last)]
    replay = (f"Replayed on {'the software device' if soft else 'CUDA'}, glake reserved "
              f"{figure(bytes_text(data['peak_reserved_bytes']))} for it, <strong>x{data['reserved_over_live']:.4f}</strong>"
              f" of that. The first pass made {number(calls[0], 'driver call')}, which took "
              f"{figure(ns_text(first['driver_ms'] * 1e6))}{' on the clock of its model' * soft}")
    if data["job_s"]:
        replay += f", {first['driver_ms'] / (data['job_s'] * 10):.2f}&#160;% of the job's time"
    replay += (f"; the second, with the memory at hand, made {number(calls[1], 'call')} in "
               f"{figure(ns_text(last['driver_ms'] * 1e6))}")
    if last["hits"] + last["misses"]:
        replay += (f". The quick bins served {100 * last['hits'] / (last['hits'] + last['misses']):.1f}&#160;% of the "
                   "allocations of the second pass")
    return f"<p>{job}</p>\n<p>{replay}.</p>\n"


def _warnings(data):
    """What stands between the figures and the truth."""
    rows = []
    if data["cut_off"]:
        rows.append("the trace is cut off or broken; this is of what came before.")
    if data["skipped"]:
        rows.append(f"{count_text(data['skipped'])} of {number(data['rows'], 'row')} of the trace could not be used and "
                    "were left out.")
    if data["dropped"]:
        rows.append(f"{number(data['dropped'], 'event')} of the program could not be recorded and are missing.")
    if not data["ok"]:
        rows.append(f"the replay failed: {text(data['failure'])}")
    rows += [f"the replay with target {target_text(point['target'])} failed." for point in data["frontier"]
             if not point["ok"] and not point["configured"]]
    return "".join(f'<p class="warning"><strong>Note:</strong> {row}</p>\n' for row in rows)


def _cards(data):
    calls = [sum(one["driver_calls"].values()) for one in (data["passes"][0], data["passes"][-1])]
    rows = {"Events": count_text(data["events"]), "Peak live": bytes_text(data["peak_live_bytes"]),
            "Reserved": bytes_text(data["peak_reserved_bytes"]), "Reserved / live": f"x{data['reserved_over_live']:.4f}",
            "Largest block": bytes_text(data["largest_bytes"]), "Driver calls, first pass": count_text(calls[0]),
            "Driver calls, second pass": count_text(calls[1]), "Streams": count_text(data["streams"])}
    return '<dl class="cards">\n' + "".join(
        f"<div><dt>{name}</dt><dd>{figure(value)}</dd></div>\n" for name, value in rows.items()) + "</dl>\n"


def table(caption, columns, rows, kind=""):
    """Rows of cells; a pair is a cell's text and the share of its bar, a cell that begins with '<td' is whole."""
    def cell(value):
        if isinstance(value, tuple):
            return f'<td class="bar" style="--w:{value[1] * 100:.1f}%">{figure(value[0])}</td>'
        return value if value.startswith("<td") else f"<td>{figure(value)}</td>"

    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    lines = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(map(cell, row[1:]))}</tr>\n' for row in rows)
    return (f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table{kind}><caption>{caption}</caption>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody></table></div>\n")


def _size_text(power):
    return "&lt; 512&#160;B" if power < SMALL else f"{1 << power % 10}&#160;{tool.UNITS[power // 10]}"


def _by_power(data, step):
    """The classes of sizes by the power of two of a row, with what is between the first and the last."""
    rows = {}
    for one in data["sizes"]:
        power = max(one["from"].bit_length() - 1, SMALL - 1)
        power -= (power - SMALL) % step if power >= SMALL else 0
        row = rows.setdefault(power, {"blocks": 0, "bytes": 0, "bytes_at_peak": 0, "lifetimes": [0] * len(AGES)})
        for key in ("blocks", "bytes", "bytes_at_peak"):
            row[key] += one[key]
        row["lifetimes"] = [a + b for a, b in zip(row["lifetimes"], one["lifetimes"])]
    first, last = min(rows), max(rows)
    powers = [SMALL - 1] * (first < SMALL) + list(range(max(first, SMALL), last + 1, step))
    return [(power, rows.get(power)) for power in powers]


def _sizes(data):
    keys = ("blocks", "bytes", "bytes_at_peak")
    rows = _by_power(data, 1)
    most = {key: max(row[key] for _, row in rows if row) or 1 for key in keys}

    def cells(row):
        return [((count_text if key == "blocks" else bytes_text)(row[key]) if row and row[key] else "",
                 (row[key] if row else 0) / most[key]) for key in keys]

    return table("Blocks by size: each row up to the size of the next",
                 ("Size from", "Blocks", "Bytes, all together", "Live at the peak"),
                 [(_size_text(power), *cells(row)) for power, row in rows])


def _ages(data):
    """Blocks by size and by how long they lived, darker by the logarithm."""
    by_event = data["timeline"]["unit"] == "events"
    rows = _by_power(data, 2)
    used = [i for i in range(len(AGES) - 1) if any(row and row["lifetimes"][i] for _, row in rows)]
    columns = [*range(min(used), max(used) + 1)] if used else []
    columns.append(len(AGES) - 1)
    most = max(max(row["lifetimes"]) for _, row in rows if row)

    def cell(row, i):
        blocks = row["lifetimes"][i] if row else 0
        if not blocks:
            return "<td></td>"
        shade = 1 + round(6 * (math.log(blocks) / math.log(most) if most > 1 else 1))
        return f'<td class="shade{shade}">{figure(count_text(blocks))}</td>'

    names = [f"< {count_text(10 ** (i + 1))}" if by_event and i < 9 else AGES[i] for i in columns]
    what = "the number of events" if by_event else "the time"
    return table(f"Blocks by size and by {what} that they lived for", ("Size from", *names),
                 [(_size_text(power), *(cell(row, i) for i in columns)) for power, row in rows], ' class="ages"')


def _streams(data):
    rows = data["per_stream"]
    most = max(rows[0]["bytes"], 1)
    shown = [("default" if row["stream"] == "0x0" else row["stream"], count_text(row["allocations"]),
              count_text(row["frees"]), (bytes_text(row["bytes"]), row["bytes"] / most),
              bytes_text(row["peak_live_bytes"]), bytes_text(row["bytes_at_peak"])) for row in rows[:STREAMS]]
    more = f'<p class="quiet">And {len(rows) - STREAMS} more streams.</p>\n' if len(rows) > STREAMS else ""
    return table("Streams, most bytes first", ("Stream", "Allocations", "Frees", "Bytes, all together", "Its own peak",
                                               "Live at the peak"), shown) + more


def _calls(data):
    rows = [(name, *(cell for one in data["passes"] for cell in (
        count_text(one["driver_calls"][name]), ns_text(one["driver_call_ns"][name]))))
        for name in data["passes"][0]["driver_calls"] if any(one["driver_calls"][name] for one in data["passes"])]
    return table("Calls of the driver", ("Call", "First pass", "Time", "Second pass", "Time"), rows)


def _both(draw, name, label):
    """A picture for wide and for narrow windows."""
    return "".join(
        f'<div class="picture {kind}" role="img" aria-label="{label}">{draw(width, f"{name}-{kind}")}</div>\n'
        for kind, width in (("broad", 720), ("narrow", 340)))


def _timeline(data):
    def draw(width, name):
        drawn, axes = pictures.timeline(data["timeline"], width)
        svg = pictures.svg(drawn, name)
        box = axes.get_position()
        return (f'{svg}<div class="over" style="left:{box.x0 * 100:.2f}%;right:{(1 - box.x1) * 100:.2f}%;'
                f'top:{(1 - box.y1) * 100:.2f}%;bottom:{box.y0 * 100:.2f}%"><div class="cursor" hidden></div></div>')

    last = len(data["timeline"]["at"]) - 1
    return ('<figure class="chart" id="timeline">\n'
            + _both(draw, "timeline", "Live and reserved memory over the time of the job") +
            '</figure>\n<p id="moments" hidden><label for="moment">At</label> '
            f'<input type="range" id="moment" min="0" max="{last}" value="0"> '
            '<output id="said" for="moment"></output></p>\n')


def _frontier(data):
    points, recorded = data["frontier"], data["recorded"]
    rows, most = [], max(row["peak_reserved_bytes"] for row in points)
    most = max([most] + [row["reserved_bytes"] for row in recorded])
    for row in recorded:
        rows.append((f"recorded: {text(row['name'])}", (bytes_text(row["reserved_bytes"]), row["reserved_bytes"] / most),
                     f"x{row['reserved_over_live']:.4f}", "not known", "not known"))
    for row in points:
        name = f"glake, target {target_text(row['target'])}{', as configured' * row['configured']}"
        rows.append((name + ": requests were not served" * (not row["ok"]),
                     (bytes_text(row["peak_reserved_bytes"]), row["peak_reserved_bytes"] / most),
                     f"x{row['reserved_over_live']:.4f}", ns_text(row["first_ms"] * 1e6), ns_text(row["later_ms"] * 1e6)))
    said = ("A point is a replay under a value of <code>policy.target</code>, orange the one that is configured. "
            if len(points) > 1 else "<code>--frontier&#160;yes</code> adds replays under other values of "
                                    "<code>policy.target</code>. ")
    said += ("A line is what another allocator reserved." if recorded else "A trace does not tell what the allocator of its "
             "program reserved; <code>--recorded</code> adds that.")
    drawn = ""
    if len(points) > 1 or recorded:
        spots = [(row["reserved_over_live"], row["first_ms"] + row["later_ms"], target_text(row["target"]),
                  row["configured"]) for row in points]
        others = [(row["name"], row["reserved_over_live"]) for row in recorded]
        drawn = ('<figure class="chart" id="frontier">\n' + _both(
            lambda width, name: pictures.svg(pictures.frontier(spots, others, width), name), "frontier",
            "Reserved memory against driver time") + "</figure>\n")
    return f'<p class="quiet">{said}</p>\n{drawn}' + table(
        "Reserved memory and driver time", ("Allocator", "Reserved", "Over peak live", "Driver time, first pass",
                                            "Second pass"), rows)


def page(data):
    """The page, as a text."""
    sources = []
    for name in ("report.css", "report.js"):
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            sources.append(re.sub(r"/\* SPDX.*?\*/\s*", "", file.read(), count=1))
    css, script = pictures.style() + "\n" + sources[0], "\n" + sources[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    name = text(data["trace"])
    sections = (("Memory over time", '<p class="quiet">Reserved is what glake held in the first pass of its replay; what is '
                 "shaded above live is held and not in use.</p>\n" + _timeline(data)),
                ("Sizes", _sizes(data)), ("Lifetimes", _ages(data)), ("Streams", _streams(data)),
                ("The frontier: memory against driver time", _frontier(data)), ("Driver calls", _calls(data)))
    soft = (" The software device stands in for a GPU: it keeps the rules of the driver and adds up what each call costs on "
            "an H200." if data["driver"] == "soft" else "")
    # in JSON '<' stands in texts alone, so none can end the element
    figures = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src \
'sha256-{digest}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}: GPU memory</title>
<style>
{css}</style>
</head>
<body>
<main>
<h1><bdi>{name}</bdi>: GPU memory</h1>
{_cards(data)}{_warnings(data)}{_words(data)}\
{"".join(f"<section><h2>{title}</h2>{chr(10)}{content}</section>{chr(10)}" for title, content in sections)}\
<footer class="quiet"><p>Made by glakectl report.{soft}</p></footer>
</main>
<script type="application/json" id="data">{figures}</script>
<script>{script}</script>
</body>
</html>
"""


def run(words):
    """The command; its exit status."""
    given, rest = tool.options("report", HELP, words)
    path, as_json = given.get("output", [None])[-1], "json" in given
    if given.get("frontier", ["auto"])[-1] not in ("auto", "yes", "no"):
        raise tool.usage("report", f"--frontier is auto, yes or no, not '{given['frontier'][-1]}'")
    if not path and not as_json:
        raise tool.usage("report", "where to write the page is missing: -o FILE, or -o -")
    if path == "-" and as_json:
        raise tool.usage("report", "--json reports on standard output, so the page needs a file")
    tool.keep("report", path, rest[0])
    _recorded(given.get("recorded", ()))
    if path:
        tool.pictures()
    with contextlib.ExitStack() as stack:
        write = stack.enter_context(tool.output(path)) if path else None
        name = tool.spooled(rest[0], stack)
        data, status = gather(name, given)
        if name != rest[0]:
            data["trace"] = "standard input"
        if write:
            write(page(data).encode(errors="replace"))
    if as_json:
        del data["timeline"]
        print(json.dumps(data, indent=2))
    if not data["ok"]:
        tool.say(f"glakectl: {data['trace']}: {data['failure']}")
    return status


if __name__ == "__main__":
    tool.main("report", run)
