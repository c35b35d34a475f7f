# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The Python module: its figures against the real library on the software device, and what it does
to PyTorch and CuPy, which are stood in for by small ones that note what they are told.

    front_glake.py SOURCE PLUGIN HEADER...
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

SOURCE, PLUGIN, *HEADERS = map(os.path.abspath, sys.argv[1:])
INCLUDES = [os.path.dirname(os.path.dirname(header)) for header in HEADERS]

TORCH = '''
import ctypes, json
__version__ = VERSION
calls = []

class Inside:
    def __init__(self, alloc, free):
        self.alloc, self.free = alloc, free
for name in SETTERS:
    setattr(Inside, name, lambda self, address, name=name: calls.append((name, address)))

class Plug:
    def __init__(self, path, alloc, free):
        lib = ctypes.CDLL(path)
        address = lambda name: ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
        self.inside = Inside(address(alloc), address(free))
        calls.append(("plug", alloc, free))
    def allocator(self):
        return self.inside

class Version:
    cuda = CUDA
class Properties:
    total_memory = 140 << 30
class Memory:
    @staticmethod
    def change_current_allocator(plug):
        if CHANGE:
            raise RuntimeError(CHANGE)
        calls.append(("change", isinstance(plug, Plug)))
if PLUGGABLE:
    Memory.CUDAPluggableAllocator = Plug
class Cuda:
    memory = Memory
    MemPool = lambda self, inside, **options: ("pool", inside.alloc, options)
    is_initialized = lambda self: INITIALISED
    current_device = lambda self: 0
    get_device_properties = lambda self, device: Properties
class C:
    _GLIBCXX_USE_CXX11_ABI = True
for name in ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_memorySnapshot",
             "_cuda_record_memory_history", "_cuda_getMemoryFraction", "_set_cudnn_benchmark"):
    setattr(C, name, staticmethod(lambda *_: (_ for _ in ()).throw(RuntimeError("no answer"))))
class UntypedStorage:
    _share_cuda_ = _new_shared_cuda = None
class Backends:
    cudnn = object()
version, cuda, _C, backends = Version, Cuda(), C, Backends
compile = lambda *_: None
'''
SETTERS = ("set_init_fn set_reset_fn set_memory_fraction_fn set_base_alloc_fn "
           "set_record_stream_fn set_begin_allocate_to_pool set_end_allocate_to_pool_fn "
           "set_release_pool").split()
CUPY = '''
class Stream:
    ptr = 0
class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit):
        super().__init__(f"{size} {total} {limit}")
class memory:
    OutOfMemoryError = OutOfMemoryError
class Hook:
    def __init__(self, give, take):
        self.give, self.take = give, take
    def malloc(self, size):
        return self.give(size, 0)
class cuda:
    memory = memory
    PythonFunctionAllocator = Hook
    get_current_stream = lambda: Stream
    current = None
    def set_allocator(function):
        cuda.current = function
'''
# Requests as PyTorch would make them.
START = '''
import ctypes, json, os, sys
import glake
def get(name, result=None, *arguments):
    function = getattr(glake.library.load(), "glake_torch_" + name)
    function.restype, function.argtypes = result, arguments
    return function
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
alloc, free, init = get("alloc", P, N, I, P), get("free", None, P, N, I, P), get("init", None, I)
def refused(call, *arguments, **named):
    try:
        return "no error: %r" % (call(*arguments, **named),)
    except glake.GlakeError as error:
        return str(error)
'''


def fake(folder, **settings):
    """Folders for sys.path with the stand-ins."""
    values = {"VERSION": "2.11.0", "SETTERS": SETTERS, "CUDA": "13.0", "CHANGE": "",
              "PLUGGABLE": True, "INITIALISED": False, **settings}
    code = TORCH
    for name, value in values.items():
        code = re.sub(rf"\b{name}\b", lambda _, value=value: repr(value), code)
    place = Path(folder) / "fake"
    place.mkdir(exist_ok=True)
    (place / "torch").mkdir(exist_ok=True)
    (place / "torch" / "__init__.py").write_text(code, encoding="utf-8")
    (place / "torch" / "_inductor").mkdir(exist_ok=True)
    (place / "torch" / "_inductor" / "__init__.py").write_text("", encoding="utf-8")
    (place / "torch" / "_inductor" / "config.py").write_text(
        "class triton:\n    cudagraph_trees = True\n", encoding="utf-8")
    (place / "cupy.py").write_text(CUPY, encoding="utf-8")
    return str(place)


