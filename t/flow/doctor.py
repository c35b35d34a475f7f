#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl doctor on the software device and on this machine, whatever it is: exit status, the form
of the report, its JSON, a terminal of several widths, limits of a process, and wrong options.
"""
import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import termios
from pathlib import Path

from tap import TOOL, done, equal, has, note, ok, skip, start, tool

NAMES = re.compile(r"load\.(nvidia(_uvm)?|nodes)|"
                   r"driver(\.(visible|bus|nodes|libcuda|sandbox))?|module\.(nvidia(_uvm)?|tools)|"
                   r"parameters|parameter\.uvm_[a-z_]+|gpu\d+\.(memory|node|host_numa|fd|fabric|rdma)|"
                   r"numa(\.(binding|allowed))?|limit\.(maps|locked|files|addresses|memory)|"
                   r"memory\.(overcommit|transparent|reserved)|rdma|fabric|conf")


def run(*words, **env):
    done_run = tool("doctor", *words, env=env)
    return done_run.returncode, done_run.stdout.decode(), done_run.stderr.decode()


def checks(*words, said="", **env):
    """The report as {name: check}. What is `said` stands on stderr."""
    code, out, err = run("--json", *words, **env)
    found = json.loads(out)
    what = " ".join(["doctor --json", *words])
    ok(said in err and bool(said) == bool(err), f"{what}: '{said}' on stderr", err)
    ok(isinstance(found, list) and found, f"{what}: a list")
    odd = [check for check in found
           if list(check) != ["name", "status", "text", "advice"]
           or check["status"] not in ("ok", "note", "problem") or not check["text"]
           or (check["status"] == "ok") != (not check["advice"])]
    equal(odd, [], f"{what}: each with its four, and an advice where one is due")
    names = [check["name"] for check in found]
    equal([name for name in names if not NAMES.fullmatch(name)], [], "the names that are promised")
    equal(len(set(names)), len(names), "each once")
    bad = [check for check in found if check["status"] == "problem"]
    equal(code, 1 if bad else 0, f"{what}: exit status")
    return {check["name"]: check for check in found}


def software_device():
    env = {"GLAKE_DRIVER_BACKEND": "soft", "GLAKE_SOFT_GPUS": "2", "GLAKE_SOFT_MEMORY": "3GiB"}
    found = checks(**env)
    equal(found["driver"]["status"], "note", "the software device was asked for, by a variable")
    has(found["gpu1.memory"]["text"], "3.00 GiB", "the second GPU gave a block")
    equal(found["gpu0.fd"]["status"], "ok", "which can leave the process")
    found = checks("--driver", "soft", "-c", "pool.export=no")
    has(found["gpu0.fd"]["advice"], "pool.export=no", "by an option, with memory that cannot")
    code, out, err = run("-d", "soft")
    names = [name for name in found if not re.search(rf"^  (ok|note|problem) +{name} +\S", out, re.M)]
    equal(names, [], "the page has a line for each")
    ok(not err and (code == 1) == ("not fit" in out), "and says in the end what it means", out, err)
    for check in checks("-d", "soft").values():
        if check["name"] != "limit.memory":
            ok(re.search(rf"^  {check['status']} +{check['name']} +{re.escape(check['text'])}$", out,
                         re.M), f"{check['name']}: whole in a pipe")


def this_machine():
    found = checks()
    driver = os.path.exists("/proc/driver/nvidia/version")
    note(f"driver: {found['driver']['text']}")
    if driver:
        skip("a machine without a driver", "this one has NVIDIA's")
    else:
        equal(found["driver"]["status"], "problem", "no driver is a problem, not a crash")
        ok("gpu0.memory" not in found, "and no figures of the software device are given for it")
    code, out, _ = run("--driver", "cuda")
    if not driver:
        ok(code == 1 and "does not open" in out, "nor with --driver cuda", out)


def reachable():
    """Whether another user may run the tool where it was built."""
    try:
        subprocess.run([Path(TOOL).resolve(), "--help"], cwd="/", user=65534, group=65534,
                       extra_groups=[], stdout=subprocess.DEVNULL, check=False)
    except PermissionError:
        return False
    return True


def as_another_user():
    if os.geteuid():
        skip("as another user", "this test runs as one already, and root alone can change")
        return
    try:
        program = subprocess.run([Path(TOOL).resolve(), "doctor", "-d", "soft", "--json"], cwd="/",
                                 user=65534, group=65534, extra_groups=[], capture_output=True,
                                 check=False)
    except PermissionError:
        skip("as another user", "that one may not reach the tool where it was built")
        return
    found = {check["name"]: check for check in json.loads(program.stdout)}
    equal(found["gpu0.memory"]["status"], "ok", "as another user: a block")
    equal(program.stderr, b"", "and no complaint")


def loading():
    help_text = run("--help")[1]
    has(help_text, "--load", "the help names it")
    if os.geteuid() == 0:
        program = subprocess.run([Path(TOOL).resolve(), "doctor", "-d", "soft", "--load"], cwd="/",
                                 user=65534, group=65534, extra_groups=[], capture_output=True,
                                 check=False) if reachable() else None
    else:
        program = tool("doctor", "-d", "soft", "--load")
    if program:
        equal((program.returncode, program.stdout), (1, b""), "only root may load: no report")
        ok(program.stderr.count(b"\n") == 1 and b"only root" in program.stderr, "one sentence",
           program.stderr)
    else:
        skip("loading as another user", "that one may not reach the tool where it was built")
    if os.geteuid() or os.path.exists(f"/lib/modules/{os.uname().release}"):
        skip("loading as root", "this is not root, or there are modules, which stay as they are")
        return
    equal(sorted(name for name in checks("-d", "soft") if name.startswith("load.")), [],
          "nothing is loaded unasked")
    found = checks("-d", "soft", "-l")
    ok(found["load.nvidia"]["status"] == "problem" and "nvidia" in found["load.nvidia"]["text"],
       "root, and no such module", found["load.nvidia"])
    has(found["load.nvidia_uvm"]["text"], "not", "nor what depends on it")


def limits():
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    program = subprocess.run([TOOL, "doctor", "-d", "soft", "--json"], capture_output=True,
                             check=False, preexec_fn=few)
    found = {check["name"]: check for check in json.loads(program.stdout)}
    ok(found["limit.files"]["status"] == "note" and "100 " in found["limit.files"]["text"],
       "few file descriptors", found["limit.files"])
    has(found["limit.locked"]["text"], "64.0 KiB", "little locked memory")
    program = subprocess.run(["sh", "-c", 'ulimit -v 67108864; exec "$0" "$@"', TOOL, "doctor", "-d",
                              "soft", "--json"], capture_output=True, check=False)
    if b"AddressSanitizer" in program.stderr or b"ThreadSanitizer" in program.stderr:
        skip("few addresses", "a sanitizer reserves more than that")
        return
    found = {check["name"]: check for check in json.loads(program.stdout)}
    equal((program.returncode, found["limit.addresses"]["status"]), (1, "problem"), "few addresses")


def configuration():
    found = checks("-d", "soft", "-c", "pool.budget=much", said="pool.budget")
    equal(found["conf"]["status"], "problem", "a configuration that is refused")
    has(found["conf"]["text"], "pool.budget", "is named")
    has(found["driver"]["text"], "does not open", "and the library does not open")
    has(found["driver"]["advice"], "configuration", "for that reason")
    found = checks("-d", "soft", said="GLAKE_POOL_NOSUCH", GLAKE_POOL_NOSUCH="1")
    equal(found["conf"]["status"], "note", "a warning is a note")


COLOURS = {"ok": 32, "note": 33, "problem": 31}


def on_terminal(columns, **env):
    """What a terminal of a width is shown."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    program = subprocess.Popen([TOOL, "doctor", "-d", "soft"], stdout=slave,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                               env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **env})
    os.close(slave)
    shown = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # all have closed it
            break
        if not more:
            break
        shown += more
    os.close(master)
    program.wait()
    return shown.decode().replace("\r", "")


