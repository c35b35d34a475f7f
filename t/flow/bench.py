#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl bench: what is counted, not how fast it was."""
import json

from tap import done, equal, has, note, ok, start, tool


def main():
    start()
    run = tool("bench", "-d", "soft", "-r", "3", "-j")
    equal(run.returncode, 0, "all benchmarks")
    note(run.stderr.decode())
    result = json.loads(run.stdout)
    equal(list(result), ["rounds", "threads", "alloc", "stitch", "ok"], "members")
    cases = {c["name"]: c for c in result["alloc"]["cases"]}
    for name, case in cases.items():
        ns = case["pair_ns"]
        ok(0 < ns["min"] <= ns["median"] <= ns["max"], f"{name}: in order", ns)
        note(f"{name}: {ns['median']} ns")
    for name in ("512 B", "64 KiB", "16 MiB"):
        equal(cases[name]["misses"], 0, f"{name}: no driver call in the steady state")
    stitch = result["stitch"]
    ok(stitch["ok"] is True, "stitching is right", stitch)
    ok(stitch["stitches"] > 0, "blocks were stitched")
    equal(stitch["first"]["driver_calls"]["create"], 0, "from pages that were there")
    ok(stitch["first"]["driver_calls"]["map"] >= stitch["pages"] - 1, "mapped once each",
       stitch["first"])
    equal(sum(stitch["again"]["driver_calls"].values()), 0, "the second time costs nothing")
    equal(stitch["pages_seen_again"], 3 * stitch["pages"], "contents came through")
    equal(stitch["marks_broken"], 0, "and nothing else changed")
    run = tool("bench", "-d", "soft", "-r", "2", "-t", "2", "alloc")
    equal(run.returncode, 0, "two threads")
    has(run.stdout.decode(), "mutex", "a report for people")
    ok(b"lay apart" not in run.stdout, "of that benchmark alone")
    done()


main()
