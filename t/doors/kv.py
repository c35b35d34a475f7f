# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.kv on the software device: what a Python program may do with a KV cache, and what it is told. Under torch, or
numpy, lanes are tensors whose contents are written and read.

    kv.py SOURCE PLUGIN [ENVIRONMENT]
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

PROGRAM = '''
import array
import os

import glake
from glake import kv

def says(fn, *arguments, **options):
    try:
        fn(*arguments, **options)
    except glake.GlakeError as error:
        return str(error)
    return "nothing"

cache = kv.Cache(4, 4096, 6, shape=(4, 32), dtype="float32")
slot = cache.new()
cache.grow(slot, 100)
told = cache.figures()
print("held", told["held"], "sequences", told["sequences"], "needed", told["needed"])
print("sequence", cache.sequence(slot)["ready"], cache.sequence(slot)["tokens"])
lane = cache.lane(2)
if not hasattr(lane, "shape"):
    try:
        import numpy
        lane = numpy.from_dlpack(lane)
    except ImportError:
        lane = None
if lane is None:
    print("lane (4, 4096, 4, 32) 7.0")
else:
    lane[slot, 99, 3, 31] = 7
    print("lane", tuple(lane.shape), float(lane[slot, 99, 3, 31]))
cache.step([2048, 0, 0, 0])
cache.limit(cache.figures()["held"])
print("limit:", says(cache.grow, cache.new(), 1))
cache.trim(slot, 10)
cache.free(slot)
print("freed:", says(cache.grow, slot, 1), cache.figures()["held"])
for wrong in ({"slots": 0}, {"slots": -1}, {"lanes": 0}, {"dtype": "complex64"}, {"shape": None}, {"shape": ()}):
    print(wrong, says(kv.Cache, **{**{"slots": 4, "tokens": 10, "lanes": 2, "shape": 8}, **wrong}))
print("lanes:", says(cache.lane, 6), says(cache.step, [1]))
cache.close()
cache.close()
print("closed:", says(cache.figures))
with kv.Cache(2, 100, [kv.Lane(8, "float16", window=9), kv.Lane((3, 4), "float32", state=True)], ahead=5) as other:
    print("states", other.new(), other.figures()["held"])
with kv.Cache(5, 4096, 2, shape=(4, 128), dtype="float16", prefixes=2) as one:
    first = one.new(domain=3)
    one.grow(first, 3000)
    second = one.fork(first)
    one.publish(first, b"prompt", 2048)
    third, stranger = one.new(domain=3), one.new()
    print("adopted", one.adopt(third, b"prompt"), one.adopt(stranger, b"prompt"), says(one.adopt, third, b"prompt"))
    told = one.figures()
    print("shared", told["shared"], "held", told["held"], told["forks"], told["adopts"], told["prefixes"])
    print("twice:", says(one.publish, second, b"prompt"), "key:", says(one.publish, second, b""))
    fourth = one.new(domain=3)
    one.publish(second, array.array("I", [1, 2]), 1024)
    print("numbers:", one.adopt(fourth, array.array("I", [1, 3])), one.adopt(fourth, array.array("I", [1, 2])))
    one.free(fourth)
    one.withdraw(b"prompt", domain=3)
    print("withdrawn:", says(one.withdraw, b"prompt", domain=3), one.sequence(third)["domain"])
    one.spill(second)
    print("away:", says(one.grow, second, 3001), one.sequence(second)["away"])
    one.fetch(second)
    one.grow(second, 3001)
    one.trim(second, 3000)
    print("prefix:", says(one.spill_prefix, b"none", domain=3), says(one.fetch_prefix, b"none"))
    one.publish(second, b"all")
    print("read:", says(one.spill_prefix, b"all", domain=3))
    for reader in (first, second, third):
        one.spill(reader)
    one.spill_prefix(b"all", domain=3)
    print("away:", one.figures()["away"], one.figures()["prefixes_away"])
    one.fetch_prefix(b"all", domain=3)
    for reader in (first, second, third):
        one.fetch(reader)
    print("fork:", says(one.fork, stranger), one.sequence(second)["tokens"])
with kv.Cache(2, 4096, [kv.Lane(8, "float32"), kv.Lane((2, 3), "float32")], token_front=True) as one:
    slot = one.new()
    one.grow(slot, 60000 // 56)
    print("out:", says(one.export, slot, 2), says(one.export, slot, 1, tokens=0), says(one.export, slot, 1, 5, 1 << 31))
    pieces = one.export(slot, 1, first=3, tokens=5)
    print(len(pieces), pieces[0][1:], one.sequence(slot)["outs"], one.figures()["outs"])
    print("free:", says(one.free, slot))
    here = kv.Imported(pieces, (2, 3), "float32", step=56, offset=32)
    print("imported", here.tensor.__dlpack_device__()[0], says(kv.Imported, pieces, 100, "float32"))
    os.close(pieces[0].fd)
    here.close()
    one.export_end(slot, 1)
    print("back:", says(one.export_end, slot, 1), one.figures()["outs"])
with kv.Cache(2, 4096, 4, shape=(4, 128), dtype="float16") as one:
    slot = one.new()
    for lane in (0, 2):
        one.layer_grow(slot, lane, 2, 3000)
        one.layer_done(slot, lane, 2)
    print("layers:", one.sequence(slot)["away"], says(one.grow, slot, 3000))
    import ctypes
    numbers, rows = (ctypes.c_uint32 * 3)(5, 99999, 7), ((ctypes.c_uint64 * 130) * 3)()
    place = ctypes.addressof(rows) // 16 * 16 + 16
    ctypes.memset(rows, 255, ctypes.sizeof(rows))
    print("rows:", one.gather(slot, 1, numbers, place) == place, ctypes.string_at(place + 1024, 1024) == bytes(1024),
          says(one.gather, slot, 9, numbers, place), says(one.gather, slot, 1, numbers, place + 8).replace(hex(place + 8), "PLACE"))
    import contextlib, sys, types
    class Tensor:
        device = "cuda:0"
        def __init__(self, at):
            self.at = at
        def __len__(self):
            return 3
        def to(self, kind):
            made.append(current[-1])
            return self
        def contiguous(self):
            return self
        def data_ptr(self):
            return self.at
    @contextlib.contextmanager
    def on(stream):
        current.append(stream)
        yield
        current.pop()
    def empty(*_, **__):
        made.append(current[-1])
        return Tensor(place)
    made, current, was = [], ["current"], sys.modules.get("torch")
    sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor, int32=0, float16=0, empty=empty, cuda=types.SimpleNamespace(
        is_available=lambda: True, stream=on, current_stream=lambda device: 2, ExternalStream=lambda at, device: at))
    one.gather(slot, 1, Tensor(ctypes.addressof(numbers)))
    one.gather(slot, 1, Tensor(ctypes.addressof(numbers)), stream=2)
    print("made on:", made, current)
    del sys.modules["torch"]
    if was:
        sys.modules["torch"] = was
    for lane in (0, 2):
        one.layer_wait(slot, lane, 2)
    one.grow(slot, 3000)
    print("back:", one.sequence(slot)["tokens"], says(one.layer_wait, slot, 3, 2))
with kv.Cache(2, 4096, 2, shape=(4, 128), dtype="float16", single=True) as one:
    print("single", one.figures()["held"], one.figures()["sequences"])
glake.trim()  # small pages that lie idle would do for large ones
with kv.Cache(1, 40960, 2, shape=(4, 128), dtype="float16", large=True) as one:
    slot = one.new()
    one.layer_grow(slot, 0, 2, 20000)
    one.grow(slot, 20000)
    one.trim(slot, 100)
    print("large", one.figures()["held"], says(kv.Cache, 1, 10, 2, shape=8, large=True, token_front=True))
print("rules:", says(kv.Lane, 8, "float16", window=3, state=True))
print("live", glake.stats(0)["live"])
'''

