#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The commands of README that need no install, as written: those of the tool, with a small trace and a
page in place of what stands in capitals, on the software device; and a program that records itself.
What is installed, and the two commands, t/trees runs.

	readme.py TRACE_PROGRAM
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import DATA, TOOL, done, equal, has, ok, start

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "t/trees"))
import readme  # noqa: E402

# What each of them says, on stdout or into PAGE.
SAID = {
    "info": "glake ", "doctor": "fit for glake", "replay FILE...": "peak reserved",
    "trace show FILE": "events", "try FILE": "usage", "report FILE -o PAGE": "usage", "draw FILE -o PICTURE": "usage", "bench": "Measures parts of the library",
    "ps": "usage", "stat [PID]": "usage", "map [PID]": "usage",
    "snapshot [PID] -o FILE": "usage", "top": "usage", "export": "usage", "conf show": "pool.budget", "conf explain KEY": "GLAKE_POOL_BUDGET", "conf check": "ok",
}
ABOUT_A_MACHINE = ("doctor",)  # it may have a problem
# t/flow/report.py, draw.py, bench.py, stat.py, map.py, top.py and export.py have them
ELSEWHERE = ("try FILE", "report FILE -o PAGE", "draw FILE -o PICTURE", "bench", "ps", "stat [PID]", "map [PID]", "snapshot [PID] -o FILE", "top", "export")


def clean(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    return dict(kept, LC_ALL="C.UTF-8", GLAKE_DRIVER_BACKEND="soft", **more)


def shell(command, folder):
    """A command as a reader types it, with the tool of the build folder on PATH."""
    path = f"{os.path.dirname(TOOL)}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-ec", command], cwd=folder, env=clean(PATH=path), timeout=300,
                          text=True, capture_output=True, check=False)


def commands():
    found = re.findall(r"^    glakectl ((?:\S+ )*\S+)  ", readme.section("The tool"), re.M)
    return [" ".join(command.split()) for command in found]


def check_command(command, folder):
    words = command.replace("FILE...", "FILE").replace("FILE", f"{DATA}/opt13_N.csv.xz")
    words = words.replace("KEY", "pool.budget")
    if command in ELSEWHERE:
        words = words.split(" ")[0] + " --help"
    run = shell(f"glakectl {words}", folder)
    right = run.returncode in ((0, 1) if command in ABOUT_A_MACHINE else (0,))
    ok(right, f"glakectl {command}", run.returncode, run.stderr)
    ok(SAID[command] in run.stdout, f"says {SAID[command]}", run.stdout[-2000:])
    if command not in ELSEWHERE:
        run = shell(f"glakectl {words} --json", folder)
        ok(run.returncode in (0, 1) and run.stdout, "takes --json", run.stderr)


def check_record(folder, program):
    """The line that records a program, with a program of the tests as the job."""
    line, = re.findall(r"`(GLAKE_TRACE_FILE=\S+) \./job`", readme.section("The tool"))
    line = line.replace("/dev/shm", folder)
    run = shell(f"{line} {program} alone", folder)
    traces = list(Path(folder).glob("*.trace"))
    ok(len(traces) == 1, "a program records itself", run.stdout, run.stderr)
    for trace in traces:
        has(shell(f"glakectl trace show {trace}", folder).stdout, "events", "and the trace is one")


def main(program):
    start()
    equal(sorted(SAID), sorted(commands()), "README's commands of the tool")
    with tempfile.TemporaryDirectory() as folder:
        for command in commands():
            if command in SAID:
                check_command(command, folder)
        check_record(folder, program)
    told, = re.findall(r"README\.md +(\".*\")", (ROOT / "t/setup").read_text(encoding="utf-8"))
    for name in re.findall(r"\"([^\"]+)\"", told):
        ok(re.search(f"^## {name}$", readme.TEXT, re.M), f"the demo sends to {name}, which is there")
    done()


main(*sys.argv[1:])
