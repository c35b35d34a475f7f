# SPDX-License-Identifier: LGPL-2.1-or-later
"""
python3 -m glake.sanitizer [OPTION...] PROGRAM [ARGUMENT...]: a program under compute-sanitizer, whose options come
first. What that reports by address has a line more, with what is there, or was: the lines of Python that asked for
the tensor, or the size of a block and its thread. The program has its memory from glake: as python3 -m glake SCRIPT does, or
one that links the library.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ENDS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
NEAREST = re.compile(r"^(=+ +).*\ballocation at (0x[0-9a-f]+)")
ACCESS = re.compile(r"^(=+ +)(?:Access to|Address) (0x[0-9a-f]+)")


class Names:
    """Of blocks, as guard.names has them: the last one at each address, and all that lay there before."""

    def __init__(self, path):
        self.file = open(path, encoding="utf-8", errors="replace")
        self.last, self.all, self.rest = {}, [], ""

    def read(self):
        lines = (self.rest + self.file.read()).split("\n")
        self.rest = lines.pop()
        for line in lines:
            address, size, name = line.split(" ", 2)
            self.all.append((int(address, 16), int(size), name))
            self.last[int(address, 16)] = name

    def at(self, address):
        """That of the block that begins there."""
        return self.last.get(address)

    def over(self, address):
        """That of one that lies there, or did last."""
        return next((name for base, size, name in reversed(self.all) if base <= address < base + size), None)


def more(line, names):
    """The line that belongs behind one of the report; None: there is none."""
    nearest, access = NEAREST.match(line), ACCESS.match(line)
    if not nearest and not access:
        return None
    names.read()
    name = names.at(int(nearest[2], 16)) if nearest else names.over(int(access[2], 16))
    if not name:
        return None
    return f"{nearest[1]}which is of {name}\n" if nearest else f"{access[1]}where a block is, or was, of {name}\n"


def foreground():
    """Whether a key of the terminal reaches the program as it reaches this one."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def start(*arguments, **more):
    """A program that is ended by what would end this process; its last lines and status are to be waited for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    run = subprocess.Popen(*arguments, **more, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before))

    # a handler would wait for the read that it comes before: this one is called at once
    def pass_on():
        while True:
            number = signal.sigwait(ENDS)
            if number != signal.SIGINT or not foreground():
                run.send_signal(number)
    threading.Thread(target=pass_on, daemon=True).start()
    return run


def main(arguments):
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not arguments:
        sys.exit("usage: python3 -m glake.sanitizer [OPTION...] PROGRAM [ARGUMENT...]")
    if not tool:
        sys.exit("glake: there is no compute-sanitizer on the PATH, nor in /usr/local/cuda/bin")
    with tempfile.NamedTemporaryFile(prefix="glake-names-") as file:
        names = Names(file.name)
        run = start([tool, *arguments], env={**os.environ, "GLAKE_GUARD_NVTX": "yes", "GLAKE_GUARD_NAMES": file.name},
                    stdout=subprocess.PIPE, text=True, errors="replace")
        for line in run.stdout:
            print(line, end="", flush=True)
            print(more(line, names) or "", end="", flush=True)
        status = run.wait()
    # as a shell has it
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
