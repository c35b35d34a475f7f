#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Compiles what stands in the place of PyTorch's allocator against the headers of many versions of PyTorch.

    torch_headers.py [--cache FOLDER] [--cuda FOLDER] [--include FOLDER] [VERSION...]

Without versions: all on PyPI from 2.6 on. It needs the network, a C++ compiler, and the headers of CUDA's
runtime and of a build of glake (--include, for version.h); it says TAP.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(TOP, "lib/package"))
sys.dont_write_bytecode = True  # in the tree

from torch_builds import Build, wheels  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/glake-headers"))
    parser.add_argument("--cuda", default="/usr/local/cuda/include")
    parser.add_argument("--include", default=os.path.join(TOP, "build/include"))
    parser.add_argument("versions", nargs="*")
    args = parser.parse_args()
    found = wheels()
    versions = args.versions or list(found)
    print(f"TAP version 13\n1..{len(versions)}")
    failed = 0
    for number, version in enumerate(versions, 1):
        if version not in found:
            print(f"ok {number} - PyTorch {version} # SKIP no wheel on PyPI")
            continue
        wrong = Build(version, found[version], args.cache).compile(
            f"{TOP}/lib/front/torch_allocator.cc", "-fsyntax-only", f"-I{args.cuda}",
            f"-I{args.include}", f"-I{TOP}/include")
        print(f"{'not ok' if wrong else 'ok'} {number} - PyTorch {version}", flush=True)
        failed += wrong is not None
        print(*(f"# {row}" for row in (wrong or [])[:12]), sep="\n", end="\n" if wrong else "",
              flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
