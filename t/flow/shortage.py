#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Recorded jobs on a GPU that is too small for them: what does not fit lies on the host, the budget
holds, and one block in sixteen is looked at."""

import json
import subprocess

from tap import DATA, TOOL, done, note, ok, start

GIB = 1 << 30


def replay(job, limit, *settings):
    command = [TOOL, "replay", "--driver", "soft", "--json", "--check", "--repeat", "2",
               "--limit", f"x{limit}"]
    for setting in settings:
        command += ["--conf", setting]
    said = subprocess.run(command + [f"{DATA}/{job}.csv.xz"], check=False, capture_output=True)
    return json.loads(said.stdout)


def beyond(job, limit):
    most = 64 * GIB
    result = replay(job, limit, "tier.place=host", f"tier.host={most}")
    placed = result["ladder"]["spill_host"]
    host = result["peak_host_bytes"]
    missing = (1 - limit) * result["peak_live_bytes"]
    note(f"{job} x{limit}: {placed} requests placed, {host / GIB:.2f} GiB of the host for"
         f" {missing / GIB:.2f} that were missing")
    ok(result["ok"], f"{job} at {limit} of what it had live: every request is served, and every"
       " block looked at is whole", result.get("failure"))
    ok(result["peak_reserved_bytes"] <= result["budget_bytes"], "  within the budget of the GPU",
       result["peak_reserved_bytes"])
    ok(missing * 0.9 <= host <= most, "  and that of the host", host)
    ok(placed > 0, "  which took what there was no room for")
    ok(all(repeat["driver_calls"]["sync"] <= 16 for repeat in result["repeats"]),
       "  and nobody waits for the GPU again and again")


def refused():
    result = replay("opt13_N", 0.8)
    ok(not result["ok"] and "GPU 0" in result["failure"], "by default requests are refused",
       result.get("failure"))
    ok(result["peak_host_bytes"] == 0 and result["ladder"]["spill_host"] == 0,
       "  and nothing lies on the host")
    result = replay("opt13_N", 0.8, "tier.place=host", "tier.host=1GiB")
    ok(not result["ok"] and "tier.host" in result["failure"],
       "so are those that a small budget of the host has no room for", result.get("failure"))
    ok(result["peak_host_bytes"] <= GIB, "  which holds", result["peak_host_bytes"])


def plain():
    said = subprocess.run(
        [TOOL, "replay", "--driver", "soft", "--quiet", "--repeat", "1", "--limit", "x0.9",
         "--conf", "tier.place=host", "--conf", f"tier.host={64 * GIB}", f"{DATA}/opt13_N.csv.xz"],
        check=False, capture_output=True, text=True)
    ok(said.returncode == 0 and "peak host" in said.stdout and "spill_host" in said.stdout,
       "the report for people names both", said.stdout)


start()
for name, part in (("opt13_N", 0.8), ("opt13_N", 0.7), ("opt13b_LR", 0.7), ("fsdp1", 0.8)):
    beyond(name, part)
refused()
plain()
done()
