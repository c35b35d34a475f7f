# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Names that belong to one room. liburcu is known to base/rcu alone and stdatomic to
base/atomic.h, so that each can be read, modelled and replaced in one place; libcuda is known
to the driver, to one benchmark, which keeps a GPU busy, and to the list of what is there. A library aborts, prints, reads the environment and takes from malloc nowhere.
"""

import re

from tap import Tap
from tree import files, text

PRINTS = r"\b(?:printf|vprintf|puts|putchar|perror)\s*\(|\bstd(?:out|err)\b"
# what, pattern, where it is right (beginnings of the path)
RULES = [
    ("liburcu", r"#\s*include\s*<urcu|\burcu_\w+|\bcds_\w+", ("lib/base/rcu.",)),
    (
        "C atomics",
        r"stdatomic\.h|\b_Atomic\b|\batomic_\w+\s*\(|\bmemory_order_\w+|\b__(?:atomic|sync)_\w+",
        ("lib/base/atomic.h",),
    ),
    ("standalone fences", r"\b(?:atomic|glk)_\w*fence\w*|\bvolatile\b", ()),
    (
        "libcuda",
        r'"libcuda|\bcu[A-Z][a-z]\w*',
        ("lib/driver/", "lib/soft/", "lib/front/", "lib/tool/bench", "lib/tool/feature."),
    ),
    ("abort and exit", r"\b(?:abort|_?exit|raise|longjmp)\s*\(", ("lib/tool/", "lib/driver/probe_main.c")),
    ("printing", PRINTS, ("lib/tool/", "lib/man/", "lib/share/broker_main.c", "lib/kv/engine_main.c")),
    (
        "malloc",
        r"\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup|asprintf)\s*\(",
        ("lib/tool/", "lib/kv/engine_main.c"),
    ),
    ("an unsafe environment", r"\bgetenv\s*\(", ("lib/tool/",)),
]
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|/\*.*?\*/', re.S)


def bare(code, strings):
    """Without comments, and without the insides of strings unless asked; lines are kept."""

    def keep(match):
        if match[1]:
            return match[1] if strings else '""'
        return "\n" * match[0].count("\n")

    return COMMENT.sub(keep, code)


def findings(rule, sources):
    _, pattern, right = rule
    found = []
    for name, code in sorted(sources.items()):
        if right and name.startswith(right):
            continue
        code = bare(code, strings=rule[0] == "libcuda")
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: {match[0]}")
    return found


PLANTED = {
    "liburcu": "#include <urcu-bp.h>",
    "C atomics": "#include <stdatomic.h>",
    "standalone fences": "static volatile int x;",
    "libcuda": 'glk_error_native(-EIO, 1, "cuMemMap", 1, "");',
    "abort and exit": "exit(1);",
    "printing": 'fprintf(stderr, "no");',
    "malloc": "p = malloc(8);",
    "an unsafe environment": 'getenv("GLAKE_LOG_LEVEL");',
}


def main():
    tap = Tap()
    sources = {
        name: text(name)
        for name in files()
        if name.endswith((".c", ".h")) and name.startswith(("lib/", "numa/", "uvm_bridge/"))
    }
    for rule in RULES:
        what, _, right = rule
        tap.none(findings(rule, sources), f"{what}: only in {' '.join(right) or 'no file'}")
        tap.ok(findings(rule, {"lib/map/x.c": PLANTED[what]}), f"{what}: found when planted")
        tap.none(
            findings(rule, {"lib/map/x.c": f"/* {PLANTED[what]} */"}), f"{what}: not in comments"
        )
    tap.done()


main()
