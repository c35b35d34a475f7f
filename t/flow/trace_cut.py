# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Parts of traces, against a model of what a part is; and snapshots of PyTorch as Python writes them, in
each protocol.
"""
import gzip
import json
import lzma
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile

from tap import DATA, TOOL, done, equal, has, note, ok, skip, start, tool

HEAD = "Thread,Time,Action,Pointer,Size,Stream"
BASE = 0x7F0000000000
BEGAN = 1763870000000000  # us since 1970
FRAMES = [{"filename": "model.py", "line": 3, "name": "forward"}]


def rows_of(text):
    """[(us, action, pointer, size, stream)] of a log."""
    rows = []
    for line in text.splitlines()[1:]:
        _, time, action, pointer, size, stream = line.split(",")
        hour, minute, second = time.split(":")
        us = (int(hour) * 60 + int(minute)) * 60 * 10**6 + round(float(second) * 10**6)
        rows.append((us, action, int(pointer.replace("(nil)", "0"), 16), int(size), int(stream, 0)))
    return rows


def part_of(rows, begin=0, end=None, first=1, last=None, streams=None, free=False):
    """The rows that the part has: those that open it, its own, those that end it."""
    live, opened, own, base, begun = {}, [], [], begin, False
    origin = rows[0][0]
    for number, (us, action, pointer, size, stream) in enumerate(rows, 1):
        us -= origin
        if (end is not None and us >= end) or (last and number > last):
            break
        if pointer not in live if action == "free" else streams and stream not in streams:
            continue
        inside = us >= begin and number >= first
        if inside and not begun:
            begun, base = True, begin or us
            opened = [("allocate", *block) for block in live.values()]
        if action == "allocate":
            live[pointer] = (pointer, size, stream)
        else:
            size = live.pop(pointer)[1]
        if inside:
            own.append((us - base, action, pointer, size, stream))
    left = [("free", *block) for block in live.values()] if free else []
    return opened, own, left


def made_log(folder, seed):
    """A log on three streams; its path and text."""
    rng, live, lines, us = random.Random(seed), [], [HEAD], 3600 * 10**6
    for i in range(3000):
        us += rng.randrange(0, 900)
        clock = f"{us // 3600000000:02}:{us // 60000000 % 60:02}:{us / 10**6 % 60:09.6f}"
        if live and rng.random() < 0.47:
            pointer, size, stream = live.pop(rng.randrange(len(live)))
            lines.append(f"0,{clock},free,{pointer:#x},{size},{rng.choice([stream, 7]):#x}")
        else:
            live.append((BASE + i * 4096, rng.randrange(1, 10**6), rng.choice([0, 7, 9])))
            lines.append(f"0,{clock},allocate,{live[-1][0]:#x},{live[-1][1]},{live[-1][2]:#x}")
    path = os.path.join(folder, "made.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def cut(trace, *args):
    run = tool("trace", "cut", "-q", trace, *args)
    if run.returncode:
        note(run.stderr.decode())
    return run.stdout.decode()


def check_parts(folder):
    log = made_log(folder, 5)
    with open(log, encoding="utf-8") as file:
        rows = rows_of(file.read())
    ours = os.path.join(folder, "made.trace")
    tool("trace", "convert", "-q", log, "-o", ours)
    for args, part in [
            ([], {}), (["--free"], {"free": True}),
            (["--from", "200ms"], {"begin": 200000}), (["--to", "1s"], {"end": 10**6}),
            (["-b", "300ms", "-e", "301ms"], {"begin": 300000, "end": 301000}),
            (["--from", "300ms", "--to", "700ms", "-F"],
             {"begin": 300000, "end": 700000, "free": True}),
            (["--events", "1000-1999"], {"first": 1000, "last": 1999}),
            (["-n", "2000-"], {"first": 2000}), (["-n", "-10"], {"last": 10}),
            (["-n", "3000-3000"], {"first": 3000, "last": 3000}),
            (["--stream", "7"], {"streams": [7]}),
            (["-S", "0x7", "-S", "9", "-n", "500-2500", "--free"],
             {"streams": [7, 9], "first": 500, "last": 2500, "free": True})]:
        opened, own, left = part_of(rows, **part)
        for trace in (log, ours):
            got = rows_of(cut(trace, "-f", "csv", *args))
            heads, rest = got[:len(opened)], got[len(opened):]
            own_got, ends = rest[:len(own)], rest[len(own):]
            what = f"{' '.join(args) or 'all of it'} of {os.path.basename(trace)}"
            origin = (got[0][0] if opened or not own else got[0][0] - own[0][0]) if got else 0
            equal([row[1:] for row in heads], opened, f"{what}: {len(opened)} blocks open it")
            ok([(us - origin, *row) for us, *row in own_got] == own, f"{what}: {len(own)} events")
            equal([row[1:] for row in ends], left, f"{what}: {len(left)} end it")
    for trace, args in ((log, []), (log, ["-f", "glake"]), (ours, [])):
        for name in ("part.csv.xz", "part.trace.gz", "part.zst", "part"):
            path = os.path.join(folder, name)
            run = tool("trace", "cut", trace, "-n", "1000-1999", "-o", path, "-j", *args)
            said = json.loads(run.stdout)
            shown = json.loads(tool("trace", "show", "-j", path).stdout)
            equal((shown["format"], shown["events"]), (said["to"], said["events"]),
                  f"{os.path.basename(trace)} {args} to {name}: a trace")
            equal(said["events"], said["opened"] + 1000, "with all that it needs")
    replayed = json.loads(tool("replay", "-q", "-j", "-d", "soft", "-r", "1", path).stdout)
    live, peak = {}, 0
    opened, own, _ = part_of(rows, first=1000, last=1999)
    for action, pointer, size, _ in [*opened, *(row[1:] for row in own)]:
        live[pointer] = size if action == "allocate" else 0
        peak = max(peak, sum(live.values()))
    equal((replayed["ok"], replayed["peak_live_bytes"]), (True, peak), "which replays")


def check_packed(folder):
    """Our own format has to lie in a file to be read: one that is packed, or comes from a pipe."""
    with open(os.path.join(folder, "made.trace"), "rb") as file:
        plain = file.read()
    events = json.loads(tool("trace", "show", "-j", os.path.join(folder, "made.trace")).stdout)["events"]
    for what, content in (("from a pipe", plain), ("packed", gzip.compress(plain)),
                          ("packed, and empty for the most part",
                           lzma.compress(plain + bytes(4 << 20), preset=0))):
        for place, which in (("/no/such/folder", "none"), (folder, "its own")):
            run = tool("trace", "show", "-j", "-", stdin=content, env={"TMPDIR": place})
            equal(run.returncode and run.stderr or json.loads(run.stdout)["events"], events,
                  f"{what}, with a folder for files: {which}")
    path = os.path.join(folder, "half.trace.gz")
    with open(path, "wb") as file:
        file.write(gzip.compress(plain)[:-3])
    run = tool("trace", "show", path)
    equal(run.returncode, 1, "an archive that is cut off fails")
    has(run.stderr.decode(), "archive is cut off", "and says so")
    equal(json.loads(tool("trace", "show", "-j", "--lenient", path).stdout)["events"], events,
          "but --lenient takes what came before")


def check_recorded(folder):
    """A part of a trace that a program has recorded keeps its threads, and its other events."""
    trace, part = os.path.join(folder, "recorded.trace"), os.path.join(folder, "part.trace")
    env = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
    subprocess.run([os.environ["GLAKE_TRACE_PROGRAM"], "alone", "1", "2000"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**env, "GLAKE_TRACE_FILE": trace})
    whole = json.loads(tool("trace", "show", "-j", trace).stdout)
    half = str(whole["events"] // 2)
    ok(tool("trace", "cut", "-q", trace, "-n", f"{half}-", "-o", part).returncode == 0, "a half")
    shown = json.loads(tool("trace", "show", "-j", part).stdout)
    equal([(thread["name"], thread["thread"]) for thread in shown["threads"]][:1],
          [(thread["name"], thread["thread"]) for thread in whole["threads"]][:1], "its threads")
    equal((shown["program"], shown["closed"], shown["dropped"]),
          (whole["program"], True, 0), "its program, complete")
    ok(set(shown["kinds"]) - {"allocate", "free"}, "its other events")
    equal(shown["gpus"][0]["live_bytes_at_end"], whole["gpus"][0]["live_bytes_at_end"],
          "ends as the whole does")
    equal(json.loads(tool("replay", "-q", "-j", "-d", "soft", "-r", "1", part).stdout)["ok"], True,
          "and replays")


def check_usage(folder):
    log = os.path.join(folder, "made.csv")
    for args in (["--from", "x"], ["--to", "-1s"], ["--from", "2s", "--to", "1s"], ["-n", "0-5"],
                 ["-n", "5-4"], ["-n", "-"], ["-n", "7"], ["-n", "1-2-3"], ["--stream", "x"],
                 ["--stream", ""], ["--stream", "-1"], ["--stream", "1" * 30], ["--size", "1M"],
                 ["--json"], ["-f", "x"], ["-o", os.path.join(folder, "a.bz2")]):
        equal(tool("trace", "cut", *args, log).returncode, 2,
              f"cut {args}: wrong usage".replace(folder, ""))
    run = tool("trace", "cut", os.path.join(folder, "made.trace"))
    equal(run.returncode, 2, "our own format is not written to standard output")
    has(run.stderr.decode(), "trace cut: -o is missing", "and it says so")
    for args in (["--from", "3600s"], ["-n", "3001-"], ["--stream", "77"]):
        run = tool("trace", "cut", *args, log, "-o", os.path.join(folder, "none"))
        equal(run.returncode, 1, f"cut {args}: a part without an event")
        has(run.stderr.decode(), "no event in that part", "is none")
    ok(not os.path.exists(os.path.join(folder, "none")), "and leaves no file")
    with open("/dev/full", "wb") as full:
        run = tool("trace", "cut", log, stdout=full)
    equal(run.returncode, 1, "a disk that is full")
    has(run.stderr.decode(), "No space left", "is told of")
    for args in (["show", "--from", "1s"], ["convert", "--events", "1-2"], ["record", "-F"]):
        equal(tool("trace", *args, log).returncode, 2, f"{args}: of cut alone")


def event(action, addr, size, us, stream=0):
    return {"action": action, "addr": BASE + addr, "size": size, "stream": stream,
            "time_us": BEGAN + us, "frames": FRAMES}


def block(address, size, asked, state="active_allocated"):
    return {"address": BASE + address, "size": size, "requested_size": asked, "state": state,
            "frames": FRAMES}


def snapshot():
    """As torch.cuda.memory._snapshot() of PyTorch 2.11 makes it, with what it lacks of a job."""
    first = [
        event("segment_alloc", 0, 20 << 20, 0), event("alloc", 0, 1000, 1),
        event("alloc", 1024, 5 << 20, 2, 0x55D0C8A0), event("free_requested", 30 << 20, 777, 3),
        event("free_completed", 30 << 20, 777, 4), event("free_requested", 0, 1000, 5),
        event("free_completed", 0, 1000, 9), event("free_completed", 31 << 20, 5, 9),
        event("alloc", 31 << 20, 900, 10),
        {"action": "oom", "device_free": 5, "size": 1 << 40, "stream": 0, "time_us": BEGAN + 11,
         "frames": FRAMES}, event("snapshot", -BASE, 0, 12)]
    second = [event("alloc", 1 << 40, 4096, 6), event("segment_map", 1 << 40, 2 << 20, 7),
              event("free_requested", 1 << 40, 4096, 8)]
    segment = {"device": 0, "address": BASE, "total_size": 20 << 20, "allocated_size": 1,
               "active_size": 1, "requested_size": 1, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": FRAMES,
               "blocks": [block(0, 1024, 0, "inactive"), block(1024, 5 << 20, 5 << 20),
                          block(10 << 20, 4096, 4000), block(11 << 20, 512, 1, "active_pending_free"),
                          block(31 << 20, 1024, 900)]}
    return {"segments": [segment], "device_traces": [first, second],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                                   "garbage_collection_threshold": 0.0, "last_allocator_settings": {},
                                   "expandable_segments": False, "roundup_power2_divisions": {"1": 0}},
            "external_annotations": [{"device": 0, "time_us": BEGAN, "stage": "START"}]}


WANTED = [
    (0, "allocate", 30 << 20, 777, 0), (0, "allocate", 10 << 20, 4000, 0),
    (1, "allocate", 0, 1000, 0), (2, "allocate", 1024, 5 << 20, 0x55D0C8A0),
    (3, "free", 30 << 20, 777, 0), (5, "free", 0, 1000, 0), (10, "allocate", 31 << 20, 900, 0),
    (11, "allocate failure", -BASE, 1 << 40, 0)]


def check_snapshots(folder):
    path = os.path.join(folder, "job.pickle")
    for protocol in range(2, 6):
        with open(path, "wb") as file:
            pickle.dump(snapshot(), file, protocol=protocol)
        run = tool("trace", "convert", "-q", "-f", "csv", "--gpu", "0", path)
        rows = rows_of(run.stdout.decode()) if run.returncode == 0 else []
        equal([(us - rows[0][0], action, pointer - BASE, *rest) for us, action, pointer, *rest in rows],
              WANTED, f"protocol {protocol}: the events of a snapshot, and what was live before")
    equal(rows[0][0], BEGAN % (86400 * 10**6), "at the time of day that they had")
    second = rows_of(tool("trace", "convert", "-q", "-f", "csv", "-g", "1", path).stdout.decode())
    equal([row[1:4] for row in second], [("allocate", BASE + (1 << 40), 4096),
                                         ("free", BASE + (1 << 40), 4096)], "those of another GPU")
    run = tool("trace", "convert", "-f", "csv", path)
    equal(run.returncode, 1, "a log has one GPU")
    has(run.stderr.decode(), "choose one with --gpu", "and it says how")
    ours = os.path.join(folder, "job.trace")
    said = json.loads(tool("trace", "convert", "-j", path, "-o", ours).stdout)
    equal((said["from"], said["to"], said["events"], said["opened"]), ("pickle", "glake", 10, 2),
          "convert makes a trace of it")
    shown = json.loads(tool("trace", "show", "-j", ours).stdout)
    equal([gpu["peak_live_bytes"] for gpu in shown["gpus"]],
          [777 + 4000 + 1000 + (5 << 20), 4096], "of both GPUs")
    equal(json.loads(tool("trace", "show", "-j", path).stdout)["format"], "pickle", "show knows it")
    equal(json.loads(tool("replay", "-q", "-j", "-d", "soft", "-r", "1", "-g", "0", path).stdout)["ok"],
          True, "replay too")
    with open(path, "rb") as file:
        data = file.read()
    check_other_forms(folder)
    for name, packed in ((".xz", lzma.compress(data)), (".gz", gzip.compress(data))):
        with open(path + name, "wb") as file:
            file.write(packed)
        equal(tool("trace", "convert", "-q", "-f", "csv", "-g", "0", path + name).stdout,
              tool("trace", "convert", "-q", "-f", "csv", "-g", "0", path).stdout, f"packed, {name}")
    bad = snapshot()
    del bad["device_traces"][0][1]["addr"]
    touch = f"touch {folder}/called".encode()
    hostile = {"none": b"\x80\x04.", "cut off": data[:len(data) // 2], "no end": data[:-1],
               "no snapshot": pickle.dumps({"a": 1}), "a list": pickle.dumps([1, 2]),
               "an event without an address": pickle.dumps(bad), "old": pickle.dumps(snapshot(), 0),
               "no event": pickle.dumps({"segments": [], "device_traces": [[], []]}),
               "a call": b"\x80\x04cos\nsystem\n\x8c" + bytes([len(touch)]) + touch + b"\x85R.",
               "a huge text": b"\x80\x04\x8d" + b"\xff" * 8 + b"x",
               "a call in other words": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch + b"\x85R.",
               "an object from elsewhere": b"\x80\x04\x8c\x01xQ.", "another protocol": b"\x80\x06N.",
               "a thousand lists deep": b"\x80\x04" + b"(" * 3000, "half of JSON": b'{"device_traces": [',
               "a list of itself": b"\x80\x04}(\x8c\x0ddevice_traces]\x94(h\x00eu.",
               "one list for many GPUs": pickle.dumps({"segments": [], "device_traces": [snapshot()["device_traces"][0]] * 2})}
    trace = [{"action": [], "addr": 1, "size": 1}]
    hostile.update({"an action that is a list": pickle.dumps({"segments": [], "device_traces": [trace]}),
                    "blocks that are a number": pickle.dumps({"segments": [{"device": 0, "blocks": 5}], "device_traces": [[]]}),
                    "a memo of 4 GiB": b"\x80\x04}r\0\0\0\x10.", "a name for a terminal": b"\x80\x04c\xc2\x9b31m\nx\n."})
    for name, content in hostile.items():
        with open(path, "wb") as file:
            file.write(content)
        run = tool("trace", "convert", path, "-o", ours)
        said = run.stderr.decode()
        ok(run.returncode == 1 and said.startswith("glakectl: ") and said.count("\n") == 1 and
           "job.pickle" in said and "\x9b" not in said, f"{name}: one line", said)
    ok(not os.path.exists(f"{folder}/called"), "nothing of a file is run")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    ok(most < 2 << 20, "nor does it take what it names", f"{most} KiB")
    check_torch(folder, data)


def check_other_forms(folder):
    """JSON, what the C++ side of PyTorch writes, and live blocks alone, as of memory_snapshot()."""
    path = os.path.join(folder, "job.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(snapshot(), file)
    run = tool("trace", "convert", "-q", "-f", "csv", "--gpu", "0", path)
    equal([row[1:2] + (row[2] - BASE,) + row[3:] for row in map(tuple, rows_of(run.stdout.decode()))],
          [row[1:] for row in WANTED], "JSON has the same events")
    for name, dump in (("json", lambda file: file.write(json.dumps(snapshot()["segments"]).encode())),
                       ("pickle", lambda file: pickle.dump(snapshot()["segments"], file))):
        path = os.path.join(folder, f"segments.{name}")
        with open(path, "wb") as file:
            dump(file)
        shown = json.loads(tool("trace", "show", "-j", path).stdout)
        equal((shown["events"], shown["gpus"][0]["peak_live_bytes"]), (3, (5 << 20) + 4000 + 900),
              f"live blocks alone, {name}: they are asked for")
    path = os.path.join(folder, "tagged.pickle")
    with open(path, "wb") as file:
        file.write(b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n}(X\x0d\0\0\0device_traces](]("
                   b"ctorch.jit._pickle\nrestore_type_tag\n}(X\x06\0\0\0actionX\x05\0\0\0alloc"
                   b"X\x04\0\0\0addrK\x01X\x04\0\0\0sizeK\x02uX\x04\0\0\0Dict\x86ReeuX\x04\0\0\0Dict\x86R.")
    equal(json.loads(tool("trace", "show", "-j", path).stdout)["events"], 1, "one that the C++ side of PyTorch has written")
    lenient = snapshot()
    del lenient["device_traces"][0][1]["addr"]
    with open(path, "wb") as file:
        pickle.dump(lenient, file)
    equal(json.loads(tool("trace", "show", "-j", "-g", "1", "-L", path).stdout)["skipped"], 1,
          "an event without an address is skipped where that is allowed")
    run = tool("trace", "show", path, env={"PATH": folder})
    equal((run.returncode, run.stdout, run.stderr.count(b"\n")), (1, b"", 1), "without Python")
    has(run.stderr.decode(), "tagged.pickle: a snapshot of PyTorch, for which Python is needed", "is told")
    bare = os.path.join(folder, "bare")
    os.mkdir(bare)
    for name in ("glakectl", "glakectl-trace"):
        shutil.copy2(os.path.join(os.path.dirname(TOOL), name), bare)
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(os.path.dirname(TOOL), "..")}
    run = subprocess.run([os.path.join(bare, "glakectl"), "trace", "show", path], capture_output=True, env=env, check=False)
    equal((run.returncode, run.stdout), (1, b""), "without the package")
    has(run.stderr.decode(), "Python has no module glake.unpickled: install all of glake", "it says what to install")


def check_torch(folder, data):
    """What is converted here is what PyTorch's own script reads."""
    path = os.path.join(folder, "memory_viz.pickle")
    with open(path, "wb") as file:
        file.write(data)
    code = ("import pickle, sys; from torch.cuda import _memory_viz as v;"
            "print(len(v.trace(pickle.load(open(sys.argv[1], 'rb')))))")
    run = subprocess.run([os.environ.get("GLAKE_TEST_TORCH", sys.executable), "-c", code, path],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=120)
    if run.returncode and b"No module named 'torch'" in run.stderr:
        skip("PyTorch's script reads the snapshot too", "there is no PyTorch here")
    else:
        equal((run.returncode, run.stderr), (0, b""), "PyTorch's script reads the snapshot too")


def main():
    start()
    with tempfile.TemporaryDirectory(prefix="glake-cut-") as folder:
        check_parts(folder)
        check_packed(folder)
        check_recorded(folder)
        check_usage(folder)
        check_snapshots(folder)
    done()


main()
