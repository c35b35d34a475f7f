# SPDX-License-Identifier: LGPL-2.1-or-later
"""Test Anything Protocol for the checks in this folder, which are scripts."""

import subprocess
import sys


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0
        print("TAP version 13")

    def ok(self, good, text, *notes):
        self.count += 1
        self.failed += not good
        print(f"{'' if good else 'not '}ok {self.count} - {text}")
        if not good:
            for note in notes:
                for line in str(note).rstrip().splitlines():
                    print(f"# {line}")
        return good

    def none(self, findings, text):
        """Passes when nothing was found; else shows each finding."""
        return self.ok(not findings, text, *findings)

    def skip(self, text, why):
        self.count += 1
        print(f"ok {self.count} - {text} # SKIP {why}")

    def done(self):
        print(f"1..{self.count}")
        sys.exit(1 if self.failed else 0)


def lint(paths):
    """What mandoc -Tlint complains of. Other pages of ours need not be installed on the machine that builds."""
    done = subprocess.run(["mandoc", "-Tlint", *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return [row for row in done.stdout.splitlines() if "referenced manual not found" not in row]


def skip_all(why):
    print(f"TAP version 13\n1..0 # SKIP {why}")
    sys.exit(0)


def run(*command, **how):
    """Runs a command; its exit status and all it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **how,
    )
    return done.returncode, done.stdout
