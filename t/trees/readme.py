# SPDX-License-Identifier: LGPL-2.1-or-later
"""What README and lib/install/README.md tell a reader to type, taken from their texts, so that it
cannot be told wrong."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "lib/install/README.md").read_text(encoding="utf-8")


def section(name):
    return re.search(rf"^##+ {name}\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)[1]


def blocks(text):
    """The indented blocks of a text, without their indent."""
    found = re.findall(r"(?:^    .*\n)+", text, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def example():
    """The first program in C, and the line that compiles it."""
    inside = section("In a program")
    line = re.search(r"^    (cc example\.c .*)$", inside, re.M)[1]
    return re.search(r"```c\n(.*?)```", inside, re.S)[1], line


def commands(name):
    """demo, test: the two commands. default, own, paths, uninstall and so on: the blocks of
    lib/install/README.md, of which README has the first."""
    if name in ("demo", "test"):
        line, = re.findall(rf"^    (t/setup {name})$", TEXT, re.M)
        return line
    names = ("default", "own", "paths", "uninstall", "static", "packages")
    found = blocks(INSTALL)
    assert len(found) == len(names), found
    assert blocks(section("Installing")) == found[:1], "README installs in another way"
    return dict(zip(names, found))[name]


def tool_commands():
    return re.findall(r"^    glakectl ([a-z]+(?: [a-z]+)?)", section("The tool"), re.M)


def keys():
    """Section, key and default of what the section on configuration shows."""
    return re.findall(r"^    ([a-z]+)\.([a-z_]+) = (\S+)", section("Configuration"), re.M)


if __name__ == "__main__":
    print(commands(sys.argv[1]))
