# SPDX-License-Identifier: LGPL-2.1-or-later
"""
When the library speaks, on standard error, a line at a time, and when it does not: nothing in a
run where all is well.
"""
import os
import subprocess
import tempfile

from tap import DATA, HUNG, done, equal, has, ok, start, tool

PROGRAM, STUB = os.environ["GLAKE_SPEAK_PROGRAM"], os.environ["GLAKE_SPEAK_STUB"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("GLAKE_")}
LIBRARIES = os.environ.get("LD_LIBRARY_PATH", "")


def said(*words, **settings):
    """What the program got, and the lines that the library wrote, without its process number."""
    env = {**CLEAN, **{k if k.startswith("LD_") else f"GLAKE_{k}": v for k, v in settings.items()}}
    run = subprocess.run([PROGRAM, *words], env=env, stdout=subprocess.PIPE, timeout=HUNG,
                         stderr=subprocess.PIPE, check=True)
    lines = run.stderr.decode().splitlines()
    ok(all(line.startswith("glake[") for line in lines), "the library's lines begin alike", lines)
    return run.stdout.decode().split(), [line.partition("] ")[2] for line in lines]


def healthy(folder):
    got, lines = said("soft", "soft", "quiet")
    equal(lines, [], "contexts that are asked for: not a word")
    equal(got[:2], ["soft", "soft"], "on the device that was meant")
    trace = os.path.join(folder, "healthy.trace")
    _, lines = said("auto", DRIVER_BACKEND="soft", POOL_BUDGET="1 GB", TRACE_FILE=trace)
    equal(lines, [], "nor where the environment asks for it")
    job = f"{DATA}/opt13_N.csv.xz"
    for args in (("info", "-d", "soft"), ("replay", "-d", "soft", "-q", job),
                 ("replay", "-d", "soft", "-r", "1", "--limit", "40 GB", job),
                 ("trace", "show", trace), ("trace", "convert", trace), ("conf", "show"),
                 ("bench", "-d", "soft", "-q", "-r", "2", "stitch")):
        run = tool(*args)
        equal((run.returncode, run.stderr), (0, b""), f"glakectl {' '.join(map(os.path.basename, args))[:40]}")
    run = tool("info")
    ok(run.stderr.count(b"\n") <= 1 and b"glake[" not in run.stderr,
       "the tool says itself what it runs on", run.stderr)


def without_cuda():
    """None, as on most machines that this test runs on, or one that has no device."""
    where = {"LD_LIBRARY_PATH": f"{STUB}:{LIBRARIES}"}
    got, lines = said("auto", "auto", "auto", **where)
    equal(got, ["soft"] * 3, "nobody asked for a driver, and there is none")
    if ok(len(lines) == 1, "said once a process", lines):
        has(lines[0], "warning: this is the software device, for CUDA does not work here: ", "so")
        has(lines[0], "stub", "and why: a library of the driver that is none")
        has(lines[0], "driver.backend=soft says that it is meant", "and how to silence it")
    equal(said("auto", LOG_LEVEL="error", **where), (["soft"], []), "or by its level")
    equal(said("quiet", **where), (["soft"], []), "a program may say it itself")
    equal(said("cuda", **where)[0], ["refused"], "who insists gets none")
    equal(said("default", **where)[0], ["refused"], "nor who wants CUDA where nobody says anything")
    equal(said("default", DRIVER_BACKEND="soft", **where), (["soft"], []),
          "where somebody does, that counts")
    equal(said("cuda", DRIVER_BACKEND="soft", **where)[0], ["refused"],
          "the program has the last word")


def configuration(folder):
    for variable, meant in (("POOL_BUGDET", "POOL_BUDGET"), ("POLL_BUDGET", "POOL_BUDGET"),
                            ("LOGLEVEL", "LOG_LEVEL"), ("BUDGET", "POOL_BUDGET")):
        _, lines = said("soft", **{variable: "1"})
        equal(lines, [f"warning: GLAKE_{variable}: no key has this variable; did you mean "
                      f"GLAKE_{meant}?"], f"GLAKE_{variable}")
    equal(said("soft", HOME="/opt/glake", DISABLE="1")[1], [], "variables of others")
    _, lines = said("soft", "soft", POOL_BUDGET="24 apples")
    equal(lines[0], "error: GLAKE_POOL_BUDGET: pool.budget: '24 apples' is not a size, nor a part; "
          "right is 0 ... 16TiB, or above 0% to 100%, as 24G, 1.5GiB, 80% or 0.8", "a value that is none")
    _, lines = said(*["soft"] * 30, POOL_BUGDET="1")
    ok(len(lines) <= 11, "a line that comes again and again is said ten times", lines)
    ok(any("more lines like this are left out" in line for line in lines), "and that there were more")
    there = os.path.join(folder, "there.trace")
    with open(there, "w", encoding="ascii"):
        pass
    _, lines = said("soft", TRACE_FILE=there)
    equal(lines, [f"warning: nothing is recorded in {there}: that file is there already"],
          "a trace that cannot be written")
    _, lines = said("soft", TRACE_FILE=there, LOG_LEVEL="none")
    equal(lines, [], "without a word, where asked")


def main():
    start()
    with tempfile.TemporaryDirectory(prefix="glake-") as folder:
        healthy(folder)
        without_cuda()
        configuration(folder)
    done()


main()
