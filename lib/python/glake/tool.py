# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What the commands of glakectl share that are modules of this package: options, which are those of the help's
text, messages as the tool has them, the tool itself as a child, figures as people read them, and files that
appear when they are whole.
"""

import contextlib
import difflib
import errno
import getopt
import gzip
import json
import logging
import lzma
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(Exception):
    """Ends a command: its message, if there is one to be given, and its status."""

    def __init__(self, text="", status=1):
        super().__init__(text)
        self.status = status


class _Stopped(BaseException):
    """A signal to end by, after what is half done is taken away."""


def usage(command, text):
    """A wrong use of a command, to be raised."""
    return Failure(f"glakectl {command}: {text}; see glakectl {command} --help", 2)


def options(command, text, words, fewest=1, most=1):
    """
    What a command was given: its options by their long names, a list of values each, and the other words. Which
    there are is read from the lines of its help, as "  -o, --output FILE  the page", so that it has them all.
    """
    rows = re.findall(r"^  (?:-(.),|   ) --([a-z-]+)( \S+)?", text, re.M)
    shorts = {f"-{short}": name for short, name, _ in rows}
    try:
        found, rest = getopt.gnu_getopt(words, "".join(short + ":" * bool(takes) for short, _, takes in rows if short),
                                        [name + "=" * bool(takes) for _, name, takes in rows])
    except getopt.GetoptError as error:
        name = ("-" if len(error.opt) == 1 else "--") + error.opt
        near = difflib.get_close_matches(error.opt, [name for _, name, _ in rows], 1)
        name = next((word for word in words if word.startswith(name + "=")), name)
        raise usage(command, f"option '{name}' needs an argument" if "requires" in error.msg
                    else f"unknown option '{name}'" + "".join(f", is it --{one}" for one in near)) from None
    given = {}
    for name, value in found:
        given.setdefault(shorts.get(name, name[2:]), []).append(value)
    if "help" in given:
        print(text, end="")
        raise Failure(status=0)
    what = re.search(r"(ADDRESS|REQUESTS|TRACE|FILE|PID|$)", text.split("\n")[0])[0].replace("PID", "process")
    if len(rest) < fewest:
        raise usage(command, f"{'an' if what[0] in 'AEIOU' else 'a'} {what.lower()} is missing")
    if len(rest) > most:
        raise usage(command, f"one {what} is expected, not also '{rest[most]}'" if most else f"there is no argument '{rest[0]}'")
    return given, rest


def number(command, given, name, most, default=0, least=1):
    """The last number of an option."""
    text = given.get(name, [None])[-1]
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,19}", text) or not least <= int(text) <= most:
        raise usage(command, f"--{name} takes a number from {least} to {most}, not '{text}'")
    return int(text)


def interval(command, given, default=0):
    """The seconds of --interval."""
    text = given.get("interval", [str(default)])[-1]
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if "interval" in given and not 0.01 <= seconds <= 86400:
        raise usage(command, f"--interval takes seconds from 0.01 to 86400, not '{text}'")
    return seconds


GPUS = 256  # that a trace can tell apart


def plain(text):
    """What others call themselves, for a terminal, whose state is none of theirs."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


def say(text):
    """A line for who is at the keyboard, whatever is in it."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    with contextlib.suppress(OSError):  # nobody reads it
        if sys.stderr:
            print(line.encode(errors="replace").decode(), file=sys.stderr, flush=True)


def watched(rows, what, each=4096):
    """Rows of a list one by one; from a second on a terminal shows how far they are, and how long the rest takes."""
    begun, shown = time.monotonic(), False
    then = begun + 1 if sys.stderr and sys.stderr.isatty() else math.inf
    try:
        for number, row in enumerate(rows):
            if number and not number % each and (now := time.monotonic()) >= then:
                left = (now - begun) * (len(rows) - number) / number
                print(f"\r\033[K{what}: {100 * number // len(rows):3} %, {left:.0f} s left", end="", file=sys.stderr, flush=True)
                then, shown = now + 0.1, True
            yield row
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def run(command, words, given=None):
    """glakectl as a child, which reads what is given: its status, and what it wrote."""
    path = os.environ.get("GLAKECTL") or shutil.which("glakectl")
    if not path:
        raise Failure("glakectl: it is not in PATH, nor does GLAKECTL name it")
    try:
        done = subprocess.run([path, command, *words], input=given, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise Failure(f"glakectl: {path}: {error.strerror}") from error
    return done.returncode, done.stdout


def run_json(command, words):
    """The same, of a report as JSON; a report of what failed is one too."""
    at = words.index("--") if "--" in words else len(words)
    status, text = run(command, [*words[:at], "--json", *words[at:]])
    try:
        return status, json.loads(text)
    except ValueError:  # it has said why, or it was killed
        raise Failure(status=status if status > 0 else 1) from None


def pictures():
    """matplotlib, which draws into files alone."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it says where it keeps things, as in a home to be read only
    try:
        import matplotlib
    except ImportError:
        raise Failure("matplotlib is not installed: apt install python3-matplotlib, or pip install matplotlib") from None
    matplotlib.use("Agg")
    return matplotlib


