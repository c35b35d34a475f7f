# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl --json, whole: what each command reports is what its line under JSON in glakectl(1) says, in every object of
every scene here, and nothing stands there that no scene has shown.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from brokered import Broker, Client
from tap import DATA, HUNG, TOOL, clean, done, equal, ok, start
from watched import Room, Watched

PAGE = (Path(__file__).resolve().parent.parent.parent / "lib/man/glakectl.1").read_text(encoding="utf-8")
FIGURES = set(re.findall(r"^\.It Va (\w+)", Path(sys.argv[1]).read_text(encoding="utf-8"), re.M))
HEAD = "Thread,Time,Action,Pointer,Size,Stream\n"
LINES = {}
seen = {}


def parse(words):
    """A value: {name: (may be missing, value)}, [value], the name of a shape, or what kind of value it is."""
    def take(word):
        return words[:1] == [word] and words.pop(0)

    if take("{"):
        kind = {}
        while not take("}"):
            name = words.pop(0)
            kind[name] = (bool(take("?")), None if name == "*" else parse(words))
    elif take("["):
        kind = [parse(words)]
        assert take("]"), words
    elif take(":"):
        kind = LINES[words.pop(0)]
    else:
        kind = str if take("$") else bool if take("!") else float
    return ("null", kind) if take("|") and take("null") else kind


def read():
    text = re.search(r"^\.Sh JSON$.*?^\.Bd -literal\n(.*?)^\.Ed$", PAGE, re.M | re.S)[1]
    found = re.findall(r"^(\w[\w ]*)\n((?:  .*\n)+)", text, re.M)
    equal("".join(f"{name}\n{form}" for name, form in found), text, f"{len(found)} lines in the manual")
    for name, form in found:
        words = re.findall(r"[\w.]+|\S", form)
        LINES[name] = parse(words)
        assert not words, f"{name}: {words}"
    return [name for name, _ in found if not name.isupper()]


def compare(kind, report, place, had):
    """What is wrong about a report; `had` gets the names that it has."""
    if isinstance(kind, tuple):
        return [] if report is None else compare(kind[1], report, place, had)
    if isinstance(kind, list):
        return [text for one in report for text in compare(kind[0], one, place + "[]", had)] if isinstance(
            report, list) else [f"{place}: no list"]
    if not isinstance(kind, dict):
        right = type(report) in ((int, float) if kind is float else (kind,))
        return [] if right else [f"{place}: {json.dumps(report)[:40]} is no {kind.__name__}"]
    if not isinstance(report, dict):
        return [f"{place}: no object"]
    wrong = [f"{place}.{name}: missing" for name in kind if name != "*" and not kind[name][0] and name not in report]
    for name, value in report.items():
        if name in kind:
            had.add(f"{place}.{name}")
            wrong += compare(kind[name][1], value, f"{place}.{name}", had)
        elif "*" not in kind or name not in (FIGURES if len(kind) > 1 else set(re.findall(r"\w+", PAGE))):
            wrong.append(f"{place}.{name}: not in the manual")
    return wrong


def names(kind, place=""):
    """All that a line has."""
    if isinstance(kind, tuple):
        return names(kind[1], place)
    if isinstance(kind, list):
        return names(kind[0], place + "[]")
    if not isinstance(kind, dict):
        return set()
    return {one for name, (_, value) in kind.items() if name != "*"
            for one in {f"{place}.{name}"} | names(value, f"{place}.{name}")}


def judge(command, run, scene, status=0):
    """A report, or one in each line."""
    equal(run.returncode, status, f"{command}: {scene}")
    try:
        reports = [json.loads(text) for text in (run.stdout.splitlines() if command == "top" else [run.stdout])]
    except ValueError as error:
        ok(False, f"{command}: JSON", error, run.stdout, run.stderr)
        return
    had = seen.setdefault(command, set())
    equal(sorted({text for one in reports for text in compare(LINES[command], one, "", had)}), [], "as the manual has it")


