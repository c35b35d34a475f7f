# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Where the libraries lie that belong to the module beside this file, and whether they are of its
version. A wheel has them in a folder of the package; else they lie where they were installed.

The plug-in is of the module's own version, or it is refused. The library below it may be newer,
since it keeps what it promised to older programs, and is never older. A process that has a
library already, as under the preload, keeps that one: a second would know nothing of the memory
of the first.
"""

import ctypes
import os
import re
import warnings

HERE = os.path.dirname(os.path.realpath(__file__))
BESIDE = os.path.join(HERE, "lib")  # of a wheel
_PLUGIN, _LIBRARY, _PRELOAD = "libglake-torch.so.0", "libglake.so.0", "libglake-preload.so"
_NO_LOAD = 4  # RTLD_NOLOAD


class GlakeError(RuntimeError):
    """What went wrong, and what would be right."""


GlakeError.__module__ = "glake"


class _Info(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def places(libdir):
    """Where the plug-in is looked for, in this order."""
    own = os.environ.get("GLAKE_LIBRARY_PATH")
    for folder in own.split(":") if own else ():
        for below in ("", "front", "lib/front"):
            yield os.path.join(folder, below, _PLUGIN)
    if not own:
        for folder in (BESIDE, os.path.dirname(HERE), os.path.join(HERE, "../../../build/lib/front"),
                       libdir):
            yield os.path.join(folder, _PLUGIN)
        yield _PLUGIN


def file_of(lib, name):
    """The file that a loaded library came from."""
    info = _Info()
    address = ctypes.cast(getattr(lib, name), ctypes.c_void_p)
    try:
        found = ctypes.CDLL(None).dladdr(address, ctypes.byref(info)) and info.path
    except AttributeError:  # an older C library has it in another one
        found = None
    return os.path.realpath(found.decode()) if found else lib._name


def _say(lib, name):
    """What a function without arguments says; None if there is none."""
    function = getattr(lib, name, None)
    if function:
        function.restype = ctypes.c_char_p
    return function and function().decode()


def _order(version):
    return [int(part) for part in re.findall(r"\d+", version or "0")]


def _library(folder):
    """The library that the plug-in of a folder is going to use; None where the loader decides."""
    try:
        return ctypes.CDLL(_LIBRARY, mode=_NO_LOAD)
    except OSError:
        pass
    for below in ("", ".."):
        path = os.path.join(folder, below, _LIBRARY)
        if folder and os.path.exists(path):
            return ctypes.CDLL(os.path.realpath(path))
    return None


def _check_library(lib, version, whose):
    """Refuses a library that is older than what is going to use it; warns of a newer one."""
    has = _say(lib, "glake_version_string")
    if version.startswith("@") or has == version:  # of a source tree, whose parts are of a piece
        return
    text = (f"glake {version} ({whose}) and the library below it, {has} "
            f"({file_of(lib, 'glake_version_string')}), are of two versions")
    if _order(has) < _order(version):
        raise GlakeError(text + ": install both of one")
    warnings.warn(text, stacklevel=4)


def load(libdir, version, module):
    """The plug-in, with `path`, and its library as `below`."""
    tried = list(places(libdir))
    path = next((p for p in tried if os.path.exists(p) or p == _PLUGIN), None)
    if not path:
        raise GlakeError(f"there is no {_PLUGIN} in GLAKE_LIBRARY_PATH: {', '.join(tried)}")
    try:
        below = _library(os.path.dirname(path))
        if below:
            _check_library(below, version, module)
        lib = ctypes.CDLL(os.path.realpath(path) if "/" in path else path)
    except OSError as error:
        raise GlakeError(f"{path} cannot be loaded: {error}. GLAKE_LIBRARY_PATH may name the "
                         f"folder that has it; looked for {', '.join(tried)}") from None
    lib.path = file_of(lib, "glake_torch_context")
    has = _say(lib, "glake_torch_version")
    if has != version and not version.startswith("@"):
        raise GlakeError(f"glake {version} ({module}) and its plug-in, {has or '0.1'} ({lib.path}), "
                         "are of two versions: install both of one")
    lib.below = below
    if not below:
        lib.below = ctypes.CDLL(_LIBRARY, mode=_NO_LOAD)
        _check_library(lib.below, version, module)
    return lib


def info(lib, version, module):
    """What is loaded, and the configuration file that it reads."""
    library = file_of(lib.below, "glake_version_string")
    folders = os.path.dirname(lib.path), os.path.dirname(library)
    preload = (os.path.join(folder, _PRELOAD) for folder in folders)
    return {
        "version": _say(lib, "glake_torch_version"), "module": module,
        "library_version": _say(lib.below, "glake_version_string"), "library": library,
        "plugin": lib.path, "preload": next(filter(os.path.exists, preload), None),
        "configuration": _say(lib.below, "glake_conf_path")}


def tool():
    """glakectl, where it came with a wheel."""
    import sys
    path = os.path.join(BESIDE, "glakectl")
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"glakectl: {path}: {error.strerror}")
