# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The Python module's doors under the real packages, on the software device and without a driver:
what their base classes want of ours, and memory asked for and freed through them as far as they go
without one. What needs a GPU is in t/gpu/doors.py.

    python.py SOURCE PLUGIN [ENVIRONMENT]

The packages are those of a Python environment, or of this interpreter; each part whose package is
not there skips.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable

START = '''
import ctypes, json
import glake
def live(device=0):
    return glake.stats(device)["live"]
def stream(device=0):
    ptr = ctypes.c_void_p()
    glake.library.call("glake_stream_new", device, ctypes.byref(ptr))
    return ptr.value
class Stream:
    """What speaks CUDA's protocol for streams."""
    def __init__(self, handle):
        self.handle = handle
    def __cuda_stream__(self):
        return 0, self.handle
def order(ptr):
    """The stream that a block was asked for on."""
    return glake.library.fetch("glake_query", glake.records.Block(), ctypes.c_void_p(ptr)).stream
def raised(call, *arguments, **named):
    try:
        return "nothing: %r" % (call(*arguments, **named),)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
facts = {}
'''
END = "\nprint('FACTS ' + json.dumps(facts))\n"


def python(code, *options, program=PACKAGES, **more):
    """What a program has found; a dict with its error if it fails."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON", "NUMBA_"))}
    env.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
               GLAKE_SOFT_GPUS="2", GLAKE_POOL_BUDGET="64MiB", PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        env.update(WARP_CACHE_PATH=folder, HOME=folder, CUDA_VISIBLE_DEVICES="", **more)
        run = subprocess.run([program, *options, "-c", START + code + END], env=env, cwd=folder,
                             capture_output=True, text=True, timeout=120, check=False)
    found = [line[6:] for line in run.stdout.splitlines() if line.startswith("FACTS ")]
    if run.returncode or not found:
        return {"failed": run.returncode, "said": run.stderr}
    return json.loads(found[0])


def version(name):
    """The version of a package, or None."""
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    run = subprocess.run([PACKAGES, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def missing():
    """Without any package each door says in one sentence what it lacks."""
    found = python('''
for name in ("use_cupy", "use_rmm", "rmm_resource", "use_warp", "memory_resource", "use_numba"):
    facts[name] = raised(getattr(glake, name))
facts["numba"] = raised(lambda: glake._numba_memory_manager)
facts["none"] = raised(lambda: glake.use_nothing)
''', "-S", program=sys.executable)
    names = {"use_cupy": "CuPy", "use_rmm": "RMM", "rmm_resource": "RMM", "use_warp": "Warp",
             "memory_resource": "cuda.core", "use_numba": "numba with CUDA",
             "numba": "numba with CUDA"}
    for door, title in names.items():
        tap.has(found.get(door, str(found)), f"GlakeError: {title} is not installed", door)
    tap.has(found.get("none", ""), "AttributeError: module 'glake' has no attribute 'use_nothing'",
            "what is no door")


def guarded():
    """An overrun is raised with the line that made the block, once."""
    found = python('''
glake.history(1000, stacks=8)
glake.guard("canary")
alloc = glake.library.load().glake_torch_alloc
alloc.restype, alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
def made():
    return alloc(1000, 0, None)
block = made()
facts["none"] = glake.check()["blocks"]
ctypes.memset(block + 1002, 1, 3)
facts["before"] = len(glake.findings())
try:
    glake.check()
except glake.GuardError as error:
    facts["text"], facts["found"] = str(error), error.findings
facts["block"] = block
facts["again"] = glake.check()["findings"]
facts["all"] = len(glake.findings())
facts["whose"] = glake.whose(block + 1003)
facts["foreign"] = glake.whose(4096)["what"]
facts["mode"] = raised(glake.guard, "loud")
''', program=sys.executable)
    if not tap.ok("found" in found, "an overrun is raised", found):
        return
    tap.equal((found["none"], found["again"], found["all"]), (1, 1, 1), "a block is guarded, and said once")
    tap.equal(found["before"], 1, "also where findings() had it before")
    one = found["found"][0]
    tap.equal((one["kind"], one["base"], one["size"], one["offset"], one["bytes"], one["device"]),
              ("overrun", found["block"], 1000, 1002, 3, 0), "with all that is known")
    tap.equal(one["frames"][0]["name"], "made", "and who made the block")
    tap.has(found["text"], f"the block of 1000 bytes at 0x{found['block']:x}, made at <string>:", "in words")
    tap.equal((found["whose"]["what"], found["whose"]["offset"], found["whose"]["frames"][0]["name"]),
              ("behind", 1003, "made"), "whose an address is")
    tap.equal(found["foreign"], "foreign", "or nobody's")
    tap.has(found["mode"], "GlakeError", "a mode that there is not")


def older():
    """A library of an older glake."""
    found = python('''
class Old:
    """The library, but for what is new in it."""
    def __init__(self, lib):
        self.lib = lib
    def __getattr__(self, name):
        if name.startswith("glake_ort"):
            raise AttributeError(name)
        return getattr(self.lib, name)
glake.library._lib = Old(glake.library.load())
facts["old"] = raised(glake.ort_options)
''', program=sys.executable)
    tap.has(found.get("old", str(found)),
            "is older than this module: it has no glake_ort_functions", "an older library is named")


def onnxruntime():
    """Its functions, called as its CUDA provider calls them."""
    found = python('''
def functions(options):
    make = lambda name, result, *kinds: ctypes.CFUNCTYPE(result, *kinds)(
        int(options["gpu_external_" + name]))
    return (make("alloc", ctypes.c_void_p, ctypes.c_size_t), make("free", None, ctypes.c_void_p),
            make("empty_cache", None))
zero, own = glake.ort_options(0), stream(1)
one = glake.ort_options("cuda:1", own)
(alloc, free, empty), (alloc1, free1, empty1) = functions(zero), functions(one)
facts["zero"], facts["one"], facts["own"] = zero, one, own
p, q = alloc(3 << 20), alloc1(1 << 20)
facts["live"] = [live(0), live(1)]
facts["order"] = [order(q) == own, order(p) != own]
facts["large"] = alloc(1 << 40), alloc1(1 << 40), alloc(0)
free(q)
free1(p)
free(None)
free(12345)
facts["freed"] = [live(0), live(1)]
held = [glake.stats(i)["reserved"] for i in (0, 1)]
empty()
facts["emptied"] = [held, [glake.stats(i)["reserved"] for i in (0, 1)]]
empty1()
facts["both"] = [glake.stats(i)["reserved"] for i in (0, 1)]
facts["again"] = glake.ort_options(1, Stream(own)) == one
facts["other"] = raised(glake.ort_options, 1, stream(1))
facts["none"] = raised(glake.ort_options, 1)
facts["absent"] = raised(glake.ort_options, 2)
''', program=sys.executable)
    if not tap.ok("failed" not in found, "ONNX Runtime", found):
        return
    tap.equal(sorted(found["zero"]), ["device_id", "gpu_external_alloc", "gpu_external_empty_cache",
                                      "gpu_external_free"], "options of ONNX Runtime")
    tap.ok(all(text.isdigit() for text in found["zero"].values()), "in decimals", found["zero"])
    tap.equal([found["one"]["device_id"], found["one"]["has_user_compute_stream"],
               found["one"]["user_compute_stream"]], ["1", "1", str(found["own"])],
              "with a stream for its sessions")
    tap.equal(found["live"], [3 << 20, 1 << 20], "each GPU has functions of its own")
    tap.equal(found["order"], [True, True], "in the order of the stream, where one was given")
    tap.equal(found["large"], [None, None, None], "no memory is NULL")
    tap.equal(found["freed"], [0, 0], "any of them frees a block of any GPU, and nothing else")
    before, after = found["emptied"]
    tap.ok(all(before) and not after[0] and after[1], "the cache of one GPU is emptied", before,
           after)
    tap.equal(found["both"], [0, 0], "and of the other")
    tap.ok(found["again"], "the same is given twice")
    tap.has(found["other"], "in the order of another stream", "another stream is refused")
    tap.has(found["none"], "in the order of another stream", "so is none, after one")
    tap.has(found["absent"], "no GPU 2", "a GPU that is not there")


def on_rmm():
    found = python('''
import rmm
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream as RmmStream
glake.use_rmm()
mr = rmm.mr.get_per_device_resource(1)
facts["kinds"] = [type(rmm.mr.get_per_device_resource(i)).__name__ for i in (0, 1)]
p = mr.allocate(1 << 20, DEFAULT_STREAM)
facts["live"] = [live(0), live(1)]
mr.deallocate(p, 1 << 20, DEFAULT_STREAM)
base = glake.rmm_resource(0)
counted = rmm.mr.StatisticsResourceAdaptor(base)
top = rmm.mr.LimitingResourceAdaptor(counted, 24 << 20)
handles = [stream() for _ in range(8)]
streams = [RmmStream(Stream(h)) for h in handles]
blocks = [top.allocate((i + 1) << 19, s) for i, s in enumerate(streams)]
facts["order"] = [order(b) for b in blocks] == handles
facts["counted"] = [counted.allocation_counts.current_bytes, live(), 36 << 19]
for i, block in enumerate(blocks):
    top.deallocate(block, (i + 1) << 19, streams[(i + 1) % 8])
facts["peak"] = [counted.allocation_counts.peak_count, live(), glake.stats(0)["live_blocks"]]
facts["empty"] = base.allocate(0, DEFAULT_STREAM)
facts["large"] = raised(base.allocate, 1 << 40, DEFAULT_STREAM)
facts["limit"] = raised(top.allocate, 25 << 20, DEFAULT_STREAM)
facts["ended"] = {raised(glake.stream_end, one) for one in streams} == {"nothing: None"}
''')
    if not tap.ok("failed" not in found, "RMM", found):
        return
    tap.equal(found["kinds"], ["CallbackMemoryResource"] * 2, "use_rmm() sets each GPU's resource")
    tap.equal(found["live"], [0, 1 << 20], "which is of that GPU")
    tap.ok(found["order"], "blocks in the order of eight streams")
    counted, ours, wanted = found["counted"]
    tap.equal([counted, ours], [wanted, wanted], "RMM's statistics and glake's agree")
    tap.equal(found["peak"], [8, 0, 0], "freed in the order of other streams")
    tap.equal(found["empty"], 0, "0 bytes are nothing")
    tap.has(found["large"], "MemoryError", "more than there is")
    tap.has(found["large"], "NOMEM_DEVICE", "and why")
    tap.has(found["limit"], "MemoryError", "RMM's limit is met")
    tap.ok(found["ended"], "the ends of streams are told")


def on_numba():
    found = python('''
import types
from numba.cuda.cudadrv import driver
driver._logger = driver.make_logger()  # else with the real driver
driver._ensure_memory_manager()
kind = driver._memory_manager
facts["kind"] = [kind is glake._numba_memory_manager, sorted(kind.__abstractmethods__),
                 issubclass(kind, driver.HostOnlyCUDAMemoryManager)]
context = types.SimpleNamespace(device=types.SimpleNamespace(id=1))
manager = kind(context=context)
facts["version"] = manager.interface_version
manager.initialize()
a, b = manager.memalloc(3 << 20), manager.memalloc(1000)
facts["memory"] = [type(a).__name__, a.size, int(a.device_pointer) % 512]
facts["live"] = [live(0), live(1)]
facts["info"] = list(manager.get_memory_info())
facts["ipc"] = raised(manager.get_ipc_handle, a)
with manager.defer_cleanup():
    a.free()
    facts["deferred"] = live(1)
manager.deallocations.clear()
facts["freed"] = live(1)
a = manager.memalloc(40 << 20)
del a
facts["pending"] = live(1)
a = manager.memalloc(40 << 20)  # fits when what is pending was freed
facts["retried"] = live(1)
facts["large"] = raised(manager.memalloc, 1 << 40)
manager.reset()
facts["reset"] = live(1)
del a, b
manager.deallocations.clear()
facts["after"] = [live(1), glake.stats(1)["live_blocks"]]
''', NUMBA_CUDA_MEMORY_MANAGER="glake")
    if not tap.ok("failed" not in found, "numba", found):
        return
    tap.equal(found["kind"], [True, [], True], "the environment names glake: the class is whole")
    tap.equal(found["version"], 1, "of the interface that numba knows")
    tap.equal(found["memory"], ["MemoryPointer", 3 << 20, 0], "memory for numba")
    tap.equal(found["live"], [0, (3 << 20) + 1000], "of the context's GPU")
    free, total = found["info"]
    tap.ok(0 < free < total, "figures of the GPU", found["info"])
    tap.has(found["ipc"], "NotImplementedError: memory of glake has no CUDA IPC handle",
            "no handle")
    tap.equal(found["deferred"], (3 << 20) + 1000, "numba defers frees")
    tap.equal(found["freed"], 1000, "and carries them out")
    tap.equal(found["pending"], (40 << 20) + 1000, "one that is not due yet")
    tap.equal(found["retried"], (40 << 20) + 1000, "is, where memory is short")
    tap.has(found["large"], "CUDA_ERROR_OUT_OF_MEMORY", "numba's own error")
    tap.has(found["large"], "NOMEM_DEVICE", "with glake's sentence")
    tap.equal(found["reset"], 0, "a reset frees all")
    tap.equal(found["after"], [0, 0], "and nothing twice")
    said = python('''
from numba.cuda.cudadrv import driver
driver._memory_manager = object
facts["late"] = raised(glake.use_numba)
driver._memory_manager = None
glake.use_numba()
glake.use_numba()
facts["set"] = driver._memory_manager.__name__
''')
    tap.has(said.get("late", str(said)), "numba has an allocator already", "too late")
    tap.equal(said.get("set"), "GlakeNumbaManager", "use_numba(), twice")


def on_cuda_core():
    found = python('''
import inspect
import cuda.core as core
mr = glake.memory_resource("cuda:1")
facts["kind"] = [isinstance(mr, core.MemoryResource), mr.device_id, mr.is_device_accessible,
                 mr.is_host_accessible, mr.is_managed]
shape = lambda call: {n: p.kind.name for n, p in inspect.signature(call).parameters.items()}
facts["shapes"] = [shape(getattr(type(mr), n)) == shape(getattr(core.DeviceMemoryResource, n))
                   for n in ("allocate", "deallocate")]
class Host(type(mr)):
    """cuda.core asks the driver for the default stream of what a GPU can use, and only then."""
    is_device_accessible = False
own = stream(1)
buffer = Host(1).allocate(3 << 20)
facts["buffer"] = [buffer.size, int(buffer.handle) % 512, buffer.device_id, live(0), live(1)]
buffer.close()
facts["closed"] = live(1)
host = Host(1)
empty = host.allocate(0)
facts["empty"] = [empty.size, glake.stats(1)["live_blocks"]]
del empty
facts["left"] = glake.stats(1)["live_blocks"]
facts["large"] = raised(host.allocate, 1 << 40)
buffer = host.allocate(1000)
mr.deallocate(buffer.handle, 1000, stream=Stream(own))
facts["stream"] = live(1)
import weakref
class Ends(Stream):
    pass
one = Ends(stream(1))
seen, handle = weakref.ref(one), one.handle
buffer = host.allocate(1000)
mr.deallocate(buffer.handle, 1000, stream=one)
del one
facts["kept"] = seen() is not None
glake.stream_end(handle, 1)
facts["let"] = seen() is None
facts["no stream"] = raised(glake.stream_end, 0, 7)
''')
    if not tap.ok("failed" not in found, "cuda.core", found):
        return
    tap.equal(found["kind"], [True, 1, True, False, False], "a MemoryResource of a GPU")
    tap.equal(found["shapes"], [True, True], "its functions take what cuda.core's own take")
    tap.equal(found["buffer"], [3 << 20, 0, 1, 0, 3 << 20], "a Buffer is glake's")
    tap.equal(found["closed"], 0, "and freed when it is closed")
    tap.equal(found["empty"], [0, 1], "an empty one has an address")
    tap.equal(found["left"], 0, "and ends with its object")
    tap.has(found["large"], "MemoryError: glake has no 1099511627776 bytes for GPU 1", "no memory")
    tap.equal(found["stream"], 0, "freed in the order of a stream")
    tap.ok(found["kept"], "which stays as long as the library may ask about it")
    tap.ok(found["let"], "and no longer than to its end")
    tap.has(found["no stream"], "INVAL", "a GPU that is not there")


def on_warp():
    found = python('''
import types
import warp
from glake import doors
from warp._src.context import Allocator, _validate_allocator
facts["none"] = raised(glake.use_warp)
own, other = stream(1), stream(1)
device = types.SimpleNamespace(ordinal=1, stream=types.SimpleNamespace(cuda_stream=own))
one = doors._Warp(device)
facts["kind"] = [isinstance(one, Allocator), raised(_validate_allocator, one)]
p = one.allocate(3 << 20)
facts["order"] = [order(p) == own, live(0), live(1)]
device.stream.cuda_stream = other
one.deallocate(p, 3 << 20)
facts["freed"] = live(1)
facts["large"] = raised(one.allocate, 1 << 40)
''')
    if not tap.ok("failed" not in found, "Warp", found):
        return
    tap.has(found["none"], "GlakeError: Warp sees no GPU", "without a GPU")
    tap.equal(found["kind"], [True, "nothing: None"], "what Warp takes for an allocator")
    tap.equal(found["order"], [True, 0, 3 << 20], "memory in the order of Warp's current stream")
    tap.equal(found["freed"], 0, "freed behind that of the time")
    tap.has(found["large"], "MemoryError: glake has no", "no memory")


def on_cupy():
    found = python('''
import cupy
glake.use_cupy()
facts["kind"] = type(cupy.cuda.get_allocator().__self__).__name__
''')
    if not tap.ok("failed" not in found, "CuPy", found):
        return
    tap.equal(found["kind"], "PythonFunctionAllocator", "use_cupy() sets CuPy's allocator")


def main():
    tap.start()
    missing()
    guarded()
    older()
    onnxruntime()
    for package, part in (("rmm-cu13", on_rmm), ("numba-cuda", on_numba),
                          ("cuda-core", on_cuda_core), ("warp-lang", on_warp),
                          ("cupy-cuda13x", on_cupy)):
        found = version(package)
        if found:
            tap.note(f"{package} {found}")
            part()
        else:
            tap.skip(part.__name__, f"no {package} here: see t/doors/meson.build")
    tap.done()


main()