def python(folder, code, *arguments, env=None, path="", start=START):
    """What a program prints, each line as JSON; a dict with its error if it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
                 XDG_CACHE_HOME=folder, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1",
                 PYTHONPATH=SOURCE + (":" + path if path else ""))
    clean.update(env or {})
    clean = {k: v for k, v in clean.items() if v is not None}
    command = [sys.executable, "-S", *arguments] if arguments else [
        sys.executable, "-S", "-c", start + code]
    run = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=120,
                         check=False, cwd=folder)
    if run.returncode:
        return {"failed": run.returncode, "said": run.stderr}
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return lines[0] if len(lines) == 1 else lines


def structures(folder):
    """Members of the module's structures stand where the headers have them; newer may follow."""
    names = {"Stats": "glake_stats", "DriverStats": "glake_driver_stats", "Block": "glake_block",
             "Error": "glake_error", "Device": "glake_device"}
    inner = {"pool_high": "pool.high", "pool_low": "pool.low"}
    got = python(folder, """
from glake import records
kinds = {n: getattr(records, n) for n in %r}
print(json.dumps({n: {f: getattr(kind, f).offset for f, _ in kind._fields_}
                  for n, kind in kinds.items()}))""" % list(names))
    if not tap.ok("failed" not in got, "structures", got):
        return
    rows = "".join(
        f'printf("%zu\\n", offsetof(struct {names[n]}, {inner.get(field, field)}));'
        for n, fields in got.items() for field in fields)
    source, program = Path(folder) / "places.c", Path(folder) / "places"
    source.write_text("#include <glake/glake.h>\n#include <stddef.h>\n"
                      f"#include <stdio.h>\nint main(void) {{ {rows} }}", encoding="utf-8")
    try:
        subprocess.run(["cc", *(f"-I{path}" for path in INCLUDES), source, "-o", program],
                       check=True, capture_output=True)
    except OSError as error:
        tap.ok(True, f"places # SKIP no compiler: {error}")
        return
    want = subprocess.run([program], capture_output=True, check=True, text=True).stdout
    tap.equal([place for fields in got.values() for place in fields.values()],
              [int(place) for place in want.split()], "have their members where the headers say")


def names(folder):
    """What the package has is what its page shows, and no file would take the place of a function."""
    said = python(folder, """
print(json.dumps([glake.__all__, [name for name in glake.__all__ if not callable(getattr(glake, name))]]))""")
    if not tap.ok(isinstance(said, list), "names", said):
        return
    page = Path(SOURCE, "../man/glake-python.3").read_text(encoding="utf-8")
    shown = set(re.findall(r"^glake\.(\w+)\(", page, re.M))
    tap.equal(sorted(set(said[0]) ^ shown), ["GlakeError", "GuardError", "VllmAllocator"],
              "the page shows each function")
    tap.equal(said[1], [], "which is there")
    files = {path.stem for path in Path(SOURCE, "glake").glob("*.py")}
    tap.equal(sorted(files & set(said[0])), [], "and no file has its name")


