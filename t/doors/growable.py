# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.kv.Growable on the software device: contents at one address while it grows and shrinks, no room as an answer,
what cannot be meant; and beside the growable tensors of vLLM and SGLang themselves, by growable_real.py.

    growable.py SOURCE PLUGIN [ENVIRONMENT]
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable

PROGRAM = '''
import ctypes, sys, types
import glake
from glake import kv

M = 1 << 20

def says(fn, *arguments, **options):
    try:
        return fn(*arguments, **options)
    except (glake.GlakeError, IndexError) as error:
        kind = [x for x in ("Exhausted", "Misuse", "IndexError") if x in (c.__name__ for c in type(error).__mro__)]
        return " ".join((*kind, str(error)))

def put(kv, offset, text):
    ctypes.memmove(kv.base_ptr + offset, text, len(text))

def get(kv, offset, size):
    return ctypes.string_at(kv.base_ptr + offset, size)

g = kv.Growable(64 << 30, "cuda:0")
base = g.base_ptr
print("reserved", g.granularity, g.capacity_bytes >> 30, g.physical_bytes, g.num_bytes, g.num_segments)
g.ensure_committed_range(3 * M, 5 * M)
put(g, 3 * M, b"here")
put(g, 5 * M - 4, b"last")
g.ensure_committed_range(1 * M, 9 * M)
print("grown", g.physical_bytes // M, get(g, 3 * M, 4), get(g, 5 * M - 4, 4), g.num_physical_chunks)
print("released", g.release_range(5 * M, 9 * M) // M, g.physical_bytes // M, get(g, 3 * M, 4), get(g, 5 * M - 4, 4))
print("none whole", g.release_range(3 * M, 4 * M + 5), g.release_range(7 * M, 7 * M))
g.ensure_committed(1)
g.ensure_committed(0)
g.commit_range(20 * M, 1)
print("again", g.physical_bytes // M, get(g, 3 * M, 4), g.base_ptr == base)
print("all", g.release_physical() // M, g.physical_bytes, g.release_physical())
g.ensure_committed_range(3 * M, 4 * M)
put(g, 3 * M, b"more")
print("reused", get(g, 3 * M, 4), g.base_ptr == base)
for wrong in ((-1, 5), (5, 4), (0, (64 << 30) + 1)):
    print("range", says(g.ensure_committed_range, *wrong), "|", says(g.release_range, *wrong))
print("offset", says(g.commit_range, 5, 5), "|", says(g.commit_range, 64 << 30, 1))

one, two = kv.Growable(3 * M), kv.Growable(0)
print("rounded", one.capacity_bytes // M, two.capacity_bytes // M, says(one.ensure_committed, 4 * M),
      one.physical_bytes // M)
g.free()
two.close()

glake.budget(16 * M)
held = kv.Growable(1 << 30)
held.ensure_committed(6 * M)
put(held, 6 * M - 4, b"kept")
try:
    held.ensure_committed(80 * M)
except kv.Exhausted as error:
    print("exhausted", isinstance(error, RuntimeError), error.room // M, "budget of 16 MiB" in str(error))
print("as before", held.physical_bytes // M, get(held, 6 * M - 4, 4))
one.release_physical()
held.ensure_committed(16 * M)
print("room", held.physical_bytes // M, get(held, 6 * M - 4, 4), says(one.ensure_committed, 1)[:31])
held.free()
one.ensure_committed(3 * M)
print("freed", one.physical_bytes // M, says(held.ensure_committed, 1), "|", says(held.release_physical), "|",
      says(held.full_view), held.base_ptr, held.physical_bytes)
one.free()
one.free()

s = kv.Growable(9 * M, num_segments=3)
s.resize_per_segment_(M, zero_new=True)
print("segments", s.segment_capacity_bytes // M, s.physical_bytes // M, s.num_bytes // M, get(s, 3 * M, 2),
      get(s, 7 * M - 1, 1))
for i in range(3):
    put(s, 3 * M * i, b"%d" % i)
    if i != 1:  # there the next page begins
        put(s, 3 * M * i + M, b"xx")
s.resize_per_segment_(M + 4, zero_new=True)
print("zeros", [get(s, 3 * M * i, 1) for i in range(3)], [get(s, 3 * M * i + M, 2) for i in range(3)])
s.resize_per_segment_(3 * M)
print("full", s.physical_bytes // M, s.bytes_per_segment // M, says(s.resize_per_segment_, 3 * M + 1), "|",
      says(s.segment_view, 3))
s.resize_per_segment_(1)
print("shrunk", s.physical_bytes // M, s.bytes_per_segment, [get(s, 3 * M * i, 1) for i in range(3)])
s.resize_per_segment_(0)
print("empty", s.physical_bytes, s.num_bytes)
s.free()
s = kv.Growable(12 * M, num_segments=3)
s.ensure_prefix(2 * M)
glake.trim()
glake.budget(10 * M)
print("all or none", says(s.ensure_prefix, 4 * M)[:12], s.physical_bytes // M, s.num_tokens // M)
glake.budget(64 * M)
s.free()

t = kv.Growable(shape=(1 << 20, 8, 16), dtype="float32")
t.ensure_prefix(5000)
print("tokens", t.physical_bytes // M, t.num_tokens, t.num_bytes, t.max_num_bytes // M)
tensor = t.tensors[0]
if not hasattr(tensor, "shape"):
    try:
        import numpy
        tensor = numpy.from_dlpack(t)
    except ImportError:
        tensor = None
put(t, 5000 * 512 - 4, b"\\0\\0\\0\\x40")
if tensor is None:
    print("tensor (1048576, 8, 16) 2.0 7.0")
else:
    tensor[4999, 7, 14] = 7
    print("tensor", tuple(tensor.shape), float(tensor[4999, 7, 15]), float(tensor[4999, 7, 14]))
print("beyond", t.release_beyond(4096) // M, t.num_tokens, says(t.release_beyond, -1), "|",
      says(t.ensure_prefix, (1 << 20) + 1))
t.finalize(8192)
print("final", t.physical_bytes // M, says(t.finalize, 0), "|", says(t.segment_view, 0))
del tensor
t.free()

big = kv.Growable(64 * M, grows=True)
big.ensure_committed(64 * M)
print("grows", big.physical_bytes // M, big.num_physical_chunks < 32)
del big

class Told:
    def __init__(self, name, rows, row, lie=0):
        self.name, self.shape, self.row, self.lie = name, (rows, row), row, lie
    def reserved_span_bytes(self, item):
        return self.shape[0] * self.row * item + self.lie
    def prefix_span_bytes(self, tokens, page):
        return tokens * self.row
    def final_span_bytes(self, tokens, page):
        return (tokens + page) * self.row

want = {"device": "cuda", "device_id": 0, "store_dtype": "uint8", "page_size": 16, "reserved_num_tokens": 4096}
o = kv.Growable.of_buffers(**want, buffer_descs=[Told("k", 4112, 1024), Told("v", 4112, 512)])
print("buffers", len(o.tensors), o.backed_bytes // M, o.granularity // M, o.base == o.base_ptr, o.reserved // M)
o.finalize(4096)
put(o, 6 * M, b"v")
print("finalized", o.backed_bytes // M, o.release_beyond(1) // M, o.backed_bytes // M, get(o, 6 * M, 1))
print("sizes", says(lambda: o.segment_capacity_bytes), "|",
      says(kv.Growable.of_buffers, **want, buffer_descs=[Told("k", 9, 9, 1)]))
print("final", says(o.finalize, 15), "|", says(o.finalize, 4097))
o.close()
print("closed", o.tensors, says(o.ensure_prefix, 1), o.backed_bytes)

for wrong in ({}, {"max_num_bytes": 5, "shape": 5}, {"max_num_bytes": -1}, {"max_num_bytes": 5, "num_segments": 2},
              {"shape": ()}, {"shape": (4, 0)}, {"shape": 5, "dtype": "complex64"}, {"shape": 5, "num_segments": 5},
              {"max_num_bytes": 5, "device": "cpu"}, {"max_num_bytes": 1 << 62}):
    print(wrong, says(kv.Growable, **wrong))

calls = []
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(
    is_available=lambda: False, is_initialized=lambda: True, current_device=lambda: 0,
    empty_cache=lambda: (calls.append("empty"), glake.budget(8 * M)), synchronize=lambda device: calls.append("wait")))
w = kv.Growable(32 * M)
glake.trim()
glake.budget(4 * M)
w.ensure_committed(8 * M)
print("PyTorch's room", w.physical_bytes // M, calls)
w.release_range(0, 2 * M, stream=0)
w.release_range(2 * M, 4 * M)
w.free()
print("waits", calls)
del sys.modules["torch"]
print("live", glake.stats(0)["live"])
'''

