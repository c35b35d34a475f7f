# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl top: what all processes with glake hold and do, again and again. On a terminal it is a window; elsewhere, and by
--batch, a table each time. A process that ends, or does not answer, is told of and ends nothing. Rates are what has
happened since the last look by the clock of this process; a process that was not there then, or whose counts went back
since a context was closed, has none until the next.
"""

import contextlib
import json
import os
import select
import sys
import time

from . import process, tool

HELP = """\
usage: glakectl top [OPTION]... [PID|PROGRAM]...

Shows what processes that run with glake and rpc.socket=yes hold on each GPU and what they
do, all of them or those named: in a window, or as a table each time where the output is no
terminal. In the window, h shows the keys and q ends it.

  -i, --interval SECONDS  how often to look (1)
  -n, --count N           look so many times, then end
  -s, --sort reserved|live|ratio|allocs|misses|pid  which first
  -b, --batch             tables, on a terminal too
  -j, --json              for programs, a line each time
  -h, --help              show this help
"""
KEYS = """\
h ?       this help
q         end
p space   pause, go on
s S       sort by the next, by the last
+ -       look more often, less often
up down   choose a line (k j)
enter     only its process, with details
esc a     all processes
r         look now"""
SORTS = {"reserved": lambda row: row.reserved_bytes, "live": lambda row: row.live_bytes, "ratio": lambda row: row.ratio or 0,
         "allocs": lambda row: row.allocs_s or 0, "misses": lambda row: row.misses_s or 0, "pid": lambda row: 0}
COUNTS = ("live_bytes", "reserved_bytes", "away_bytes", "placed_bytes", "host_held_bytes", "allocs", "hits", "misses")
RUNGS = 12  # that a GPU is shown with
GPUS = 1024  # of a context
WIDTH = 160  # of a table that is no window
LEAST, MOST = 0.1, 60  # seconds between two looks in the window
STAYS = 5  # looks that a message stays for


class Row:
    """A GPU of a process, over its contexts; of one that uses none, or does not answer, `gpu` is -1."""

    def __init__(self, pid, program, gpu=-1, failed=""):
        self.pid, self.program, self.gpu, self.failed = pid, program, gpu, failed
        self.rungs, self.since = {}, {}
        self.allocs_s = self.misses_s = self.hit = None  # a second, and of requests; None: not known
        for name in COUNTS:
            setattr(self, name, 0)

    def add(self, gpu):
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + gpu.number(name))
        rungs = process.Said(gpu["rungs"] if isinstance(gpu["rungs"], dict) else {})
        for name in list(rungs)[:RUNGS]:
            word = tool.plain(name).replace(" ", "?")[:19]
            self.rungs[word] = self.rungs.get(word, 0) + rungs.number(name)

    @property
    def ratio(self):
        return self.reserved_bytes / self.live_bytes if self.live_bytes else None

    def compare(self, before, seconds):
        """What it did since the last look."""
        self.since = dict.fromkeys(self.rungs, 0)
        if (self.gpu < 0 or not before or before.failed or self.program != before.program or seconds <= 0 or
                any(getattr(self, name) < getattr(before, name) for name in ("allocs", "hits", "misses"))):
            return
        allocs, hits, misses = (getattr(self, name) - getattr(before, name) for name in ("allocs", "hits", "misses"))
        self.allocs_s, self.misses_s = allocs / seconds, misses / seconds
        self.hit = hits / (hits + misses) if hits + misses else None
        self.since = {name: max(count - before.rungs.get(name, 0), 0) for name, count in self.rungs.items()}

    def told(self):
        """For programs."""
        row = {"pid": self.pid, "program": self.program}
        if self.failed:
            row["failed"] = self.failed
        elif self.gpu >= 0:
            row.update(gpu=self.gpu, **{name: getattr(self, name) for name in COUNTS[:5]})
            for name, value in (("allocs_per_s", self.allocs_s), ("misses_per_s", self.misses_s), ("hit_share", self.hit)):
                row[name] = None if value is None else float(f"{value:.6g}")
            row["rungs_since"] = self.since
        return row


class Sample:
    """A look at all processes, or those that are named."""

    def __init__(self, names, sort, before=None):
        found = process.look("stats")
        self.at, self.rows, self.processes, self.ended = time.monotonic(), [], 0, ""
        for pid, stats, failed in found:
            stats = process.Said(stats if isinstance(stats, dict) else {})
            program = stats.word("program")[:63]
            if names and program not in names and not any(name.isascii() and name.isdigit() and int(name) == pid for name in names):
                continue
            self.processes += 1
            rows = {}
            for context in stats.rows("contexts"):
                for gpu in context.rows("gpus")[:GPUS]:
                    number = gpu.number("gpu")
                    rows.setdefault(number, Row(pid, program, number)).add(gpu)
            self.rows += list(rows.values()) or [Row(pid, program, failed=failed)]
        if before:
            self._compare(before)
        else:
            for row in self.rows:
                row.compare(None, 0)
        self.sort(sort)

    def _compare(self, before):
        known = {(row.pid, row.gpu): row for row in before.rows}
        for row in self.rows:
            row.compare(known.get((row.pid, row.gpu)), self.at - before.at)
        here = {row.pid for row in self.rows}
        gone = {row.pid: row.program for row in before.rows if row.pid not in here}
        if gone:
            pid, program = next(iter(gone.items()))
            self.ended = f"process {pid} ({program}) has ended, or closed its socket" if len(gone) == 1 else \
                f"process {pid} ({program}) and {len(gone) - 1} more have ended, or closed their sockets"

    def sort(self, sort):
        self.rows.sort(key=lambda row: (-SORTS[sort](row), row.pid, row.gpu))


# ---- Lines ----

def _bytes(value):
    return tool.bytes_text(value) if value else ""


def _rate(value):
    if value is None:
        return ""
    return f"{value / 1e6:.1f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e4 else \
        f"{value:.{int(0 < value < 10)}f}"


def _ratio(row):
    return "" if row.ratio is None else f"{row.ratio:.{0 if row.ratio > 99 else 2}f}"


def _ladder(row):
    return ", ".join(f"{name} {count}" for name, count in row.since.items() if count)


# In the order that they stand in: head, width, the order in which they find room, and what they show. Those of an order that
# is a string stand at the left.
COLUMNS = (
    ("PID", 7, 0, lambda row: str(row.pid)), ("PROGRAM", 16, "5", lambda row: row.program),
    ("GPU", 3, 2, lambda row: "" if row.gpu < 0 else str(row.gpu)), ("LIVE", 9, 3, lambda row: _bytes(row.live_bytes)),
    ("RESERVED", 9, 1, lambda row: _bytes(row.reserved_bytes)), ("RATIO", 5, 4, _ratio),
    ("AWAY", 9, 9, lambda row: _bytes(row.away_bytes)), ("PLACED", 9, 10, lambda row: _bytes(row.placed_bytes)),
    ("HOST", 9, 11, lambda row: _bytes(row.host_held_bytes)), ("ALLOC/S", 7, 6, lambda row: _rate(row.allocs_s)),
    ("MISS/S", 7, 8, lambda row: _rate(row.misses_s)),
    ("HIT%", 5, 7, lambda row: "" if row.hit is None else f"{100 * row.hit:.1f}"), ("LADDER", 10, "12", _ladder))


def line_of(row, width):
    """A line of the table, or with None its head. Where it is narrow the columns that say least go first; at 20 columns a
    process still has its number and what it holds."""
    if row and row.failed:
        return f"{row.pid:7} {row.failed}"[:width]
    chosen, room = set(), width
    for column in sorted(COLUMNS, key=lambda column: int(column[2])):
        if room < column[1]:
            break
        room -= column[1] + 1
        chosen.add(column[0])
    if not chosen:
        return str(row.pid)[:width] if row else ""
    line = ""
    for head, most, order, text in COLUMNS:
        if head not in chosen or len(line) >= width:
            continue
        most = width - len(line) if head == COLUMNS[-1][0] else min(most, width - len(line))
        word = (text(row) if row else head)[:most]
        line += (word.ljust(most) if isinstance(order, str) else word.rjust(most)) + " "
    return line.rstrip()


def sum_line(sample):
    live, reserved, away = (tool.bytes_text(sum(getattr(row, name) for row in sample.rows)) for name in COUNTS[:3])
    count = sample.processes
    return f"{count} process{'' if count == 1 else 'es'}, {live} live, {reserved} reserved, {away} away"


def details(row):
    """A row at length."""
    live, reserved, away, placed, held = (tool.bytes_text(getattr(row, name)) for name in COUNTS[:5])
    if row.gpu < 0:
        return []
    return [f"GPU {row.gpu}: {live} live, {reserved} reserved", f"  away {away}, placed {placed}, host held {held}",
            "  allocs {}, hits {}, misses {}".format(*(tool.count_text(getattr(row, name)) for name in COUNTS[5:])),
            *(f"  {name} {tool.count_text(count)}, {row.since[name]} since" for name, count in row.rungs.items())]


# ---- The window ----

class Window:
    """Everything is drawn anew from the last look, whatever the size of the terminal is then; with five lines there are the
    sum, the head and what fits between them and the line of messages. Colour adds nothing that is not there without."""

    def __init__(self, curses, screen, names, sort, pause):
        self.curses, self.screen, self.names, self.sort, self.pause = curses, screen, names, sort, pause
        self.sample = None
        self.paused = self.helps = self.ends = False
        self.chosen = self.first = 0  # a row of those shown, the first on the screen
        self.one = None  # the process that is shown alone
        self.said, self.said_looks = "", 0

    def _rows(self):
        return [row for row in self.sample.rows if self.one in (None, row.pid)]

    def _put(self, y, line, attributes=0):
        height, width = self.screen.getmaxyx()
        if y < height:
            line = line.ljust(width) if attributes & self.curses.A_REVERSE else line
            with contextlib.suppress(self.curses.error):  # the last cell of all has no place behind it for the cursor
                self.screen.addnstr(y, 0, line, width, attributes)

    def _last_line(self, rows):
        if self.said:
            return self.said
        if self.one is not None and not rows:
            return f"process {self.one} is not there; a: all"
        return (f"{'paused  ' if self.paused else ''}{self.pause:g}s by {self.sort}{'' if self.one is None else '  a all'}"
                "  h help  q end")

    def _draw_rows(self, rows, y, end, width):
        room = max(end - y, 0)
        self.chosen = max(min(self.chosen, len(rows) - 1), 0)
        self.first = min(self.first, self.chosen)
        if room and self.chosen >= self.first + room:
            self.first = self.chosen - room + 1
        if self.first and self.first + room > len(rows):
            self.first = max(len(rows) - room, 0)
        for i, row in list(enumerate(rows))[self.first:self.first + room]:
            self._put(y, line_of(row, width), self.curses.A_REVERSE if i == self.chosen else 0)
            y += 1
        if self.one is not None:
            lines = [line for row in rows for line in details(row)]
            for i, line in enumerate(lines[:max(end - y - 1, 0)]):
                self._put(y + 1 + i, line)
        elif not rows:
            self._put(y, process.nobody())

    def draw(self):
        curses, (height, width) = self.curses, self.screen.getmaxyx()
        self.screen.erase()
        if self.helps:
            for i, line in enumerate(KEYS.split("\n")):
                self._put(i, line)
        else:
            rows = self._rows()
            self._put(0, sum_line(self.sample), curses.A_BOLD)
            self._put(1, line_of(None, width), (curses.color_pair(1) if curses.has_colors() else 0) | curses.A_UNDERLINE)
            self._draw_rows(rows, 2, height - 1, width)
            self._put(height - 1, self._last_line(rows), curses.A_BOLD if self.said else curses.A_DIM)
        self.screen.refresh()

    def look(self):
        self.sample = Sample(self.names, self.sort, self.sample)
        if self.sample.ended:
            self.said, self.said_looks = self.sample.ended, STAYS
        elif self.said_looks:
            self.said_looks -= 1
            self.said = self.said if self.said_looks else ""

    def _step_sort(self, step):
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + step) % len(names)]
        self.sample.sort(self.sort)

    def _choose(self):
        rows = self._rows()
        self.one = rows[self.chosen].pid if rows else self.one
        self.chosen = self.first = 0

    def take(self, key):
        """Whether it is time to look again."""
        curses = self.curses
        self.helps = key == curses.KEY_RESIZE if self.helps else key in (ord("h"), ord("?"))
        if key == ord("q"):
            self.ends = True
        elif key in (ord("p"), ord(" ")):
            self.paused = not self.paused
        elif key in (ord("s"), ord("S")):
            self._step_sort(1 if key == ord("s") else -1)
        elif key in (ord("+"), ord("="), ord("-")):
            self.pause = min(max(self.pause * (2 if key == ord("-") else 0.5), LEAST), MOST)
        elif key in (curses.KEY_UP, ord("k")):
            self.chosen = max(self.chosen - 1, 0)
        elif key in (curses.KEY_DOWN, ord("j")):
            self.chosen += 1
        elif key in (curses.KEY_ENTER, 10, 13):
            self._choose()
        elif key in (27, ord("a")):
            self.one = None
        return key == ord("r")

    def attend(self):
        """Keys, until it is time to look again."""
        until = time.monotonic() + self.pause
        while not self.ends:
            left = MOST if self.paused else until - time.monotonic()
            if left <= 0:
                return
            self.draw()
            self.screen.timeout(int(left * 1000) + 1)
            key = self.screen.getch()
            if key == -1:
                self.ends = _has_gone()
            elif self.take(key):
                return
            until = min(until, time.monotonic() + self.pause)


def _has_gone():
    """The terminal, which is an end of each wait then."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return any(seen & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, seen in poll.poll(0))


