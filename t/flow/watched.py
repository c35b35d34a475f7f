# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process that is watched: its directory, what it is told to do, and questions at its socket."""
import json
import os
import shutil
import socket
import subprocess
import tempfile

from tap import HUNG

PROGRAM = os.environ["GLAKE_WATCH_PROGRAM"]


class Room:
    """A directory in the place of that of the user."""

    def __init__(self):
        self.parent = tempfile.mkdtemp(prefix="glake-watch-")
        self.path = os.path.join(self.parent, "glake")
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("GLAKE_") or key.startswith("GLAKE_WATCH")}
        self.env["XDG_RUNTIME_DIR"] = self.parent

    def names(self):
        return sorted(os.listdir(self.path)) if os.path.isdir(self.path) else []

    def tool(self, *args, **more):
        return subprocess.run([os.environ["GLAKECTL"], *args], env=self.env, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=HUNG, text=True, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.parent)


class Watched:
    """The program, with a context."""

    def __init__(self, room, **keys):
        env = {**room.env, "GLAKE_RPC_SOCKET": "yes", **keys}
        self.room = room
        self.run = subprocess.Popen([PROGRAM], env=env, stdin=subprocess.PIPE, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.run.pid
        self.path = os.path.join(room.path, f"{self.pid}.sock")

    def do(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()
        return self.run.stdout.readline().strip()

    def start(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()

    def end(self):
        """Ends it as programs end; what it said to people."""
        said = self.run.communicate(timeout=HUNG)[1]
        return said if self.run.returncode == 0 else f"{self.run.returncode}: {said}"

    def connect(self):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.connect(self.path)  # waits while the queue is full
        one.settimeout(HUNG)
        return one

    def threads(self):
        names = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        return names

    def files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def exchange(one, data):
    """Sends bytes, reads a line; None: it was closed."""
    try:
        one.sendall(data)
        got = b""
        while not got.endswith(b"\n"):
            part = one.recv(1 << 20)
            if not part:
                return None
            got += part
    except (BrokenPipeError, ConnectionResetError):
        return None
    return json.loads(got)


def ended(one):
    """Whether the other end has closed it; what was on its way is lost then."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


MOVED = "context gpu moved_bytes moved_blocks stayed_bytes stayed_blocks released_bytes"
VALUE = "key value origin source line"
# What an answer has, or each of those in its list; in brackets is what some have.
FORMS = {
    "info": "pid program version methods contexts",
    "trim": "context gpu released_bytes [failed]",
    "budget": "context gpu budget_bytes",
    "config.get": VALUE + " [context]",
    "config.set": "context " + VALUE,
    "config.reload": "context findings keys",
    "spill": "context address",
    "fetch": "context address",
    "suspend": MOVED,
    "resume": MOVED,
    "trace.start": "context file",
    "trace.stop": "context file",
    "map": "context gpu serial moves reserved_bytes next runs",
    "refusals": "context gpu text",
    "kv": "context gpu caches",
    "check": "context blocks broken freed kept again unchecked unguarded findings last",
    "dedup": "context gpu shared_bytes [looked_bytes] [equal_bytes] [page_bytes] [pages_looked_bytes] [pages_equal_bytes]",
    "origins": "next blocks",
    "whose": "address what [gpu] [base] [size] [given] [offset] [stream] [tag] [thread] [age_ns] [freed_by] [freed_ns]"
             " [before] [before_size] [behind] [behind_size]",
}


def is_formed(method, found):
    form = FORMS.get(method, "").split()
    needs = {key for key in form if key[0] != "["}
    may = needs | {key[1:-1] for key in form if key[0] == "["}
    return not form or all(needs <= set(one) <= may
                           for one in (found if isinstance(found, list) else [found]))


def ask(one, method, **params):
    """The result of a method, or the code of its error."""
    question = {"jsonrpc": "2.0", "id": 7, "method": method, **({"params": params} if params else {})}
    answer = exchange(one, json.dumps(question).encode() + b"\n")
    if answer is None:
        return None
    if "result" not in answer:
        return answer["error"]["code"]
    assert is_formed(method, answer["result"]), f"{method}: {answer['result']}"
    return answer["result"]
