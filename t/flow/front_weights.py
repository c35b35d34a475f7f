# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Weights that several processes have once, as the Python module loads them: files of safetensors that the test
writes, processes with the real library on the software device, and a broker.

    front_weights.py SOURCE PLUGIN
"""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import tap
from brokered import Broker

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:])

CHILD = r"""
import ctypes, hashlib, json, os, sys
import glake
from glake import weights
def at(view): return view._address
def sums(w):
    return {name: hashlib.sha256(ctypes.string_at(at(v), sizes[name])).hexdigest() for name, v in w.items()}
for line in sys.stdin:
    said, names = None, globals()
    try:
        exec(json.loads(line), names)
        said = names.get("said")
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
    names["said"] = None
"""


class Child:
    def __init__(self, broker, **keys):
        env = {**broker.env, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1",
               "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN), "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_SOFT_MEMORY": "1GiB",
               "GLAKE_SHARE_BROKER": broker.path, "GLAKE_SHARE_CHUNK": "2MiB", "GLAKE_LOG_LEVEL": "error", **keys}
        self.run = subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)

    def start(self, code):
        self.run.stdin.write(json.dumps(code) + "\n")
        self.run.stdin.flush()

    def answer(self):
        return json.loads(self.run.stdout.readline())

    def do(self, code):
        self.start(code)
        return self.answer()

    def end(self):
        self.run.stdin.close()
        return self.run.wait()


def write(path, seed, first=(1000, 7)):
    """A file of three tensors, the first one said to have a shape; their sizes and sums."""
    parts = {"a": ("F32", list(first), 28000), "b": ("BF16", [1 << 20], 2 << 20), "c": ("U8", [3], 3)}
    header, data, at, sums = {"__metadata__": {"format": "pt"}}, b"", 0, {}
    for name, (kind, shape, size) in parts.items():
        contents = (seed + name).encode() * (size // len(seed + name) + 1)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        data, at, sums[name] = data + contents[:size], at + size, sha256(contents[:size]).hexdigest()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return {name: size for name, (_, _, size) in parts.items()}, sums


MODEL = 40


def write_model(path, tune, extra=False):
    """A file of MODEL large tensors and three small ones; those of which the number is in `tune` are another model's.
    Their sizes and sums."""
    sizes = {f"layer.{i}": (4 << 20) + 4096 * (i % 3) for i in range(MODEL)}
    sizes.update({"bias": 700, "norm": 3000, "scale": 8})
    header, data, at, sums = {}, [], 0, {}
    names = (["added"] if extra else []) + list(sizes)
    sizes["added"] = 5000
    for name in names:
        seed = f"{name}{path if name.split('.')[-1] in tune or name == 'added' else ''}"
        contents = random.Random(seed).randbytes(sizes[name])
        header[name] = {"dtype": "U8", "shape": [len(contents)], "data_offsets": [at, at + len(contents)]}
        data.append(contents)
        at += len(contents)
        sums[name] = sha256(contents).hexdigest()
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return {name: sizes[name] for name in names}, sums


def check_pages(folder):
    """Fine-tunes of one base, which differ in a tenth of the tensors, in one process."""
    child = Child(SimpleNamespace(env=os.environ, path=""), GLAKE_SHARE_BROKER="")
    live = "said = library.fetch('glake_stats_get', records.Stats(), 0).live"
    child.do("from glake import library, records")
    base, tune = os.path.join(folder, "base"), os.path.join(folder, "tune")
    sizes, sums = write_model(base, ())
    tap.equal(child.do(f"sizes = {sizes!r}; b = weights.load({base!r}, pages=True); said = sums(b)"), sums,
              "a base in pages")
    held = child.do(live)
    tuned, others = write_model(tune, [str(i) for i in range(0, MODEL, 10)], extra=True)
    tap.equal(child.do(f"sizes = {tuned!r}; t = weights.load({tune!r}, pages=True); said = sums(t)"), others,
              "a fine-tune of it, and a tensor more at the front of its file")
    both = child.do(live)
    tap.ok(both - held <= 0.15 * held, "85 % of the base exist once", held, both)
    tap.ok(child.do("said = t.saved") >= 0.85 * held, "which is told")
    tap.equal(child.do(f"sizes = {sizes!r}; said = sums(b)"), sums, "every word of the base is there")
    child.do(f"sizes = {tuned!r}; t.own(); ctypes.memset(at(t['layer.5']), 9, sizes['layer.5'])")
    tap.equal(child.do(f"sizes = {sizes!r}; said = sums(b)"), sums, "also where the other has its own")
    tap.ok(child.do(live) > 1.9 * held, "which are two then")
    others["layer.5"] = sha256(b"\x09" * tuned["layer.5"]).hexdigest()
    tap.equal(child.do(f"sizes = {tuned!r}; said = sums(t)"), others, "with what it wrote")
    child.do("b.close()")
    tap.equal(child.do("said = t.dedup()"), 2 << 20, "alone it shares the one page that it has twice")
    tap.has(child.do(f"weights.load({base!r}, key='x', pages=True)"), "no key", "such weights have no key")
    child.do("t.close()")
    tap.equal((child.do(live), child.end()), (0, 0), "nothing is left")


def check_pages_across(folder):
    """The same in two processes, with a broker."""
    base, tune = os.path.join(folder, "base"), os.path.join(folder, "tune")
    sizes, sums = write_model(base, ())
    tuned, others = write_model(tune, [str(i) for i in range(0, MODEL, 10)], extra=True)
    with Broker() as broker:
        one, two = Child(broker), Child(broker)
        tap.equal(one.do(f"sizes = {sizes!r}; b = weights.load({base!r}, pages=True); said = sums(b)"), sums, "a base")
        held = broker.books()["held"]
        tap.equal(two.do(f"sizes = {tuned!r}; t = weights.load({tune!r}, pages=True); said = sums(t)"), others,
                  "a fine-tune of it in another process")
        both, saved = (broker.books()[name] for name in ("held", "saved"))
        tap.ok(both - held <= 0.15 * held, "85 % of the base exist once", held, both)
        tap.ok(saved >= 0.85 * held and two.do("said = t.saved") >= saved, "which both tell", saved, held)
        tap.equal(one.do("said = sums(b)"), sums, "every word of the base is there")
        two.do("t.own(); ctypes.memset(at(t['layer.5']), 9, sizes['layer.5'])")
        tap.equal(one.do("said = sums(b)"), sums, "also where the other has its own")
        two.do("t.close()")
        two.do(f"t = weights.load({tune!r}, pages=True)")
        one.do("b.close()")
        tap.equal(two.do("said = sums(t)"), others, "the base goes, and every word of the other is there")
        two.do("t.close()")
        tap.equal([broker.books()[name] for name in ("common", "published")], [0, 0], "then all is gone")
        one.do(f"b = weights.load({base!r}, pages=True)")
        broker.end()
        broker.keys["GLAKE_SHARE_TOTAL"] = str(held * 5 // 4)
        broker.begin()
        two.do("weights._BLOCK = 8 << 20")
        tap.until(lambda: broker.books() and len(broker.books()["clients"]) == 2)
        tap.equal(one.do("b.dedup(); said = sums(b)"), sums, "a GPU that has a quarter of the base left")
        tap.equal(two.do(f"t = weights.load({tune!r}, pages=True); said = sums(t)"), others,
                  "has room for the other while it is loaded")
        tap.ok(two.do("said = [t.saved, len(t._blocks)]") >= [0.85 * held, 10], "which is shared part by part")
        for client in (one, two):
            client.do("(b if 'b' in globals() else t).close()")
        tap.equal([child.end() for child in (one, two)], [0, 0], "they end")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        check_pages(folder)
        check_pages_across(folder)
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        sizes, sums = write(path, "x")
        begin = f"sizes = {sizes!r}; w = weights.load({path!r}); said = [w.shared, sums(w)]"
        one, two, three = Child(broker), Child(broker), Child(broker)
        tap.equal(one.do(begin), [False, sums], "one process loads a model")
        tap.equal(two.do(begin), [True, sums], "another one has it without loading")
        books = broker.books()
        tap.equal([item["users"] for item in books["contents"]], [2], "it exists once")
        tap.ok(books["held"] < 12 << 20, "with its bytes", books)
        tap.equal(two.do("said = w['a']._shape"), [1000, 7], "tensors have their shapes")
        tap.equal(two.do("w.own(); ctypes.memset(at(w['a']), 1, 28000); said = w['a'] is not None"), True,
                  "it can have its own")
        tap.equal(one.do("said = sums(w)"), sums, "which changes nobody else's")
        tap.equal(one.run.send_signal(signal.SIGKILL) or one.run.wait(), -9, "the first one is killed")
        tap.equal(three.do(begin), [False, sums], "nobody had it then: it is loaded again")
        tap.equal(two.do("w.close(); said = len(w)"), 0, "an own copy is given up")
        tap.equal(two.do(begin), [True, sums], "and the model had again")
        os.utime(path, ns=(1, 1))
        tap.equal(two.do(f"v = weights.load({path!r}); said = [v.shared, sums(v)]"), [False, sums],
                  "a file of another time is another model")
        other = os.path.join(folder, "other.safetensors")
        _, others = write(other, "y")
        tap.equal(two.do(f"u = weights.load({other!r}, key='m:1'); said = [u.shared, sums(u)]"), [False, others],
                  "by a key of the caller's")
        os.utime(other, ns=(2, 2))
        tap.has(three.do(f"weights.load({other!r}, key='m:1')"), "other contents",
                "whose contents are what they were")
        same = os.path.join(folder, "same.safetensors")
        write(same, "z")
        os.utime(same, ns=(1, 1))
        tap.equal(two.do(f"t = weights.load({same!r}); said = [t.shared, sums(t) != sums(v)]"), [False, True],
                  "another file of that header, size and time is another model")
        cut = os.path.join(folder, "cut.safetensors")
        write(cut, "c")
        tap.has(two.do("load = weights.Weights._load\n"
                       "def shorter(self, file, start, size):\n"
                       "    load(self, file, start, size)\n"
                       f"    os.truncate({cut!r}, start + size - 1)\n"
                       "weights.Weights._load = shorter\n"
                       f"weights.load({cut!r}, key='cut')"), "beyond the end", "a file that is cut meanwhile is none")
        two.do("weights.Weights._load = load")
        tap.equal([item for item in broker.books()["contents"] if item["key"] == "cut"], [], "and left to others")
        write(cut, "c", [1 << 20, 7])
        tap.has(three.do(f"weights.load({cut!r})"), "than its shape", "nor is one of tensors larger than their bytes")
        for header, told in (({"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}}, "than its shape"),
                             ({"a": {"dtype": "F32", "shape": [2]}}, "is no file of safetensors"),
                             ([1], "is no file of safetensors")):
            text = json.dumps(header).encode()
            Path(other).write_bytes(struct.pack("<Q", len(text)) + text + b"x" * 8)
            tap.has(three.do(f"weights.load({other!r})"), told, "nor is one whose header is wrong")
        Path(other).write_bytes(b"no")
        tap.has(three.do(f"weights.load({other!r})"), "is no file of safetensors", "other files are none")
        Path(path).write_bytes(Path(path).read_bytes()[:-5])
        tap.has(three.do(f"weights.load({path!r})"), "beyond the end", "nor are those that were cut")
        alone = Child(broker, GLAKE_SHARE_BROKER="")
        write(other, "y")
        tap.equal(alone.do(f"sizes = {sizes!r}; w = weights.load({other!r}); said = [w.shared, sums(w)]"),
                  [False, others], "without a broker each loads for itself")
        broker.end()
        left = Child(broker, GLAKE_SHARE_WAIT="20ms")
        tap.equal(left.do(f"sizes = {sizes!r}; w = weights.load({other!r}); said = [w.shared, sums(w)]"),
                  [False, others], "and so while the broker is away")
        tap.equal([child.end() for child in (two, three, alone, left)], [0] * 4, "they end as they should")
    tap.done()


main()
