#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl draw: pictures of what other commands report, whole or not there; that the timeline has both curves,
names its peaks and its limit, and has colours for the light and the dark.
"""
import json
import os
import tempfile
import xml.etree.ElementTree as xml

from page import has_matplotlib
from tap import DATA, done, equal, has, ok, skip, start, tool
from warm import warm

SVG = "{http://www.w3.org/2000/svg}"


def replayed(folder, *options):
    path = os.path.join(folder, "replayed.json")
    with open(path, "wb") as file:
        run = tool("replay", "-q", "-d", "soft", "-r", "1", "--json", "--contents", *options, f"{DATA}/opt13_N.csv.xz",
                   stdout=file)
    equal(run.returncode, 0, "a replay to be drawn")
    return path


def texts(path):
    return [text.text for text in xml.parse(path).iter(SVG + "text")]


def check_timeline(folder):
    path = os.path.join(folder, "job.svg")
    run = tool("draw", replayed(folder), "-o", path)
    equal((run.returncode, run.stdout, run.stderr), (0, b"", b""), "a timeline")
    root = xml.parse(path).getroot()
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    ok({"picture-live", "picture-reserved"} <= set(ids), "both curves", ids)
    said = texts(path)
    for part in ("opt13_N: live and reserved GPU memory", "peak live 36.3 GiB", "GiB", "time of the job, s",
                 "reserved, not live"):
        ok(part in said, f"it says {part}", said)
    ok(any(text.startswith("peak reserved 3") for text in said), "and its other peak", said)
    ok(not any(text.startswith("limit") for text in said), "no limit where none was given")
    style = root.find(SVG + "style").text
    has(style, "prefers-color-scheme:dark", "it has colours for the dark")
    with open(path, encoding="utf-8") as file:
        first = file.read()
    run = tool("draw", "-", "--output", path, stdin=open(os.path.join(folder, "replayed.json"), "rb").read(), env={
        "HOME": "/proc/nowhere", "XDG_CONFIG_HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "LC_ALL": "C"})
    equal((run.returncode, run.stdout, run.stderr), (0, b"", b""), "from standard input, without a home, in any locale")
    with open(path, encoding="utf-8") as file:
        equal(file.read(), first, "the same each time")
    warm("draw", "-o", path, replayed(folder, "--limit", "x1.05"))
    ok(any(text.startswith("limit 38.1 GiB") for text in texts(path)), "a limit is named", texts(path))
    for kind, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        path = os.path.join(folder, f"job.{kind}")
        equal(warm("draw", os.path.join(folder, "replayed.json"), "-o", path).returncode, 0, f"as {kind}")
        with open(path, "rb") as file:
            equal(file.read(4), begin, "is one")


def check_name(folder):
    """A name is drawn as it is, and not as a formula; what SVG has no place for is left out of it."""
    with open(os.path.join(folder, "replayed.json"), encoding="utf-8") as file:
        found = json.load(file)
    found["trace"] = "a$\\frac$b\x01"
    path = os.path.join(folder, "name.svg")
    run = warm("draw", "-", "-o", path, stdin=json.dumps(found).encode())
    equal((run.returncode, run.stderr), (0, b""), "a name of a formula")
    ok("a$\\frac$b\ufffd: live and reserved GPU memory" in texts(path), "is drawn as it is", texts(path))


def check_apart(folder):
    """Runs of a map with nothing told of what lies between them."""
    path = os.path.join(folder, "apart.svg")
    run = {"state": "live", "size": 1 << 21, "asked": 1 << 21, "stream": 0}
    found = {"pid": 1, "program": "x", "gpus": [{"gpu": 0, "context": 1, "reserved_bytes": 1 << 22, "runs": [
        {**run, "address": 1 << 21}, {**run, "address": 1 << 60}]}]}
    equal(warm("draw", "-", "-o", path, stdin=json.dumps(found).encode()).returncode, 0, "two ends of all addresses")
    ok({"200000", f"{1 << 60:x}"} <= set(texts(path)), "have a row each", texts(path))


def check_chart():
    """In a terminal: a job that holds twice what is live in its second half."""
    found = {"contents": {"timeline": {"unit": "us", "end": 2000000, "at": [0, 500000, 1000000],
                                       "live": [7 << 30, 14 << 30, 7 << 30], "reserved": [7 << 30, 14 << 30, 14 << 30]}}}
    for locale, live, reserved, side in (("C.UTF-8", "█", "░", "│"), ("C", "#", ":", "|")):
        run = tool("draw", "-", stdin=json.dumps(found).encode(), env={"LC_ALL": locale})
        rows = run.stdout.decode().splitlines()
        equal((run.returncode, run.stderr, len(rows)), (0, b"", 18), f"{locale}: a chart in characters")
        equal([rows[0].strip(), rows[1].split(side)[0].strip(), rows[8].split(side)[0].strip()], ["GiB", "14", "7"], "its axis")
        equal(rows[1].split(side)[1].rstrip(), " " * 17 + 17 * live + 34 * reserved, "what was live, and what was held")
        equal(rows[14].split(side)[1], 68 * live, "down to the ground")
        has(rows[16], "2.00 s", "over the time of the job")
    equal(warm("draw", "-", stdin=b'{"gpus": []}').returncode, 2, "other reports want a file to draw into")


def check_copies(folder):
    """What bench copy measured, and bench-more with memory that is busy."""
    path = os.path.join(folder, "copy.svg")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=3", "-j", "copy")
    found = json.loads(run.stdout)
    for case in found["copy"]["cases"]:
        if case["links"] > 1:
            case["beside"] = {f"{way}{what}": 1 for way in ("down", "up", "both") for what in ("_gbs", "_memory_slowed_percent")}
    equal(warm("draw", "-", "-o", path, stdin=json.dumps(found).encode()).returncode, 0, "copies")
    ids = [element.get("id") for element in xml.parse(path).iter(SVG + "g")]
    wanted = [f"picture-{way}-{links}{more}" for way in ("down", "up", "both") for links in (1, 2, 3)
              for more in ("", "-beside") if links > 1 or not more]
    equal([name for name in wanted if name not in ids], [], "a line for each way and number of links, and beside")
    said = texts(path)
    ok({"1 link", "3 links", "4.00 KiB"} <= set(said), "with names and sizes", said)
    equal(sum("; memory up to " in text for text in said), 3, "and how much memory was slowed")


def check_refused(folder):
    good, path = os.path.join(folder, "replayed.json"), os.path.join(folder, "none.svg")
    wrong = {"none.json": b"{", "list.json": b"[]", "other.json": b'{"a":1}', "half.json": b'{"contents":{"timeline":{"at":[]}}}',
             "deep.json": b"[" * 100000, "huge.json": b'{"contents":{"timeline":{"unit":"us","end":1,"at":[0],"live":[1],'
             b'"reserved":[1e300]}},"trace":"huge","budget_bytes":0}'}
    for name, content in wrong.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
        run = warm("draw", os.path.join(folder, name), "-o", path)
        equal((run.returncode, run.stdout, run.stderr.count(b"\n")), (1, b"", 1), f"{name} is refused in a line")
        has(run.stderr.decode(), name, "that names it")
    run = warm("draw", "/nowhere.json", "-o", path)
    equal((run.returncode, run.stderr), (1, b"glakectl: /nowhere.json: No such file or directory\n"), "so is what is not there")
    ok(not os.path.exists(path), "nothing is left")
    for words in ((), (good, "-o", "x.jpeg"), (good, good, "-o", path)):
        equal(warm("draw", *words).returncode, 2, f"{len(words)} words are wrong")
    run = warm("draw", good, "-o", "/nowhere/x.svg")
    equal((run.returncode, run.stderr), (1, b"glakectl: /nowhere/x.svg: No such file or directory\n"), "no folder")


def main():
    start()
    check_chart()
    if not has_matplotlib():
        skip("pictures", "python3 has no matplotlib, of Debian's package python3-matplotlib")
        done()
    with tempfile.TemporaryDirectory() as folder:
        check_timeline(folder)
        check_name(folder)
        check_apart(folder)
        check_copies(folder)
        check_refused(folder)
    done()


main()
