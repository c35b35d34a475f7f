#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Traces as they come: packed in any way, written by others, broken."""
import gzip
import json
import lzma
import os
import shutil
import subprocess
import tempfile

from tap import DATA, done, equal, has, note, ok, start, tool

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
GOOD = (HEADER + "0,1,allocate,0x1000,1048576,0\n0,2,allocate,0x2000,4096,1\n"
        "0,3,free,0x1000,1048576,0\n0,4,allocate,0x1000,99,0\n")


def replay(folder, content, *options, name="trace.csv"):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    # A span that is granted at once even under the thread sanitizer, so that calls are the same.
    run = tool("replay", "--driver", "soft", "--repeat", "1", "--conf", "map.span=256GiB",
               *options, path)
    return run, path


def same_part(run):
    """What does not depend on the machine's speed."""
    result = json.loads(run.stdout)
    for repeat in result["repeats"]:
        for key in ("wall_s", "malloc_ns", "free_ns", "hold_ns"):
            del repeat[key]
    return result


def check_packed(folder):
    with lzma.open(f"{DATA}/opt13_N.csv.xz") as file:
        text = file.read()
    half = text.index(b"\n", len(text) // 2) + 1
    forms = {
        "xz": lzma.compress(text, preset=0),
        "gz": gzip.compress(text, 1),
        "two gz in one": gzip.compress(text[:half], 1) + gzip.compress(text[half:], 1),
        "two xz in one": lzma.compress(text[:half], preset=0)
        + lzma.compress(text[half:], preset=0),
    }
    if shutil.which("zstd"):
        forms["zst"] = subprocess.run(["zstd", "-1", "-c"], input=text, check=True,
                                      stdout=subprocess.PIPE).stdout
    else:
        note("no zstd here to pack with")
    run, _ = replay(folder, text, "--json")
    equal(run.returncode, 0, "plain text")
    want = same_part(run)
    for form, content in forms.items():
        # The name is that of plain text: the content decides.
        run, _ = replay(folder, content, "--json")
        equal(run.returncode, 0, form)
        equal(same_part(run), want, f"{form}: the same result")
    with open(os.path.join(folder, "trace.csv"), "rb") as file:
        run = tool("replay", "--driver", "soft", "--json", "-r1", "-", stdin=file.read())
    equal(json.loads(run.stdout)["trace"], "stdin", "standard input")


def check_writers(folder):
    rows = (HEADER
            + "139872,23:59:59.900000,allocate,0x7f0000000000,1024,0x55aa00\n"
            + "139873,23:59:59.950000,allocate,(nil),0,0\n"
            + "139873,23:59:59.960000,allocate failure,(nil),999,0\n"
            + "139873,00:00:00.400000,free,7f0000000000,1024,0x55aa00\n"
            + "139873,00:00:00.900000,free,(nil),0,0\n")
    run, _ = replay(folder, rows, "--json")
    equal(run.returncode, 0, "a log as RMM writes it")
    result = json.loads(run.stdout)
    equal(result["events"], 2, "two rows have an effect")
    equal(result["noops"], 3, "three have none")
    equal(result["job_s"], 0.5, "time goes on over midnight")
    run, _ = replay(folder, GOOD.replace("\n", "\r\n"), "--json")
    equal(run.returncode, 0, "line ends of DOS")
    want = same_part(replay(folder, GOOD, "--json")[0])
    old = "".join(line.split(",", 1)[1] for line in GOOD.splitlines(keepends=True))
    for what, rows in (("a mark of the order of bytes", b"\xef\xbb\xbf" + GOOD.encode()), ("no threads, as RMM had before 0.14.1", old)):
        run, _ = replay(folder, rows, "--json")
        equal((run.returncode, run.stderr), (0, b""), f"a log with {what}")
        equal(same_part(run), want, "is read as any other")


BAD = {
    "a broken row": (GOOD + "0,5,free\n", 6, "broken row: 3 columns instead of 6; --lenient leaves such rows out"),
    "an unknown action": (GOOD + "0,5,realloc,0x1000,99,0\n", 6, "unknown action 'realloc'"),
    "a free of an unknown pointer": (GOOD + "0,5,free,0x3000,99,0\n", 6,
                                     "free of 0x3000, which is not live"),
    "a double free": (GOOD + "0,5,free,0x1000,99,0\n0,5,free,0x1000,99,0\n", 7,
                      "free of 0x1000, which is not live"),
    "an allocate of a live pointer": (GOOD + "0,5,allocate,0x1000,99,0\n", 6,
                                      "allocate of 0x1000, which is live"),
    "a size above 64 bits": (GOOD + "0,5,allocate,0x9,18446744073709551616,0\n", 6,
                             "too large for 64 bits"),
    "sizes that overflow": (GOOD + "0,5,allocate,0x9,18446744073709551615,0\n", 6,
                            "add up to more than 64 bits"),
    "a negative size": (GOOD + "0,5,allocate,0x9,-1,0\n", 6, "Size is '-1'"),
    "a pointer that is none": (GOOD + "0,5,allocate,zz,1,0\n", 6, "Pointer is 'zz'"),
    "an empty row": (GOOD + "\n", 6, "broken row"),
    "a row that is too long": (GOOD + "7" * 2000 + "\n", 6, "broken row: longer"),
    "NUL bytes": (GOOD.encode() + b"0,5,free,0x1000,99,0\0\n", 6, "Stream is '0?'"),
}

WHOLE = {
    "an empty file": (b"", "the file is empty"),
    "only a header": (HEADER, "no event in it"),
    "no header": (GOOD[len(HEADER):], ":1: this is no allocation trace"),
    "columns in another order": ("Time,Thread,Action,Pointer,Size,Stream\n",
                                 ":1: this is no allocation trace"),
    "binary garbage": (bytes(range(256)) * 64, ":1: this is no allocation trace"),
    "an xz archive of nothing": (lzma.compress(b""), "the file is empty"),
    "no xz archive behind its first bytes": (b"\xfd7zXZ\0" + bytes(99), ":1: the xz archive is"),
}


def check_bad(folder):
    for what, (content, row, message) in BAD.items():
        for options in ((), ("--json",)):
            run, path = replay(folder, content, *options)
            equal(run.returncode, 1, f"{what}: fails")
            equal(run.stdout, b"", f"{what}: reports nothing")
            has(run.stderr.decode(), f"{path}:{row}: ", f"{what}: names file and row")
            has(run.stderr.decode(), message, f"{what}: says what")
        run, path = replay(folder, content, "--lenient", "--json")
        equal(run.returncode, 0, f"{what}: lenient goes on")
        equal(json.loads(run.stdout)["skipped"], 1, f"{what}: and counts it")
    run, _ = replay(folder, BAD["a broken row"][0], "--lenient")
    has(run.stdout.decode(), "  skipped                  1\n", "people are told, too")
    for what, (content, message) in WHOLE.items():
        for options in ((), ("--lenient", "--json")):
            run, path = replay(folder, content, *options)
            equal(run.returncode, 1, f"{what}: fails")
            equal(run.stdout, b"", f"{what}: reports nothing")
            has(run.stderr.decode(), path, f"{what}: names the file")
            has(run.stderr.decode(), message, f"{what}: says what")
    for path, message in ((folder, "Is a directory"),
                          (folder + "/none", "No such file or directory")):
        run = tool("replay", path)
        equal(run.returncode, 1, message)
        has(run.stderr.decode(), f"{path}: {message}", "says so")


def check_cut_off(folder):
    with open(f"{DATA}/opt13_N.csv.xz", "rb") as file:
        packed = file.read()
    with lzma.open(f"{DATA}/opt13_N.csv.xz") as file:
        text = file.read()
    half = text.index(b"\n", len(text) // 2) + 1
    archives = {"xz": packed, "gzip": gzip.compress(text, 6)}
    two = {"xz": lzma.compress(text[:half], preset=0) + lzma.compress(text[half:], preset=0),
           "gzip": gzip.compress(text[:half], 1) + gzip.compress(text[half:], 1)}
    if shutil.which("zstd"):
        archives["zstd"], first, second = (
            subprocess.run(["zstd", "-1", "-c"], input=part, check=True, stdout=subprocess.PIPE).stdout
            for part in (text, text[:half], text[half:]))
        two["zstd"] = first + second
    for form, content in archives.items():
        run, path = replay(folder, content[:len(content) * 2 // 3], "--json")
        equal(run.returncode, 1, f"{form} cut off: fails")
        equal(run.stdout, b"", f"{form} cut off: reports nothing")
        has(run.stderr.decode(), f"the {form} archive is cut off", f"{form} cut off: says so")
        ok(path + ":" in run.stderr.decode(), f"{form} cut off: names the file",
           run.stderr.decode())
        run, path = replay(folder, content[:len(content) * 2 // 3], "--json", "--lenient")
        equal(run.returncode, 0, f"{form} cut off: lenient takes what came before")
        result = json.loads(run.stdout)
        ok(1000 < result["events"] < 29646, f"{form}: {result['events']} events")
        ok(result["cut_off"] is True, f"{form}: and says so")
        for what, wrong, message in (
                ("its last byte is missing", content[:-1], "is cut off"),
                ("the second of two is cut off", two[form][:-9], "is cut off"),
                ("its sums are wrong", content[:-3] + bytes([content[-3] ^ 0x55]) + content[-2:],
                 "is broken"),
                ("something else follows", content + b"x" * 64, "is broken")):
            run, _ = replay(folder, wrong)
            equal((run.returncode, run.stdout), (1, b""), f"{form}: {what}: fails")
            has(run.stderr.decode(), message, f"{form}: {what}: says so")


def main():
    start()
    with tempfile.TemporaryDirectory(prefix="glake-") as folder:
        check_packed(folder)
        check_writers(folder)
        check_bad(folder)
        check_cut_off(folder)
    done()


main()
