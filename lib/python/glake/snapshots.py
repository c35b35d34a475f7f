# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl snapshot: the memory of a running process as a snapshot of PyTorch's own allocator, for what reads those:
pytorch.org/memory_viz, torch/cuda/_memory_viz.py. A segment there is memory side by side that blocks are cut from;
here, a stretch of addresses of one arena with memory of the GPU behind all of it. What lies on the host is no memory
of the GPU, and is left out. Who asked for the blocks is what the process tells, each stack once.
"""

import datetime
import pickle
import re
import time

from . import process, space, tool

HELP = """\
usage: glakectl snapshot [OPTION]... [PID|PROGRAM] -o FILE

Writes the memory of a process that runs with glake and rpc.socket=yes as a snapshot of
PyTorch's allocator, which pytorch.org/memory_viz opens.

  -o, --output FILE  where to, as job.pickle
  -g, --gpu N        of this GPU alone
  -t, --trace FILE   with the events of this trace, as the process records it
  -h, --help         show this help
"""
STATES = {"live": "active_allocated", "limbo": "active_pending_free"}
HERE = ("live", "quick", "idle", "limbo", "rest")  # with memory, if all of it is on the GPU
PATIENCE = 60  # seconds in which a process may tell who asked
FRAMES, STACKS = 1024, 1 << 21


class Frames:
    """Who asked for blocks, by their addresses; a stack that is gone meanwhile has no frames."""

    def __init__(self, pid):
        self.pid, self.end = pid, time.monotonic() + PATIENCE
        self.blocks, self.stacks = {}, {}
        start = 0
        while start is not None:
            if time.monotonic() > self.end:
                raise tool.Failure(f"glakectl: process {pid}: it has told of who asks for a minute, and goes on")
            try:
                said = process.ask(pid, "origins", **{"from": start})
            except process.Refused as refused:
                if refused.code:  # of a library that is older than stacks
                    return
                raise tool.Failure(f"glakectl: process {pid}: {refused}") from refused
            except OSError as error:
                raise tool.Failure(f"glakectl: process {pid}: {error.strerror or error}") from error
            start = self._take(said, start)

    def _take(self, said, start):
        """The blocks of an answer; where the next ones begin."""
        rows, after = (said.get(key) if isinstance(said, dict) else None for key in ("blocks", "next"))
        right = isinstance(rows, (str, type(None))) and re.fullmatch(r"([0-9a-fA-F]{1,16} [0-9a-fA-F]{1,16};)*", rows or "")
        if not right or (after and (not isinstance(after, int) or after <= start)):
            raise tool.Failure(f"glakectl: process {self.pid}: what it answers is not who asked")
        for row in (rows or "").split(";")[:-1]:
            address, stack = row.split()
            self.blocks[int(address, 16)] = int(stack, 16)
        return after or None

    def _stack(self, number):
        said = None
        if time.monotonic() < self.end and len(self.stacks) < STACKS:
            try:
                said = process.ask(self.pid, "stack", stack=number)
            except process.Refused as refused:
                self.end = self.end if refused.code else 0  # one that does not answer is not asked again
            except OSError:
                self.end = 0
        rows = [row if isinstance(row, dict) else {} for row in said[:FRAMES]] if isinstance(said, list) else []
        return [{"filename": str(row.get("file", "")), "line": row["line"] if isinstance(row.get("line"), int) and
                 0 <= row["line"] < 1 << 31 else 0, "name": str(row.get("name", ""))} for row in rows]

    def of(self, address):
        """The frames of the block that begins there; those who have the same have the same list."""
        number = self.blocks.get(address)
        if number is None:
            return []
        if number not in self.stacks:
            self.stacks[number] = self._stack(number)
        return self.stacks[number]


def _segments(gpu, frames):
    """Runs side by side of one arena, that are on the GPU, as segments."""
    group, groups = [], []
    for run in gpu["runs"]:
        if run["state"] not in HERE or run["gpu_bytes"] != run["size"]:
            group = []
            continue
        last = group[-1] if group else None
        if last and last["address"] + last["size"] == run["address"] and all(
                last.get(key) == run.get(key) for key in ("arena", "pool")):
            group.append(run)
        else:
            group = [run]
            groups.append(group)
    for group in groups:
        live = [run for run in group if run["state"] == "live"]
        streams = {run["stream"] for run in live}
        pending = sum(run["size"] for run in group if run["state"] == "limbo")
        taken = sum(run["size"] for run in live)
        yield {"device": gpu["gpu"], "address": group[0]["address"], "total_size": sum(run["size"] for run in group),
               "allocated_size": taken, "active_size": taken + pending, "requested_size": sum(run["asked"] for run in live),
               "stream": streams.pop() if len(streams) == 1 else 0, "segment_type": "large",
               "segment_pool_id": list(group[0].get("pool", (0, 0))), "is_expandable": True, "frames": [], "blocks": [
                   {"address": run["address"], "size": run["size"], "requested_size": run.get("asked", 0),
                    "state": STATES.get(run["state"], "inactive"),
                    "frames": frames.of(run["address"]) if run["state"] == "live" else []} for run in group]}


def _events(trace, gpu, began):
    """What PyTorch's allocator would have noted of a trace. A freed block is there again at once: two events."""
    status, text = tool.run("trace", ["convert", "--quiet", "--format", "csv", "--gpu", str(gpu), "--", trace])
    if status:
        raise tool.Failure(status=status)
    whole, sizes = 86400 * 10**6, {}
    day, before = began // whole * whole, began % whole
    for line in text.decode().splitlines()[1:]:
        _, at, action, address, size, stream = line.split(",")
        hour, minute, second = at.split(":")
        us = ((int(hour) * 60 + int(minute)) * 60) * 10**6 + round(float(second) * 10**6)
        day += whole * (us < before)
        before = us
        row = {"addr": 0 if address == "(nil)" else int(address, 16), "size": int(size), "stream": int(stream, 0),
               "time_us": day + us, "frames": []}
        if action == "allocate failure":
            yield {"action": "oom", "device_free": 0, **row}
        elif action == "allocate":
            sizes[row["addr"]] = row["size"]
            yield {"action": "alloc", **row}
        else:
            row["size"] = sizes.pop(row["addr"], row["size"])
            yield {"action": "free_requested", **row}
            yield {"action": "free_completed", **row}


