#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
PyTorch on glake under compute-sanitizer: mistakes between two tensors are reported with the lines that asked for the tensor, and a
program without one is reported as such. One line a case, and the report of what fails.

    torch_sanitizer.py [KIND WHAT]
"""

import inspect
import os
import re
import shutil
import subprocess
import sys

from torch_mistakes import KINDS

WHAT = {"over1": "1 bytes after", "over16": "9 bytes before", "under1": "1 bytes before", "after": "where a block is, or was", "read1": "1 bytes after"}


def tensors(size):
    import torch
    return [torch.ones(size, dtype=torch.uint8, device="cuda") for _ in range(3)]  # the line


def plant(kind, what):
    import torch
    size = 1000
    held = tensors(size)
    torch.cuda.synchronize()
    address = held[1].data_ptr()
    by = int(re.sub(r"\D", "", what) or 0)
    first = {"after": 0, "under1": -1}.get(what, size + by - 1)
    touch = KINDS[kind](address + min(first, 0), first + 1 if first > 0 else size, max(first, 0))
    if what == "after":
        del held[1]
    touch(not what.startswith("read"))
    torch.cuda.synchronize()


def train():
    """A step of a model, with nothing wrong."""
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(100, 333), torch.nn.GELU(), torch.nn.LayerNorm(333), torch.nn.Linear(333, 7)).cuda()
    rate = torch.optim.AdamW(model.parameters())
    for rows in 17, 64, 129:
        loss = model(torch.randn(rows, 100, device="cuda")).square().mean()
        loss.backward()
        rate.step()
        rate.zero_grad()
    print("loss", float(loss))


def main():
    if len(sys.argv) == 3:
        train() if sys.argv[1] == "train" else plant(*sys.argv[1:])
        return 0
    if not shutil.which("compute-sanitizer") and not os.path.exists("/usr/local/cuda/bin/compute-sanitizer"):
        print("skip: no compute-sanitizer")
        return 0
    lines, begin = inspect.getsourcelines(tensors)
    line = begin + next(i for i, text in enumerate(lines) if text.rstrip().endswith("# the line"))
    here = f"{os.path.basename(os.path.dirname(os.path.abspath(__file__)))}/{os.path.basename(__file__)}:{line} "
    rows = [("train", "nothing")] + [("torch", what) for what in WHAT] + [("triton", "over1"), ("cupy", "over1")]
    children = [(kind, what, subprocess.Popen(
        [sys.executable, "-m", "glake.sanitizer", "--tool=memcheck", "--show-backtrace=no", "--print-limit=4", sys.executable, "-m", "glake",
         os.path.abspath(__file__), kind, what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)) for kind, what in rows]
    failed = 0
    for kind, what, child in children:
        out = child.communicate(timeout=300)[0]
        if kind == "train":
            good = "ERROR SUMMARY: 0 errors" in out and "loss" in out
        else:
            report = out[out.find("========= Invalid"):]
            good = "Invalid" in out and WHAT[what] in report and here in report
        good |= "ModuleNotFoundError" in out
        failed += not good
        print(f"{'ok' if good else 'FAILED'}: {kind}, {what}", flush=True)
        begin = max(out.find("========= Invalid"), 0)
        print("    " + out[begin:begin + (700 if good else 3000)].replace("\n", "\n    "), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
