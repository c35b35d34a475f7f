# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What libglake.so exports, what glake.map lists and what the headers declare are one and the
same; every function has a comment and a place in the manual page. umf.h is of another library.
"""

import re
import sys

from tap import Tap, run, skip_all
from tree import ROOT, text

DECLARED = re.compile(r"^GLAKE_EXPORT\s[^;]*?\b(glake_\w+)\s*\(", re.M)


def headers():
    return {path.name: text(f"include/glake/{path.name}")
            for path in sorted((ROOT / "include/glake").glob("*.h"))}


def undocumented(name, code):
    """Declarations with no comment right above them or above their group."""
    found = []
    for match in DECLARED.finditer(code):
        above = code[: match.start()].rstrip(" \t")
        group = above.rsplit("\n\n", 1)[-1].strip()
        if not group.endswith("*/") and not re.search(r"\*/\s*GLAKE_EXPORT", group):
            found.append(f"{name}: {match[1]}")
    return found


def exported(library):
    code, said = run("nm", "-D", "--defined-only", library)
    if code:
        skip_all(f"nm does not read {library}: {said.strip()}")
    rows = [line.split() for line in said.splitlines()]
    return {row[-1].split("@")[0] for row in rows if row[-2] != "A"}


def main(library):
    shown = exported(library)
    listed = set(re.findall(r"^\s+(\w+);", text("lib/glake.map"), re.M))
    declared = {name for header, code in headers().items() if header != "umf.h"
                for name in DECLARED.findall(code)}
    beside = set(re.findall(r"^\s+(\w+);", text("lib/front/umf.map"), re.M))
    tap = Tap()
    tap.none(sorted(shown - listed), "nothing is exported that glake.map does not list")
    tap.none(sorted(listed - shown), "all that glake.map lists is exported")
    tap.none(sorted(declared - listed), "all that headers declare is in glake.map")
    tap.none(sorted(listed - declared), "all in glake.map is declared in a header")
    tap.ok(beside == set(DECLARED.findall(text("include/glake/umf.h"))),
           "and all in umf.map in umf.h, and no other")
    bare = [row for name, code in headers().items() for row in undocumented(name, code)]
    tap.none(bare, f"{len(declared)} functions have a comment")
    page = text("lib/man/glake.3")
    absent = [name for name in sorted(declared) if not re.search(rf"\b{name}\b", page)]
    tap.none(absent, "and a place in glake(3)")
    planted = "/* A. */\nGLAKE_EXPORT int glake_a(void);\nGLAKE_EXPORT int glake_b(void);\n"
    tap.none(undocumented("x.h", planted), "a group shares a comment")
    planted += "\nGLAKE_EXPORT int glake_c(void);\n"
    tap.ok(undocumented("x.h", planted) == ["x.h: glake_c"], "a missing comment is found")
    tap.done()


main(sys.argv[1])
