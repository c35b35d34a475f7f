# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Contents beyond the GPU: of a tensor, of a tag, or of all of a GPU. The package has these names as its
own and loads this file with the first:

    glake.spill(tensor)       its contents go to memory of the host, and its memory serves others
    glake.fetch(tensor)       they are back, for work on the current stream from here on
    glake.spill(tensor, offset=0, bytes=1 << 30)  a part of it, in bytes from the beginning of its
                              storage, and fetch likewise; the rest stays in use
    glake.advise(tensor, "cold")  it may go when others need the room, until it is fetched; "pinned":
                              it stays; "discardable": nothing is copied when it goes because of a
                              suspension; "cold discardable"; "normal"
    glake.quiet(device)       what tier.place put on the host comes to the GPU: at the end of a step
    glake.suspend(device)     all that can go does, and the memory back to the driver
    glake.resume(device)      all of that is back where it was
    glake.prefetch(tensor)    a tensor that is away will be wanted: it comes before it is fetched, as far
                              as nobody else wants the memory (managed_memory.py has the function)

    glake.suspend(device, in_place=True), glake.resume(device, lazy=True)  it goes to memory of the
                              host that kernels can use, and is used there until it is fetched
    with glake.tag("weights"):     what this thread makes here, of PyTorch or CuPy, is of the tag
        model = Model().cuda()
    glake.suspend(tag="weights")   all of it goes to the host and its memory back to the driver, small
                              tensors too; everything else stays in use
    glake.suspend(tag="kv_cache", keep=False)  likewise, and what was in it is lost
    glake.resume(tag="weights")    it is back at its addresses
    glake.tags()              those there are, with what they hold on each GPU
    glake.pin(tensor)         it stays where it is, for memory that others have registered, until
                              glake.unpin(tensor) was called as often

spill and fetch with ticket=True, and prefetch, give a Ticket, which says how far the contents are.

A tag is that of a thread, which threads of its own do not have: not autograd's, in which gradients are
made. Under glake.pool() segments have the tag of the tensor that they were had for, so a tag wants a
pool of its own: with glake.tag("weights"), torch.cuda.use_mem_pool(pool).

