# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A small program plain and under the preload, in each of the ways to find the driver: it computes
the same, its memory is glake's, and the preload writes what it is asked for to stderr and nothing
anywhere else. And where it must not serve.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from tap import HUNG, done, equal, has, ok, start

FOLDER, LOAD = os.environ["GLAKE_TEST_FRONT"], os.environ["GLAKE_TEST_PRELOAD"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "LD_"))}
PRELOAD = LOAD.split(":")[-1]
LIBRARY = os.path.join(os.path.dirname(os.path.dirname(PRELOAD)), "libglake.so.0")
CLEAN.update(GLAKE_MAP_SPAN="64GiB", LD_LIBRARY_PATH=f"{FOLDER}:{os.path.dirname(LIBRARY)}", LC_ALL="C")
OURS = ("alloc", "alloc_async", "pitch", "free", "free_async")


def run(program, *args, load=LOAD, **env):
    return subprocess.run([f"{FOLDER}/{program}", *args], env={**CLEAN, "LD_PRELOAD": load, **env},
                          capture_output=True, text=True, timeout=HUNG)


def said(what, program, *args, **more):
    """What it printed, which has to be one line of JSON and nothing else."""
    ended = run(program, *args, **more)
    equal(ended.returncode, 0, f"{what}: ends well")
    lines = ended.stdout.splitlines()
    if not ok(len(lines) == 1, f"{what}: stdout is the program's", ended.stdout, ended.stderr):
        return {}, ended.stderr
    return json.loads(lines[0]), ended.stderr


def plain_load():
    """What is loaded before the preload: a sanitizer, perhaps."""
    return ":".join(LOAD.split(":")[:-1])


def routes():
    for program, route in (("preload-linked", "symbol"), ("preload-routes", "dlsym"),
                           ("preload-routes", "proc1"), ("preload-routes", "proc2")):
        plain, _ = said(f"{route}, plain", program, route, load=plain_load())
        under, wrote = said(route, program, route)
        equal([plain[key] for key in OURS], [8, 8, 1, 9, 8], f"{route}: the driver's, plain")
        equal([under[key] for key in OURS], [0] * 5, f"{route}: none of it, under the preload")
        ok(under["create"] > 0 and not plain["create"], f"{route}: pages in place of it")
        for key in ("sum", "total", "range", "rows"):
            equal(under[key], plain[key], f"{route}: the same {key}")
        equal(wrote, "", f"{route}: not a word")
        equal(under["sync"], 9, f"{route}: a free of plain memory waits")


def watched():
    """A program that is asked to answer at a socket computes the same; who looks is not told."""
    with tempfile.TemporaryDirectory() as folder:
        keys = {"GLAKE_RPC_SOCKET": "yes", "XDG_RUNTIME_DIR": folder}
        room = os.path.join(folder, "glake")
        plain, _ = said("unwatched", "preload-routes", "proc2")
        under, wrote = said("watched", "preload-routes", "proc2", **keys)
        equal((under["sum"], wrote), (plain["sum"], ""), "watched: the same, and not a word")
        equal((os.stat(room).st_mode & 0o777, os.listdir(room)), (0o700, []),
              "watched: there was a socket, and none is left")
        os.chmod(room, 0o777)
        under, wrote = said("no socket", "preload-routes", "proc2", **keys)
        equal((under["sum"], wrote.count("\n")), (plain["sum"], 1), "no socket: the same")
        has(wrote, "is open to others", "no socket: it is said why, once")


