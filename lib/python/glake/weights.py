# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Weights that exist once for several processes of a user on a GPU, through a broker (glaked, share.broker):

    weights = glake.weights.load("model.safetensors")     a tensor of each name, to be read; the first
                              process loads the file, and all others have its memory without a copy
    weights = glake.weights.load(path, key="llama-3:8f1c")     by the revision that the caller knows
    weights.own()             a copy of this process at the same addresses, to be written; where nothing
                              uses the weights meanwhile, and no graph that was captured names them
    weights.close()           as soon as no tensor of them is used any more

    weights = glake.weights.load(path, pages=True)     in whole pages: those that are equal to pages of other models
                              which were loaded so, as of another fine-tune of one base, exist once; with a broker over
                              all processes of the user

Without a key it is a hash of which file it is, its header, its size and the time when it was changed last. What the
process that loaded them has is its own, which nobody writes by promise; in all others a kernel that writes ends
in an illegal access. Without a broker, or while it is away, each process loads for itself. A process that waits for another one to
load has the weights as soon as that has them, or loads them where it ends before.
"""

import ctypes
import errno
import hashlib
import json
import math
import os
import time

from . import library
from .library import GlakeError
from .records import Block, Sized, many
from .view import View, bytes_of, rows

_KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "uint8"}
_CLAIM, _CONTIGUOUS = 1, 1
_PART = 64 << 20  # bytes of the file in memory of the host at a time
_BLOCK = 512 << 20 # bytes of a block of pages, and a tensor more
_PAUSE = 0.02     # between two looks whether another process has loaded
_ELASTIC = 0x100
_GRAIN = 256      # bytes at a multiple of which a tensor begins


def _header(file):
    """The tensors of a file, where their contents begin, and a hash of all that says what they are."""
    about = os.fstat(file.fileno())
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= about.st_size - 8:
        raise GlakeError(f"{file.name} is no file of safetensors")
    text = file.read(length)
    facts = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
    digest = hashlib.sha256(text + repr(facts).encode()).digest()
    size = about.st_size - 8 - length
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            if tensor["dtype"] not in _KINDS:
                raise GlakeError(f"{file.name}: {name} is of {tensor['dtype']}, of which no tensor is made")
            if not 0 <= begin <= end <= size:
                raise GlakeError(f"{file.name}: {name} lies beyond the end of the file")
            sides = [*tensor["shape"], bytes_of(_KINDS[tensor["dtype"]])]
            if min(sides) < 0 or math.prod(sides) != end - begin:
                raise GlakeError(f"{file.name}: {name} has more bytes or fewer than its shape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise GlakeError(f"{file.name} is no file of safetensors") from None
    return header, 8 + length, size, digest


def _read(file, part):
    if file.readinto(part) != len(part):
        raise GlakeError(f"{file.name} is shorter than its header says")


def _copy(address, part, count):
    """Bytes of the host go to the GPU."""
    lib, _ = library.context()
    source, job = (ctypes.c_char * count).from_buffer(part), ctypes.c_void_p()
    library.call("glake_copy", ctypes.c_void_p(address), source, ctypes.c_size_t(count), None, 0, ctypes.byref(job))
    try:
        library.check("glake_copy_wait", lib.glake_copy_wait(job, ctypes.c_int64(-1)))
    finally:
        lib.glake_copy_close(job)


class _Lease(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_int, "state helper"),
                *many(ctypes.c_uint64, "leased left least most asked given refused waited_ns")]


_ALONE = 3  # GLAKE_LEASE_ALONE


class Weights(dict):
    """Tensors by name. They are there as long as this is."""

    def __init__(self, path, key, device, timeout):
        self._device, self._address, self._attached = library.index(device) or 0, None, False
        with open(path, "rb") as file:
            header, start, size, digest = _header(file)
            self._stamp = int.from_bytes(digest[:8], "little")
            self._key = (key or "safetensors:" + digest.hex()).encode()
            self._have(file, start, size, timeout)
            if not self._attached:
                self._publish(file, digest)
        super().__init__((name, self._tensor(tensor)) for name, tensor in header.items())

    def _tensor(self, tensor):
        return View(self._address + tensor["data_offsets"][0], tensor["shape"], rows(tensor["shape"]),
                    _KINDS[tensor["dtype"]], self._device).tensor()

    def _have(self, file, start, size, timeout):
        lib, context = library.context()
        address, bytes_ = ctypes.c_void_p(), ctypes.c_size_t()
        end = time.monotonic() + timeout
        while True:
            answer = lib.glake_attach(context, self._device, self._key, ctypes.c_uint64(self._stamp), _CLAIM,
                                      ctypes.byref(bytes_), ctypes.byref(address))
            alone = answer == -errno.EAGAIN and library.fetch("glake_lease_get", _Lease(), self._device).state == _ALONE
            if answer != -errno.EAGAIN or alone or time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        if answer in (-errno.ENOENT, -errno.EOPNOTSUPP) or alone:
            self._load(file, start, size)
            return
        library.check("glake_attach", answer)
        self._address, self._attached = address.value, True
        if bytes_.value != max(size, 1):
            self.close()
            raise GlakeError(f"what is published as {self._key.decode()} has {bytes_.value} bytes, not {size}")

    def _load(self, file, start, size):
        lib, context = library.context()
        address = ctypes.c_void_p()
        try:
            library.call("glake_alloc", self._device, ctypes.c_size_t(max(size, 1)), None, _CONTIGUOUS,
                         ctypes.byref(address))
            self._address = address.value
            file.seek(start)
            part = bytearray(min(_PART, max(size, 1)))
            for done in range(0, size, len(part)):
                count = min(len(part), size - done)
                _read(file, memoryview(part)[:count])
                _copy(self._address + done, part, count)
        except BaseException:
            self._give_up()
            raise

    def _give_up(self):
        lib, context = library.context()
        lib.glake_publish_not(context, self._device, self._key)
        if self._address:
            lib.glake_free(context, ctypes.c_void_p(self._address), None)
        self._address = None

    def _publish(self, file, digest):
        lib, context = library.context()
        try:
            file.seek(0)
            if _header(file)[3] != digest:
                raise GlakeError(f"{file.name} was changed while it was loaded")
            answer = lib.glake_publish(context, ctypes.c_void_p(self._address), self._key,
                                       ctypes.c_uint64(self._stamp))
            if answer not in (-errno.EOPNOTSUPP, -errno.EAGAIN):
                library.check("glake_publish", answer)
        except BaseException:
            self._give_up()
            raise

    @property
    def shared(self):
        """Whether another process loaded them."""
        return self._attached

    def own(self):
        """Has a copy of its own at the same addresses, where another process loaded them."""
        if self._attached:
            library.call("glake_unseal", ctypes.c_void_p(self._address), None)
        self._attached = None

    def close(self):
        """Gives them up; the process that loaded them keeps them for others."""
        lib, context = library.context()
        address, self._address = self._address, None
        self.clear()
        if not address:
            return
        if self._attached:
            library.call("glake_detach", ctypes.c_void_p(address), None)
        elif self._attached is None:
            library.call("glake_import_end", ctypes.c_void_p(address), None)
        else:
            lib.glake_free(context, ctypes.c_void_p(address), None)


class _Sealed(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint64, "looked saved shared left differ")]


class Paged(dict):
    """Tensors by name, in blocks of their own whose pages are sealed. Each tensor of a page or more begins with one,
    and the rest of its last page is zero; smaller ones lie together in order of their names. So equal tensors
    lie in equal pages, whatever is beside them in their files. Each block is sealed before the next one is loaded: no
    more than one has pages that exist already."""

    shared = False  # another process did not load them

    def __init__(self, path, device):
        self._device, self._blocks = library.index(device) or 0, []
        self._page = self._page_of()
        with open(path, "rb") as file:
            header, start, _, digest = _header(file)
            try:
                views, self.saved = {}, 0
                for places, size in self._place(header):
                    views.update(self._load(file, start, header, places, size))
                file.seek(0)
                if _header(file)[3] != digest:
                    raise GlakeError(f"{file.name} was changed while it was loaded")
            except BaseException:
                self.close()
                raise
        super().__init__((name, views[name]) for name in header)

    def _alloc(self, size):
        address = ctypes.c_void_p()
        library.call("glake_alloc", self._device, ctypes.c_size_t(size), None, _ELASTIC, ctypes.byref(address))
        return address.value

    def _page_of(self):
        address, block = self._alloc(1), Block()
        try:
            library.fetch("glake_query", block, ctypes.c_void_p(address))
        finally:
            library.call("glake_free", ctypes.c_void_p(address), None)
        return block.given

    def _place(self, header):
        """For each block where its tensors begin, and the bytes of all its pages."""
        blocks, places, at = [], {}, 0
        sizes = {name: tensor["data_offsets"][1] - tensor["data_offsets"][0] for name, tensor in header.items()}
        for name in sorted(sizes, key=lambda name: (sizes[name] < self._page, name)):
            if sizes[name] >= self._page or at % self._page + sizes[name] > self._page:
                at = -(-at // self._page) * self._page
                if at >= _BLOCK:
                    blocks.append((places, at))
                    places, at = {}, 0
            places[name] = at
            at += -(-sizes[name] // _GRAIN) * _GRAIN
        return blocks + [(places, max(-(-at // self._page), 1) * self._page)]

    def _load(self, file, start, header, places, size):
        """A block, and its tensors."""
        address = self._alloc(size)
        self._blocks.append(address)
        library.call("glake_commit", ctypes.c_void_p(address), ctypes.c_size_t(0), ctypes.c_size_t(size), None, None)
        self._fill(file, start, header, places, size, address)
        self.saved += self._seal(address, 0)
        return {name: View(address + at, header[name]["shape"], rows(header[name]["shape"]),
                           _KINDS[header[name]["dtype"]], self._device).tensor() for name, at in places.items()}

    def _fill(self, file, start, header, places, size, address):
        """All bytes of all pages, in order of their addresses."""
        order = sorted(places, key=places.get)
        room = max(_PART // self._page, 1) * self._page
        part, base = bytearray(min(room, size)), 0
        while base < size:
            count = min(len(part), size - base)
            part[:count] = bytes(count)
            while order:
                begin, end = header[order[0]]["data_offsets"]
                first = max(places[order[0]], base)
                last = min(places[order[0]] + end - begin, base + count)
                if first < last:
                    file.seek(start + begin + first - places[order[0]])
                    _read(file, memoryview(part)[first - base:last - base])
                if places[order[0]] + end - begin > base + count:
                    break
                del order[0]
            _copy(address + base, part, count)
            base += count

    def _seal(self, address, rate):
        found = library.fetch("glake_seal", _Sealed(), ctypes.c_void_p(address), None, ctypes.c_uint64(rate))
        return found.saved + found.shared

    def dedup(self, rate=0):
        """Looks for equal pages again, where nothing uses these weights meanwhile; reads at most `rate` bytes a second.
        How many bytes have come to exist once by this, or did before."""
        self.saved = sum(self._seal(address, rate) for address in self._blocks)
        return self.saved

    def own(self):
        """Has pages of its own for all that is shared, at the same addresses, to be written."""
        for address in self._blocks:
            library.call("glake_unseal", ctypes.c_void_p(address), None)

    def close(self):
        """Gives them up; other models keep the pages that they share."""
        lib, context = library.context()
        blocks, self._blocks = self._blocks, []
        self.clear()
        for address in blocks:
            lib.glake_free(context, ctypes.c_void_p(address), None)
        # pages of other processes, and those that they have, are not held for the next block
        if blocks and library.fetch("glake_lease_get", _Lease(), self._device).state:
            lib.glake_trim(context, self._device, ctypes.c_size_t(-1), None)


def load(path, key=None, device=None, timeout=600, pages=False):
    """The tensors of a file of safetensors. `timeout`: seconds for another process to load them. `pages`: see Paged;
    what they have in common with others is found by their contents."""
    if pages and key:
        raise GlakeError("weights in pages have no key: what they share is found by their contents")
    return Paged(path, device) if pages else Weights(path, key, device, timeout)