WANTED = '''held 12582912 sequences 1 needed 307200
sequence 4096 100
lane (4, 4096, 4, 32) 7.0
limit: glake_kv_grow: the KV cache may have 12 MiB of pages and has 12 MiB; 12 MiB more were asked for (LIMIT)
freed: glake_kv_grow: there is no sequence in slot 0 (INVAL) 0
{'slots': 0} glake_kv_open: a KV cache of 0 slots: 1 to 65536 (INVAL)
{'slots': -1} a KV cache with slots=-1
{'lanes': 0} glake_kv_open: a KV cache of 0 lanes: 1 to 4096 (INVAL)
{'dtype': 'complex64'} a lane of complex64: int8, int16, int32, int64, uint8, float16, float32, float64, bfloat16
{'shape': None} what a lane keeps of a token: shape=(heads, dimension)
{'shape': ()} a lane of the shape ()
lanes: there is no lane 6 1 lengths for 4 slots
closed: the KV cache is closed
states 0 2097152
adopted 2048 0 glake_kv_adopt: the sequence in slot 2 has tokens already (BUSY)
shared 12582912 held 12582912 1 1 1
twice: glake_kv_publish: a prefix is published under this key already (BUSY) key: glake_kv_publish: a key of 0 bytes: 1 to 64 (INVAL)
numbers: 0 1024
withdrawn: glake_kv_withdraw: no prefix is published under this key in this domain (INVAL) 3
away: glake_kv_grow: the sequence in slot 1 is on the host: glake_kv_fetch (BUSY) 1
prefix: glake_kv_prefix_spill: no prefix is published under this key in this domain (INVAL) glake_kv_prefix_fetch: no prefix is published under this key in this domain (INVAL)
read: glake_kv_prefix_spill: the sequence in slot 0 reads the prefix (BUSY)
away: 3 1
fork: glake_kv_fork: the first 0 tokens of a sequence that has 0 (INVAL) 3000
out: glake_kv_place_get: there is no lane 2, or no place for where it lies (INVAL) glake_kv_export: the sequence in slot 0 has no memory for 0 tokens from 0 on (INVAL) glake_kv_export: the sequence in slot 0 has no memory for 2147483648 tokens from 5 on (INVAL)
1 (1, 2097152, 168, 280) 1 1
free: glake_kv_free: the sequence in slot 0 is out: others have its memory until glake_kv_export_end (BUSY)
imported 1 tokens of 400 bytes, 400 apart, are not in 280 bytes from 0 on
back: glake_kv_export_end: lane 1 of the sequence in slot 0 is not out (INVAL) 0
layers: 1 glake_kv_grow: the sequence in slot 0 is on the host: glake_kv_fetch (BUSY)
rows: True True glake_kv_gather: no such lane, or no indices, or no place for the rows (INVAL) glake_kv_gather: rows of 1024 bytes to PLACE: they begin and end at multiples of 16 bytes, and have 256 KiB at most (INVAL)
made on: ['current', 'current', 2, 2] ['current']
back: 3000 glake_kv_layer_wait: 2 lanes from lane 3 on: the KV cache has 4 (INVAL)
single 16777216 0
large 33554432 glake_kv_open: large pages are for lanes that have memory by themselves (INVAL)
rules: a lane has a window or is a state
live 0
'''

