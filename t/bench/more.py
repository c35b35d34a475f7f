#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""bench-more, and the table of policies: what is counted, not how fast it was."""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from page import has_matplotlib  # noqa: E402
from tap import DATA, HUNG, REAL_TIME, done, equal, has, note, ok, skip, start  # noqa: E402

MORE, KIB, MIB = os.environ["GLAKE_BENCH_MORE"], 1 << 10, 1 << 20
FRONTIER = os.path.join(os.path.dirname(__file__), "frontier.py")


def more(*args):
    return subprocess.run([MORE, *map(str, args)], capture_output=True, check=False, timeout=HUNG)


def frontier(*args):
    return subprocess.run(["python3", FRONTIER, *map(str, args)], capture_output=True, text=True, check=False, timeout=HUNG)


def in_order(range_, what):
    ok(0 < range_["min"] <= range_["median"] <= range_["max"]
       and range_["min"] <= range_["mean"] <= range_["max"], f"{what}: in order", range_)


def host():
    run = more("-d", "soft", "-r", "2", "-s", "9MiB", "-j", "host")
    equal(run.returncode, 0, "pinned memory of the host")
    result = json.loads(run.stdout)["host"]
    equal([result["bytes"], result["whole"]], [9 * MIB, True], "a block holds what was written")
    ok(all(result[key]["min"] > 0 for key in ("pool_s", "again_s", "plain_s", "plain_over_pool")),
       "all are timed", result)
    run = more("-d", "soft", "-q", "-r", "1", "-s", "4MiB", "host")
    has(run.stdout.decode(), "one thread touches", "a report for people")
    run = more("-d", "soft", "-q", "-s", "9MiB", "-c", "host.limit=8MiB", "host")
    equal(run.returncode, 1, "above host.limit it fails")
    has(run.stderr.decode(), "host.limit", "and says so")
    for size in ("0", "x"):
        equal(more("-s", size, "host").returncode, 2, f"--size {size} is refused")


def sizes():
    run = more("-d", "soft", "-n", "40000", "-j", "sizes")
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
    ok(steps[-1]["free_extents"] <= 2 * steps[3]["free_extents"], "extents do not pile up", steps)
    run = more("-d", "soft", "-q", "-n", "800", "sizes")
    has(run.stdout.decode(), "never repeat", "a report for people")
    equal(more("-n", str(7 * MIB + 1), "sizes").returncode, 2, "one size too many")


WORST = {
    "blocks": ["bin merges", "big beside", "half freed", "bins flushed", "checkerboard",
               "new sizes", "freed elsewhere", "busy pages", "trim", "figures", "map", "suspension",
               "fetch of all", "in place", "from there", "quiet point"],
    "streams": ["idle streams", "streams in turn", "busy streams", "freed on others",
                "used on others"],
    "GPUs": ["last GPU", "last GPU, pools"],
    "contexts": ["last context"],
}
FIGURES = ["free_ns", "request_ns", "mapping_request_ns", "call_ns", "hold_ns", "pair_ns"]


def worst():
    run = more("-d", "soft", "-r", "2", "-m", "1000", "-j", "worst")
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
            ok(0 <= row["calm"][key] <= row[key]["min"], f"{what}: {key} of calls in their quickest round", row)
    named = {r["pattern"]: r for r in rows}
    for pattern, key in (("bin merges", "free_ns"), ("bins flushed", "mapping_request_ns"),
                         ("busy pages", "mapping_request_ns"), ("trim", "call_ns"),
                         ("figures", "call_ns"), ("map", "call_ns"), ("suspension", "call_ns"),
                         ("fetch of all", "call_ns"), ("in place", "call_ns"),
                         ("from there", "call_ns"), ("quiet point", "call_ns"), ("last context", "pair_ns")):
        ok(key in named[pattern], f"{pattern}: shows what it is about", named[pattern])
    run = more("-d", "soft", "-q", "-r", "1", "-m", "1", "worst")
    has(run.stdout.decode(), "idle streams", "a report for people")
    run = more("-d", "soft", "-q", "-r", "1", "-m", "1000", "-j", "-c",
               "soft.memory=64MiB", "worst")
    equal(run.returncode, 0, "what does not fit")
    rows = json.loads(run.stdout)["worst"]["rows"]
    ok(any("skipped" in r for r in rows), "is left out, and said so")
    equal(more("-m", "1000001", "worst").returncode, 2, "one too many")


def kv():
    run = more("-d", "soft", "-q", "-r", "2", "-j", "kv")
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
    run = more("-d", "soft", "-q", "-r", "1", "kv")
    has(run.stdout.decode(), "token, a page a lane", "a table for people")