def run_window(names, sort, pause, count):
    try:
        import curses
    except ImportError:
        raise tool.Failure("there is no window, since this Python has no curses; --batch prints tables") from None
    os.environ.setdefault("ESCDELAY", "50")
    try:
        screen = curses.initscr()
    except curses.error:
        raise tool.Failure(f"ncurses knows no terminal TERM={os.environ.get('TERM', '')}; --batch prints tables") from None
    try:
        curses.cbreak()
        curses.noecho()
        screen.keypad(True)
        with contextlib.suppress(curses.error):  # one that cannot hide it
            curses.curs_set(0)
        if curses.has_colors():
            curses.start_color()
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_CYAN, -1)
        window, looks = Window(curses, screen, names, sort, pause), 0
        while not window.ends and (not count or looks < count):
            window.look()
            window.attend()
            looks += 1
    finally:
        curses.endwin()


# ---- The command ----

def run_tables(given, names, sort, pause, count):
    sample, looks = None, 0
    while not count or looks < count:
        if looks:
            time.sleep(pause)
        sample = Sample(names, sort, sample)
        if "json" in given:
            print(json.dumps({"rows": [row.told() for row in sample.rows], "ended": sample.ended}, separators=(",", ":")))
        else:
            if sample.ended:
                tool.say(f"glakectl: {sample.ended}")
            lines = [line_of(row, WIDTH) for row in (None, *sample.rows)]
            print(*[""] * bool(looks), *lines, sep="\n")
        sys.stdout.flush()
        looks += 1


def run(words):
    """The command; its exit status."""
    given, names = tool.options("top", HELP, words, 0, 1 << 20)
    pause, count = tool.interval("top", given, 1), tool.number("top", given, "count", (1 << 31) - 1)
    sort = given.get("sort", ["reserved"])[-1]
    if sort not in SORTS:
        raise tool.usage("top", f"--sort takes reserved, live, ratio, allocs, misses or pid, not '{sort}'")
    if "batch" in given or "json" in given or not (os.isatty(0) and os.isatty(1)):
        run_tables(given, names, sort, pause, count)
    else:
        run_window(names, sort, pause, count)
    return 0


if __name__ == "__main__":
    tool.main("top", run)
