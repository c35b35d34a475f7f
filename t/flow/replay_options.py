#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl and replay as people call them: options, reports, plots, exit statuses."""
import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree

from tap import DATA, TOOL, done, equal, has, ok, start, tool

TRACE = f"{DATA}/opt13_N.csv.xz"
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB = 1 << 20


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(HEADER + text)
    return path


def check_usage():
    for args in ((), ("nonsense",), ("--nonsense",), ("replay",), ("replay", "--nonsense", "x"),
                 ("replay", "--driver", "hip", TRACE), ("replay", "--limit", "lots", TRACE),
                 ("replay", "--limit", "0", TRACE), ("replay", "--limit", "x0", TRACE),
                 ("replay", "--repeat", "0", TRACE), ("replay", "--repeat", "1001", TRACE),
                 ("replay", "--threads", "x", TRACE), ("replay", "--conf", "pool", TRACE),
                 ("replay", "-Z", TRACE), ("replay", "--json=3", TRACE),
                 ("replay", TRACE, "--limit"),
                 ("bench", "nonsense"), ("bench", "--rounds", "0")):
        run = tool(*args)
        named = " ".join("TRACE" if word == TRACE else word for word in args)
        equal((run.returncode, run.stdout), (2, b""), f"glakectl {named}: usage")
        has(run.stderr.decode(), "--help", "points to the help")
        equal(run.stderr.count(b"\n"), 1, "in one line")
    for args in (("--help",), ("replay", "--help"), ("bench", "--help"), ("--version",)):
        run = tool(*args)
        equal((run.returncode, run.stderr), (0, b""), f"glakectl {' '.join(args)}")
        ok(len(run.stdout) > 10, "answers on standard output")


def check_report():
    run = tool("replay", "-d", "soft", "-r", "2", TRACE)
    text = run.stdout.decode()
    equal(run.returncode, 0, "a report for people")
    for part in ("trace                    opt13_N", "29 646", "peak live", "36.3 GiB",
                 "peak reserved", "malloc", "p99"):
        has(text, part, f"has '{part}'")
    ok(not any(ord(c) < 32 and c != "\n" for c in text), "no control characters")
    equal(run.stderr, b"", "nothing else is said")
    run = tool("replay", "-d", "soft", "-r", "1", TRACE, env={"LC_ALL": "C"})
    ok(run.stdout.isascii(), "ASCII where the terminal has nothing else")


def check_misspelt():
    """A word that is near to one that there is is told with it; the help of a command by its name."""
    for words, meant in ((("repaly",), "'repaly', is it replay"), (("replay", "--limt", "1"), "'--limt', is it --limit"),
                         (("stat", "--inteval=3"), "'--inteval=3', is it --interval"), (("xtrace", "show"), "is it trace"),
                         (("report", "--ouput", "x"), "'--ouput', is it --output")):
        run = tool(*words)
        equal((run.returncode, run.stdout), (2, b""), f"{' '.join(words)} is wrong")
        has(run.stderr.decode(), meant, "and it says what may have been meant")
    for words in (("xyzzy",), ("replay", "--xyzzy"), ("x" * 5000,), ("replay", "--" + "x" * 5000)):
        run = tool(*words)
        equal(run.returncode, 2, "what is near to nothing is wrong too")
        ok(b"is it" not in run.stderr, "and nothing was meant", run.stderr)
    for command in ("replay", "trace", "report"):
        equal(tool("help", command).stdout, tool(command, "--help").stdout, f"help {command}")
    equal(tool("help", "xyzzy").returncode, 2, "of no command there is none")


def check_width():
    run = tool("replay", "-q", "-d", "soft", "-r", "2", "-w", "1MiB", TRACE)
    wide = [line for line in run.stdout.decode().split("\n") if len(line) > 80]
    equal((run.returncode, wide), (0, []), "a report fits a terminal of 80 columns")


