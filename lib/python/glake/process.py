# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Processes that can be asked at their sockets, in the directory of this user, by JSON-RPC. What they answer is trusted
in nothing.
"""

import concurrent.futures
import contextlib
import json
import os
import resource
import socket
import stat
import struct
import time

from . import tool

PATIENCE = 2.0  # seconds for a question and its answer
MOST = 64 << 20  # bytes of an answer
AT_ONCE = 128  # processes that are asked side by side
NO_SUCH = -32602  # the code of an error that the parameters are to blame for


class Refused(Exception):
    """A process has answered, and not what it was asked; `code` is that of its error."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class Ended(Refused):
    """It went away in the midst of it."""


class Said(dict):
    """An object that a process told: what it lacks is 0, or another kind than is meant here."""

    def __missing__(self, key):
        return 0

    def number(self, *names):
        found = [self[name] if type(self[name]) is int and 0 <= self[name] < 1 << 64 else 0 for name in names]
        return found if len(found) > 1 else found[0]

    def sizes(self, *names):
        return [tool.bytes_text(one) for one in map(self.number, names)]

    def word(self, name):
        return tool.plain(self[name] if isinstance(self[name], str) else "")

    def rows(self, name):
        return said(self[name])


def said(value):
    """The objects of a list."""
    return [Said(one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def gpus_of(stats):
    """(context, GPU) of each GPU that the figures of a process tell of."""
    for context in Said(stats if isinstance(stats, dict) else {}).rows("contexts"):
        for gpu in context.rows("gpus"):
            yield context, gpu


def show_json(value, indent=2):
    try:
        print(json.dumps(value, indent=indent, allow_nan=False), flush=True)
    except (ValueError, RecursionError):
        raise tool.Failure("glakectl: what is answered is no JSON") from None


def room():
    """The directory of this user."""
    parent = os.environ.get("XDG_RUNTIME_DIR", "")
    user = os.geteuid()
    with contextlib.suppress(OSError):
        # a root who was a user before, by sudo, has that one's
        if parent.startswith("/") and (user or os.stat(parent).st_uid == 0):
            return os.path.join(parent, "glake")
    return os.path.join(f"/run/user/{user}" if user else "/run", "glake")


def everyone():
    """The numbers of those that have a socket and have not ended."""
    with contextlib.suppress(OSError):
        names = [name[:-5] for name in os.listdir(room()) if name.endswith(".sock")]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit() and os.path.exists(f"/proc/{name}"))
    return []


def _connect(path, end, kind=socket.SOCK_STREAM):
    """To one of this user; or to a service (SOCK_SEQPACKET), of whoever has the directory, or of root."""
    about, service = os.stat(os.path.dirname(path) or "."), kind == socket.SOCK_SEQPACKET
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH if service else 0o077) or (not service and about.st_uid != os.geteuid()):
        raise PermissionError(f"{os.path.dirname(path)} is open to others")
    one = socket.socket(socket.AF_UNIX, kind)
    try:
        while True:
            one.settimeout(max(end - time.monotonic(), 0.001))
            try:
                one.connect(path)
                break
            except BlockingIOError:  # as many as it has places for wait there
                if time.monotonic() >= end:
                    raise TimeoutError from None
                time.sleep(0.01)
        _, uid, _ = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != about.st_uid and not (service and uid == 0):
            raise PermissionError("another user's process answers there")
    except BaseException:
        one.close()
        raise
    return one


def ask(pid, method, **params):
    """The result of a method."""
    end = time.monotonic() + PATIENCE
    text = bytearray()
    with _connect(os.path.join(room(), f"{pid}.sock"), end) as one:
        one.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        while b"\n" not in text[-65536:]:
            left = end - time.monotonic()
            if left <= 0:  # however much comes, by a byte at a time
                raise TimeoutError
            one.settimeout(left)
            more = one.recv(65536)
            text += more
            if not more or len(text) > MOST:
                raise Refused("it answers more than there is room for") if more else \
                    Ended("it has ended, or does not answer this user")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or ("result" not in answer and not isinstance(answer.get("error"), dict)):
        raise Refused("it says what it was not asked")
    if "result" not in answer:
        error = answer["error"]
        raise Refused(str(error.get("message")), error.get("code") if isinstance(error.get("code"), int) else -1)
    return answer["result"]


_FRAME = struct.Struct("=IHHII")  # as lib/wire/frame.c has it
_MAGIC, _LIST, _TEXT = 0x464b4c47, 0x10e, 0x10f


