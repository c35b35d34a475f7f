# SPDX-License-Identifier: LGPL-2.1-or-later
"""
python3 -m glake: a program as it is, with its tensors on glake, and with --report a page of what it asked for and
what PyTorch's allocators would have held; --info: what was loaded from where.
"""

import contextlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

import glake
from glake import library

USAGE = "usage: python3 -m glake [--info | [-c KEY=VALUE]... [--report PAGE] [-m MODULE | SCRIPT] [ARGUMENT...]]"


def _tell(trace, page):
    """What a program asked for, which has ended: the page, and how much memory other allocators take for that."""
    beside = os.path.join(library.BESIDE, "glakectl")
    tool = beside if os.path.exists(beside) else os.environ.get("GLAKECTL") or shutil.which("glakectl")
    env = {key: value for key, value in os.environ.items() if not key.startswith("GLAKE_")}
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env.get("PATH", os.defpath)
    if not os.path.exists(trace):
        print("glake: nothing was recorded: no memory of a GPU was asked for", file=sys.stderr)
    elif not tool:
        print("glake: there is no page: glakectl is not in PATH, nor does GLAKECTL name it", file=sys.stderr)
    elif subprocess.run([tool, "report", "-q", "-L", "-f", "no", "-o", page, "--", trace], env=env, check=False).returncode == 0:
        subprocess.run([tool, "try", "-L", "--", trace], env=env, stdout=sys.stderr, check=False)
        print(f"glake: {page} shows this run", file=sys.stderr)


def _or_end(function):
    try:
        return function()
    except glake.GlakeError as error:
        sys.exit(f"glake: {error}")


@contextlib.contextmanager
def _served(page):
    """Has tensors on glake, and this process recorded if there is to be a page, which is made however it ends."""
    if not page:
        _or_end(glake.use)
        yield
        return
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("glake: --report: matplotlib is not installed: apt install python3-matplotlib, or pip install matplotlib")
    page = os.path.abspath(page.replace("%p", str(os.getpid())).replace("%r", os.environ.get("RANK", "0")))
    if not os.access(os.path.dirname(page), os.W_OK):
        sys.exit(f"glake: --report: {page} cannot be written")
    pid, folder = os.getpid(), tempfile.mkdtemp(prefix="glake-")
    try:
        trace = os.path.join(folder, re.sub(r"[^\w.-]", "_", os.path.basename(sys.argv[0])))
        os.environ["GLAKE_TRACE_FILE"] = trace + ".%p.trace"
        _or_end(glake.use)
        try:
            yield
        finally:
            if os.getpid() == pid:  # a child that it forked may end here too
                _tell(f"{trace}.{pid}.trace", page)
    finally:
        if os.getpid() == pid:
            shutil.rmtree(folder, ignore_errors=True)


def main(arguments):
    """Runs a program with its tensors on glake."""
    page = None
    if arguments == ["--info"]:
        sys.exit(print(*(f"{name}: {value}" for name, value in _or_end(glake.info).items()), sep="\n"))
    while len(arguments) > 1 and arguments[0] in ("-c", "--conf", "--report"):
        option, value, *arguments = arguments
        key, equals, setting = value.partition("=")
        if option == "--report":
            page = value
        elif equals:
            os.environ["GLAKE_" + key.upper().replace(".", "_")] = setting
        else:
            sys.exit(f"glake: {option} takes KEY=VALUE, not '{value}'")
    sys.argv = arguments[arguments[:1] == ["-m"]:]
    if not sys.argv or sys.argv[0].startswith("-"):
        sys.exit(USAGE)
    with _served(page):
        if arguments[0] == "-m":
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
