# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Memory that grows and shrinks in place: addresses first, pages for what is in use, as elastic blocks of the library
have it (elastic.h).

    kv = glake.kv.Growable(shape=(1 << 20, 8, 128), dtype=torch.float16)      addresses for 2^20 tokens
    kv.ensure_prefix(5000)          there is memory for the first 5000
    kv.tensors[0]                   a tensor of the whole shape; what lies behind them must not be touched
    kv.release_beyond(1000)         and for 1000; how many bytes went
    kv.free()

    kv = glake.kv.Growable(1 << 40)     bytes; a token is one of them
    kv.ensure_committed_range(first, end), kv.release_range(first, end)

It has the calls of the growable tensors of serving engines, so that it can take their place, and does what they do
not: it shrinks, all parts of it grow or none does, and memory comes and goes in stream order. They are

    vLLM    ExtensibleTensor of vllm/utils/extensible_tensor.py, and the ranges of the _VirtualBuffer below it, as in
            pull request 56492 of September 2026, which version 0.33.0 does not have; this class replaces it
    SGLang  KvVmmBufferOwner of sglang/srt/mem_cache/kv_vmm_backing.py, version 0.5.23, and commit_range of the
            KvVmmArena below it; Growable.of_buffers replaces it

t/doors/growable.py compares it with these classes on a CPU. It is untried with either engine on a GPU.

A request for which there is no room raises Exhausted, a GlakeError and so a RuntimeError as theirs is, with the bytes
that there would be room for, and changes nothing. A request that cannot be meant raises Misuse, which is a ValueError
too.

