# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Files of the library that need each other: no circle of them is longer than MOST, and none reaches from one folder
of lib into another. Who needs whom is told by the symbols of the objects.
"""

import re
import sys

from tap import Tap, run, skip_all
from tree import files

MOST = 6


def needs_of(archive):
    """{object: the symbols it defines}, {object: those it needs}."""
    code, said = run("nm", archive)
    if code:
        skip_all(f"nm does not read {archive}: {said.strip()}")
    defined, needed, name = {}, {}, None
    for line in said.splitlines():
        if line.endswith(".o:"):
            name = line[:-1].rsplit("/", 1)[-1].removeprefix("meson-generated_")
            defined[name], needed[name] = set(), set()
            continue
        row = line.split()
        if len(row) == 3 and row[1] in "TDBRVW":
            defined[name].add(row[2])
        elif len(row) == 2 and row[0] == "U":
            needed[name].add(row[1])
    return defined, needed


def graph_of(defined, needed):
    where = {symbol: name for name, symbols in defined.items() for symbol in symbols}
    return {name: {where[s] for s in symbols if s in where} - {name}
            for name, symbols in needed.items()}


def reached(graph, start):
    """All that a file needs, by way of others too."""
    found, left = set(), [start]
    while left:
        for other in graph[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def circles_of(graph):
    """Sets of files, each of which needs all others of its set."""
    reach = {name: reached(graph, name) for name in graph}
    circles = {frozenset({name} | {o for o in reach[name] if name in reach[o]}) for name in graph}
    return [sorted(circle) for circle in circles if len(circle) > 1]


def folders():
    """{name of an object: folder of its source}."""
    found = {}
    for name in files():
        match = re.fullmatch(r"(?:lib/)?((\w+)/.*\.c)", name)
        if match and name.startswith(("lib/", "numa/", "uvm_bridge/")):
            found[match[1].replace("/", "_") + ".o"] = match[2]
            found[".._" + match[1].replace("/", "_") + ".o"] = match[2]
    return found


def main(archive):
    tap = Tap()
    defined, needed = needs_of(archive)
    circles, folder = circles_of(graph_of(defined, needed)), folders()
    tap.ok(len(defined) > 200, f"{len(defined)} objects")
    tap.none([name for name in defined if name not in folder], "each is of a source")
    tap.none([" ".join(c) for c in circles if len(c) > MOST], f"no circle is longer than {MOST}")
    tap.none([" ".join(c) for c in circles if len({folder.get(name) for name in c}) > 1],
             "and none reaches over the wall of a folder")
    tap.ok(bool(circles), "a circle would be seen: there are short ones")
    tap.done()


main(*sys.argv[1:])
