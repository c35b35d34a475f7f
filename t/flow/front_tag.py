# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tags in the Python module, on the software device: no kernel runs here, so the program writes itself.

    front_tag.py SOURCE PLUGIN
"""

import json
import os
import subprocess
import sys
import tempfile

import tap

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:])
START = '''
import ctypes, json, threading, glake
def refused(function, *arguments, **named):
    try:
        return repr(function(*arguments, **named))
    except glake.GlakeError as error:
        return str(error)
def alloc(size):
    lib = glake.library.load()
    glake.library.context()
    return lib.glake_torch_try_alloc(size, 0, None)
def holds(ptr, value, size):
    return ctypes.string_at(ptr, size) == bytes([value]) * size
'''


def python(code, **env):
    """What a program prints, each line as JSON; a dict with its error if it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    clean.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
                 PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1",
                 PYTHONPATH=SOURCE)
    for name, value in env.items():
        clean[name] = clean.get(name, "") + ":" + value if name == "PYTHONPATH" else value
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, "-S", "-c", START + code], env=clean, timeout=120,
                             capture_output=True, text=True, check=False, cwd=folder)
    if run.returncode:
        return {"failed": run.returncode, "said": run.stderr}
    return [json.loads(line) for line in run.stdout.splitlines()]


def comes_and_goes():
    said = python('''
size = 3 << 20
with glake.tag("weights"):
    w, small = alloc(size), alloc(1000)
    with glake.tag("kv"):
        kv = alloc(size)
    with glake.tag(None):
        none = alloc(size)
    again = alloc(500)
plain = alloc(size)
for i, p in enumerate((w, kv, none, plain)):
    ctypes.memset(p, i + 1, size)
ctypes.memset(small, 9, 1000)
print(json.dumps([glake.tags()["weights"]["0" if "0" in glake.tags()["weights"] else 0],
                  glake.stats(0)["tagged_blocks"], glake.stats(0)["tags"]]))
gone = glake.suspend(tag="weights")[0]
lost = glake.suspend(0, tag="kv", keep=False)
print(json.dumps([gone, lost, glake.tags()["weights"][0], glake.stats(0)["away_blocks"]]))
with glake.tag("weights"):
    refusal = alloc(100)
print(json.dumps([refusal, bool(alloc(100)), holds(none, 3, size), holds(plain, 4, size),
                  refused(glake.fetch, w), refused(glake.resume), refused(glake.resume, tag="x"),
                  refused(glake.suspend, keep=False), refused(glake.suspend, tag="y" * 64),
                  refused(glake.tag("y" * 64).__enter__), refused(glake.tag(b"x").__enter__)]))
print(json.dumps([glake.resume(0, tag="weights")["moved_blocks"], glake.resume(tag="kv")[0]["moved"],
                  holds(w, 1, size), holds(small, 9, 1000)]))
ctypes.memset(kv, 7, size)
def elsewhere():
    print(json.dumps([glake.stats(0)["tagged_blocks"], bool(alloc(5000)),
                      glake.stats(0)["tagged_blocks"]]))
with glake.tag("weights"):
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
''')
    if not tap.ok(isinstance(said, list), "tags", said):
        return
    told, (gone, lost, away, blocks), refusals, back, thread = said
    tap.equal([told[0]["blocks"], told[0]["live"], told[0]["suspended"]],
              [3, (3 << 20) + 1500, False], "a tag has what was made under it")
    tap.equal(told[1:], [4, 2], "tags inside of tags have their own")
    tap.equal([gone["moved"], gone["dropped"], lost["moved"], lost["dropped"]],
              [(3 << 20) + 1500, 0, 0, 3 << 20], "one goes, and one is dropped")
    tap.equal([away["held"], away["away"], away["suspended"], blocks], [0, 3, True, 4],
              "nothing of them is held")
    tap.equal(refusals[:4], [None, True, True, True], "what has no tag goes on")
    for text, want in zip(refusals[4:], ("is suspended", "not suspended", "no tag 'x'",
                                         "of a tag", "no tag", "1 to 63 bytes", "no name")):
        tap.has(text, want, f"refused: {want}")
    tap.equal(back, [3, 3 << 20, True, True], "they come back, with what was kept")
    tap.equal(thread, [4, True, 4], "another thread has no tag")


def pins():
    said = python('''
p, q = alloc(3 << 20), alloc(3 << 20)
glake.pin(p)
glake.pin(p)
glake.advise(q, "discardable", priority=3)
print(json.dumps([refused(glake.spill, p), glake.suspend(0)]))
print(json.dumps([refused(glake.pin, q), glake.resume(0)["moved_blocks"]]))
glake.unpin(p)
glake.unpin(p)
print(json.dumps([refused(glake.unpin, p), refused(glake.spill, p),
                  refused(glake.advise, q, "cold", priority=9)]))
''')
    if not tap.ok(isinstance(said, list), "pins", said):
        return
    (stays, gone), (away, back), (never, none, rank) = said
    tap.has(stays, "is pinned", "a pinned block stays")
    tap.equal([gone["stayed_blocks"], gone["dropped"], gone["moved"]], [1, 3 << 20, 0],
              "also when all others go, one of them without its contents")
    tap.has(away, "is away", "what is away is not pinned")
    tap.equal(back, 1, "it comes back")
    tap.has(never, "is not pinned", "pins are counted")
    tap.equal(none, "None", "without them it goes")
    tap.has(rank, "0 to 7", "a priority is checked")


def main():
    tap.start()
    comes_and_goes()
    pins()
    tap.done()


main()
