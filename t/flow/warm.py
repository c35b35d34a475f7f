# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl's commands in Python as forks of a process that has their libraries loaded, which takes longer than what
most of them do. Each is started as lib/tool/part.c does it; what lies between, and what is not there, is for those
that a test runs by glakectl itself.
"""
import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import TOOL, clean

LIBRARIES = {"export": ["prometheus_client"]}
DRAWING = ["matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"]
_server = []


def begin(command, *words, stdin=b"", env=None):
    """Starts a command; what waits for its status, what it wrote and what it said."""
    env = env or clean()
    if not _server:
        # the Python that glakectl would find
        libraries = LIBRARIES.get(command, DRAWING)
        _server.append(subprocess.Popen(["python3", __file__, *libraries], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env))
        atexit.register(_server[0].communicate)
    folder = tempfile.mkdtemp()
    files = [os.path.join(folder, name) for name in ("in", "out", "err")]
    for file, content in zip(files, (stdin, b"", b"")):
        Path(file).write_bytes(content)
    words = [os.fsdecode(word) for word in map(os.fspath, words)]
    job = json.dumps({"command": command, "words": words, "env": dict(env), "files": files, "folder": os.getcwd()})
    _server[0].stdin.write(job.encode() + b"\n")
    _server[0].stdin.flush()

    def end():
        status = int(_server[0].stdout.readline())
        said = [Path(file).read_bytes() for file in files[1:]]
        shutil.rmtree(folder)
        return subprocess.CompletedProcess([command, *words], status, *said)
    return end


def warm(*words, **more):
    """What a command ends with."""
    return begin(*words, **more)()


def _become(job):
    for number, path in enumerate(job["files"]):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["env"], GLAKECTL=TOOL)
    sys.argv = ["glakectl", job["command"], *job["words"]]
    import runpy
    try:
        runpy.run_module(f"glake.{job['command']}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0


def _serve():
    here = os.path.dirname(os.path.realpath(TOOL))
    sys.path[:1] = [os.path.join(here, "../python")]
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            __import__(name)
    for line in sys.stdin.buffer:
        child = os.fork()
        if not child:
            status = 70
            try:
                status = _become(json.loads(line))
                sys.stdout.flush()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
