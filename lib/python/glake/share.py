# SPDX-License-Identifier: LGPL-2.1-or-later
"""
CUDA tensors of glake for other processes, by torch.multiprocessing's queues, pipes and arguments.
glake.use() loads this; the other process needs the package, and need not call glake.use().

A tensor leaves as a name and a key. Whoever unpickles it fetches the descriptors of the pages
over a socket of the process that sent it, maps them, and keeps the connection for as long as it
has the memory. The sender keeps the tensor until it has been fetched and that connection has
ended, also by the end of the process; a tensor that nobody fetches it keeps to the end.

The socket is an abstract one, for processes of the same user alone, and each key works once. The
sender waits for its GPU: a queue sends from a thread of its own, which does not know the streams
that the tensor was written on. What the other process does with the memory later is for the two to
agree on, as it is with PyTorch's own tensors; where it drops the tensor it waits for the stream
that is current there.
"""

import ctypes
import errno
import os
import secrets
import selectors
import socket
import struct
import sys
import threading

from . import library, pytorch
from .library import GlakeError
from .records import Block, many

_BATCH = 128  # descriptors in a message; the kernel takes 253
_HEAD, _PIECE, _PEER = struct.Struct("=iQQ"), struct.Struct("=QQQ"), struct.Struct("3i")
_FETCH, _DROP = b"f", b"d"
_doors = {}  # by process: a forked child has none of its parent's threads
_late = []   # what could not be taken down while a stream captured
_inner = {}  # PyTorch's own functions


class _Piece(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("flags", ctypes.c_uint32),
                *many(ctypes.c_size_t, "page_size offset length"),
                ("reserved", ctypes.c_uint64 * 2)]


class Handle(tuple):
    """The name of a socket, an address there, and a key. Two are the same if the memory is."""

    def __eq__(self, other):
        return isinstance(other, Handle) and self[:2] == other[:2]

    def __hash__(self):
        return hash(self[:2])

    def __reduce__(self):
        return arrived, tuple(self)


def arrived(*parts):
    """A handle in the process that it was sent to, which has to know what it is."""
    answer(pytorch.module())
    return Handle(parts)


def _block(address):
    """The block that holds an address, or None."""
    lib, context = library.context()
    block = Block()
    found = not lib.glake_query(context, ctypes.c_void_p(address), ctypes.byref(block))
    return block if found else None


