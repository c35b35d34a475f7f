# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A function in Python that makes room, on the software device, started as front_glake.py does.

    front_shortage.py SOURCE PLUGIN
"""

import tempfile

import front_glake
import tap

# A GPU that is full, and a function that frees as many blocks as it is told to.
FULL = '''
import os, sys, threading
alloc = get("try_alloc", P, N, I, P)
MIB = 1 << 20
kept = [alloc(8 * MIB, 0, None) for _ in range(8)]
calls, frees = [], 1
def forget(asked):
    calls.append((*asked, threading.current_thread().name))
    for _ in range(frees):
        free(kept.pop(), 0, 0, None)
    return frees * 8 * MIB
def request(size, by=None):
    """Until it was served or somebody was asked: on a busy machine a request may go on alone."""
    while True:
        before, ptr = len(calls), (by or alloc)(size * MIB, 0, None)
        if ptr or len(calls) > before:
            return bool(ptr)
'''
SETTINGS = {"GLAKE_SOFT_MEMORY": "64MiB", "GLAKE_POOL_LARGE_PAGE": "2MiB"}


def said_by(folder, code, count, what):
    said = front_glake.python(folder, FULL + code, env=SETTINGS)
    if tap.ok(isinstance(said, list) and (count == 1 or len(said) == count), what, said):
        return said
    return None


def makes_room(folder):
    said = said_by(folder, '''
print(json.dumps([alloc(8 * MIB, 0, None), glake.on_shortage(forget)]))
print(json.dumps([request(8), calls]))
def more(asked):
    forget(asked)
    return request(48, lambda *_: calls.append("again") or alloc(*_))
print(json.dumps([glake.on_shortage(more) is forget, request(8), calls[1:]]))
print(json.dumps([glake.on_shortage(None) is more, alloc(8 * MIB, 0, None), len(calls)]))
''', 4, "a function that makes room")
    if not said:
        return
    tap.equal(said[0], [None, None], "without it a request is refused")
    tap.equal(said[1], [True, [[0, 8 << 20, 0, None, "glake-shortage"]]], "with it it is called once, in a thread of its own")
    tap.equal([said[2][0], said[2][1], said[2][2][1:]], [True, True, ["again"]],
              "what it asks for itself may be refused, and does not call it")
    tap.equal(said[3], [True, None, 3], "none is called any more")


def goes_wrong(folder):
    said = said_by(folder, '''
served = lambda: "glake-shortage" in [thread.name for thread in threading.enumerate()]
start, threading.Thread.start = threading.Thread.start, lambda _: (_ for _ in ()).throw(RuntimeError("no thread"))
text = refused(glake.on_shortage, forget)
threading.Thread.start = start
print(json.dumps([text, glake.on_shortage(forget), served()]))
threading.excepthook = lambda _: 1 / 0
glake.on_shortage(lambda asked: calls.append(1 / 0))
print(json.dumps([alloc(8 * MIB, 0, None), served()]))
class Empty(list):
    __call__ = lambda self, asked: forget(asked)
glake.on_shortage(Empty())
print(json.dumps(request(8)))
calls.clear()
told = []
def raises(asked):
    calls.append(asked)
    raise KeyError("mine")
threading.excepthook = lambda told_of: told.append([told_of.exc_type.__name__, told_of.thread.name])
glake.on_shortage(raises)
print(json.dumps([request(8), len(calls), told]))
def sets(asked):
    calls.append(refused(glake.on_shortage, None))
    forget(asked)
glake.on_shortage(sets)
print(json.dumps([request(8), calls[1], refused(glake.on_shortage, 5)]))
child = os.fork()
if not child:
    text = refused(glake.on_shortage, None)
    os.write(2, text.encode())
    os._exit("FORKED" in text)
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
''', 6, "one that goes wrong")
    if not said:
        return
    tap.ok("no thread (NOMEM_HOST)" in str(said[0][0]) and said[0][1:] == [None, True],
           "without a thread it is refused, and not kept; the next one has one", said[0])
    tap.equal(said[1], [None, True], "what it raises may raise another error where it is told")
    tap.equal(said[2], True, "one that is false is one")
    said = said[3:]
    tap.equal(said[0], [False, 1, [["KeyError", "glake-shortage"]]], "what it raises is told, and the request is refused")
    tap.ok(said[1][0] and "BUSY" in said[1][1] and "cannot be called" in said[1][2], "it sets no other, and is a function", said[1])
    tap.equal(said[2], 1, "a child has none")


def skipped(folder):
    said = said_by(folder, '''
lib = glake.library.load()
held = ctypes.PyDLL(None, handle=lib._handle)
held.glake_torch_try_alloc.restype = ctypes.c_void_p
held.glake_torch_try_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
glake.on_shortage(forget)
print(json.dumps([held.glake_torch_try_alloc(8 * MIB, 0, None), calls]))
print(json.dumps([request(8), len(calls)]))
''', 2, "one that is not called")
    if not said:
        return
    tap.equal(said[0], [None, []], "by a thread that has the lock of the interpreter")
    tap.equal(said[1], [True, 1], "and is when that can be had")


def threads(folder):
    said = said_by(folder, '''
glake.on_shortage(forget)
def had():
    while not alloc(8 * MIB, 0, None):
        pass
some = [threading.Thread(target=had) for _ in range(4)]
for one in some:
    one.start()
for one in some:
    one.join()
print(json.dumps([len(calls) + len(kept), len(calls)]))
''', 1, "several threads")
    if said:
        tap.ok(said[0] == 8 and 4 <= said[1] <= 7, "are served, one after the other, by what it frees for each", said)


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        for part in (makes_room, goes_wrong, skipped, threads):
            part(folder)
    tap.done()


main()
