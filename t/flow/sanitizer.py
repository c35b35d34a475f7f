# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Names of tensors in what compute-sanitizer reports: with a tool of the tests in its place, which takes what is told of memory,
and a program that reports itself.

    sanitizer.py SOURCE PLUGIN TOOL
"""

import os
import signal
import subprocess
import sys
import tempfile

import tap

SOURCE, PLUGIN, TOOL = map(os.path.abspath, sys.argv[1:])
PROGRAM = '''
import ctypes
import glake
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
def get(name, result, *arguments):
    function = getattr(glake.library.load(), "glake_torch_" + name)
    function.restype, function.argtypes = result, arguments
    return function
alloc, free = get("alloc", P, N, I, P), get("free", None, P, N, I, P)
request, into = get("request", I, N, I, P, P), P()
def first():
    return alloc(1000, 0, None)
def second():
    request(5000, 0, None, ctypes.byref(into))
    return into.value
a, b = first(), second()
print("plain line")
print(f"=========     Access to {hex(a + 1000)} is out of bounds")
print(f"=========     and is 1 bytes after the nearest allocation at {hex(a)} of size 1,000 bytes")
free(b, 0, 0, None)
free(alloc(1, 0, None), 0, 0, None)
print(f"=========     Access to {hex(b + 7)} is out of bounds")
print(f"=========     and is 9 bytes after the nearest allocation at 0x123 of size 7 bytes", flush=True)
free(a, 0, 0, None)
raise SystemExit(7)
'''


def run(folder, *arguments, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON", "NVTX_"))}
    clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN), PYTHONPATH=SOURCE,
                 PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", PATH=f"{folder}:/usr/bin:/bin", **more)
    return subprocess.run([sys.executable, "-S", "-m", "glake.sanitizer", *arguments], env=clean, timeout=tap.HUNG,
                          capture_output=True, text=True, check=False)


def ended_by(folder, number):
    """The status of one that is ended by a signal, whether its program heard of it, and whether no handler has to be called for that."""
    mark, waits = os.path.join(folder, "heard"), os.path.join(folder, "waits.py")
    with open(waits, "w", encoding="utf-8") as file:
        file.write(f"import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\nprint('waits', flush=True)\n"
                   f"signal.sigwait([{int(number)}])\nopen({mark!r}, 'w').close()\nraise SystemExit(9)\n")
    clean = dict(os.environ, PYTHONPATH=SOURCE, PYTHONDONTWRITEBYTECODE="1", PATH=f"{folder}:/usr/bin:/bin")
    child = subprocess.Popen([sys.executable, "-S", "-m", "glake.sanitizer", "--x", sys.executable, "-S", waits],
                             env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while child.stdout.readline().strip() not in ("waits", ""):
        pass
    with open(f"/proc/{child.pid}/status", encoding="utf-8") as file:
        held = int(next(line for line in file if line.startswith("SigBlk")).split()[1], 16)
    child.send_signal(number)
    err = child.communicate(timeout=tap.HUNG)[1]
    heard = os.path.exists(mark)
    if heard:
        os.unlink(mark)
    return child.returncode, heard, held >> int(number) - 1 & 1, err


def killed(folder):
    """The status of one whose program is killed."""
    return run(folder, "--x", "sh", "-c", "kill -9 $$").returncode


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        tool = os.path.join(folder, "compute-sanitizer")
        with open(tool, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "========= $1"\nshift\nNVTX_INJECTION64_PATH={TOOL} exec "$@"\n')
        os.chmod(tool, 0o700)
        said = run(folder, "--tool=memcheck", sys.executable, "-S", script)
        lines = said.stdout.splitlines()
        tap.equal(said.returncode, 7, "a program runs, and its status is kept")
        tap.ok("========= --tool=memcheck" in lines and "plain line" in lines, "  with the tool's option, and its own lines", said)
        name = os.path.basename(folder) + "/train.py:"
        at = next((i for i, line in enumerate(lines) if "size 1,000" in line), 0)
        tap.ok(lines[at + 1].startswith("=========     which is of " + name + "12 (first)") and name + "16 (<module>)" in lines[at + 1],
               "what lies before an overrun has the lines that asked for it", lines)
        tap.ok("size" in lines[at] and "Access" in lines[at - 1], "  and the address itself, which is nobody's, none", lines)
        at = next((i for i, line in enumerate(lines) if "where a block" in line), 0)
        tap.ok(name + "14 (second)" in lines[at] and "Access" in lines[at - 1], "what was freed has them too", lines)
        tap.ok(lines[-1].endswith("of size 7 bytes"), "what nobody knows has none", lines)
        tap.equal(said.stderr, "", "nothing else is said")
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            tap.equal(ended_by(folder, number), (9, True, 1, ""), f"{number.name} reaches the program, which ends as it says")
        tap.equal(killed(folder), 137, "a program that is killed is told as a shell tells it")
        os.unlink(tool)
        said = run(folder, sys.executable, script)
        tap.ok(said.returncode == 1 and ("there is no compute-sanitizer" in said.stderr or os.path.exists("/usr/local/cuda/bin/compute-sanitizer")),
               "without compute-sanitizer that is said", said)
        said = run(folder)
        tap.ok(said.returncode == 1 and "usage:" in said.stderr, "and how it is used", said)
    tap.done()


main()