def check_contents():
    """What report and draw show: the timeline ends where the replay does, all blocks have a size and a stream."""
    run = tool("replay", "-q", "-d", "soft", "-r", "2", "--json", "--contents", TRACE)
    found = json.loads(run.stdout)
    contents = found["contents"]
    line = contents["timeline"]
    # it is the first pass's; a later one may hold a little more
    first = json.loads(tool("replay", "-q", "-d", "soft", "-r", "1", "--json", TRACE).stdout)
    equal((max(line["live"]), max(line["reserved"])), (first["peak_live_bytes"], first["peak_reserved_bytes"]),
          "the timeline has both peaks")
    equal(sum(row["blocks"] for row in contents["sizes"]), contents["allocations"], "all blocks by size")
    equal(sum(row["bytes_at_peak"] for row in contents["per_stream"]), found["peak_live_bytes"], "what was live, by stream")
    equal([one["create"][0] for one in contents["driver"]], [one["driver_calls"]["create"] for one in found["repeats"]],
          "the calls of each pass")
    equal(tool("replay", "-q", "-d", "soft", "-C", TRACE).returncode, 2, "not without --json")


def check_several(folder):
    one = write(folder, "one.csv", "0,1,allocate,0x1,4096,0\n0,2,free,0x1,4096,0\n")
    bad = write(folder, "bad.csv", "0,1,free,0x1,4096,0\n")
    run = tool("replay", "-d", "soft", "-j", one, one)
    equal(run.returncode, 0, "two traces")
    equal([r["trace"] for r in json.loads(run.stdout)], ["one", "one"], "an array of two")
    run = tool("replay", "-d", "soft", "-j", one, bad, one)
    equal(run.returncode, 1, "one of three is broken")
    equal([r["ok"] for r in json.loads(run.stdout)], [True, False, True],
          "the array shows which")


def check_limits(folder):
    rows = "".join(f"0,{i},allocate,0x{i:x},{16 * MIB},0\n" for i in range(1, 9))
    path = write(folder, "eight.csv", rows)
    run = tool("replay", "-d", "soft", "-j", "-r", "2", "-l", "64MiB", path)
    result = json.loads(run.stdout)
    equal(run.returncode, 1, "half of the memory it needs")
    equal(result["ok"], False, "is not ok")
    equal([r["oom"] for r in result["repeats"]], [4, 4], "four requests failed each time")
    equal(result["budget_bytes"], 64 * MIB, "the budget is told")
    ok(result["peak_reserved_bytes"] <= 64 * MIB, "and was kept",
       result["peak_reserved_bytes"])
    has(result["failure"], "event 5, allocate", "the first failure is named")
    has(run.stderr.decode(), "event 5, allocate", "also on standard error")
    run = tool("replay", "-d", "soft", "-l", "64MiB", path)
    has(run.stdout.decode(), "failure                  event 5", "also in the report")
    run = tool("replay", "-d", "soft", "-j", "-l", "x1", path)
    equal(run.returncode, 0, "whole pages fit a budget of exactly the live memory")
    run = tool("replay", "-d", "soft", "-j", "-c", "pool.budget=64MiB", path)
    equal(json.loads(run.stdout)["budget_bytes"], 64 * MIB, "a budget from the configuration")
    run = tool("replay", "-d", "soft", "-j", "-r", "1", "--pressure", path)
    pressure = json.loads(run.stdout)["pressure"]
    equal(run.returncode, 0, "squeezed")
    equal(pressure["smallest_ratio"], 1, "down to the live memory")
    equal(len(pressure["steps"]), 11, "in eleven steps")
    run = tool("replay", "-d", "soft", "-j", "-r", "1", "--working-set", "256KiB", path)
    equal(json.loads(run.stdout)["working_set_bytes"], 256 * 1024, "with work between calls")
    run = tool("replay", "-d", "soft", "-r", "1", "-w", "1MiB", path)
    has(run.stdout.decode(), "working set              1.00 MiB", "as the report says")
    for wrong in ("65MiB", "-1", "much"):
        run = tool("replay", "-d", "soft", "-w", wrong, path)
        equal(run.returncode, 2, f"not {wrong}")
        has(run.stderr.decode(), "--working-set takes a size up to 64MiB", "and why")
    huge = write(folder, "huge.csv", "0,1,allocate,0x1,1152921504606846976,0\n")
    run = tool("replay", "-d", "soft", "-j", "-r", "1", huge)
    equal(run.returncode, 1, "a block larger than any GPU fails")
    equal(json.loads(run.stdout)["repeats"][0]["oom"], 1, "out of memory")


