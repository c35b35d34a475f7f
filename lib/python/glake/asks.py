# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl kv, whose, check, dedup and broker: what a running process, or the broker of this user, says when it is asked."""

import sys

from . import process, simulate, tool
from .process import Said, said, show_json

KV = """\
usage: glakectl kv [--json] [PID|PROGRAM]
       glakectl kv simulate [OPTION]... [REQUESTS]

Shows the KV caches (glake_kv_open) of a process that runs with glake and
rpc.socket=yes: sequences and their tokens, what these need, the pages held for them,
what sharing saves, how many pages were there before they were needed and how many
calls met all they needed, waited, or were refused, and what is on the host. It may be
left out where there is but one process. With 'simulate' requests of an engine that is
not there are planned: see glakectl kv simulate --help.

  -j, --json  for programs
  -h, --help  show this help
"""
WHOSE = """\
usage: glakectl whose [--json] ADDRESS [PID|PROGRAM]

Says what an address is for a process that runs with glake and rpc.socket=yes: whose
block it lies in or behind, or whose it was, or that it never was the library's. The
process may be left out where there is but one.

  -j, --json  for programs
  -h, --help  show this help
"""
CHECK = """\
usage: glakectl check [--json] [PID|PROGRAM]

Has a process that runs with glake and rpc.socket=yes look at all blocks that it
guards (guard.mode), behind the work of its GPUs, and shows what it found, now and
before. Exit status 1 where something was written that should not have been. The
process may be left out where there is but one.

  -j, --json  for programs
  -h, --help  show this help
"""
DEDUP = """\
usage: glakectl dedup [--dry-run] [--json] [PID|PROGRAM]

Shows how much memory of a process that runs with glake and rpc.socket=yes exists once
and is in use in several places. The process may be left out where there is but one.

  -n, --dry-run  have it look how much of its memory is there more than once; nothing is
                 changed
  -j, --json     for programs
  -h, --help     show this help
"""
BROKER = """\
usage: glakectl broker [--json] [--socket PATH]

Shows what glaked gives of each GPU: how much is left, and of that guaranteed; what
each process holds, is guaranteed, may have, was asked to give and waits for. HEARS
says who answers there: a thread, or calls that want more; or that the process has no
connection any more and has not ended.

  -s, --socket PATH  instead of that of the broker of this user
  -j, --json         for programs
  -h, --help         show this help
"""


def ask(command, text, words, fewest=0, most=1):
    """The options of a command, its words, and what its process answers; the last word may be the process."""
    given, rest = tool.options(command, text, words, fewest, most)
    name = rest[fewest] if len(rest) > fewest else None

    def result(**params):
        found = process.result(name, command, **params)
        if "json" in given:
            show_json(found)
        return found
    return given, rest, result


def kv(words):
    if words[:1] == ["simulate"]:
        return simulate.run(words[1:])
    given, _, result = ask("kv", KV, words)
    found = result()
    if not isinstance(found, list):
        raise tool.Failure("glakectl: what the process answers are no KV caches")
    if "json" in given:
        return 0
    print("GPU    SEQUENCES PREFIXES     TOKENS     NEEDED       HELD     SHARED      LIMIT     PAGES   AHEAD     MET  REFUSED"
          "    WAITS  AWAY")
    count = 0
    for gpu in said(found):
        for cache in gpu.rows("caches"):
            pages, met, extends = cache.number("pages", "grows", "extends")
            ahead, away, more = cache.number("pages_ahead", "away", "prefixes_away")
            needed, held, shared, limit = cache.sizes("needed_bytes", "held_bytes", "shared_bytes", "limit_bytes")
            number = cache.number
            print(f"{gpu.number('gpu'):3}  {number('sequences'):5}/{number('slots'):<5} {number('prefixes'):8} "
                  f"{number('tokens'):10} {needed:>10} {held:>10} {shared:>10} "
                  f"{limit if number('limit_bytes') else 'none':>10} {pages:9} {100 * ahead / (pages or 1):5.1f} % "
                  f"{100 * met / (met + extends or 1):5.1f} % {number('refused'):8} {number('waits'):8} {away + more:5}")
            count += 1
    if not count:
        tool.say("glakectl: the process has no KV cache")
    return 0


