#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Programs that are recorded: what is in their traces is what they did, however they end, and a
replay of it gives the same figures and addresses.
"""
import gzip
import json
import lzma
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from tap import DATA, REAL_TIME, TOOL, done, equal, has, note, ok, skip, start, tool, until

PROGRAM = os.environ["GLAKE_TRACE_PROGRAM"]
MIB = 1 << 20
SANITIZER = os.environ.get("GLAKE_TEST_SANITIZER", "none")
SLOW = SANITIZER != "none"


def environment(**settings):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    clean.update({f"GLAKE_{k}": str(v) for k, v in settings.items()})
    return clean


def record(trace, *args, **settings):
    """Runs the program; what it printed, or None."""
    run = subprocess.run([PROGRAM, *map(str, args)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=300, check=False,
                         env=environment(TRACE_FILE=trace, LOG_LEVEL="warning", **settings))
    if run.returncode:
        note(run.stderr.decode())
        return None, run.stderr.decode()
    return json.loads(run.stdout), run.stderr.decode()


def report(*args):
    """A report of the tool as JSON, or None."""
    run = tool(*args, "--json")
    if run.returncode:
        note(run.stderr.decode())
        return None
    return json.loads(run.stdout)


def replay(trace, *args):
    return report("replay", "-q", "-d", "soft", "-r", "1", *args, trace)


def check_threads(folder):
    trace = os.path.join(folder, "threads.trace")
    pairs = 2000 if SLOW else 20000
    said, warned = record(trace, "churn", 4, pairs)
    if not ok(said is not None, "four threads that hand blocks to each other"):
        return
    equal(warned, "", "no word about it")
    ok(os.stat(trace).st_size < 64 * (said["allocs"] + said["frees"]) + 64 * 65536,
       "the file is as large as what is in it")
    shown = report("trace", "show", trace)
    kinds = shown["kinds"]
    equal((kinds["allocate"], kinds["free"]), (said["allocs"], said["frees"]),
          f"{said['allocs']} allocations and as many frees")
    equal((shown["dropped"], shown["skipped"], shown["closed"]), (0, 0, True), "all of them")
    equal(shown["events"], sum(thread["events"] for thread in shown["threads"]), "of all threads")
    equal(sum(thread["events"] >= 2 * 8 for thread in shown["threads"]), 4, "which are four")
    equal(sum(stream["events"] >= 2 * 8 for stream in shown["streams"]), 4, "on four streams")
    equal(shown["gpus"][0]["peak_live_bytes"], said["together"], "the peak is what they held")
    equal(shown["gpus"][0]["live_bytes_at_end"], 0, "and nothing was left")
    for threads in (4,) if SANITIZER == "thread" else (1, 4):
        result = replay(trace, "-t", threads)
        if ok(result and result["ok"], f"replayed by {threads} threads"):
            equal((result["events"], result["threads"]),
                  (said["allocs"] + said["frees"], threads), "every event")
            equal(result["peak_live_bytes"], said["together"], "the same peak")


def check_calls(folder):
    trace = os.path.join(folder, "alone.trace")
    said, _ = record(trace, "alone", 1, 5000)
    if not ok(said is not None, "one thread with every kind of call"):
        return
    shown = report("trace", "show", trace)
    kinds = dict(shown["kinds"])
    equal(kinds.pop("allocate"), said["allocs"], "allocations")
    equal(kinds.pop("free") + kinds["free_after"], said["frees"], "frees")
    equal(kinds, {"free_after": 1, "allocate_failed": 1, "free_failed": 1, "use": 1,
                  "stream_end": 3, "event_recorded": 1, "stream_waited": 1, "budget": 1,
                  "trim": 1, "pool_begin": 1, "pool_end": 1, "pool_release": 1}, "all the others")
    result = replay(trace)
    equal(result["peak_live_bytes"], said["peak_live"], "a replay has the peak of the library")
    equal(result["noops"], sum(kinds.values()) - 1, "events of other kinds have no effect")
    run = tool("trace", "show", trace)
    for part in ("format                   glake", "trace_program", "closed                   yes", "pool_release", "stream"):
        has(run.stdout.decode(), part, f"the report has '{part}'")


def addresses(trace):
    """The blocks of a trace, counted from the first of them."""
    log = tool("trace", "convert", "-q", trace).stdout.decode().splitlines()[1:]
    rows = [(action, int(pointer, 16), size) for _, _, action, pointer, size, _ in
            (row.split(",") for row in log)]
    return [(action, pointer - rows[0][1], size) for action, pointer, size in rows]


def check_again(folder):
    """A job is replayed and recorded, and what was recorded is replayed and recorded."""
    traces, results = [], []
    job = f"{DATA}/opt13_N.csv.xz"
    for turn in ("first", "second"):
        trace = os.path.join(folder, f"{turn}.trace")
        run = tool("replay", "-q", "-d", "soft", "-r", "1", "-j", "--conf",
                   "map.span=256GiB",  # a sanitizer leaves room for more, or does not
                   # what is unmapped must not depend on how far the device is
                   "--conf", "stream.opportunistic=no",
                   traces[-1] if traces else job, env={"GLAKE_TRACE_FILE": trace})
        if not ok(run.returncode == 0, f"a {turn} replay", run.stderr.decode()):
            return
        results.append(json.loads(run.stdout))
        traces.append(trace)
    first, second = results
    equal(second["peak_live_bytes"], first["peak_live_bytes"], "the same peak live")
    equal(second["peak_reserved_bytes"], first["peak_reserved_bytes"], "and reserved")
    equal(second["repeats"][0]["driver_calls"], first["repeats"][0]["driver_calls"],
          "the same driver calls")
    # what the job leaves is freed after the events, and is an event in the second one
    ok(0 <= second["events"] - first["events"] < 100, "the same events")
    got = [addresses(trace) for trace in traces]
    ok(got[0] and got[0] == got[1], f"the same {len(got[0])} blocks at the same addresses")


def chunks_of(trace):
    try:
        with open(trace, "rb") as file:
            return struct.unpack_from("<Q", file.read(64), 24)[0]
    except (OSError, struct.error):
        return 0


def wait_for(trace, chunks):
    until(lambda: chunks_of(trace) >= chunks, 0.001)


def check_written(folder):
    trace = os.path.join(folder, "written.trace")
    with subprocess.Popen([PROGRAM, "ever", "4", "40000"],
                          env=environment(TRACE_FILE=trace)) as program:
        wait_for(trace, 8)
        # one thread replays what it has, and the longer that takes the more there is next time
        for _ in range(1 if SANITIZER == "thread" else 2):
            shown, result = report("trace", "show", trace), replay(trace)
            ok(shown and shown["written_now"] and not shown["closed"],
               "shown while it is written")
            ok(result and result["ok"] and result["events"] >= shown["events"] > 4000,
               "and replayed")
        program.send_signal(signal.SIGKILL)


def check_left(folder, trace, least, most=None):
    """What one that was killed has left, and so many events."""
    shown = report("trace", "show", trace)
    if not ok(shown is not None, "killed: readable"):
        return
    ok(least <= shown["events"] <= (most or least) and not shown["closed"]
       and not shown["dropped"] and not shown["written_now"], "no event is missing", shown)
    ok((1 + shown["events"] // 2047) << 16 <= os.stat(trace).st_size
       <= (4 + shown["events"] // 2047 + 2 * 4) << 16,
       "the file is no larger than what is in it", os.stat(trace).st_size)
    used = os.stat(trace).st_blocks * 512
    ok(used < shown["events"] * 40 + 10 * 65536, "nor does it have more of the disk", used)
    result = replay(trace)
    ok(result and result["ok"], "replayed")
    small = os.path.join(folder, "small.trace")
    made = report("trace", "convert", "-f", "glake", "-o", small, trace)
    ok(made and made["events"] == shown["events"], "converted")
    # the chunks of one hand say who goes on whenever that changes
    ok(os.stat(small).st_size < 2 * used, "it is small")
    again = replay(small)
    ok(again and (again["events"], again["peak_live_bytes"], again["job_s"]) ==
       (result["events"], result["peak_live_bytes"], result["job_s"]), "and the same")


def check_killed(folder):
    """While its threads rest: it is known what they did before."""
    trace = os.path.join(folder, "rests.trace")
    with subprocess.Popen([PROGRAM, "stay", "4", "2000" if SLOW else "10000"],
                          stdout=subprocess.PIPE, env=environment(TRACE_FILE=trace)) as program:
        said = json.loads(program.stdout.readline())
        program.send_signal(signal.SIGKILL)
    check_left(folder, trace, said["allocs"] + said["frees"])


def check_killed_midway(folder):
    for turn, enough in enumerate((5, 6, 7, 8, 9, 40)):
        trace = os.path.join(folder, f"killed{turn}.trace")
        with subprocess.Popen([PROGRAM, "ever", "4", "0", str(turn)],
                              env=environment(TRACE_FILE=trace)) as program:
            wait_for(trace, enough)
            program.send_signal(signal.SIGKILL)
        check_left(folder, trace, (enough - 4) * 2000, sys.maxsize)


def check_formats(folder):
    trace = os.path.join(folder, "alone.trace")
    log = os.path.join(folder, "log.csv")
    back = os.path.join(folder, "back.trace")
    made = report("trace", "convert", "-o", log, trace)
    shown = report("trace", "show", trace)
    equal((made["from"], made["to"]), ("glake", "csv"), "a trace into a log")
    equal(made["events"] + made["left_out"], shown["events"], "what a log cannot hold is counted")
    made = report("trace", "convert", "-o", back, log)
    equal((made["from"], made["to"], made["left_out"]), ("csv", "glake", 0), "and back")
    results = [replay(path) for path in (trace, log, back)]
    for key in ("events", "peak_live_bytes", "peak_reserved_bytes", "streams"):
        equal(len({result[key] for result in results}), 1, f"all have the same {key}")
    calls = [result["repeats"][0]["driver_calls"] for result in results]
    ok(calls[0] == calls[1] == calls[2], "and the same driver calls", calls)
    run = tool("trace", "convert", trace)
    with open(log, "rb") as file:
        equal(run.stdout, file.read(), "on standard output the same")
    run = tool("trace", "convert", "-q", "-f", "csv", "-", stdin=run.stdout)
    equal(run.returncode, 0, "from standard input")
    with open(trace, "rb") as file:
        packed = gzip.compress(file.read(), 1)
    run = tool("replay", "-q", "-d", "soft", "-j", "-r", "1", "-", stdin=packed)
    equal(json.loads(run.stdout)["events"], results[0]["events"], "packed, through a pipe")
    run = tool("trace", "convert", "-f", "glake", trace)
    equal(run.returncode, 2, "our own format does not go to standard output")
    has(run.stderr.decode(), "glakectl trace convert: -o is missing: ", "the option is named")
    equal(run.stderr.count(b"\n"), 1, "in one line")
    run = tool("trace", "convert", f"{DATA}/opt13_N.csv.xz")
    equal(run.returncode, 2, "nor where the format is not named")
    has(run.stderr.decode(), "glakectl trace convert: -o is missing: ", "which is the option's fault")
    job = f"{DATA}/fsdp1.csv.xz"
    made = report("trace", "convert", "-o", back, job)
    ok(made["ok"] and made["to"] == "glake", "a recorded job into our own format")
    one, two = replay(job), replay(back)
    for key in ("events", "peak_live_bytes", "peak_reserved_bytes", "streams", "threads", "job_s"):
        equal(two[key], one[key], f"has the same {key}")


def check_packed(folder):
    """A file is packed as its name says, by something that others can unpack."""
    trace = os.path.join(folder, "alone.trace")
    plain = tool("trace", "convert", trace).stdout
    ours = os.path.join(folder, "plain.trace")
    tool("trace", "convert", "-f", "glake", "-o", ours, trace)
    with open(ours, "rb") as file:
        whole = file.read()
    for ending, magic, unpack in ((".xz", b"\xfd7zXZ\0", lzma.decompress),
                                  (".gz", b"\x1f\x8b", gzip.decompress),
                                  (".zst", b"\x28\xb5\x2f\xfd", None)):
        if ending == ".zst" and not shutil.which("zstd"):
            skip("packed as .zst", "zstd is not installed")
            continue
        for name, form, want in (("log.csv", "csv", plain), ("ours.trace", "glake", whole)):
            path = os.path.join(folder, name + ending)
            made = report("trace", "convert", "-f", form, "-o", path, trace)
            if not ok(made and made["ok"], f"{name}{ending} is written"):
                continue
            with open(path, "rb") as file:
                content = file.read()
            ok(content.startswith(magic) and len(content) < len(want) / 2, "and packed",
               content[:8], len(content), len(want))
            if unpack:
                ok(unpack(content) == want, "the whole of it")
            equal(replay(path)["events"], replay(trace)["events"], "and read again")
    run = tool("replay", "-q", os.path.join(folder, "log.csv.xz"), env={"PATH": "/nowhere"})
    equal((run.returncode, run.stdout), (1, b""), "without its program an archive is not read")
    has(run.stderr.decode(), "log.csv.xz: it is packed by xz, which cannot be run: No such file", "which is said")
    run = tool("trace", "convert", "-f", "csv", "-o", os.path.join(folder, "none.gz"), trace, env={"PATH": "/nowhere"})
    equal((run.returncode, os.path.exists(os.path.join(folder, "none.gz"))), (1, False), "nor is one made")
    has(run.stderr.decode(), "none.gz: the program that packs it cannot be run", "as is said too")
    before = sorted(os.listdir(folder))
    for name in ("x.csv.bz2", "x.csv.lz4", "x.zip"):
        run = tool("trace", "convert", "-f", "csv", "-o", os.path.join(folder, name), trace)
        equal(run.returncode, 2, f"{name} is not written")
        has(run.stderr.decode(), "packed as .xz, .gz or .zst, or plain", "and says what could be")
    broken = os.path.join(folder, "half.gz")
    with open(broken, "wb") as file:
        file.write(gzip.compress(plain)[:-50])
    run = tool("trace", "convert", "-f", "glake", "-o", os.path.join(folder, "no.xz"), broken)
    equal(run.returncode, 1, "what cannot be read")
    equal(sorted(os.listdir(folder)), sorted(before + ["half.gz"]), "leaves nothing behind")


def check_fork(folder):
    trace = os.path.join(folder, "fork.trace")
    said, _ = record(trace, "fork")
    if not ok(said is not None, "a program that forks ten times"):
        return
    shown = report("trace", "show", trace)
    equal(shown["events"], said["allocs"] + said["frees"], "its children are not in its trace")
    equal(len(shown["threads"]), 1, "nor their threads")
    ok(replay(trace)["ok"], "replayed")


def check_short(folder):
    trace = os.path.join(folder, "short.trace")
    said, _ = record(trace, "short", 1, 500)
    shown = report("trace", "show", trace)
    equal(shown["events"], said["allocs"] + said["frees"], "500 threads one after the other")
    ok(len(shown["threads"]) >= 500, "are told apart", len(shown["threads"]))
    equal(len({thread["lane"] for thread in shown["threads"]}), 1, "and share a lane")
    ok(os.stat(trace).st_size <= 6 * 65536, "and its chunks")
    equal(replay(trace, "-t", "8")["threads"], 1, "replayed as one thread")


def check_gpus(folder):
    trace = os.path.join(folder, "gpus.trace")
    said, _ = record(trace, "gpus", SOFT_GPUS=2)
    ok(said and said["allocs"] == 20, "blocks on two GPUs")
    for command in (("replay", "-d", "soft"), ("trace", "convert")):
        run = tool(*command, trace)
        equal(run.returncode, 1, f"{command[0]}: which of them?")
        has(run.stderr.decode(), "events of GPU 0 and of GPU 1: choose one with --gpu", "says so")
    for gpu in (0, 1):
        equal(replay(trace, "-g", gpu)["peak_live_bytes"], (gpu + 1) * 10 * MIB, f"GPU {gpu}")
    gpus = report("trace", "show", trace)["gpus"]
    equal([gpu["peak_live_bytes"] for gpu in gpus], [10 * MIB, 20 * MIB], "show tells of both")
    equal(len(report("trace", "show", "-g", 1, trace)["gpus"]), 1, "or of one")


def check_full(folder):
    trace = os.path.join(folder, "full.trace")
    said, warned = record(trace, "churn", 4, 10000, TRACE_SIZE="1MiB")
    ok(said is not None and said["failed"] == 0, "a trace that becomes full")
    has(warned, "has ended: it has the size of trace.size", "a word about it")
    equal(warned.count("\n"), 1, "one")
    equal(os.stat(trace).st_size, MIB, "the file has its size")
    shown = report("trace", "show", trace)
    equal(shown["events"] + shown["dropped"],
          said["allocs"] + said["frees"] + 4, "what it lacks is counted")
    ok(shown["dropped"] and shown["events"] > 4 * 2000, "most events are there")
    ok(replay(trace)["ok"], "all that happened before the end")


def check_refused(folder):
    trace = os.path.join(folder, "there.trace")
    with open(trace, "w", encoding="ascii") as file:
        file.write("before")
    said, warned = record(os.path.join(folder, "%z"), "churn", 1, 100)
    ok(said is None, "a name that is none is an error of the configuration")
    has(warned, "behind % there may be", "a word about it")
    for path, why in ((trace, "is there already"), ("/no/such/folder/x", "No such file")):
        said, warned = record(path, "churn", 1, 100)
        ok(said is not None and said["failed"] == 0, f"{os.path.basename(path)}: the program runs")
        has(warned, why, "a word about it")
    with open(trace, encoding="ascii") as file:
        equal(file.read(), "before", "what was there is left alone")
    names = os.path.join(folder, "%p-%n.trace")
    record(names, "churn", 1, 100)
    ok([name for name in os.listdir(folder) if name.endswith("-1.trace")], "%p and %n")


def check_standard_output(folder):
    """A log goes there without -o, and by -o -; a reader that goes away is told nothing."""
    with open(os.path.join(folder, "long.csv"), "w", encoding="ascii") as file:
        file.write("Thread,Time,Action,Pointer,Size,Stream\n" + "".join(
            f"0,{i},allocate,0x{i + 1:x}000,4096,0\n" for i in range(20000)))
    runs = [subprocess.run([TOOL, "trace", "convert", "-q", "-f", "csv", *words, "long.csv"], cwd=folder, capture_output=True, check=False)
            for words in ((), ("-o", "-"))]
    ok(runs[0].stdout == runs[1].stdout and runs[0].stdout.count(b"\n") == 20001, "-o - is standard output", runs[1].stderr)
    ok("-" not in os.listdir(folder), "and no file of that name")
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([TOOL, "trace", "convert", "-q", "-f", "csv", "long.csv"], cwd=folder, stdout=writer,
                         stderr=subprocess.PIPE, check=False)
    os.close(writer)
    equal((run.returncode, run.stderr), (1, b""), "a reader that goes away")


def check_usage(folder):
    trace = os.path.join(folder, "alone.trace")
    for args in ((), ("nonsense",), ("show",), ("convert",), ("show", trace, trace),
                 ("show", "-o", "x", trace), ("convert", "-f", "xml", trace),
                 ("convert", "--json", trace), ("show", "-g", "x", trace),
                 ("show", "-g", "256", trace), ("show", "--nonsense", trace)):
        run = tool("trace", *args)
        equal((run.returncode, run.stdout), (2, b""), f"trace {' '.join(map(os.path.basename, map(str, args)))[:30]}: usage")
        has(run.stderr.decode(), "--help", "points to the help")
    for args in (("--help",), ("show", "--help"), ("convert", "-h")):
        run = tool("trace", *args)
        equal((run.returncode, run.stderr), (0, b""), f"trace {' '.join(args)}")
    broken = os.path.join(folder, "broken.trace")
    with open(trace, "rb") as file:
        content = file.read()
    with open(broken, "wb") as file:
        file.write(content[:65536 * 2])
    out = os.path.join(folder, "out.csv")
    for args in (("show",), ("convert", "-o", out)):
        run = tool("trace", *args, broken)
        equal((run.returncode, run.stdout), (1, b""), f"trace {args[0]} of half a file: fails")
        has(run.stderr.decode(), f"{broken}: the file is cut off", "says so")
    ok(not os.path.exists(out), "no file is left")
    run = tool("trace", "show", "--lenient", broken)
    equal(run.returncode, 0, "lenient takes what is there")
    ok(re.search("^  cut off +yes$", run.stdout.decode(), re.M), "and says so", run.stdout)
    with open("/dev/full", "wb") as full:
        for args, name in ((["-o", "/dev/full"], "/dev/full"), (["-f", "csv"], "standard output")):
            run = subprocess.run([TOOL, "trace", "convert", *args, trace], stdout=full, stderr=subprocess.PIPE, check=False)
            equal((run.returncode, run.stderr.decode()), (1, f"glakectl: {name}: No space left on device\n"), "a full disk")
    interrupted(folder)
    link = os.path.join(folder, "itself.trace")
    os.symlink(trace, link)
    with open(trace, "rb") as file:
        before = file.read()
    for words in (["trace", "convert", "-f", "glake", "-o", trace, trace], ["trace", "cut", "-n", "2-", "-o", link, trace],
                  ["replay", "-T", trace, trace]):
        run = tool(*words)
        equal((run.returncode, run.stdout), (2, b""), f"{words[-4]} {words[-3]}: what would replace its input is refused")
        has(run.stderr.decode(), " is the trace itself, which it would replace; see ", "and told")
    with open(trace, "rb") as file:
        ok(file.read() == before, "nothing has changed")


def interrupted(folder):
    """Whoever ends it while it waits for more of the trace finds no half of one."""
    place = os.path.join(folder, "interrupted")
    os.mkdir(place)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for name in ("out.csv", "out.trace"):
            # as a terminal has it, whoever started the test
            with subprocess.Popen([TOOL, "trace", "convert", "-q", "-o", f"{place}/{name}", "-"], stdin=subprocess.PIPE,
                                  preexec_fn=lambda number=number: signal.signal(number, signal.SIG_DFL)) as run:
                run.stdin.write(b"Thread,Time,Action,Pointer,Size,Stream\n")
                run.stdin.flush()
                until(lambda: os.listdir(place))
                run.send_signal(number)
            equal((run.returncode, os.listdir(place)), (-number, []), f"{name}, ended by signal {number}: nothing is left")


def main():
    start()
    with tempfile.TemporaryDirectory(prefix="glake-") as folder:
        check_threads(folder)
        check_calls(folder)
        if SANITIZER != "thread":  # to which one thread shows nothing
            check_again(folder)
            check_formats(folder)
            check_packed(folder)
        check_written(folder)
        check_killed(folder)
        if REAL_TIME:
            check_killed_midway(folder)
        check_fork(folder)
        check_short(folder)
        check_gpus(folder)
        check_full(folder)
        check_refused(folder)
        check_standard_output(folder)
        check_usage(folder)
    done()


if __name__ == "__main__":
    sys.exit(main())
