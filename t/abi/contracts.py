# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Every public function says which thread may call it, whether it blocks and what it asks of the
driver: in the comment right above it, or above the group it stands in without an empty line.
"""

import re

from tap import Tap
from tree import ROOT, text

DECLARED = re.compile(r"^GLAKE_EXPORT\s[^;]*?\b(glake_\w+)\s*\(", re.M)
SAID = ("Thread:", "Blocks:", "Driver calls:")
COMMENT = re.compile(r"/\*(?:(?!\*/).)*\*/", re.S)


def contract(above):
    """The last comment before a declaration, unless something else than its group is between."""
    comments = list(COMMENT.finditer(above))
    if not comments or re.search(r"\n[ \t]*\n", above[comments[-1].end() :]):
        return ""
    return re.sub(r"\s*\n \*\s*", " ", comments[-1][0])


def silent(name, code):
    """Declarations whose comment leaves one of them out."""
    found = []
    for match in DECLARED.finditer(code):
        comment = contract(code[: match.start()])
        found += [f"{name}: {match[1]}: no '{word}'" for word in SAID if word not in comment]
    return found


def main():
    tap = Tap()
    paths = sorted((ROOT / "include/glake").glob("*.h"))
    headers = {path.name: text(f"include/glake/{path.name}") for path in paths}
    count = sum(len(DECLARED.findall(code)) for code in headers.values())
    tap.ok(count > 40, f"{count} functions are declared")
    for name, code in headers.items():
        if DECLARED.search(code):
            tap.none(silent(name, code), f"{name}: thread, blocking and driver calls are said")
    good = "/* A. Thread: any. Blocks: no. Driver\n * calls: none. */\n"
    declared = "GLAKE_EXPORT int glake_a(\n\tint a);\nGLAKE_EXPORT int glake_b(void);\n"
    tap.none(silent("x.h", good + declared), "a group shares a comment")
    tap.ok(len(silent("x.h", good + "\n" + declared)) == 6, "one further up is not its comment")
    tap.ok(len(silent("x.h", good.replace("Blocks", "Waits") + declared)) == 2,
           "what is left out is found")
    tap.done()


main()
