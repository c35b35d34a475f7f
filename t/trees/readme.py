# SPDX-License-Identifier: LGPL-2.1-or-later
"""What README tells a reader to type, taken from its text, so that it cannot be told wrong."""

import re
import sys
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def section(name):
    return re.search(rf"^##+ {name}\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)[1]


def blocks(name):
    """The indented blocks of a section, without their indent."""
    found = re.findall(r"(?:^    .*\n)+", section(name), re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def example():
    """The first program in C, and the line that compiles it."""
    inside = section("In a program")
    line = re.search(r"^    (cc example\.c .*)$", inside, re.M)[1]
    return re.search(r"```c\n(.*?)```", inside, re.S)[1], line


def commands(name):
    """demo, test: the two commands. default, own, paths, uninstall and so on: the blocks of
    Installing."""
    if name in ("demo", "test"):
        line, = re.findall(rf"^    (t/setup {name})$", TEXT, re.M)
        return line
    names = ("default", "own", "paths", "uninstall", "static", "packages")
    found = blocks("Installing")
    assert len(found) == len(names), found
    return dict(zip(names, found))[name]


def preload():
    """The words before the program that is to run with it."""
    return re.search(r"^    LD_PRELOAD=(\S+) \./program$", TEXT, re.M)[1]


def tool_commands():
    return re.findall(r"^    glakectl ([a-z]+(?: [a-z]+)?)", section("The tool"), re.M)


def keys():
    """Section, key and default of what the section on configuration shows."""
    return re.findall(r"^    ([a-z]+)\.([a-z_]+) = (\S+)", section("Configuration"), re.M)


if __name__ == "__main__":
    print(commands(sys.argv[1]))
