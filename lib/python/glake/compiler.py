# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What only code made with PyTorch's headers can do is compiled for the PyTorch that is installed,
once, and kept in the user's cache; or it lies beside the libraries already. It takes a compiler,
$CXX or c++, and the headers of CUDA's runtime, as PyTorch's own packages bring them.

An object belongs to exactly one build of PyTorch: its name has the whole version, the hash of the
sources and the ABI of C++. The nearest one would be a crash.
"""

import ctypes
import glob
import os
import subprocess
import tempfile

from . import library
from .installed import DATADIR, VERSION


class NotMade(Exception):
    """There is no such object, and none can be made; why."""


def _source(name):
    for folder in (library.BESIDE, os.path.dirname(library.HERE),
                   os.path.join(library.HERE, "../../front"), DATADIR):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise NotMade(f"{name} is not installed")


def _includes(torch, lib):
    """Folders of headers: PyTorch's, ours, CUDA's; those that are there."""
    home, beside = os.path.dirname(torch.__file__), os.path.dirname(lib.path)
    cuda = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [f"{home}/include", f"{home}/include/torch/csrc/api/include",
               *(os.path.join(folder, "include") for folder in (
                   library.BESIDE, f"{library.HERE}/../../..", f"{beside}/..", f"{beside}/../..",
                   f"{DATADIR}/../..")),
               *([f"{cuda}/include"] if cuda else []),
               *glob.glob(f"{os.path.dirname(home)}/nvidia/*/include"), "/usr/local/cuda/include"]
    return [f"-I{folder}" for folder in folders if os.path.isdir(folder)]


def _abi(torch):
    return int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))  # later ones have no other


def _make(torch, source, links, target):
    made, lib = None, library.load()
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        number, made = tempfile.mkstemp(prefix=f"{os.path.basename(target)}.",
                                        dir=os.path.dirname(target))
        os.close(number)
        subprocess.run(
            [*os.environ.get("CXX", "c++").split(), "-std=c++20", "-O2", "-w", "-shared", "-fPIC",
             "-fno-plt", f"-D_GLIBCXX_USE_CXX11_ABI={_abi(torch)}",
             *_includes(torch, lib), source, "-o", made,
             f"-L{os.path.dirname(torch.__file__)}/lib", *links, lib.path,
             library.file_of(lib.below, "glake_version_string")],
            capture_output=True, timeout=600, check=True)
        os.chmod(made, 0o755)  # whatever the umask: see load()
        os.replace(made, target)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").splitlines()
        raise NotMade(f"{os.path.basename(source)} does not compile: " + next(
            (row for row in said if "error" in row), said[0] if said else "")) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMade(f"{os.path.basename(source)} is not compiled: {error}") from None
    finally:
        if made and os.path.exists(made):
            os.unlink(made)


def load(torch, stem, *links):
    """What torch_STEM.cc makes, or NotMade."""
    build = (getattr(torch.version, "git_version", None) or "")[:12]
    name = (f"glake-{stem}-{VERSION}-torch-{torch.__version__}-{build}-"
            f"{_abi(torch)}-{os.uname().machine}.so")
    name = name.replace("@", "")  # of a source tree
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(os.path.dirname(library.load().path), name)
    if not os.path.exists(path) and not os.path.isabs(cache):
        raise NotMade("there is no home folder to keep it in")
    try:
        if not os.path.exists(path):
            path, source = os.path.join(cache, "glake", name), _source(f"torch_{stem}.cc")
            newest = max(map(os.path.getmtime, [source, *glob.glob(
                os.path.join(os.path.dirname(source), "torch_*.hpp"))]))
            if not os.path.exists(path) or os.path.getmtime(path) < newest:
                _make(torch, source, links, path)
            for about in (os.stat(os.path.dirname(path)), os.lstat(path)):
                if about.st_uid != os.getuid() or about.st_mode & 0o022:
                    raise NotMade(f"{path} may be of somebody else")
        return ctypes.PyDLL(path) if stem == "allocator" else ctypes.CDLL(path)
    except OSError as error:
        raise NotMade(f"{path}: {error}") from None