def without_torch(folder):
    said = python(folder, '''
print(json.dumps([refused(glake.use), refused(glake.pool), refused(glake.use_cupy)]))
p, q = alloc(3 << 20, 0, None), alloc(1000, 0, None)
free(q, 1000, 0, None)
s = glake.stats()
print(json.dumps([s["0"] if "0" in s else s[0], glake.stats(0) == s[0],
                  glake.stats("cuda:0") == s[0]]))
print(json.dumps(glake.memory_stats()))
free(p, 1000, 0, None)
print(json.dumps([glake.trim(), glake.trim(0), glake.stats(0)["reserved"]]))
print(json.dumps([glake.budget(), glake.budget(1 << 30), glake.budget(device=0),
                  refused(glake.budget, 0), refused(glake.stats, 5), refused(glake.budget, 1, 5),
                  glake.last_error()["class"], glake.budget("1.5 GB"), glake.budget("2G", 0),
                  refused(glake.budget, "much")]))
print(json.dumps([glake.budget("50%"), glake.budget(0.25), glake.budget("1.0"), glake.budget(3e9),
                  *(refused(glake.budget, size) for size in ("101%", 0.0, 1.5, "0%", "1.2", "%", "."))]))
print(json.dumps(refused(glake.snapshot)))
''')
    if not tap.ok(isinstance(said, list), "without PyTorch and CuPy", said):
        return
    refusals, (stats, same, named), names, trimmed, budgets, parts, snapshot = said
    tap.has(refusals[0], "PyTorch is not installed", "use() says what is missing")
    tap.has(refusals[1], "PyTorch is not installed", "so does pool()")
    tap.has(refusals[2], "CuPy is not installed", "and use_cupy()")
    tap.equal([stats["live"], stats["live_blocks"], stats["allocs"], stats["frees"]],
              [3 << 20, 1, 2, 1], "figures of a GPU")
    tap.ok(same and named, "by its number and by PyTorch's name")
    tap.ok(stats["driver_calls"]["create"] > 0 and stats["rungs"]["limbo"] == 0, "calls and rungs")
    tap.equal([names["allocation.all.current"], names["allocated_bytes.all.current"],
               names["allocation.all.freed"], names["num_ooms"]], [1, 3 << 20, 1, 0],
              "under the names of PyTorch")
    tap.ok(names["allocated_bytes.all.peak"] >= 3 << 20, "with peaks")
    missing = {f"{stat}.{pool}.{row}" for stat in (
        "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes "
        "inactive_split_bytes requested_bytes").split() for pool in ("all", "small_pool", "large_pool")
        for row in ("current", "peak", "allocated", "freed")} - set(names)
    tap.equal(sorted(missing), [], "all of them")
    tap.ok(trimmed[0] > 0 and trimmed[1:] == [0, 0], "trim gives everything back")
    tap.equal(budgets[:3], [None, 1 << 30, 1 << 30], "the budget, none, set, kept")
    for text in budgets[3:6]:
        tap.ok("(INVAL)" in text, "a wrong figure or GPU is refused with the reason", text)
    tap.equal(budgets[6], "INVAL", "and recorded")
    tap.equal(budgets[7:9], [3 << 29, 2 << 30], "sizes as people write them")
    tap.has(budgets[9], "'much' is not a size; right is a number of bytes, K, M, G or T",
            "and what is none")
    whole = 140 << 30
    tap.equal(parts[:4], [whole // 2, whole // 4, whole, 3000000000], "parts of a GPU")
    tap.ok(all("above 0% to 100%" in text for text in parts[4:]), "and what is none", parts[4:])
    tap.has(snapshot, "glake.history()", "a snapshot says what it needs")


def beyond(folder):
    """Contents go to the host and come back; no kernel runs here, so the program writes itself."""
    said = python(folder, '''
size = 3 << 20
p, small = alloc(size, 0, None), alloc(1000, 0, None)
ctypes.memset(p, 7, size)
glake.spill(p)
away = glake.stats(0)
twice = refused(glake.spill, p)
glake.fetch(p)
here = glake.stats(0)
print(json.dumps([away["away"], away["away_blocks"], here["away"], here["fetches"], twice]))
gone = glake.suspend()[0]
print(json.dumps([gone, alloc(500, 0, None), glake.stats(0)["away"]]))
back = glake.resume(0)
print(json.dumps([back["moved"], ctypes.string_at(p, size) == bytes([7]) * size]))
gone = glake.suspend(in_place=True)[0]
held = glake.stats(0)["reserved"]
left = glake.resume(0, lazy=True)["stayed"]
same = ctypes.string_at(p, size) == bytes([7]) * size
print(json.dumps([gone["moved"], held, left, same, glake.quiet(0)["returned"]]))
print(json.dumps([refused(glake.resume, 0), refused(glake.spill, small),
                  refused(glake.spill, "tensor")]))
pinned = ctypes.c_void_p()
glake.library.call("glake_host_alloc", 0, ctypes.c_size_t(99), ctypes.c_uint32(0), ctypes.byref(pinned))
glake.pinned_use(pinned.value + 50, 0)
print(json.dumps([glake.stats(0)["host_pool_live"], refused(glake.pinned_use, p),
                  refused(glake.use_pinned)]))
''')
    if not tap.ok(isinstance(said, list), "beyond the GPU", said):
        return
    moved, (gone, none, away), back, lazy, refusals_, (live, unpinned, unused) = said
    tap.equal(moved[:4], [3 << 20, 1, 0, 1], "a block goes and comes")
    tap.has(moved[4], "is away", "once")
    tap.equal([gone["moved"], gone["moved_blocks"], gone["stayed"], none, away],
              [3 << 20, 1, 0, None, 3 << 20], "a GPU is suspended")
    tap.ok(gone["released"] >= 2 << 20, "and its memory given back", gone)
    tap.equal(back, [3 << 20, True], "and resumed")
    all_ = (3 << 20) + 1000
    tap.equal(lazy, [all_, 0, all_, True, all_], "in place, and lazily")
    for text, want in zip(refusals_, ("not suspended", "too small", "is no tensor")):
        tap.has(text, want, f"refused: {want}")
    tap.equal(live, 99, "pinned memory of the host is counted")
    tap.has(unpinned, "no live block", "refused: memory of the GPU")
    tap.has(unused, "PyTorch is not installed", "refused: without PyTorch")


def placed(folder):
    """More than the budget: the rest lies on the host, and the program does not notice."""
    said = python(folder, '''
glake.budget(8 << 20)
blocks = [alloc(6 << 20, 0, None) for _ in range(3)]
print(json.dumps([all(blocks)]))
stats = glake.stats(0)
print(json.dumps([stats[name] for name in (
    "placed", "placed_blocks", "host_held", "peak_host_held", "live")] + [stats["rungs"]]))
glake.budget(16 << 20)
glake.fetch(blocks[1])
after = glake.stats(0)
print(json.dumps([after["placed_blocks"], after["returned"]]))
glake.budget(1 << 30)
print(json.dumps([glake.quiet(), glake.quiet(0), glake.stats(0)["placed"]]))
glake.advise(blocks[0], "cold")
glake.advise(blocks[1], "pinned")
glake.budget(18 << 20)
alloc(6 << 20, 0, None)
print(json.dumps([glake.stats(0)["victims"], refused(glake.spill, blocks[1]),
                  refused(glake.advise, blocks[1], "warm")]))
''', env={"GLAKE_TIER_PLACE": "host", "GLAKE_TIER_HOST": "64M"})
    if not tap.ok(isinstance(said, list), "more than there is memory for", said):
        return
    (served,), figures, fetched, (quiet, again, left), (victims, pinned, warm) = said
    tap.ok(served, "is had")
    tap.equal(figures[:5], [12 << 20, 2, 12 << 20, 12 << 20, 18 << 20], "of the host, as told")
    tap.equal(figures[5]["spill_host"], 2, "and counted")
    tap.equal(fetched, [1, 6 << 20], "one comes to the GPU when there is room for it")
    tap.equal(quiet["0"], {"returned": 6 << 20, "returned_blocks": 1, "left": 0, "left_blocks": 0},
              "the other one at a quiet point")
    tap.equal([again["returned"], left], [0, 0], "and nothing is on the host then")
    tap.equal(victims, 1, "a cold block makes room for another one")
    tap.has(pinned, "pinned", "one that is pinned does not go")
    tap.has(warm, "is no advice", "what is no advice is refused")


def libraries(folder):
    code = ("import json, glake\ntry:\n    print(json.dumps(glake.stats()))\n"
            "except glake.GlakeError as e:\n    print(json.dumps(str(e)))\n")
    said = python(folder, code, env={"GLAKE_LIBRARY_PATH": "/nowhere:/else"}, start="")
    tap.has(said, "/nowhere/libglake-torch.so.0", "a wrong path: where it was looked for")
    broken = Path(folder) / "broken"
    broken.mkdir()
    (broken / "libglake-torch.so.0").write_text("no library", encoding="utf-8")
    said = python(folder, code, env={"GLAKE_LIBRARY_PATH": str(broken)}, start="")
    tap.has(said, "cannot be loaded", "a file that is no library")
    said = python(folder, code, env={"GLAKE_POOL_BUDGET": "much"}, start="")
    tap.has(said, "pool.budget", "a wrong setting is named")
    said = python(folder, code, env={"GLAKE_DRIVER_BACKEND": None}, start="")
    tap.ok("CUDA does not work here" in said or isinstance(said, dict) and "0" in said,
           "the software device is not taken by chance", said)
    link = Path(folder) / "tree" / "lib" / "python"
    (link / "glake").mkdir(parents=True)
    for path in Path(SOURCE, "glake").glob("*.py"):
        (link / "glake" / path.name).symlink_to(path)
    said = python(folder, "import json\nfrom glake import library\nprint(json.dumps(library.HERE))",
                  env={"PYTHONPATH": str(link)}, start="")
    tap.equal(said, os.path.realpath(os.path.join(SOURCE, "glake")), "links are followed")


def on_torch(folder):
    path = fake(folder)
    said = python(folder, '''
import torch
glake.use(settings={"pool.budget": "64MiB"}, events=100)
glake.use()
print(json.dumps(torch.calls))
addresses = {name: ctypes.cast(getattr(glake.library.load(), "glake_torch_" + name), P).value for name in (
    "init reset memory_fraction base_alloc record_stream begin_pool end_pool release_pool").split()}
print(json.dumps(list(addresses.values())))
print(json.dumps([glake.library.load().glake_torch_opened(), glake.stats(), glake.memory_stats(),
                  glake.trim()]))
init(1)
p = [alloc((i + 1) * 300000, 0, None) for i in range(9)]
for i in (0, 3, 4):
    free(p[i], 0, 0, None)
print(json.dumps([glake.budget(), torch._C._cuda_getMemoryFraction(0)]))
print(json.dumps(torch._C._cuda_memoryStats(0)))
torch._C._cuda_resetPeakMemoryStats(0)
picture = glake.snapshot("picture")
import pickle
print(json.dumps(pickle.load(open("picture", "rb")) == picture))
print(json.dumps(picture))
print(json.dumps(torch._C._cuda_memorySnapshot(None)["segments"] == picture["segments"]))
torch._C._cuda_record_memory_history(None, None, "all", 10, False)
print(json.dumps(refused(glake.snapshot)))
torch._C._cuda_record_memory_history("all", "all", "all", sys.maxsize, False)
print(json.dumps([len(glake.snapshot()["segments"]), alloc(1000, 0, None) and glake.stacks()["taken"]]))
torch.compile(1)
import torch._inductor.config
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch._C._set_cudnn_benchmark(True)
    torch._C._set_cudnn_benchmark(False)
print(json.dumps([torch.UntypedStorage._share_cuda_.__module__, refused(glake.pool),
                  torch._inductor.config.triton.cudagraph_trees, len(seen)]))
''', path=path)
    if not tap.ok(isinstance(said, list), "under PyTorch", said):
        return
    (calls, addresses, early, budget, stats, loaded, picture, same, forgotten, again, rest) = said
    tap.equal([row[0] for row in calls], ["plug", *SETTERS, "change"], "every hook is set, once")
    tap.equal([row[1] for row in calls[1:-1]], addresses, "to the function that it is for")
    tap.equal(early, [0, {}, {}, 0], "figures do not open the GPU before PyTorch does")
    tap.equal(budget[0], 64 << 20, "settings reach the library")
    tap.ok(0 < budget[1] < 0.001, "and PyTorch, as a fraction")
    tap.equal([stats["allocation"]["all"]["current"], stats["allocation"]["all"]["freed"]], [6, 3],
              "PyTorch's statistics are answered")
    tap.ok(loaded and same, "snapshots, from a file and through PyTorch")
    live = [b for s in picture["segments"] for b in s["blocks"] if b["state"] != "inactive"]
    tap.equal(sorted(b["requested_size"] for b in live),
              [300000 * i for i in (2, 3, 6, 7, 8, 9)], "a snapshot has the live blocks")
    wrong = []
    for segment in picture["segments"]:
        end = segment["address"]
        for block in segment["blocks"]:
            wrong += [block] if block["address"] != end else []
            end += block["size"]
        wrong += [segment] if end != segment["address"] + segment["total_size"] else []
        wrong += [segment] if segment["total_size"] % (2 << 20) else []
        wrong += [segment] if segment["allocated_size"] != sum(
            b["size"] for b in segment["blocks"] if b["state"] != "inactive") else []
    tap.equal(wrong, [], "whose segments are filled by their blocks without a gap")
    traces = picture["device_traces"][0]
    tap.equal([row["action"] for row in traces], ["alloc"] * 9 + [
        "free_requested", "free_completed"] * 3, "and what happened")
    tap.has(forgotten, "nothing was remembered", "PyTorch ends the history")
    tap.equal(again, [0, 1], "and begins a new one, with stacks")
    tap.equal(rest[0], "glake.share", "tensors for other processes are glake's too")
    tap.has(rest[1], "glake.use()", "no pool under the plug-in")
    tap.equal(rest[2:], [False, 1], "graph trees are off, a benchmark is warned of, once")


def refusals(folder):
    for what, part, settings in (
            ("CUDA has begun", "already initialised", {"INITIALISED": True}),
            ("an allocator in use", "something has used it", {"CHANGE": "Can't swap"}),
            ("PyTorch for another GPU", "without CUDA", {"CUDA": None}),
            ("PyTorch without plug-ins", "too old", {"VERSION": "1.13", "PLUGGABLE": False}),
            ("PyTorch without a hook", "set_record_stream_fn",
             {"SETTERS": [s for s in SETTERS if s != "set_record_stream_fn"]})):
        said = python(folder, '''
import torch
print(json.dumps([refused(glake.use), [c[0] for c in torch.calls if c[0] == "change"]]))
''', path=fake(folder, **settings))
        tap.ok(isinstance(said, list) and part in said[0] and not said[1],
               f"{what}: refused, and said why", said)
    said = python(folder, "print(json.dumps(glake.pool(use_on_oom=True)[2]))", path=fake(folder))
    tap.equal(said, {"use_on_oom": True}, "a pool under PyTorch's allocator")
    managed(folder)


def managed(folder):
    """Its segments are managed memory, which is moved and said to be somewhere."""
    said = python(folder, '''
import contextlib, torch
torch.cuda.use_mem_pool = lambda pool: contextlib.nullcontext()
with glake.managed(use_on_oom=True) as pool:
    make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(pool[1])
    p = make(20 << 20, 0, None)
row = glake.stats(0)
print(json.dumps([pool[2], row["managed"], row["managed_chunks"]]))
glake.prefetch(p, "cpu")
glake.prefetch(p)
glake.prefer(p, "cuda:0")
glake.prefer(p, None)
print(json.dumps(glake.stats(0)["driver_calls"]["managed_prefetch"]))
print(json.dumps([refused(glake.prefetch, p, "disk"), refused(glake.prefetch, p, "cuda:7")]))
print(json.dumps([alloc(4 << 20, 0, None) > 0, glake.stats(0)["managed"] >> 20]))
''', path=fake(folder), env={"GLAKE_POOL_MANAGED": "yes"})
    if not tap.ok(isinstance(said, list) and len(said) == 4, "managed memory", said):
        return
    tap.equal(said[0], [{"use_on_oom": True}, 20 << 20, 1], "of a pool that is managed")
    tap.equal(said[1], 2, "two prefetches")
    tap.has(said[2][0], "is no place", "what is no place is refused")
    tap.has(said[2][1], "no place", "and what is none here")
    tap.equal(said[3], [True, 24], "without a pool, too, where the configuration has it so")


def on_cupy(folder):
    said = python(folder, '''
import cupy
glake.use_cupy()
p = cupy.cuda.current(5 << 20)
print(json.dumps([p % 512, glake.stats(0)["live"], cupy.cuda.current(0)]))
glake.budget(16 << 20)
try:
    cupy.cuda.current(1 << 30)
except cupy.cuda.memory.OutOfMemoryError as error:
    print(json.dumps(str(error)))
cupy.cuda.current.__self__.take(p, 0)
print(json.dumps(glake.stats(0)["live"]))
''', path=fake(folder))
    if tap.ok(isinstance(said, list), "under CuPy", said):
        tap.equal(said[0], [0, 5 << 20, 0], "an array is glake's, an empty one nobody's")
        tap.has(said[1], str(1 << 30), "out of memory is CuPy's own error")
        tap.equal(said[2], 0, "freed")


def devices(folder):
    """What is no GPU is not taken for one, nor for a number of bytes what is none."""
    said = python(folder, '''
class Device:
    def __init__(self, **words):
        self.__dict__.update(words)
print(json.dumps([glake.library.index(device) for device in (
    None, "cuda", 1, "cuda:1", Device(type="cuda", index=1), Device(type="cuda", index=None), Device(id=1))]))
print(json.dumps([refused(glake.stats, device) for device in (
    "cpu", "nothing", "1", "cuda:", "cuda:x", "cuda:-1", 1.5, True, -1, 1 << 32, Device(type="cpu", index=None), [1])]))
print(json.dumps([*(refused(glake.trim, 0, keep) for keep in (-1, 1.5, 1 << 64)), refused(glake.budget, True), refused(glake.budget, -5)]))
''', env={"GLAKE_SOFT_GPUS": "2"})
    if not tap.ok(isinstance(said, list) and len(said) == 3, "devices and sizes", said):
        return
    tap.equal(said[0], [0, 0, 1, 1, 1, 0, 1], "a number, a name or an object")
    tap.equal([text for text in said[1] if "right is a number, 'cuda:1'" not in str(text)], [], "what is no GPU is refused, and what is one told")
    tap.equal([text for text in said[2] if "that is not below 0" not in str(text)], [], "so is what is no number of bytes")


def programs(folder):
    """python3 -m glake."""
    path = fake(folder)
    (Path(folder) / "program.py").write_text(
        "import json, sys, glake, torch, beside\nprint(json.dumps([__name__, sys.argv[1:], "
        "beside.x, [c[0] for c in torch.calls][-1], glake.library.plugged]))\n", encoding="utf-8")
    (Path(folder) / "beside.py").write_text("x = 7\n", encoding="utf-8")
    want = ["__main__", ["-x", "1"], 7, "change", True]
    said = python(folder, "", "-m", "glake", "program.py", "-x", "1", path=path)
    tap.equal(said, want, "a program as it is")
    said = python(folder, "", "-m", "glake", "-m", "program", "-x", "1", path=f"{path}:{folder}")
    tap.equal(said, want, "a module as it is")
    said = python(folder, "", "-m", "glake", path=path)
    tap.ok(isinstance(said, dict) and "usage" in said["said"], "neither", said)


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        for part in (structures, names, without_torch, beyond, placed, libraries, on_torch, refusals, on_cupy,
                     devices, programs):
            part(folder)
    tap.done()


if __name__ == "__main__":
    main()
