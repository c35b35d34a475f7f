#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl bench: what is counted, not how fast it was."""
import json
import os
import tempfile
import xml.etree.ElementTree as xml

from tap import DATA, REAL_TIME, done, equal, has, note, ok, start, tool

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


def host():
    run = tool("bench", "-d", "soft", "-r", "2", "-s", "9MiB", "-j", "host")
    equal(run.returncode, 0, "pinned memory of the host")
    result = json.loads(run.stdout)["host"]
    equal([result["bytes"], result["whole"]], [9 * MIB, True], "a block holds what was written")
    ok(all(result[key]["min"] > 0 for key in ("pool_s", "again_s", "plain_s", "plain_over_pool")),
       "all are timed", result)
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-s", "4MiB", "host")
    has(run.stdout.decode(), "one thread touches", "a report for people")
    run = tool("bench", "-d", "soft", "-q", "-s", "9MiB", "-c", "host.limit=8MiB", "host")
    equal(run.returncode, 1, "above host.limit it fails")
    has(run.stderr.decode(), "host.limit", "and says so")
    for size in ("0", "x"):
        equal(tool("bench", "-s", size, "host").returncode, 2, f"--size {size} is refused")
    equal(tool("bench", "-s", "4MiB", "tier").returncode, 2, "--size is that of host alone")


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
    with tempfile.TemporaryDirectory() as folder:
        svg = os.path.join(folder, "c.svg")
        run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=3", "-o", svg, "copy")
        equal(run.returncode, 0, "a picture")
        name = "{http://www.w3.org/2000/svg}"
        tree = xml.parse(svg)
        texts = [t.text for t in tree.iter(name + "text")]
        ok({"to the GPU", "to the host", "both at once", "1 link", "3 links", "4.00 KiB",
            "1.00 MiB"} <= set(texts), "a panel for each way", texts)
        lines = [p.get("points").split() for p in tree.iter(name + "polyline")]
        equal([len(points) for points in lines], [6] * 9, "a line for each number of links")
        inside = [0 <= float(x) <= 1080 and 0 <= float(y) <= 400
                  for points in lines for x, y in (p.split(",") for p in points)]
        ok(all(inside), "inside of the picture", lines)
        run = tool("bench", "-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=3", "-b", "-o", svg,
                   "copy")
        equal(run.returncode, 0, "a picture of memory that is busy")
        has(run.stdout.decode(), "3 links, beside copies within the memory", "which a table has")
        tree = xml.parse(svg)
        lines = [p.get("class").split()[1:] for p in tree.iter(name + "polyline")]
        equal([sum(kind in line for line in lines) for kind in ("dash", "l1", "l2", "l3")],
              [6, 3, 6, 6], "lines for it")
        texts = [t.text for t in tree.iter(name + "text")]
        equal(sum(t.startswith("memory up to ") for t in texts), 3,
              "and how much that memory was slowed")
        lost = os.path.join(folder, "not", "there.svg")
        equal(tool("bench", "-d", "soft", "-q", "-r", "1", "-o", lost, "copy").returncode, 1,
              "a picture that cannot be written")
        equal(tool("bench", "-o", svg, "copy", "policy").returncode, 2, "two pictures in one")
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


def sizes():
    run = tool("bench", "-d", "soft", "-n", "40000", "-j", "sizes")
    equal(run.returncode, 0, "sizes that never repeat")
    result = json.loads(run.stdout)["sizes"]
    steps = result["steps"]
    equal([s["requests"] for s in steps], [5000 * i for i in range(1, 9)], "in eight steps")
    ok(result["bounded"], "nothing grows by half in the second half", steps)
    most_live = result["most_live_blocks"] * 64 * MIB
    for step in steps:
        what = f"after {step['requests']}"
        ok(step["metadata_bytes"] <= MIB, f"{what}: 1 MiB of tables at most", step)
        ok(step["live_extents"] <= 64 and step["free_extents"] <= 400,
           f"{what}: few extents", step)
        ok(step["reserved_bytes"] <= most_live, f"{what}: pages", step)
        ok(step["mapped_bytes"] <= 8 * most_live, f"{what}: eight mappings of each", step)
    ok(steps[-1]["free_extents"] <= 2 * steps[0]["free_extents"], "extents do not pile up")
    run = tool("bench", "-d", "soft", "-q", "-n", "800", "sizes")
    has(run.stdout.decode(), "never repeat", "a report for people")
    equal(tool("bench", "-n", str(7 * MIB + 1), "sizes").returncode, 2, "one size too many")


