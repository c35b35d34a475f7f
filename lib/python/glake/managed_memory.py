# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Managed memory, which the driver moves to who touches it. The package has these names as its own and
loads this file with the first:

    with glake.managed():     PyTorch's tensors that are made here lie in managed memory, for programs
        x = torch.empty(...)  that keep PyTorch's allocator on top: it is a torch.cuda.MemPool
    glake.prefetch(x, "cpu")  moves a tensor of that kind: to "cpu", "cuda", "cuda:1", or a NUMA node
    glake.prefer(x, "cuda")   it is best there, and stays where others can use it over the link; None
                              takes that back

prefetch() is also for what glake.spill() sent away (tier.py).

The driver evicts it from a GPU that is full, so with over=True there may be more of it than a GPU has.
"""

import contextlib
import ctypes

from . import library, pytorch, tier
from .library import GlakeError

_FUNCTIONS = {False: "glake_torch_managed_alloc", True: "glake_torch_managed_over_alloc"}


@contextlib.contextmanager
def managed(over=False, **options):
    """Tensors made inside lie in managed memory; gives the pool, which takes the options."""
    torch = pytorch.module()
    if library.plugged:
        raise GlakeError("glake.use() has made glake the allocator, which gives memory of the "
                         "GPU; glake.managed() is for programs that keep PyTorch's")
    if not hasattr(torch.cuda, "MemPool"):
        raise GlakeError(
            f"PyTorch {torch.__version__} is too old: it has no torch.cuda.MemPool")
    library.context()
    plug = pytorch.plug_in(torch, _FUNCTIONS[bool(over)], "glake_torch_segment_free", {})
    pool = torch.cuda.MemPool(plug.allocator(), **options)
    with torch.cuda.use_mem_pool(pool):
        yield pool


def _place(place, tensor):
    """As glake/managed.h has places: kind and number."""
    if isinstance(place, int):
        return 1, place
    name, _, number = str(place).partition(":")
    if name == "cpu":
        return 1, int(number or -1)
    if name in ("cuda", "gpu"):
        own = getattr(getattr(tensor, "device", None), "index", None)
        return 0, int(number or own or 0)
    raise GlakeError(f"{place!r} is no place: 'cpu', 'cuda', 'cuda:1', or a NUMA node")


def prefetch(tensor, place="cuda", stream=None, within=None, priority=0):
    """Moves a managed tensor, behind the work queued so far and before what is queued next.

    A tensor that glake.spill() sent away is brought back before glake.fetch() asks for it, within so
    many seconds, those of a higher priority first; gives a tier.Ticket."""
    kind, number = _place(place, tensor)
    if not kind and not tier.is_managed(tensor):
        return tier.hint(tensor, within, priority, stream)
    if within is not None or priority:
        raise GlakeError("what is prefetched of managed memory goes now: there is no later")
    library.call("glake_managed_prefetch", ctypes.c_void_p(_start(tensor)), ctypes.c_size_t(_size(
        tensor)), kind, number, tier.stream_of(stream, tensor))


def prefer(tensor, place="cuda"):
    """Says where a managed tensor is best, or with None that it is nowhere."""
    kind, number = (1, -1) if place is None else _place(place, tensor)
    library.call("glake_managed_advise", ctypes.c_void_p(_start(tensor)),
                 ctypes.c_size_t(_size(tensor)), 1 if place is None else 0, kind, number)


def _start(tensor):
    return tensor.data_ptr() if hasattr(tensor, "data_ptr") else tier.address_of(tensor)


def _size(tensor):
    """Bytes from its first element on; 0, the rest of the block, where that is not known."""
    if hasattr(tensor, "is_contiguous") and tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    return 0
