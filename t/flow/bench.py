#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl bench: what is counted, not how fast it was."""
import json
import re

from tap import done, equal, has, note, ok, start, tool

KIB = 1 << 10
MIB = 1 << 20


def in_order(range_, what):
    ok(0 < range_["min"] <= range_["median"] <= range_["max"]
       and range_["min"] <= range_["mean"] <= range_["max"], f"{what}: in order", range_)


def alloc_and_stitch():
    run = tool("bench", "-d", "soft", "-r", "3", "-j")
    equal(run.returncode, 0, "without a name, the first two benchmarks")
    note(run.stderr.decode())
    result = json.loads(run.stdout)
    equal(list(result), ["alloc", "stitch", "ok"], "members")
    alloc = result["alloc"]
    in_order(alloc["mutex"]["pair_ns"], "mutex")
    in_order(alloc["mutex"]["pair_ns_one_thread"], "mutex in a process with one thread")
    cases = {c["name"]: c for c in alloc["cases"]}
    for name, case in cases.items():
        in_order(case["pair_ns"], name)
        note(f"{name}: {case['pair_ns']['median']} ns")
        equal(case["requests"], case["hits"] + case["misses"], f"{name}: hits and misses")
    for name in ("512 B", "64 KiB", "16 MiB"):
        equal(cases[name]["steady"], name != "16 MiB", f"{name}: meant to hit, if small")
        equal(cases[name]["requests"], 3 * alloc["pairs_a_round"], f"{name}: all counted")
        equal(cases[name]["driver_called"], 0, f"{name}: no driver call in the steady state")
    equal(alloc["all_hits"], all(c["misses"] == 0 for c in cases.values() if c["steady"]),
          "says whether all were hits")
    ok(alloc["all_hits"], "and they were")
    ok(cases["mixed"]["misses"] > 0, "which is not so by itself")
    stitch = result["stitch"]
    ok(stitch["ok"] is True, "stitching is right", stitch)
    ok(stitch["stitches"] > 0, "blocks were stitched")
    equal(stitch["first"]["driver_calls"]["create"], 0, "from pages that were there")
    ok(stitch["first"]["driver_calls"]["map"] >= stitch["pages"] - 1, "mapped once each",
       stitch["first"])
    again = stitch["again"]["driver_calls"]
    # a request that is no hit asks what its stream does, which waits for nothing
    equal(sum(again.values()) - again["other"], 0, "the second time costs nothing")
    equal(stitch["pages_seen_again"], 3 * stitch["pages"], "contents came through")
    equal(stitch["marks_broken"], 0, "and nothing else changed")


def without_bins():
    """Where nothing can hit, the report says so."""
    run = tool("bench", "-d", "soft", "-q", "-r", "2", "-c", "policy.bins=0", "alloc")
    equal(run.returncode, 0, "large blocks without bins")
    ok(re.search("^  all hits +no$", run.stdout.decode(), re.M), "people are told")
    run = tool("bench", "-d", "soft", "-q", "-r", "2", "-c", "policy.bins=0", "-j", "alloc")
    equal(json.loads(run.stdout)["alloc"]["all_hits"], False, "and programs")


def misspelt():
    for word, best in (("aloc", ", is it alloc"), ("nothing", "")):
        run = tool("bench", word)
        equal((run.returncode, run.stderr.decode()), (
            2, f"glakectl bench: unknown benchmark '{word}'{best}; see glakectl bench --help\n"), f"{word} is none")


def tier():
    run = tool("bench", "-d", "soft", "-r", "1", "-j", "-c", "soft.gpus=2", "tier")
    equal(run.returncode, 0, "contents leave the GPU and come back, and go to another one")
    result = json.loads(run.stdout)["tier"]
    equal([c["block_bytes"] for c in result["cases"]], [MIB, 4 * MIB, 16 * MIB], "three sizes")
    ok(result["whole"], "each block holds what was written")
    for case in result["cases"]:
        rates = [case[key] for key in case if key.endswith("_gbs")]
        ok(len(rates) == 15 and all(min(r.values()) > 0 if isinstance(r, dict) else r > 0
                                   for r in rates), f"{case['block_bytes']}: all are timed", rates)
        ok(case["resume_lazy_us"]["min"] > 0, "and the lazy resumption")
        ok(all(f"peer_{step}_gbs" in case for step in ("spill", "fetch", "both")),
           "and the way to the other GPU", list(case))
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "tier")
    for row in ("suspend in place", "resume lazy", "quiet", "place"):
        has(run.stdout.decode(), row, "a report for people")
    ok("peer" not in run.stdout.decode(), "where one GPU has no other to send to")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "tier.host=16MiB", "tier")
    equal(run.returncode, 1, "without room on the host it fails")
    has(run.stderr.decode(), "tier.host", "and says which key is in the way")


def copy():
    run = tool("bench", "-d", "soft", "-r", "2", "-j", "copy")
    equal(run.returncode, 0, "copies to a GPU and back")
    result = json.loads(run.stdout)["copy"]
    equal([c["bytes"] for c in result["cases"]], [4 ** n * KIB for n in range(1, 7)], "six sizes")
    ok(result["whole"], "every byte arrives")
    for case in result["cases"]:
        rates = [case[key]["median"] for key in case if key.endswith(("_gbs", "_us"))]
        ok(len(rates) == 6 and min(rates) > 0, f"{case['bytes']}: all are timed", rates)
    equal([(c["threads"], c["bytes"]) for c in result["unpinned"]],
          [(n, 4 ** k * KIB) for n in (0, 8) for k in range(1, 7)],
          "memory that is not locked, by the driver and by threads")
    ok(all(c[key]["median"] > 0 for c in result["unpinned"] for key in ("down_gbs", "up_gbs")),
       "they are timed")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "-c", "io.threads=2",
               "copy")
    ok(re.search("^ +[0-9]+ +1  - +2 ", run.stdout.decode(), re.M), "as many threads as are configured", run.stdout)
    ok(re.search("^ +[0-9]+ +2  1-1 ", run.stdout.decode(), re.M), "a report for people, by links", run.stdout)
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "-c", "io.lend=all",
               "-j", "copy")
    cases = json.loads(run.stdout)["copy"]["cases"]
    equal({(c["links"], c["lend"]) for c in cases}, {(1, ""), (2, "1-1")},
          "one link is one, whoever lends by configuration")


def main():
    start()
    alloc_and_stitch()
    without_bins()
    misspelt()
    tier()
    copy()
    done()


main()