def ask_broker(path):
    """What the broker (glaked) at a socket tells, as glakectl broker --json."""
    with _connect(path, time.monotonic() + PATIENCE, socket.SOCK_SEQPACKET) as one:
        one.send(_FRAME.pack(_MAGIC, 1, 0, _LIST, 0))
        head, files, _, _ = socket.recv_fds(one, _FRAME.size, 1)
    if not files or len(head) != _FRAME.size or _FRAME.unpack(head)[0::3] != (_MAGIC, _TEXT):
        for file in files:
            os.close(file)
        raise Refused("the broker is of another version")
    with open(files[0], encoding="utf-8", errors="replace") as file:
        file.seek(0)
        try:
            told = json.loads(file.read(MOST))
        except (ValueError, RecursionError):
            told = None
    if not isinstance(told, dict):
        raise Refused("what the broker says is no JSON")
    return told


def broker_path():
    """Where that of this user has its socket."""
    return os.path.join(room(), "broker.sock")


def broker():
    """What that tells; None where there is none."""
    try:
        return ask_broker(broker_path())
    except (OSError, Refused):
        return None


def why(error):
    """What an OSError or a Refused of ask() is to people."""
    if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
        return "it has no socket here; see glakectl ps"
    return "it does not answer in time" if isinstance(error, TimeoutError) else \
        tool.plain(getattr(error, "strerror", None) or str(error))


def has_room():
    """Whether a process has made the directory; it is this user's alone."""
    try:
        about = os.stat(room())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise tool.Failure(f"glakectl: no process can be asked: {room()}: {error.strerror}") from None
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise tool.Failure(f"glakectl: no process can be asked: {room()} " + (
            f"belongs to user {about.st_uid}" if about.st_uid != os.geteuid() else
            f"is open to others, with mode {about.st_mode & 0o777:03o} instead of 700"))
    return True


def _remove_dead(pid):
    """The socket of one that was killed: nobody listens, nor is there anybody who might be about to."""
    path = os.path.join(room(), f"{pid}.sock")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        with contextlib.suppress(OSError):
            about = os.lstat(path)
            if stat.S_ISSOCK(about.st_mode) and about.st_uid == os.geteuid():
                os.unlink(path)
    except OSError:
        pass


def _answer(pid, method):
    try:
        return pid, ask(pid, method), ""
    except (FileNotFoundError, ConnectionRefusedError):
        _remove_dead(pid)
        return None
    except (OSError, Refused) as error:
        return pid, None, why(error)


def look(method):
    """
    Asks all that have a socket, side by side: the number, what is answered, and why it is not, of each, in order.
    Sockets of those that were killed are taken away.
    """
    if not has_room():
        return []
    names = [name[:-5] for name in os.listdir(room()) if name.endswith(".sock")]
    pids = sorted(int(name) for name in names if name.isascii() and name.isdigit() and 0 < int(name) < 1 << 31)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    places = AT_ONCE if files == resource.RLIM_INFINITY else max(1, min(AT_ONCE, files // 4))
    with concurrent.futures.ThreadPoolExecutor(places) as pool:
        return [row for row in pool.map(lambda pid: _answer(pid, method), pids) if row]


def answered(method):
    """(number, answer) of those that answer; the others are told of."""
    found = []
    for pid, answer, failed in look(method):
        if failed:
            tool.say(f"glakectl: process {pid}: {failed}")
        else:
            found.append((pid, Said(answer if isinstance(answer, dict) else {})))
    return found


def nobody():
    """Why none has a socket, and what to do."""
    parent = os.path.dirname(room())
    if os.path.isdir(parent):
        return f"no process has a socket in {room()}; rpc.socket=yes makes one"
    return (f"no process has a socket, for there is no directory {parent}: set XDG_RUNTIME_DIR to a folder of your own, here and where "
            "they start")


def say_nobody():
    tool.say(f"glakectl: {nobody()}")


def find(name):
    """The number of the process that is called so, by its number or its program; with None of the only one."""
    if not has_room():
        raise tool.Failure(f"glakectl: {nobody()}")
    if name and name.isascii() and name.isdigit() and 0 < int(name) < 1 << 31:
        return int(name)
    found = [pid for pid, stats in answered("stats") if name in (None, stats["program"])]
    if len(found) == 1:
        return found[0]
    if found:
        raise tool.Failure(f"glakectl: there are {len(found)}{' of the name ' + name if name else ' processes'}: choose one of "
                           + " ".join(map(str, found)))
    raise tool.Failure(f"glakectl: no process of this user is called '{name}' and has a socket; see glakectl ps" if name
                       else f"glakectl: {nobody()}")


def result(name, method, **params):
    """What a process that is called so answers to a method."""
    pid = find(name)
    try:
        found = ask(pid, method, **params)
    except (OSError, Refused) as error:
        raise tool.Failure(f"glakectl: process {pid}: {why(error)}") from error
    if found is None:
        raise tool.Failure(f"glakectl: process {pid}: it answers with nothing")
    return found
