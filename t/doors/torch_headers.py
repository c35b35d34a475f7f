#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Compiles what stands in the place of PyTorch's allocator against the headers of many versions of PyTorch.

    torch_headers.py [--cache FOLDER] [--cuda FOLDER] [--include FOLDER] [VERSION...]

Without versions: the last of each minor version on PyPI from 2.6 on. Of the wheels nothing is fetched but
the headers, by ranges. It needs the network, a C++ compiler, and the headers of CUDA's runtime and of a
build of glake (--include, for version.h); it says TAP.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "../..")
INDEX = "https://pypi.org/pypi/torch/json"
FILES = "https://pypi.org/simple/torch/"  # what a mirror's addresses are relative to
WHEEL = re.compile(r"torch-.*-cp31[12]-cp31[12]-manylinux.*x86_64\.whl")
HEADERS = re.compile(r"torch/include/(c10/|torch/headeronly/|torch/csrc/cuda/|torch/csrc/Export\.h"
                     r"|torch/csrc/api/include/torch/version\.h)")
BLOCK = 1 << 20


class Remote(io.RawIOBase):
    """A file of a server, read by blocks as they are asked for."""

    def __init__(self, url, size):
        self.url, self.size, self.at, self.blocks = url, size, 0, {}

    def block(self, number):
        if number not in self.blocks:
            first = number * BLOCK
            request = urllib.request.Request(self.url, headers={
                "Range": f"bytes={first}-{min(first + BLOCK, self.size) - 1}"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                self.blocks[number] = answer.read()
        return self.blocks[number]

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, room):
        number, offset = divmod(self.at, BLOCK)
        part = self.block(number)[offset:offset + len(room)] if self.at < self.size else b""
        room[:len(part)] = part
        self.at += len(part)
        return len(part)


def wheels():
    """The wheel of each version, as (url, size)."""
    with urllib.request.urlopen(INDEX, timeout=60) as answer:
        releases = json.load(answer)["releases"]
    return {version: next(((urllib.parse.urljoin(FILES, file["url"]), file["size"]) for file in files
                           if WHEEL.fullmatch(file["filename"])), None)
            for version, files in releases.items()}


def newest(versions):
    """The last of each minor version from 2.6 on."""
    last = {}
    for version in versions:
        numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
        if len(numbers) == 3 and numbers >= (2, 6):
            last[numbers[:2]] = max(last.get(numbers[:2], numbers), numbers)
    return [".".join(map(str, last[minor])) for minor in sorted(last)]


def headers(version, wheel, cache):
    folder = os.path.join(cache, version)
    if not os.path.exists(os.path.join(folder, "whole")):
        with zipfile.ZipFile(io.BufferedReader(Remote(*wheel), BLOCK)) as archive:
            for name in archive.namelist():
                if HEADERS.match(name) and name.endswith((".h", ".hpp")):
                    archive.extract(name, folder)
        open(os.path.join(folder, "whole"), "w", encoding="utf-8").close()
    return os.path.join(folder, "torch/include")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/glake-headers"))
    parser.add_argument("--cuda", default="/usr/local/cuda/include")
    parser.add_argument("--include", default=os.path.join(TOP, "build/include"))
    parser.add_argument("versions", nargs="*")
    args = parser.parse_args()
    found = wheels()
    versions = args.versions or newest(v for v, wheel in found.items() if wheel)
    print(f"TAP version 13\n1..{len(versions)}")
    failed = 0
    for number, version in enumerate(versions, 1):
        if not found.get(version):
            print(f"ok {number} - PyTorch {version} # SKIP no wheel on PyPI")
            continue
        include = headers(version, found[version], args.cache)
        done = subprocess.run(
            [*os.environ.get("CXX", "c++").split(), "-std=c++20", "-w", "-fsyntax-only",
             f"-I{include}", f"-I{include}/torch/csrc/api/include", f"-I{args.cuda}",
             f"-I{args.include}", f"-I{TOP}/include", f"{TOP}/lib/front/torch_allocator.cc"],
            stderr=subprocess.PIPE, text=True, check=False)
        print(f"{'not ok' if done.returncode else 'ok'} {number} - PyTorch {version}", flush=True)
        failed += done.returncode != 0
        if done.returncode:
            rows = [row for row in done.stderr.splitlines() if "error" in row]
            print(*(f"# {row}" for row in rows[:12]), sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