def tool(*words, stdin=None, **env):
    return subprocess.run([TOOL, *words], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          input=stdin, env=clean({"GLAKE_DRIVER_BACKEND": "soft", **env}), timeout=HUNG)


def check_machine(folder):
    judge("info", tool("info", "-j", GLAKE_SOFT_GPUS="2"), "two GPUs")
    judge("info", tool("info", "-ja"), "all values")
    judge("info", tool("info", "-j", "-c", "pool.budget=x"), "a value that is wrong", 1)
    judge("doctor", tool("doctor", "-j"), "the software device")
    judge("bench", tool("bench", "-qj", "-r", "1", "alloc", "stitch", "tier", "copy", GLAKE_SOFT_GPUS="2"), "all")
    judge("bench", tool("bench", "-qj", "-r", "1", "stitch"), "one of them")
    path = os.path.join(folder, "glake.conf")
    Path(path).write_text("[pool]\nbudgett = 3\nbudget = x\n", encoding="ascii")
    judge("conf check", tool("conf", "check", "-j"), "nothing to find")
    judge("conf check", tool("conf", "check", "-j", path), "mistakes", 1)
    judge("conf show", tool("conf", "show", "-j"), "all keys")
    judge("conf explain", tool("conf", "explain", "-j", "pool.budget"), "one key")


def check_traces(folder):
    paths = {name: os.path.join(folder, name) for name in ("small.csv", "broken.csv", "small.trace", "cut.trace", "requests")}
    Path(paths["small.csv"]).write_text(HEAD + "0,0,allocate,0x10,3000000,0\n0,1,allocate,0x20,3000000,1\n"
                                        "0,2,free,0x10,3000000,0\n", encoding="ascii")
    Path(paths["broken.csv"]).write_text(HEAD + "0,0,x,0x10,1,0\n", encoding="ascii")
    small, trace = paths["small.csv"], paths["small.trace"]
    job = os.path.join(DATA, "opt13_N.csv.xz")
    judge("trace convert", tool("trace", "convert", "-j", "-o", trace, small), "a log")
    judge("trace cut", tool("trace", "cut", "-j", "-n", "2-", "-o", paths["cut.trace"], trace), "a trace")
    judge("trace show", tool("trace", "show", "-j", small), "a log")
    judge("trace show", tool("trace", "show", "-j", trace), "a trace")
    for words, scene, status in (([job], "a job", 0), (["-pCw", "64KiB", small], "everything", 0),
                                 (["-l", "4MiB", small], "without room", 1)):
        judge("replay", tool("replay", "-qj", "-r", "1", *words), scene, status)
    both = tool("replay", "-qj", "-r", "1", small, paths["broken.csv"])
    for command, report in zip(("replay", "replay of what cannot be read"), json.loads(both.stdout)):
        judge(command, subprocess.CompletedProcess([], 0, json.dumps(report)), "one of two")
    judge("try", tool("try", "-j", small), "a log")
    judge("report", tool("report", "-qj", "-R", "default=1GiB", small), "a log")
    judge("report", tool("report", "-qj", "-f", "no", "-c", "pool.budget=4MiB", small), "without room", 1)
    judge("kv simulate", tool("kv", "simulate", "-jn", "40"), "made up")
    requests = '{"arrival": 0, "prompt": 100, "output": 10}\n'
    judge("kv simulate", tool("kv", "simulate", "-j", "-", stdin=requests), "of a file")


