# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl's parts: found beside it or in their folder, and what is said where one is not."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from tap import TOOL, done, equal, has, ok, start

HERE = os.path.dirname(TOOL)
PARTS = {"bench": ["bench"], "doctor": ["doctor"], "trace": ["trace"]}
PYTHON = ["broker", "check", "dedup", "draw", "export", "kv", "map", "ps", "report", "snapshot", "stat", "top", "try", "whose",
          "trace record"]  # modules of the package


def run(*words, **more):
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(HERE, "..")}
    return subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=env, **more)


def beside():
    for part, commands in PARTS.items():
        for command in commands:
            done_ = run(TOOL, command, "--help")
            equal(done_.returncode, 0, f"{command}: there")
            has(done_.stdout, f"glakectl {command}", "and says how it is used")
            done_ = run(TOOL, command, "--no-such-option")
            equal(done_.returncode, 2, f"{command}: what it ends with is passed on")
            has(done_.stderr, f"glakectl {command}: ", "as a command of glakectl")
        path = os.path.join(HERE, f"glakectl-{part}")
        for words in ([path], [path, "--help"], [path, commands[0]]):
            done_ = run(*words)
            equal(done_.returncode, 2, f"{len(words)} words to a part of its own")
            has(done_.stderr, "is a part of glakectl", "says what it is")


def of_python():
    for command in PYTHON:
        words = command.split()
        done_ = run(TOOL, *words, "--help")
        equal(done_.returncode, 0, f"{command}: there")
        has(done_.stdout, f"usage: glakectl {command} ", "and says how it is used")
        done_ = run(TOOL, *words, "--no-such-option")
        equal((done_.returncode, done_.stderr), (
            2, f"glakectl {command}: unknown option '--no-such-option'; see glakectl {command} --help\n"), "or not")
        with subprocess.Popen(["sh", "-c", f"exec {TOOL} {command} --help >&-"], stderr=subprocess.PIPE, text=True) as closed:
            equal((closed.stderr.read(), closed.wait()), (
                "glakectl: the report could not be written: Bad file descriptor\n", 1), "without a standard output")
        done_ = run(TOOL, *words, *["x"] * 5000)
        equal(done_.returncode, 2, "of too many words")
        has(done_.stderr, "more than 4096 arguments", "it says so")


def planted(module, text, *words):
    """A command whose Python has a module that says what is to happen; its status, and what it said."""
    with tempfile.TemporaryDirectory(prefix="glake-parts-") as folder:
        with open(os.path.join(folder, module + ".py"), "w", encoding="ascii") as file:
            file.write(text)
        done_ = subprocess.run([TOOL, *words], env={**os.environ, "PYTHONPATH": folder}, check=False,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    return done_.returncode, done_.stdout, done_.stderr


def old():
    """A Python that the package is not for, whose version stands in a module that it reads first."""
    status, out, err = planted("sitecustomize", "import sys\nsys.version_info, sys.version = (3, 8, 18), '3.8.18 (old)'\n", "ps")
    equal((status, out, err.count("\n")), (1, "", 1), "an older Python ends it in a line")
    has(err, " is Python 3.8.18, and 3.9 is needed\n", "with both versions")


def interrupted():
    """While Python begins."""
    status, _, err = planted("sitecustomize", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", "ps", "--help")
    equal((status, err), (-signal.SIGINT, ""), "an interrupt ends it as it ends any program")


def interrupted_within():
    """In a library that makes an error of its own of it, as matplotlib does in C++."""
    status, _, err = planted("prometheus_client", "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
                             "    for _ in range(1000):\n        pass\nexcept BaseException:\n    raise TypeError('planted')\n",
                             "export", "--once")
    equal((status, err), (-signal.SIGINT, ""), "within a library as well")


def elsewhere():
    with tempfile.TemporaryDirectory(prefix="glake-parts-") as folder:
        tool = os.path.join(folder, "bin", "glakectl")
        os.mkdir(os.path.dirname(tool))
        shutil.copy2(TOOL, tool)
        done_ = run(tool, "bench", "--help")
        equal((done_.returncode, done_.stdout), (1, ""), "a part that is not there")
        has(done_.stderr, f"glakectl: bench: there is no glakectl-bench, which has this command, "
            f"in {folder}/bin nor in ", "is named, with where it was looked for")
        equal(done_.stderr.count("\n"), 1, "in one line")
        equal(run(tool, "replay", "--help").returncode, 0, "what needs no part works")
        done_ = run(tool, "report", "--help")
        equal((done_.returncode, done_.stdout, done_.stderr.count("\n")), (1, "", 1), "nor is there a package")
        has(done_.stderr, "glakectl: report: Python has no module glake.report: install all of glake", "is told as well")
        os.symlink(os.path.join(HERE, "../python/glake"), os.path.join(folder, "bin", "glake"))
        equal(run(tool, "report", "--help").returncode, 0, "one that lies beside it is found")
        os.mkdir(os.path.join(folder, "strange"))
        for name in ("runpy", "contextlib", "glake"):
            with open(os.path.join(folder, "strange", f"{name}.py"), "w", encoding="ascii") as file:
                file.write("raise SystemExit('strange')\n")
        equal(run(tool, "report", "--help", cwd=os.path.join(folder, "strange")).returncode, 0,
              "a module of the folder one is in is none of it")
        equal(run("./glakectl", "bench", cwd=os.path.dirname(tool)).returncode, 1,
              "the folder one is in is looked at as little")
        link = os.path.join(folder, "gk")
        os.symlink(tool, link)
        part = os.path.join(folder, "bin", "glakectl-bench")
        with open(part, "w", encoding="utf-8"):
            pass
        done_ = run(tool, "bench", "--help")
        equal(done_.returncode, 1, "one that is no program")
        has(done_.stderr, "glakectl: bench: glakectl-bench cannot be run: ", "and why")
        shutil.copy2(os.path.join(HERE, "glakectl-bench"), part)
        for name in (tool, link):
            done_ = run(name, "bench", "--help")
            ok(done_.returncode == 0, f"beside it, by {os.path.basename(name)}", done_.stderr)


def of_a_wheel():
    """The Python of the environment that a wheel lies in is the one that glakectl finds."""
    with tempfile.TemporaryDirectory(prefix="glake-parts-") as folder:
        script, python = os.path.join(folder, "glakectl"), os.path.join(folder, "bin", "python3")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\ncommand -v python3\n")
        os.chmod(script, 0o755)
        os.mkdir(os.path.dirname(python))
        os.symlink(sys.executable, python)
        done_ = run(python, "-c", "import sys; sys.path.insert(0, sys.argv[1]); from glake import library; "
                    "library.BESIDE = sys.argv[2]; library.tool()", os.path.join(HERE, "../python"), folder)
        equal((done_.returncode, done_.stdout), (0, python + "\n"), "a wheel's glakectl finds its own Python")


def main():
    start()
    beside()
    of_python()
    old()
    interrupted()
    interrupted_within()
    elsewhere()
    of_a_wheel()
    done()


main()