A tensor is one of PyTorch, whose whole storage moves with all views of it, an array of CuPy, or the
address of a block. What is away must not be used before it was fetched. Streams are those of
PyTorch or CuPy, or addresses; None is PyTorch's current one, or the legacy default stream.
"""

import contextlib
import ctypes
import errno
import os
import sys
import threading
import time

from . import library
from .library import GlakeError
from .records import Block, Sized, many


class _Suspended(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(
        ctypes.c_uint64, "moved moved_blocks stayed stayed_blocks released managed dropped "
        "dropped_blocks")]


class _Returned(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(
        ctypes.c_uint64, "returned returned_blocks left left_blocks")]


def address_of(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().data_ptr()
    if hasattr(tensor, "data") and hasattr(tensor.data, "mem"):
        return tensor.data.mem.ptr
    if isinstance(tensor, int):
        return tensor
    raise GlakeError(f"{type(tensor).__name__} is no tensor, no array and no address")


def stream_of(stream, tensor):
    torch = sys.modules.get("torch")
    if stream is None and torch and torch.cuda.is_initialized():
        device = getattr(tensor, "device", None)
        stream = torch.cuda.current_stream(device if isinstance(device, torch.device) else None)
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    return ctypes.c_void_p(stream or 0)


class _TicketInfo(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_int, "state kind device error"),
                ("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64),
                *many(ctypes.c_int64, "asked_ns begun_ns ended_ns deadline_ns")]


class Ticket:
    """Contents on their way. It closes itself when nobody has it any more; the contents go on."""

    def __init__(self, number):
        self._number = number

    def _ask(self, name, *arguments, may=()):
        answer = getattr(library.load(), name)(ctypes.c_void_p(self._number), *arguments)
        if answer < 0 and -answer not in may:
            error = library.last_error()
            raise GlakeError(
                f"{name}: {error['text'] or os.strerror(-answer)} ({error['class']})")
        return answer

    def info(self):
        """Its state, "queued", "copying", "done", "failed" or "cancelled", its bytes and times."""
        record, lib = _TicketInfo(), library.load()
        self._ask("glake_ticket_get", ctypes.byref(record))
        told = {name: getattr(record, name) for name, _ in record._fields_[1:]}
        for name in ("state", "kind"):
            function = getattr(lib, f"glake_ticket_{name}_name")
            function.restype, function.argtypes = ctypes.c_char_p, (ctypes.c_int,)
            told[name] = function(told[name]).decode()
        return told

    def wait(self, timeout=None):
        """Until it is done, for so many seconds at most; whether it is. Raises where it never will be."""
        ns = -1 if timeout is None else max(0, min(int(timeout * 1e9), (1 << 63) - 1))
        return not self._ask("glake_ticket_wait", ctypes.c_int64(ns), may=(errno.ETIMEDOUT,))

    def cancel(self):
        """Takes the hint of a prefetch back, if nothing was begun."""
        self._ask("glake_ticket_cancel")

    def close(self):
        """It says nothing any more."""
        number, self._number = self._number, None
        if number:
            library.load().glake_ticket_close(ctypes.c_void_p(number))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if sys is not None and not sys.is_finalizing():
            self.close()


def _move(function, tensor, stream, ticket, offset, size):
    place = ctypes.c_void_p()
    arguments = [ctypes.c_void_p(address_of(tensor)), stream_of(stream, tensor)]
    if offset is not None or size is not None:
        offset = offset or 0
        size = _bytes(tensor) - offset if size is None else size
        if offset < 0 or size < 0:
            raise GlakeError(f"{size} bytes at {offset} are no range")
        arguments[1:1] = ctypes.c_size_t(offset), ctypes.c_size_t(size)
        library.call(function + "_range", *arguments, ctypes.byref(place) if ticket else None)
    elif ticket:
        library.call(function + "_ticket", *arguments, ctypes.byref(place))
    else:
        library.call(function, *arguments)
    return Ticket(place.value) if ticket else None


def spill(tensor, stream=None, ticket=False, offset=None, bytes=None):
    """Sends the contents of a tensor to the host, as they are behind all work queued so far: all of its
    storage, or so many bytes of it from an offset on, of which whole pages go; without `bytes` to the
    end."""
    return _move("glake_spill", tensor, stream, ticket, offset, bytes)


def fetch(tensor, stream=None, ticket=False, offset=None, bytes=None):
    """Has a tensor back at its addresses, on the GPU, for work queued on the stream from here on, or
    a part of it."""
    return _move("glake_fetch", tensor, stream, ticket, offset, bytes)


def _bytes(tensor):
    """That the block of a tensor has."""
    lib, context = library.context()
    block = Block()
    if lib.glake_query(context, ctypes.c_void_p(address_of(tensor)), ctypes.byref(block)):
        raise GlakeError("it is in no block of glake")
    return block.size


def is_managed(tensor):
    lib, context = library.context()
    block = Block()
    return not lib.glake_query(context, ctypes.c_void_p(address_of(tensor)), ctypes.byref(
        block)) and bool(block.flags & 6)


def hint(tensor, within, priority, stream):
    """Of a tensor that is away: a Ticket."""
    place, deadline = ctypes.c_void_p(), 0
    if within is not None:
        deadline = max(1, time.monotonic_ns() + int(within * 1e9))
    library.call("glake_prefetch", ctypes.c_void_p(address_of(tensor)), stream_of(stream, tensor),
                 ctypes.c_int64(deadline), int(priority), ctypes.byref(place))
    return Ticket(place.value)


_ADVICE = {"normal": 0, "hot": 0, "cold": 1, "pinned": 2, "discardable": 4, "cold discardable": 5}


def advise(tensor, advice, priority=None):
    """Says that a tensor will not be used before it is fetched, that it must stay, or neither; of cold
    ones those of lower priority go first, 0 to 7."""
    if advice not in _ADVICE:
        raise GlakeError(f"{advice!r} is no advice: {', '.join(_ADVICE)}")
    if priority is not None:
        library.call("glake_advise_priority", ctypes.c_void_p(address_of(tensor)), int(priority))
    library.call("glake_advise", ctypes.c_void_p(address_of(tensor)), _ADVICE[advice])


def _all(function, device, record, *more):
    if device is None:
        count = library.call("glake_device_count")
        return {i: _all(function, i, record, *more) for i in range(count)}
    done = library.fetch(function, record(), library.index(device), *more)
    return {name: getattr(done, name) for name, _ in record._fields_[1:]}


def _each(function, device, record=_Suspended, *more):
    """A GPU that the library does not use yet has nothing to give."""
    return {} if library.unused() else _all(function, device, record, *more)


def quiet(device=None):
    """Nothing uses memory of the host in place now: it comes to the GPU, or to all, as there is room."""
    return _each("glake_quiet", device, _Returned)


def suspend(device=None, tag=None, keep=True, in_place=False):
    """
    Gives the memory of a GPU back to the driver, or of all; what went, stayed, and was released. With a
    tag what was made under that; without keep its contents are dropped. In place what goes lies on the
    host at its addresses, and can be resumed lazily.
    """
    if tag is None and not keep:
        raise GlakeError("contents are dropped of a tag, or of tensors said to be discardable")
    if tag is not None and in_place:
        raise GlakeError("what has a tag goes away, and not to the host in place")
    if tag is None:
        return _each("glake_suspend_in_place" if in_place else "glake_suspend", device)
    return _each("glake_tag_suspend", device, _Suspended, _known(tag), 0 if keep else 1)


def resume(device=None, tag=None, lazy=False):
    """Ends that: everything is at its addresses when it returns; lazily, what went in place is on the
    host still, and comes by fetch() or quiet()."""
    if tag is None:
        return _each("glake_resume_lazy" if lazy else "glake_resume", device)
    if lazy:
        raise GlakeError("what has a tag comes back at once, and not lazily")
    return _each("glake_tag_resume", device, _Suspended, _known(tag))


_lock, _numbers = threading.Lock(), {}


class _Tag(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("name", ctypes.c_char * 64), *many(
        ctypes.c_uint64, "live blocks held away"), ("suspended", ctypes.c_int)]


def _known(name):
    """That of a tag that was opened."""
    with _lock:
        if name not in _numbers:
            raise GlakeError(f"there is no tag {name!r}: with glake.tag() makes one")
        return _numbers[name]


def _number(name):
    """A tag is opened once and stays open, 64 of them at most."""
    if not isinstance(name, str) or "\0" in name:
        raise GlakeError(f"{name!r} is no name of a tag")
    with _lock:
        if name not in _numbers:
            _numbers[name] = library.fetch("glake_tag_open", ctypes.c_uint32(),
                                           str(name).encode()).value
        return _numbers[name]


@contextlib.contextmanager
def tag(name):
    """What this thread asks for inside is of the tag of that name; None: of none."""
    number, was = 0 if name is None else _number(name), ctypes.c_uint32()
    library.call("glake_tag_set", number, ctypes.byref(was))
    try:
        yield number
    finally:
        library.call("glake_tag_set", was.value, None)


def tags():
    """By name, and by GPU: bytes live and held, blocks, how many are away, and whether suspended."""
    def about(device, number):
        row = library.fetch("glake_tag_get", _Tag(), device, number)
        return {field: getattr(row, field) for field in ("live", "blocks", "held", "away")} | {
            "suspended": bool(row.suspended)}

    with _lock:
        numbers = dict(_numbers)
    devices = range(library.call("glake_device_count")) if numbers else ()
    return {name: {i: about(i, number) for i in devices} for name, number in numbers.items()}


def pin(tensor):
    """Keeps a tensor where it is once more."""
    library.call("glake_pin", ctypes.c_void_p(address_of(tensor)))


def unpin(tensor):
    """Once less."""
    library.call("glake_unpin", ctypes.c_void_p(address_of(tensor)))
