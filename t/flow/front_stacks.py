# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Lines of Python in snapshots: which they are, who has none, and that nobody waits for ever.

    front_stacks.py SOURCE PLUGIN THREADS

With GLAKE_TEST_TORCH=PYTHON also what PyTorch's own script makes of them.
"""

import json
import os
import subprocess
import sys
import tempfile

import tap

SOURCE, PLUGIN, THREADS = map(os.path.abspath, sys.argv[1:])
START = '''
import ctypes, gc, json, os, sys, threading, time
import glake
def get(name, result=None, *arguments):
    function = getattr(glake.library.load(), "glake_torch_" + name)
    function.restype, function.argtypes = result, arguments
    return function
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
alloc, free = get("alloc", P, N, I, P), get("free", None, P, N, I, P)
def one():
    free(alloc(1000, 0, None), 0, 0, None)
def frames():
    return glake.snapshot()["device_traces"][0][-1]["frames"]
def refused(function, *arguments, **named):
    try:
        return repr(function(*arguments, **named))
    except glake.GlakeError as error:
        return str(error)
'''


def python(code, *arguments, **more):
    """What a program prints, each line as JSON; a dict with its error if it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
                 PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1",
                 PYTHONPATH=SOURCE, **more)
    try:
        run = subprocess.run([sys.executable, "-S", "-W", "ignore::DeprecationWarning", "-c", START + code, THREADS, *arguments], env=clean,
                             timeout=tap.HUNG, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": "it hangs"}
    if run.returncode or run.stderr:
        return {"failed": run.returncode, "said": run.stderr}
    return [json.loads(line) for line in run.stdout.splitlines()]


def told(said, count, what):
    return tap.ok(isinstance(said, list) and len(said) == count, what, said)


JOB = '''
source = """class Layer:
    def forward(self, size):
        return alloc(size, 0, None)

def step(layer, size):
    return layer.forward(size)
"""
exec(compile(source, "/job/model.py", "exec"), globals())
exec(compile("def train(size):\\n    kept.append(step(Layer(), size))\\n", "/job/trän.py", "exec"), globals())
kept = []
def deep(levels):
    return deep(levels - 1) if levels else alloc(4096, 0, None)
'''


def names(folder):
    path = os.path.join(folder, "job.pickle")
    said = python(JOB + '''
kept.append(alloc(500, 0, None))
print(json.dumps(refused(glake.snapshot)))
glake.history(100)
train(1000)
picture = glake.snapshot()
print(json.dumps([[row["frames"] for row in picture["device_traces"][0]], glake.stacks()]))
glake.history(100, stacks=8)
train(3000)
train(3000)
free(kept[-1], 0, 0, None)
picture = glake.snapshot(sys.argv[2])
print(json.dumps([picture, glake.stacks()]))
kept.append(deep(100))
print(json.dumps(frames()))
glake.history(100, stacks=True)
kept.append(deep(100))
print(json.dumps([len(frames()), len(glake.snapshot()["device_traces"][0])]))
glake.history(100, stacks=10 ** 9)
kept.append(deep(300))
print(json.dumps(len(frames())))
glake.history(0)
print(json.dumps([glake.stacks(), refused(glake.history, 100, stacks=-1)]))
''', path)
    if not told(said, 7, "a job with stacks"):
        return
    early, without, (picture, figures), deep, usual, most, (ended, wrong) = said
    tap.has(early, "glake.history()", "nothing is remembered unasked")
    tap.equal(without[0], [[]], "and a history has no stacks unasked")
    tap.equal(sum(without[1].values()), 0, "nor are any taken")
    rows = picture["device_traces"][0]
    want = [{"filename": "/job/model.py", "line": 3, "name": "Layer.forward"},
            {"filename": "/job/model.py", "line": 6, "name": "step"},
            {"filename": "/job/trän.py", "line": 2, "name": "train"}]
    if sys.version_info < (3, 11):
        want[0]["name"] = "forward"
    tap.equal([row["action"] for row in rows],
              ["alloc", "alloc", "free_requested", "free_completed"], "its events")
    tap.equal([row["frames"][:3] for row in rows], [want] * 4, "each has file, line and function")
    tap.equal([row["frames"][3]["name"] for row in rows], ["<module>"] * 4, "up to the program")
    live = [block for s in picture["segments"] for block in s["blocks"] if block["frames"]]
    tap.equal([(block["requested_size"], block["frames"][:3]) for block in live], [(3000, want)],
              "and so has the block that is live; those of before have none")
    tap.equal((figures["taken"], figures["without"], figures["dropped"], figures["places"],
               figures["nodes"]), (2, 0, 0, 5, 8), "lines and stacks that are alike are kept once")
    tap.equal([row["name"] for row in deep], ["deep"] * 8, "of a deep stack the innermost frames")
    tap.equal((usual, most), ([64, 1], 256), "64 if no number is given, and 256 at most")
    tap.equal(sum(ended.values()), 0, "the end of the history forgets them")
    tap.has(wrong, "stacks=-1", "a number that is none is refused")
    viz(path)


VIZ = """
import pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], "rb"))
viz.trace_plot(data)
print(viz.trace(data) + viz.memory(data, format_flamegraph=str) + viz.segments(data, format_flamegraph=str))
"""


def viz(path):
    torch = os.environ.get("GLAKE_TEST_TORCH")
    if not torch:
        tap.skip("PyTorch's own script shows them", "GLAKE_TEST_TORCH names no Python with PyTorch")
        return
    run = subprocess.run([torch, "-c", VIZ, path], capture_output=True, text=True, check=False)
    missing = [text for text in ("model.py:3:Layer.forward", "model.py:6:step", "trän.py:2:train")
               if run.stdout.count(text) < 2]
    tap.equal((run.returncode, missing), (0, []), f"PyTorch's own script shows them: {run.stderr}")


WATCHED = JOB + """
import pickle, subprocess
tool, path = sys.argv[2:]
def look():
    run = subprocess.run([tool, "snapshot", str(os.getpid()), "-o", path], capture_output=True,
                         text=True, check=False)
    if run.returncode or run.stderr:
        return [run.returncode, run.stderr]
    with open(path, "rb") as file:
        return [[block["requested_size"], block["frames"]] for s in pickle.load(file)["segments"]
                for block in s["blocks"] if block["state"] == "active_allocated"]
kept.append(alloc(700, 0, None))
print(json.dumps(look()))
glake.history(100, stacks=8)
train(1000)
train(2000)
free(kept.pop(), 0, 0, None)
for i in range(5000):
    train(3000)
print(json.dumps(look()))
print(json.dumps(os.path.getsize(path)))
glake.history(0)
print(json.dumps([frames for _, frames in look() if frames]))
"""


def watched(folder):
    """From outside, by glakectl."""
    path = os.path.join(folder, "watched.pickle")
    said = python(WATCHED, os.environ["GLAKECTL"], path, GLAKE_RPC_SOCKET="yes", XDG_RUNTIME_DIR=folder)
    if not told(said, 4, "glakectl snapshot of a process that takes stacks"):
        return
    before, rows, size, after = said
    tap.equal(before, [[700, []]], "there are none before it takes any")
    known = {}
    for asked, frames in rows:
        known.setdefault(asked, []).append([(f["filename"], f["line"], f["name"]) for f in frames[1:3]])
    tap.equal({asked: len(rows) for asked, rows in known.items()}, {700: 1, 1000: 1, 3000: 5000},
              "its blocks are there")
    want = [[("/job/model.py", 6, "step"), ("/job/trän.py", 2, "train")]]
    tap.equal((known[700], known[1000], known[3000]), ([[]], want, want * 5000), "with those who asked")
    tap.ok(size < 2 << 20, "stacks that are alike are written once", size)
    tap.equal(after, [], "and none when it has forgotten them")


def who():
    said = python(JOB + '''
import weakref
threads = ctypes.CDLL(sys.argv[1])
glake.history(100, stacks=4)
before = glake.stacks()
threads.run_thread(alloc)
get("try_alloc", P, N, I, P)(1000, 0, None)
print(json.dumps([row["frames"] for row in glake.snapshot()["device_traces"][0]] + [glake.stacks()]))
held = ctypes.PyDLL(glake.library.load()._name).glake_torch_alloc
held.restype, held.argtypes = P, (N, I, P)
def holding():
    held(1000, 0, None)
holding()
thread = threading.Thread(target=one)
thread.start()
thread.join()
print(json.dumps([frames()[0]["name"], glake.stacks()["taken"]]))
def made(name):
    space = {"one": one}
    exec(compile(f"def {name}():\\n one()", name + ".py", "exec"), space)
    space[name]()
    return weakref.ref(space[name].__code__)
codes = [made(f"f{i}") for i in range(100)]
gc.collect()
alive = sum(code() is not None for code in codes)
seen = [frames()[1]["name"]] + [row["frames"][1]["filename"] for row in glake.snapshot()["device_traces"][0]]
glake.history(0)
gc.collect()
print(json.dumps([alive, seen[0], len(set(seen[1:])), sum(code() is not None for code in codes)]))
class Odd(Exception):
    def __del__(self):
        one()
glake.history(100, stacks=4)
try:
    raise Odd("raised")
except Odd as error:
    kept = str(error)
print(json.dumps([kept, frames()[1]["name"]]))
''')
    if not told(said, 4, "threads of all kinds"):
        return
    (foreign, tried, figures), known, codes, odd = said
    tap.equal((foreign, tried), ([], []), "no frames where Python does not run, or may not be waited for")
    tap.equal((figures["taken"], figures["without"]), (0, 1), "which is counted")
    tap.equal(known, ["one", 2], "threads of Python have them, also one that holds its lock")
    tap.equal(codes, [100, "f99", 50, 0],
              "code that is gone stays until stacks end, so that no other takes its name")
    tap.equal(odd, ["raised", "Odd.__del__" if sys.version_info >= (3, 11) else "__del__"],
              "and what runs as an object ends")


def storms():
    said = python('''
class Node:
    def __del__(self):
        one()
def cycle():
    a, b = Node(), Node()
    a.other, b.other = b, a
gc.set_threshold(1)
glake.history(1000, stacks=16)
def grow(levels):
    cycle()
    one()
    if levels:
        grow(levels - 1)
for _ in range(20):
    grow(20)
gc.set_threshold(700)
print(json.dumps(glake.stacks()["taken"] > 400))
on = True
def work(name):
    exec(compile(f"def {name}():\\n one()\\n one()", name, "exec"), globals())
    while on:
        globals()[name]()
        with threading.Lock():
            pass
threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(4)]
[thread.start() for thread in threads]
busy, good = 0, 0
for i in range(24):
    glake.history(500, stacks=1 + i % 5)
    rows = []
    while not any(row["frames"] for row in rows):  # until one of them has the lock
        time.sleep(0.001)  # paces
        rows = glake.snapshot()["device_traces"][0]
    for frames in (row["frames"] for row in rows if len(row["frames"]) > 1):
        good += frames[0]["name"] == "one" and frames[1]["filename"] in ("w0", "w1", "w2", "w3")
        busy += 1
on = False
[thread.join() for thread in threads]
print(json.dumps([busy == good, busy > 0, glake.stacks()["dropped"]]))
''')
    if told(said, 2, "garbage that is collected within, and stacks that begin and end beside threads"):
        tap.ok(said[0], "stacks are taken all the same")
        tap.equal(said[1], [True, True, 0], "each is a true one")


def bounds():
    said = python('''
glake.history(1000, stacks=2)
for i in range(700):
    exec(compile("one()\\n" * 100, f"long{i}.py", "exec"))
figures, rows = glake.stacks(), glake.snapshot()["device_traces"][0]
print(json.dumps([figures, rows[-1]["frames"]]))
one()
glake.history(1000, stacks=2)
exec(compile("one()\\n" * 10, "again.py", "exec"))
print(json.dumps([glake.stacks()["dropped"], frames()[1]]))
''')
    if not told(said, 2, "more lines than there is room for"):
        return
    (figures, last), again = said
    tap.equal((figures["places"], last), (65535, []), "no more are kept")
    tap.equal(figures["taken"] + figures["dropped"], 70000, "and what was left out is counted")
    tap.equal(again, [0, {"filename": "again.py", "line": 10, "name": "<module>"}],
              "a history that begins anew has room")


LOCKED = JOB + '''
alloc(1000, 0, None)
def another(levels):
    return another(levels - 1) if levels else train(4096)
locked = ctypes.CDLL(None).mlockall(6) == 0  # what is mapped from now on, as it is touched
print(json.dumps(locked))
if locked:
    glake.history(100, stacks=32)
    deep(20)
    another(10)
    for i in range(4):
        glake.history(100, stacks=32)
        another(3 + i)
        print(json.dumps([row["name"] for row in frames()[1:]]))
'''


def locked():
    """A job that locks its memory, as real-time programs do."""
    said = python(LOCKED)
    if said == [False] or isinstance(said, dict) and any(
            text in said.get("said", "") for text in ("no memory", "Cannot allocate memory")):
        tap.skip("stacks in locked memory", "this user may not lock memory, or not as much")
    elif told(said, 5, "stacks in memory that is locked"):
        tap.equal(said[1:], [["step", "train"] + ["another"] * (4 + i) + ["<module>"]
                             for i in range(4)], "those of each history are its own")


FORK = '''
threads = ctypes.CDLL(sys.argv[1])
glake.history(100, stacks=4)
def parent():
    return alloc(3000, 0, None)
kept = parent()
beside = threading.Thread(target=threads.run_on, args=(alloc, free))
beside.start()
codes = []
for i in range(20):
    before = glake.stacks()
    while glake.stacks() == before: time.sleep(0.001)  # paces
    child = os.fork()
    if not child:
        same = glake.stacks() == glake.stacks()
        glake.history(100, stacks=4)
        glake.history(0)
        os._exit(0 if same else 1)
    codes.append(os.waitpid(child, 0)[1])
threads.halt(), beside.join()
print(json.dumps(codes))
'''
NO_GARBAGE = "this Python collects no garbage meanwhile"
WITHIN = '''
def within(do):
    """Calls it where garbage is collected while this thread has its stack taken. Whether it did."""
    me, done = threading.get_ident(), []
    def collected(phase, info):
        if phase == "start" and not done and threading.get_ident() == me:
            before = glake.stacks()["without"]
            alloc(64, 0, None)
            if glake.stacks()["without"] > before:
                done.append(True)
                do()
    gc.callbacks.append(collected)
    for i in range(3000):
        space = {"alloc": alloc}
        exec(compile("def f(n=60):\\n return f(n - 1) if n else alloc(4096, 0, None)\\n", f"{i}.py", "exec"), space)
        gc.set_threshold(1 + i % 40)
        gc.enable()
        space["f"]()
        gc.disable()
        if done:
            break
    gc.callbacks.remove(collected)
    return bool(done)
'''
FORK_WITHIN = WITHIN + '''
child = []
glake.history(1000, stacks=64)
did = within(lambda: child.append(os.fork()))
if child == [0]:
    glake.history(1000, stacks=8)
    os._exit(0)
print(json.dumps(os.waitpid(child[0], 0)[1] if did else None))
'''
HELD = WITHIN + '''
lock, inside, did = threading.Lock(), threading.Event(), []
def hold():
    inside.set()
    lock.acquire()
def work():
    did.append(within(hold))
    inside.set()
glake.history(1000, stacks=64)
lock.acquire()
thread = threading.Thread(target=work)
thread.start()
inside.wait()
glake.history(1000, stacks=8)
one()
print(json.dumps(frames()[0]["name"]))
lock.release()
thread.join()
print(json.dumps(did))
'''
END = '''
threads = ctypes.CDLL(sys.argv[1])
glake.history(100, stacks=4)
for _ in range(3):
    threading.Thread(target=threads.run_on, args=(alloc, free), daemon=True).start()
while glake.stacks()["taken"] <= 10: time.sleep(0.002)  # paces
print("true")
'''
OTHERS = '''
try:
    import _xxsubinterpreters as others
except ImportError:
    import _interpreters as others
glake.history(100, stacks=4)
one()
first = glake.stacks()
number = others.create()
others.run_string(number, """
try:
    import ctypes  # does not load in 3.12
except ImportError:
    ctypes = None
if ctypes:
    alloc = ctypes.CDLL(%r).glake_torch_alloc
    alloc.restype, alloc.argtypes = ctypes.c_void_p, (
        ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    alloc(1000, 0, None)
""" % glake.library.load().path)
one()
second = glake.stacks()
print(json.dumps([frames(), first["taken"], second["taken"], second["without"],
                  refused(glake.history, 100, stacks=4)]))
others.destroy(number)
glake.history(100, stacks=4)
one()
print(json.dumps(frames()[0]["name"]))
'''


def ends():
    said = python(FORK)
    if told(said, 1, "forks beside threads that take stacks"):
        tap.equal(said[0], [0] * 20, "a child takes none, and may begin and end its own")
    said = python(FORK_WITHIN)
    if said == [None]:
        tap.skip("a fork while a stack is taken", NO_GARBAGE)
    else:
        tap.equal(said, [0], "a fork while a stack is taken: its child may begin anew")
    said = python(HELD)
    if told(said, 2, "stacks that end while one that is taken waits for who ends them"):
        tap.equal(said[0], "one", "and begin again")
        if said[1] == [False]:
            tap.skip("they waited for each other", NO_GARBAGE)
    said = python(END)
    tap.equal(said, [True], "Python ends while threads without its lock ask for memory")
    said = python(OTHERS)
    if isinstance(said, dict) and "ModuleNotFoundError" in said.get("said", ""):
        tap.skip("other interpreters", "this Python has no module for them")
    elif told(said, 2, "other interpreters"):
        (rows, first, second, without, refusal), after = said
        tap.equal((rows, first, second), ([], 1, 1), "while there are any, no stacks are taken")
        tap.ok(1 <= without <= 2, "which is counted", without)
        tap.has(refusal, "other interpreters", "nor begun")
        tap.equal(after, "one", "until they have gone")


def main():
    if sys.version_info < (3, 9):
        print("1..0 # SKIP this Python is older than 3.9")
        return
    tap.start()
    with tempfile.TemporaryDirectory(prefix="glake-stacks-") as folder:
        names(folder)
        watched(folder)
    who()
    storms()
    bounds()
    locked()
    ends()
    tap.done()


main()
