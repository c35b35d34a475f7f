#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Mistakes that programs in Python make on a GPU, each in a process of its own: by PyTorch's indexing, by Triton and by
CuPy, in the modes that are said to find them. What a mode finds is said with the line that made the tensor.

    torch_mistakes.py [KIND MODE WHAT]
"""

import os
import subprocess
import sys

BY = (1, 16, 256)
MISTAKES = [f"over{by}" for by in BY] + ["after", "read"]
# of reads no mode but full tells
EXPECTED = {("canary", "after"): "nothing", ("canary", "read"): "nothing",
            ("poison", "read"): "nothing", ("full", "read"): "fault", ("full", "after"): "fault"}


class At:
    """Bytes at an address, for whoever takes arrays of others."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def by_torch(address, size, first):
    import torch
    view = torch.as_tensor(At(address, size), device="cuda")
    index = torch.arange(first, size, device="cuda")

    def touch(write):
        if write:
            view[index] = 7
        else:
            view[index].sum().item()
    return touch


def by_triton(address, size, first):
    import torch
    import triton
    import triton.language as tl
    globals()["tl"] = tl

    @triton.jit
    def kernel(p, into, first, n, write: tl.constexpr, block: tl.constexpr):
        at = tl.arange(0, block)
        if write:
            tl.store(p + first + at, (at * 0 + 7).to(tl.uint8), mask=at < n)
        else:
            tl.store(into + at, tl.load(p + first + at, mask=at < n, volatile=True), mask=at < n)

    view = torch.as_tensor(At(address, size), device="cuda")
    into = torch.empty(size, dtype=torch.uint8, device="cuda")
    return lambda write: kernel[(1,)](view, into, first, size - first, write, triton.next_power_of_2(size - first))


def by_cupy(address, size, first):
    import cupy
    memory = cupy.cuda.UnownedMemory(address, size, None, 0)
    view = cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))[first:]

    def touch(write):
        if write:
            view[:] = 7
        else:
            int(view.sum())
        cupy.cuda.runtime.deviceSynchronize()
    return touch


KINDS = {"torch": by_torch, "triton": by_triton, "cupy": by_cupy}


def plant(kind, mode, what):
    """What came of it, in a word."""
    import torch
    import glake
    glake.use(events=4096, stacks=8)
    glake.guard(mode)
    size = 4096
    torch.zeros(1 << 20, device="cuda")
    tensor = torch.ones(size, dtype=torch.uint8, device="cuda")  # the line
    torch.cuda.synchronize()
    address = tensor.data_ptr()
    try:
        first = 0 if what == "after" else size
        more = 0 if what == "after" else 16 if what == "read" else int(what[4:])
        touch = KINDS[kind](address, size + more, first)
        torch.cuda.synchronize()
        if what == "after":
            del tensor
            torch.cuda.synchronize()
        touch(what != "read")
        torch.cuda.synchronize()
    except ImportError as why:
        return f"skip {why}"
    except Exception as why:  # of each library its own
        return "fault" if "illegal" in str(why).lower() else f"{type(why).__name__}: {why}"
    try:
        glake.check()
    except glake.GuardError as why:
        print("#", why, file=sys.stderr)
        return "named" if f"0x{address:x}" in str(why) else f"another: {why}"
    return "nothing"


def main():
    if len(sys.argv) == 4:
        word = plant(*sys.argv[1:])
        print(word, flush=True)
        # the GPU of one that has met a fault is gone
        os._exit(0)
    failed = 0
    for mode in "canary", "poison", "full":
        rows = [(kind, what, subprocess.Popen([sys.executable, __file__, kind, mode, what], stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))
                for kind in KINDS for what in MISTAKES]
        for kind, what, child in rows:
            out, err = child.communicate(timeout=120)
            word = out.split("\n")[0] or err[-300:]
            want = EXPECTED.get((mode, what), "fault" if mode == "full" else "named")
            # it does not launch its kernel on memory that is mapped no more
            refused = kind == "triton" and want == "fault" and "cannot be accessed from Triton" in word
            good = word == want or word.startswith("skip") or refused
            failed += not good
            print(f"{'ok' if good else 'FAILED'}: {mode}, {kind}, {what}: {word}", flush=True)
            if "#" in err:
                print("   ", err[err.index("#"):].split("\n")[0], flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