WATCHED = '''
import sys
from glake import kv
cache = kv.Cache(5, 4096, 2, shape=(4, 128), dtype="float16", prefixes=2)
first = cache.new()
cache.grow(first, 2500)
cache.fork(first)
cache.publish(first, b"prompt", 2048)
print("open", flush=True)
sys.stdin.read()
cache.close()
'''

ran = subprocess.run([PACKAGES, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=100, env={
    **os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
    "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"})
tap.start()
got, wanted = ran.stdout.splitlines(), WANTED.splitlines()
tap.equal(len(got), len(wanted), "so much is told")
for line, want in zip(got, wanted):
    tap.equal(line, want, want[:50])
tap.ok(ran.returncode == 0, "it ends as it should", ran.stderr[-300:])

# glakectl kv shows the caches of a process that lives
with tempfile.TemporaryDirectory() as room:
    where = {**os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
             "GLAKE_RPC_SOCKET": "yes", "GLAKE_TRACE_FILE": f"{room}/kv.trace", "XDG_RUNTIME_DIR": room, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([PACKAGES, "-c", WATCHED], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=where) as watched:
        tap.equal(watched.stdout.readline(), "open\n", "a process with a KV cache")
        run = subprocess.run([tap.TOOL, "kv"], text=True, capture_output=True, check=False, env=where)
        lines = run.stdout.splitlines()
        tap.equal((run.returncode, len(lines)), (0, 2), "is shown")
        tap.equal(lines[-1].split(), "0 2/5 1 5000 9.77 MiB 12.0 MiB 8.00 MiB none 6 0.0 % 0.0 % 0 0 0".split(),
                  "with what it has")
        run = subprocess.run([tap.TOOL, "kv", "-j", str(watched.pid)], text=True, capture_output=True, check=False,
                             env=where)
        one = json.loads(run.stdout)[0]["caches"][0]
        tap.equal([one[name] for name in ("slots", "sequences", "forks", "held_bytes", "shared_bytes")],
                  [5, 2, 1, 12 << 20, 8 << 20], "as JSON too")
        run = subprocess.run([tap.TOOL, "kv", "a", "b"], text=True, capture_output=True, check=False, env=where)
        tap.equal(run.returncode, 2, "two processes: wrong usage")
        watched.stdin.close()
    tap.equal(watched.returncode, 0, "it ends")
    run = subprocess.run([tap.TOOL, "trace", "show", "-j", f"{room}/kv.trace"], text=True, capture_output=True,
                         check=False, env=where)
    tap.equal(json.loads(run.stdout)["kinds"], {
        "kv_open": 1, "kv_close": 1, "kv_new": 1, "kv_grow": 1, "kv_fork": 1, "kv_publish": 1},
        "and its trace tells what was done")
tap.done()
