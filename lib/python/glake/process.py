# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Processes that can be asked at their sockets, in the directory of this user, by JSON-RPC: as lib/tool/process.c does
for glakectl. What they answer is trusted in nothing.
"""

import contextlib
import json
import os
import socket
import stat
import struct
import time

PATIENCE = 2.0  # seconds for a question and its answer
MOST = 64 << 20  # bytes of an answer


class Refused(Exception):
    """A process has answered, and not what it was asked; `code` is that of its error."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


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


def _connect(name, end, kind=socket.SOCK_STREAM):
    path = os.path.join(room(), f"{name}.sock")
    about = os.stat(os.path.dirname(path))
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise PermissionError(f"{os.path.dirname(path)} is not this user's alone")
    one = socket.socket(socket.AF_UNIX, kind)
    try:
        one.settimeout(max(end - time.monotonic(), 0.001))
        one.connect(path)
        _, uid, _ = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid():
            raise PermissionError("another user's process answers there")
    except BaseException:
        one.close()
        raise
    return one


def ask(pid, method, **params):
    """The result of a method."""
    end = time.monotonic() + PATIENCE
    text = bytearray()
    with _connect(pid, end) as one:
        one.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        while b"\n" not in text[-65536:]:
            one.settimeout(max(end - time.monotonic(), 0.001))
            more = one.recv(65536)
            text += more
            if not more or len(text) > MOST:
                raise Refused("it has ended" if not more else "it answers more than there is room for")
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


def broker():
    """What the broker of this user (glaked) tells, as glakectl broker --json; None where there is none."""
    try:
        with _connect("broker", time.monotonic() + PATIENCE, socket.SOCK_SEQPACKET) as one:
            one.send(_FRAME.pack(_MAGIC, 1, 0, _LIST, 0))
            said, files, _, _ = socket.recv_fds(one, _FRAME.size, 1)
        if not files:
            return None
        with open(files[0], encoding="utf-8", errors="replace") as file:
            file.seek(0)
            told = json.loads(file.read(MOST)) if _FRAME.unpack(said)[0::3] == (_MAGIC, _TEXT) else None
        return told if isinstance(told, dict) else None
    except (OSError, ValueError, RecursionError, struct.error):
        return None
