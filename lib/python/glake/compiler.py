# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What only code made with PyTorch's headers can do is compiled for the PyTorch that is installed,
once, and kept in the user's cache; or it lies beside the libraries already. It takes a compiler,
$CXX or c++.
"""

import ctypes
import os
import subprocess

from . import library
from .installed import DATADIR, VERSION


def _source(name):
    return next(path for path in (os.path.join(folder, name) for folder in (
        library.BESIDE, os.path.dirname(library.HERE), os.path.join(library.HERE, "../../front"),
        DATADIR)) if os.path.exists(path))


def _make(torch, source, links, target):
    home, made = os.path.dirname(torch.__file__), f"{target}.{os.getpid()}"
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    subprocess.run(
        [*os.environ.get("CXX", "c++").split(), "-std=c++17", "-O1", "-w", "-shared", "-fPIC",
         f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{home}/include",
         source, "-o", made, f"-L{home}/lib", *links], capture_output=True,
        timeout=300, check=True)
    os.replace(made, target)


def load(torch, stem, *links):
    """What torch_STEM.cc makes. OSError, StopIteration or SubprocessError: there is none."""
    name = f"glake-{stem}-{VERSION}-{torch.__version__}-{os.uname().machine}.so"
    name = name.replace("@", "")  # of a source tree
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(os.path.dirname(library.load().path), name)
    if not os.path.exists(path):
        path, source = os.path.join(cache, "glake", name), _source(f"torch_{stem}.cc")
        if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
            _make(torch, source, links, path)
        about = os.stat(path)
        if about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise OSError(f"{path} may be of somebody else")
    return ctypes.CDLL(path)
