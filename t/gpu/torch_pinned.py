#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Pinned memory of the host under PyTorch: tensors of glake.pinned_empty(), and PyTorch's own pinned
memory since glake.use_pinned(), which takes a C++ compiler. Copies that do not block, from tensors that
go while they are under way, are checked word by word; it tells what both allocators hold for the same
tensors.

    torch_pinned.py
"""

import gc
import sys

import torch

import glake

SIZES = [(1 << 20) + 7, 33 << 20, (5 << 20) + 1, (65 << 20) + 3, 17 << 20, (129 << 20) + 5]
failed = 0


def check(good, text, *more):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {text}", *more, flush=True)


def held():
    return glake.stats(0)["host_pool_held"]


def exactly(make, name):
    """What is held for tensors of odd sizes that only become more."""
    glake.trim(0)
    kept = [make(size) for size in SIZES]
    check(held() <= 1.15 * sum(SIZES) + (32 << 20),
          f"{name}: what is held for tensors of their own size", f"{held() / sum(SIZES):.3f}")
    del kept


def racing(make, name):
    """Tensors go while copies of them wait behind work, and others take what is free."""
    work = torch.randn(8192, 8192, device="cuda")
    there, wrong = [], 0
    for turn in range(40):
        for _ in range(4):
            work = work @ work
            work = work / work.norm()
        tensor = make(3 << 20)
        tensor.fill_(turn)
        there.append(tensor.to("cuda", non_blocking=True))
        del tensor
    torch.cuda.synchronize()
    for turn, tensor in enumerate(there):
        wrong += not bool((tensor == turn).all())
    check(not wrong, f"{name}: copies from tensors that go", wrong)


def own(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def exact(size):
    return glake.pinned_empty(size, dtype=torch.uint8)


def main():
    if not torch.cuda.is_available():
        sys.exit("no GPU")
    torch.cuda.init()
    x = exact(1000)
    check(x.is_pinned(), "a tensor of pinned_empty is pinned")
    del x
    gc.collect()
    racing(exact, "pinned_empty")
    exactly(exact, "pinned_empty")
    gc.collect()
    glake.trim(0)
    check(held() == 0, "all goes back", held())
    kept = [own(size) for size in SIZES]
    if hasattr(torch.cuda, "host_memory_stats"):
        print("PyTorch's own allocator holds",
              f"{torch.cuda.host_memory_stats()['allocated_bytes.current'] / sum(SIZES):.3f}")
    glake.use_pinned()
    check(all(t.is_pinned() for t in kept), "what was pinned before is still")
    del kept
    gc.collect()
    before = glake.stats(0)["host_pool_allocs"]
    x = own(1000)
    check(glake.stats(0)["host_pool_allocs"] == before + 1 and x.is_pinned(),
          "pin_memory=True is glake's")
    check(torch.randn(1000).pin_memory().is_pinned(), "and so is tensor.pin_memory()")
    exactly(own, "use_pinned")
    gc.collect()
    racing(own, "use_pinned")
    graph, where = torch.cuda.CUDAGraph(), torch.empty(1000, dtype=torch.uint8, device="cuda")
    with torch.cuda.graph(graph):
        where.copy_(x, non_blocking=True)
    for turn in range(5):
        x.fill_(turn)
        graph.replay()
        torch.cuda.synchronize()
        check(bool((where == turn).all()), "a graph copies what is there", turn)
    sys.exit(1 if failed else 0)


main()
