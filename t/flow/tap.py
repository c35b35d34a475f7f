# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks in the Test Anything Protocol, and the tool as a child process."""
import os
import subprocess
import sys
import time

TOOL = os.environ.get("GLAKECTL", "glakectl")
# Whoever waits longer than that, also on a machine that is busy elsewhere, waits for ever.
HUNG = 240
# What tells of the speed of the machine, or depends on it, is looked at where meson has set this.
REAL_TIME = "GLAKE_TEST_REAL_TIME" in os.environ
DATA = os.environ.get("GLAKE_TEST_DATA", os.path.join(os.path.dirname(__file__), "../data"))
# The Python that glakectl starts is that of the environment with packages, if one is named; else that of the
# system, which has those that t/setup installs.
os.environ["PATH"] = os.path.join(os.environ.get("GLAKE_TEST_PACKAGES") or "/usr", "bin") + ":" + os.environ["PATH"]

_run = 0
_failed = 0


def start():
    print("TAP version 13")


def note(text):
    for line in str(text).splitlines():
        print("#", line)


def ok(passed, what, *notes):
    """One check; the notes are shown when it fails."""
    global _run, _failed
    _run += 1
    what = what.replace("#", "")
    print(f"{'ok' if passed else 'not ok'} {_run} - {what}", flush=True)
    if not passed:
        _failed += 1
        for text in notes:
            note(text)
    return passed


def skip(what, why):
    global _run
    _run += 1
    print(f"ok {_run} - {what} # SKIP {why}", flush=True)


def equal(got, want, what):
    return ok(got == want, what, f"got  {got!r}", f"want {want!r}")


def has(text, part, what):
    return ok(part in text, what, f"'{part}' is not in:", text)


def done():
    print(f"1..{_run}")
    sys.exit(1 if _failed else 0)


def until(true, pause=0.005):
    """Waits until something is true that others bring about; what was true, or false where it hangs."""
    end = time.monotonic() + HUNG  # paces
    while not (found := true()) and time.monotonic() < end:  # paces
        time.sleep(pause)  # paces
    return found


def clean(env=None):
    """An environment without the settings of whoever runs the test."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith("GLAKE_") or k == "GLAKE_TEST_DATA"}
    return {**kept, "LC_ALL": "C.UTF-8", **(env or {})}


def tool(*args, stdin=None, stdout=subprocess.PIPE, env=None):
    """Runs glakectl."""
    return subprocess.run([TOOL, *map(str, args)], input=stdin, stdout=stdout,
                          stderr=subprocess.PIPE, env=clean(env), timeout=HUNG)
