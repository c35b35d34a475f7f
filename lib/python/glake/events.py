# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What was asked for and freed of late, and by which lines of Python, as PyTorch's pictures of memory have it:

    glake.use(events=100000)       so many requests and frees are remembered
    glake.history(100000)          the same from here on
    glake.use(events=100000, stacks=32)     with the innermost 32 frames of each request
    glake.history(100000, stacks=32)
    glake.snapshot("job.pickle")   blocks and events, with their frames, for pytorch.org/memory_viz
    glake.stacks()                 how many stacks were taken, and how many were not
"""

import atexit
import ctypes
import errno
import os
import pickle
import sys

from . import figures, library
from .library import GlakeError
from .records import Block, Record, Stacks

_ALL = 64  # frames of stacks=True
_WHY = {errno.ENOENT: "they need Python 3.9 or later",
        errno.EOPNOTSUPP: "Python ends, or has other interpreters than its main one",
        errno.EBUSY: "another thread is at it"}
_state = {"events": 0, "stacks": False}  # stacks: whether any were ever begun


def _load():
    lib = library.load()
    lib.glake_torch_stack_text.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)
    lib.glake_torch_stack_text.restype = ctypes.c_size_t
    lib.glake_torch_stacks_get.restype = None
    return lib


def _end():
    _load().glake_torch_stacks(0)


def _begin(depth):
    """From now on stacks are taken, of so many frames; 0 ends that and forgets them."""
    depth = _ALL if depth is True else int(depth)
    if depth < 0:
        raise GlakeError(f"stacks={depth}: a number of frames, 0 for none")
    if depth and not _state["stacks"]:
        atexit.register(_end)  # Python is whole then: nobody waits for a lock that is never given back
        _state["stacks"] = True
    answer = _load().glake_torch_stacks(min(depth, 1 << 16) or -1)
    if answer:
        why = _WHY.get(-answer) or os.strerror(-answer)
        raise GlakeError(f"stacks cannot be taken: {why}")


def stacks():
    """Figures of the stacks that were taken since glake.history(): `without` counts requests of
    threads that have none, `dropped` those for which there was no room."""
    counted = Stacks()
    _load().glake_torch_stacks_get(ctypes.byref(counted))
    return {name: getattr(counted, name) for name, _ in Stacks._fields_}


def _read(number):
    text, size = _load().glake_torch_stack_text, 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        used = text(number, buffer, size)
        if used <= size:
            return buffer.raw[:used]
        size = used


class _Frames(dict):
    """The frames of stacks by their numbers, innermost first, as PyTorch has them; each is read once,
    and those who ask for one have the same list."""

    def __missing__(self, number):
        rows = os.fsdecode(_read(number)).split("\0")[:-1] if number else []
        self[number] = [{"filename": file, "line": int(line), "name": name}
                        for line, name, file in zip(rows[::3], rows[1::3], rows[2::3])]
        return self[number]


def history(events=100000, *, stacks=0):
    """Begins to remember requests for snapshot(), and with `stacks` so many Python frames of who
    asked; 0 ends that. About 100 ns an event, and 1 us with 20 frames."""
    if stacks or _state["stacks"]:
        _begin(stacks if events else 0)
    if library.load().glake_torch_history(min(int(events), sys.maxsize)):
        raise GlakeError("there is no memory for a history")
    if library.watch:
        library.watch(int(events > 0))
    _state["events"] = int(events)


def _records(live):
    get = library.load().glake_torch_history_get
    records = (Record * (get(live, None, 0) + 1024))()  # others may add some
    return records[:min(get(live, records, len(records)), len(records))]


def _pages(device):
    """Live blocks by address, and the runs of pages that they touch: [first, last, blocks]."""
    lib, context = library.context()
    runs, about = [], Block()
    for record in sorted(_records(1), key=lambda r: r.address):
        if record.device != device or lib.glake_query(
                context, ctypes.c_void_p(record.address), ctypes.byref(about)):
            continue  # of another GPU, or freed meanwhile
        if about.away:
            continue  # it has no pages
        page, end = about.page_size, about.base + about.given
        if not runs or about.base // page * page > runs[-1][1]:
            runs.append([about.base // page * page, 0, []])
        runs[-1][1] = max(runs[-1][1], -(-end // page) * page)
        runs[-1][2].append((about.base, about.given, about.size, record.stream, record.stack))
    return runs


def _segments(device, frames):
    """The same as PyTorch shows its segments, with the room between blocks."""
    for first, last, live in _pages(device):
        blocks, end = [], first
        for base, size, asked, _, stack in [*live, (last, 0, 0, 0, 0)]:
            rows = ((end, base - end, 0, "inactive", []),
                    (base, size, asked, "active_allocated", frames[stack]))
            blocks += [dict(zip(("address", "size", "requested_size", "state", "frames"), row))
                       for row in rows if row[1]]
            end = base + size
        taken = sum(row[1] for row in live)
        yield {"device": device, "address": first, "total_size": last - first, "blocks": blocks,
               "allocated_size": taken, "active_size": taken, "stream": live[0][3],
               "requested_size": sum(row[2] for row in live), "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": True, "frames": []}


def snapshot(path=None):
    """The memory as pytorch.org/memory_viz takes it, also into a file: live blocks on the pages
    that they touch, and what was asked for and freed of late; with the frames of who asked where
    glake.history() was told to take them, of a free those of its request."""
    if not _state["events"]:
        raise GlakeError("nothing was remembered: call glake.use(events=100000) or "
                         "glake.history() before the memory is asked for")
    actions = ("alloc", "free_requested", "oom")
    frames = _Frames()
    traces = [[] for _ in range(library.call("glake_device_count"))]
    for record in _records(0):
        row = {"action": actions[record.action], "size": record.size, "stream": record.stream,
               "time_us": record.time_us, "frames": frames[record.stack]}
        row["device_free" if row["action"] == "oom" else "addr"] = record.address
        traces[record.device].append(row)
        if row["action"] == "free_requested":
            traces[record.device].append(dict(row, action="free_completed"))
    picture = {"segments": [s for i in range(len(traces)) for s in _segments(i, frames)],
               "device_traces": traces, "allocator_settings": {"backend": "glake"},
               "external_annotations": [], "glake": figures.stats()}
    if path:
        with open(path, "wb") as file:
            pickle.dump(picture, file, protocol=4)
    return picture
