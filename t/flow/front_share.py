# SPDX-License-Identifier: LGPL-2.1-or-later
"""
CUDA tensors for other processes, as the Python module sends them: two processes with the real
library on the software device, and a small stand-in for what PyTorch has to do with it.

    front_share.py SOURCE PLUGIN
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:])
MIB = 1 << 20

TORCH = '''
import ctypes
__version__ = "2.11.0"
class version:
    cuda = "13.0"
waits = 0
class Stream:
    cuda_stream = None
class cuda:
    class memory:
        CUDAPluggableAllocator = None
    current_stream = staticmethod(lambda device: Stream())
    @staticmethod
    def synchronize(device):
        global waits
        waits += 1
class device:
    def __init__(self, kind, index):
        self.index = index
class UntypedStorage:
    def __init__(self, ptr, size, owner=None):
        self.ptr, self.size, self.owner, self.device = ptr, size, owner, device("cuda", 0)
    def data_ptr(self):
        return self.ptr
    def nbytes(self):
        return self.size
    def untyped_storage(self):
        return self
    refuses = False
    def _share_cuda_(self):
        if self.refuses:
            raise RuntimeError("not of this allocator")
        return "PyTorch's"
    @classmethod
    def _new_shared_cuda(cls, *args):
        if cls.refuses:
            raise RuntimeError("not with this allocator")
        return args
    _release_ipc_counter_cuda = _new_shared_cuda
def as_tensor(guest, device):
    face = guest.__cuda_array_interface__
    assert face["typestr"] == "|u1"
    return UntypedStorage(face["data"][0], face["shape"][0], guest)
'''

# A process that does what it is told, a line each.
CHILD = r'''
import base64, ctypes, gc, json, os, pickle, resource, sys, time
import glake, torch
from glake import share
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
def get(name, result, *arguments):
    function = getattr(glake.library.load(), "glake_torch_" + name)
    function.restype, function.argtypes = result, arguments
    return function
alloc, free = get("try_alloc", P, N, I, P), get("give_back", None, P)
share.answer(torch)
new, release = torch.UntypedStorage._new_shared_cuda, torch.UntypedStorage._release_ipc_counter_cuda
class Tensor(torch.UntypedStorage):
    """Memory that is given back with the last reference, as PyTorch does."""
    def __init__(self, size):
        super().__init__(alloc(size, 0, None), size)
    def __del__(self):
        free(self.ptr)
def words(storage):
    return (ctypes.c_int * (storage.size // 4)).from_address(storage.ptr)
def fill(storage, seed):
    for i in range(0, storage.size // 4, 1024):
        words(storage)[i] = seed + i
def wrong(storage, seed):
    return sum(words(storage)[i] != seed + i for i in range(0, storage.size // 4, 1024))
def send(storage):
    return base64.b64encode(pickle.dumps(storage._share_cuda_())).decode()
def receive(text):
    return new(*pickle.loads(base64.b64decode(text)))
def exports(ptr):
    block = share._block(ptr)
    return block and block.exports
def until(true):
    """Waits until something comes true that another process does."""
    while not true():
        time.sleep(0.002)  # paces
    return True
space = globals()
for line in sys.stdin:
    code, names = json.loads(line)
    space.update(names)
    try:
        space["said"] = None
        exec(code, space)
        print(json.dumps(space["said"]), flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
'''


class Child:
    def __init__(self, folder):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
        clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_POOL_LARGE_PAGE="16MiB",
                     GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
                     PYTHONDONTWRITEBYTECODE="1",
                     PYTHONPATH=SOURCE + ":" + folder)
        self.run = subprocess.Popen([sys.executable, "-S", "-c", CHILD], env=clean, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def do(self, code, **names):
        """Runs it there; what it leaves in `said`, or what it raises."""
        self.run.stdin.write(json.dumps([code, names]) + "\n")
        self.run.stdin.flush()
        answer = self.run.stdout.readline()
        return json.loads(answer) if answer else "ended"

    def end(self, kill=False):
        if kill:
            self.run.kill()
        self.run.stdin.close()
        self.run.stdout.close()
        return self.run.wait(tap.HUNG)


def there_and_back(ours, theirs):
    text = ours.do(f"x = Tensor({30 * MIB}); fill(x, 5); base = x.ptr; said = send(x)")
    tap.equal(theirs.do("y = receive(text); said = [y.size, wrong(y, 5)]", text=text),
              [30 * MIB, 0], "a tensor of several pages is in another process")
    tap.equal(ours.do("said = [torch.waits, exports(base)]"), [1, 1],
              "behind the work of its GPU, and its owner knows that it is out")
    theirs.do("fill(y, 9)")
    tap.equal(ours.do("said = wrong(x, 9)"), 0, "what is written there is seen here")
    tap.equal(ours.do("del x; gc.collect(); said = [exports(base), glake.stats(0)['live']]"),
              [1, 30 * MIB], "dropped here it stays, as long as the other has it")
    tap.equal(theirs.do("said = wrong(y, 9); del y; gc.collect()"), 0, "unharmed")
    tap.ok(ours.do("said = until(lambda: exports(base) is None)") is True,
           "dropped there too it is free")
    tap.equal(ours.do("said = glake.stats(0)['live']"), 0, "and nothing is left")


def once(ours, theirs):
    text = ours.do("x = Tensor(3000); fill(x, 1); said = send(x)")
    again = ours.do("said = send(x)")
    same = theirs.do("a, b = (pickle.loads(base64.b64decode(t)) for t in (text, again))\n"
                     "said = [a[1] == b[1], hash(a[1]) == hash(b[1]), a[2], a[3]]",
                     text=text, again=again)
    tap.equal(same, [True, True, 3000, 0], "sent twice: the same memory by its handle")
    theirs.do("y = new(*a); release(b[4], b[5])")
    tap.ok(ours.do("said = until(lambda: not share._door().waiting)") is True,
           "the second sending is let go")
    tap.has(theirs.do("receive(again)"), "received before", "and cannot be received then")
    tap.equal(theirs.do("said = wrong(y, 1); del y; gc.collect()"), 0, "the first can")
    ours.do("del x")
    part = ours.do(f"z = Tensor({4 * MIB}); fill(z, 2)\n"
                   f"said = send(torch.UntypedStorage(z.ptr + {MIB}, {MIB}, z))")
    first = theirs.do(f"y = receive(text); said = words(y)[0] - {MIB // 4}; del y", text=part)
    tap.equal(first, 2, "a part of a block")
    tap.equal(ours.do("del z; said = send(torch.UntypedStorage(0, 0)); "
                      "said = pickle.loads(base64.b64decode(said))[1:3]"), [None, 0],
              "an empty tensor")


def many_pages(ours, theirs):
    size = 2400 * MIB
    text = ours.do(f"x = Tensor({size})\nfor i in range(0, x.size, 8 << 20): "
                   "words(x)[i // 4] = i >> 20\nbase = x.ptr; said = send(x)")
    seen = theirs.do("y = receive(text)\nsaid = sum(words(y)[i // 4] != i >> 20 for i in range("
                     "0, y.size, 8 << 20))", text=text)
    tap.equal(seen, 0, "more pages than a message takes")
    theirs.do("del y")
    text = ours.do("said = send(x)")
    said = theirs.do("most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
                     "resource.setrlimit(resource.RLIMIT_NOFILE, (100, most[1]))\n"
                     "receive(text)", text=text)
    tap.has(said, "ulimit -n", "too few descriptors there: said so")
    theirs.do("resource.setrlimit(resource.RLIMIT_NOFILE, most)")
    tap.ok(ours.do("said = until(lambda: exports(base) == 0)") is True, "and nothing stays out")
    tap.equal(theirs.do("y = receive(text); said = y.size", text=ours.do("said = send(x)")), size,
              "with enough of them it works")
    theirs.do("del y")
    ours.do("del x")


def trouble(ours, theirs, folder):
    tap.equal(ours.do("said = torch.UntypedStorage(4096, 8)._share_cuda_()"), "PyTorch's",
              "memory that is not glake's is PyTorch's to send, under its allocator")
    tap.equal(theirs.do("said = new(0, 'c', 8, 0, 1)"), [0, "c", 8, 0, 1],
              "as what PyTorch sent is to receive")
    ours.do("glake.library.plugged = True")
    tap.equal(ours.do("said = [torch.UntypedStorage(4096, 8)._share_cuda_(), new(0, 'c', 8, 0, 1)]"),
              ["PyTorch's", [0, "c", 8, 0, 1]], "and so they are under glake, where PyTorch can")
    ours.do("torch.UntypedStorage.refuses = True")
    tap.has(ours.do("torch.UntypedStorage(4096, 8)._share_cuda_()"), "tensor.clone()",
            "where it cannot it is said what to send instead")
    tap.has(ours.do("new(0, 'c', 8, 0, 1)"), "tensor.cpu()",
            "and what to do for a tensor of PyTorch's allocator")
    ours.do("glake.library.plugged = False")
    tap.has(ours.do("torch.UntypedStorage(4096, 8)._share_cuda_()"), "RuntimeError",
            "without glake it is PyTorch's own sentence")
    tap.has(ours.do("new(0, 'c', 8, 0, 1)"), "RuntimeError", "in both directions")
    ours.do("torch.UntypedStorage.refuses = False; glake.library.plugged = True")
    text = ours.do("x = Tensor(5000); base = x.ptr; text = send(x)\n"
                   "x.ptr, kept = 0, x.ptr; said = text")
    tap.has(theirs.do("receive(text)", text=text), "resized", "memory that its owner gave up")
    ours.do("x.ptr = kept")
    third = Child(folder)
    text = ours.do("fill(x, 3); said = send(x)")
    tap.equal(third.do("y = receive(text); said = wrong(y, 3)", text=text), 0, "a third process")
    tap.equal(ours.do("said = exports(base)"), 1, "  has it")
    third.end(kill=True)
    tap.ok(ours.do("said = until(lambda: exports(base) == 0)") is True,
           "  and is killed: its part is given back")
    text = ours.do("said = send(x)")
    ours.end(kill=True)
    tap.has(theirs.do("receive(text)", text=text), "has ended", "a sender that has gone: said so")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch.py").write_text(TORCH, encoding="utf-8")
        ours, theirs = Child(folder), Child(folder)
        there_and_back(ours, theirs)
        once(ours, theirs)
        many_pages(ours, theirs)
        trouble(ours, theirs, folder)
        tap.equal(theirs.end(), 0, "the other one ends as it should")
    tap.done()


main()
