# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Recording a process that runs: what the file has is right, however threads allocate and free while
it begins and ends; who asks can destroy nothing; and glakectl trace record.
"""
import json
import os
import signal
import socket
import subprocess

from tap import HUNG, done, equal, has, ok, start, until
from watched import Room, Watched, ask, exchange

PARAMETERS, REFUSED = -32602, -32000


def fault(one, method, **params):
    question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    error = exchange(one, json.dumps(question).encode() + b"\n").get("error", {})
    return error.get("code"), error.get("message", "")


def show(room, path):
    run = room.tool("trace", "show", "--json", path)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr


def check_refused(room, one):
    victim = os.path.join(room.parent, "victim")
    link = os.path.join(room.parent, "link")
    with open(victim, "w", encoding="utf-8") as file:
        file.write("mine\n")
    os.symlink(os.path.join(room.parent, "new"), link)
    for path, part in [(victim, "there already"), (link, "there already"),
                       ("relative.trace", "no absolute path"), ("", "no absolute path"),
                       ("/nowhere/at/all", "No such file"), (room.parent, "there already"),
                       ("/" + "x" * 300, "too long"), ("/dev/null", "there already")]:
        code, said = fault(one, "trace.start", file=path)
        equal(code, REFUSED, f"{os.path.basename(path)[:20]!r} is refused" if path != room.parent else "a folder is refused")
        has(said, part, "in words")
    with open(victim, encoding="utf-8") as file:
        equal(file.read(), "mine\n", "a file that was there is as it was")
    ok(not os.path.exists(os.path.join(room.parent, "new")), "and no link is followed")
    for params in [{}, {"file": 7}, {"file": "/tmp/x", "size": 100}, {"file": "/tmp/x", "size": -1},
                   {"file": "/tmp/x", "context": 7}, {"file": "/tmp/x", "size": 1 << 60}]:
        equal(ask(one, "trace.start", **params), PARAMETERS, f"{params}: wrong")
    code, said = fault(one, "trace.stop")
    equal((code, said), (REFUSED, "it is not recorded"), "nothing is there to stop")


RECORDED = 300  # allocations at least, in each recording


def wait_for_some(program):
    """Until some blocks came."""
    one = program.connect()

    def allocs():
        return ask(one, "stats")["contexts"][0]["gpus"][0]["allocs"]
    enough = allocs() + RECORDED
    until(lambda: allocs() >= enough)
    one.close()


def check_meanwhile(room):
    """Begun and ended again and again while three threads are at work."""
    program = Watched(room)
    program.do("open")
    program.do("alloc 0 100 50000")
    one = program.connect()
    check_refused(room, one)
    paths, events = [], 0
    equal(program.do("churn"), "done", "three threads begin")
    while len(paths) < 12:
        path = os.path.join(room.parent, f"{len(paths)}.trace")
        equal(ask(one, "trace.start", file=path), {"context": 1, "file": path}, "it begins")
        if not paths:
            code, said = fault(one, "trace.start", file=path + "x")
            has(said, f"recorded already, in {path}", "and not twice")
        wait_for_some(program)
        equal(ask(one, "trace.stop"), {"context": 1, "file": path}, "and ends")
        paths.append(path)
    equal(program.do("rest"), "done", "the program noticed nothing")
    for path in paths:
        equal(os.stat(path).st_mode & 0o777, 0o600, "the file is its user's alone")
        told = show(room, path)
        ok(isinstance(told, dict), "it is right", told if isinstance(told, str) else "")
        if isinstance(told, dict):
            equal((told["closed"], told["written_now"], told["midway"]), (True, False, True),
                  "and complete")
            events += told["events"]
        run = room.tool("replay", "--json", "-r1", path)
        ok(run.returncode == 0 or "no event" in run.stderr or "no allocation" in run.stderr,
           "and can be replayed", run.stderr)
    ok(events >= RECORDED * len(paths), f"with what happened, in {len(paths)} files", events)
    first = os.path.join(room.parent, "free.trace")
    ask(one, "trace.start", file=first)
    program.do("free")
    program.do("alloc 0 3 70000")
    ask(one, "trace.stop")
    equal(program.do("alloc 0 2 70000"), "done", "the program goes on")
    told = show(room, first)
    equal((told["events"], told["frees_of_before"], told["kinds"]), (3, 100, {"allocate": 3}),
          "blocks from before are freed, and told apart; what comes behind is not there")
    has(room.tool("trace", "show", first).stdout, "frees of before          100", "in words")
    left, said = 16, ""
    while left and "can be recorded" not in said:
        path = os.path.join(room.parent, f"more{left}.trace")
        said = fault(one, "trace.start", file=path)[1] if left else said
        ask(one, "trace.stop")
        left -= 1
    has(said, "can be recorded 16 times", "no more often than that")
    return program


def record(room, pid, path, *more):
    """It has begun."""
    run = subprocess.Popen([os.environ["GLAKECTL"], "trace", "record", "-o", path, *more, str(pid)],
                           env=room.env, text=True, stderr=subprocess.PIPE)
    has(run.stderr.readline(), "is being recorded", "it begins")
    return run


def check_ends(room):
    path = os.path.join(room.parent, "end.trace")
    other = Watched(room)
    other.do("open")
    one = other.connect()
    run = record(room, other.pid, path)
    other.do("open")
    ask(one, "trace.start", context=2, file=path + "2")
    run.send_signal(signal.SIGINT)
    has(run.communicate(timeout=HUNG)[1], "end.trace\n", "another context has come meanwhile")
    equal((run.returncode, show(room, path)["closed"]), (0, True), "its own recording ends")
    equal(ask(one, "trace.stop", context=2)["file"], path + "2", "and no other")
    run = record(room, other.pid, path + "3", "-x2")
    other.do("close")
    run.send_signal(signal.SIGTERM)
    has(run.communicate(timeout=HUNG)[1], "until its context was closed", "it was closed before")
    equal((run.returncode, show(room, path + "3")["closed"]), (0, True), "which is no fault")
    run = record(room, other.pid, path + "4")
    ask(one, "trace.stop")
    run.send_signal(signal.SIGTERM)
    has(run.communicate(timeout=HUNG)[1], "somebody ended that", "nor that somebody else did")
    equal(run.returncode, 0, "as well")
    run = record(room, other.pid, path + "5")
    other.do("close")
    run.send_signal(signal.SIGINT)
    has(run.communicate(timeout=HUNG)[1], "until its context was closed", "with its socket")
    equal((run.returncode, show(room, path + "5")["closed"]), (0, True), "all is there")
    other.do("open")
    run = record(room, other.pid, path + "6")
    other.run.kill()
    has(run.communicate(timeout=HUNG)[1], "until it ended", "nobody waited for its end yet")
    equal(run.returncode, 0, "it is one")
    other.run.wait()


def check_lost(room):
    """A process, played here, whose first answer is lost."""
    path = os.path.join(room.parent, "lost.trace")
    lost = os.path.join(room.path, f"{os.getpid()}.sock")
    begun = {"error": {"code": REFUSED, "message": f"it is recorded already, in {path}"}}
    idle = {"error": {"code": REFUSED, "message": "'' is no absolute path"}}
    for answers, methods, part in [
            ([begun, {"result": {"context": 1, "file": path}}],
             ["trace.start", "trace.start", "trace.stop"], "has ended that"),
            ([idle], ["trace.start", "trace.start"], f"may yet record in {path}, until trace.stop")]:
        asked = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(lost)
            listener.listen()
            listener.settimeout(HUNG)
            run = subprocess.Popen([os.environ["GLAKECTL"], "trace", "record", "-o", path,
                                    str(os.getpid())], env=room.env, text=True,
                                   stderr=subprocess.PIPE)
            for answer in [None, *answers]:
                with listener.accept()[0] as one:
                    asked.append(json.loads(one.makefile().readline())["method"])
                    if answer:
                        one.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, **answer}).encode()
                                    + b"\n")
            has(run.communicate(timeout=HUNG)[1], part, "what became of it is told")
        os.unlink(lost)
        equal((run.returncode, asked), (1, methods), "after a question")


def check_tool(room, program):
    path = os.path.join(room.parent, "tool.trace")
    other = Watched(room)
    other.do("open")
    for args, part in [([], "-o OUT is missing"), (["-o", path, "-g", "0"], "unknown option '-g'"),
                       (["-o", path, "--for", "0"], "--for takes"), (["-o", path, "--for", "10000000000s"], "--for takes"),
                       (["-o", path, "-s1"], "--size"),
                       (["-o", path, "1", "2"], "one process"), (["-o", path, "-x0"], "--context")]:
        run = room.tool("trace", "record", *args)
        equal(run.returncode, 2, f"record {args[-2:]}: wrong usage".replace(room.parent, ""))
        has(run.stderr, part, "in words")
    for args, part in [(["-o", path], "choose one of"), (["-o", path, "nobody"], "is called 'nobody'"),
                       (["-o", "/nowhere/x", str(other.pid)], "No such file"),
                       (["-o", room.parent + "/", str(other.pid)], "directory"),
                       (["-o", path, "-x7", str(other.pid)], "no such context"),
                       (["-o", path, str(program.pid)], "can be recorded 16 times")]:
        run = room.tool("trace", "record", *args)
        equal(run.returncode, 1, f"record: refused, {part}")
        has(run.stderr, part, "in words")
    run = subprocess.Popen([os.environ["GLAKECTL"], "trace", "record", "-o", "tool.trace",
                            str(other.pid)], env=room.env, cwd=room.parent, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    has(run.stderr.readline(), "is being recorded", "it begins")
    other.do("alloc 0 5 1000")
    run.send_signal(signal.SIGINT)
    equal(run.communicate(timeout=HUNG)[1].count("is recorded in tool.trace\n"), 1, "it ends")
    equal(run.returncode, 0, "well")
    other.do("alloc 0 5 1000")
    equal(show(room, path)["kinds"], {"allocate": 5}, "with what was asked for between")
    path += "2 \u00fc"
    run = room.tool("trace", "record", "--json", "-t", "50ms", "-o", path, str(other.pid))
    told = json.loads(run.stdout)
    equal((told["trace"], told["pid"], told["process_ended"]), (path, other.pid, False),
          "for so long")
    run = subprocess.Popen([os.environ["GLAKECTL"], "trace", "record", "-o", path + "3",
                            str(other.pid)], env=room.env, text=True, stderr=subprocess.PIPE)
    run.stderr.readline()
    other.do("alloc 0 7 1000")
    other.run.kill()
    other.run.wait()
    has(run.communicate(timeout=HUNG)[1], "until it ended", "a process that is killed")
    equal((run.returncode, show(room, path + "3")["kinds"]), (0, {"allocate": 7}), "is told of")
    check_ends(room)
    check_lost(room)
    said = program.end()
    equal(said, "", "nobody was warned of anything")


def main():
    start()
    with Room() as room:
        program = check_meanwhile(room)
        check_tool(room, program)
    done()


main()
