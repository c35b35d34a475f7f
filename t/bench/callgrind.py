# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Instructions inside glake_alloc and glake_free alone, counted by callgrind: unlike a time, the
same on every machine with the same compiler.

What is counted is the library as it was built. A build with sanitizers or without optimisation
would count those, and is not looked at.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from tap import note  # noqa: E402


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


def build_in(builds, callgrind=True):
    """How the library was built, if it is one of these and there is callgrind where it is wanted;
    or skips."""
    build = os.environ.get("GLAKE_BUILD", "")
    if build not in builds:
        skip("this build is not optimised, or has sanitizers" if not build
             else f"no limit is known for a build that is {build}")
    if callgrind and not shutil.which("valgrind"):
        skip("valgrind is not installed")
    return build


def count(*program, settings=(), timeout=120, of=("glake_alloc", "glake_free")):
    """Instructions of a whole run of a program in these functions, or None."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    env.update(settings)
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         *(f"--toggle-collect={name}" for name in of), *map(str, program)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False, env=env)
    said = run.stderr.decode(errors="replace")
    found = re.search(r"Collected : (\d+)", said)
    if run.returncode or not found:
        note(said)
        return None
    return int(found[1])
