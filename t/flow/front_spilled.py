# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Who moves PyTorch's storages for the Python module: the real library on the software device, and a
small stand-in for what PyTorch has to do with it. Who decides what moves is tried in t/doors.

    front_spilled.py SOURCE PLUGIN
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:])

TORCH = '''
import ctypes, threading
__version__ = "2.11.0"
class version:
    cuda = "13.0"
told, capturing, strided = [], False, None
class Stream:
    def __init__(self, device=None, handle=None):
        if handle is None:
            ptr = ctypes.c_void_p()
            import glake
            glake.library.call("glake_stream_new", 0, ctypes.byref(ptr))
            handle = ptr.value
        self.cuda_stream = handle
    def wait_event(self, event):
        told.append(("waits", self.cuda_stream, event.on))
class Event:
    def record(self, stream):
        self.on = stream.cuda_stream
class OutOfMemoryError(RuntimeError):
    pass
class cuda:
    class memory:
        CUDAPluggableAllocator = None
    Stream, Event, OutOfMemoryError = Stream, Event, OutOfMemoryError
    current = None
    current_stream = staticmethod(lambda device: cuda.current)
    is_current_stream_capturing = staticmethod(lambda: capturing)
    is_initialized = staticmethod(lambda: False)
class Storage:
    def __init__(self, ptr, size, own=True):
        self.ptr, self.size, self.own = ptr, size, own
    def data_ptr(self):
        return self.ptr
    def nbytes(self):
        return self.size
    def resizable(self):
        return self.own
class Tensor:
    device, is_cuda = "cuda:0", True
class _C:
    pass
'''
PROGRAM = '''
import ctypes, json, torch
import glake
def refused(call, *arguments, **named):
    try:
        return "no error: %r" % (call(*arguments, **named),)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
facts = {"before use": refused(glake.spilled_activations)}
glake.library.plugged = True
facts["no counts"] = refused(glake.spilled_activations)
facts["no optimizer"] = refused(glake.spilled_optimizer, torch.Tensor())
facts["wrong"] = [refused(glake.spilled_activations, **named) for named in (
    {"cap": 2.0}, {"cap": -1}, {"ahead": -1}, {"minimum": -1})]
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
lib = glake.library.load()
alloc = lib.glake_torch_alloc
alloc.restype, alloc.argtypes = P, (N, I, P)
torch.cuda.current = torch.Stream()
other = torch.Stream()
size = 3 << 20
p = alloc(size, 0, torch.cuda.current.cuda_stream)
ctypes.memset(p, 7, size)
from glake import spilled
mover, tensor, whole = spilled.Mover(), torch.Tensor(), torch.Storage(p, size)
host = torch.Tensor()
host.is_cuda = False
buffer = ctypes.create_string_buffer(size)
small = alloc(1000, 0, None)
facts["why not"] = [mover.why_not(*pair) for pair in (
    (tensor, whole), (host, whole), (tensor, torch.Storage(p, size, own=False)),
    (tensor, torch.Storage(p, size // 2)), (tensor, torch.Storage(p + 4096, size - 4096)),
    (tensor, torch.Storage(ctypes.addressof(buffer), size)))]
facts["stream"] = mover.stream(tensor) == torch.cuda.current.cuda_stream
facts["went"] = [mover.spill(tensor, whole, [other.cuda_stream, torch.cuda.current.cuda_stream]),
                 glake.stats(0)["away"], mover.spill(tensor, whole, ()),
                 mover.spill(tensor, torch.Storage(small, 1000), ())]
facts["late"] = refused(mover.spill, tensor, torch.Storage(ctypes.addressof(buffer), size), ())
torch.capturing = True
facts["captured"] = refused(mover.fetch, tensor, whole)
torch.capturing = False
glake.budget(4 << 20)
beside = alloc(3 << 20, 0, None)
facts["no room"] = [mover.fetch(tensor, whole), refused(lambda: (_ for _ in ()).throw(
    mover.no_memory(size)))]
glake.budget(64 << 20)
arrival = mover.fetch(tensor, whole)
facts["came"] = [glake.stats(0)["away"], ctypes.string_at(p, size) == bytes([7]) * size,
                 arrival.on == mover.side[tensor.device].cuda_stream,
                 arrival.on != torch.cuda.current.cuda_stream]
mover.arrive(tensor, arrival)
facts["waits"] = torch.told == [("waits", torch.cuda.current.cuda_stream, arrival.on)]
torch.capturing = True
facts["captured later"] = refused(mover.arrive, tensor, arrival)
torch.capturing = False
facts["twice"] = refused(mover.fetch, tensor, whole)
free = lib.glake_torch_free
free.restype, free.argtypes = None, (P, N, I, P)
mover.spill(tensor, whole, ())
free(p, size, 0, torch.cuda.current.cuda_stream)
facts["freed"] = [glake.stats(0)["away"], glake.stats(0)["away_blocks"]]
print(json.dumps(facts))
'''


def python(folder, code, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    env.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
               GLAKE_POLICY_TARGET="1.04", PYTHONDONTWRITEBYTECODE="1", **more)
    run = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True,
                         text=True, timeout=120, check=False, cwd=folder)
    return json.loads(run.stdout) if not run.returncode else {"failed": run.stderr}


def moves(folder):
    (Path(folder) / "torch.py").write_text(TORCH, encoding="utf-8")
    facts = python(folder, PROGRAM, PYTHONPATH=SOURCE + ":" + folder)
    if not tap.ok("failed" not in facts, "a program with a stand-in for PyTorch", facts):
        return
    tap.has(facts["before use"], "call glake.use() first", "before glake.use() it is refused")
    tap.has(facts["no counts"], "does not tell who uses a storage", "and where nobody can be counted")
    tap.has(facts["no optimizer"], "has no register_step_pre_hook", "and what is no optimizer")
    for said, name in zip(facts["wrong"], "cap cap ahead minimum".split()):
        tap.has(said, f"GlakeError: {name}=", f"a wrong {name} is named")
    tap.equal(facts["why not"], [None, "not on a GPU"] + 4 * ["foreign"],
              "a block may go, but what is of others, or a part of one, not")
    tap.ok(facts["stream"], "the current stream is PyTorch's")
    tap.equal(facts["went"], [None, 3 << 20, "elsewhere", "foreign"], "it goes once, a small one not")
    tap.has(facts["late"], "foreign", "nor what is no block")
    tap.has(facts["captured"], "while a graph is captured", "nothing comes in a capture")
    tap.equal(facts["no room"][0], None, "where there is no room for it, it stays away")
    tap.has(facts["no room"][1], "CUDA out of memory", "which is PyTorch's error for who needs it")
    tap.equal(facts["came"], [0, True, True, True], "it comes on a stream of its own")
    tap.ok(facts["waits"], "for which the one that uses it waits")
    tap.has(facts["captured later"], "while a graph is captured", "but not in a capture")
    tap.has(facts["twice"], "glake_fetch: ", "what is here does not come")
    tap.equal(facts["freed"], [0, 0], "what is away may be freed")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        said = python(folder, "import glake, json\ntry:\n    glake.spilled_activations()\n"
                      "except glake.GlakeError as error:\n    print(json.dumps(str(error)))",
                      PYTHONPATH=SOURCE)
        tap.has(said, "PyTorch is not installed", "without PyTorch it says so")
        moves(folder)
    tap.done()


if __name__ == "__main__":
    main()
