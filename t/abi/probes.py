# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The probes that perf and bpftrace see in libglake.so: those of the source, with their arguments; all
of them in the manual, and none of them where a bin serves a request.
"""
import re
import sys

from tap import Tap, run, skip_all
from tree import files, text


def in_source():
    """{name: number of arguments}."""
    found = {}
    for name in files():
        if name.startswith("lib/") and name.endswith((".c", ".h")) and "probe.h" not in name:
            found |= {match[2]: int(match[1])
                      for match in re.finditer(r"\bGLK_PROBE(\d)\((\w+),", text(name))}
    return found


def in_library(library):
    """[(name, number of arguments, place)]."""
    code, notes = run("readelf", "-nW", library)
    if code:
        skip_all(f"readelf: {notes.strip()}")
    rows = re.findall(r"Provider: glake\s+Name: (\w+)\s+Location: (0x[0-9a-f]+).*\n\s+Arguments: (.*)",
                      notes)
    return [(name, len(arguments.split()), int(place, 16)) for name, place, arguments in rows]


def hit_path(library):
    """Where the functions lie that a hit runs through."""
    said = run("readelf", "-sW", library)[1]
    rows = re.findall(r"^\s*\d+: ([0-9a-f]+)\s+(\d+|0x[0-9a-f]+) FUNC .*\b(glake_alloc|glake_free)\b",
                      said, re.M)
    return {name: (int(at, 16), int(at, 16) + int(size, 0)) for at, size, name in rows}


def main(library, built):
    tap = Tap()
    source, manual = in_source(), text("lib/man/glake.7")
    told = dict(re.findall(r"^\.It Li (\w+) Pq ((?:\w+ , )*\w+)$", manual.split(".Sh PROBES")[1], re.M))
    tap.ok(len(source) >= 10, f"{len(source)} probes in the source")
    tap.none(sorted(set(source) ^ set(told)), "the manual has all of them, and no more")
    tap.none([name for name in told if len(told[name].split(" , ")) != source.get(name)],
             "with their arguments")
    if built != "yes":
        tap.skip("those of the library", "it was built without sys/sdt.h")
        tap.done()
    found = in_library(library)
    tap.none(sorted({name for name, _, _ in found} ^ set(source)), "the library has the same")
    tap.none([row for row in found if row[1] != source.get(row[0])], "with as many arguments")
    hits = hit_path(library)
    tap.ok(len(hits) == 2, f"{hits}: where hits are served")
    tap.none([row for row in found for low, high in hits.values() if low <= row[2] < high],
             "no probe lies there")
    tap.done()


main(*sys.argv[1:])