WORST = {
    "blocks": ["bin merges", "big beside", "half freed", "bins flushed", "checkerboard",
               "new sizes", "freed elsewhere", "busy pages", "trim", "figures"],
    "streams": ["idle streams", "streams in turn", "busy streams", "freed on others",
                "used on others"],
    "GPUs": ["last GPU", "last GPU, pools"],
    "contexts": ["last context"],
}
FIGURES = ["free_ns", "request_ns", "mapping_request_ns", "call_ns", "hold_ns", "pair_ns"]


def worst():
    run = tool("bench", "-d", "soft", "-r", "2", "-m", "1000", "-j", "worst")
    equal(run.returncode, 0, "the longest calls")
    rows = json.loads(run.stdout)["worst"]["rows"]
    for against, patterns in WORST.items():
        mine = [r for r in rows if r["against"] == against]
        equal(list(dict.fromkeys(r["pattern"] for r in mine)), patterns, f"against {against}")
    equal([r["count"] for r in rows if r["pattern"] == "idle streams"], [1, 64],
          "counts up to the most")
    for row in rows:
        what = f"{row['pattern']}, {row['count']}"
        equal(row["rounds"], 2, f"{what}: rounds")
        equal([k for k in row if k.endswith("_ns")], [k for k in FIGURES if k in row],
              f"{what}: figures in order")
        ok("hold_ns" in row and "skipped" not in row, f"{what}: was played", row)
        for key in (k for k in FIGURES if k in row):
            in_order(row[key], f"{what}: {key}")
    named = {r["pattern"]: r for r in rows}
    for pattern, key in (("bin merges", "free_ns"), ("bins flushed", "mapping_request_ns"),
                         ("busy pages", "mapping_request_ns"), ("trim", "call_ns"),
                         ("figures", "call_ns"), ("last context", "pair_ns")):
        ok(key in named[pattern], f"{pattern}: shows what it is about", named[pattern])
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-m", "1", "worst")
    has(run.stdout.decode(), "idle streams", "a report for people")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-m", "1000", "-j", "-c",
               "soft.memory=64MiB", "worst")
    equal(run.returncode, 0, "what does not fit")
    rows = json.loads(run.stdout)["worst"]["rows"]
    ok(any("skipped" in r for r in rows), "is left out, and said so")
    equal(tool("bench", "-m", "1000001", "worst").returncode, 2, "one too many")


