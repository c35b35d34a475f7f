# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The libraries of this package: where they lie, whether they are of its version, and how they are called.
A wheel has them in a folder of the package; else they lie where they were installed.

The plug-in is of the package's own version, or it is refused. The library below it may be newer,
since it keeps what it promised to older programs, and is never older. A process that has a
library already, as under the preload, keeps that one: a second would know nothing of the memory
of the first.

All other files call the library by call() and fetch(), which raise what it says. It is loaded and its
context opened when the first of them is.
"""

import ctypes
import operator
import os
import re
import sys
import warnings

from .installed import LIBDIR, VERSION
from .records import Error

HERE = os.path.dirname(os.path.realpath(__file__))
BESIDE = os.path.join(HERE, "lib")  # of a wheel
_MODULE = os.path.join(HERE, "__init__.py")
_PLUGIN, _LIBRARY, _PRELOAD = "libglake-torch.so.0", "libglake.so.0", "libglake-preload.so"
_NO_LOAD = 4  # RTLD_NOLOAD

_lib = None
plugged = False  # whether glake is PyTorch's allocator
watch = None  # tells the class that is that allocator whether the plug-in's history wants to be told


class GlakeError(RuntimeError):
    """What went wrong, and what would be right."""


GlakeError.__module__ = "glake"


class _Info(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def _places():
    """Where the plug-in is looked for, in this order."""
    own = os.environ.get("GLAKE_LIBRARY_PATH")
    for folder in own.split(":") if own else ():
        for below in ("", "front", "lib/front"):
            yield os.path.join(folder, below, _PLUGIN)
    if not own:
        for folder in (BESIDE, os.path.dirname(HERE), os.path.join(HERE, "../../../build/lib/front"),
                       LIBDIR):
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


def _below(folder):
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


def _check_below(lib):
    """Refuses a library that is older than what is going to use it; warns of a newer one."""
    has = _say(lib, "glake_version_string")
    if VERSION.startswith("@") or has == VERSION:  # of a source tree, whose parts are of a piece
        return
    text = (f"glake {VERSION} ({_MODULE}) and the library below it, {has} "
            f"({file_of(lib, 'glake_version_string')}), are of two versions")
    if _order(has) < _order(VERSION):
        raise GlakeError(text + ": install both of one")
    warnings.warn(text, stacklevel=4)


def _find():
    """The plug-in, with `path`, and its library as `below`."""
    tried = list(_places())
    path = next((p for p in tried if os.path.exists(p) or p == _PLUGIN), None)
    if not path:
        raise GlakeError(f"there is no {_PLUGIN} in GLAKE_LIBRARY_PATH: {', '.join(tried)}")
    try:
        below = _below(os.path.dirname(path))
        if below:
            _check_below(below)
        lib = ctypes.CDLL(os.path.realpath(path) if "/" in path else path)
    except OSError as error:
        raise GlakeError(f"{path} cannot be loaded: {error}. GLAKE_LIBRARY_PATH may name the "
                         f"folder that has it; looked for {', '.join(tried)}") from None
    lib.path = file_of(lib, "glake_torch_context")
    has = _say(lib, "glake_torch_version")
    if has != VERSION and not VERSION.startswith("@"):
        raise GlakeError(f"glake {VERSION} ({_MODULE}) and its plug-in, {has or '0.1'} ({lib.path}), "
                         "are of two versions: install both of one")
    lib.below = below
    if not below:
        lib.below = ctypes.CDLL(_LIBRARY, mode=_NO_LOAD)
        _check_below(lib.below)
    return lib


def load():
    """The plug-in, once."""
    global _lib
    if _lib:
        return _lib
    lib = _find()
    pointer, size, number, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
    for name, result, *arguments in (
            ("glake_torch_context", pointer), ("glake_torch_why", text),
            ("glake_torch_try_alloc", pointer, size, number, pointer),
            ("glake_torch_give_back", None, pointer), ("glake_torch_history", number, size),
            ("glake_torch_history_get", size, number, pointer, size),
            ("glake_error_class_name", text, number)):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    _lib = lib
    return lib


def context():
    """The library and the context of this process, opened if it was not."""
    lib = load()
    opened = lib.glake_torch_context()
    if not opened:
        raise GlakeError("glake could not be opened: " + lib.glake_torch_why().decode())
    return lib, ctypes.c_void_p(opened)


def check(name, answer):
    """The answer of a function; raises what the library says of one that failed."""
    if answer < 0:
        error = last_error()
        raise GlakeError(f"{name}: {error['text'] or os.strerror(-answer)} ({error['class']})")
    return answer


def call(name, *arguments):
    """What a function of the library answers, with the context before its arguments."""
    lib, opened = context()
    return check(name, getattr(lib, name)(opened, *arguments))


def fetch(function, record, *arguments):
    """The same of one that fills a record, which comes last."""
    call(function, *arguments, ctypes.byref(record))
    return record


def unused():
    """Whether PyTorch has not begun to use its GPUs: asking for figures would open them."""
    return plugged and not load().glake_torch_opened()


def last_error():
    """The record of the last call of this thread that failed."""
    lib, record = load(), Error()
    lib.glake_last_error(ctypes.byref(record))
    return {"err": record.err, "class": lib.glake_error_class_name(record.error_class).decode(),
            "native": record.native, "call": record.call.decode(),
            "text": record.text.decode(errors="replace")}


def number(what, value, right="a number that is not below 0, of 64 bits", bits=64):
    """One that counts something; anything else is refused, also what Python or ctypes would take for one."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) >> bits:
        raise GlakeError(f"{what}: {value!r}; right is {right} (INVAL)")
    return operator.index(value)


def index(device):
    """A device as PyTorch takes it: a number, 'cuda:1', a torch.device, None or 'cuda' for the current."""
    kind, found = getattr(device, "type", "cuda"), device
    if isinstance(device, str):
        kind, colon, found = device.partition(":")
        found = int(found) if found.isascii() and found.isdigit() else found if colon else None
    elif device is not None:
        found = getattr(device, "index", getattr(device, "id", device))  # of PyTorch, of CuPy
    if kind != "cuda" or found is not None:
        right = "a number, 'cuda:1', a torch.device that is a GPU, or None for the current one"
        return number("device", found if kind == "cuda" else device, right, 31)
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        return sys.modules["torch"].cuda.current_device()
    return 0


def info():
    """The version, what was loaded from where, and the configuration file that is read."""
    lib = load()
    library = file_of(lib.below, "glake_version_string")
    folders = os.path.dirname(lib.path), os.path.dirname(library)
    preload = (os.path.join(folder, _PRELOAD) for folder in folders)
    return {
        "version": _say(lib, "glake_torch_version"), "module": _MODULE,
        "library_version": _say(lib.below, "glake_version_string"), "library": library,
        "plugin": lib.path, "preload": next(filter(os.path.exists, preload), None),
        "configuration": _say(lib.below, "glake_conf_path")}


def tool():
    """glakectl or glaked, as this was called, where they came with a wheel."""
    name = "glaked" if os.path.basename(sys.argv[0]) == "glaked" else "glakectl"
    path = os.path.join(BESIDE, name)
    # what it has of Python is for this one, whether or not its environment was entered
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}")
