# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The board of figures: that it says what the process answers, that nobody who has it can do more than
read, for how long it is written, and what becomes of it when processes fork, close or die.
"""
import fcntl
import glob
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import threading
import time

from tap import HUNG, REAL_TIME, done, equal, has, ok, skip, start, until
from watched import Room, Watched, ask, ended

HEAD = struct.Struct("<8sII14Q")
NAMES = ("magic version header_size size pid schema_at schema_room values_at values_room sequence "
         "state writes written_ns interval_ns shape schema_size values").split()
SEALS = 0x10 | fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Board:
    """One that was passed, as another program would read it."""

    def __init__(self, fd):
        self.fd = fd
        self.map = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)

    def head(self):
        return dict(zip(NAMES, HEAD.unpack_from(self.map)))

    def read(self):
        """The head, and {(context, gpu, name, of): words}."""
        while True:
            head = self.head()
            schema = self.map[head["schema_at"]:head["schema_at"] + head["schema_size"]]
            values = self.map[head["values_at"]:head["values_at"] + 8 * head["values"]]
            if head["sequence"] % 2 == 0 and self.head()["sequence"] == head["sequence"]:
                break
        words, figures = iter(struct.unpack(f"<{len(values) // 8}Q", values)), {}
        for line in schema.decode().splitlines():
            part = line.split(" ")
            if part[0] == "figure":
                key = (int(part[1]), int(part[2]), part[6], part[8] if len(part) > 7 else None)
                figures[key] = [next(words) for _ in range(int(part[5]))]
        head["left"] = len(list(words))
        return head, figures

    def until(self, wanted):
        """Reads until the head and the figures are as wanted."""
        return until(lambda: wanted(*self.read()))

    def close(self):
        self.map.close()
        os.close(self.fd)


def get(one, interval=10, **more):
    """The same as passed(), which is one at most."""
    result, board, count = passed(one, interval, **more)
    ok(count < 2, "one descriptor at most", count)
    return result, board


def passed(one, interval, **more):
    """What the method answers, the board that came with it or None, and how many came; 99: some were lost."""
    one.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "board",
                            "params": {"interval": interval, **more}}).encode() + b"\n")
    data, fds, flags, _ = socket.recv_fds(one, 1 << 16, 4)
    answer = json.loads(data)
    return (answer.get("result") or answer["error"]["code"], Board(fds[0]) if fds else None,
            99 if flags & socket.MSG_CTRUNC else len(fds))


def flat(stats):
    """The figures of an answer to stats, as the board has them, without histograms."""
    found = {}
    for context in stats["contexts"]:
        for gpu in [*context["gpus"], context]:
            for name, value in gpu.items():
                if name in ("gpu", "gpus", "context", "driver"):
                    continue
                parts = value.items() if isinstance(value, dict) else [(None, value)]
                for of, one in parts:
                    if not isinstance(value, dict) or "below_ns" not in value:
                        key = (context["context"], gpu.get("gpu", -1), name, of)
                        found[key] = one
    return found


def check_same(room):
    program = Watched(room, GLAKE_SOFT_GPUS="2")
    program.do("open")
    program.do("alloc 1 3 1000000")
    one = program.connect()
    answer, board = get(one)
    head, figures = board.read()
    equal((head["magic"], head["version"], head["pid"], head["size"], head["state"], head["left"]),
          (b"\x89glkbrd\n", 1, program.pid, answer["size_bytes"], 0, 0), "the head of a board")
    equal(sorted(answer), ["board", "passed", "pid", "program", "size_bytes", "version"],
          "and who it is of")
    stats = flat(ask(program.connect(), "stats"))
    moving = ("hold_max_ns", "hold_duration_ns")
    wrong = []
    for key, value in stats.items():
        words = figures.get(key)
        if isinstance(value, dict) or key[2] in moving:
            continue
        if isinstance(value, float):
            value = round(value * 1e6)
        if words != [(1 << 64) - 1 if value is None else value]:
            wrong.append((key, value, words))
    equal(wrong, [], f"the figures are those of an answer, {len(stats)} of them")
    histograms = [words for words in figures.values() if len(words) > 1]
    ok(len(histograms) > 20 and all(words[0] == sum(words[3:]) for words in histograms),
       "with times, whose counts are the sums of their buckets")
    equal(program.do("alloc 1 1 5000"), "done", "one block more")
    ok(board.until(lambda _, now: now[(1, 1, "live_blocks", None)] == [4]),
       "is seen without a question")
    shape = board.read()[0]["shape"]
    program.do("alloc 0 1 5000")
    ok(board.until(lambda now, f: now["shape"] != shape and (1, 0, "live_bytes", None) in f),
       "a GPU that is used is there, in another shape")
    again, none = get(one, 50)
    equal((again["passed"], none, again["board"]), (False, None, answer["board"]),
          "who asks again has it already")
    for interval in (9, 10001, -1, "x", None):
        equal(get(one, interval), (-32602, None), f"an interval of {interval}")
    program.do("close")
    ok(board.read()[0]["state"] == 2 and ended(one), "with the context the board ends")
    board.close()
    equal(program.end(), "", "nobody was warned of anything")


def check_hostile(room):
    program = Watched(room)
    program.do("open")
    program.do("alloc 0 5 70000")
    one = program.connect()
    board = get(one)[1]
    size = os.fstat(board.fd).st_size
    again = os.open(f"/proc/self/fd/{board.fd}", os.O_RDWR)

    def refused(what, call):
        try:
            call()
            ok(False, f"{what} is refused")
        except (PermissionError, OSError) as error:
            ok(error.errno in (1, 13, 16), f"{what} is refused", str(error))

    for name, fd in (("the descriptor", board.fd), ("one opened anew", again)):
        refused(f"{name}: to write", lambda f=fd: os.pwrite(f, b"\0" * 4096, 0))
        refused(f"{name}: to cut off", lambda f=fd: os.ftruncate(f, 0))
        refused(f"{name}: to extend", lambda f=fd: os.ftruncate(f, 2 * size))
        refused(f"{name}: to map for writing", lambda f=fd: mmap.mmap(f, size))
        refused(f"{name}: to seal off the process",
                lambda f=fd: fcntl.fcntl(f, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE))
    equal(fcntl.fcntl(again, fcntl.F_GET_SEALS), SEALS, "it is sealed")
    os.close(again)
    ok(board.until(lambda _, f: f.get((1, 0, "live_blocks", None)) == [5]), "it has its figures")
    writes = board.read()[0]["writes"]
    ok(board.until(lambda head, _: head["writes"] > writes), "and is written on")
    board.close()
    one.close()
    equal(program.end(), "", "nobody was warned of anything")


def check_lease(room):
    program = Watched(room)
    program.do("open")
    files = program.files()
    one = program.connect()
    board = get(one, 20)[1]
    ok(board.until(lambda head, _: head["interval_ns"] >= 20 * 10**6 and head["writes"] > 2),
       "it is written as often as was asked, or less")
    other = program.connect()
    equal(get(other, 300)[0]["passed"], True, "another has it too")
    writes = board.read()[0]["writes"]
    ok(board.until(lambda head, _: head["writes"] > writes), "the most eager tells how often")
    one.close()
    ok(board.until(lambda head, _: head["interval_ns"] >= 300 * 10**6),
       "who goes does not any more")
    other.close()
    ok(board.until(lambda head, _: head["interval_ns"] == 0), "and when all have gone it rests")
    writes = board.read()[0]["writes"]
    ask(program.connect(), "stats")
    equal(board.read()[0]["writes"], writes, "whatever is asked then")
    for _ in range(20):
        get(program.connect())[1].close()
    ok(program.files() - files <= 21, "many who come and go get one and the same")
    crowd = [program.connect() for _ in range(64)]
    boards = [get(one, 10)[1] for one in crowd]
    ok(all(boards), "64 watchers")
    program.do("alloc 0 7 1000")
    ok(all(one.until(lambda _, f: f.get((1, 0, "live_blocks", None)) == [7]) for one in boards),
       "see the same")
    equal(len({os.fstat(one.fd).st_ino for one in boards}), 1, "on one board")
    if REAL_TIME:
        before = time.monotonic()  # real time
        writes = boards[0].read()[0]["writes"]
        time.sleep(0.3)  # real time
        count, took = boards[0].read()[0]["writes"] - writes, time.monotonic() - before  # real time
        # once in 10 ms, for each of them it would be 64 times as often
        ok(count <= 4 * took / 0.01 + 4, "which is written once for all of them",
           f"{count} times in {took:.2f} s")
    for one in crowd:
        one.close()
    for one in boards:
        one.close()
    ok(isinstance(ask(program.connect(), "stats"), dict), "others are answered")
    board.close()
    equal(program.end(), "", "nobody was warned of anything")


def is_whole(figures):
    """Those of check_larger."""
    return (8, -1, "driver_calls", "create") in figures and (1, 15, "live_bytes", None) in figures


def check_larger(room):
    program = Watched(room, GLAKE_SOFT_GPUS="16")
    program.do("open")
    program.do("alloc 0 1 1000")
    one = program.connect()
    first = get(one)[1]
    for gpu in range(16):
        program.do(f"alloc {gpu} 1 1000")
    for _ in range(7):
        program.do("open")
    ok(first.until(lambda head, _: head["state"] == 1), "one that is too small says so")
    answer, second = get(one)
    ok(second and answer["passed"], "who asks again gets a larger one")
    # it may be too small as well, if it was made before the last of them
    while second.until(lambda head, f: head["state"] == 1 or is_whole(f)):
        if is_whole(second.read()[1]):
            break
        second = passed(one, 10)[1] or second
    ok(is_whole(second.read()[1]), "with all that is new")
    writes = first.read()[0]["writes"]
    second.until(lambda head, _: head["writes"] > 3)
    equal(first.read()[0]["writes"], writes, "the first is not written any more")
    first.close()
    second.close()
    fds = f"/proc/{program.pid}/fd"
    equal(sum("glake-board" in os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)), 1,
          "and closed")
    equal(program.end(), "", "nobody was warned of anything")


def holds(pid):
    """Whether a process has a descriptor of a board."""
    try:
        folder = f"/proc/{pid}/fd"
        return any("glake-board" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))
    except FileNotFoundError:
        return True  # one has gone meanwhile


def between_writes(program, board):
    """Stops it where its board is whole: nobody ends what was begun by one that is killed."""
    while True:
        os.kill(program.pid, signal.SIGSTOP)
        os.waitpid(program.pid, os.WUNTRACED)
        if board.head()["sequence"] % 2 == 0:
            return
        os.kill(program.pid, signal.SIGCONT)


def check_ends(room):
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    program = Watched(room, ASAN_OPTIONS=sanitizer)
    program.do("open")
    program.do("alloc 0 2 3000000")
    one = program.connect()
    board = get(one)[1]
    equal(program.do("fork"), "done", "the process forks")
    with open(f"/proc/{program.pid}/task/{program.pid}/children", encoding="utf-8") as file:
        child = int(file.read().split()[0])
    with open(f"/proc/{child}/maps", encoding="utf-8") as file:
        equal("glake-board" in file.read(), False, "the child has no board")
    # it may not have come to its first line
    ok(until(lambda: not holds(child)), "nor a descriptor of it")
    writes = board.read()[0]["writes"]
    ok(board.until(lambda head, _: head["writes"] > writes), "the parent goes on")
    equal(get(one)[0]["passed"], False, "for who has it")
    between_writes(program, board)
    before = board.read()[1]
    program.run.kill()
    program.run.wait()
    ok(ended(one), "who watched one that is killed hears of it")
    head, figures = board.read()
    equal((head["state"], figures[(1, 0, "live_bytes", None)]), (0, [6000000]),
          "and has its last figures")
    equal(len(before), len(figures), "as they were")
    board.close()


class Liar:
    """What stands at a socket and answers with boards that are none, or with none."""

    def __init__(self, room, pid, fd=None, passes=1):
        self.path = os.path.join(room.path, f"{pid}.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.fd, self.asked, self.passes = fd, [], passes
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return  # it was closed
            threading.Thread(target=self.answer, args=(one,), daemon=True).start()

    def answer(self, one):
        for line in one.makefile("rb"):
            method = json.loads(line)["method"]
            self.asked.append(method)
            reply = {"jsonrpc": "2.0", "id": 1}
            if method == "board" and self.fd is None:
                reply["error"] = {"code": -32601, "message": "there is no such method"}
            elif method == "board":
                reply["result"] = {"pid": 1, "program": "liar", "version": "0"}
            else:
                reply["result"] = {"pid": 1, "program": "asked", "version": "0", "contexts": []}
            data = json.dumps(reply).encode() + b"\n"
            if method == "board" and self.fd is not None:
                socket.send_fds(one, [data], [self.fd] * self.passes)
            else:
                one.sendall(data)


def memory(data, seals):
    fd = os.memfd_create("glake-liar", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def made(schema=b"", words=b"", **head):
    """A board of these, with a head that is right but for what is given."""
    schema += b"\n" * (-len(schema) % 8)
    fields = {"magic": b"\x89glkbrd\n", "version": 1, "header_size": HEAD.size, "pid": 1,
              "size": 256 + len(schema) + len(words), "schema_at": 256,
              "schema_room": len(schema), "values_at": 256 + len(schema),
              "values_room": len(words), "schema_size": len(schema), "writes": 1,
              "values": len(words) // 8, "interval_ns": 10**9, **head}
    packed = HEAD.pack(*(fields.get(name, 0) for name in NAMES))
    return packed.ljust(256, b"\0") + schema + words


def check_reader(room):
    """What glakectl makes of boards."""
    program = Watched(room)
    program.do("open")
    program.do("alloc 0 2 3000000")
    tool = subprocess.Popen([os.environ["GLAKECTL"], "stat", "-j", "-i", "0.05",
                             str(program.pid)], env=room.env, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    first = json.loads(tool.stdout.readline())
    with open(f"/proc/{tool.pid}/maps", encoding="utf-8") as file:
        ok("glake-board" in file.read(), "stat --interval reads a board")
    direct = ask(program.connect(), "stats")
    equal((sorted(first), list(first["contexts"][0]), list(first["contexts"][0]["gpus"][0])),
          (sorted(direct), list(direct["contexts"][0]), list(direct["contexts"][0]["gpus"][0])),
          "and shows it as it shows what it is told")
    moving = ("hold_max_ns", "hold_duration_ns")
    equal({k: v for k, v in first["contexts"][0]["gpus"][0].items() if k not in moving},
          {k: v for k, v in direct["contexts"][0]["gpus"][0].items() if k not in moving},
          "with the same figures")
    program.do("alloc 0 1 1000")
    lines = iter(lambda: json.loads(tool.stdout.readline()), None)
    ok(any(one["contexts"][0]["gpus"][0]["live_blocks"] == 3 for one in lines),
       "what is new is shown")
    program.run.kill()
    program.run.wait()
    tool.stdout.read()
    equal(tool.wait(timeout=HUNG), 0, "it ends with the process")
    os.unlink(program.path)
    all_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    line = b"context 1 soft\nfigure 1 0 1 0 1 live_bytes\n"
    eight = struct.pack("<Q", 7)
    bad = {
        "nothing": b"\0" * 4096, "a few bytes": b"\x89glkbrd\n",
        "another version": made(line, eight, version=2),
        "another size": made(line, eight, size=1 << 20),
        "a schema elsewhere": made(line, eight, schema_at=1 << 40),
        "a schema past its room": made(line, eight, schema_size=1 << 30),
        "values past their room": made(line, eight, values=1 << 61),
        "too few values": made(line), "too many": made(line, eight * 2),
        "a place at the end of all": made(line, eight, values_at=(1 << 64) - 8, values_room=16),
        "a figure of no context": made(b"figure 1 0 1 0 1 live_bytes\n", eight),
        "a figure without a name": made(b"context 1 soft\nfigure 1 0 1 0 1 \n", eight),
        "a figure named as the list": made(b"context 1 soft\nfigure 1 -1 1 0 1 gpus\n", eight),
        "a long word": made(b"context 1 " + b"x" * 5000 + b"\n"),
        "many contexts": made(b"context 1 soft\n" * 70),
        "a terminal's code": made(b"context 1 \x1b[31m\n"),
        "figures by turns of GPUs far apart": made(
            b"context 1 soft\n" + b"".join(b"figure 1 %d 0 0 1 a\n" % gpu for gpu in range(1024)) +
            b"figure 1 0 0 0 1 b\nfigure 1 1 0 0 1 b\n" * 2500, eight * 6024),
        "one that is always written": made(line, eight, sequence=1),
    }
    descriptors = {name: memory(data, all_seals) for name, data in bad.items()}
    huge = (1 << 64) - 1
    fine = {"one that is right": made(line, eight),
            "many figures of one GPU": made(
                b"context 1 soft\n" + b"".join(b"figure 1 %d 0 0 1 a\n" % gpu for gpu in range(1024)) +
                b"figure 1 0 0 0 1 b\n" * 5000, eight * 6024),
            "one of huge numbers": made(line, struct.pack("<Q", huge), interval_ns=huge,
                                        written_ns=huge, writes=huge, shape=huge)}
    descriptors["one that is not sealed"] = memory(made(line, eight), 0)
    descriptors["no memory"] = os.open("/dev/null", os.O_RDONLY)
    for name, fd in [*descriptors.items(), ("a process that has none", None),
                     *((name, memory(data, all_seals)) for name, data in fine.items())]:
        liar = Liar(room, os.getpid(), fd)
        run = room.tool("top", "--batch", "--json", "-n", "2", "-i", "0.1")
        rows = [json.loads(row)["rows"] for row in run.stdout.splitlines()]
        right = name in fine
        said = [row[0].get("program") for row in rows]
        equal((run.returncode, len(rows), run.stderr), (0, 2, ""), f"{name}: top goes on")
        equal(said, ["liar" if right else "asked"] * 2, f"{name}: it is asked or read")
        equal(liar.asked, ["board"] if right else ["board", "stats", "stats"],
              f"{name}: no more often than it must")
        liar.listener.close()
        os.unlink(liar.path)


def check_busy(room):
    """A process whose board is being written whenever it is looked at is asked."""
    fd = memory(made(b"context 1 soft\n", sequence=1), fcntl.F_SEAL_SHRINK)
    liar = Liar(room, os.getpid(), fd)
    run = room.tool("top", "--batch", "--json", "-n", "7", "-i", "0.05")
    said = [json.loads(row)["rows"][0].get("program") for row in run.stdout.splitlines()]
    equal(said, ["asked"] * 7, "one who is busy with its board is asked, each time")
    equal(liar.asked, ["board"] + ["stats"] * 7, "and is not asked for its board again")
    run = room.tool("stat", "-j", "-i", "0.01", "-n", "20")
    said = [json.loads(row)["program"] for row in run.stdout.splitlines()]
    equal((run.returncode, said), (0, ["asked"] * 20), "stat goes on as well")
    liar.listener.close()
    os.unlink(liar.path)
    os.close(fd)


def check_many_passed(room):
    """One who passes more descriptors than were asked for, which stay with nobody."""
    fd = memory(b"\0" * 4096, fcntl.F_SEAL_SHRINK)
    for passes in (2, 3, 253):
        liar = Liar(room, os.getpid(), fd, passes)
        with subprocess.Popen([os.environ["GLAKECTL"], "top", "--batch", "--json", "-i", "0.05"],
                              env=room.env, stdout=subprocess.PIPE, text=True) as tool:
            for _ in range(3):
                has(tool.stdout.readline(), "it passes more than was asked for",
                    f"{passes} descriptors are refused")
            held = [os.readlink(path) for path in glob.glob(f"/proc/{tool.pid}/fd/*")
                    if os.path.lexists(path)]
            ok(not any("glake-liar" in name for name in held), "and closed", str(held))
            tool.kill()
        liar.listener.close()
        os.unlink(liar.path)
    os.close(fd)


def main():
    start()
    if not hasattr(os, "memfd_create") or not hasattr(socket, "recv_fds"):
        skip("boards", "this Python knows no memfd, or passes no descriptors")
        done()
        return
    with Room() as room:
        check_same(room)
        check_hostile(room)
        check_lease(room)
        check_larger(room)
        check_ends(room)
        check_reader(room)
        check_busy(room)
        check_many_passed(room)
    done()


main()
