#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Two threads on two streams share nothing of a hit, nor of a miss where the lock of the GPU is divided. valgrind lists each access to memory of a
program in which two threads allocate and free in turn, and no line of 64 bytes that one of them
writes may be one that the other reads or writes: a shared line makes two threads as slow as one,
whatever the machine. How much faster two are is told by `glakectl bench alloc`, on a machine that
does nothing else.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../flow"))
from callgrind import build_in  # noqa: E402
from tap import done, note, ok, start  # noqa: E402

PAIRS = 400
LINE = 64


def listing(*words):
    """The program's status, the places of its marks, and its accesses as rows."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    listed, told = os.pipe()
    command = ["valgrind", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes",
               f"--log-fd={told}", os.environ["GLAKE_LINES"], str(PAIRS), *words]
    with tempfile.TemporaryFile("w+") as rows:
        # most rows are instructions
        with subprocess.Popen(["grep", "^ "], stdin=listed, stdout=rows):
            os.close(listed)
            run = subprocess.run(command, env=env, stdout=subprocess.PIPE, pass_fds=[told],
                                 check=False)
            os.close(told)
        rows.seek(0)
        yield run.returncode
        yield [int(mark, 16) for mark in run.stdout.split()]
        yield from rows


def watch(*words):
    """Of each thread the lines it read and those it wrote, while it allocated and freed."""
    rows = listing(*words)
    status, marks = next(rows), next(rows)
    read, written, who = [set(), set()], [set(), set()], None
    for row in rows:
        kind, place, size = row.replace(",", " ").split()
        first = int(place, 16)
        if kind == "S" and first in marks:
            thread, is_end = divmod(marks.index(first), 2)
            who = None if is_end else thread
        elif who is not None:
            lines = range(first // LINE, (first + int(size) - 1) // LINE + 1)
            if kind != "S":
                read[who].update(lines)
            if kind != "L":
                written[who].update(lines)
    if not ok(status == 0, "two threads ran, and all was hits" if "misses" not in words else
              "and needed no more than their parts of the lock", status):
        return None
    for thread in (0, 1):
        note(f"{len(read[thread])} lines read, {len(written[thread])} written")
    # a probe that sees nothing would find nothing shared
    ok(all(map(len, read + written)), "and were seen to read and write")
    return read, written


def shared(read, written):
    return (written[0] & (read[1] | written[1])) | (written[1] & read[0])


def main():
    build_in(["release", "checked"])
    start()
    seen = watch()
    if seen:
        found = shared(*seen)
        ok(not found, "no line that one writes is touched by the other",
           *(f"{line * LINE:#x}" for line in sorted(found)))
    seen = watch("misses")
    if seen:
        found = shared(*seen)
        ok(not found, "of misses as little",
           *(f"{line * LINE:#x}" for line in sorted(found)))
    seen = watch("shared")
    if seen:
        ok(len(shared(*seen)) == 1, "a counter of both is found", len(shared(*seen)))
    done()


main()
