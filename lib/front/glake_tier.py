# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Contents beyond the GPU. glake.py has these names as its own and loads this file with the first:

    glake.spill(tensor)       its contents go to memory of the host, and its memory serves others
    glake.fetch(tensor)       they are back, for work on the current stream from here on
    glake.suspend(device)     all that can go does, and the memory back to the driver
    glake.resume(device)      all of that is back where it was

A tensor is one of PyTorch, whose whole storage moves with all views of it, an array of CuPy, or the
address of a block. What is away must not be used before it was fetched. Streams are those of
PyTorch or CuPy, or addresses; None is PyTorch's current one, or the legacy default stream.
"""

import ctypes
import sys

import glake


class _Suspended(glake._Sized):
    _fields_ = [("sz", ctypes.c_size_t), *glake._many(
        ctypes.c_uint64, "moved moved_blocks stayed stayed_blocks released")]


def _address(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().data_ptr()
    if hasattr(tensor, "data") and hasattr(tensor.data, "mem"):
        return tensor.data.mem.ptr
    if isinstance(tensor, int):
        return tensor
    raise glake.GlakeError(f"{type(tensor).__name__} is no tensor, no array and no address")


def _stream(stream, tensor):
    torch = sys.modules.get("torch")
    if stream is None and torch and torch.cuda.is_initialized():
        device = getattr(tensor, "device", None)
        stream = torch.cuda.current_stream(device if isinstance(device, torch.device) else None)
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    return ctypes.c_void_p(stream or 0)


def _move(function, tensor, stream):
    glake._call(function, ctypes.c_void_p(_address(tensor)), _stream(stream, tensor))


def spill(tensor, stream=None):
    """Sends the contents of a tensor to the host, as they are behind all work queued so far."""
    _move("glake_spill", tensor, stream)


def fetch(tensor, stream=None):
    """Has a tensor back at its addresses, for work queued on the stream from here on."""
    _move("glake_fetch", tensor, stream)


def _all(function, device):
    if device is None:
        return {i: _all(function, i) for i in range(glake._call("glake_device_count"))}
    done = glake._fetch(function, _Suspended(), glake._index(device))
    return {name: getattr(done, name) for name, _ in _Suspended._fields_[1:]}


def _each(function, device):
    """A GPU that the library does not use yet has nothing to give."""
    return {} if glake._unused() else _all(function, device)


def suspend(device=None):
    """Gives the memory of a GPU back to the driver, or of all; what went, stayed, and was released."""
    return _each("glake_suspend", device)


def resume(device=None):
    """Ends that: everything is at its addresses when it returns."""
    return _each("glake_resume", device)
