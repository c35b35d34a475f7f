# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl try: what a job would hold under PyTorch's two allocators and under glake, side by side. glake's row is a replay;
PyTorch's are models of its CUDACachingAllocator: sizes in 512 bytes, pools of small and large blocks for each stream, best
fit, pieces split and merged, memory never given back. On four recorded jobs they hold 1 % less to 4 % more than PyTorch
held, and 10 % more for the default under FSDP: they know nothing of blocks that wait for another stream, or of memory that
was short.
"""

import bisect
import contextlib
import json
import re

from . import tool

HELP = """\
usage: glakectl try [OPTION]... TRACE

Shows how much GPU memory a job would hold under PyTorch's default allocator, under its
expandable segments and under glake. TRACE is one that glake recorded, a log of RAPIDS
Memory Manager, or a snapshot of PyTorch; - is standard input. Nothing is adopted by it:
PyTorch's rows are models, glake's is a replay on the software device.

  -g, --gpu N           of a trace with several GPUs, the events of this one
  -c, --conf KEY=VALUE  set a key of glake.conf(5); repeatable
  -L, --lenient         skip and count rows that are wrong
  -j, --json            the report as JSON
  -h, --help            this text
"""
MIB = 1 << 20
SMALL = MIB  # up to which a block is of the small pool
GRAIN = 512


class Pool:
    """Free pieces of one stream and size class, by size; their neighbours by address."""

    def __init__(self, is_small, grows):
        self.is_small, self.grows = is_small, grows
        self.free, self.ends, self.starts = [], {}, {}  # (size, address); end: size; start: size
        self.held, self.top = 0, 0

    def _enter(self, at, size):
        bisect.insort(self.free, (size, at))
        self.starts[at], self.ends[at + size] = size, size

    def _leave(self, at, size):
        del self.free[bisect.bisect_left(self.free, (size, at))]
        del self.starts[at], self.ends[at + size]

    def _grow(self, size):
        """More memory of the driver: a piece of its own, or what is missing behind the last one."""
        if self.grows:
            page, last = (2 if self.is_small else 20) * MIB, self.ends.get(self.top, 0)
            more = -(-(size - last) // page) * page
            if last:
                self._leave(self.top - last, last)
            at, size = self.top - last, last + more
            self.top += more
        else:
            size = 2 * MIB if self.is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            more, at = size, self.top + GRAIN  # which keeps it apart from others
            self.top = at + size
        self.held += more
        self._enter(at, size)

    def take(self, size):
        found = bisect.bisect_left(self.free, (size, 0))
        if found == len(self.free):
            self._grow(size)
            found = bisect.bisect_left(self.free, (size, 0))
        have, at = self.free[found]
        self._leave(at, have)
        left = have - size
        if left >= GRAIN and (self.is_small or self.grows) or left > SMALL:
            self._enter(at + size, left)
            have = size
        return at, have

    def give(self, at, size):
        before, behind = self.ends.get(at, 0), self.starts.get(at + size, 0)
        if behind:
            self._leave(at + size, behind)
        if before:
            self._leave(at - before, before)
        self._enter(at - before, before + size + behind)


def model(rows, grows, name=""):
    """The most that was held. Rows: (pointer, bytes or None for a free, stream)."""
    pools, blocks, most, held = {}, {}, 0, 0
    for pointer, size, stream in tool.watched(rows, name):
        if size is None:
            if pointer in blocks:
                pool, at, size = blocks.pop(pointer)
                pool.give(at, size)
            continue
        size = max(-(-size // GRAIN), 1) * GRAIN
        key = (stream, size <= SMALL)
        pool = pools.get(key) or pools.setdefault(key, Pool(key[1], grows))
        before = pool.held
        blocks[pointer] = (pool, *pool.take(size))
        held += pool.held - before
        most = max(most, held)
    return most


def events(text):
    """Rows of a log of RMM, as glakectl trace convert writes it."""
    lines = text.splitlines()
    names = lines[0].split(",")
    action, pointer, size, stream = (names.index(name) for name in ("Action", "Pointer", "Size", "Stream"))
    for line in lines[1:]:
        row = line.split(",")
        if row[action] == "allocate":
            yield row[pointer], int(row[size]), row[stream]
        elif row[action] == "free":
            yield row[pointer], None, None


def run(words):
    given, rest = tool.options("try", HELP, words)
    gpu = [word for value in given.get("gpu", ()) for word in ("--gpu", value)]
    lenient = ["--lenient"] * ("lenient" in given)
    with contextlib.ExitStack() as stack:
        path = tool.spooled(rest[0], stack)
        status, text = tool.run("trace", ["convert", "-q", "-f", "csv", *gpu, *lenient, "--", path])
        if status:
            raise tool.Failure(status=status)
        rows = list(events(text.decode()))
        conf = [word for value in given.get("conf", ()) for word in ("--conf", value)]
        found = {}
        for name, more in (("glake", []), ("glake, policy.target=1.005", ["--conf", "policy.target=1.005"])):
            status, found[name] = tool.run_json("replay", ["-d", "soft", "-r", "1", *gpu, *lenient, *conf, *more, "--", path])
            if status:
                return status
    live = found["glake"]["peak_live_bytes"]
    held = [(name, model(rows, grows, name), True)
            for name, grows in (("PyTorch, default", False), ("PyTorch, expandable segments", True))]
    held += [(name, one["peak_reserved_bytes"], False) for name, one in found.items()]
    name = re.sub(r"[^ -~]", "?", found["glake"]["trace"]) if rest[0] != "-" else "standard input"
    if "json" in given:
        print(json.dumps({"trace": name, "peak_live_bytes": live, "allocators": [
            {"name": who, "model": is_model, "reserved_bytes": size, "reserved_over_live": size / live if live else 0}
            for who, size, is_model in held]}, indent=2))
        return 0
    print(f"{name}: {tool.bytes_text(live)} live at the peak\n")
    for who, size, is_model in held:
        print(f"  {who:<30}{tool.bytes_text(size):>9}  x{size / max(live, 1):.3f}{'  (a model)' * is_model}")
    return 0


if __name__ == "__main__":
    tool.main("try", run)
