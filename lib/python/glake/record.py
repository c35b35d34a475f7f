# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl trace record: a running process records itself in a file that is named to it, until somebody interrupts this, the
time is up, or the process ends. Whatever happens to this one, the file has what was recorded, and the process goes on.
"""

import contextlib
import os
import re
import select
import signal
import struct
import time

from . import process, tool
from .process import show_json

COMMAND = "trace record"
HELP = """\
usage: glakectl trace record [OPTION]... [PID|PROGRAM] -o OUT

Has a running process record itself, until it is interrupted; see glakectl ps.

  -o, --output OUT  the file to write, which is not there yet
  -t, --for TIME    for so long at most, as 10s
  -s, --size BYTES  so much at most, as 100M (1GiB)
  -x, --context N   this one, where the process has several
  -j, --json        the report as JSON
  -q, --quiet       no remarks
  -h, --help        show this help
"""
LOOK, LOOKS = 0.2, 5  # seconds between two looks at an end, and how many
CLOSED = struct.Struct("=q")  # closed_ns of struct glake_trace_header (glake/trace.h), and where it lies
CLOSED_AT = 48
MOST = 1 << 33  # seconds, what select takes
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class Recording:
    """A process that is asked, and the file that it writes."""

    def __init__(self, pid, path, context, size):
        self.pid, self.path, self.context, self.size = pid, path, context, size
        self.pidfd = -1
        with contextlib.suppress(OSError):  # not of every kernel, nor for a process of another namespace
            self.pidfd = os.pidfd_open(pid)

    def ask(self, method, **params):
        if self.context:
            params["context"] = self.context
        found = process.ask(self.pid, method, **params)
        # there may be others by the time of the end
        self.context = process.Said(found if isinstance(found, dict) else {}).number("context") or self.context

    def start(self, path):
        self.ask("trace.start", file=path, size=self.size)

    def has_ended(self):
        """Also where nobody has waited for it, or another one has its number now."""
        if self.pidfd >= 0:
            return bool(select.select([self.pidfd], [], [], 0)[0])
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

    def say_may_record(self):
        tool.say(f"glakectl: process {self.pid} may yet record in {self.path}, until trace.stop is asked of it at its socket, see "
                 "glakectl(1), or its context is closed")

    def begin(self):
        try:
            self.start(self.path)
        except (OSError, process.Refused) as error:
            tool.say(f"glakectl: process {self.pid}: {process.why(error)}")
            is_lost = not getattr(error, "code", 0) and not isinstance(error, (FileNotFoundError, ConnectionRefusedError))
            if is_lost and not self.has_ended():
                self._take_back()
            raise tool.Failure() from error

    def _take_back(self):
        """The question is on its way, and its answer is lost."""
        try:
            self.start("")  # no file has this name: it is refused, and says where it is recorded if it is
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except (OSError, process.Refused) as error:
            with contextlib.suppress(OSError, process.Refused):
                if getattr(error, "code", 0) and tool.plain(str(error)).endswith(" " + tool.plain(self.path)):
                    self.ask("trace.stop")
                    tool.say(f"glakectl: process {self.pid} had begun to record in {self.path}, and has ended that")
                    return
        self.say_may_record()

    def wait(self, signals, seconds):
        """Until a signal, the time, or the end of the process, which is false."""
        end = time.monotonic() + seconds if seconds else None
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return True
            files = [signals] + [self.pidfd] * (self.pidfd >= 0)
            if self.pidfd < 0:
                left = min(left or LOOK, LOOK)
            if signals in select.select(files, [], [], left)[0]:
                return True
            if self.has_ended():
                return False

    def _is_complete(self):
        """Whether the file says that it has come to its end."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        with open(file, "rb") as file:
            head = file.read(CLOSED_AT + CLOSED.size)
        return len(head) == CLOSED_AT + CLOSED.size and CLOSED.unpack_from(head, CLOSED_AT)[0] != 0

    def end(self):
        """Ends it; how it came to its end, in words, and whether the process has."""
        before = ", until its context was closed or somebody ended that"
        try:
            self.ask("trace.stop")
            return "", False
        except (OSError, process.Refused) as error:
            if getattr(error, "code", 0):
                return before, False
            # with the last context the socket goes, and then the file gets its end
            for _ in range(LOOKS):
                if self.has_ended():
                    return ", until it ended", True
                if self._is_complete():
                    return before, False
                time.sleep(LOOK)
            tool.say(f"glakectl: process {self.pid}: {process.why(error)}")
            self.say_may_record()
            raise tool.Failure() from error


def _absolute(file):
    """From the root, since the process has a folder of its own; the file is not there."""
    folder, name = os.path.split(file)
    try:
        if not name:
            raise IsADirectoryError(21, "Is a directory")
        os.stat(folder or ".")
        return os.path.join(os.path.realpath(folder or "."), name)
    except OSError as error:
        raise tool.Failure(f"glakectl: {file}: {error.strerror}") from None


def _seconds(given):
    if "for" not in given:
        return 0
    text = given["for"][-1]
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) ?([a-z]+)", text)
    seconds = float(match[1]) * UNITS.get(match[2], 0) if match else 0
    if not 0 < seconds < MOST:
        raise tool.usage(COMMAND, f"--for takes a time as 10s or 500ms, not '{text}'")
    return seconds


def run(words):
    """The command; its exit status."""
    given, rest = tool.options(COMMAND, HELP, words, 0)
    seconds, context = _seconds(given), tool.number(COMMAND, given, "context", (1 << 31) - 1)
    size = tool.size(given.get("size", ["1GiB"])[-1])
    if not size or not 1 << 20 <= size <= 16 << 40:
        raise tool.usage(COMMAND, f"--size takes 1MiB to 16TiB, not '{given['size'][-1]}'")
    file = given.get("output", ["-"])[-1]
    if file == "-":
        raise tool.usage(COMMAND, "-o OUT is missing, the file to write")
    one = Recording(process.find(rest[0] if rest else None), _absolute(file), context, size)
    # from here on an interrupt ends the recording, and not this program before it
    signals, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes)
    for number in tool.STOPS:
        signal.signal(number, lambda *_: None)
    one.begin()
    is_quiet = "quiet" in given or "json" in given
    if not is_quiet:
        tool.say(f"glakectl: process {one.pid} is being recorded in {file}")
    how, ended = one.end() if one.wait(signals, seconds) else (", until it ended", True)
    try:
        size = os.stat(one.path).st_size
    except OSError as error:
        raise tool.Failure(f"glakectl: {one.path}: {error.strerror}; the process may see other files under that name") from None
    if "json" in given:
        show_json({"trace": one.path, "pid": one.pid, "bytes": size, "process_ended": ended, "ok": True})
    elif not is_quiet:
        tool.say(f"glakectl: process {one.pid} is recorded in {file}{how}")
    return 0


if __name__ == "__main__":
    tool.main(COMMAND, run)
