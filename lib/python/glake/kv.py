# SPDX-License-Identifier: LGPL-2.1-or-later
"""
KV caches: what attention keeps of each token, for many sequences that grow and end by themselves, at plain
strides and with memory for the tokens there are (kv.h of the library has how).

    cache = glake.kv.Cache(slots=64, tokens=4096, lanes=64, shape=(8, 128), dtype=torch.bfloat16)
    slot = cache.new()              a sequence
    cache.grow(slot, 100)           there is memory for 100 tokens of it in all lanes
    cache.step(lengths)             the same for all sequences at once, a number for each slot
    cache.lane(3)                   a tensor [slots, tokens, 8, 128] of one of them, for kernels; where a sequence
                                    has no tokens there is no memory, and nothing must touch it
    cache.trim(slot, 50), cache.free(slot), cache.close()
    other = cache.fork(slot)        another one that begins with its tokens, whose pages they share
    cache.publish(slot, key)        its tokens stay under a key, bytes such as a hash of them
    cache.adopt(slot, key)          and are those of a sequence that has none; how many there are
    cache.withdraw(key)
    cache.spill(slot), cache.fetch(slot)    to the host and back; spill_prefix(key), fetch_prefix(key) likewise
    cache.layer_grow(slot, 6, 2, 8000)      memory for two lanes of it alone, 6 and 7, in which a layer is computed;
    cache.layer_done(slot, 6, 2)            it goes to the host
    cache.layer_wait(slot, 6, 2)            and is back, in the order of the stream (glake.planner says when)
    cache.gather(slot, 6, indices)          rows of those tokens of a lane, from the GPU or the host, wherever they are
    pieces = cache.export(slot, 3)  a lane of it for another process: descriptors to send (socket.send_fds) and close,
                                    which kv.Imported(pieces, (8, 128), torch.bfloat16) has there as a tensor;
    cache.export_end(slot, 3)       it is done with them
    cache.figures(), cache.sequence(slot), cache.limit(bytes)

    with token_front=True all lanes of a token lie beside each other, which takes a page of 2 MiB a
    sequence more than its tokens need where the other order takes one a lane; with ahead=TOKENS a thread
    has memory ready; single=True makes each lane one page, for those who register memory, and takes it all at once;
    large=True has what comes at once take large pages, with fewer calls of the driver, also of a fork;
    a lane of its own shape, window or state is a glake.kv.Lane

    past = glake.kv.TransformersCache(model.config)
    model.generate(..., past_key_values=past)      transformers' models, in memory that grows in place

    kv = glake.kv.Growable(bytes)                  one tensor that grows and shrinks in place, with the calls of
                                    vLLM's and SGLang's growable tensors (growable.py)

Tensors are PyTorch's where that is there, else an object that speaks DLPack. They live as long as the
cache. Streams are those of PyTorch; None is its current one, or the legacy default stream.
"""

import collections
import ctypes
import errno
import math
import sys

from . import library, view
from .library import GlakeError
from .records import Sized, many
from .view import stream_of

ALL, WINDOW, STATE = range(3)
_TOKEN_FRONT, _SINGLE, _LARGE = 1, 2, 4
Piece = collections.namedtuple("Piece", "fd flags page_size offset length")


class _Piece(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("flags", ctypes.c_uint32),
                *many(ctypes.c_size_t, "page_size offset length"), *many(ctypes.c_uint64, "number reserved")]


class _Lane(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_size_t), ("rule", ctypes.c_int), ("window", ctypes.c_uint32)]


class _Options(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint32, "slots tokens lanes flags"),
                ("lane", ctypes.POINTER(_Lane)), ("lane_bytes", ctypes.c_size_t),
                ("limit", ctypes.c_uint64), *many(ctypes.c_uint32, "ahead prefixes")]


class _Place(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("base", ctypes.c_void_p),
                *many(ctypes.c_size_t, "slot token bytes")]


class _Figures(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("base", ctypes.c_void_p), ("size", ctypes.c_uint64),
                *many(ctypes.c_uint32, "slots tokens lanes sequences"),
                *many(ctypes.c_uint64, "length needed held limit capacity grows extends pages "
                      "refused pages_ahead shared forks adopts"), *many(ctypes.c_uint32, "prefixes outs away prefixes_away"), ("waits", ctypes.c_uint64)]


class _Sequence(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint32, "tokens ready most"),
                *many(ctypes.c_uint64, "held domain"), ("away", ctypes.c_int), ("outs", ctypes.c_uint32)]


