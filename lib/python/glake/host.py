# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Pinned memory of the host. The package has these names as its own and loads this file with the first:

    glake.pinned_empty(shape, dtype)   a tensor of PyTorch on the CPU in pinned memory near a GPU,
                              of its own size in whole 64 bytes, where tensor.pin_memory() and
                              pin_memory=True take the next power of two
    glake.pinned_use(tensor, stream)   a stream copies from or to it: its memory serves nothing else
                              before that has finished, also when the tensor is gone
    glake.use_pinned()        PyTorch's own pinned memory is glake's from here on: pin_memory=True,
                              tensor.pin_memory(), DataLoader

PyTorch tells its own allocator of pinned memory what its non_blocking copies use, and since
glake.use_pinned() this one. It tells nobody of tensors of glake.pinned_empty(): what was queued on
the stream that is current when their storage goes is waited for, other streams are said by
glake.pinned_use().
"""

import ctypes
import math
import operator
import sys
import weakref

from . import compiler, library, pytorch
from .library import GlakeError
from .records import Sized, many

_kept = []  # what replaces PyTorch's allocator


def _shape(shape):
    if len(shape) == 1 and hasattr(shape[0], "__iter__"):
        shape = tuple(shape[0])
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError:
        sizes = (-1,)
    if any(n < 0 for n in sizes):
        raise GlakeError(f"{shape!r} is no shape")
    return sizes


def _current():
    """The current stream of PyTorch and its GPU, if PyTorch uses one."""
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_initialized():
        return None
    stream = torch.cuda.current_stream()
    return stream.device_index, stream.cuda_stream


def _give_back(address):
    """The storage has gone, maybe while Python ends."""
    try:
        lib, context = library.context()
        current = _current()
        if current:
            # one that captures a graph is refused: its block is kept by who keeps the graph
            lib.glake_host_use(context, ctypes.c_void_p(address), current[0],
                               ctypes.c_void_p(current[1]))
        lib.glake_host_free(context, ctypes.c_void_p(address))
    except (AttributeError, TypeError, ImportError, GlakeError):
        pass


def pinned_empty(*shape, dtype=None, device=None):
    """
    A tensor like torch.empty's, in pinned memory near a GPU, the current one by default. Its memory
    goes back with its storage. In a forked child it is not there: a child must not touch it.
    """
    import torch
    shape, dtype = _shape(shape), dtype or torch.get_default_dtype()
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    if not size:
        return torch.empty(shape, dtype=dtype)
    if size >> 63:
        raise GlakeError(f"{size} bytes are more than there are addresses")
    block = ctypes.c_void_p()
    library.call("glake_host_alloc", library.index(device), ctypes.c_size_t(size),
                 ctypes.c_uint32(0), ctypes.byref(block))
    memory = (ctypes.c_char * size).from_address(block.value)
    weakref.finalize(memory, _give_back, block.value).atexit = False
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def pinned_use(tensor, stream=None, device=None):
    """Work on a stream, the current one by default, uses a tensor of glake.pinned_empty()."""
    if not isinstance(tensor, int) and not hasattr(tensor, "untyped_storage"):
        raise GlakeError(f"{tensor!r} is no tensor")
    address = tensor if isinstance(tensor, int) else tensor.untyped_storage().data_ptr()
    index, handle = _current() or (0, 0)
    if stream is not None:
        index = getattr(stream, "device_index", None)
        index = library.index(device) if index is None else index
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    library.call("glake_host_use", ctypes.c_void_p(address), index, ctypes.c_void_p(handle or 0))


class _Host(Sized):
    """What torch_host.cc is handed."""
    _fields_ = [("sz", ctypes.c_size_t), *many(
        ctypes.c_void_p, "context device_count alloc free use trim last_error")]


def use_pinned():
    """
    PyTorch's pinned memory is glake's from here on; what it had stays where it is until it goes. It
    needs a compiler the first time, and a PyTorch whose allocator of pinned memory can be replaced.
    """
    if _kept:
        return
    torch = pytorch.module()
    lib, context = library.context()
    functions = {name: ctypes.cast(getattr(lib, "glake_" + function), ctypes.c_void_p)
                 for name, function in (("device_count", "device_count"), ("alloc", "host_alloc"),
                                        ("free", "host_free"), ("use", "host_use"),
                                        ("trim", "trim"), ("last_error", "last_error"))}
    try:
        made = compiler.load(torch, "host", "-ltorch_cpu", "-lc10")
    except compiler.NotMade as error:
        raise GlakeError(
            "what replaces the pinned allocator of PyTorch could not be made, which takes a C++ "
            f"compiler and at::setHostAllocator of PyTorch: {error}; glake.pinned_empty() needs "
            "neither") from None
    host = _Host()
    host.context = context
    for name, function in functions.items():
        setattr(host, name, function)
    if made.glake_torch_host_use(ctypes.byref(host)):
        raise GlakeError("PyTorch's allocator of pinned memory could not be replaced")
    _kept.append(made)
