# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Snapshots of PyTorch's allocator as rows of a trace, for glakectl, which starts this module with the file as its
standard input: what torch.cuda.memory._dump_snapshot() wrote, or what _snapshot() or memory_snapshot() gave, as a
pickle or as JSON. Nothing that a pickle names is run.

A block is freed when the program frees it (free_requested); what else the allocator does is no event of the program.
A snapshot has no more than the last events, so blocks were live before the first of them: those that are freed and
were never allocated, and those that are live at the end and were not either. The rows begin with them.
"""

import heapq
import json
import os
import pickle
import resource
import struct
import sys

GPUS = 256  # that a row can tell
ROOM, ROOM_A_BYTE = 1 << 30, 64  # of memory; an empty dict has 64 bytes for the one that names it
SECONDS = 60  # of a processor, and one for each MiB, which takes a tenth
ALLOCATE, FREE, FAILURE, OPENED, BEGIN, END, WRONG = range(7)
KINDS = {"alloc": ALLOCATE, "free_requested": FREE, "oom": FAILURE}
_RECORD = struct.Struct("=qQQQQII")  # as in lib/tool/trace_pickle.c
_MOST = (1 << 64) - 1


class Wrong(Exception):
    """What cannot be a snapshot, or not be read."""


class _Unpickler(pickle.Unpickler):
    """Makes texts, numbers, lists and dicts, and nothing else."""

    def find_class(self, module, name):
        if (module, name) == ("torch.jit._pickle", "restore_type_tag"):
            return lambda value, tag: value  # the mark that the C++ side of PyTorch puts on its dicts and lists
        raise Wrong(f"a pickle that names {module}.{name}, as no snapshot does")

    def persistent_load(self, pid):
        raise Wrong("a pickle with objects from elsewhere, as no snapshot has")


def load(file):
    """What a snapshot holds: its segments, and the events of each GPU."""
    file.seek(0)  # whoever has opened it has looked at its beginning
    begin = file.read(1)
    file.seek(0)
    found = _Unpickler(file).load() if begin == b"\x80" else json.load(file)
    if isinstance(found, list):  # of memory_snapshot()
        found = {"segments": found, "device_traces": []}
    traces, segments = (found.get(key) if isinstance(found, dict) else None for key in ("device_traces", "segments"))
    if not isinstance(traces, (list, tuple)) or not all(isinstance(trace, (list, tuple)) for trace in traces):
        raise Wrong("no snapshot of PyTorch's, which has device_traces")
    if not isinstance(segments, (list, tuple)):
        segments = []
    segments = [segment for segment in segments if isinstance(segment, dict)]
    lists = [*traces, *(segment.get("blocks") for segment in segments)]
    if len({id(one) for one in lists if one}) != sum(bool(one) for one in lists):
        raise Wrong("a file that names its lists again and again, as no snapshot does")
    return segments, traces


def _number(row, key):
    value = row.get(key)
    return value & _MOST if isinstance(value, int) else None


class Rows:
    """The records of a snapshot, in order; what was skipped of it is counted."""

    def __init__(self, segments, traces, lenient=False):
        if len(traces) > GPUS:
            raise Wrong(f"more than {GPUS} GPUs")
        self.segments, self.traces, self.lenient = segments, traces, lenient
        self.read, self.skipped = 0, 0
        times = [_number(trace[0], "time_us") or 0 for trace in traces if trace and isinstance(trace[0], dict)]
        self.first = min(times, default=0)
        self.seen = [set() for _ in range(max(len(traces), GPUS if not traces else 0))]

    def _opened(self):
        """Blocks that were live before the first event."""
        for gpu, trace in enumerate(self.traces):
            seen = self.seen[gpu]
            for event in trace:
                address = event.get("addr") if isinstance(event, dict) else None
                action = isinstance(address, int) and event.get("action")
                if not address or action not in ("alloc", "free_requested", "free_completed") or address in seen:
                    continue
                seen.add(address)
                if action == "free_requested" and _number(event, "size"):
                    yield gpu, address & _MOST, _number(event, "size"), _number(event, "stream") or 0
        for segment in self.segments:
            gpu = segment.get("device")
            if not isinstance(gpu, int) or not 0 <= gpu < len(self.seen):
                continue
            for block in segment.get("blocks") or ():
                if not isinstance(block, dict) or block.get("state") != "active_allocated":
                    continue
                address = _number(block, "address")
                size = _number(block, "requested_size")
                size = _number(block, "size") if size is None else size
                if address and size and address not in self.seen[gpu]:
                    self.seen[gpu].add(address)
                    yield gpu, address, size, _number(segment, "stream") or 0

    def _events(self, gpu):
        for number, event in enumerate(self.traces[gpu]):
            self.read += 1
            kind = KINDS.get(event.get("action")) if isinstance(event, dict) else None
            if kind is None:
                continue
            size, address = _number(event, "size"), _number(event, "addr") or 0
            if size is None or (kind != FAILURE and "addr" not in event):
                if not self.lenient:
                    raise Wrong(f"event {self.read}: it has no size, or no address")
                self.skipped += 1
                continue
            yield (_number(event, "time_us") or 0) & (_MOST >> 1), gpu, number, kind, address, size, _number(event, "stream") or 0

    def __iter__(self):
        for gpu, address, size, stream in self._opened():
            yield self.first & (_MOST >> 1), address, size, stream, 0, OPENED, gpu
        for time, gpu, number, kind, address, size, stream in heapq.merge(*map(self._events, range(len(self.traces)))):
            yield time, address, size, stream, number + 1, kind, gpu


def main(words):
    """The command of glakectl's."""
    out = os.fdopen(1, "wb")
    # a few bytes may ask for more than the machine has, and keys of one hash for hours
    size = os.fstat(0).st_size
    for limit, most in ((resource.RLIMIT_AS, ROOM + ROOM_A_BYTE * size), (resource.RLIMIT_CPU, SECONDS + (size >> 20))):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        rows = Rows(*load(os.fdopen(0, "rb")), lenient="lenient" in words)
        out.write(_RECORD.pack(rows.first & (_MOST >> 1), 0, 0, 0, 0, BEGIN, 0))
        for row in rows:
            out.write(_RECORD.pack(*row))
        out.write(_RECORD.pack(0, rows.read, rows.skipped, 0, 0, END, 0))
    except Exception as error:  # whatever a broken file makes of the reader
        text = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            text = "no memory for what it holds"
        elif not isinstance(error, Wrong):
            text = f"it cannot be read: {text}"
        text = "".join(c if c.isprintable() else "?" for c in text).encode(errors="replace")
        out.write(_RECORD.pack(0, 0, len(text), 0, 0, WRONG, 0) + text)
    out.close()


if __name__ == "__main__":
    try:
        main(sys.argv[2:])
    except (BrokenPipeError, KeyboardInterrupt):  # who asked has seen enough
        os._exit(1)
