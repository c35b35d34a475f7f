# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl map and snapshot: what they show of a process is what it has, in every form and width, also
of a hundred thousand blocks; what they say of a process that lies; and in a terminal.
"""
import json
import os
import pickle
import pickletools
import re
import shutil
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

from page import has_matplotlib
from tap import HUNG, done, equal, has, ok, skip, start, until
from warm import warm
from watched import Room, Watched, ask

MIB = 1 << 20
# The heap of `scene`, its addresses from the first one on.
GOLDEN = """\
Process PID,
PROGRAM,
glake VERSION

Context 1, GPU 0:
128 MiB held,
57.1 MiB live
(a letter is 256 KiB)
"""
LEGEND = """\
L live, 45.1 MiB
A away, 12.0 MiB
m limbo, 68.0 MiB
r rest of pages,
  2.91 MiB
"""


def plain(text, program):
    text = text.replace(str(program.pid), "PID")
    text = re.sub(r"flow-watch_prog\w*", "PROGRAM", text)
    return re.sub(r"glake [0-9.]+", "glake VERSION", text)


def check_usage(room):
    for command in ("map", "snapshot"):
        out = ["-o", os.path.join(room.parent, "x")] if command == "snapshot" else []
        run = room.tool(command, *out)
        equal((run.returncode, run.stdout), (1, ""), f"{command} of nobody fails")
        has(run.stderr, "rpc.socket=yes makes one", "with a word")
        equal(room.tool(command, "1", "2", *out).returncode, 2, f"{command} of two: wrong usage")
        equal(room.tool(command, "--gpu", "x", *out).returncode, 2, "--gpu x: wrong usage")
    equal(room.tool("map", "--by", "colour").returncode, 2, "--by colour: wrong usage")
    equal(room.tool("snapshot").returncode, 2, "a snapshot without a file: wrong usage")


def check_text(room, program):
    room.env["COLUMNS"] = "20"
    run = room.tool("map")
    equal(run.stderr, "", "map has nothing to say beside its picture")
    shown = plain(run.stdout, program)
    ok(shown.startswith(GOLDEN), "20 columns: what it is of", shown)
    ok(shown.endswith(LEGEND), "and what the letters are", shown)
    rows = shown[len(GOLDEN):-len(LEGEND)].split()
    ok(all(len(row) == 20 for row in rows[:-1]) and 20 < len(rows) < 30, "rows of 20 cells")
    cells = "".join(rows)
    equal(re.sub(r"(.)\1*", r"\1", cells), "LmrALrm", "40 MiB, 5, a slot, one that is away, idle")
    equal((cells.index("A"), cells.count("A")), (cells.index("A"), 48), "12 MiB of 256 KiB each")
    ok("\033" not in run.stdout, "without colours, since it is no terminal")
    equal(room.tool("map", "--by", "state").stdout, run.stdout, "by state is how it is shown")
    by = plain(room.tool("map", "--by", "size").stdout, program)
    has(by, "5 to 64 MiB,", "by size")
    by = plain(room.tool("map", "--by=stream").stdout, program)
    has(by, "A default stream,\n  45.0 MiB\n", "by stream")
    for width in ("1", "0", "-7", "x", "100000", "21", "48", "80"):
        room.env["COLUMNS"] = width
        run = room.tool("map")
        longest = max(len(row) for row in run.stdout.splitlines())
        most = int(width) if width in ("21", "48", "80") else 400 if width == "100000" else 80
        ok(run.returncode == 0 and longest <= most, f"COLUMNS={width}: {longest} at most")
    del room.env["COLUMNS"]
    said = room.tool("map").stdout
    ok(re.search("^[57][0-9a-f]{11} ", said, re.M), "with room for addresses there are addresses", said)


def check_json(room, program):
    """The sums of the runs are the figures of the process."""
    gpu = json.loads(room.tool("map", "--json").stdout)["gpus"][0]
    stats = ask(program.connect(), "stats")["contexts"][0]["gpus"][0]
    runs = gpu["runs"]
    blocks = [run for run in runs if run["state"] in ("live", "away")]
    for name, sum_ in (("live_bytes", sum(run["asked"] for run in blocks)),
                       ("given_bytes", sum(run["size"] for run in blocks)),
                       ("live_blocks", len(blocks)),
                       ("away_bytes", sum(run["asked"] for run in blocks if run["state"] == "away")),
                       ("quick_bytes", sum(run["size"] for run in runs if run["state"] == "quick")),
                       ("reserved_bytes", sum(run["gpu_bytes"] for run in runs))):
        equal(sum_, stats[name], name)
    equal(gpu["changed"], 0, "nothing changed meanwhile")
    ends = [run["address"] + run["size"] for run in runs]
    equal([run["address"] for run in runs[1:]], ends[:-1], "runs lie side by side")
    serials = [ask(program.connect(), "map", context=1)["serial"]]
    for _ in range(2):
        equal((program.do("open"), ask(program.connect(), "map", context=2)["context"]),
              ("done", 2), "a number that is free is given again")
        serials.append(ask(program.connect(), "map", context=2)["serial"])
        equal(program.do("close"), "done", "and free again")
    equal(sorted(set(serials)), serials, "but no serial is")
    equal(ask(program.connect(), "origins"), {"next": None, "blocks": ""}, "nobody knows who asked")
    equal(ask(program.connect(), "map", gpu=7), -32602, "a GPU that is none")
    equal(ask(program.connect(), "map", context=9), -32602, "a context that is none")
    equal(ask(program.connect(), "map", **{"from": ends[-1]})["runs"], "", "behind the last run")
    run = room.tool("map", "--gpu", "1")
    equal(run.returncode, 1, "a GPU that is not used")
    has(run.stderr, "uses no GPU 1", "is told")


def check_picture(room):
    """glakectl draw has all runs of the map, by each kind."""
    if not has_matplotlib():
        skip("a picture", "python3 has no matplotlib, of Debian's package python3-matplotlib")
        return
    path, said = os.path.join(room.parent, "map.svg"), room.tool("map", "--json").stdout
    for by, names in (("state", ("live, 45.1 MiB", "away, 12.0 MiB", "limbo, 68.0 MiB")), ("size", ("to 64 MiB, 52.0 MiB",)),
                      ("stream", ("default stream, 45.0 MiB",))):
        run = warm("draw", "-", "-o", path, "--by", by, stdin=said.encode(), env=room.env)
        equal((run.returncode, run.stdout, run.stderr), (0, b"", b""), f"a picture by {by}")
        root = ET.parse(path).getroot()
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        ok(all(name in texts for name in names), f"by {by}: what colours stand for", texts)
        ok(any(re.fullmatch("[57][0-9a-f]{11}", text) for text in texts), "there are addresses", texts)
        cells = [one for one in root.iter("{http://www.w3.org/2000/svg}g") if re.search(r"-k\d+$", one.get("id") or "")]
        ok(len(cells) > 20, f"by {by}: {len(cells)} stretches of cells")
    equal(room.tool("draw", "-", "-o", path, "--by", "colour", input=said).returncode, 2, "--by colour: wrong usage")


def check_snapshot(room, program):
    path = os.path.join(room.parent, "job.pickle")
    run = room.tool("snapshot", str(program.pid), "-o", path)
    equal((run.returncode, run.stdout, run.stderr), (0, "", ""), "a snapshot")
    with open(path, "rb") as file:
        data = file.read()
    pickletools.dis(data, out=open(os.devnull, "w", encoding="utf-8"))
    snapshot = pickle.loads(data)
    equal(sorted(snapshot), ["allocator_settings", "device_traces", "external_annotations",
                             "segments"], "is what PyTorch's are")
    stats = ask(program.connect(), "stats")["contexts"][0]["gpus"][0]
    segments = snapshot["segments"]
    asked = sum(s["requested_size"] for s in segments)
    equal(asked, stats["live_bytes"] - stats["away_bytes"], "blocks that are on the GPU")
    for segment in segments:
        at, blocks = segment["address"], segment["blocks"]
        for block in blocks:
            ok(block["address"] == at, "a block", f"{at:x}")
            at += block["size"]
        equal(at - segment["address"], segment["total_size"], "fill their segment")
        equal(segment["allocated_size"], sum(b["size"] for b in blocks
              if b["state"] == "active_allocated"), "its sum")
    check_viz(path, len(segments))
    check_events(room, program, path)
    equal(room.tool("snapshot", "-o", "/nowhere/x").returncode, 1, "a file that cannot be made")
    run = room.tool("snapshot", "-o", "/dev/full")
    equal(run.returncode, 1, "a disk that is full")
    has(run.stderr, "/dev/full", "is told")


def check_events(room, program, path):
    """With a trace that the process records."""
    one, trace = program.connect(), os.path.join(room.parent, "job.trace")
    ask(one, "trace.start", file=trace)
    equal((program.do("alloc 0 3 70000"), program.do("free")), ("done", "done"), "it is recorded")
    run = room.tool("snapshot", str(program.pid), "-o", path, "--trace", trace)
    equal((run.returncode, run.stderr), (0, ""), "a snapshot with events")
    with open(path, "rb") as file:
        events = pickle.load(file)["device_traces"][0]
    equal([event["action"] for event in events],
          ["alloc"] * 3 + ["free_requested", "free_completed"] * 3, "those of the trace")
    equal({event["size"] for event in events}, {70000}, "of their sizes")
    ok(len({event["addr"] for event in events}) == 3 and
       all(abs(event["time_us"] / 1e6 - time.time()) < 3600 for event in events), "places and times")  # real time
    check_viz(path, len(pickle.load(open(path, "rb"))["segments"]))
    ask(one, "trace.stop")
    run = room.tool("snapshot", str(program.pid), "-o", path, "--trace", "/nowhere/x")
    equal(run.returncode, 1, "a trace that is not there")
    has(run.stderr, "/nowhere/x", "is told")


VIZ = """
import pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], "rb"))
print("segments:", viz.segsum(data).count("allocated, "), len(data["segments"]))
assert len(viz.segment_plot(data)) > 1000 and len(viz.trace_plot(data)) > 1000
assert "stream_" in viz.memory(data, format_flamegraph=str)
assert "stream_" in viz.segments(data, format_flamegraph=str)
viz.trace(data)
"""


def check_viz(path, count):
    """With GLAKE_TEST_TORCH=PYTHON, or where this Python has PyTorch and is asked."""
    python = os.environ.get("GLAKE_TEST_TORCH")
    if not python:
        skip("PyTorch's own script reads it", "GLAKE_TEST_TORCH names no Python with PyTorch")
        return
    run = subprocess.run([python, "-c", VIZ, path], stdout=subprocess.PIPE, check=False,
                         stderr=subprocess.PIPE, text=True)
    equal((run.returncode, run.stdout), (0, f"segments: {count} {count}\n"),
          f"PyTorch's own script reads it: {run.stderr}")


def check_many(room):
    """A hundred thousand blocks: several answers."""
    program = Watched(room)
    program.do("open")
    equal(program.do("alloc 0 100000 3000"), "done", "100000 blocks")
    first = ask(program.connect(), "map")
    ok(first["next"] and len(first["runs"]) >= 16 << 10, "are more than an answer")
    equal(room.tool("map", str(program.pid)).returncode, 0, "and a picture")
    gpu = json.loads(room.tool("map", "--json", str(program.pid)).stdout)["gpus"][0]
    equal(sum(run["state"] == "live" for run in gpu["runs"]), 100000, "with all of them")
    path = os.path.join(room.parent, "many.pickle")
    equal(room.tool("snapshot", str(program.pid), "-o", path).returncode, 0, "a snapshot")
    with open(path, "rb") as file:
        segments = pickle.load(file)["segments"]
    equal(sum(b["state"] == "active_allocated" for s in segments for b in s["blocks"]), 100000,
          "has them too")
    program.end()


STATS = b'{"result":{"contexts":[{"context":1,"gpus":[{"gpu":0}]}]}}\n'


def check_liar(room):
    """One who answers what no process of glake would."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    liar = socket.socket(socket.AF_UNIX)
    liar.bind(path)
    liar.listen(8)
    for answer in (b'{"result":{"runs":"0 0;"}}\n', b'{"result":{"runs":"nonsense"}}\n',
                   b'{"result":{"runs":"0 1"}}\n', b'{"result":{"runs":"1 ffffffffffffffff 0;"}}\n',
                   b'{"result":{"runs":"fffffffffffff000 fff 0;"}}\n',
                   b'{"result":{"runs":"1fffffffffff000 1001 0;"}}\n',
                   b'{"result":{"runs":"1000 200 4;","next":4607}}\n',
                   b'{"result":{"runs":"0 200 9;"}}\n', b'{"result":{"runs":"0 200 0 0 201;"}}\n',
                   b'{"result":{"runs":"1 2 3 4 5 6 7 8 9 a b c d e;"}}\n', b'{"result":[]}\n',
                   b'{"result":7}\n', b'{"error":{"code":-32601,"message":"no \\u001b[2J"}}\n', b""):
        run = subprocess.Popen([os.environ["GLAKECTL"], "map", str(os.getpid())], env=room.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for said in (STATS, answer):
            one = liar.accept()[0]
            one.recv(1000)
            one.sendall(said)
            one.close()
        shown, said = run.communicate(timeout=HUNG)
        ok(run.returncode == 1 and said and b"\033" not in said + shown, f"of {answer[:50]}", said)
    # one that is all right, but ends nowhere
    run = subprocess.Popen([os.environ["GLAKECTL"], "map", str(os.getpid())], env=room.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for said in (STATS, b'{"result":{"runs":"1000 200 8;","next":4608}}\n',
                 b'{"result":{"runs":"","next":4608}}\n'):
        one = liar.accept()[0]
        one.recv(1000)
        one.sendall(said)
        one.close()
    equal((run.communicate(timeout=HUNG)[0], run.returncode), (b"", 1), "of one without an end")
    # one that goes on and on, and tells of nothing
    run = subprocess.Popen([os.environ["GLAKECTL"], "map", str(os.getpid())], env=room.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for said in (STATS, b'{"result":{"runs":"","next":1}}\n'):
        one = liar.accept()[0]
        one.recv(1000)
        one.sendall(said)
        one.close()
    shown, said = run.communicate(timeout=HUNG)
    equal((shown, run.returncode), (b"", 1), "of one that tells of nothing for ever")
    has(said.decode(), "no address space", "and it says so")
    liar.close()
    os.unlink(path)


def answer_of(serial, moves, more):
    """Idle memory at 4096, and more behind it; or where that is."""
    result = {"serial": serial, "moves": moves, "runs": "e00 200 4;"}
    if more:
        result.update(runs="1000 200 4;", next=4608)
    return json.dumps({"result": result}).encode() + b"\n"


def check_lying_stacks(room):
    """Who asked, as no process of glake tells it: a snapshot without frames, or one line."""
    path, file = os.path.join(room.path, f"{os.getpid()}.sock"), os.path.join(room.parent, "liar.pickle")
    run_of = b'{"result":{"serial":1,"moves":1,"runs":"1000 200 0 0 200 200;"}}\n'
    here = b'{"result":{"next":null,"blocks":"1000 7;"}}\n'
    frame = b'{"file":"a.py","line":3,"name":"f"}'
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(path)
        liar.listen(8)
        liar.settimeout(HUNG)
        for told, frames in (
                ([b'{"error":{"code":-32601,"message":"no such method"}}\n'], 0),
                ([b'{"result":{"blocks":"1000 7"}}\n'], None), ([b'{"result":{"blocks":"x 7;"}}\n'], None),
                ([b'{"result":{"blocks":"1000 7;","next":5}}\n', b'{"result":{"next":5}}\n'], None),
                ([here, b'{"result":[' + frame + b"]}\n"], 1), ([here, b'{"result":7}\n'], 0),
                ([here, b'{"result":[null,{"line":"x"}]}\n'], 2), ([here, GONE], 0),
                ([here, b'{"result":[' + b",".join([frame] * 3000) + b"]}\n"], 1024)):
            run = subprocess.Popen([os.environ["GLAKECTL"], "snapshot", str(os.getpid()), "-o", file],
                                   env=room.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for said in (STATS, run_of, *told):
                one = liar.accept()[0]
                one.recv(1000)
                one.sendall(said)
                one.close()
            said = run.communicate(timeout=HUNG)[1].decode()
            if frames is None:
                ok(run.returncode == 1 and "is not who asked" in said, f"{told[0][:40]}: refused", said)
                continue
            equal((run.returncode, said), (0, ""), f"{told[-1][:40]}: a snapshot")
            with open(file, "rb") as pickled:
                block = pickle.load(pickled)["segments"][0]["blocks"][0]
            equal((block["state"], len(block["frames"])), ("active_allocated", frames), "of that many frames")
    os.unlink(path)


GONE = b'{"error":{"code":-32602,"message":"there is no such context or GPU"}}\n'


def check_other_context(room):
    """Contexts that close while they are read, and others that take their number."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    liar = socket.socket(socket.AF_UNIX)
    liar.bind(path)
    liar.listen(8)
    liar.settimeout(HUNG)
    two = STATS.replace(b"]}}", b',{"context":2,"gpus":[{"gpu":0}]}]}}')
    whole = answer_of(9, 5, False)
    change = [answer_of(1, 9000, True), answer_of(2, 3, False)]
    for name, answers, status, contexts, changed, words in (
            ("stays", [answer_of(1, 7, True), answer_of(1, 9, False), whole], 0, [1, 2], 2, ""),
            ("is another once", [*change, answer_of(2, 4, True), answer_of(2, 4, False), whole],
             0, [1, 2], 0, ""),
            ("is another thrice", [*change * 3, answer_of(5, 4, True), answer_of(5, 4, False), whole],
             0, [1, 2], 0, ""),
            ("is another each time", [*change * 4, whole], 1, [2], 0,
             "context 1 changes too fast: it was another one each time that GPU 0 was read"),
            ("has gone", [GONE, whole], 0, [2], 0, "context 1 with GPU 0 has gone meanwhile"),
            ("goes midway", [answer_of(1, 7, True), GONE, whole], 0, [2], 0,
             "context 1 with GPU 0 has gone meanwhile"),
            ("counts backwards", [answer_of(1, 7, True), answer_of(1, 5, False), whole],
             0, [1, 2], 0, "")):
        run = subprocess.Popen([os.environ["GLAKECTL"], "map", "--json", str(os.getpid())],
                               env=room.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for said in (two, *answers):
            one = liar.accept()[0]
            one.recv(1000)
            one.sendall(said)
            one.close()
        shown, said = run.communicate(timeout=HUNG)
        said = said.decode()
        gpus = json.loads(shown)["gpus"]
        equal((run.returncode, [gpu["context"] for gpu in gpus], gpus[0]["changed"]),
              (status, contexts, changed), f"a context that {name}")
        equal([len(gpu["runs"]) for gpu in gpus], [2, 1][-len(gpus):], "with its own runs alone")
        ok(words in said and said.count("\n") == bool(words), "and what is said of it", said)
    liar.close()
    os.unlink(path)


def tmux(socket_path, *args):
    return subprocess.run(["tmux", "-S", socket_path, "-f", "/dev/null", *args], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def in_terminal(room, program, columns, more):
    """What a terminal shows, with its colours."""
    path = os.path.join(room.parent, f"tmux-{columns}-{more}")
    line = (f"env {more} XDG_RUNTIME_DIR={room.parent} {os.environ['GLAKECTL']} map {program.pid}; "
            "echo END; exec cat")
    tmux(path, "new-session", "-d", "-x", str(columns), "-y", "60", line)

    def ended():
        shown = tmux(path, "capture-pane", "-p", "-e").stdout
        return "END" in shown and shown
    shown = until(ended, 0.02) or "it hangs"
    tmux(path, "kill-server")
    return shown.split("END")[0]


def check_terminal(room, program):
    if not shutil.which("tmux"):
        skip("in a terminal", "tmux is not installed")
        return
    for columns in (20, 100):
        shown = in_terminal(room, program, columns, "NO_COLOR=")
        has(shown, "\033[30m\033[48;5;78m" if "\033[30m\033[" in shown else "48;5;78mL",
            f"{columns} columns: live memory has its colour")
        bare = in_terminal(room, program, columns, "NO_COLOR=1")
        ok("\033" not in bare and "LLLL" in bare, "and none where that is not wanted", bare)
        letters = re.sub(r"\033\[[0-9;]*m", "", shown)
        equal(letters.split(), bare.split(), "but the same letters")
        ok(max(len(row) for row in bare.splitlines()) <= columns, "each line is a line")


def main():
    start()
    sys.stdout.reconfigure(line_buffering=True)
    with Room() as room:
        check_usage(room)
        # as many pages as blocks need
        program = Watched(room, GLAKE_SOFT_STREAMS="stepped", GLAKE_POLICY_TARGET="1.04")
        program.do("open")
        equal(program.do("scene"), "done", "a heap")
        check_text(room, program)
        check_json(room, program)
        check_picture(room)
        check_snapshot(room, program)
        check_terminal(room, program)
        check_liar(room)
        check_lying_stacks(room)
        check_other_context(room)
        program.end()
        check_many(room)
    done()


main()