def run(words):
    """The command; its exit status."""
    given, rest = tool.options("snapshot", HELP, words, fewest=0)
    path = given.get("output", [None])[-1]
    if not path:
        raise tool.usage("snapshot", "-o names the file to write")
    tool.keep("snapshot", path, given.get("trace", ["-"])[-1])
    only = tool.number("snapshot", given, "gpu", tool.GPUS - 1, -1, 0)
    found, missing = space.read(rest[0] if rest else None, only)
    frames = Frames(found["pid"])
    gpus, traces = found["gpus"], []
    if "trace" in given:
        name = given["trace"][-1]
        began = tool.run_json("trace", ["show", "--quiet", "--", name])[1].get("started")
        began = int(datetime.datetime.strptime(began, "%Y-%m-%dT%H:%M:%S%z").timestamp()) * 10**6 if began else 0
        traces = [list(_events(name, gpu, began)) for gpu in range(max(gpu["gpu"] for gpu in gpus) + 1)]
    else:
        traces = [[] for _ in range(max((gpu["gpu"] for gpu in gpus), default=-1) + 1)]
    snapshot = {"segments": [segment for gpu in gpus for segment in _segments(gpu, frames)], "device_traces": traces,
                "allocator_settings": {}, "external_annotations": []}
    with tool.output(path) as write:
        write(pickle.dumps(snapshot, protocol=2))
    space.say_changed({"gpus": gpus})
    return int(missing)


if __name__ == "__main__":
    tool.main("snapshot", run)