def scale():
    run = more("-d", "soft", "-r", "2", "-t", "3", "-j", "scale")
    equal(run.returncode, 0, "three threads")
    of = json.loads(run.stdout)["scale"]
    equal(of["threads"], 3, "as many")
    equal([(m["name"], m["block_bytes"]) for m in of["modes"]],
          [("own streams", MIB // 16), ("one stream", MIB // 16),
           ("own streams", 16 * MIB), ("one stream", 16 * MIB)], "modes")
    for mode in of["modes"]:
        what = f"{mode['name']}, {mode['block_bytes']}"
        for key in ("pair_ns", "pairs_per_s", "one_thread_pair_ns", "one_thread_pairs_per_s",
                    "ratio"):
            in_order(mode[key], f"{what}: {key}")
        equal(mode["requests"], 2 * 3 * of["pairs_a_round"], f"{what}: all counted")
        note(f"{what}: ratio {mode['best_ratio']}, hits {mode['hits']}")
    in_order(of["machine_ratio"], "what the machine gains")
    small = [m for m in of["modes"] if m["block_bytes"] < MIB]
    if REAL_TIME:  # else how often they meet is the machine's affair
        ok(all(m["hits"] == m["requests"] for m in small), "small blocks: all hits", small)
    run = more("-d", "soft", "-r", "1", "scale")
    equal(run.returncode, 0, "two threads, unless that is said")
    has(run.stdout.decode(), "one stream", "a report for people")


def packed():
    run = more("-d", "soft", "-r", "1", "-j", "packed")
    equal(run.returncode, 0, "contents that are compressed while they are away")
    of = json.loads(run.stdout)["packed"]
    ok(of is None or (of["held_bytes"] < 0.6 * of["bytes"] and not of["torn"] and
                      min(of[key]["min"] for key in ("compress_gbs", "resume_gbs", "range_gbs")) > 0),
       "get smaller, and what they were again", of)
    run = more("-d", "soft", "-q", "-r", "1", "packed")
    has(run.stdout.decode(), "compressed", "a report for people")


def beside():
    run = more("-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "-j", "beside")
    equal(run.returncode, 0, "beside copies in the memory of who lends")
    cases = json.loads(run.stdout)["copy"]["cases"]
    equal([(c["links"], c["bytes"]) for c in cases], [(2, 4 ** n * KIB) for n in range(1, 7)], "six sizes over two links")
    ok(all(c["beside"][key] > 0 for c in cases for key in ("memory_gbs", "down_gbs", "up_gbs", "both_gbs")), "all are timed")
    ok(all(c["beside"][f"{way}_memory_slowed_percent"] <= 100 for c in cases for way in ("down", "up", "both")), "and compared")
    run = more("-d", "soft", "-q", "-r", "1", "-c", "soft.gpus=2", "beside")
    has(run.stdout.decode(), "2 links, beside copies", "a report for people")
    run = more("-d", "soft", "-q", "beside")
    equal(run.returncode, 1, "with one GPU there is nobody who lends")
    has(run.stderr.decode(), "no other GPU", "which is said")


def handover():
    run = more("-d", "soft", "-r", "2", "-j", "handover")
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
    run = more("-d", "soft", "-q", "-r", "1", "handover")
    has(run.stdout.decode(), "noted", "a report for people")
    run = more("-d", "soft", "-q", "-r", "1", "-c",
               "stream.internal_dependencies=no", "handover")
    equal(run.returncode, 1, "without stream waits it measures something else")
    has(run.stdout.decode(), "NOT AS MEANT", "which it says")


def policy():
    trace = os.path.join(DATA, "opt13_N.csv.xz")
    run = frontier("-r", "1", "-j", trace)
    equal(run.returncode, 0, "variants of the policy")
    outcomes = json.loads(run.stdout)["policy"]["outcomes"]
    of = {o["setting"]: o for o in outcomes}
    equal(len(outcomes), len(of), "each once")
    usual = of[""]
    for setting, outcome in of.items():
        differs = {k for k in outcome if outcome[k] != usual[k]} - {"variant", "setting"}
        ok(not setting or differs, f"{setting or 'default'}: has an effect", outcome)
    low, high = of["pool.large_page=2MiB"], of["pool.large_page=32MiB"]
    ok(low["driver_ms"] > high["driver_ms"], "small pages cost more")
    low, high = of["policy.target=1"], of["policy.target=1.05"]
    ok(low["reserved_over_live"] < high["reserved_over_live"], "a low target needs less")
    ok(low["driver_ms"] > high["driver_ms"], "and costs more")
    with tempfile.TemporaryDirectory() as folder:
        svg = os.path.join(folder, "f.svg")
        drawn = has_matplotlib()
        run = frontier("-r", "1", trace, "-v", "pool.large_page=4MiB,16MiB", "-v", "map.aliases=1", *(["-o", svg] if drawn else []))
        equal((run.returncode, len(run.stdout.splitlines())), (0, 6), "values of any key, in a table")
        if drawn:
            texts = [t.text for t in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
            ok({"default", "pool.large_page=4MiB", "map.aliases=1"} <= set(texts), "and in a picture", texts)
        else:
            skip("a picture", "python3 has no matplotlib, of Debian's package python3-matplotlib")
    equal(frontier("-v", "nonsense=1", trace).returncode, 1, "a key that is none")


def main():
    start()
    host()
    sizes()
    worst()
    kv()
    scale()
    packed()
    beside()
    handover()
    policy()
    done()


main()
