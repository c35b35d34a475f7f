# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Programs that know nothing of a quota, under the preload: each function that tells of memory says the same, and what
passes glake is counted with what it gives.
"""
import os
import shutil
import subprocess
import tempfile

from tap import HUNG, done, equal, ok, start

FRONT, LOAD = os.environ["GLAKE_TEST_FRONT"], os.environ["GLAKE_TEST_PRELOAD"]
LIBRARY = os.path.dirname(os.path.dirname(LOAD.split(":")[-1]))
CONTEXT = 16  # MiB that the NVML of the tests has for one
OUT_OF_MEMORY = "refused 2"


class Program:
    def __init__(self, folder, quota="512MiB", nvml=True, load=LOAD, **keys):
        paths = [FRONT, LIBRARY] + [os.environ["GLAKE_TEST_NVML_FOLDER"]] * nvml
        env = {key: value for key, value in os.environ.items() if not key.startswith(("GLAKE_", "LD_"))}
        env.update(LD_LIBRARY_PATH=":".join(paths), LD_PRELOAD=load, XDG_RUNTIME_DIR=folder,
                   GLAKE_MAP_SPAN="64GiB", GLAKE_SHARE_QUOTA=quota, GLAKE_POOL_LARGE_PAGE="2MiB", **keys)
        self.run = subprocess.Popen([f"{FRONT}/preload-quota"], env=env, text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def do(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()
        return self.run.stdout.readline().strip()

    def info(self):
        return [int(word) for word in self.do("info").split()]

    def fill(self, kind, mib):
        """How often it gets so much."""
        count = 0
        while (said := self.do(f"{kind} {mib}")) != OUT_OF_MEMORY:
            assert said.isdigit(), said
            count += 1
        return count

    def used(self):
        return int(self.do("used")) + CONTEXT

    def end(self):
        return self.run.communicate(timeout=HUNG)[1]


def one(folder):
    program = Program(folder)
    free = 512 - CONTEXT
    equal(program.info(), [free, 512, 512, free, 512, free, 512], "seven figures of a GPU of 512 MiB, less a context")
    program.do("alloc 100")
    equal(program.info(), [free - 100, 512, 512, free - 100, 512, free - 100, 512], "less what glake gives")
    program.do("create 50")
    program.do("pass 20")
    left = free - 170
    equal(program.info(), [left, 512, 512, left, 512, left, 512], "less what passes")
    program.do("free 0")
    equal(program.info()[0], left + 100, "what was freed is free")
    equal(program.used(), 186, "though glake holds it")
    equal(program.do(f"create {left + 100}"), "0", "and others have it")
    equal(program.info()[0], 0, "nothing is left")
    for kind in ("alloc 2", "create 2", "pass 2"):
        equal(program.do(kind), OUT_OF_MEMORY, f"{kind}: refused")
    equal(program.used(), 512, "what the driver gave is what the quota has")
    program.do("free 1")
    equal(program.do("alloc 50"), "1", "what the driver has back is there")
    equal(program.end(), "", "not a word")


def each(folder):
    """As much as there is, by each call."""
    for kind in ("alloc", "create", "pass"):
        program = Program(folder)
        equal(program.fill(kind, 16), (512 - CONTEXT) // 16, f"{kind}: up to the quota")
        ok(program.used() <= 512, f"{kind}: and not more", program.used())
        program.end()


def two(folder):
    first, second = Program(folder), Program(folder)
    second.info()
    first.do("alloc 200")
    equal(second.info(), first.info(), "two at once see the same figures")
    equal(first.info()[0], 512 - 2 * CONTEXT - 200, "which is what both leave")
    first.do("free 0")
    equal(first.info(), second.info(), "what lies idle goes back where there are two")
    equal(first.info()[0], 512 - 2 * CONTEXT, "and is free to both")
    first.fill("alloc", 64)
    first.info()
    second.fill("create", 16)
    second.fill("alloc", 16)
    equal(first.do("create 16"), OUT_OF_MEMORY, "the one is refused what the other has")
    ok(480 < first.used() + second.used() <= 512, "together they have the quota", first.used(), second.used())
    first.end()
    equal(second.info()[0], 512 - second.used(), "what one that ends had is free")
    second.end()


def unlisted(folder):
    """Without NVML."""
    program = Program(folder, nvml=False)
    equal(program.info()[:3], [512, 512, 512], "a context is not seen")
    program.do("create 100")
    program.do("pass 100")
    equal(program.info()[0], 312, "what is asked for by the calls is")
    equal(program.do("create 320"), OUT_OF_MEMORY, "and refused")
    program.do("free 0")
    program.do("free 1")
    equal(program.info()[0], 512, "and given back")
    program.end()
    program = Program(folder, nvml=False, GLAKE_PRELOAD_SERVE="async")
    for kind in ("alloc", "rows"):
        equal(program.do(f"{kind} 200"), "0", f"{kind}: what the driver is left to give")
        equal((program.info()[0], program.do(f"{kind} 320")), (312, OUT_OF_MEMORY), "is counted, and refused")
        program.do("free 0")
    program.end()


def none(folder):
    program = Program(folder, quota="0")
    equal(program.info()[1:3], [1024, 1024], "without a quota there is the GPU")
    equal(program.info()[3], 1024 - CONTEXT, "and NVML tells what it does")
    program.end()
    program = Program(folder, load=":".join(LOAD.split(":")[:-1]))
    equal(program.info()[1:3], [1024, 1024], "and without the preload")
    program.end()


start()
for body in (one, each, two, unlisted, none):
    room = tempfile.mkdtemp(prefix="glake-quota-")
    body(room)
    shutil.rmtree(room)
done()
