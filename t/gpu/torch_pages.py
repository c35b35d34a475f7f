#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Whether kernels are slower in memory that consists of many physical pages, in one table.

    torch_pages.py [--rounds N] [--ms N] [--json FILE]

The same kernels run by turns in memory of cudaMalloc, of PyTorch's expandable segments, of glake as
a new context gives it, and of glake stitched from single pages of 2 MiB that lie apart. A GPU that
runs hot changes its clock all the time, so every time is compared with that of cudaMalloc in the
same round, and the table has the median of those ratios, least to most in brackets: above 1 is slower
than cudaMalloc. `again` is memory of cudaMalloc another time, which shows what a ratio is worth.
"""

import argparse
import ctypes
import json
import os
import random
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../lib/python")]
MIB = 1 << 20
TOKENS, WIDTH = 3072, 5120  # of a layer of OPT-13B
COPY, TABLE, ROW, ROWS = 1 << 30, 4 << 30, 1024, 1 << 20


class Memory:
    """What PyTorch makes a tensor of."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


class Glake:
    def __init__(self, apart):
        import glake
        self.glake, self.context = glake.library.context()
        self.apart, self.kept = apart, []

    def block(self, size):
        address = ctypes.c_void_p()
        error = self.glake.glake_alloc(
            self.context, 0, ctypes.c_size_t(size), None, 0, ctypes.byref(address))
        if error:
            raise MemoryError(f"glake_alloc of {size} bytes: {error}")
        return address.value

    def free(self, address):
        error = self.glake.glake_free(self.context, ctypes.c_void_p(address), None)
        if error:
            raise RuntimeError(f"glake_free: {error}")

    def bytes(self, torch, size):
        if self.apart:
            # every second page, by chance, of twice as many
            pages = [self.block(2 * MIB) for _ in range(2 * (size // (2 * MIB) + 1))]
            random.Random(size).shuffle(pages)
            self.kept += pages[::2]
            for page in pages[1::2]:
                self.free(page)
        return torch.as_tensor(Memory(self.block(size), size), device="cuda")


class PyTorch:
    def __init__(self, expandable):
        self.expandable = expandable

    def bytes(self, torch, size):
        torch.cuda.memory._set_allocator_settings(f"expandable_segments:{self.expandable}")
        return torch.empty(size, dtype=torch.uint8, device="cuda")


def made(torch, source):
    """A kernel's name and what runs it once."""
    generator = torch.Generator(device="cuda").manual_seed(1)

    def matrix(rows, columns):
        m = source.bytes(torch, rows * columns * 2).view(torch.bfloat16).view(rows, columns)
        return m.normal_(generator=generator)

    x, w, y = matrix(TOKENS, WIDTH), matrix(WIDTH, 4 * WIDTH), matrix(TOKENS, 4 * WIDTH)
    grad_w, grad_x = matrix(WIDTH, 4 * WIDTH), matrix(TOKENS, WIDTH)
    one, other = source.bytes(torch, COPY), source.bytes(torch, COPY)
    table = source.bytes(torch, TABLE).view(torch.float32).view(-1, ROW // 4)
    rows = source.bytes(torch, ROWS * ROW).view(torch.float32).view(-1, ROW // 4)
    places = torch.randint(table.shape[0], (ROWS,), generator=generator, device="cuda")
    one.random_(generator=generator)
    table.normal_(generator=generator)
    return {
        "forward": lambda: torch.mm(x, w, out=y),
        "gradient of inputs": lambda: torch.mm(y, w.t(), out=grad_x),
        "gradient of weights": lambda: torch.mm(x.t(), y, out=grad_w),
        "elements": lambda: y.mul_(1.0),
        "copy of 1 GiB": lambda: other.copy_(one),
        "rows of 1 KiB by chance": lambda: torch.index_select(table, 0, places, out=rows),
    }


def timed(torch, run, times):
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()  # the caches of addresses are another source's
    began.record()
    for _ in range(times):
        run()
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) / times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ms", type=float, default=20, help="for a kernel in a round")
    parser.add_argument("--json")
    args = parser.parse_args()
    import torch
    torch.cuda.init()
    sources = {
        "cudaMalloc": PyTorch(False), "again": PyTorch(False), "expandable": PyTorch(True),
        "glake": Glake(False), "glake, pages apart": Glake(True)}
    work = {name: made(torch, source) for name, source in sources.items()}
    first = work["cudaMalloc"]
    times = {kernel: max(1, round(args.ms / timed(torch, run, 3))) for kernel, run in first.items()}
    found = {kernel: {name: [] for name in sources} for kernel in first}
    for number in range(args.rounds):
        for kernel, many in times.items():
            names = list(sources)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                found[kernel][name].append(timed(torch, work[name][kernel], many))
    import glake
    stats = glake.stats(0)
    print(f"# {torch.cuda.get_device_name()}, {args.rounds} rounds; glake stitched "
          f"{stats['stitches']} blocks, {stats['driver_calls']['create']} pages made, "
          f"{stats['driver_calls']['map']} mapped")
    print("| kernel | ms | " + " | ".join(name for name in sources if name != "cudaMalloc") + " |")
    print("|---|---|" + "---|" * (len(sources) - 1))
    for kernel, by in found.items():
        base = by["cudaMalloc"]
        cells = []
        for name in list(sources)[1:]:
            ratios = sorted(mine / theirs for mine, theirs in zip(by[name], base))
            cells.append(f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        print(f"| {kernel} | {statistics.median(base):.3f} | " + " | ".join(cells) + " |")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