WANTED = '''reserved 2097152 64 0 0 1
grown 10 b'here' b'last' 5
released 2 8 b'here' b'last'
none whole 0 0
again 10 b'here' True
all 10 0 0
reused b'more' True
range Misuse the range [-1, 5) of 68719476736 bytes | Misuse the range [-1, 5) of 68719476736 bytes
range Misuse the range [5, 4) of 68719476736 bytes | Misuse the range [5, 4) of 68719476736 bytes
range Misuse the range [0, 68719476737) of 68719476736 bytes | Misuse the range [0, 68719476737) of 68719476736 bytes
offset Misuse the offset 5 is no multiple of 2097152 | Misuse the range [68719476736, 68719476737) of 68719476736 bytes
rounded 4 2 None 4
exhausted True 6 True
as before 6 b'kept'
room 16 b'kept' Exhausted glake_commit: GPU 0 h
freed 4 the memory was freed | the memory was freed | the memory was freed 0 0
segments 3 6 3 b'\\x00\\x00' b'\\x00'
zeros [b'0', b'1', b'2'] [b'\\x00\\x00', b'\\x00\\x00', b'\\x00\\x00']
full 10 3 Misuse 3145729 bytes of segment 0, which has 3145728 | IndexError segment 3 of 3
shrunk 6 1 [b'0', b'1', b'2']
empty 0 0
all or none Exhausted gl 6 2
tokens 4 5000 2560000 512
tensor (1048576, 8, 16) 2.0 7.0
beyond 2 4096 Misuse -512 bytes of the tensor, which has 536870912 | Misuse 536871424 bytes of the tensor, which has 536870912
final 4 Misuse 0 tokens: 1 to 1048576 | Misuse it has no segments of one size in bytes
grows 64 True
buffers 2 4 2 True 10
finalized 10 6 4 b'v'
sizes Misuse it has no segments of one size in bytes | k has 81 bytes, and says 82
final Misuse 15 tokens: 16 to 4096 | Misuse 4097 tokens: 16 to 4096
closed [] the memory was freed 0
{} Misuse a Growable wants its bytes, or a shape
{'max_num_bytes': 5, 'shape': 5} Misuse a Growable wants its bytes, or a shape
{'max_num_bytes': -1} Misuse -1 bytes in 1 segments
{'max_num_bytes': 5, 'num_segments': 2} Misuse 5 bytes in 2 segments
{'shape': ()} Misuse a Growable of the shape ()
{'shape': (4, 0)} Misuse a Growable of the shape (4, 0)
{'shape': 5, 'dtype': 'complex64'} Misuse tensors of complex64: int8, int16, int32, int64, uint8, float16, float32, float64, bfloat16
{'shape': 5, 'num_segments': 5} Misuse a shape in segments
{'max_num_bytes': 5, 'device': 'cpu'} Misuse a Growable on cpu: it is for GPUs
{'max_num_bytes': 4611686018427387904} Misuse 4611686018427387904 bytes of addresses
PyTorch's room 8 ['empty']
waits ['empty', 'wait', 'wait']
live 0
'''

ENVIRONMENT = {
    **os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
    "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}


def run(*what):
    return subprocess.run([PACKAGES, *what], capture_output=True, text=True, check=False, timeout=200,
                          env=ENVIRONMENT)


tap.start()
ran = run("-c", PROGRAM)
got, wanted = ran.stdout.splitlines(), WANTED.splitlines()
tap.equal(len(got), len(wanted), "so much is told")
for line, want in zip(got, wanted):
    tap.equal(line, want, want[:50])
tap.ok(ran.returncode == 0, "it ends as it should", ran.stderr[-300:])

for engine in ("vllm", "sglang"):
    ran = run(os.path.join(HERE, "growable_real.py"), engine)
    for line in ran.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "skip":
            tap.skip(engine, rest)
        else:
            tap.ok(word == "ok", f"{engine}: {rest}")
    tap.ok(ran.returncode == 0 and ran.stdout, f"{engine}: it ends as it should", ran.stderr[-900:])
tap.done()
