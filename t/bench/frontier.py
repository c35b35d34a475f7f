#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Recorded jobs under variants of the policy: what each choice is worth. One key is changed at a time from its default;
every variant replays every job in a context of its own, by glakectl replay. On the software device the same run gives
the same figures on any machine.

    t/bench/frontier.py [-d DRIVER] [-r PASSES] [-c KEY=VALUE]... [-v KEY=VALUE,...]... [-j] [-o FILE.svg] [TRACE...]

-v   these values of a key in turn, in place of the list below; repeatable
-j   as JSON
-o   also draws the frontier: a panel for each job, in it a mark for each variant, memory to the right and driver time
     upwards; both are logarithmic, since what is saved and what is paid are factors

Without a TRACE those of t/data. GLAKECTL names the tool, else that of build/.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = os.environ.get("GLAKECTL", str(ROOT / "build/lib/tool/glakectl"))
VARIANTS = (("default", None), ("bins: none", "policy.bins=0"), ("bins: 1 MiB", "policy.bins=1MiB"),
            ("bins: all", "policy.bins=16TiB"), ("target: 1", "policy.target=1"), ("target: 1.002", "policy.target=1.002"),
            ("target: 1.005", "policy.target=1.005"), ("target: 1.01", "policy.target=1.01"),
            ("target: 1.05", "policy.target=1.05"), ("target: 1.10", "policy.target=1.10"), ("ends: low", "policy.ends=low"),
            ("ends: high", "policy.ends=high"), ("pages: 2 MiB", "pool.large_page=2MiB"),
            ("pages: 4 MiB", "pool.large_page=4MiB"), ("pages: 8 MiB", "pool.large_page=8MiB"),
            ("pages: 32 MiB", "pool.large_page=32MiB"))


def outcome(trace, name, setting, wanted):
    """What a variant makes of a job."""
    words = [word for one in [*wanted.conf, *([setting] if setting else [])] for word in ("--conf", one)]
    run = subprocess.run([TOOL, "replay", "-q", "-j", "-d", wanted.driver, "-r", str(wanted.rounds), *words, trace],
                         stdout=subprocess.PIPE, check=False)
    if not run.stdout:
        sys.exit(f"frontier: {trace}, {name}: glakectl replay has failed")
    found = json.loads(run.stdout)
    passes = [one["driver_ms"] for one in found["repeats"]]
    later = passes[1:] or [0]
    hits, misses = (sum(one[key] for one in found["repeats"]) for key in ("hits", "misses"))

    def share(ms):
        return ms / found["job_s"] / 10 if found["job_s"] else 0

    return {"variant": name, "setting": setting or "", "trace": found["trace"], "reserved_over_live": found["reserved_over_live"],
            "driver_ms": sum(passes), "first_driver_ms": passes[0],
            "first_driver_ms_per_gib": passes[0] / (found["peak_live_bytes"] / 2**30),
            "later_percent_of_job": share(sum(later) / len(later)), "later_percent_of_job_worst": share(max(later)),
            "hits_percent": 100 * hits / (hits + misses) if hits + misses else 0, "ok": found["ok"]}


def table(outcomes):
    """As Markdown, to be kept with the picture."""
    width = max(13, *(len(one["variant"]) for one in outcomes))
    print(f"| {'variant':{width}} | job          | reserved/live | first ms/GiB | later % of job | worst  | hits % |")
    print(f"|{'-' * (width + 2)}|--------------|--------------:|-------------:|--------------:|-------:|-------:|")
    for one in outcomes:
        print(f"| {one['variant']:{width}} | {one['trace']:12} | {one['reserved_over_live']:13.4f} | "
              f"{one['first_driver_ms_per_gib']:12.2f} | {one['later_percent_of_job']:13.2f} | "
              f"{one['later_percent_of_job_worst']:6.2f} | {one['hits_percent']:6.1f} |{'' if one['ok'] else ' FAILED'}")


def draw(outcomes, path):
    """The frontier, by the package's pictures."""
    sys.path.insert(0, str(ROOT / "lib/python"))
    from glake import pictures
    jobs = list(dict.fromkeys(one["trace"] for one in outcomes))
    figure = pictures.new(560, 380 * len(jobs))
    figure.subplots_adjust(left=0.11, right=0.97, top=1 - 40 / (380 * len(jobs)), bottom=44 / (380 * len(jobs)), hspace=0.3)
    for axes, job in zip(figure.subplots(len(jobs), 1, squeeze=False).flat, jobs):
        rows = sorted((max(100 * (one["reserved_over_live"] - 1), 0.01), max(one["driver_ms"], 0.1), one["variant"])
                      for one in outcomes if one["trace"] == job)
        best = [row for row in rows if not any(a <= row[0] and b <= row[1] and (a, b) != row[:2] for a, b, _ in rows)]
        axes.plot([x for x, _, _ in best], [y for _, y, _ in best], color=pictures.QUIET, linestyle="--", linewidth=1)
        for i, (x, y, name) in enumerate(rows):
            axes.plot([x], [y], marker="s" if name == "default" else "o", markersize=6, gid="mark",
                      color=pictures.RESERVED if name == "default" else pictures.LIVE)
            axes.annotate(name, (x, y), (6, (4, -9)[i % 2]), textcoords="offset points", fontsize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(right=1.6 * axes.get_xlim()[1])  # the names are to the right of their marks
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda value, _: "")
        axes.set_title(f"{job}: driver time of all passes, ms, against memory above live, %")
    with open(path, "wb") as file:
        pictures.save(figure, "policy", file.write, "svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--driver", default="soft")
    parser.add_argument("-r", "--rounds", type=int, default=4)
    parser.add_argument("-c", "--conf", action="append", default=[])
    parser.add_argument("-v", "--vary", action="append", default=[])
    parser.add_argument("-j", "--json", action="store_true")
    parser.add_argument("-o", "--svg")
    parser.add_argument("traces", nargs="*", default=sorted(str(path) for path in (ROOT / "t/data").glob("*.csv*")))
    wanted = parser.parse_args()
    variants = list(VARIANTS[:1] if wanted.vary else VARIANTS)
    for text in wanted.vary:
        key, _, values = text.partition("=")
        variants += [(f"{key}={value}",) * 2 for value in values.split(",")]
    outcomes = [outcome(trace, *variant, wanted) for variant in variants for trace in wanted.traces]
    if wanted.json:
        print(json.dumps({"policy": {"passes": wanted.rounds, "outcomes": outcomes}}, indent=2))
    else:
        table(outcomes)
    if wanted.svg:
        draw(outcomes, wanted.svg)
    sys.exit(not all(one["ok"] for one in outcomes))


if __name__ == "__main__":
    main()