Tensors and streams are as those of kv.Cache. Tensors live as long as the memory, and memory may be used in the order
of the stream that it was asked for on. A release is in the order of its `stream`. Without one it waits for the GPU
first, as theirs do, since any stream may be using the memory.
"""

import ctypes
import errno
import math
import sys

from . import library, view
from .library import GlakeError
from .records import Block, many
from .view import stream_of

_ELASTIC, _GROWS = 0x100, 0x200


class _Range(ctypes.Structure):
    _fields_ = many(ctypes.c_size_t, "offset bytes")


class Exhausted(GlakeError):
    """There is no room for a request; `room` is how many bytes there would be room for."""

    def __init__(self, text, room):
        super().__init__(text)
        self.room = room


class Misuse(GlakeError, ValueError):
    """A request that cannot be meant."""


class _Part:
    """A tensor of it: where it begins, and the bytes that so many tokens of it take, while it runs and at last."""

    def __init__(self, name, shape, dtype, span, last=None):
        self.name, self.shape, self.dtype, self.span, self.last = name, tuple(shape), dtype, span, last or span
        self.bytes = math.prod(self.shape, start=view.bytes_of(dtype))
        self.offset = self.end = 0

    def checked(self, span):
        if not 0 <= span <= self.bytes:
            raise Misuse(f"{span} bytes of {self.name}, which has {self.bytes}")
        return self.offset, self.offset + span


class Growable:
    def __init__(self, max_num_bytes=None, device=None, num_segments=1, *, shape=None, dtype="uint8",
                 grows=False, stream=None):
        """So many bytes, in segments of one size whose beginnings grow together, or a shape, whose first side is of
        tokens. With grows=True it is not going to shrink, and may have larger pages, in fewer calls of the driver."""
        self.base_ptr = 0
        if (max_num_bytes is None) == (shape is None):
            raise Misuse("a Growable wants its bytes, or a shape")
        kind = view.kind_of(dtype)
        if not kind:
            raise Misuse(f"tensors of {dtype}: {', '.join(view.KINDS)}")
        if shape is not None:
            shape = (shape,) if isinstance(shape, int) else tuple(shape)
            if not shape or min(shape) < 1:
                raise Misuse(f"a Growable of the shape {shape}")
            row = math.prod(shape[1:], start=view.bytes_of(kind))
            parts = [_Part("the tensor", shape, kind, lambda tokens: tokens * row)]
            tokens = shape[0]
        else:
            if max_num_bytes < 0 or num_segments < 1 or max_num_bytes % num_segments:
                raise Misuse(f"{max_num_bytes} bytes in {num_segments} segments")
            tokens = max_num_bytes // num_segments
            parts = [_Part(f"segment {i}", (tokens,), "uint8", int) for i in range(num_segments)]
        if shape is not None and num_segments != 1:
            raise Misuse("a shape in segments")
        self._reserve(parts, tokens, device, grows, stream, whole=False)

    @classmethod
    def of_buffers(cls, *, device, device_id, store_dtype, page_size, reserved_num_tokens, buffer_descs,
                   grows=False, stream=None):
        """What KvVmmBufferOwner is to SGLang: a tensor for each description of a buffer, and the memory of a page."""
        kind = view.kind_of(store_dtype)
        if not kind:
            raise Misuse(f"tensors of {store_dtype}: {', '.join(view.KINDS)}")

        def part(told):
            made = _Part(told.name, told.shape, kind, lambda tokens: int(told.prefix_span_bytes(tokens, page_size)),
                         lambda tokens: int(told.final_span_bytes(tokens, page_size)))
            if made.bytes != told.reserved_span_bytes(view.bytes_of(kind)):
                raise GlakeError(f"{told.name} has {made.bytes} bytes, and says "
                                 f"{told.reserved_span_bytes(view.bytes_of(kind))}")
            return made

        made = cls.__new__(cls)
        made.base_ptr = 0
        made._reserve([part(told) for told in buffer_descs], int(reserved_num_tokens), device_id, grows, stream,
                      whole=True)
        made.page_size, made.store_dtype = int(page_size), store_dtype
        made.ensure_prefix(made.page_size, stream)
        return made

    def _reserve(self, parts, tokens, device, grows, stream, whole):
        kind = str(device).partition(":")[0]
        if kind not in ("None", "cuda") and not isinstance(device, int):
            raise Misuse(f"a Growable on {device}: it is for GPUs")
        self.device_id, self.page_size = library.index(None if str(device) == "cuda" else device), 1
        self._parts, self._tokens, self._prefix, self._tensors = parts, tokens, 0, None
        self._lib, self._context = library.context()
        self.granularity = self._page(stream)
        at = 0
        for part in parts:
            part.offset = at
            at += self._up(part.bytes) if whole else part.bytes
        self.max_num_bytes, self.capacity_bytes = at, self._up(max(at, 1))
        for part, after in zip(parts, parts[1:]):
            part.end = after.offset
        if parts:
            parts[-1].end = self.capacity_bytes
        self.base_ptr = self._alloc(self.capacity_bytes, _ELASTIC | (_GROWS if grows else 0), stream)

    def _up(self, number):
        return -(-number // self.granularity) * self.granularity

    def _alloc(self, number, flags, stream):
        address = ctypes.c_void_p()
        if number >> 62:
            raise Misuse(f"{number} bytes of addresses")
        library.check("glake_alloc", self._lib.glake_alloc(
            self._context, ctypes.c_int(self.device_id), ctypes.c_size_t(number),
            stream_of(stream, self.device_id), ctypes.c_uint(flags), ctypes.byref(address)))
        return address.value

    def _query(self, address):
        block = Block()
        library.check("glake_query", self._lib.glake_query(
            self._context, ctypes.c_void_p(address), ctypes.byref(block)))
        return block

    def _page(self, stream):
        """What memory comes and goes by: a block of a byte has addresses for one page."""
        address = self._alloc(1, _ELASTIC, stream)
        given = self._query(address).given
        self._give_back(address, stream)
        return given

    def _give_back(self, address, stream):
        library.check("glake_free", self._lib.glake_free(
            self._context, ctypes.c_void_p(address), stream_of(stream, self.device_id)))

    def _change(self, name, ranges, stream):
        """What the library answers, and how many bytes."""
        number = ctypes.c_size_t()
        told = (_Range * len(ranges))(*((first, end - first) for first, end in ranges))
        answer = getattr(self._lib, name)(
            self._context, ctypes.c_void_p(self.base_ptr), told, ctypes.c_size_t(len(ranges)),
            stream_of(stream, self.device_id), ctypes.byref(number))
        return answer, number.value

    def _live(self):
        if not self.base_ptr:
            raise GlakeError("the memory was freed")

    def _gpu(self):
        """torch.cuda, where it has begun to use GPUs."""
        torch = sys.modules.get("torch")
        return torch.cuda if torch and torch.cuda.is_initialized() else None

    def _commit(self, ranges, stream):
        self._live()
        ranges = [(first, end) for first, end in ranges if first < end]
        if not ranges:
            return
        answer, number = self._change("glake_commit_ranges", ranges, stream)
        gpu = self._gpu()
        if answer == -errno.ENOMEM and gpu and not library.plugged:
            gpu.empty_cache()  # the ladder does not reach what PyTorch's own allocator holds idle
            answer, number = self._change("glake_commit_ranges", ranges, stream)
        if answer == -errno.ENOMEM:
            error = library.last_error()
            raise Exhausted(f"glake_commit: {error['text']} ({error['class']})", number)
        library.check("glake_commit", answer)

    def _release(self, ranges, stream):
        self._live()
        ranges = [(first, end) for first, end in ranges if first < end]
        if not ranges:
            return 0
        self._wait(stream)
        answer, number = self._change("glake_decommit_ranges", ranges, stream)
        library.check("glake_decommit", answer)
        return number

    def _wait(self, stream):
        gpu = self._gpu()
        if stream is None and gpu:
            gpu.synchronize(self.device_id)

    def _inside(self, start, end):
        if not 0 <= start <= end <= self.capacity_bytes:
            raise Misuse(f"the range [{start}, {end}) of {self.capacity_bytes} bytes")
        return start, end

    # By bytes of the whole: as of vLLM's _VirtualBuffer and SGLang's KvVmmArena

    def ensure_committed_range(self, start, end, stream=None):
        """There is memory behind these bytes, in whole pages; what is there already stays."""
        self._commit([self._inside(start, end)], stream)

    def ensure_committed(self, nbytes, stream=None):
        self.ensure_committed_range(0, nbytes, stream)

    def commit_range(self, offset, want_bytes, stream=None):
        if offset % self.granularity:
            raise Misuse(f"the offset {offset} is no multiple of {self.granularity}")
        self._commit([self._inside(offset, offset + max(int(want_bytes), 0))], stream)

    def release_range(self, start, end, stream=None):
        """The pages that lie wholly in it go. How many bytes."""
        return self._release([self._inside(start, end)], stream)

    def release_physical(self, stream=None):
        """All pages go, and the addresses stay."""
        self._prefix = 0
        return self._release([(0, self.capacity_bytes)], stream)

    # By tokens, in all parts at once: as of SGLang's KvVmmBufferOwner

    def _back(self, tokens, spans, stream):
        self._live()
        self._commit([part.checked(span) for part, span in zip(self._parts, spans)], stream)
        self._prefix = max(self._prefix, tokens)

    def ensure_prefix(self, num_tokens, stream=None):
        """There is memory for the first tokens, in every part or in none."""
        self._back(num_tokens, [part.span(num_tokens) for part in self._parts], stream)

    def finalize(self, final_num_tokens, stream=None):
        """The same for as many as there are going to be."""
        if not self.page_size <= final_num_tokens <= self._tokens:
            raise Misuse(f"{final_num_tokens} tokens: {self.page_size} to {self._tokens}")
        self._back(final_num_tokens, [part.last(final_num_tokens) for part in self._parts], stream)

    def release_beyond(self, num_tokens, stream=None):
        """Pages of which none of the first tokens has anything go. How many bytes."""
        kept = [part.checked(part.span(num_tokens))[1] for part in self._parts]
        if all(end == part.offset for part, end in zip(self._parts, kept)):
            return self.release_physical(stream)  # also pages in which one part ends and the next begins
        self._prefix = min(self._prefix, num_tokens)
        return self._release([(end, part.end) for part, end in zip(self._parts, kept)], stream)

    # By bytes of each segment: as of vLLM's ExtensibleTensor

    def resize_per_segment_(self, bytes_per_segment, zero_new=False, stream=None):
        """Each segment's beginning has that many bytes, more or less than before, with zeros where it is longer."""
        old = self._alike().span(self._prefix)
        if bytes_per_segment < old:
            self.release_beyond(bytes_per_segment, stream)
            return
        self.ensure_prefix(bytes_per_segment, stream)
        if zero_new and bytes_per_segment > old:
            self._zero([(part.offset + old, part.offset + bytes_per_segment) for part in self._parts], stream)

    def _zero(self, ranges, stream):
        torch = sys.modules.get("torch")
        if view.on_host():
            for first, end in ranges:
                ctypes.memset(self.base_ptr + first, 0, end - first)
            return
        if not torch:
            raise GlakeError("zero_new is done by PyTorch")
        if stream is not None and not hasattr(stream, "cuda_stream"):
            stream = torch.cuda.ExternalStream(getattr(stream, "ptr", stream), device=self.device_id)
        full = self.full_view()
        with torch.cuda.stream(stream):  # None: the current one
            for first, end in ranges:
                full[first:end].zero_()

    def _alike(self):
        if not all(part.dtype == "uint8" and part.shape == self._parts[0].shape and len(part.shape) == 1
                   for part in self._parts) or not self._parts:
            raise Misuse("it has no segments of one size in bytes")
        return self._parts[0]

    # Tensors

    def _view(self, offset, shape, dtype):
        self._live()
        return view.View(self.base_ptr + offset, shape, view.rows(shape), dtype, self.device_id)

    def full_view(self):
        """A tensor of the bytes of all of it."""
        return self._view(0, (self.max_num_bytes,), "uint8").tensor()

    def segment_view(self, index):
        """One of the bytes that a segment has been resized to."""
        part = self._alike()
        if not 0 <= index < len(self._parts):
            raise IndexError(f"segment {index} of {len(self._parts)}")
        return self._view(self._parts[index].offset, (part.span(self._prefix),), "uint8").tensor()

    @property
    def tensors(self):
        """One for each part, of its whole shape."""
        if self._tensors is None:
            self._tensors = [self._view(part.offset, part.shape, part.dtype).tensor() for part in self._parts]
        return self._tensors

    def _whole(self):
        one = self._parts[0] if len(self._parts) == 1 else None
        return self._view(0, one.shape, one.dtype) if one else self._view(0, (self.max_num_bytes,), "uint8")

    def __dlpack__(self, **options):
        return self._whole().__dlpack__(**options)

    def __dlpack_device__(self):
        return self._whole().__dlpack_device__()

    # What there is

    @property
    def physical_bytes(self):
        """Bytes of its pages."""
        return self._query(self.base_ptr).committed if self.base_ptr else 0

    committed_bytes = backed_bytes = physical_bytes

    @property
    def num_physical_chunks(self):
        """How many pages there are, each an allocation of the driver by itself."""
        return self._query(self.base_ptr).pages if self.base_ptr else 0

    @property
    def num_tokens(self):
        """How many tokens from the first there is memory for, as far as it was asked for by tokens."""
        return self._prefix

    @property
    def num_bytes(self):
        return sum(part.span(self._prefix) for part in self._parts) if self._prefix else 0

    @property
    def bytes_per_segment(self):
        return self._alike().span(self._prefix)

    @property
    def segment_capacity_bytes(self):
        return self._alike().bytes

    @property
    def num_segments(self):
        return len(self._parts)

    @property
    def base(self):
        return self.base_ptr

    @property
    def reserved(self):
        return self.capacity_bytes

    reserved_size = reserved

    @property
    def device(self):
        name = "cpu" if view.on_host() else f"cuda:{self.device_id}"
        torch = sys.modules.get("torch")
        return torch.device(name) if torch else name

    def free(self, stream=None):
        """All of it goes, and tensors of it must not be used any more."""
        if self.base_ptr:
            self._wait(stream)
            address, self.base_ptr = self.base_ptr, 0
            self._prefix, self._tensors = 0, []
            self._give_back(address, stream)

    close = free

    def __del__(self):
        if getattr(self, "base_ptr", 0) and sys and not sys.is_finalizing():
            try:
                self.free()
            except GlakeError:
                pass  # it went with the library

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()
