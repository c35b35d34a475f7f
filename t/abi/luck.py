# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tests of the gate that are scripts do not hang on time or luck: they read no clock, sleep for no time
and draw no numbers without a seed. A line that may says why: "# paces", a loop that waits for an
event; "# real time", behind GLAKE_TEST_REAL_TIME, about dates, or only shown. Those in C cannot: see t/sched.
And all sources in C are as clang-format has them, where that is of Debian 12.
"""

import re
import shutil

from tap import Tap, run
from tree import ROOT, files, text

FOLDERS = ("t/abi/", "t/doors/", "t/examples/", "t/flow/", "t/bench/")
TIME = re.compile(r"\btime\.(sleep|time|time_ns|monotonic|monotonic_ns|perf_counter\w*|process_time)\b")
CHANCE = re.compile(r"\brandom\.(?!Random\(\w)\w+\(|\bsecrets\.|\buuid4\(|\burandom\(")
ALLOWED = ("# paces", "# real time")
OURS = ("t/abi/luck.py",)


def main():
    tap = Tap()
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in files()
        if name.endswith(".py") and name.startswith(FOLDERS) and name not in OURS
        for number, line in enumerate(text(name).splitlines(), 1)
        if (TIME.search(line) or CHANCE.search(line)) and not line.rstrip().endswith(ALLOWED)
    ]
    tap.none(found, "no test that is a script hangs on time or luck")

    what = "sources in C are as clang-format has them"
    version = run("clang-format", "--version")[1] if shutil.which("clang-format") else "none"
    if " version 14." not in version:
        tap.skip(what, f"clang-format 14 is wanted, and here is {version.strip()}")
    else:
        sources = [ROOT / name for name in files() if name.endswith((".c", ".h", ".cc", ".hpp", ".cu"))]
        said = run("clang-format", "--dry-run", "--ferror-limit=1", *sources, cwd=ROOT)[1]
        tap.none(sorted({line.split(":")[0] for line in said.splitlines() if ": warning:" in line}), what)
    tap.done()


main()