def whose(words):
    given, rest, result = ask("whose", WHOSE, words, fewest=1, most=2)
    try:
        address = int(rest[0], 0)
    except ValueError:
        address = 0
    if not 0 < address < 1 << 63:
        raise tool.usage("whose", "an address, as 0x7f0000000000")
    found = result(address=address)
    if "json" in given:
        return 0
    found = Said(found if isinstance(found, dict) else {})
    number = found.number
    print(f"what      {found.word('what')}")
    if number("base"):
        print(f"block     {number('base'):#x} of GPU {number('gpu')}, {number('size')} bytes asked for, {number('given')} given\n"
              f"offset    {number('offset')}")
    if number("thread"):
        print(f"asked by  thread {number('thread')} on stream {number('stream'):#x}, {number('age_ns') / 1e9:.3f} s old")
    if number("freed_by"):
        print(f"freed by  thread {number('freed_by')}, {number('freed_ns') / 1e9:.3f} s ago")
    for name in ("before", "behind"):
        if number(name):
            print(f"{name:8}  {number(name):#x}, {number(name + '_size')} bytes")
    return 0


def check(words):
    given, _, result = ask("check", CHECK, words)
    found = result()
    if not isinstance(found, list):
        raise tool.Failure("glakectl: what the process answers is no check")
    for context in said(found) if "json" not in given else ():
        print("context {}: {} blocks looked at, {} broken; {} freed ones, {} without a look, {} unguarded; {} findings".format(
            *context.number("context", "blocks", "broken", "freed", "unchecked", "unguarded", "findings")))
        for one in context.rows("last"):
            gpu, count, offset, base, size, thread = one.number("gpu", "bytes", "offset", "base", "size", "thread")
            print(f"  GPU {gpu}: {one.word('kind')}, {count} bytes from offset {offset} of {base:#x} ({size} bytes, thread {thread})")
    return int(any(one.number("findings") for one in said(found)))


def dedup(words):
    given, _, result = ask("dedup", DEDUP, words)
    found = result(look="dry-run" in given)
    if not isinstance(found, list):
        raise tool.Failure("glakectl: what the process answers is no such list")
    for gpu in said(found) if "json" not in given else ():
        shared, page = gpu.sizes("shared_bytes", "page_bytes")
        print(f"context {gpu.number('context')}, GPU {gpu.number('gpu')}: {shared} exist once and are in use again")
        for of, prefix in (("parts of 64 KiB", ""), (f"pages of {page}", "pages_")) if "dry-run" in given else ():
            names = [prefix + name for name in ("equal_bytes", "looked_bytes")]
            (equal, looked), share = gpu.number(*names), "{} of {}".format(*gpu.sizes(*names))
            print(f"  in {of}: {share} are there more than once, {100 * equal / (looked or 1):.1f} %")
    return 0


def broker(words):
    given, _ = tool.options("broker", BROKER, words, 0, 0)
    path = given.get("socket", [process.broker_path()])[-1]
    try:
        found = process.ask_broker(path)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise tool.Failure(f"glakectl: {path}: there is no broker (glaked)") from error
    except TimeoutError as error:
        raise tool.Failure(f"glakectl: {path}: the broker does not answer") from error
    except (OSError, process.Refused) as error:
        raise tool.Failure(f"glakectl: {path}: {getattr(error, 'strerror', None) or error}") from error
    if "json" in given:
        show_json(found)
        return 0
    gpus = Said(found).rows("gpus")
    if not gpus:
        tool.say("glakectl: no process has come to the broker yet")
    for gpu in gpus:
        total, free, guaranteed = gpu.sizes("total", "free", "guaranteed")
        asks, stalls, refusals = gpu.number("asks", "stalls", "refusals")
        print(f"{gpu.word('gpu')}: {total}, {free} left, {guaranteed} of it guaranteed; asks {asks}, not answered {stalls}, "
              f"refusals {refusals}")
        if gpu.number("common"):
            print("  equal pages of processes: {}, and {} saved".format(*gpu.sizes("common", "saved")))
        clients = gpu.rows("clients")
        if clients:
            print("       PID  PROGRAM          HEARS        HELD      LEAST       MOST      ASKED      WANTS")
        for one in clients:
            sizes = " ".join(f"{text:>10}" for text in one.sizes("held", "least", "most", "asked", "wanted"))
            print(f"  {one.number('pid'):8}  {one.word('name'):16} {one.word('hears'):6} {sizes}")
    return 0


if __name__ == "__main__":
    tool.main(sys.argv[1], {"kv": kv, "whose": whose, "check": check, "dedup": dedup, "broker": broker}[sys.argv[1]])