def words():
    _, wrote = said("info", "preload-routes", "proc2", GLAKE_LOG_LEVEL="info")
    has(wrote, "preload: GPU 0: memory comes from glake", "it says that it serves")
    has(wrote, "GPU 0: 17 blocks given, 17 taken back, ", "and how much that was")
    ok("hooked" not in wrote, "and no more", wrote)
    ok(all(row.startswith("glake[") for row in wrote.splitlines()), "in the library's manner", wrote)
    _, wrote = said("debug, by symbol", "preload-linked", "symbol", GLAKE_LOG_LEVEL="debug")
    has(wrote, "hooked by symbol: cuMemAlloc_v2 ", "it says what it hooked")
    _, wrote = said("debug, by cuGetProcAddress", "preload-routes", "proc2", GLAKE_LOG_LEVEL="debug")
    has(wrote, "hooked by dlsym: cuGetProcAddress_v2\n", "and how")
    has(wrote, "hooked by cuGetProcAddress: ", "in both ways")
    _, wrote = said("debug", "preload-routes", "dlsym", GLAKE_LOG_LEVEL="debug")
    has(wrote, "preload: dlsym: cuMemAlloc_v2\n", "each look-up, where asked for")
    own = run("preload-two", "alone", GLAKE_LOG_LEVEL="debug")
    equal(own.returncode, 0, "a program of the library alone", )
    ok("hooked" not in own.stderr and "preload: dlsym" not in own.stderr,
       "the library reaches no hook", own.stderr)


