# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What autograd keeps for the backward pass, on the host meanwhile. The package has this as its own:

    with glake.spilled_activations() as saved:
        loss = model(batch)
    loss.backward()
    print(saved.figures)

Its hooks keep the tensors themselves, so nothing is copied into others and results are the same to
the last bit: a storage that nobody but autograd holds goes away (glake_spill), where its memory
serves other work in stream order, and comes back to its addresses. PyTorch tells nobody when a
tensor is dropped, so those that were saved before are asked about when another one is.

Whoever uses a tensor on another stream than those it was made and saved on tells PyTorch
(record_stream), as before. The innermost hooks of PyTorch are the ones that apply: what a
checkpoint saves inside is its own, and what save_on_cpu copies too.
"""

import bisect
import collections
import contextlib
import ctypes
import errno
import sys
import threading
import weakref

from . import library, pytorch
from .library import GlakeError
from .records import Block

SMALL = 256 << 10  # blocks up to that share their pages with others and cannot move
_LOOKS = 16  # storages asked about at each tensor that is saved, of those that are new,
_NEW = 64  # which they are for so many times; then they are asked about one at a time
_REFUSALS = {-errno.EALREADY: "elsewhere", -errno.EINVAL: "foreign", -errno.EBUSY: "in use",
             -errno.EAGAIN: "suspended", -errno.ENOMEM: "no room"}


class Mover:
    """Moves storages of PyTorch by the library, behind the streams of PyTorch."""

    def __init__(self):
        self.torch, self.side = pytorch.module(), {}  # a stream for each GPU that things come on
        # without an object of Python around it, if this PyTorch has that
        self.raw_stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None)
        if not library.plugged:
            raise GlakeError("PyTorch's memory is not glake's: call glake.use() first")

    def why_not(self, tensor, storage):
        """Why a storage cannot move, in a word or two; None if it can."""
        if not tensor.is_cuda:
            return "not on a GPU"
        if not storage.resizable():
            return "foreign"  # the owner may be another library, which counts for itself
        lib, context = library.context()
        about, address = Block(), storage.data_ptr()
        if lib.glake_query(context, ctypes.c_void_p(address), ctypes.byref(about)) or (
                about.base != address or about.size != storage.nbytes()):
            return "foreign"
        return "of a graph" if about.pool_high or about.pool_low else None

    def stream(self, tensor):
        """The current one, by its address."""
        if self.raw_stream:
            return self.raw_stream(tensor.get_device())
        return self.torch.cuda.current_stream(tensor.device).cuda_stream

    def capturing(self):
        return self.torch.cuda.is_current_stream_capturing()

    def not_captured(self):
        if self.capturing():
            raise GlakeError("contents that are away cannot come while a graph is captured: "
                             "capture where nothing is spilled")

    def spill(self, tensor, storage, streams):
        """Behind work on these streams; why not, or None."""
        lib, context = library.context()
        address = ctypes.c_void_p(storage.data_ptr())
        now = self.stream(tensor)
        for stream in streams:
            if stream != now:
                lib.glake_use(context, address, ctypes.c_void_p(stream))
        answer = lib.glake_spill(context, address, ctypes.c_void_p(now))
        if answer and answer not in _REFUSALS:
            raise _error("glake_spill", answer)
        return _REFUSALS.get(answer)

    def fetch(self, tensor, storage):
        """
        Begins to bring it back, on a stream of its own: none but who calls arrive() waits for the
        copy, while others are under way. What to wait for, or None where there is no memory.
        """
        torch = self.torch
        self.not_captured()
        if tensor.device not in self.side:
            self.side[tensor.device] = torch.cuda.Stream(tensor.device)
        side = self.side[tensor.device]
        lib, context = library.context()
        answer = lib.glake_fetch(context, ctypes.c_void_p(storage.data_ptr()),
                                 ctypes.c_void_p(side.cuda_stream))
        if answer == -errno.ENOMEM:
            return None
        if answer:
            raise _error("glake_fetch", answer)
        arrival = torch.cuda.Event()
        arrival.record(side)
        return arrival

    def arrive(self, tensor, arrival):
        """Work on the current stream from here on may use it."""
        self.not_captured()
        self.torch.cuda.current_stream(tensor.device).wait_event(arrival)

    def no_memory(self, size):
        return self.torch.cuda.OutOfMemoryError(
            f"CUDA out of memory. {size} bytes that are away cannot be fetched: "
            + library.last_error()["text"])


def _error(call, answer):
    record = library.last_error()
    return GlakeError(f"{call}: {record['text'] or answer} ({record['class']})")


def unasked(torch):
    """Calls of PyTorch are made directly, past whoever looks on: a default device costs each 3 us."""
    return getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)


def local(tensor):
    """The part of a distributed tensor that lies here."""
    return getattr(tensor, "_local_tensor", tensor)


_HERE, _AWAY, _AHEAD, _STAYS = range(4)


class _Storage:
    """A storage, and all tensors that are kept of it. PyTorch's memory goes with the last of those
    who keep this, wherever the contents are."""

    __slots__ = ("key", "size", "state", "storage", "kept", "serial", "streams", "arrival", "asked",
                 "ends", "__weakref__")

    def __init__(self, storage, serial, ends):
        self.key, self.size, self.storage = storage._cdata, storage.nbytes(), storage
        self.state, self.serial, self.ends = _HERE, serial, ends
        self.kept, self.streams, self.arrival, self.asked = [], [], None, 0

    def __del__(self):
        # in whatever thread, also inside of a call of this file: others add it up
        self.ends.append((self.key, self.state, self.size))


class _Saved:
    """What autograd keeps instead of a tensor."""

    __slots__ = ("tensor", "version", "of")

    def __init__(self, tensor, version, of):
        self.tensor, self.version, self.of = tensor, version, of


class Holders:
    """Whether anybody else holds a storage: its tensors are counted by PyTorch, and those who have the
    storage itself by Python. Counted here first with one that nobody else has."""

    def __init__(self, torch):
        self.count = getattr(torch._C, "_storage_Use_Count", None)
        self.references = 0
        if self.count:
            tensor = torch.empty(4, device="cpu")
            probe = _Storage(tensor.detach().untyped_storage(), 0, [])
            probe.kept.append(tensor.detach())
            held = self.count(probe.key)
            del tensor
            self.references = sys.getrefcount(probe.storage)
            if held == 3 and self.count(probe.key) == 2 and self.none(probe):
                return
        raise GlakeError(f"PyTorch {torch.__version__} does not tell who uses a storage: "
                         "2.4 and 2.11 do")

    def none(self, entry):
        return (self.count(entry.key) == len(entry.kept) + 1
                and sys.getrefcount(entry.storage) == self.references)


class spilled_activations:
    """
    Sends what autograd saves for the backward pass to the host as soon as nobody else holds it, and
    brings it back when the backward pass comes near. Can be entered again, and its figures go on.

    cap      bytes that may be away at a time, 0.25 for a quarter of what could go, None for all
    ahead    bytes to fetch before they are asked for, which is room that the backward pass needs
    minimum  bytes of a storage that is worth to be moved
    """

    def __init__(self, cap=None, ahead=1 << 30, minimum=1 << 20):
        if isinstance(cap, float) and not 0 <= cap <= 1:
            raise GlakeError(f"cap={cap}: a share is between 0.0 and 1.0, bytes are an int")
        for name, size in (("cap", cap), ("ahead", ahead), ("minimum", minimum)):
            if size is not None and size < 0:
                raise GlakeError(f"{name}={size}: no number of bytes")
        self._cap, self._ahead, self._minimum = cap, ahead, max(minimum, SMALL + 1)
        self._mover, self._lock = Mover(), threading.RLock()
        import torch  # it is there
        self._plain, self._strided, self._holders = torch.Tensor, torch.strided, Holders(torch)
        self._usual, self._unasked = (torch.Tensor, torch.nn.Parameter), unasked(torch)
        self._entries = {}  # by the address of PyTorch's own record: who is kept, weakly
        self._new, self._old = collections.deque(), collections.deque()  # what others hold still
        self._line = []  # what is away, (when it was saved, who), by that
        self._long = 1024
        self._ends = collections.deque()  # addresses, states and sizes of what was dropped
        self._serial = self._away = self._fetched = 0
        self._seen = self._went = 0  # bytes of a pass that could go, and that went
        self._left = 0  # bytes that were here and were dropped since something was saved
        self._hooks = torch.autograd.graph.saved_tensors_hooks
        self._active = []
        self._figures = dict.fromkeys(
            "spilled spilled_bytes peak_away fetched_ahead fetched_ahead_bytes fetched_late "
            "fetched_late_bytes dropped dropped_bytes ahead_refused".split(), 0)
        self._skipped = collections.Counter()

    @property
    def figures(self):
        """Storages and bytes that went and came; those that stayed, by reason."""
        with self._lock:
            self._settle()
            return dict(self._figures, away_bytes=self._away, skipped=dict(self._skipped))

    def __enter__(self):
        hooks = self._hooks(self._pack, self._unpack)
        with self._lock:
            if not self._active:  # the same goes in each of equal passes
                self._seen = self._went = 0
        hooks.__enter__()
        self._active.append(hooks)
        return self

    def __exit__(self, *about):
        self._active.pop().__exit__(*about)

    def _settle(self):
        while self._ends:
            key, state, size = self._ends.popleft()
            # another storage may have come to the address of one that was dropped
            if key in self._entries and self._entries[key]() is None:
                del self._entries[key]
            if state == _AWAY:
                self._away -= size
                self._figures["dropped"] += 1
                self._figures["dropped_bytes"] += size
            elif state == _AHEAD:
                self._fetched -= size
            else:
                self._left += size

    def _pack(self, tensor):
        if type(tensor) not in self._usual:  # whose own functions may be what makes it that
            return self._keep(tensor)
        with self._unasked():
            return self._keep(tensor)

    def _keep(self, tensor):
        kept = tensor.detach()  # the tensor itself would be a cycle where it is a result
        inner = kept if type(kept) is self._plain else local(kept)
        with self._lock:
            if self._ends:
                self._settle()
            self._left = 0
            entry = self._enter(tensor, kept, inner)
        return _Saved(kept, kept._version, entry)  # which both count

    def _enter(self, tensor, kept, inner):
        """The storage of a tensor that is saved; None if it stays for sure."""
        if type(inner) is not self._plain or inner.layout != self._strided:
            self._skipped["of another kind"] += 1  # of PyTorch's compiler, maybe, that looks on
            return None
        storage = inner.untyped_storage()
        entry = self._entries.get(storage._cdata)
        entry = entry and entry()
        if entry is None:
            if storage.nbytes() < self._minimum:
                self._skipped["small"] += 1
                return None
            of = tensor._base if tensor._is_view() else tensor
            if of.is_leaf and of.requires_grad:
                self._skipped["parameter"] += 1
                return None
            entry = self._begin(inner, storage)
        entry.kept.append(kept)
        if entry.state == _HERE:
            stream = self._mover.stream(inner)
            if stream not in entry.streams:
                entry.streams.append(stream)
        return entry

    def _begin(self, inner, storage):
        """A storage that is met for the first time; those met before are asked about then."""
        captured = self._mover.capturing()
        if not captured:
            self._look()
        self._serial += 1
        entry = _Storage(storage, self._serial, self._ends)
        here = self._entries[entry.key] = weakref.ref(entry)
        why = self._mover.why_not(inner, storage) or ("captured" if captured else None)
        if why:
            self._stays(entry, why)
        else:
            self._new.append(here)
        return entry

    def _stays(self, entry, why):
        entry.state = _STAYS
        self._skipped[why] += 1

    def _look(self):
        """Sends away what nobody else holds any more. A few are asked about at a time, in turn."""
        for waiting, most in (self._new, _LOOKS), (self._old, 1):
            for _ in range(min(len(waiting), most)):
                who = waiting.popleft()
                entry = who()
                if entry is None or entry.state != _HERE:
                    continue
                if self._holders.none(entry):
                    self._send(entry)
                    continue
                entry.asked += 1
                (self._new if entry.asked < _NEW else self._old).append(who)

    def _send(self, entry):
        size, cap = entry.size, self._cap
        self._settle()
        self._seen += size
        if isinstance(cap, float):
            over = self._went + size > cap * self._seen
        else:
            over = cap is not None and self._away + size > cap
        why = "cap" if over else self._mover.spill(local(entry.kept[0]), entry.storage, entry.streams)
        if why:
            self._stays(entry, why)
            return
        entry.state = _AWAY
        self._away += size
        self._went += size
        self._figures["spilled"] += 1
        self._figures["spilled_bytes"] += size
        self._figures["peak_away"] = max(self._figures["peak_away"], self._away)
        bisect.insort(self._line, (entry.serial, weakref.ref(entry)))
        if len(self._line) > self._long:  # many were dropped, maybe
            self._line = [row for row in self._line if row[1]() is not None]
            self._long = 2 * len(self._line) + 1024

    def _unpack(self, saved):
        entry = saved.of
        if entry is not None:
            with self._lock, self._unasked():
                self._need(entry)
        if saved.tensor._version != saved.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: it is at version {saved.tensor._version}; expected version "
                f"{saved.version} instead")
        return saved.tensor

    def _need(self, entry):
        self._settle()
        was = entry.state
        if was == _AWAY:
            self._bring(entry, "fetched_late")
            del self._line[bisect.bisect_left(self._line, (entry.serial,))]
        elif was == _AHEAD:
            self._fetched -= entry.size
        entry.state = _STAYS  # it may be asked for again, and will not go again
        if entry.arrival is not None:
            self._mover.arrive(local(entry.kept[0]), entry.arrival)
        # what stayed is asked for first: half of the room that it leaves is not asked for again
        room = self._ahead if was in (_AWAY, _AHEAD) else min(self._ahead, self._left // 2)
        self._fetch_ahead(entry.serial, room)

    def _bring(self, entry, how):
        """False where there is no memory for what is not asked for yet."""
        arrival = self._mover.fetch(local(entry.kept[0]), entry.storage)
        if arrival is None and how == "fetched_ahead":
            return False
        if arrival is None:
            raise self._mover.no_memory(entry.size)
        entry.arrival = arrival
        self._away -= entry.size
        self._figures[how] += 1
        self._figures[how + "_bytes"] += entry.size
        return True

    def _fetch_ahead(self, serial, room):
        """What was saved before will be asked for next."""
        line = self._line
        while room > self._fetched:
            at = bisect.bisect_left(line, (serial,)) - 1
            if at < 0:
                return
            entry = line[at][1]()
            if entry is not None and entry.state == _AWAY:
                if self._fetched + entry.size > room and (self._fetched or room < self._ahead):
                    return
                if not self._bring(entry, "fetched_ahead"):
                    self._figures["ahead_refused"] += 1
                    return
                entry.state = _AHEAD
                self._fetched += entry.size
            del line[at]