def terminal():
    whole = run("-d", "soft")[1].split()
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as why:
        skip("a terminal", f"none can be had here: {why}")
        return
    for columns in (200, 80, 50, 40):
        coloured = on_terminal(columns)
        shown = re.sub(r"\x1b\[\d*m", "", coloured)
        equal(re.findall(r"\x1b\[(\d+)m  (\w+) *\x1b\[m", coloured),
              [(str(COLOURS[status]), status) for status in re.findall(r"^  (ok|note|problem) ", shown, re.M)], "each status has its colour")
        ok("\x1b" not in on_terminal(columns, TERM="dumb"), "and none on a dumb terminal")
        ok("\x1b" not in on_terminal(columns, NO_COLOR="1"), "nor where NO_COLOR is set")
        long = [line for line in shown.splitlines() if len(line) > columns]
        equal(long, [], f"a terminal of {columns} columns")
        ok(not re.search(r" $", shown, re.M), "no blanks at the ends of lines")
        equal(len(shown.split()), len(whole), "no word is lost")


def misuse():
    for words in (["--no-such"], ["stray"], ["--driver", "gpu"], ["--conf", "x"], ["-c"], ["-q"]):
        code, out, err = run(*words)
        ok(code == 2 and err and not out, f"wrong usage: {' '.join(words)}", out, err)
    code, out, err = run("--help")
    ok(code == 0 and "--json" in out and not err, "help")
    if not os.path.exists("/dev/full"):
        skip("a full disk", "there is no /dev/full")
        return
    for words in (["--json"], []):
        with open("/dev/full", "wb") as full:
            program = tool("doctor", "-d", "soft", *words, stdout=full)
        ok(program.returncode == 1 and b"written" in program.stderr,
           f"a report that cannot be written: {' '.join(words)}", program.stderr)


def main():
    start()
    software_device()
    this_machine()
    as_another_user()
    loading()
    limits()
    configuration()
    terminal()
    misuse()
    done()


main()