class Lane:
    """What a lane keeps of a token, or with state=True of a sequence; the last `window` tokens of it."""

    def __init__(self, shape, dtype, window=0, state=False):
        if window and state:
            raise GlakeError("a lane has a window or is a state")
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = view.kind_of(dtype)
        if not self.dtype:
            raise GlakeError(f"a lane of {dtype}: {', '.join(view.KINDS)}")
        if not self.shape or min(self.shape) < 1:
            raise GlakeError(f"a lane of the shape {self.shape}")
        self.window, self.rule = window, STATE if state else WINDOW if window else ALL

    @property
    def bytes(self):
        return math.prod(self.shape, start=view.bytes_of(self.dtype))


def _key_of(key):
    """All bytes of it, of which an array of numbers has more than its length."""
    key = bytes(memoryview(key))
    return key, ctypes.c_size_t(len(key))


class Cache:
    def __init__(self, slots, tokens, lanes, *, shape=None, dtype="bfloat16", device=None,
                 token_front=False, single=False, large=False, limit=0, ahead=0, prefixes=0, stream=None):
        self._handle = None
        if isinstance(lanes, int):
            if shape is None:
                raise GlakeError("what a lane keeps of a token: shape=(heads, dimension)")
            lanes = [Lane(shape, dtype)] * lanes
        self.lanes, self.slots, self.tokens = list(lanes), slots, tokens
        self.device = library.index(device) or 0
        self._lib, opened = library.context()
        self._lib.glake_kv_close.restype = ctypes.c_int
        table = (_Lane * len(self.lanes))(*((x.bytes, x.rule, x.window) for x in self.lanes))
        options = _Options()
        for name, value in (("slots", slots), ("tokens", tokens), ("lanes", len(self.lanes)),
                            ("flags", (token_front and _TOKEN_FRONT) | (single and _SINGLE) | (large and _LARGE)), ("limit", limit),
                            ("ahead", ahead), ("prefixes", prefixes)):
            if not 0 <= value < 1 << (64 if name == "limit" else 32):
                raise GlakeError(f"a KV cache with {name}={value}")
            setattr(options, name, value)
        options.lane = table
        handle = ctypes.c_void_p()
        library.check("glake_kv_open", self._lib.glake_kv_open(
            opened, ctypes.c_int(self.device), ctypes.byref(options), stream_of(stream, self.device),
            ctypes.byref(handle)))
        self._handle, self._tensors = handle, {}

    def _call(self, name, *arguments):
        if not self._handle:
            raise GlakeError("the KV cache is closed")
        library.check(name, getattr(self._lib, name)(self._handle, *arguments))

    def _fetch(self, name, record, *arguments):
        self._call(name, *map(ctypes.c_uint32, arguments), ctypes.byref(record))
        return record

    @staticmethod
    def _told(record):
        return {name: getattr(record, name) for name, _ in record._fields_ if name != "sz"}

    def lane(self, number):
        """The tensor of a lane: [slots, tokens, ...], of a state [slots, ...]."""
        if not 0 <= number < len(self.lanes):
            raise GlakeError(f"there is no lane {number}")
        if number not in self._tensors:
            self._tensors[number] = self._view(number).tensor()
        return self._tensors[number]

    def _place(self, number):
        """Where a lane lies: its base, and bytes from a slot and from a token to the next."""
        return self._fetch("glake_kv_place_get", _Place(), number)

    def _view(self, number):
        lane, place = self.lanes[number], self._place(number)
        outer = [self.slots] if lane.rule == STATE else [self.slots, self.tokens]
        steps, item = [place.slot, place.token][:len(outer)], view.bytes_of(lane.dtype)
        if any(step % item for step in steps):
            raise GlakeError(f"a token's {place.token} bytes are no whole number of {lane.dtype}")
        return view.View(place.base, [*outer, *lane.shape],
                         [*(step // item for step in steps), *view.rows(lane.shape)], lane.dtype, self.device)

    def new(self, tokens=None, stream=None, domain=0):
        slot = ctypes.c_uint32()
        self._call("glake_kv_new_in", ctypes.c_uint32(self.tokens if tokens is None else tokens),
                   ctypes.c_uint64(domain), stream_of(stream, self.device), ctypes.byref(slot))
        return slot.value

    def fork(self, slot, tokens=None, most=None, stream=None):
        """A sequence that begins with the first tokens of another one, all of them as a rule. Its slot."""
        other = ctypes.c_uint32()
        tokens = self.sequence(slot)["tokens"] if tokens is None else tokens
        self._call("glake_kv_fork", ctypes.c_uint32(slot), ctypes.c_uint32(tokens),
                   ctypes.c_uint32(self.tokens if most is None else most),
                   stream_of(stream, self.device), ctypes.byref(other))
        return other.value

    def publish(self, slot, key, tokens=None, stream=None):
        """The first tokens of a sequence, all of them as a rule, are kept under a key of up to 64 bytes."""
        tokens = self.sequence(slot)["tokens"] if tokens is None else tokens
        self._call("glake_kv_publish", ctypes.c_uint32(slot), ctypes.c_uint32(tokens), *_key_of(key),
                   stream_of(stream, self.device))

    def adopt(self, slot, key, stream=None):
        """A sequence without tokens has those of a key, if there is one in its domain. How many; 0: there is none."""
        tokens = ctypes.c_uint32()
        if not self._handle:
            raise GlakeError("the KV cache is closed")
        answer = self._lib.glake_kv_adopt(
            self._handle, ctypes.c_uint32(slot), *_key_of(key), stream_of(stream, self.device),
            ctypes.byref(tokens))
        if answer == -errno.ENOENT:
            return 0
        library.check("glake_kv_adopt", answer)
        return tokens.value

    def withdraw(self, key, domain=0, stream=None):
        self._call("glake_kv_withdraw", ctypes.c_uint64(domain), *_key_of(key),
                   stream_of(stream, self.device))

    def grow(self, slot, tokens, stream=None):
        self._call("glake_kv_grow", ctypes.c_uint32(slot), ctypes.c_uint32(tokens),
                   stream_of(stream, self.device))

    def step(self, lengths, stream=None):
        """A number of tokens for each slot; 0: it stays as it is."""
        if len(lengths) != self.slots:
            raise GlakeError(f"{len(lengths)} lengths for {self.slots} slots")
        self._call("glake_kv_step", (ctypes.c_uint32 * self.slots)(*lengths),
                   stream_of(stream, self.device))

    def trim(self, slot, tokens, stream=None):
        self._call("glake_kv_trim", ctypes.c_uint32(slot), ctypes.c_uint32(tokens),
                   stream_of(stream, self.device))

    def free(self, slot, stream=None):
        self._call("glake_kv_free", ctypes.c_uint32(slot), stream_of(stream, self.device))

    def spill(self, slot, stream=None):
        """A sequence goes to the host, but for what it shares."""
        self._call("glake_kv_spill", ctypes.c_uint32(slot), stream_of(stream, self.device))

    def fetch(self, slot, stream=None):
        self._call("glake_kv_fetch", ctypes.c_uint32(slot), stream_of(stream, self.device))

    def layer_grow(self, slot, lane, lanes, tokens, stream=None):
        """Memory for tokens of some lanes by themselves."""
        self._call("glake_kv_layer_grow", *map(ctypes.c_uint32, (slot, lane, lanes, tokens)), stream_of(stream, self.device))

    def layer_done(self, slot, lane, lanes, stream=None):
        """Lanes go to the host behind what was queued on the stream."""
        self._call("glake_kv_layer_done", *map(ctypes.c_uint32, (slot, lane, lanes)), stream_of(stream, self.device))

    def layer_wait(self, slot, lane, lanes, stream=None):
        """They are back for what is queued on the stream from now on."""
        self._call("glake_kv_layer_wait", *map(ctypes.c_uint32, (slot, lane, lanes)), stream_of(stream, self.device))

    def gather(self, slot, lane, indices, out=None, stream=None):
        """Rows of a lane, [len(indices), ...], wherever its tokens lie; zeroes for those that are not there. `indices`
        are int32, where the GPU can read them; `out` is a place for the rows, as many bytes: it is given where the
        indices are no tensor of PyTorch."""
        torch = sys.modules.get("torch")
        shape = (len(indices), *self.lanes[lane].shape) if 0 <= lane < len(self.lanes) else ()
        if torch and isinstance(indices, torch.Tensor):
            with view.queued_on(stream, self.device):
                indices = indices.to(torch.int32).contiguous()
                if out is None and shape:
                    out = torch.empty(shape, dtype=getattr(torch, self.lanes[lane].dtype), device=indices.device)
        self._call("glake_kv_gather", *map(ctypes.c_uint32, (slot, lane)), view.address_of(indices),
                   ctypes.c_uint32(len(indices)), view.address_of(out), stream_of(stream, self.device))
        return out

    def spill_prefix(self, key, domain=0, stream=None):
        """A prefix goes to the host, while all sequences that have its pages are there."""
        self._call("glake_kv_prefix_spill", ctypes.c_uint64(domain), *_key_of(key), stream_of(stream, self.device))

    def fetch_prefix(self, key, domain=0, stream=None):
        self._call("glake_kv_prefix_fetch", ctypes.c_uint64(domain), *_key_of(key), stream_of(stream, self.device))

    def export(self, slot, lane, first=0, tokens=None, reads=True):
        """Tokens of a lane, all from the first on as a rule, for another process: a Piece for each page, whose
        descriptor is the caller's. It is to be read there, or with reads=False written too."""
        if tokens is None:
            state = 0 <= lane < len(self.lanes) and self.lanes[lane].rule == STATE
            tokens = 1 if state else self.sequence(slot)["tokens"] - first
        row = self._place(lane)
        most = max(tokens, 0) * (row.token or row.bytes) // (2 << 20) + 2
        pieces, count = (_Piece * most)(), ctypes.c_size_t()
        self._call("glake_kv_export", *map(ctypes.c_uint32, (slot, lane, first, max(tokens, 0))),
                   ctypes.c_int(reads), pieces, ctypes.c_size_t(most), ctypes.byref(count))
        return [Piece(*(getattr(piece, name) for name in Piece._fields)) for piece in pieces[:count.value]]

    def export_end(self, slot, lane):
        """Who got tokens of a lane is done with them: once for each export."""
        self._call("glake_kv_export_end", ctypes.c_uint32(slot), ctypes.c_uint32(lane))

    def limit(self, bytes):
        """The most bytes of pages; 0: any number."""
        self._call("glake_kv_limit_set", ctypes.c_uint64(library.number("limit", bytes)))

    def figures(self):
        return self._told(self._fetch("glake_kv_figures_get", _Figures()))

    def sequence(self, slot):
        return self._told(self._fetch("glake_kv_sequence_get", _Sequence(), slot))

    def close(self, stream=None):
        """Tensors of it must not be used any more."""
        if self._handle:
            handle, self._handle = self._handle, None
            self._tensors = {}
            library.check("glake_kv_close", self._lib.glake_kv_close(handle, stream_of(stream, self.device)))

    def __del__(self):
        if getattr(self, "_handle", None) and sys and not sys.is_finalizing():
            try:
                self.close()
            except GlakeError:
                pass  # it was closed with the library

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Imported:
    """Tokens of another process's cache, by the pieces that export() gave, with descriptors of this process, which
    may be closed then. `shape` and `dtype` are those of the lane; `step` and `offset` are bytes from a token to the
    next, and of the lane in one, where lanes lie beside each other. It is ended before its owner is told."""

    def __init__(self, pieces, shape, dtype, *, step=None, offset=0, device=None):
        self._base, lane = None, Lane(shape, dtype)
        self._device, size = library.index(device) or 0, sum(piece.length for piece in pieces)
        step, item = step or lane.bytes, view.bytes_of(lane.dtype)
        if step % item or offset % item or size < offset + lane.bytes:
            raise GlakeError(f"tokens of {lane.bytes} bytes, {step} apart, are not in {size} bytes from {offset} on")
        self._lib, self._context = library.context()
        table = (_Piece * len(pieces))(*((*piece, 0, 0) for piece in pieces))
        base = ctypes.c_void_p()
        library.check("glake_import", self._lib.glake_import(
            self._context, ctypes.c_int(self._device), table, ctypes.c_size_t(len(pieces)), ctypes.c_size_t(size),
            ctypes.byref(base)))
        self._base = base.value
        count = (size - offset - lane.bytes) // step + 1
        self.tensor = view.View(self._base + offset, [count, *lane.shape], [step // item, *view.rows(lane.shape)],
                                lane.dtype, self._device).tensor()

    def close(self, stream=None):
        """Waits for the stream; the tensor must not be used any more."""
        if self._base:
            self.tensor = None
            library.check("glake_import_end", self._lib.glake_import_end(
                self._context, ctypes.c_void_p(self._base), stream_of(stream, self._device)))
            self._base = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def __getattr__(name):
    if name == "TransformersCache":
        from .kv_transformers import TransformersCache
        return TransformersCache
    if name in ("Growable", "Exhausted", "Misuse"):
        from . import growable
        return getattr(growable, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
