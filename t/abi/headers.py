# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Every public header compiles alone, without a warning: those for C as C11 and as C++17, those for
C++ as C++17, or as what the headers want that they stand on. Those have to be here for it:

    headers.py BUILT [FOLDER...]
"""

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

# What a header for C++ needs to be found, and the least standard of that; a compiler may be too old
# for it, which it says of that header alone.
NEEDS = {"rmm.hpp": ("rmm/error.hpp", "c++20"), "tensorrt.hpp": ("NvInferRuntime.h", "c++17")}


def compiles(program, standard, folders, name):
    """Whether a header of somebody else does."""
    code, _ = run(program, "-x", "c++", f"-std={standard}", "-w", "-fsyntax-only", *folders, "-",
                  input=f"#include <{name}>\n")
    return code == 0


def for_cpp(tap, program, built, elsewhere):
    """The headers for C++ with one compiler."""
    folders = [word for folder in elsewhere for word in ("-isystem", folder)]
    for header in sorted((ROOT / "include/glake").glob("*.hpp")):
        below, standard = NEEDS.get(header.name, (None, "c++17"))
        what = f"{program} {standard}: {header.name}"
        if below and not compiles(program, standard, folders, below):
            tap.skip(what, f"{below} is not here, or not for this compiler")
            continue
        code, said = run(
            *(program, "-x", "c++", f"-std={standard}", *STRICT, "-Wshadow", "-Wconversion"),
            *(*folders, "-I", ROOT / "include", "-I", built, "-"),
            input=f"#include <glake/{header.name}>\nextern int not_empty;\n",
        )
        tap.ok(code == 0, what, said)


def main(built, *elsewhere):
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
        if language == "c++":
            for_cpp(tap, program, built, elsewhere)
    for program, _, standard in COMPILERS:
        if not shutil.which(program):
            tap.skip(f"{program} {standard}", "not installed")
    tap.done()


main(*sys.argv[1:])