class _Door:
    """Where other processes fetch what this one has sent to them."""

    def __init__(self):
        self.name = f"glake-{os.getpid()}-{secrets.token_hex(8)}"
        self.waiting, self.out = {}, {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind("\0" + self.name)
        self.socket.listen(128)
        self.asked = selectors.DefaultSelector()
        self.asked.register(self.socket, selectors.EVENT_READ)
        threading.Thread(target=self.serve, name="glake-share", daemon=True).start()

    def leave(self, storage, base):
        key = secrets.token_bytes(16)
        self.waiting[key] = storage, base
        return Handle((self.name, base, key))

    def serve(self):
        while True:
            for asked, _ in self.asked.select():
                if asked.fileobj is self.socket:
                    self.welcome()
                elif not self.hear(asked.fileobj):
                    self.part(asked.fileobj)

    def welcome(self):
        try:
            guest, _ = self.socket.accept()
        except OSError:
            return  # it has gone again, or there are no descriptors
        about = guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(about)[1] != os.geteuid():
            guest.close()
            return
        guest.settimeout(10)
        self.asked.register(guest, selectors.EVENT_READ)

    def hear(self, guest):
        """Whether a connection goes on after what it said."""
        try:
            said = guest.recv(64)
            kept = self.waiting.pop(said[1:], None)
            return said[:1] == _FETCH and guest not in self.out and self.give(guest, kept)
        except OSError:
            return False

    def give(self, guest, kept):
        if not kept:
            guest.send(_HEAD.pack(-errno.ENOENT, 0, 0))
            return False
        storage, base = kept
        block = _block(base)
        if not block or not base <= storage.data_ptr() < base + block.given:
            guest.send(_HEAD.pack(-errno.ESTALE, 0, 0))  # given another size meanwhile
            return False
        pieces, count = (_Piece * block.pages)(), ctypes.c_size_t()
        lib, context = library.context()
        err = lib.glake_export(context, ctypes.c_void_p(base), pieces,
                               ctypes.c_size_t(block.pages), ctypes.byref(count))
        if err:
            guest.send(_HEAD.pack(err, 0, 0) + library.last_error()["text"].encode())
            return False
        self.out[guest] = kept
        pieces = pieces[:count.value]
        try:
            guest.send(_HEAD.pack(0, block.size, len(pieces)))
            for at in range(0, len(pieces), _BATCH):
                part = pieces[at:at + _BATCH]
                socket.send_fds(guest, [b"".join(
                    _PIECE.pack(p.page_size, p.offset, p.length) for p in part)],
                    [p.fd for p in part])
        finally:
            for piece in pieces:
                os.close(piece.fd)
        return True

    def part(self, guest):
        """Somebody has no use any more for what he got, or was no guest."""
        self.asked.unregister(guest)
        guest.close()
        kept = self.out.pop(guest, None)
        if kept:
            lib, context = library.context()
            lib.glake_export_end(context, ctypes.c_void_p(kept[1]))


def _door():
    pid = os.getpid()
    if pid not in _doors:
        _doors.clear()
        _doors[pid] = _Door()
    return _doors[pid]


def _ask(what, handle):
    """A connection to the process that has sent a tensor, with a question on its way."""
    name, _, key = handle
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.settimeout(30)
        link.connect("\0" + name)
        link.send(what + key)
    except OSError as error:
        link.close()
        raise GlakeError(
            "the process that sent this CUDA tensor cannot be reached: it has ended before the "
            f"tensor was received, or is of another user or network namespace ({error})") from None
    return link


def _receive(link):
    """The pieces of a block, and its size."""
    try:
        said = link.recv(1024)
        err, size, count = _HEAD.unpack_from(said)
        pieces = []
        while not err and len(pieces) < count:
            data, fds, _, _ = socket.recv_fds(
                link, _BATCH * _PIECE.size, _BATCH, socket.MSG_CMSG_CLOEXEC)
            pieces += [_Piece(fd, 0, *_PIECE.unpack_from(data, i * _PIECE.size))
                       for i, fd in enumerate(fds)]
            if not fds or len(fds) * _PIECE.size != len(data):
                err = -errno.EMFILE  # the kernel drops what there is no room for
    except (OSError, struct.error) as error:
        err, said, pieces = -errno.EIO, _HEAD.pack(0, 0, 0) + str(error).encode(), []
    if err:
        for piece in pieces:
            os.close(piece.fd)
        why = said[_HEAD.size:].decode() or {
            errno.ENOENT: "it was received before, and that works once for each time it is sent",
            errno.ESTALE: "its memory was freed by its owner, who has resized it",
            errno.EMFILE: "its pages are more files than this process may have (ulimit -n)",
        }.get(-err, os.strerror(-err))
        raise GlakeError(f"a CUDA tensor of another process cannot be had: {why}")
    return pieces, size


class _Guest:
    """Memory of another process, mapped here; PyTorch holds it as long as a tensor needs it."""

    def __init__(self, torch, device, handle, size, offset):
        self.torch, self.device, self.base = torch, device, None
        while _late and _late[-1].close():
            _late.pop()
        self.link = _ask(_FETCH, handle)
        try:
            pieces, whole = _receive(self.link)
            try:
                lib, context = library.context()
                base = ctypes.c_void_p()
                err = lib.glake_import(context, device, (_Piece * len(pieces))(*pieces),
                                       ctypes.c_size_t(len(pieces)), ctypes.c_size_t(whole),
                                       ctypes.byref(base))
            finally:
                for piece in pieces:
                    os.close(piece.fd)
            if err:
                raise GlakeError("a CUDA tensor of another process cannot be mapped: "
                                 + library.last_error()["text"])
        except GlakeError:
            self.link.close()
            raise
        self.base = base.value
        self.__cuda_array_interface__ = {
            "version": 2, "typestr": "|u1", "shape": (size,), "data": (self.base + offset, False)}

    def close(self):
        """Waits for the current stream, takes the mapping down and says so to its owner."""
        lib, context = library.context()
        stream = self.torch.cuda.current_stream(self.device).cuda_stream
        if self.base and lib.glake_import_end(
                context, ctypes.c_void_p(self.base), ctypes.c_void_p(stream)) == -errno.EBUSY:
            return False
        self.base = None
        self.link.close()
        return True

    def __del__(self):
        if self.base and not sys.is_finalizing() and not self.close():
            _late.append(self)


def _share(storage, *_, **__):
    torch = pytorch.module()
    device, size = storage.device.index, storage.nbytes()
    if not size:
        return device, None, 0, 0, b"", 0, b"", False
    block = _block(storage.data_ptr())
    if not block:  # of a pool with an allocator of its own, or it came from another process
        try:
            return _inner["_share_cuda_"](storage)
        except RuntimeError as error:
            if not library.plugged:
                raise
            raise GlakeError("this CUDA tensor's memory is neither glake's nor PyTorch's own, as that of "
                             "one that came from another process: send tensor.clone()") from error
    torch.cuda.synchronize(device)
    handle = _door().leave(storage, block.base)
    return device, handle, size, storage.data_ptr() - block.base, handle, 0, b"", False


def _new(_class, device, handle, size, offset, *rest):
    if isinstance(handle, Handle):
        torch = pytorch.module()
        guest = _Guest(torch, device, handle, size, offset)
        return torch.as_tensor(guest, device=torch.device("cuda", device)).untyped_storage()
    try:
        return _inner["_new_shared_cuda"](device, handle, size, offset, *rest)
    except RuntimeError as error:
        if not library.plugged:
            raise
        raise GlakeError(
            "this CUDA tensor comes from a process that keeps PyTorch's allocator, and its memory "
            "cannot be opened here: call glake.use() there too, or send tensor.cpu()") from error


def _release(_class, handle, *rest):
    if isinstance(handle, Handle):
        _ask(_DROP, handle).close()  # it is here already, by another sending
        return None
    return _inner["_release_ipc_counter_cuda"](handle, *rest)


def answer(torch):
    """Takes the place of PyTorch's functions for that, once."""
    if _inner:
        return
    for name, function in (("_share_cuda_", _share), ("_new_shared_cuda", classmethod(_new)),
                           ("_release_ipc_counter_cuda", classmethod(_release))):
        _inner[name] = getattr(torch.UntypedStorage, name, None)
        setattr(torch.UntypedStorage, name, function)
