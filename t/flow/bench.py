#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl bench: what is counted, not how fast it was."""
import json
import os

from tap import REAL_TIME, done, equal, has, note, ok, start, tool

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
    has(run.stdout.decode(), "NOT ALL HITS", "people are told")
    run = tool("bench", "-d", "soft", "-q", "-r", "2", "-c", "policy.bins=0", "-j", "alloc")
    equal(json.loads(run.stdout)["alloc"]["all_hits"], False, "and programs")


def threads():
    run = tool("bench", "-d", "soft", "-r", "2", "-t", "3", "-j", "alloc")
    equal(run.returncode, 0, "three threads")
    scale = json.loads(run.stdout)["scale"]
    equal(scale["threads"], 3, "as many")
    equal([(m["name"], m["block_bytes"]) for m in scale["modes"]],
          [("own streams", MIB // 16), ("one stream", MIB // 16),
           ("own streams", 16 * MIB), ("one stream", 16 * MIB)], "modes")
    for mode in scale["modes"]:
        what = f"{mode['name']}, {mode['block_bytes']}"
        for key in ("pair_ns", "pairs_per_s", "one_thread_pair_ns", "one_thread_pairs_per_s",
                    "ratio"):
            in_order(mode[key], f"{what}: {key}")
        equal(mode["requests"], 2 * 3 * scale["pairs_a_round"], f"{what}: all counted")
        note(f"{what}: ratio {mode['best_ratio']}, hits {mode['hits']}")
    in_order(scale["machine_ratio"], "what the machine gains")
    small = [m for m in scale["modes"] if m["block_bytes"] < MIB]
    if REAL_TIME:  # else how often they meet is the machine's affair
        ok(all(m["hits"] == m["requests"] for m in small), "small blocks: all hits", small)
    run = tool("bench", "-d", "soft", "-r", "1", "-t", "2", "alloc")
    equal(run.returncode, 0, "two threads")
    has(run.stdout.decode(), "mutex", "a report for people")
    has(run.stdout.decode(), "one stream", "with the threads")
    ok(b"lay apart" not in run.stdout, "of that benchmark alone")


def handover():
    run = tool("bench", "-d", "soft", "-r", "2", "-j", "handover")
    equal(run.returncode, 0, "memory from stream to stream")
    result = json.loads(run.stdout)["handover"]
    cases = {(c["policy"], c["block_bytes"]): c for c in result["cases"]}
    equal(list(cases), [(p, m * MIB) for m in (8, 64)
                        for p in ("wait", "noted", "done")], "cases")
    for (policy, block), case in cases.items():
        what, calls = f"{policy}, {block}", case["driver_calls_a_request"]
        ns = case["ns"]
        ok(0 < ns["min"] <= ns["median"] <= ns["p99"] <= ns["max"], f"{what}: in order", ns)
        note(f"{what}: {ns['median']} ns")
        equal(case["requests"], 2 * result["requests_a_round"], f"{what}: all timed")
        ok(case["as_meant"], f"{what}: what is meant is measured", calls)
        equal(calls["stream_wait"], float(policy == "wait"), f"{what}: waits")
        equal(calls["sync"], 0, f"{what}: nothing waits for the GPU")
        equal(sum(calls[c] for c in ("create", "map", "unmap", "release")), 0,
              f"{what}: nothing is mapped")
    ok(result["as_meant"], "all together")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "handover")
    has(run.stdout.decode(), "noted", "a report for people")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c",
               "stream.internal_dependencies=no", "handover")
    equal(run.returncode, 1, "without stream waits it measures something else")
    has(run.stdout.decode(), "NOT AS MEANT", "which it says")


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
    packed = result["compressed"]
    ok(packed is None or (packed["held_bytes"] < 0.6 * packed["bytes"] and not packed["torn"] and
                          min(packed["compress_gbs"]["min"], packed["resume_gbs"]["min"],
                              packed["range_gbs"]["min"]) > 0),
       "contents get smaller, and what they were again", packed)
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "tier")
    for row in ("suspend in place", "resume lazily, us", "quiet", "written in place", "compressed"):
        has(run.stdout.decode(), row, "a report for people")
    ok("GPU 1" not in run.stdout.decode(), "where one GPU has no other to send to")
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
    has(run.stdout.decode(), "copied by 2 threads", "as many threads as are configured")
    has(run.stdout.decode(), "2 links", "a report for people, by links")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "-c", "io.lend=all",
               "-j", "copy")
    cases = json.loads(run.stdout)["copy"]["cases"]
    ok(not any("beside" in c for c in cases), "nothing is busy unless that is asked for")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "-j", "--beside", "copy")
    equal(run.returncode, 0, "beside copies in the memory of who lends")
    measured = json.loads(run.stdout)["copy"]
    for case in measured["cases"]:
        equal("beside" in case, case["links"] == 2, f"{case['links']} links: whose memory is busy")
    ok(all(c["beside"][key] > 0 for c in measured["cases"] if "beside" in c
           for key in ("memory_gbs", "down_gbs", "up_gbs", "both_gbs")), "all are timed")
    ok(all(c["beside"][f"{way}_memory_slowed_percent"] <= 100 for c in measured["cases"]
           if "beside" in c for way in ("down", "up", "both")), "and compared")
    equal(tool("bench", "-b", "tier").returncode, 2, "--beside is for copy alone")
    equal({(c["links"], c["lend"]) for c in cases}, {(1, ""), (2, "1-1")},
          "one link is one, whoever lends by configuration")


def main():
    start()
    threads()
    handover()
    if os.environ.get("GLAKE_TEST_SANITIZER") != "thread":  # to which one thread shows nothing
        alloc_and_stitch()
        without_bins()
        tier()
        copy()
    done()


main()
