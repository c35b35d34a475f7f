# SPDX-License-Identifier: LGPL-2.1-or-later
"""
python3 -m glake --report: a page of what a program asked for, however it ends, and what other allocators would have
held; PyTorch is the small one of front_glake.

    front_report.py SOURCE PLUGIN HEADER...
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import tap
from front_glake import PLUGIN, SOURCE, fake
from page import has_matplotlib

PROGRAM = """
import ctypes, os, sys
from glake import library
for mib in map(int, sys.argv[2:]):
    block = ctypes.c_void_p()
    library.call("glake_alloc", 0, ctypes.c_size_t(mib << 20), None, 0, ctypes.byref(block))
print(os.environ.get("GLAKE_POOL_BUDGET"), flush=True)
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
sys.exit(sys.argv[1])
"""


def run(folder, *words, **env):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GLAKE_", "PYTHON"))}
    clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN), GLAKECTL=tap.TOOL,
                 PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=f"{SOURCE}:{fake(folder)}", RANK="3", **env)
    return subprocess.run(["python3", "-m", "glake", *words], env=clean, cwd=folder, capture_output=True, text=True,
                          timeout=tap.HUNG, check=False)


def check_page(folder):
    done = run(folder, "-c", "pool.budget=1GiB", "--report", "of%r.html", "program.py", "its own end", "40", "3")
    tap.equal((done.returncode, done.stdout), (1, "1GiB\n"), "a program as it is, with a setting, that forks")
    tap.equal(done.stderr.splitlines()[-2:], [f"glake: {folder}/of3.html shows this run", "its own end"], "which ends as it does")
    tap.ok(re.search(r"^program.py.\d+: 43.0 MiB live at the peak$", done.stderr, re.M), "what was live", done.stderr)
    tap.has(done.stderr, "PyTorch, expandable segments", "and what others would hold")
    tap.has(Path(folder, "of3.html").read_text(encoding="utf-8"), "</html>", "a page")
    tap.has(run(folder, "--report", "none.html", "program.py", "").stderr, "glake: nothing was recorded", "nothing to show")
    tap.equal(sorted(name for name in os.listdir(folder) if name.endswith((".html", ".trace"))), ["of3.html"], "nothing else is left")


def check_refused(folder):
    for words, part in ((["--report", "/nowhere/x.html", "program.py", ""], "/nowhere/x.html cannot be written"),
                        (["-c", "pool.budget", "program.py", ""], "-c takes KEY=VALUE, not 'pool.budget'"),
                        (["--report", "x.html"], "usage: python3 -m glake ")):
        done = run(folder, *words)
        tap.equal((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), f"{words[:2]}: refused in a line")
        tap.has(done.stderr, part, "which says why")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        Path(folder, "program.py").write_text(PROGRAM, encoding="utf-8")
        if has_matplotlib():
            check_page(folder)
            check_refused(folder)
        else:
            done = run(folder, "--report", "x.html", "program.py", "")
            tap.equal((done.returncode, done.stdout), (1, ""), "without matplotlib nothing is begun")
            tap.has(done.stderr, "--report: matplotlib is not installed: apt install python3-matplotlib", "and why")
    tap.done()


main()
