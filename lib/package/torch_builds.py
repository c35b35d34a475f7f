# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What stands in the place of PyTorch's allocator, compiled for builds of PyTorch that are not installed.

Of a wheel on PyPI nothing is fetched but its headers and what names the build, by ranges; a compiler and
the headers of CUDA's runtime are wanted, and no library of PyTorch: what the object needs of those it
finds in the process that loads it.
"""

import io
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request
import zipfile

INDEX = "https://pypi.org/pypi/torch/json"
FILES = "https://pypi.org/simple/torch/"  # what a mirror's addresses are relative to
WHEEL = re.compile(r"torch-.*-cp31[12]-cp31[12]-manylinux.*x86_64\.whl")
WANTED = re.compile(r"torch/include/(c10/|torch/headeronly/|torch/csrc/cuda/|torch/csrc/Export\.h"
                    r"|torch/csrc/api/include/torch/version\.h)|torch/version\.py"
                    r"|torch/share/cmake/Torch/TorchConfig\.cmake")
NEEDED = ("libc10.so", "libc10_cuda.so", "libtorch_cuda.so")
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
    """The wheel of each version from 2.6 on, as (url, size)."""
    with urllib.request.urlopen(INDEX, timeout=60) as answer:
        releases = json.load(answer)["releases"]
    found = {}
    for version, files in releases.items():
        numbers = [int(part) for part in version.split(".") if part.isdigit()]
        wheel = next((file for file in files if WHEEL.fullmatch(file["filename"])), None)
        if wheel and len(numbers) == 3 and numbers >= [2, 6, 0]:
            found[version] = urllib.parse.urljoin(FILES, wheel["url"]), wheel["size"]
    return dict(sorted(found.items(), key=lambda row: [int(n) for n in row[0].split(".")]))


class Build:
    """One wheel's headers, in a folder that is filled if it was not."""

    def __init__(self, version, wheel, cache):
        self.folder = os.path.join(cache, version)
        done = os.path.join(self.folder, "whole")
        if not os.path.exists(done):
            with zipfile.ZipFile(io.BufferedReader(Remote(*wheel), BLOCK)) as archive:
                for name in filter(WANTED.match, archive.namelist()):
                    archive.extract(name, self.folder)
            open(done, "w", encoding="utf-8").close()

    def text(self, name):
        with open(os.path.join(self.folder, "torch", name), encoding="utf-8") as file:
            return file.read()

    def name(self, stem, version):
        """As glake/compiler.py looks for it."""
        about = dict(re.findall(r"^(\w+)(?:: [^=]*)? = '(.*)'$", self.text("version.py"), re.M))
        return (f"glake-{stem}-{version}-torch-{about['__version__']}-{about['git_version'][:12]}-"
                f"{self.abi()}-{os.uname().machine}.so")

    def abi(self):
        said = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)",
                         self.text("share/cmake/Torch/TorchConfig.cmake"))
        return int(said[1]) if said else 1  # later ones have no other

    def compile(self, source, *arguments):
        """None, or the lines of the compiler that have an error."""
        include = os.path.join(self.folder, "torch/include")
        done = subprocess.run(
            [*os.environ.get("CXX", "c++").split(), "-std=c++20", "-O2", "-w", "-fPIC", "-fno-plt",
             f"-D_GLIBCXX_USE_CXX11_ABI={self.abi()}", f"-I{include}",
             f"-I{include}/torch/csrc/api/include", str(source), *map(str, arguments)],
            stderr=subprocess.PIPE, text=True, check=False)
        if not done.returncode:
            return None
        rows = done.stderr.splitlines()
        return [row for row in rows if "error" in row] or rows


def objects(source, includes, libraries, folder, version, cache, env):
    """An object for each wheel of PyPI into a folder; the libraries are ours."""
    for release, wheel in wheels().items():
        build = Build(release, wheel, cache)
        made = os.path.join(folder, build.name("allocator", version))
        wrong = build.compile(source, "-shared", *(f"-I{path}" for path in includes), "-o", made,
                              *libraries)
        if wrong:
            raise RuntimeError(f"{source} for PyTorch {release}: {wrong[0]}")
        needed = [word for name in NEEDED for word in ("--add-needed", name)]
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", *needed, made], check=True, env=env)
        print(f"wheel: {os.path.basename(made)}", flush=True)