def check_threads(folder):
    rows, live = [], []
    for i in range(4000):
        thread, stream = i % 4, i % 3
        rows.append(f"{thread},{i},allocate,0x{i + 1:x},{4096 + i % 97 * 512},{stream}\n")
        live.append((i, 4096 + i % 97 * 512, stream))
        if len(live) > 50:
            # Another thread than the one that allocated it.
            number, size, stream = live.pop(0)
            rows.append(f"{(number + 1) % 4},{i},free,0x{number + 1:x},{size},{stream}\n")
    path = write(folder, "threads.csv", "".join(rows))
    for threads in (1, 2, 4, 9):
        run = tool("replay", "-d", "soft", "-j", "-r", "2", "-t", threads, path)
        result = json.loads(run.stdout)
        equal(run.returncode, 0, f"{threads} threads")
        equal(result["threads"], min(threads, 4), "as many as there are in the trace")
        equal([r["hits"] + r["misses"] for r in result["repeats"]], [4000, 4000],
              "every allocation is made")
        equal((result["lost_bytes"], result["leaked_blocks"]), (0, 0), "nothing is lost")


def check_device(folder):
    one = write(folder, "one.csv", "0,1,allocate,0x1,4096,0\n")
    run = tool("replay", one, env={"CUDA_VISIBLE_DEVICES": ""})
    equal(run.returncode, 0, "without a GPU")
    equal(run.stderr.count(b"software device"), 1, "one line says what is used instead")
    run = tool("replay", "--driver", "cuda", one, env={"CUDA_VISIBLE_DEVICES": ""})
    equal((run.returncode, run.stdout), (1, b""), "CUDA asked for and not there")
    ok(len(run.stderr) > 20, "the cause is named", run.stderr)
    run = tool("replay", "-d", "soft", "-c", "pool.nonsense=1", one)
    ok(b"nonsense" in run.stderr or run.returncode == 0, "an unknown key", run.stderr)
    run = tool("replay", "-d", "soft", "-c", "pool.budget=much", one)
    equal(run.returncode, 1, "a bad value of a key")
    has(run.stderr.decode(), "budget", "names the key")


def check_output():
    with open("/dev/full", "wb") as full:
        run = tool("replay", "-d", "soft", "-r", "1", "-j", TRACE, stdout=full)
    equal(run.returncode, 1, "a report that cannot be written is a failure")
    has(run.stderr.decode(), "could not be written", "and is told")
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run([TOOL, "replay", "-d", "soft", "-r", "1", TRACE],
                           stdout=writer, stderr=subprocess.PIPE, check=False)
    equal((child.returncode, child.stderr), (1, b""), "a reader that goes away")
    child = subprocess.run([TOOL, "conf", "explain", "log", "pool", "tier", "share", "policy", "io", "trace"],
                           stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    equal((child.returncode, child.stderr), (1, b""), "in the middle of what is more than it takes at once")


def main():
    start()
    with tempfile.TemporaryDirectory(prefix="glake-") as folder:
        check_usage()
        check_report()
        check_contents()
        check_width()
        check_misspelt()
        check_several(folder)
        check_limits(folder)
        check_threads(folder)
        check_device(folder)
        check_output()
    done()


main()
