# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl map: the address space of a running process, as a picture in the terminal, or run by run for programs. The process
walks its tables for it, a little at a time (glake_map(3)), and tells runs as lib/base/runs.h packs them. What it tells is
trusted in nothing: runs have to follow each other, and there is an end to them, and to the time that they may take.
"""

import json
import os
import re
import sys
import time

from . import process, tool

HELP = """\
usage: glakectl map [OPTION]... [PID|PROGRAM]

Shows the address space of a process that runs with glake and rpc.socket=yes: its blocks,
and what lies between them. It may be left out where there is but one.

  -b, --by state|stream|size  what letters and colours stand for
  -g, --gpu N                 of this GPU alone
  -j, --json                  for programs, and for glakectl draw: each run of addresses
  -h, --help                  show this help
"""
PATIENCE = 60  # seconds for all answers about all GPUs
AGAIN = 3  # times that a GPU is read anew, since another context has taken the number of its own
RUNS = 1 << 22  # of all GPUs; what tells more is no process of glake
ADDRESS = 1 << 57  # no address lies above: with five levels of pages they end there
PACKED = re.compile(r"(?:[0-9a-f]{0,16}(?: [0-9a-f]{0,16}){0,12};)*")
STATES = ("live", "away", "quick", "idle", "limbo", "rest", "alias", "leaving", "hole")  # as glake/map.h has them
ARENAS = ("common", "host", "stage", "pool", "managed", "tag")
FLAGS = ("small", "out", "contiguous", "part", "bare", "shared")


class Strange(Exception):
    """It answers what is no address space."""


class Changed(Exception):
    """It answers of another context than it has answered of before."""


# ---- What a process tells ----

def _runs(text, end):
    """The runs of an answer, from an address on, as glakectl map --json has them."""
    if not isinstance(text, str) or not PACKED.fullmatch(text):
        raise Strange
    for row in text.split(";")[:-1]:
        fields = [int(one or "0", 16) for one in row.split(" ")]
        gap, size, state, stream, asked, gpu, large, flags, arena, host, placed, high, low = fields + [0] * (13 - len(fields))
        address = end + gap
        end = address + size
        if not size or state >= len(STATES) or asked > size or end > ADDRESS:
            raise Strange
        run = {"address": address, "size": size, "state": STATES[state], "arena": ARENAS[arena] if arena < len(ARENAS) else None}
        is_block = state <= 2
        if is_block or stream:
            run["stream"] = stream
        if is_block:
            run["asked"] = asked
        run.update(gpu_bytes=gpu, host_bytes=host, large_bytes=large)
        if placed:
            run["placed"] = placed
        if flags:
            run["flags"] = [name for i, name in enumerate(FLAGS) if flags >> i & 1]
        if run["arena"] == "pool":
            run["pool"] = [high, low]
        yield run


def _read_once(pid, context, gpu, until, most):
    """All runs of a GPU, answer after answer."""
    runs, at, serial, moves = [], 0, None, 0
    while True:
        if time.monotonic() > until:
            raise tool.Failure(f"glakectl: process {pid}: it has told of its memory for a minute, and goes on")
        answer = process.ask(pid, "map", context=context, gpu=gpu, **{"from": at})
        if not isinstance(answer, dict):
            raise Strange
        answer = process.Said(answer)
        following, count = answer.number("next"), len(runs)
        if serial is None:
            serial, moves, reserved = answer.number("serial", "moves", "reserved_bytes")
        elif answer.number("serial") != serial:
            raise Changed
        runs.extend(_runs(answer["runs"] or "", at))
        # it goes on behind the last run, so there is one
        if len(runs) > most or (following and (len(runs) == count or following <= at
                                               or following < runs[-1]["address"] + runs[-1]["size"])):
            raise Strange
        at = following
        if not at:
            return {"context": context, "gpu": gpu, "reserved_bytes": reserved,
                    "changed": max(answer.number("moves") - moves, 0), "runs": runs}


def _read_gpu(pid, context, gpu, until, most):
    """(what is read, whether it is missing): a context that goes meanwhile is not missing."""
    what = f"glakectl: process {pid}: context {context}"
    for _ in range(AGAIN + 1):
        try:
            return _read_once(pid, context, gpu, until, most), False
        except Changed:
            continue
        except Strange:
            raise tool.Failure(f"glakectl: process {pid}: what it answers is no address space") from None
        except (OSError, process.Refused) as error:
            if getattr(error, "code", 0) != process.NO_SUCH:
                raise tool.Failure(f"glakectl: process {pid}: {process.why(error)}") from error
            tool.say(f"{what} with GPU {gpu} has gone meanwhile; it is left out")
            return None, False
    tool.say(f"{what} changes too fast: it was another one each time that GPU {gpu} was read; it is left out")
    return None, True


def read(name, only=-1):
    """The space of a process, as glakectl map --json has it, and whether one of its GPUs is missing. `only`: a GPU."""
    pid = process.find(name)
    until, missing, found = time.monotonic() + PATIENCE, False, []
    stats = process.Said(process.result(str(pid), "stats"))
    wanted = [(context.number("context"), gpu.number("gpu")) for context, gpu in process.gpus_of(stats)
              if only < 0 or gpu.number("gpu") == only]
    if only >= 0 and not wanted:
        raise tool.Failure(f"glakectl: process {pid} uses no GPU {only}")
    for context, gpu in wanted:
        space, lost = _read_gpu(pid, context, gpu, until, RUNS - sum(len(one["runs"]) for one in found))
        found += [space] if space else []
        missing |= lost
    return {"pid": pid, "program": stats.word("program")[:63], "version": stats.word("version")[:31], "gpus": found}, missing


def say_changed(space):
    """What people are told where it changed while it was read."""
    for gpu in space["gpus"]:
        if gpu["changed"]:
            tool.say(f"glakectl: GPU {gpu['gpu']}: {gpu['changed']} requests, frees and moves while it was read, so parts of "
                     "it are of different moments")


# ---- A picture in characters ----

ROWS, STREAMS, GRAIN = 24, 8, 512
GUTTER, GUTTER_LEAST = 13, 48  # an address in front of each row, where there is room for it
WIDTH_LEAST, WIDTH_MOST = 16, 400
UNUSED = ("-", "used by no block")
NOTHING = (".", "no memory")
# letters and names, the first that of addresses without memory
BY_STATE = (NOTHING, ("L", "live"), ("H", "live on the host"), ("A", "away"), ("q", "quick"), ("i", "idle"), ("m", "limbo"),
            ("r", "rest of pages"), ("-", "alias"), ("x", "leaving"))
OF_STATE = {"hole": 0, "live": 1, "away": 3, "quick": 4, "idle": 5, "limbo": 6, "rest": 7, "alias": 8, "leaving": 9}
SIZES = ((4 << 10, "to 4 KiB"), (64 << 10, "to 64 KiB"), (1 << 20, "to 1 MiB"), (8 << 20, "to 8 MiB"),
         (64 << 20, "to 64 MiB"), (512 << 20, "to 512 MiB"), (1 << 64, "above"))
# grounds of the 256 that terminals know, all for black letters; a hole has none
GROUNDS = {"state": (0, 78, 180, 141, 222, 117, 209, 152, 250, 203), "size": (0, 250, 224, 222, 186, 150, 114, 78, 71),
           "stream": (0, 250, 78, 117, 222, 180, 141, 209, 152, 203, 247)}


def _has_block(run):
    return run["state"] in ("live", "away") and "bare" not in run.get("flags", ())


def _by_state(run):
    return 2 if run["state"] == "live" and run["host_bytes"] > run["gpu_bytes"] else OF_STATE[run["state"]]


def _by_size(run):
    return 2 + next(i for i, (most, _) in enumerate(SIZES) if run["asked"] <= most)


def kinds_of(runs, by):
    """Kinds that runs are shown as, a letter and a name each, and the number of a run's."""
    if by == "state":
        return BY_STATE, _by_state
    if by == "size":
        kinds, of_block = [(str(i + 1), name) for i, (_, name) in enumerate(SIZES)], _by_size
    else:
        bytes_of = {}
        for run in runs:
            if _has_block(run):
                bytes_of[run["stream"]] = bytes_of.get(run["stream"], 0) + run["size"]
        most = sorted(bytes_of, key=lambda stream: (-bytes_of[stream], stream))[:STREAMS]
        kinds = [(chr(65 + i), f"stream {stream:x}" if stream else "default stream") for i, stream in enumerate(most)]
        kinds.append(("Z", "other streams"))
        place = {stream: 2 + i for i, stream in enumerate(most)}

        def of_block(run):
            return place.get(run["stream"], 2 + len(most))

    def of(run):
        return of_block(run) if _has_block(run) else int(run["state"] not in ("hole", "alias", "leaving"))
    return [NOTHING, UNUSED, *kinds], of


