# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tensors that leave the GPU together. The package has these names as its own and loads this file with the
first:

    with glake.tag("weights"):     what this thread makes here, of PyTorch or CuPy, is of the tag
        model = Model().cuda()
    glake.suspend(tag="weights")   all of it goes to the host and its memory back to the driver, small
                                   tensors too; everything else stays in use
    glake.suspend(tag="kv_cache", keep=False)  likewise, and what was in it is lost
    glake.resume(tag="weights")    it is back at its addresses
    glake.tags()                   those there are, with what they hold on each GPU
    glake.pin(tensor)              it stays where it is, for memory that others have registered, until
                                   glake.unpin(tensor) was called as often

A tag is that of a thread, which threads of its own do not have: not autograd's, in which gradients are
made. Under glake.pool() segments have the tag of the tensor that they were had for, so a tag wants a
pool of its own: with glake.tag("weights"), torch.cuda.use_mem_pool(pool).
"""

import contextlib
import ctypes
import threading

import glake
from . import tier

_lock, _numbers = threading.Lock(), {}


class _Tag(glake._Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("name", ctypes.c_char * 64), *glake._many(
        ctypes.c_uint64, "live blocks held away"), ("suspended", ctypes.c_int)]


def _known(name):
    """That of a tag that was opened."""
    with _lock:
        if name not in _numbers:
            raise glake.GlakeError(f"there is no tag {name!r}: with glake.tag() makes one")
        return _numbers[name]


def _number(name):
    """A tag is opened once and stays open, 64 of them at most."""
    if not isinstance(name, str) or "\0" in name:
        raise glake.GlakeError(f"{name!r} is no name of a tag")
    with _lock:
        if name not in _numbers:
            _numbers[name] = glake._fetch("glake_tag_open", ctypes.c_uint32(),
                                          str(name).encode()).value
        return _numbers[name]


@contextlib.contextmanager
def tag(name):
    """What this thread asks for inside is of the tag of that name; None: of none."""
    number, was = 0 if name is None else _number(name), ctypes.c_uint32()
    glake._call("glake_tag_set", number, ctypes.byref(was))
    try:
        yield number
    finally:
        glake._call("glake_tag_set", was.value, None)


def tags():
    """By name, and by GPU: bytes live and held, blocks, how many are away, and whether suspended."""
    def about(device, number):
        row = glake._fetch("glake_tag_get", _Tag(), device, number)
        return {field: getattr(row, field) for field in ("live", "blocks", "held", "away")} | {
            "suspended": bool(row.suspended)}

    with _lock:
        numbers = dict(_numbers)
    devices = range(glake._call("glake_device_count")) if numbers else ()
    return {name: {i: about(i, number) for i in devices} for name, number in numbers.items()}


def pin(tensor):
    """Keeps a tensor where it is once more."""
    glake._call("glake_pin", ctypes.c_void_p(tier._address(tensor)))


def unpin(tensor):
    """Once less."""
    glake._call("glake_unpin", ctypes.c_void_p(tier._address(tensor)))
