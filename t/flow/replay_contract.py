#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl replay on recorded jobs: the JSON contract key by key, and what it must reach."""
import json
import resource

from tap import DATA, done, equal, note, ok, start, tool

TOP = ["trace", "driver", "events", "peak_live_bytes", "peak_reserved_bytes",
       "reserved_over_live", "job_s", "repeats", "ladder", "ok"]
REPEAT = ["wall_s", "driver_ms", "driver_calls", "malloc_ns", "free_ns", "hits", "misses",
          "oom", "failed", "called", "hold_ns"]
CALLS = ["create", "map", "set_access", "unmap", "release", "event_record", "event_query",
         "stream_wait", "sync"]
LATENCY = ["mean", "p50", "p99", "p999", "max"]
LADDER = ["limbo", "recut", "cross_stream", "spill_peer", "spill_host"]

# events, peak of live bytes, seconds: facts of the files
JOBS = {
    "opt13_N": (29646, 38975783308, 2.96),
    "opt13b_LR": (56215, 59761773836, 29.3),
}


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def check_latency(figures, what):
    equal(list(figures), LATENCY, f"{what}: names")
    ok(all(is_number(v) for v in figures.values()), f"{what}: numbers", figures)
    ok(figures["p50"] <= figures["p99"] <= figures["p999"] <= figures["max"]
       and figures["mean"] <= figures["max"] and figures["max"] > 0, f"{what}: in order",
       figures)


def check_contract(result, repeats):
    equal(list(result)[:len(TOP)], TOP, "members of a result, in their order")
    equal(len(result["repeats"]), repeats, "repeats")
    for number, repeat in enumerate(result["repeats"], 1):
        equal(list(repeat)[:len(REPEAT)], REPEAT, f"members of repeat {number}")
        equal(list(repeat["driver_calls"]), CALLS, f"kinds of calls of repeat {number}")
        ok(all(is_count(v) for v in repeat["driver_calls"].values()), "counts of calls")
        ok(is_number(repeat["wall_s"]) and repeat["wall_s"] > 0, "wall_s")
        ok(is_number(repeat["driver_ms"]), "driver_ms")
        check_latency(repeat["malloc_ns"], f"malloc of repeat {number}")
        check_latency(repeat["free_ns"], f"free of repeat {number}")
        ok(all(is_count(repeat[k]) for k in ("hits", "misses", "oom", "failed", "called")),
           "hits, misses, oom, failed, called")
        equal(list(repeat["hold_ns"]), ["max", "clock"], "hold_ns: names")
        ok(is_count(repeat["hold_ns"]["max"]) and repeat["hold_ns"]["max"] > 0, "hold_ns: max")
    equal(list(result["ladder"]), LADDER, "rungs of the ladder")
    ok(all(is_count(v) for v in result["ladder"].values()), "counts of rungs")


def check_goals(result, target, most, busy):
    """What a recorded job must reach with a target: held over live, and the part of a later pass that is
    the driver's, at most."""
    name = f"{result['trace']}, target {target}"
    ratio = result["peak_reserved_bytes"] / result["peak_live_bytes"]
    ok(abs(ratio - result["reserved_over_live"]) < 1e-4, f"{name}: the ratio is that of both")
    ok(1 <= ratio <= most, f"{name}: reserved over live {ratio:.4f}, at most {most}")
    for number, repeat in enumerate(result["repeats"], 1):
        share = repeat["driver_ms"] / 1e3 / result["job_s"]
        note(f"{name} repeat {number}: driver {share * 100:.2f} % of the job, "
             f"malloc mean {repeat['malloc_ns']['mean']:.0f} ns, "
             f"free mean {repeat['free_ns']['mean']:.0f} ns")
        equal(repeat["oom"], 0, f"{name} repeat {number}: no request out of memory")
        if number == 1:
            continue
        ok(share <= busy, f"{name} repeat {number}: driver time at most {busy:.2%} of the job")
        equal(repeat["driver_calls"]["sync"], 0, f"{name} repeat {number}: no sync")


def check_job(name):
    events, live, seconds = JOBS[name]
    path = f"{DATA}/{name}.csv.xz"
    run = tool("replay", "--driver", "soft", "--repeat", "3", "--json", path)
    if not equal(run.returncode, 0, f"{name}: replays"):
        note(run.stderr.decode())
        return
    result = json.loads(run.stdout)
    check_contract(result, 3)
    equal(result["trace"], name, "trace")
    equal(result["driver"], "soft", "driver")
    equal(result["events"], events, "events")
    equal(result["peak_live_bytes"], live, "peak_live_bytes")
    ok(abs(result["job_s"] - seconds) < 0.01 * seconds, "job_s", result["job_s"])
    ok(result["ok"] is True, "ok")
    equal({r["hold_ns"]["clock"] for r in result["repeats"]}, {"wall"}, "clock of the lock")
    first, last = result["repeats"][0], result["repeats"][-1]
    ok(0 < first["called"] <= first["misses"], "the driver is called for misses alone",
       first)
    ok(last["called"] < first["called"], "for fewer once memory is there", last)
    allocations = sum(result["repeats"][0][k] for k in ("hits", "misses"))
    ok(events / 2 <= allocations < events, "every allocation is a hit or a miss", allocations)
    check_goals(result, "auto", 1.10, 0.0005)
    run = tool("replay", "--driver", "soft", "--repeat", "3", "--conf", "policy.target=1.005",
               "--json", path)
    if equal(run.returncode, 0, f"{name}: replays with a small target"):
        check_goals(json.loads(run.stdout), "1.005", 1.01, 0.01)
    run = tool("replay", "--driver", "soft", "--limit", "x1.03", "--conf",
               "stats.hold_clock=cpu", "--json", path)
    equal(run.returncode, 0, f"{name}: completes in 1.03 of its peak live memory")
    result = json.loads(run.stdout)
    ok(result["peak_reserved_bytes"] <= 1.03 * live, "and holds no more than that")
    equal({r["hold_ns"]["clock"] for r in result["repeats"]}, {"cpu"}, "clock of the lock")
    for repeat in result["repeats"]:
        note(f"{name}: lock held for {repeat['hold_ns']['max'] / 1e3:.0f} us at most")


def main():
    start()
    for name in JOBS:
        check_job(name)
    kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    ok(kib < 1 << 20, "no more than 1 GiB of RAM", f"{kib} KiB")
    done()


main()