def _stretches(runs, of):
    """(begin, end, kind) of runs of one kind that lie side by side."""
    found = []
    for run in runs:
        kind, begin = of(run), run["address"]
        if found and found[-1][1] == begin and found[-1][2] == kind:
            found[-1][1] = begin + run["size"]
        else:
            found.append([begin, begin + run["size"], kind])
    return found


def _rows(stretches, row):
    """Where rows of so many bytes begin: (address, gap, stretches); a gap without memory that would fill some is left out."""
    rows, last = [], None
    for begin, end, kind in stretches:
        if kind == 0 and end - begin >= 2 * row:
            rows.append((begin, end - begin, []))
            last = None
            continue
        if begin != last:
            rows.append((begin, 0, []))
        rows[-1][2].append((begin, end, kind))
        last = end
    return rows


def _count(stretches, row):
    return sum(1 if gap else -(-(parts[-1][1] - begin) // row) for begin, gap, parts in _rows(stretches, row))


def _cells(begin, parts, cell):
    """The kind that has most of each cell of a stretch of addresses."""
    cells = []
    for start, end, kind in parts:
        while start < end:
            at = (start - begin) // cell
            stop = min(end, begin + (at + 1) * cell)
            if at == len(cells):
                cells.append({})
            cells[at][kind] = cells[at].get(kind, 0) + stop - start
            start = stop
    return [max(sorted(sums), key=sums.get) for sums in cells]


def picture(runs, of, columns):
    """Rows, at most ROWS of them or a few more where it is in many pieces: (address, gap, kinds of cells), and the bytes of
    a cell."""
    stretches, cell = _stretches(runs, of), GRAIN
    ends = [run["address"] + run["size"] for run in runs]
    pieces = sum(run["address"] != end for run, end in zip(runs, [None, *ends]))
    while _count(stretches, cell * columns) > ROWS + 2 * pieces and cell < 1 << 50:
        cell *= 2
    rows = []
    for begin, gap, parts in _rows(stretches, cell * columns):
        cells = _cells(begin, parts, cell)
        rows += [(begin + at * cell, 0, cells[at:at + columns]) for at in range(0, len(cells), columns)]
        rows += [(begin, gap, [])] if gap else []
    return rows, cell


class Page:
    """Lines of a terminal."""

    def __init__(self, width, grounds):
        self.width, self.grounds = width, grounds

    def words(self, words, first=""):
        """Words that break where the line ends."""
        line = first
        for word in words:
            if line and len(line) + 2 + len(word) > self.width:
                print(line)
                line = word
            else:
                line += "  " * bool(line) + word
        print(line)

    def letters(self, kinds, numbers):
        """A letter for each, on its ground where there are grounds, so that it reads the same with them and without."""
        text, painted = "", 0
        for number in numbers:
            ground = self.grounds[number] if self.grounds else 0
            if ground != painted:
                text += f"\033[30;48;5;{ground}m" if ground else "\033[m"
            painted = ground
            text += kinds[number][0]
        return text + ("\033[m" if painted else "")

    def legend(self, kinds, bytes_of):
        line, used = "", 0
        for number in sorted(bytes_of):
            name, size = f" {kinds[number][1]},", tool.bytes_text(bytes_of[number])
            if used and used + 4 + len(name) + len(size) > self.width:
                print(line)
                line, used = "", 0
            line += "  " * bool(used) + self.letters(kinds, [number]) + name
            used += 2 * bool(used) + 2 + len(name) + len(size)
            line += ("\n  " if used > self.width else " ") + size  # too long for a line of its own
        print(line)


def _print_gpu(page, gpu, by):
    runs = gpu["runs"]
    kinds, of = kinds_of(runs, by)
    gutter = GUTTER if page.width >= GUTTER_LEAST else 0
    rows, cell = picture(runs, of, page.width - gutter) if runs else ([], 0)
    live = sum(run["asked"] for run in runs if run["state"] in ("live", "away"))
    print()
    page.words([f"Context {gpu['context']}, GPU {gpu['gpu']}:", f"{tool.bytes_text(gpu['reserved_bytes'])} held,",
                f"{tool.bytes_text(live)} live", *([f"(a letter is {tool.bytes_text(cell)})"] if rows else [])])
    for address, gap, cells in rows:
        if gap:
            page.words([tool.bytes_text(gap), "without memory"], " " * gutter + "~")
        else:
            print((f"{address:12x} " if gutter else "") + page.letters(kinds, cells))
    bytes_of = {}
    for run in runs:
        bytes_of[of(run)] = bytes_of.get(of(run), 0) + run["size"]
    if rows:
        page.legend(kinds, bytes_of)


def _width():
    """Of the terminal; elsewhere what COLUMNS says."""
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        width = 0
    text = os.environ.get("COLUMNS", "")
    if not width:
        width = int(text) if re.fullmatch(r"-?\d{1,18}", text) else 80
    return min(max(width, WIDTH_LEAST), WIDTH_MOST)


def _has_colours():
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def run(words):
    """The command; its exit status."""
    given, rest = tool.options("map", HELP, words, 0)
    by, only = given.get("by", ["state"])[-1], tool.number("map", given, "gpu", tool.GPUS - 1, -1, 0)
    if by not in GROUNDS:
        raise tool.usage("map", f"--by is state, stream or size, not '{by}'")
    space, missing = read(rest[0] if rest else None, only)
    if "json" in given:
        print(json.dumps(space, separators=(",", ":")))
        return int(missing)
    page = Page(_width(), GROUNDS[by] if _has_colours() else None)
    page.words([f"Process {space['pid']},", f"{space['program']},", f"glake {space['version']}"])
    if not space["gpus"]:
        print("No GPU is in use.")
    for gpu in space["gpus"]:
        _print_gpu(page, gpu, by)
    say_changed(space)
    return int(missing)


if __name__ == "__main__":
    tool.main("map", run)
