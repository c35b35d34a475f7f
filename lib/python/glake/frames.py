# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Which lines of Python asked for memory, in a snapshot. Used by the package:

    glake.use(events=100000, stacks=32)     the innermost 32 frames of each request
    glake.history(100000, stacks=32)        the same from here on
    glake.snapshot("job.pickle")            blocks and events have their frames
    glake.stacks()                          how many were taken, and how many were not
"""

import atexit
import ctypes
import errno
import os

import glake
from .records import _Stacks

_ALL = 64  # frames of stacks=True
_WHY = {errno.ENOENT: "they need Python 3.9 or later",
        errno.EOPNOTSUPP: "Python ends, or has other interpreters than its main one",
        errno.EBUSY: "another thread is at it"}
_state = {"at_end": False}


def _load():
    lib = glake._load()
    lib.glake_torch_stack_text.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)
    lib.glake_torch_stack_text.restype = ctypes.c_size_t
    lib.glake_torch_stacks_get.restype = None
    return lib


def _end():
    _load().glake_torch_stacks(0)


def begin(depth):
    """From now on stacks are taken, of so many frames; 0 ends that and forgets them."""
    depth = _ALL if depth is True else int(depth)
    if depth < 0:
        raise glake.GlakeError(f"stacks={depth}: a number of frames, 0 for none")
    if depth and not _state["at_end"]:
        atexit.register(_end)  # Python is whole then: nobody waits for a lock that is never given back
        _state["at_end"] = True
    answer = _load().glake_torch_stacks(min(depth, 1 << 16) or -1)
    if answer:
        why = _WHY.get(-answer) or os.strerror(-answer)
        raise glake.GlakeError(f"stacks cannot be taken: {why}")


def stacks():
    """Figures of the stacks that were taken since glake.history(): `without` counts requests of
    threads that have none, `dropped` those for which there was no room."""
    figures = _Stacks()
    _load().glake_torch_stacks_get(ctypes.byref(figures))
    return {name: getattr(figures, name) for name, _ in _Stacks._fields_}


def _read(number):
    text, size = _load().glake_torch_stack_text, 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        used = text(number, buffer, size)
        if used <= size:
            return buffer.raw[:used]
        size = used


class Frames(dict):
    """The frames of stacks by their numbers, innermost first, as PyTorch has them; each is read once,
    and those who ask for one have the same list."""

    def __missing__(self, number):
        rows = os.fsdecode(_read(number)).split("\0")[:-1] if number else []
        self[number] = [{"filename": file, "line": int(line), "name": name}
                        for line, name, file in zip(rows[::3], rows[1::3], rows[2::3])]
        return self[number]
