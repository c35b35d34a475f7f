# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The socket of a process: that it is there only where it was asked for, what each method answers,
and that nobody who asks can do more than ask.
"""
import json
import os
import resource
import socket
import struct

from tap import done, equal, has, ok, skip, start
from watched import FORMS, Room, Watched, ask, ended, exchange

MIB = 1 << 20
THREAD = "glake-rpc"


def check_off(room):
    program = Watched(room, GLAKE_RPC_SOCKET="no")
    equal(program.do("open"), "done", "a process opens a context")
    equal(room.names(), [], "without being asked to it makes no socket")
    ok(THREAD not in program.threads(), "nor a thread")
    equal(program.end(), "", "and says nothing")


def check_methods(room):
    program = Watched(room, GLAKE_SOFT_GPUS="3")
    program.do("open")
    equal(room.names(), [f"{program.pid}.sock"], "asked to it makes one")
    equal(os.stat(program.path).st_mode & 0o777, 0o600, "for its user alone")
    ok(program.threads().count(THREAD) == 1, "a thread answers there", program.threads())
    equal(program.do("alloc 1 3 1000000"), "done", "three blocks on a GPU")
    one = program.connect()
    info = ask(one, "info")
    equal(info["pid"], program.pid, "info: which process")
    equal(info["program"], os.path.basename(os.environ["GLAKE_WATCH_PROGRAM"])[:64], "program")
    equal(info["contexts"], [{"context": 1, "driver": "soft", "gpus": 3}], "contexts")
    equal(sorted(info["methods"]), sorted([*FORMS, "metrics", "stack", "stats"]), "methods")
    stats = ask(one, "stats")
    gpus = stats["contexts"][0]["gpus"]
    equal([gpu["gpu"] for gpu in gpus], [1], "stats: of the GPU in use alone")
    equal((gpus[0]["live_bytes"], gpus[0]["live_blocks"]), (3000000, 3), "what is live")
    equal(gpus[0]["budget_bytes"], None, "no budget")
    has(ask(one, "metrics"), 'glake_live_bytes{context="1",gpu="1"} 3000000\n', "metrics")
    equal(ask(one, "budget", gpu=1, bytes=64 * MIB),
          [{"context": 1, "gpu": 1, "budget_bytes": 64 * MIB}], "a budget is set")
    equal(ask(one, "budget"), [{"context": 1, "gpu": 1, "budget_bytes": 64 * MIB}], "and asked")
    equal(ask(one, "budget", context=1, gpu=0, bytes=2 * MIB)[0]["budget_bytes"], 2 * MIB,
          "that of a GPU which nobody has used")
    equal(ask(one, "budget", gpu=1, bytes=None)[0]["budget_bytes"], None, "null lifts it")
    equal(ask(one, "trim", gpu=1, keep=0), [{"context": 1, "gpu": 1, "released_bytes": 0}], "trim")
    equal(ask(one, "config.get", key="rpc.socket"),
          [{"key": "rpc.socket", "value": "yes", "origin": "environment",
            "source": "GLAKE_RPC_SOCKET", "line": 0}], "config.get: a key")
    ok(len(ask(one, "config.get")) > 20, "all keys")
    program.do("open")
    equal(len(ask(one, "stats")["contexts"]), 2, "a second context answers at the same socket")
    equal(len(room.names()), 1, "of which there is one")
    program.do("close")
    equal(len(ask(one, "stats")["contexts"]), 1, "until it is closed")
    program.do("close")
    equal(room.names(), [], "the last takes the socket with it")
    ok(THREAD not in program.threads(), "and the thread")
    ok(ended(one), "who was connected hears of it")
    equal(program.end(), "", "nobody was warned of anything")


def check_bad_questions(room):
    program = Watched(room)
    program.do("open")
    one = program.connect()
    ok(isinstance(ask(one, "info"), dict), "a question")
    good = '{"jsonrpc":"2.0","id":1,"method":"info"}'
    for code, text in [
            (-32700, "nonsense"), (-32700, good[:-1]), (-32700, good + "}"), (-32700, ""),
            (-32700, "[" * 60000), (-32700, '{"a":' * 17 + "1" + "}" * 17),
            (-32700, good.replace("info", "i\0o")), (-32700, good.replace("info", "\xff")),
            (-32600, "null"), (-32600, "7"), (-32600, "[" + good + "]"), (-32600, "{}"),
            (-32600, good.replace("2.0", "1.0")), (-32600, good.replace('"info"', "7")),
            (-32600, good.replace('"id":1', '"id":1.5')), (-32600, good.replace("1,", "[1],")),
            (-32600, good.replace("1,", '"' + "x" * 257 + '",')),
            (-32601, good.replace("info", "abort")), (-32601, good.replace("info", "info\\u0000")),
            (-32601, good.replace("info", ""))]:
        data = text.encode("latin-1" if "\xff" in text else "utf-8")
        answer = exchange(one, data + b"\n")
        equal(answer and answer.get("error", {}).get("code"), code, f"{ascii(text[:40])}")
    for method, params in [
            ("trim", {"gpu": -1}), ("trim", {"gpu": "0"}), ("trim", {"gpu": 0.5}),
            ("trim", {"gpu": 1 << 62}), ("trim", {"gpu": None}), ("trim", {"gpu": 1}),
            ("trim", {"context": 99}), ("trim", {"keep": []}), ("trim", {"other": 1}),
            ("budget", {"bytes": 0}), ("budget", {"bytes": True}), ("stats", {"gpu": 0}),
            ("config.get", {"key": 7}), ("config.get", {"key": "log"}),
            ("config.get", {"key": "log.levels"}), ("config.get", {"context": 0, "key": "a.b"})]:
        equal(ask(one, method, **params), -32602, f"{method} {ascii(params)}")
    # a number that no type holds is none for some versions of json-c
    huge = good.replace("info", "trim").replace("{", '{"params":{"gpu":%d},' % (1 << 70), 1)
    found = exchange(one, huge.encode() + b"\n")["error"]["code"]
    equal(found in (-32602, -32700), True, f"a GPU of 70 bits ({found})")
    equal(exchange(one, good.replace("{", '{"params":[1],').encode() + b"\n")["error"]["code"],
          -32602, "parameters in a list")
    equal(exchange(one, good.replace("1,", '"a\\u0000\\"b",').encode() + b"\n")["id"], 'a\0"b',
          "an id comes back as it was")
    unnamed = good.replace('"id":1,', "").encode() + b"\n"
    equal(exchange(one, unnamed * 3 + good.encode() + b"\n")["id"], 1, "no id, no answer")
    equal(exchange(one, b"x" * (1 << 16) + b"\n")["error"]["code"], -32700, "too long a line")
    ok(ended(one), "ends the connection")
    equal(exchange(program.connect(), good.encode() + b"\r\n")["id"], 1, "others are served")
    equal(program.end(), "", "nobody was warned of anything")


def check_crowd(room):
    program = Watched(room)
    program.do("open")
    before = program.files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    crowd = min(1000, soft - 100)
    silent = [program.connect() for _ in range(crowd)]
    ok(crowd >= 500, f"{crowd} are connected and silent")
    ok(isinstance(ask(program.connect(), "stats"), dict), "one more is answered")
    more = program.files() - before
    ok(more <= 65, "the process has no more than 65 files more", more)
    for one in silent:
        one.close()
    one = program.connect()
    # reads nothing: the process keeps one answer for it, and does not wait
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.setblocking(False)
    other, full = program.connect(), 0
    for _ in range(10000):
        try:
            while True:
                one.send(b'{"jsonrpc":"2.0","id":1,"method":"metrics"}\n' * 100)
                full = 0
        except BlockingIOError:
            full += 1
        # each answer is a turn in which the process would have read what was sent
        if full > 5 or not isinstance(ask(other, "info"), dict):
            break
    ok(full > 5, "one who does not read is not listened to for ever")
    ok(isinstance(ask(other, "stats"), dict), "and holds up nobody for long")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
    ok(isinstance(ask(other, "stats"), dict), "nor when it goes")
    equal(program.end(), "", "nobody was warned of anything")


def check_life(room):
    # what the thread holds when the process forks is nobody's in the child: no leak of the program
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    program = Watched(room, ASAN_OPTIONS=sanitizer)
    program.do("open")
    one = program.connect()
    ok(isinstance(ask(one, "info"), dict), "a client is connected")
    equal(program.do("fork"), "done", "while the process forks")
    ok(isinstance(ask(one, "info"), dict), "it stays connected")
    program.start("forks")
    answers = [ask(one, method) for method in ("stats", "metrics") * 10]
    ok(all(answers), "it answers between forks")
    equal((program.do("rest"), program.run.stdout.readline()), ("done", "done\n"),
          "whose children end well")
    program.do("close")
    ok(ended(one), "the end of the last context ends it, though a child lives")
    equal(room.names(), [], "and its socket")
    program.do("open")
    ok(isinstance(ask(program.connect(), "info"), dict), "a new one answers")
    one = program.connect()
    program.start("storm")
    answers = [ask(program.connect(), "stats") for _ in range(50)]
    ok(all(isinstance(answer, dict) and answer["contexts"] for answer in answers),
       "contexts come and go while it is asked")
    equal(program.run.stdout.readline(), "done\n", "neither stops the other")
    program.run.kill()
    program.run.wait()
    equal(room.names(), [f"{program.pid}.sock"], "who is killed leaves a name")
    ok(ended(one), "and whoever watched hears of it")
    program = Watched(room)
    program.do("open")
    equal(program.end(), "", "one that exits without closing")
    ok(f"{program.pid}.sock" not in room.names(), "leaves none")


def check_refused(room):
    def warned(what, part, **keys):
        program = Watched(room, **keys)
        equal(program.do("open"), "done", f"{what}: the program goes on")
        equal(program.do("alloc 0 1 1000"), "done", f"{what}: with its memory")
        said = program.end()
        has(said, part, f"{what}: and is told")
        equal(said.count("\n"), 1, f"{what}: in one line")
    os.chmod(room.path, 0o755)
    warned("a directory that is open", "is open to others")
    os.chmod(room.path, 0o700)
    if os.geteuid() == 0:
        os.chown(room.path, 4711, -1)
        warned("another user's directory", "belongs to user 4711")
        os.chown(room.path, 0, -1)
    else:
        skip("another user's directory", "only root can give one away")
    os.chmod(room.parent, 0o777)
    warned("a directory where others may write", "others may write")
    os.chmod(room.parent, 0o700)
    program = Watched(room)
    program.do(f"files {program.files() + 1}")
    said = ""
    opened = program.do("open")
    program.do(f"files {program.files() + 50}")  # what looks for leaks at the end needs some
    if opened == "done":
        said = program.end()
        has(said, "there is no socket to watch this process by", "few descriptors: one line")
        equal(said.count("\n"), 1, "and no more")
    else:
        skip("few descriptors", "the software device itself needs more")
        program.end()


def check_other_user(room):
    if os.geteuid() != 0:
        skip("another user is not answered", "only root can become one")
        return
    program = Watched(room)
    program.do("open")
    for path in (room.parent, room.path):
        os.chmod(path, 0o755)
    os.chmod(program.path, 0o666)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.setgid(4711)
        os.setuid(4711)
        got = ask(program.connect(), "info")
        os.write(write, json.dumps(got).encode())
        os._exit(0)
    os.waitpid(child, 0)
    equal(os.read(read, 100), b"null", "another user is not answered, though all doors are open")
    os.chmod(room.path, 0o700)
    program.end()


def main():
    start()
    with Room() as room:
        check_off(room)
        check_methods(room)
        check_bad_questions(room)
        check_crowd(room)
        check_life(room)
        check_refused(room)
        check_other_user(room)
    done()


main()
