# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl ps and stat: the processes with glake that this user may talk to, and the figures of one of them, once or again
and again. The table of stat knows no figure: it shows what the process has, in its order, by the unit that each name ends
with, so that it fits a library of another version.
"""

import sys
import time

from . import process, tool
from .process import Said, said, show_json

PS = """\
usage: glakectl ps [--json]

Lists the processes of this user that run with glake and have rpc.socket=yes, as the
file, the environment (GLAKE_RPC_SOCKET=yes) or the program says: their numbers, their
GPUs, the bytes of live blocks and the memory held.

  -j, --json  for programs
  -h, --help  show this help
"""
STAT = """\
usage: glakectl stat [OPTION]... [PID|PROGRAM]

Shows the figures of a process that runs with glake and rpc.socket=yes; see glakectl ps.
It may be left out where there is but one.

  -a, --all               also figures that are 0
  -i, --interval SECONDS  again and again, until the process ends
  -n, --count N           so many times at most, with -i
  -t, --times             also how long requests, waits and calls took
  -j, --json              for programs, a line each time with -i
  -p, --prometheus        the text that Prometheus scrapes
  -o, --oom               why each GPU refused memory last, and what would have helped
  -h, --help              show this help
"""
COLUMNS = 6  # side by side
STREAM = "stream_"
LAST = 1 << 64  # the bound of the last bucket


def ps(words):
    given, _ = tool.options("ps", PS, words, 0, 0)
    rows = []
    for pid, stats in process.answered("stats"):
        gpus = [gpu for _, gpu in process.gpus_of(stats)]
        rows.append({"pid": pid, "program": stats.word("program")[:63], "version": stats.word("version")[:31],
                     "gpus": sorted({gpu.number("gpu") % 64 for gpu in gpus}),
                     **{name: sum(gpu.number(name) for gpu in gpus) for name in ("live_bytes", "reserved_bytes")}})
    if "json" in given:
        show_json({"processes": rows})
    elif rows:
        print(f"{'PID':>8}  {'PROGRAM':16} {'VERSION':8} {'LIVE':>10} {'RESERVED':>10}  GPUS")
    for row in rows if "json" not in given else ():
        live, reserved = (tool.bytes_text(row[name]) for name in ("live_bytes", "reserved_bytes"))
        print(f"{row['pid']:8}  {row['program']:16} {row['version']:8} {live:>10} {reserved:>10}  "
              f"{','.join(map(str, row['gpus'])) or '-'}")
    if not rows:
        process.say_nobody()
    return 0


# ---- How long calls took ----

def _is_times(value):
    return isinstance(value, dict) and isinstance(value.get("below_ns"), dict)


def _times_of(name, value):
    """(name, times) of what is times, or has times by their names."""
    if _is_times(value):
        return [(name, Said(value))]
    many = isinstance(value, dict) and value and _is_times(next(iter(value.values())))
    return [(f"{name}.{part}", Said(one)) for part, one in value.items() if _is_times(one)] if many else []


def _quantile(times, percent):
    """What so many of a hundred did not exceed. Counts of a bucket are spread evenly between its bounds, of which the
    upper one is twice the lower one, so that is right to within the bucket."""
    count, longest = times.number("count", "longest_ns")
    below = Said(times["below_ns"])
    wanted, seen = count * percent / 100, 0
    for bound, name in sorted((int(name) if name.isascii() and name.isdigit() else LAST, name) for name in below):
        here = below.number(name)
        if not here or seen + here < wanted:
            seen += here
            continue
        high = longest if bound >= LAST else bound
        low = 0 if bound <= 128 or bound >= LAST else high / 2
        return min(low + (high - low) * (wanted - seen) / here, longest)
    return longest


def _print_times(of, head):
    print(f"  {head:37} {'calls':>11} {'mean':>8} {'p50':>8} {'p99':>8} {'longest':>8}")
    for name, value in of.items():
        for whole, times in _times_of(name.removesuffix("_ns"), value):
            count, total, longest = times.number("count", "sum_ns", "longest_ns")
            row = [total / count, _quantile(times, 50), _quantile(times, 99), longest] if count else []
            print(f"  {tool.plain(whole):37} {tool.count_text(count):>11}" + "".join(f" {tool.ns_text(ns):>8}" for ns in row))


# ---- The table ----

def _text(name, value):
    if name.endswith("_ratio") and type(value) is float:
        return f"{value:.4f}"
    if type(value) is not int or not 0 <= value < 1 << 64:
        return "-"
    return (tool.bytes_text if name.endswith("_bytes") else tool.ns_text if name.endswith("_ns") else tool.count_text)(value)


def _print_row(columns, name, part, every):
    """A figure of all columns, `part` of it where it is several; none where all are 0, but of `every` one."""
    values = [of.get(name) for _, of in columns]
    if part is not None:
        values = [value.get(part) if isinstance(value, dict) else value for value in values]
    if every or any(type(value) in (int, float) and value for value in values):
        whole = tool.plain(name if part is None else f"{name}.{part}")
        print(f"  {whole:37}" + "".join(f" {_text(name, value):>13}" for value in values))


def _print_columns(columns, every):
    print(f"  {'':37}" + "".join(f" {head:>13}" for head, _ in columns))
    for name, value in columns[0][1].items():
        if _times_of(name, value) or (isinstance(value, dict) and name.startswith(STREAM)):
            continue  # streams have tables of their own, and so have times
        if isinstance(value, dict):
            for part in value:
                _print_row(columns, name, part, every)
        elif type(value) in (int, float, type(None)) and name not in ("gpu", "context"):
            _print_row(columns, name, None, every)


def _print_streams(gpu):
    """A row for each stream, a column for each figure of streams."""
    columns = [(name, value) for name, value in gpu.items() if isinstance(value, dict) and name.startswith(STREAM)
               and not _times_of(name, value)][:COLUMNS]
    if columns:
        print(f"\n  GPU {gpu.number('gpu'):<5}{' streams':17}" + "".join(
            f" {tool.plain(name[len(STREAM):])[:13]:>13}" for name, _ in columns))
        for stream in columns[-1][1]:
            print(f"    {tool.plain(stream)[:31]:24}" + "".join(f" {_text(name, of.get(stream)):>13}" for name, of in columns))


def _print_context(context, times, every):
    gpus = context.rows("gpus")
    print(f"\nContext {context.number('context')}, driver {context.word('driver')}{'' if gpus else ': no GPU is in use'}")
    for at in range(0, len(gpus), COLUMNS):
        _print_columns([(f"GPU {gpu.number('gpu')}", gpu) for gpu in gpus[at:at + COLUMNS]], every)
    for gpu in gpus:
        _print_streams(gpu)
        if times:
            print()
            _print_times(gpu, f"GPU {gpu.number('gpu')} times")
    if gpus:
        print()
    _print_columns([("all GPUs", context)], every)
    if times:
        print()
        _print_times(context, "times")


def print_stats(stats, times, every):
    print(f"Process {stats.number('pid')}, {stats.word('program')}, glake {stats.word('version')}")
    contexts = stats.rows("contexts")
    for context in contexts:
        _print_context(context, times, every)
    if contexts and not every:
        print("\nFigures that are 0 are left out: --all has them.")


# ---- The command ----

def _show(given, found):
    if not isinstance(found, str if "prometheus" in given else dict):
        raise tool.Failure("glakectl: what the process answers are no figures")
    if "prometheus" in given:
        sys.stdout.buffer.write(found.encode(errors="replace"))
    elif "json" in given:
        show_json(found, None if "interval" in given else 2)
    else:
        print_stats(Said(found), "times" in given, "all" in given)
    sys.stdout.flush()


def _watch(given, pid, pause, count):
    looks = 0
    while True:
        try:
            found = process.ask(pid, "metrics" if "prometheus" in given else "stats")
        except (OSError, process.Refused) as error:
            if looks and isinstance(error, (FileNotFoundError, ConnectionError, process.Ended)):
                tool.say(f"glakectl: process {pid} has ended, or closed its socket")
                return 0
            raise tool.Failure(f"glakectl: process {pid}: {process.why(error)}") from error
        if looks and "json" not in given and "prometheus" not in given:
            print()
        _show(given, found)
        looks += 1
        if not pause or looks == count:
            return 0
        time.sleep(pause)


def _show_refusals(given, name):
    found = process.result(name, "refusals")
    if not isinstance(found, list):
        raise tool.Failure("glakectl: what the process answers are no refusals")
    if "json" in given:
        show_json(found)
    elif not found:
        print("No request was refused for want of memory.")
    for i, one in enumerate(said(found) if "json" not in given else ()):
        text = one["text"] if isinstance(one["text"], str) else ""
        lines = "\n".join(map(tool.plain, text.split("\n")))
        print(f"{chr(10) if i else ''}Context {one.number('context')}: {lines}", end="")
    return 0


def stat(words):
    given, rest = tool.options("stat", STAT, words, 0)
    pause, count = tool.interval("stat", given), tool.number("stat", given, "count", (1 << 31) - 1)
    if "json" in given and "prometheus" in given:
        raise tool.usage("stat", "--json or --prometheus, not both")
    if "oom" in given and given.keys() & {"prometheus", "interval", "times"}:
        raise tool.usage("stat", "--oom stands alone, or with --json")
    if "times" in given and given.keys() & {"json", "prometheus"}:
        raise tool.usage("stat", f"--times is for the table; --{'json' if 'json' in given else 'prometheus'} has them anyway")
    if count and not pause:
        raise tool.usage("stat", "--count needs --interval")
    name = rest[0] if rest else None
    return _show_refusals(given, name) if "oom" in given else _watch(given, process.find(name), pause, count)


if __name__ == "__main__":
    tool.main(sys.argv[1], {"ps": ps, "stat": stat}[sys.argv[1]])
