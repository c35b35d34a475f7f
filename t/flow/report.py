#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl report: that the figures of the page are those of `trace show` and `replay`, that the page
asks for nothing and cannot be made to by names, that it appears when it is whole and else not at
all, and that it stays small.
"""
import base64
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile

from page import Page, has_matplotlib
from tap import DATA, HUNG, TOOL, done, equal, has, note, ok, skip, start, tool, until
from warm import warm

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
SMALL = HEADER + """0,0,allocate,0x1000,1048576,0
0,5,allocate,0x2000,100,0
1,20,allocate,0x3000,3145728,7
1,30,free,0x2000,100,0
0,2000030,free,0x3000,3145728,0
0,2000040,allocate,0x3000,2097152,7
"""
PROGRAM_AT = 128  # in the header of struct glake_trace_header, include/glake/trace.h
HOSTILE = "</script></title><img src=x onerror=alert(1)>\"'&amp;<!--\n\u202e\udcff"


def write(folder, name, content):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def left(folder, begin):
    return sorted(name for name in os.listdir(folder) if name.startswith(begin))


def report(folder, trace, *options, tool=warm):
    """Makes a page; the page, and the run."""
    path = os.path.join(folder, "page.html")
    if os.path.exists(path):
        os.unlink(path)
    run = tool("report", "-q", "-o", path, *options, trace)
    if not os.path.exists(path):
        note(run.stderr.decode())
        return None, run
    with open(path, "rb") as file:
        page = Page(file.read().decode())
    equal(page.wrong, [], f"report {ascii(options)}: tags are nested as they should")
    return page, run


def check_figures(folder, job):
    """The page against the other commands."""
    trace = f"{DATA}/{job}.csv.xz"
    page, run = report(folder, trace, tool=tool)
    if not ok(page and run.returncode == 0, f"{job}: a page"):
        return
    data = page.data()
    shown = json.loads(tool("trace", "show", "--json", trace).stdout)
    replayed = json.loads(tool("replay", "-q", "-d", "soft", "-r", "2", "--json", trace).stdout)
    equal((data["events"], data["job_s"]), (shown["events"], shown["job_s"]), "events and time")
    equal(data["allocations"], shown["kinds"]["allocate"], "allocations")
    equal(data["peak_live_bytes"], shown["gpus"][0]["peak_live_bytes"], "the peak of live")
    for key in ("peak_live_bytes", "peak_reserved_bytes", "reserved_over_live", "streams"):
        equal(data[key], replayed[key], f"{key} as a replay has it")
    for mine, other in zip(data["passes"], replayed["repeats"]):
        for key in ("driver_ms", "hits", "misses", "failed"):
            equal(mine[key], other[key], f"{key} too")
        calls = {key: mine["driver_calls"][key] for key in other["driver_calls"]}
        equal(calls, other["driver_calls"], "driver calls by kind")
    streams = {row["stream"]: row["allocations"] + row["frees"] for row in data["per_stream"]}
    equal(streams, {row["stream"]: row["events"] for row in shown["streams"]}, "streams' events")
    line = data["timeline"]
    equal(max(line["live"]), data["peak_live_bytes"], "the timeline has the peak of live")
    most = max(line["reserved"])
    # a later pass may hold a little more
    ok(0.95 * data["peak_reserved_bytes"] < most <= data["peak_reserved_bytes"],
       "and what was reserved in the first pass", most)
    ok(line["at"] == sorted(line["at"]) and line["at"][-1] <= line["end"], "in order")
    ok(500 < len(line["at"]) <= 2048, f"{len(line['at'])} points", line["at"][:3])
    equal(sum(row["blocks"] for row in data["sizes"]), data["allocations"], "all blocks by size")
    equal(sum(row["bytes_at_peak"] for row in data["sizes"]), data["peak_live_bytes"],
          "what was live at the peak, by size")
    equal(sum(sum(row["lifetimes"]) for row in data["sizes"]), data["allocations"], "by lifetime")
    equal(sum(row["bytes_at_peak"] for row in data["per_stream"]), data["peak_live_bytes"],
          "and by stream")
    chosen = [row for row in data["frontier"] if row["configured"]]
    equal([(row["target"], row["peak_reserved_bytes"]) for row in chosen],
          [(None, data["peak_reserved_bytes"])], "one point of the frontier is this replay")
    equal([row["target"] for row in data["frontier"]], [None, 1, 1.005, 1.02, 1.05, 1.1, 1.2],
          "beside others")
    check_shown(page, data, job)


def check_shown(page, data, job):
    """What people read is what programs read."""
    cards = page.cards()
    calls = [sum(row["driver_calls"].values()) for row in data["passes"]]
    wanted = {"Events": data["events"], "Driver calls, first pass": calls[0],
              "Driver calls, second pass": calls[1], "Streams": data["streams"]}
    equal({key: int(cards[key].replace(" ", "")) for key in wanted}, wanted, f"{job}: the summary")
    equal(cards["Reserved / live"], f"x{data['reserved_over_live']:.4f}", "the ratio")
    rows = page.tables["Streams, most bytes first"]
    equal(len(rows), data["streams"], "a row a stream")
    rows = page.tables["Blocks by size: each row up to the size of the next"]
    equal(sum(int(row[1].replace(" ", "") or 0) for row in rows), data["allocations"],
          "the histogram has all blocks")
    rows = page.tables["Blocks by size and by the time that they lived for"]
    equal(sum(int(cell.replace(" ", "") or 0) for row in rows for cell in row[1:]),
          data["allocations"], "and the picture of lifetimes")
    rows = page.tables["Calls of the driver"]
    equal({row[0]: int(row[1].replace(" ", "")) for row in rows},
          {name: count for name, count in data["passes"][0]["driver_calls"].items()
           if count or data["passes"][1]["driver_calls"][name]}, "the calls of the driver")
    groups = {attrs.get("id") for attrs in page.of("g")}
    ok({f"{picture}-{width}-{name}" for width in ("broad", "narrow") for picture, name in (
        ("timeline", "live"), ("timeline", "reserved"), ("frontier", "front"), ("frontier", "point"))} <= groups,
       "curves are there", groups)


def check_targets(folder):
    """The replay that the page is about is a point of its own, in its place among the others."""
    small = write(folder, "small.csv", SMALL)
    others = [None, 1, 1.005, 1.02, 1.05, 1.1, 1.2]
    for target in (1.03, 1):
        run = warm("report", "-q", "--json", "-c", f"policy.target={target}", small)
        points = json.loads(run.stdout)["frontier"]
        equal([row["target"] for row in points], [None, *sorted({*others[1:], target})],
              f"target {target}: the points")
        equal([row["target"] for row in points if row["configured"]], [target], "it is marked")
    page, _ = report(folder, small, "-f", "yes", "-c", "policy.target=1.005")
    rows = page.tables["Reserved memory and driver time"]
    equal([row[0] for row in rows if "as configured" in row[0]],
          ["glake, target x1.005, as configured"], "in the table too")
    has(" ".join(page.texts["text"]), "x1.005", "and in the picture")


def check_alone(folder):
    """Nothing from elsewhere, and what a browser and a reader of screens want of it."""
    page, _ = report(folder, f"{DATA}/opt13_N.csv.xz", "-f", "no")
    with open(os.path.join(folder, "page.html"), encoding="utf-8") as file:
        text = file.read()
    equal(re.findall(r"(?:https?:|url\((?!#)|@import|\bsrc=|\bhref=\"(?!#))", text), [], "nothing is fetched")
    policy = next(a["content"] for a in page.of("meta") if "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(page.script().encode()).digest()).decode()
    has(policy, f"script-src 'sha256-{digest}'", "its policy allows its script alone")
    has(policy, "default-src 'none'", "and nothing else")
    equal([a.get("lang") for a in page.of("html")], ["en"], "it says its language")
    equal(page.texts["title"], ["opt13_N: GPU memory"], "a title")
    equal(len(page.texts["h1"]), 1, "one head")
    heads = page.of("th")
    ok(all(a.get("scope") in ("col", "row") for a in heads), f"{len(heads)} heads have a scope")
    equal(len(page.of("table")), len(page.texts["caption"]), "every table has a caption")
    pictures = [a for a in page.of("div") if a.get("class", "").startswith("picture")]
    ok(pictures and all(a.get("aria-label") for a in pictures), "pictures have names")
    ids = [a["id"] for _, a in page.elements if "id" in a]
    equal(len(ids), len(set(ids)), "no name twice")
    has(text, "prefers-color-scheme: dark", "there are colours for the dark")
    has(text, "@media print", "and a form for paper")
    equal(len(page.data()["frontier"]), 1, "--frontier no: one replay")
    run = warm("report", "-q", "-f", "no", "-o", "-", f"{DATA}/opt13_N.csv.xz")
    equal(run.stdout.decode(), text, "the same on standard output, and every time")
    run = warm("report", "-q", "-f", "no", "--json", f"{DATA}/opt13_N.csv.xz")
    wanted = page.data()
    del wanted["timeline"]
    equal(json.loads(run.stdout), wanted, "--json: the figures")


def check_small(folder):
    """A trace of which all figures are known."""
    page, _ = report(folder, write(folder, "small.csv", SMALL), "-f", "no", "--recorded", "other=100MiB")
    data = page.data()
    rows = {row["from"]: row for row in data["sizes"]}
    never, middle = [0] * 10 + [1], lambda at: [int(i == at) for i in range(11)]
    equal({size: (row["blocks"], row["bytes"], row["bytes_at_peak"], row["lifetimes"])
           for size, row in rows.items()},
          {64: (1, 100, 100, middle(1)), 1 << 20: (1, 1 << 20, 1 << 20, never),
           2 << 20: (2, 5 << 20, 3 << 20, [0] * 6 + [1, 0, 0, 0, 1])}, "sizes and lifetimes")
    equal([(row["stream"], row["allocations"], row["frees"], row["bytes"],
            row["peak_live_bytes"], row["bytes_at_peak"]) for row in data["per_stream"]],
          [("0x7", 2, 0, 5 << 20, 3 << 20, 3 << 20),
           ("0x0", 2, 2, (1 << 20) + 100, (1 << 20) + 100, (1 << 20) + 100)], "streams")
    equal([(row["name"], row["reserved_bytes"]) for row in data["recorded"]],
          [("other", 100 << 20)], "what another allocator reserved")
    rows = page.tables["Reserved memory and driver time"]
    equal(rows[0][:2], ["recorded: other", "100 MiB"], "stands in the table")
    has(page.texts["text"], "other", "and the picture")
    flat = re.sub(r"(?m)^(\d),\d+,", r"\1,5,", SMALL)
    page, _ = report(folder, write(folder, "flat.csv", flat), "-f", "no")
    equal(page.data()["timeline"]["unit"], "events", "without times the axis counts events")
    ok("Blocks by size and by the number of events that they lived for" in page.tables,
       "and so do lifetimes", page.tables.keys())
    one = "".join(line + "\n" for line in SMALL.splitlines()[:2])
    run = warm("report", "-q", "-f", "no", "--json", write(folder, "one.csv", one))
    equal(json.loads(run.stdout)["events"], 1, "a trace of one event")
    write(folder, "-one.csv", one)
    run = subprocess.run([TOOL, "report", "-q", "-f", "no", "--json", "--", "-one.csv"], cwd=folder, capture_output=True,
                         check=False, timeout=HUNG)
    equal((run.returncode, run.stderr), (0, b""), "and one whose name begins with a dash")


def check_hostile(folder):
    """Names are texts wherever they stand."""
    name = HOSTILE.replace("/", "_") + ".csv"
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    with open(path, "wb") as file:
        file.write(SMALL.encode())
    other = HOSTILE.replace("\udcff", "") + "=200MiB"
    path = os.fsdecode(path)
    page, run = report(folder, path, "-f", "no", "--recorded", other)
    ok(page and run.returncode == 0, "a name that is no name", run.stderr)
    equal((page.of("img"), len(page.of("script")), len(page.of("title"))), ([], 2, 1),
          "makes no element")
    shown = name[:-4].replace("\n", "\ufffd").replace("\udcff", "\ufffd")
    equal(page.texts["title"], [shown.replace("\u202e", "\ufffd") + ": GPU memory"], "but text")
    equal(page.data()["trace"], name[:-4].replace("\udcff", "\ufffd"), "in the figures too")
    has(page.text(), "recorded: </script></title><img", "so is what another allocator is called")
    ours = os.path.join(folder, "ours.trace")
    tool("trace", "convert", "-q", "-o", ours, path)
    with open(ours, "r+b") as file:
        file.seek(PROGRAM_AT)
        file.write(HOSTILE.encode(errors="surrogateescape"))
    page, run = report(folder, ours, "-f", "no")
    ok(page and run.returncode == 0, "a program with such a name")
    has(page.text(), "It was recorded from </script></title><img", "is named in the text")
    equal((page.of("img"), len(page.of("script"))), ([], 2), "and nothing more")


def check_refused(folder):
    """Half a trace, and wrong options: words, and no page."""
    with open(f"{DATA}/opt13_N.csv.xz", "rb") as file:
        packed = file.read()
    cut = write(folder, "cut.csv.xz", packed[: len(packed) // 2])
    path = write(folder, "kept.html", "what was there")
    run = warm("report", "-o", path, cut)
    equal((run.returncode, run.stdout), (1, b""), "a trace that is cut fails")
    has(run.stderr.decode(), "cut.csv.xz:", "names the file")
    equal(run.stderr.count(b"\n"), 1, "in one line")
    equal(left(folder, "kept"), ["kept.html"], "leaves nothing beside the page")
    with open(path, encoding="utf-8") as file:
        equal(file.read(), "what was there", "and the page that was there")
    run = warm("report", "-o", "-", cut)
    equal((run.returncode, run.stdout), (1, b""), "nor half a page on standard output")
    page, run = report(folder, cut, "--lenient", "-f", "no")
    equal(run.returncode, 0, "--lenient makes one of what is there")
    has(page.text(), "the trace is cut off or broken", "which says so")
    broken = write(folder, "row.csv", SMALL + "0,9,free,0x9,1,0\n")
    equal(warm("report", "-o", path, broken).returncode, 1, "a row that cannot be right")
    page, _ = report(folder, broken, "-L", "-f", "no")
    has(page.text(), "1 of 7 rows of the trace could not be used", "is counted")
    page, run = report(folder, write(folder, "s.csv", SMALL), "-f", "no", "-c", "pool.budget=2MiB")
    equal(run.returncode, 1, "a replay that is not served fails")
    has(page.text(), "Note: the replay failed: event 2, allocate of", "and the page tells why")
    trace = write(folder, "small.csv", SMALL)
    for words, part in (((), "a trace is missing"), ((trace,), "-o FILE"),
                        ((trace, trace, "-o", path), "one TRACE is expected"),
                        ((trace, "-o", path, "--recorded", "a=b"), "--recorded takes NAME=BYTES"),
                        ((trace, "-o", path, "--recorded", "a=5"), "less than the 4194404 bytes"),
                        ((trace, "-o", path, "--recorded", "n" * 64 + "=5"), "up to 63 bytes"),
                        ((trace, "-o", path, "-f", "maybe"), "auto, yes or no, not 'maybe'"),
                        ((trace, "-o", path, "--plot", "x"), "unknown option '--plot'"),
                        ((trace, "-o"), "option '-o' needs an argument"),
                        ((trace, "-o", "-", "--json"), "--json reports on standard output")):
        run = warm("report", *words)
        equal((run.returncode, run.stdout), (2, b""), f"report {' '.join(map(os.path.basename, words))[:40]} is wrong")
        has(run.stderr.decode(), part, "and told")
    run = warm("report", "-o", os.path.join(folder, "no", "page.html"), trace)
    equal(run.returncode, 1, "no folder for the page")
    has(run.stderr.decode(), "no/page.html: No such file", "named")
    with open("/dev/full", "wb") as full:
        equal(tool("report", "-f", "no", "-o", "-", trace, stdout=full).returncode, 1, "a disk that is full")
    run = warm("report", "-q", "-f", "no", "-o", os.path.join(folder, "page.html.gz"), trace)
    with open(os.path.join(folder, "page.html.gz"), "rb") as file:
        equal((run.returncode, file.read(2)), (0, b"\x1f\x8b"), "packed as its name says")


def check_interrupted(folder):
    path = write(folder, "stopped.html", "what was there")
    # whoever runs the tests in the background may ignore the signal, which is handed down
    with subprocess.Popen([TOOL, "report", "-", "-o", path], stdin=subprocess.PIPE,
                          stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as run:
        run.stdin.write(SMALL.encode())
        run.stdin.flush()
        ok(until(lambda: len(left(folder, "stopped")) == 2), "a page is being written beside")
        run.send_signal(signal.SIGINT)
        equal(run.wait(HUNG), -signal.SIGINT, "who is interrupted ends by that")
    equal(left(folder, "stopped"), ["stopped.html"], "and leaves nothing")
    with open(path, encoding="utf-8") as file:
        equal(file.read(), "what was there", "but what was there")


def check_large(folder):
    """300000 events: blocks of changing sizes on 200 streams, 500 live."""
    rows, live = [HEADER], []
    for i in range(150000):
        if len(live) == 500:
            rows.append("0,%d,free,0x%x,0,%d\n" % (i * 3 + 1, *live.pop(i * 7919 % 500)))
        live.append((i << 9 | 0x1000000, i % 200))
        rows.append("0,%d,allocate,0x%x,%d,%d\n"
                    % (i * 3 + 2, live[-1][0], (i * 2654435761 % 4093 + 1) << i % 12, i % 200))
    rows += ["0,450003,free,0x%x,0,%d\n" % block for block in live]
    trace = write(folder, "large.csv", "".join(rows))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    page, run = report(folder, trace, tool=tool)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    equal(run.returncode, 0, "300000 events")
    equal(page.data()["events"], 300000, "are all there")
    size = os.stat(os.path.join(folder, "page.html")).st_size
    note(f"{size} bytes, {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f}"
         " s of the processor")
    ok(size <= 2000000, "in a page of at most 2 MB", size)
    equal(len(page.tables["Streams, most bytes first"]), 50, "of many streams the first")
    has(page.text(), "And 150 more streams.", "and how many more")
    equal(len(page.data()["per_stream"]), 200, "all of them in the figures")
    equal(len(page.data()["frontier"]), 1, "a long trace is not replayed under other targets")


def check_without(folder):
    """What is not there is told in one line, before anything is written."""
    trace = write(folder, "small.csv", SMALL)
    poor = os.path.join(folder, "poor")
    os.mkdir(poor)
    lost = os.path.join(poor, "matplotlib.py")
    with open(lost, "w", encoding="ascii") as file:
        file.write("raise ImportError('planted')\n")
    run = tool("report", "-o", trace, trace, env={"PYTHONPATH": poor})
    equal((run.returncode, run.stdout), (2, b""), "what would replace the trace is refused")
    has(run.stderr.decode(), f"-o {trace} is what is read, which it would replace; see ", "and told")
    path = os.path.join(folder, "none.html")
    run = tool("report", "-o", path, trace, env={"PYTHONPATH": poor})
    equal((run.returncode, run.stdout, run.stderr.decode()), (
        1, b"", "glakectl: report: matplotlib is not installed: apt install python3-matplotlib, or pip install "
        "matplotlib\n"), "without matplotlib")
    equal(tool("report", "-q", "-f", "no", "--json", trace, env={"PYTHONPATH": poor}).returncode, 0, "but for its figures")
    run = tool("report", "-o", path, trace, env={"PATH": poor})
    equal((run.returncode, run.stdout), (1, b""), "without Python")
    has(run.stderr.decode(), "glakectl: report: it needs Python: python3 cannot be run: No such file", "is told")
    equal(left(folder, "none"), [], "nothing is half written")
    # a package of that name where one is does not count
    os.mkdir(os.path.join(poor, "glake"))
    with open(os.path.join(poor, "glake", "__init__.py"), "w", encoding="ascii") as file:
        file.write("raise SystemExit('taken from here')\n")
    run = subprocess.run([TOOL, "report", "--help"], cwd=poor, capture_output=True, text=True, check=False)
    equal((run.returncode, run.stderr), (0, ""), "the folder one is in is not looked into")


def main():
    start()
    if not has_matplotlib():
        skip("pages", "python3 has no matplotlib, of Debian's package python3-matplotlib")
        done()
    with tempfile.TemporaryDirectory() as folder:
        check_figures(folder, "fsdp1")
        check_targets(folder)
        check_alone(folder)
        check_small(folder)
        check_hostile(folder)
        check_refused(folder)
        check_interrupted(folder)
        check_without(folder)
        check_large(folder)
    done()


main()