def check_processes(room):
    judge("ps", room.tool("ps", "-j"), "nobody")
    judge("top", room.tool("top", "-jn", "1"), "nobody")
    one = Watched(room, GLAKE_GUARD_MODE="canary", GLAKE_SOFT_GPUS="2", GLAKE_LOG_LEVEL="none", GLAKE_SOFT_MEMORY="1GiB")
    one.do("open")
    judge("stat", room.tool("stat", "-j"), "nothing yet")
    judge("kv", room.tool("kv", "-j"), "none")
    judge("map", room.tool("map", "-j"), "nothing yet")
    judge("stat of refusals", room.tool("stat", "-jo"), "none")
    for line in ("scene", "alloc 0 3 5000", "cache"):
        equal(one.do(line), "done", line)
    address = one.do("addresses").split()[1]
    judge("ps", room.tool("ps", "-j"), "one")
    judge("stat", room.tool("stat", "-j"), "blocks")
    judge("kv", room.tool("kv", "-j"), "a cache")
    judge("map", room.tool("map", "-j"), "blocks")
    judge("top", room.tool("top", "-ji", "0.01", "-n", "2"), "one")
    judge("whose", room.tool("whose", "-j", "0x1000"), "nobody's")
    judge("whose", room.tool("whose", "-j", address), "a block")
    judge("dedup", room.tool("dedup", "-j"), "what is")
    judge("dedup", room.tool("dedup", "-jn"), "what might be")
    judge("check", room.tool("check", "-j"), "nothing to find")
    equal(one.do("spoil 5003"), "done", "a mistake")
    judge("check", room.tool("check", "-j"), "it is found", 1)
    equal(one.do("alloc 0 1 2000000000"), "failed", "no room")
    judge("stat of refusals", room.tool("stat", "-jo"), "one")
    equal(one.do("free"), "done", "all is freed")
    judge("whose", room.tool("whose", "-j", address), "one that was freed")
    judge("trace record", room.tool("trace", "record", "-jt", "1ms", "-o", os.path.join(room.parent, "a.trace")), "a moment")
    one.run.kill()
    one.run.communicate()
    two = Watched(room, GLAKE_SOFT_MEMORY="1GiB", GLAKE_TIER_PLACE="host")
    two.do("open")
    judge("top", room.tool("top", "-jn", "1"), "one that uses no GPU")
    equal(two.do("alloc 0 3 400000000"), "done", "memory of the host in place")
    judge("map", room.tool("map", "-j"), "some of it there")
    equal(two.end(), "", "it ends")
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(path)
        silent.listen()
        silent.settimeout(HUNG)
        with subprocess.Popen([TOOL, "top", "-jn", "1"], env=room.env, stdout=subprocess.PIPE, text=True) as run:
            silent.accept()[0].close()
            judge("top", subprocess.CompletedProcess([], 0, run.communicate(timeout=HUNG)[0]), "one that gives no answer")
    os.unlink(path)


def check_broker():
    with Broker() as broker:
        judge("broker", broker.tool("-j"), "nobody")
        client = Client(broker)
        for line, answer in (("whole 8", "0"), ("fill 0 5", "0"), ("publish 0 model 7", "0")):
            equal(client.do(line), answer, line)
        judge("broker", broker.tool("-j"), "one with contents")
        client.end()


def check_commands(commands):
    """Those whose help has --json are those of the manual."""
    def helps(*words):
        return tool(*words, "--help").stdout

    takes = set()
    for command in re.findall(r"^  (\w+) ", helps(), re.M):
        parts = re.findall(rf"^(?:usage: | +)(?:glakectl )?{command} ([a-z]+)\b", helps(command), re.M)
        alone = re.search(rf"glakectl {command} [^a-z]", helps(command))
        for words in [*([(command,)] if alone else []), *((command, part) for part in parts)]:
            if re.search(r"^  -j, --json", helps(*words), re.M):
                takes.add(" ".join(words))
    equal(sorted(takes), sorted({name.split(" of ")[0] for name in commands}), "each command has its line")


def main():
    start()
    commands = read()
    with tempfile.TemporaryDirectory(prefix="glake-schema-") as folder:
        check_machine(folder)
        check_traces(folder)
    with Room() as room:
        check_processes(room)
    check_broker()
    for command in commands:
        equal(sorted(names(LINES[command]) - seen.get(command, set())), [], f"{command}: all of its line was shown")
    check_commands(commands)
    done()


main()