def settings():
    under, _ = said("GLAKE_PRELOAD_FREE=stream", "preload-routes", GLAKE_PRELOAD_FREE="stream")
    equal([under[key] for key in OURS], [0] * 5, "  memory is glake's")
    equal(under["sync"], 0, "  nothing waits")
    under, wrote = said("GLAKE_PRELOAD_SERVE=async", "preload-routes", GLAKE_PRELOAD_SERVE="async",
                        GLAKE_LOG_LEVEL="info")
    equal([under[key] for key in OURS], [8, 0, 1, 9, 0], "  plain memory is the driver's")
    has(wrote, "but for that of cuMemAlloc", "  and it says so")
    _, wrote = said("events", "preload-routes", GLAKE_PRELOAD_EVENTS="yes", GLAKE_LOG_LEVEL="debug")
    has(wrote, " cuEventRecord ", "  are hooked")
    _, wrote = said("no events", "preload-routes", GLAKE_LOG_LEVEL="debug")
    ok("cuEventRecord" not in wrote, "  are not", wrote)
    under, wrote = said("a bad value", "preload-routes", GLAKE_PRELOAD_FREE="never",
                        GLAKE_LOG_LEVEL="warning")
    has(wrote, "preload.free", "  is named")
    equal([under[key] for key in OURS], [8, 8, 1, 9, 8], "  and leaves all to the driver")
    under, _ = said("a budget", "preload-routes", GLAKE_POOL_BUDGET="128MiB")
    equal(under["total"], 128 << 20, "  is all there is")
    ok(0 < under["left"] < 128 << 20, "  and is used", under)
    whole, wrote = said("a budget of nothing", "preload-routes", GLAKE_POOL_BUDGET="")
    equal((whole["alloc"], wrote), (0, ""), "  is none, and glake serves")
    under, _ = said("a part", "preload-routes", GLAKE_POOL_BUDGET="25%")
    equal(under["total"], whole["total"] // 4, "  is one of the GPU")


def from_file(what, text, route="dlsym", **more):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/glake.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        load = ":".join(filter(None, [plain_load(), f"{FOLDER}/libpreload-file.so",
                                      LOAD.split(":")[-1]]))
        return said(what, "preload-routes", route, load=load, TEST_GLAKE_CONF=path, **more)


def file():
    under, wrote = from_file("[preload] free", "[preload]\nfree = stream\n")
    equal((under["sync"], under["alloc"], wrote), (0, 0, ""), "  nothing waits, all is glake's")
    under, wrote = from_file("[preload] serve", "[log]\nlevel = info\n[preload]\nserve = async\n")
    equal([under[key] for key in OURS], [8, 0, 1, 9, 0], "  plain memory is the driver's")
    has(wrote, "but for that of cuMemAlloc", "  and it says so, as the file asks")
    for route in ("dlsym", "proc2"):
        _, wrote = from_file(f"[preload] events, {route}", "[preload]\nevents = yes\n",
                             route, GLAKE_LOG_LEVEL="debug")
        has(wrote, " cuEventRecord ", "  are hooked")
    under, _ = from_file("environment over file", "[preload]\nfree = stream\n",
                         GLAKE_PRELOAD_FREE="sync")
    equal(under["sync"], 9, "  a free waits")
    under, wrote = from_file("a mistake in the file", "[preload]\nfree = never\n",
                             GLAKE_LOG_LEVEL="warning")
    equal([under[key] for key in OURS], [8, 8, 1, 9, 8], "  leaves all to the driver")
    has(wrote, "preload.free", "  and is named")
    under, _ = from_file("a key of the library", "[pool]\nbudget = 128MiB\n")
    equal(under["total"], 128 << 20, "  counts as well")


def inert():
    for what, more in {
        "GLAKE_DISABLE=1": {"GLAKE_DISABLE": "1"},
        "more rights than the user's":
            {"load": ":".join(filter(None, [plain_load(), f"{FOLDER}/libpreload-secure.so",
                                            LOAD.split(":")[-1]]))},
    }.items():
        for program, route in (("preload-linked", "symbol"), ("preload-routes", "proc2")):
            under, wrote = said(f"{what}, {route}", program, route, **more)
            equal([under[key] for key in OURS], [8, 8, 1, 9, 8], f"{what}: all is the driver's")
            equal(wrote, "", f"{what}: without a word")
    under, wrote = said("GLAKE_DISABLE=0", "preload-routes", GLAKE_DISABLE="0")
    equal([under[key] for key in OURS], [0] * 5, "  serves")
    for program, route in (("preload-linked", "symbol"), ("preload-routes", "proc2")):
        what = f"a configuration that is refused, {route}"
        under, wrote = said(what, program, route, GLAKE_POOL_SMALL_PAGE="3MiB")
        equal([under[key] for key in OURS], [8, 8, 1, 9, 8], "  all is the driver's")
        has(wrote, "error: GLAKE_POOL_SMALL_PAGE: pool.small_page: not a power of two", "  it is named")
        has(wrote, "preload: GPU 0 is left to the driver: ", "  and what follows from it")
        equal(wrote.count("\n"), 2, "  in two lines")
        _, wrote = said(what, program, route, GLAKE_POOL_SMALL_PAGE="3MiB", GLAKE_LOG_LEVEL="none")
        equal(wrote, "", "  without a word, where asked")
    for variable, meant in (("GLAKE_POOL_BUGDET", "GLAKE_POOL_BUDGET"),
                            ("GLAKE_PRELAOD_FREE", "GLAKE_PRELOAD_FREE")):
        under, wrote = said(variable, "preload-routes", "proc2", **{variable: "1"})
        equal([under[key] for key in OURS], [0] * 5, "  serves")
        has(wrote, f"warning: {variable}: no key has this variable; did you mean {meant}?",
            "  and says what was meant")
        equal(wrote.count("\n"), 1, "  once")
    ended = run("preload-none", LD_LIBRARY_PATH="")
    equal((ended.returncode, ended.stdout, ended.stderr), (0, "", ""), "no driver")


def installed():
    """The library lies beside the preload, or is not there."""
    with tempfile.TemporaryDirectory() as folder:
        alone = os.path.join(folder, "libglake-preload.so")
        shutil.copy(PRELOAD, alone)
        load = ":".join(filter(None, [plain_load(), alone]))
        for program, route in (("preload-linked", "symbol"), ("preload-routes", "proc2")):
            under, wrote = said(f"no library, {route}", program, route, load=load,
                                LD_LIBRARY_PATH=FOLDER)
            equal([under[key] for key in OURS], [8, 8, 1, 9, 8], "  all is the driver's")
            has(wrote, "warning: preload: memory is left to the driver: libglake.so.0: ", "  and why")
            equal(wrote.count("\n"), 1, "  once")
        shutil.copy(LIBRARY, folder)
        under, wrote = said("the library beside it", "preload-routes", "proc2", load=load,
                            LD_LIBRARY_PATH=FOLDER)
        equal(([under[key] for key in OURS], wrote), ([0] * 5, ""), "  serves")


start()
installed()
routes()
watched()
words()
settings()
file()
inert()
done()
