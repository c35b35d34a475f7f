# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every public header compiles alone, as C11 and as C++17, without a warning."""

import shutil
import sys
from pathlib import Path

from tap import Tap, run, skip_all
from tree import ROOT

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
COMPILERS = [
    ("gcc", "c", "c11"),
    ("clang", "c", "c11"),
    ("g++", "c++", "c++17"),
    ("clang++", "c++", "c++17"),
]


def main(built):
    found = [which for which in COMPILERS if shutil.which(which[0])]
    if not found:
        skip_all("neither gcc nor clang")
    tap = Tap()
    headers = sorted((ROOT / "include/glake").glob("*.h")) + [Path(built) / "glake/version.h"]
    for program, language, standard in found:
        for header in headers:
            code, said = run(
                *(program, "-x", language, f"-std={standard}", *STRICT),
                *("-I", ROOT / "include", "-I", built, "-"),
                input=f"#include <glake/{header.name}>\nextern int not_empty;\n",
            )
            tap.ok(code == 0, f"{program} {standard}: {header.name}", said)
    for program, _, standard in COMPILERS:
        if not shutil.which(program):
            tap.skip(f"{program} {standard}", "not installed")
    tap.done()


main(sys.argv[1])
