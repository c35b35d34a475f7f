# SPDX-License-Identifier: LGPL-2.1-or-later
"""
torch_memory_saver and vLLM's sleep mode on glake: the real Python package of the first, and for the second
a stand-in of what is replaced in it, both over a stand-in for PyTorch that asks the real plug-in for the
segments of its pools. On the software device: no kernel runs, so the program writes itself.

    saver.py SOURCE PLUGIN [ENVIRONMENT]

The package is looked for in a Python environment, or in this interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable

TORCH = '''
import contextlib, ctypes, sys
__version__ = "2.11.0"
class version:
    cuda, hip = "13.0", None
class Tensor:
    pass
class UntypedStorage:
    pass
class Inside:
    def __init__(self, path, alloc, free):
        lib = ctypes.CDLL(path)
        self.alloc, self.free = getattr(lib, alloc), getattr(lib, free)
        self.alloc.restype = ctypes.c_void_p
        self.alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free.restype = None
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
class Plug:
    def __init__(self, path, alloc, free):
        self.inside = Inside(path, alloc, free)
    def allocator(self):
        return self.inside
class cuda:
    class memory:
        CUDAPluggableAllocator = Plug
    class MemPool:
        def __init__(self, allocator=None):
            self.inside = allocator
    inside = [None]
    emptied = 0
    current_device = staticmethod(lambda: 0)
    is_initialized = staticmethod(lambda: False)
    @staticmethod
    @contextlib.contextmanager
    def use_mem_pool(pool):
        was, cuda.inside[0] = cuda.inside[0], pool.inside
        yield
        cuda.inside[0] = was
    @staticmethod
    def empty_cache():
        cuda.emptied += 1
get_device_module = lambda: cuda
sys.modules.update({"torch.cuda": cuda, "torch.cuda.memory": cuda.memory})
def segment(size):
    return cuda.inside[0].alloc(size, 0, None)
'''
VLLM = '''
cumem_available = False
class CuMemAllocator:
    default_tag = "default"
'''
START = '''
import ctypes, json, glake, torch
def refused(function, *arguments, **named):
    try:
        return repr(function(*arguments, **named))
    except glake.GlakeError as error:
        return str(error)
def holds(ptr, value):
    return ctypes.string_at(ptr, size) == bytes([value]) * size
def held():
    return glake.stats(0)["tagged_held"]
size = 4 << 20
'''


def fake(folder):
    files = {"torch/__init__.py": TORCH, "numpy.py": "", "vllm/__init__.py": "",
             "vllm/device_allocator/cumem.py": VLLM,
             "vllm/device_allocator/__init__.py": "def get_mem_allocator_instance():\n    return None\n",
             "vllm/worker.py": "from vllm.device_allocator import get_mem_allocator_instance\n"}
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def python(folder, code):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    env.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
               PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=os.pathsep.join([folder, SOURCE]))
    run = subprocess.run([PACKAGES, "-c", START + code], env=env, capture_output=True, text=True,
                         timeout=120, check=False, cwd=folder)
    if run.returncode:
        return {"failed": run.returncode, "said": run.stderr}
    return [json.loads(line) for line in run.stdout.splitlines()]


def saver(folder):
    if subprocess.run([PACKAGES, "-c", "import importlib.util, sys; "
                       "sys.exit(not importlib.util.find_spec('torch_memory_saver'))"],
                      check=False).returncode:
        tap.ok(True, "torch_memory_saver # SKIP the package is not here: see t/doors/meson.build")
        return
    said = python(folder, '''
saver = glake.use_memory_saver()
import torch_memory_saver as package
print(json.dumps([saver is package.torch_memory_saver]))
with saver.region("weights", enable_cpu_backup=True):
    w = torch.segment(size)
    with saver.region("kv_cache"):
        kv = torch.segment(size)
    w2 = torch.segment(size)
    with saver.disable():
        pass
with saver.region():
    other = torch.segment(size)
for i, p in enumerate((w, kv, w2, other)):
    ctypes.memset(p, i + 1, size)
print(json.dumps([sorted(glake.tags()), glake.stats(0)["tagged_blocks"], held()]))
saver.pause("weights")
saver.pause("weights")
one = held()
saver.pause()
print(json.dumps([one, held(), glake.stats(0)["dropped"] if "dropped" in glake.stats(0) else
                  glake.stats(0)["discarded"]]))
with saver.region("weights", enable_cpu_backup=True):
    print(json.dumps([torch.segment(size)]))
saver.resume("kv_cache")
one = held()
saver.resume()
saver.resume()
print(json.dumps([one, held(), holds(w, 1), holds(w2, 3), saver.get_cpu_backup.__name__]))
ctypes.memset(kv, 9, size)
saver.memory_margin_bytes = 1 << 50
with saver.region("weights"):
    few = torch.segment(size)
saver.memory_margin_bytes = 0
print(json.dumps([few, saver.retain_cpu_backup, refused(glake.use_memory_saver)]))
try:
    with saver.region("x" * 48):
        few = torch.segment(size)
except AssertionError:
    print(json.dumps([few]))
saver.pause("weights")
glake.budget(8 << 20)
print(json.dumps([refused(saver.resume, "weights")]))
glake.budget(1 << 30)
saver.resume("weights")
print(json.dumps([holds(w, 1), holds(w2, 3)]))
''')
    if not tap.ok(isinstance(said, list), "torch_memory_saver", said):
        return
    (same,), made, paused, (none,), resumed, (few, retains, late), (long,), (short,), kept = said
    tap.ok(same, "its own package is used")
    tap.equal(made[1:], [4, 16 << 20], "its regions have memory of glake, with tags")
    tap.equal(paused, [8 << 20, 0, 8 << 20], "they are paused, by name and all; what has no backup is dropped")
    tap.equal(none, None, "one that is paused serves nobody")
    tap.equal(resumed[:4], [4 << 20, 16 << 20, True, True], "and resumed, with what was kept")
    tap.equal([few, retains], [None, False], "the margin is left")
    tap.equal(long, None, "a name that is too long has no memory")
    tap.has(late, "before its first region", "it is not replaced under way")
    tap.has(short, "no room", "a failure is raised, where the process would have ended")
    tap.equal(kept, [True, True], "and nothing is lost")


def vllm(folder):
    said = python(folder, '''
import vllm.worker
a = glake.use_vllm()
from vllm.device_allocator import cumem
print(json.dumps([cumem.CuMemAllocator.get_instance() is a, cumem.cumem_available,
                  vllm.worker.get_mem_allocator_instance() is a]))
with a.use_memory_pool(tag="weights"):
    w = torch.segment(size)
with a.use_memory_pool("kv_cache"):
    kv = torch.segment(size)
with a.use_memory_pool():
    d = torch.segment(size)
for i, p in enumerate((w, kv, d)):
    ctypes.memset(p, i + 1, size)
print(json.dumps([a.get_current_usage(), a.current_tag, held()]))
a.sleep(offload_tags=("weights",))
a.sleep("weights")
s = glake.stats(0)
print(json.dumps([held(), s["spilled"], s["discarded"], a.get_current_usage(), torch.cuda.emptied]))
a.wake_up(tags=["weights"])
print(json.dumps([held(), holds(w, 1)]))
a.wake_up()
ctypes.memset(kv, 7, size)
a.discard(["kv_cache"])
print(json.dumps([held(), a.wake_up(), held(), holds(w, 1)]))
a.sleep()
print(json.dumps([glake.stats(0)["spilled"] - s["spilled"]]))
''')
    if not tap.ok(isinstance(said, list), "vLLM", said):
        return
    named, used, asleep, weights, dropped, default = said
    tap.equal(named, [True, True, True], "it finds glake's where it looks for its own")
    tap.equal(used, [12 << 20, "default", 12 << 20], "pools have tags")
    tap.equal(asleep, [0, 4 << 20, 8 << 20, 12 << 20, 2], "one tag is kept while it sleeps")
    tap.equal(weights, [4 << 20, True], "and woken up for itself")
    tap.equal(dropped, [8 << 20, None, 12 << 20, True], "one is discarded, and had again")
    tap.equal(default, [4 << 20], "the default tag is kept where none is named")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        fake(folder)
        saver(folder)
        vllm(folder)
    tap.done()


main()
