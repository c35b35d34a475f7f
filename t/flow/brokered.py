# SPDX-License-Identifier: LGPL-2.1-or-later
"""A broker in a directory of its own, and its clients, which do what they are told."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

from tap import HUNG, until

PROGRAM = os.environ["GLAKE_BROKER_PROGRAM"]
DAEMON = os.environ["GLAKE_BROKER_DAEMON"]
PATIENT = "100s"  # what waits for an event waits until that


class Broker:
    """glaked with 1000 MiB of a GPU, by its user, until it is ended."""

    def __init__(self, *args, path=None, **keys):
        self.parent = tempfile.mkdtemp(prefix="glake-broker-")
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("GLAKE_")}
        self.env["XDG_RUNTIME_DIR"] = self.parent
        self.path = path or os.path.join(self.parent, "glake", "broker.sock")
        self.args = [*args, "--socket", path] if path else args
        self.keys = {"GLAKE_SHARE_TOTAL": "1000MiB", **keys}
        self.run = None
        self.begin()

    def begin(self):
        self.run = subprocess.Popen([DAEMON, *self.args], env={**self.env, **self.keys},
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until(lambda: os.path.exists(self.path))

    def tell(self, number):
        self.run.send_signal(number)

    def end(self, number=signal.SIGTERM):
        """What it said, and its status."""
        self.run.send_signal(number)
        said = self.run.communicate(timeout=HUNG)[0]
        return said, self.run.returncode

    def tool(self, *args):
        return subprocess.run([os.environ["GLAKECTL"], "broker", "-s", self.path, *args], env=self.env,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=HUNG, text=True)

    def books(self, gpu=0):
        """What it tells of a GPU."""
        gpus = json.loads(self.tool("--json").stdout)["gpus"]
        return gpus[gpu] if gpus else None

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.run.pid}/fd"))

    def waiting(self, count=1):
        return until(lambda: self.books()["waiting"] == count)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.run.poll() is None:
            self.run.kill()
            self.run.wait()
        shutil.rmtree(self.parent)


class Client:
    """A process with a context."""

    def __init__(self, broker, *settings, user=None, program=PROGRAM, **keys):
        settings = (f"share.broker={broker.path}", "share.chunk=2MiB", "soft.memory=4GiB",
                    "log.level=error", f"share.wait={PATIENT}", *settings)
        self.run = subprocess.Popen([program, *settings], env={**broker.env, **keys}, user=user,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        self.pid = self.run.pid
        self.said = self.answer()

    def start(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()

    def answer(self):
        return self.run.stdout.readline().strip()

    def do(self, line):
        self.start(line)
        return self.answer()

    def lease(self):
        names = "err state helper leased left least most asked given refused".split()
        return dict(zip(names, map(int, self.do("lease").split())))

    def kill(self, number=signal.SIGKILL):
        self.run.send_signal(number)

    def end(self):
        """Ends it as programs end; what it said."""
        out, said = self.run.communicate("quit\n", timeout=HUNG)
        return (out + said).strip()