def _packer(path):
    ending = os.path.splitext(path)[1]
    if ending in (".zst", ".bz2", ".zip"):
        raise Failure(f"glakectl: {path}: its name promises a packer that is not there: .gz and .xz are")
    return {".gz": lambda data: gzip.compress(data, mtime=0), ".xz": lzma.compress}.get(ending, bytes)


@contextlib.contextmanager
def output(path):
    """A file that gets its name when the block ends well: a function to write it with. "-" is standard output."""
    if path == "-":
        yield lambda data: (sys.stdout.buffer.write(data), sys.stdout.buffer.flush())
        return
    pack, part = _packer(path), None
    try:
        if os.path.lexists(path) and not os.path.isfile(path):
            file = open(path, "wb")  # a device or the like has no part beside it
        else:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # nobody stops it between the file and its name
            try:
                number, part = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=os.path.dirname(path) or ".")
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(number, 0o666 & ~mask)
            file = os.fdopen(number, "wb")
        with file:
            yield lambda data: file.write(pack(data))
        if part:
            os.replace(part, path)
            part = None
    except OSError as error:
        raise Failure(f"glakectl: {path}: {error.strerror}") from error
    finally:
        if part:
            os.unlink(part)


def keep(command, path, read):
    """Refuses a file to write that is the one that is read."""
    with contextlib.suppress(OSError):
        if path and os.path.isfile(path) and os.path.samefile(path, read):
            raise usage(command, f"-o {path} is what is read, which it would replace")


def spooled(path, stack):
    """The name of a file that can be read more than once: standard input goes into one that `stack` ends."""
    if path != "-":
        return path
    file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="glake."))
    shutil.copyfileobj(sys.stdin.buffer, file)
    file.flush()
    return file.name


def size(text):
    """Bytes of "39.4GiB", "512M" or "100"; None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGTPE])(?:i?B)?|B)?", text)
    value = float(match[1]) * 1024 ** (" KMGTPE".index(match[2]) if match[2] else 0) if match else math.inf
    return int(value) if value < math.inf else None


def _digits(value):
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def unit(most):
    """The largest unit in which so many bytes are 1 or more: its name and bytes."""
    step = 0
    while most / 1024 ** step >= 1023.5 and step < 6:
        step += 1
    return UNITS[step], 1024 ** step


def bytes_text(value):
    name, of = unit(value)
    return f"{_digits(value / of) if of > 1 else round(value)} {name}"


def ns_text(ns):
    for limit, name, of in ((999.5e3, "us", 1e3), (999.5e6, "ms", 1e6), (float("inf"), "s", 1e9)):
        if ns < 999.5:
            return f"{ns:.0f} ns"
        if ns < limit:
            return f"{_digits(ns / of)} {name}"


def count_text(value):
    return f"{value:,}".replace(",", " ")


_stopped = []


def _stop(number, frame):
    _stopped.append(number)
    raise _Stopped(number)


def main(command, run_command):
    """A command with its words: ends the process by its status, or by the signal that interrupted it."""
    if sys.stdout is None:  # somebody closed it
        say("glakectl: the report could not be written: " + os.strerror(errno.EBADF))
        sys.exit(1)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    status = 0
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # held since before Python began
        status = run_command(sys.argv[2:]) or 0
        sys.stdout.flush()
    except Failure as failure:
        status = failure.status
        text = str(failure)
        if text:
            say(text if text.startswith("glakectl") else f"glakectl: {command}: {text}")
    except OSError as error:
        status = 1
        if not isinstance(error, BrokenPipeError):
            say(f"glakectl: the report could not be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left goes nowhere
    except BaseException:
        # a library in the middle of something may have made an error of its own of it
        if not _stopped:
            raise
    if _stopped:
        signal.signal(_stopped[0], signal.SIG_DFL)
        os.kill(os.getpid(), _stopped[0])
    sys.exit(status)
