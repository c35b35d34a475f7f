# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl top: tables and JSON of what processes hold and do, and the window in a real terminal of
many sizes, while processes come, end, and do not answer.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from tap import HUNG, done, equal, has, ok, skip, start, until
from watched import Room, Watched

TOOL = os.environ["GLAKECTL"]


def check_tables(room):
    run = room.tool("top", "-n", "1")
    equal((run.returncode, run.stderr, len(run.stdout.splitlines())), (0, "", 1),
          "nobody: a head alone")
    one = Watched(room, GLAKE_SOFT_GPUS="2")
    two = Watched(room)
    for program in (one, two):
        program.do("open")
    one.do("alloc 0 30 1000000")
    one.do("alloc 1 3 1000000")
    run = room.tool("top", "-n", "2", "-i", "0.05")
    tables = [table.splitlines() for table in run.stdout.split("\n\n")]
    equal((run.returncode, run.stderr), (0, ""), "two looks")
    equal([len(table) for table in tables], [4, 4], "a head and three rows each")
    first = tables[0][1].split()
    equal(first[:5] + first[5:7], [str(one.pid), first[1], "0", "28.6", "MiB", "30.0", "MiB"],
          "a GPU: live and reserved, most first")
    equal(tables[0][2].split()[2], "1", "the other GPU")
    equal(tables[0][3].split()[0], str(two.pid), "one that uses none has a row too")
    equal(room.tool("top", "-bn1", "-s", "pid", str(two.pid)).stdout.splitlines()[1].split()[0],
          str(two.pid), "one that is named")
    equal(len(room.tool("top", "-n1", "nobody").stdout.splitlines()), 1, "of no such name none")
    # as many looks as it takes: how late each comes is the machine's affair
    run = subprocess.Popen([TOOL, "top", "-j", "-i", "0.1"], env=room.env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    row = json.loads(run.stdout.readline())["rows"][0]
    equal((row["pid"], row["gpu"], row["live_bytes"], row["allocs_per_s"]),
          (one.pid, 0, 30000000, None), "no rate at first")
    one.do("alloc 0 10 1000000")
    look = find(run, lambda look: any(row.get("allocs_per_s") for row in look["rows"]))
    ok(look, "and one when something was asked for")
    two.run.kill()
    two.run.wait()
    look = find(run, lambda look: look["ended"])
    has(look and look["ended"] or "", f"process {two.pid} ({row['program'][:15]}", "one that was killed")
    run.kill()
    run.communicate()
    looks = room.tool("top", "-j", "-n", "3", "-i", "0.1")
    equal((looks.returncode, looks.stdout.count("\n")), (0, 3), "three looks for programs")
    return one


def find(run, fits):
    """The first look that fits, of as many as there are; None."""
    return next((look for look in map(json.loads, run.stdout) if fits(look)), None)


def check_closed(room):
    """A program that has lost one of the three."""
    master, slave = os.openpty()
    run = subprocess.run(["sh", "-c", f"exec {TOOL} top -n1 <&-"], env=room.env, stdout=slave, stderr=subprocess.PIPE,
                         check=False, text=True, timeout=HUNG)
    os.close(slave)
    os.close(master)
    equal((run.returncode, run.stderr), (0, ""), "without a standard input there is a table")
    run = subprocess.run(["sh", "-c", f"exec {TOOL} top -n1 -i nan 2>&-"], env=room.env, stdout=subprocess.PIPE, check=False,
                         text=True, timeout=HUNG)
    equal((run.returncode, run.stdout), (2, ""), "without a standard error nothing is said")


def check_usage(room):
    for args in (["-i", "0"], ["-n", "0"], ["-s", "name"], ["--sort"], ["--all"], ["-i", "nan"]):
        equal(room.tool("top", *args).returncode, 2, f"top {args}: wrong usage")
    with open("/dev/full", "w", encoding="utf-8") as full:
        run = subprocess.run([TOOL, "top", "-n3", "-i0.01"], env=room.env, stdout=full,
                             stderr=subprocess.PIPE, check=False, text=True, timeout=HUNG)
    equal(run.returncode, 1, "an output that is full ends it")
    run = subprocess.Popen([TOOL, "top", "-i", "0.01"], env=room.env, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    run.stdout.readline()
    run.stdout.close()
    run.communicate(timeout=HUNG)
    equal(run.returncode, 1, "and so does a reader who goes")


class Terminal:
    """A terminal of tmux, with the window in it."""

    def __init__(self, room, *args):
        self.folder = tempfile.mkdtemp(prefix="glake-tmux-")
        self.at = ["tmux", "-S", os.path.join(self.folder, "socket"), "-f", "/dev/null"]
        env = {**room.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        command = f"{TOOL} top {' '.join(args)}; echo status $?; exec cat"
        self.tmux("new-session", "-d", "-x", "120", "-y", "14", command, env=env)

    def tmux(self, *args, **more):
        return subprocess.run([*self.at, *args], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=HUNG, **more).stdout

    def shown(self):
        return self.tmux("capture-pane", "-p")

    def until(self, wanted, what):
        """Waits until the screen has it: a text, or what a function says is so."""
        fits = wanted if callable(wanted) else lambda text: wanted in text
        ok(until(lambda: fits(self.shown()), 0.05), what, self.shown())

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def resize(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def end(self):
        self.tmux("kill-server")
        shutil.rmtree(self.folder)


def check_window(room, one):
    terminal = Terminal(room, "-i", "0.1")
    terminal.until("1 process, ", "the window opens")
    terminal.until("PROGRAM", "with a head")
    other = Watched(room)
    other.do("open")
    other.do("alloc 0 1 50000000")
    terminal.until("2 processes", "a process that comes is there")
    for width, height in ((80, 8), (40, 6), (20, 5)):
        terminal.resize(width, height)
        terminal.until(lambda text, w=width: str(other.pid) in text and "RESERVED" in text and
                       max(map(len, text.splitlines())) <= w, f"{width} columns, {height} lines")
    terminal.until("48.0 MiB", "what it holds is seen at 20 columns")
    for width, height in ((1, 1), (3, 2), (300, 60), (120, 14)):
        terminal.resize(width, height)
    terminal.until("LADDER", "it grows again")
    terminal.keys("h")
    terminal.until("this help", "h: help")
    terminal.keys("h")
    terminal.until(lambda text: "this help" not in text, "and away")
    terminal.keys("s")
    terminal.until("by live", "s: another order")
    terminal.keys("S", "S")
    terminal.until("by pid", "S: back")
    terminal.keys("S")
    terminal.until("by misses", "and round")
    terminal.keys("-")
    terminal.until("0.2s", "-: less often")
    terminal.keys("+")
    terminal.until("0.1s", "+: more often")
    terminal.keys("p")
    terminal.until("paused", "p: pause")
    terminal.keys("p")
    terminal.until(lambda text: "paused" not in text, "and on")
    terminal.keys("k", "k", "k", "k", "Enter")
    terminal.until("GPU 0: ", "enter: one process, with details")
    terminal.until("spill_host", "and its ladder")
    terminal.keys("a")
    terminal.until(lambda text: "GPU 0: " not in text, "a: all")
    other.run.kill()
    other.run.wait()
    terminal.until(f"process {other.pid} (", "one that is killed is told of")
    terminal.until("1 process, ", "and the window goes on")
    os.kill(one.pid, signal.SIGSTOP)
    terminal.until("it does not answer in time", "one that does not answer is told of")
    os.kill(one.pid, signal.SIGCONT)
    terminal.until(lambda text: "answer" not in text, "until it does")
    terminal.keys("x", "F5", "Left", "q")
    terminal.until("status 0", "q: end")
    terminal.end()
    terminal = Terminal(room, "-i", "0.1", "-n", "3")
    terminal.until("status 0", "so many looks")
    terminal.end()
    one.end()


def check_terminals(room):
    """Terminals that nobody knows, without colour, and that go."""
    master, slave = os.openpty()
    env = {**room.env, "TERM": "nothing-like-it"}
    run = subprocess.run([TOOL, "top", "-n1"], env=env, stdin=slave, stdout=slave, check=False,
                         stderr=subprocess.PIPE, text=True, timeout=HUNG)
    if "has no curses" in run.stderr:
        skip("terminals", "this Python has no curses")
        return False
    equal(run.returncode, 1, "a terminal that is not known")
    has(run.stderr, "TERM=nothing-like-it; --batch prints tables", "and what to do")
    env["TERM"] = "vt100"
    run = subprocess.Popen([TOOL, "top", "-i0.1"], env=env, stdin=slave, stdout=slave,
                           stderr=subprocess.DEVNULL, start_new_session=True,
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.close(slave)
    got = b""
    while b"h help" not in got:
        got += os.read(master, 4096)
    ok(b"\033[3" not in got.replace(b"\033[3;", b""), "one without colour is given none")
    os.close(master)
    ok(run.wait(timeout=HUNG) is not None, "one that goes is no loop without end")
    return True


def check_deaf(room):
    deaf = socket.socket(socket.AF_UNIX)
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    deaf.bind(path)
    deaf.listen(1)
    run = room.tool("top", "-n", "1")
    has(run.stdout, "it does not answer in time", "who takes a question and does not answer")
    equal(run.returncode, 0, "ends nothing")
    deaf.close()
    os.unlink(path)


def main():
    start()
    with Room() as room:
        one = check_tables(room)
        check_usage(room)
        check_closed(room)
        check_deaf(room)
        if not check_terminals(room):
            one.end()
        elif shutil.which("tmux"):
            check_window(room, one)
        else:
            skip("the window", "tmux is not installed")
            one.end()
    done()


main()