def policy():
    trace = os.path.join(DATA, "opt13_N.csv.xz")
    with tempfile.TemporaryDirectory() as folder:
        svg = os.path.join(folder, "f.svg")
        run = tool("bench", "-d", "soft", "-r", "1", "-j", "-o", svg, "policy", trace, trace)
        equal(run.returncode, 0, "policy")
        outcomes = json.loads(run.stdout)["policy"]["outcomes"]
        of = {o["setting"]: o for o in outcomes}
        equal(len(outcomes), 2 * len(of), "each variant on each job")
        ok(all(a == b for a, b in zip(outcomes[::2], outcomes[1::2])), "the same each time")
        usual = of[""]
        for setting, outcome in of.items():
            differs = {k for k in outcome if outcome[k] != usual[k]} - {"variant", "setting"}
            ok(not setting or differs, f"{setting or 'default'}: has an effect", outcome)
        low, high = of["pool.large_page=2MiB"], of["pool.large_page=32MiB"]
        ok(low["driver_ms"] > high["driver_ms"], "small pages cost more")
        low, high = of["policy.target=1"], of["policy.target=1.05"]
        ok(low["reserved_over_live"] < high["reserved_over_live"], "a low target needs less")
        ok(low["driver_ms"] > high["driver_ms"], "and costs more")
        texts = [t.text for t in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
        equal(texts.count("opt13_N"), 2, "a panel each")
        equal({o["variant"] for o in outcomes} - set(texts), set(), "every variant is named")
        lost = os.path.join(folder, "not", "there.svg")
        equal(tool("bench", "-d", "soft", "-q", "-r", "1", "-o", lost, "policy", "-v", "map.aliases=1",
                   trace).returncode, 1,
              "a picture that cannot be written")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "-j", "policy", trace,
               "--vary", "pool.large_page=4MiB,16MiB", "-v", "map.aliases=1")
    equal(run.returncode, 0, "values of any key")
    outcomes = json.loads(run.stdout)["policy"]["outcomes"]
    equal([o["setting"] for o in outcomes],
          ["", "pool.large_page=4MiB", "pool.large_page=16MiB", "map.aliases=1"],
          "each value, one key at a time")
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "policy", trace, "-v",
               "stats.hold_clock=cpu")
    has(run.stdout.decode(), "| stats.hold_clock=cpu | opt13_N ", "a table for people")
    for vary, why in (("pool.nothing=1", "pool.nothing"), ("map.aliases=1,x", "map.aliases"),
                      ("map.aliases=" + ",".join("1" * 64), "more than 63 values"),
                      ("map.aliases=" + "1" * 200, "letters")):
        run = tool("bench", "-d", "soft", "-q", "-v", vary, "policy", trace)
        equal(run.returncode, 1, f"--vary {vary[:40]}: refused")
        has(run.stderr.decode(), why, "and why")
        ok(not run.stdout, "before anything is replayed")
    for vary in ("map.aliases", "map.aliases=", "=1"):
        equal(tool("bench", "-v", vary, "policy", trace).returncode, 2, f"--vary {vary}")
    equal(tool("bench", "-v", "map.aliases=1", "alloc").returncode, 2, "nothing to vary")
    run = tool("bench", "policy", "/nowhere.csv")
    equal(run.returncode, 1, "a trace that is not there")
    has(run.stderr.decode(), "/nowhere.csv", "is named")
    equal(tool("bench", "-o", "f.svg", "alloc").returncode, 2, "a picture of nothing")
    equal(tool("bench", "trace.csv").returncode, 2, "a trace without policy")


def kv():
    run = tool("bench", "-d", "soft", "-q", "-r", "2", "-j", "kv")
    result = json.loads(run.stdout)
    equal((run.returncode, list(result)), (0, ["kv", "ok"]), "kv")
    for order in ("layer_front", "token_front"):
        of = result["kv"][order]
        rows = {row["name"]: row for row in of["rows"]}
        equal(len(rows), 8, "so many rows")
        ok(all(row["us"]["min"] <= row["us"]["median"] <= row["us"]["max"] for row in rows.values()), "in order")
        ok(rows["prompt"]["driver_us"]["min"] > 0 and rows["fork"]["driver_us"]["min"] > 0, "the driver is called")
        equal(rows["token, memory there"]["driver_us"]["max"], 0, "but not for what is there")
        ok(rows["fork in the same slot"]["driver_us"]["max"] < rows["fork"]["driver_us"]["min"], "nor all again")
        ok(of["needed_bytes"] < of["held_bytes"] and of["shared_bytes"] >= 2 * 8192 * 64 * 2048, "what is shared", of)
    run = tool("bench", "-d", "soft", "-q", "-r", "1", "kv")
    has(run.stdout.decode(), "token, a page a lane", "a table for people")


def main():
    start()
    threads()
    handover()
    if os.environ.get("GLAKE_TEST_SANITIZER") != "thread":  # to which one thread shows nothing
        alloc_and_stitch()
        without_bins()
        tier()
        host()
        copy()
        kv()
        sizes()
        worst()
        policy()
    done()


main()
