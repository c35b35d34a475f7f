# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Which requests of a serving engine run, and which layers of their caches are on the GPU (planner.h of the library has how
it decides). Arithmetic alone: it needs no GPU. Times are ns of any clock.

    planner = glake.planner.Planner(layers=32, layer_bytes=16384, memory=20 << 30, out=25, back=25,
                                    prompt=(0, 86000, 1.7), step=(9e6, 0, 350), requests=256)
    id = planner.submit(now, prompt=8000, generated=512, first=3e9, token=200e6)
    work = planner.next(now)            IDLE, PROMPT or STEP: work.id and work.away, or work.batch
    ...
    planner.done(now)                   and planner.end(now, id) for each that has ended
    for move in planner.moves(now):     layers to copy; planner.moved(now, id, layer, layers) when they have been

Sums of ns may be numbers with a point; out and back are GB/s, which are bytes a ns.
"""

import collections
import ctypes
import errno

from . import library
from .library import GlakeError
from .records import Sized, many

LAYERS, FIRST, SWAP = range(3)
IDLE, PROMPT, STEP = range(3)
WAITS, PROMPTS, AWAY, COMES, RUNS = range(5)
LATE_FIRST, LATE_TOKEN, NO_ROOM = 1, 2, 4

Work = collections.namedtuple("Work", "what id away room flags batch takes")
Move = collections.namedtuple("Move", "id layer layers back deadline")


class _Options(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("layers", ctypes.c_uint32), *many(ctypes.c_uint64, "layer_bytes memory host"),
                *many(ctypes.c_double, "out back prompt prompt_token prompt_square step step_sequence step_token"),
                *many(ctypes.c_uint32, "requests batch"), ("policy", ctypes.c_int)]


class _Request(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint32, "prompt generated"), *many(ctypes.c_int64, "first token")]


class _Work(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("what", ctypes.c_int), *many(ctypes.c_uint32, "id away room flags count"),
                ("batch", ctypes.POINTER(ctypes.c_uint32)), ("takes", ctypes.c_int64)]


class _Copy(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint32, "id layer layers"), ("back", ctypes.c_int),
                ("deadline", ctypes.c_int64)]


class _State(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("stage", ctypes.c_int), *many(ctypes.c_uint32, "tokens here flags"),
                *many(ctypes.c_int64, "until ends")]


class _Figures(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint32, "waiting running away"),
                *many(ctypes.c_uint64, "memory used host prompts prompts_away steps out back held_off renegotiated"),
                *many(ctypes.c_double, "prompt_factor step_factor"), *many(ctypes.c_uint64, "layers_back layers_late")]


def _told(record):
    return {name: getattr(record, name) for name, _ in record._fields_ if name != "sz"}


class Planner:
    """One thread at a time may be in it."""

    def __init__(self, *, layers, layer_bytes, memory, out, back, prompt, step, requests, host=0, batch=0, policy=LAYERS):
        self._handle, self._lib, self._layers = None, library.load(), layers
        self._lib.glake_planner_close.restype = None
        options = _Options()
        names = "layers layer_bytes memory host out back requests batch policy".split()
        for name, value in zip(names, (layers, layer_bytes, memory, host, out, back, requests, batch, policy)):
            if value < 0 or value >= 1 << (64 if name in ("layer_bytes", "memory", "host") else 31):
                raise GlakeError(f"a planner with {name}={value}")
            setattr(options, name, value)
        for name, cost in (("prompt", prompt), ("step", step)):
            if len(cost) != 3:
                raise GlakeError(f"what a {name} takes is three numbers of ns")
        options.prompt, options.prompt_token, options.prompt_square = prompt
        options.step, options.step_sequence, options.step_token = step
        handle = ctypes.c_void_p()
        library.check("glake_planner_open", self._lib.glake_planner_open(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle

    def _call(self, name, *arguments):
        if not self._handle:
            raise GlakeError("the planner is closed")
        library.check(name, getattr(self._lib, name)(self._handle, *arguments))

    def submit(self, now, prompt, generated, first=0, token=0):
        """A request has come: its number."""
        request, number = _Request(), ctypes.c_uint32()
        if not (0 <= prompt < 1 << 32 and 0 <= generated < 1 << 32):
            raise GlakeError(f"a request of {prompt} and {generated} tokens")
        request.prompt, request.generated, request.first, request.token = prompt, generated, int(first), int(token)
        self._call("glake_planner_submit", ctypes.c_int64(int(now)), ctypes.byref(request), ctypes.byref(number))
        return number.value

    def end(self, now, id):
        self._call("glake_planner_end", ctypes.c_int64(int(now)), ctypes.c_uint32(id))

    def next(self, now):
        """What is to be computed, which is under way then: a Work."""
        work = _Work()
        self._call("glake_planner_next", ctypes.c_int64(int(now)), ctypes.byref(work))
        return Work(work.what, work.id, work.away, work.room, work.flags, work.batch[:work.count] if work.count else [],
                    work.takes)

    def done(self, now):
        self._call("glake_planner_done", ctypes.c_int64(int(now)))

    def moves(self, now):
        """All that is to be copied now: Moves, which are under way then."""
        found = []
        while self._handle:
            copy = _Copy()
            err = self._lib.glake_planner_move(self._handle, ctypes.c_int64(int(now)), ctypes.byref(copy))
            if err == -errno.EAGAIN:
                return found
            library.check("glake_planner_move", err)
            found.append(Move(copy.id, copy.layer, copy.layers, bool(copy.back), copy.deadline))
        raise GlakeError("the planner is closed")

    def moved(self, now, id, layer, layers, result=0):
        """They have, or could not, with an errno below 0."""
        self._call("glake_planner_moved", ctypes.c_int64(int(now)), *map(ctypes.c_uint32, (id, layer, layers)),
                   ctypes.c_int(result))

    def memory(self, now, bytes):
        self._call("glake_planner_memory", ctypes.c_int64(int(now)), ctypes.c_uint64(bytes))

    def state(self, id):
        """stage, tokens, here (layers), flags, until and ends."""
        state = _State()
        self._call("glake_planner_state_get", ctypes.c_uint32(id), ctypes.byref(state))
        return _told(state)

    def figures(self):
        figures = _Figures()
        self._call("glake_planner_figures_get", ctypes.byref(figures))
        return _told(figures)

    def close(self):
        handle, self._handle = self._handle, None
        if handle:
            self._lib.glake_planner_close(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
