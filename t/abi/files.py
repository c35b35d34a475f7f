# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Every file says its licence, no source file is so long that it holds two ideas, and README
shows the rooms there are, and what tells of versions knows this one.
"""

import fnmatch
import re
from pathlib import Path

from tap import Tap
from tree import ROOT, files, text

LONGEST = 1000
README = 200
SPDX = "SPDX-License-" + "Identifier: LGPL-2.1-or-later"
SOURCE = (".c", ".h", ".cc", ".hpp", ".py", ".sh", ".build", ".pml", ".in")
TOP = {"lib", "uvm_bridge", "numa", "include", "t", "meson.build", "meson_options.txt",
       "README.md", "COPYING"}


def licensed_elsewhere():
    """Patterns of .reuse/dep5, for files that have no room for a comment."""
    found = []
    for line in (ROOT / ".reuse/dep5").read_text(encoding="utf-8").splitlines():
        match = re.match(r"Files:(.*)", line)
        found += match[1].split() if match else []
    found.remove("*")  # which has the copyright of all
    return found


def main():
    tap = Tap()
    names = files()
    elsewhere = licensed_elsewhere()
    bare = [
        name
        for name in names
        if not any(fnmatch.fnmatch(name, pattern) for pattern in elsewhere)
        and not any(SPDX in line for line in text(name).splitlines()[:3])
    ]
    tap.none(bare, f"{len(names)} files say their licence")
    for pattern in elsewhere:
        tap.ok(fnmatch.filter(names, pattern), f".reuse/dep5: {pattern} names a file")
    long = [
        f"{name}: {text(name).count(chr(10))} lines"
        for name in names
        if (name.endswith(SOURCE) or not Path(name).suffix and name.startswith(("t/", ".ci/")))
        and not name.startswith("t/data/")
        and text(name).count("\n") > LONGEST
    ]
    tap.none(long, f"no source file is longer than {LONGEST} lines")
    odd = {name.split("/")[0] for name in names} - TOP
    tap.none([name for name in sorted(odd) if name[0] != "."], "the top level holds what it should")
    rooms = {"/".join(name.split("/")[:2]) for name in names if name.startswith(("lib/", "include/"))
             and name.count("/") > 1} | {"numa", "uvm_bridge", "t"}
    shown = set(re.findall(r"^    ((?:lib|include)/\w+|numa|uvm_bridge|t)  ", text("README.md"), re.M))
    tap.none(sorted(rooms ^ shown), "README shows every room and no other")
    lines = text("README.md").count("\n")
    tap.ok(lines <= README, f"README has {README} lines at most", lines)
    version = re.search(r"version: '([^']+)'", text("meson.build"))[1]
    tap.ok(text("lib/package/debian/changelog").startswith(f"glake ({version}-"),
           f"the changelog of Debian begins with {version}")
    page = re.findall(r"^\.Sh VERSION (\S+)", text("lib/man/glake-changes.7"), re.M)
    tap.ok(page[0] == version, "and glake-changes(7) too", page)
    tap.done()


main()
