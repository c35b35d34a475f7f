# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A function of the program that makes room when a GPU is short of memory. The package has it as its own and
loads this file with it:

    def forget(asked):
        cache.clear()

    glake.on_shortage(forget)
    glake.on_shortage(None)     nobody is asked any more
"""

import ctypes
import sys
import threading
import typing

from . import library
from .library import GlakeError


class Shortage(typing.NamedTuple):
    """What a request has not got."""

    device: int
    want: int  # bytes, a page at the least
    stream: int  # its address; 0 for the default stream, or another process
    deadline: typing.Optional[float]  # of time.monotonic(), after which an answer is of no use


class _Asked(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("want", ctypes.c_uint64), ("stream", ctypes.c_uint64),
                ("deadline_ns", ctypes.c_int64), ("device", ctypes.c_int)]


_lock = threading.Lock()
_function = None
_thread = None


def _run(asked):
    function = _function  # it may be none by the time it is called
    try:
        return int(function(asked) or 0) if function is not None else 0
    except BaseException:  # nobody is above it to have it
        try:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
        return 0


def _serve(lib):
    # these two keep the lock of the interpreter, without which nothing is begun
    held = ctypes.PyDLL(None, handle=lib._handle)
    begin, end = held.glake_torch_shortage_begin, held.glake_torch_shortage_end
    begin.argtypes, end.argtypes, end.restype = [ctypes.c_uint64], [ctypes.c_size_t], None
    lib.glake_torch_shortage_next.restype = None
    asked = _Asked()
    while True:
        lib.glake_torch_shortage_next(ctypes.byref(asked))
        if begin(asked.number):
            until = asked.deadline_ns / 1e9 if asked.deadline_ns else None
            end(max(0, _run(Shortage(asked.device, asked.want, asked.stream, until))))


def on_shortage(function):
    """
    Has a request that finds no room call a function with a Shortage, after all that glake can give at once and
    before cold blocks move or it is refused; then it begins anew. What the function frees is for itself to
    know; it may answer the bytes. None: none. The one before comes back.

    It runs in a thread of its own, for one request at a time, at most once for each, and may free and ask for
    memory, for which it is not called again. A request does not call it where its thread has the lock of the
    interpreter, or where that cannot be had within 100 ms, nor while its stream captures a graph; and goes on without
    an answer after 10 s. What it raises is printed.
    """
    global _function, _thread
    if function is not None and not callable(function):
        raise GlakeError(f"on_shortage: {function!r} cannot be called")
    if threading.current_thread() is _thread:
        raise GlakeError("on_shortage: that function cannot set another one (BUSY)")
    lib, _ = library.context()
    with _lock:
        library.check("on_shortage", lib.glake_torch_shortage_set(int(function is not None)))
        if function is not None and not _thread:
            thread = threading.Thread(target=_serve, args=(lib,), name="glake-shortage", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                lib.glake_torch_shortage_set(0)
                raise GlakeError(f"on_shortage: {error} (NOMEM_HOST)") from None
            _thread = thread
        before, _function = _function, function
    return before
