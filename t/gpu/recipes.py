#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Recipes of glake-recipes(7) on a GPU, each block as the page has it, with a line behind it that looks at glake's own counters:

    FOLDER/python FOLDER/recipes.py [NAME...]

What a package or a second GPU is missing for skips.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = next(path for path in (HERE / "glake-recipes.md", HERE.parents[1] / "lib/man/glake-recipes.md") if path.exists())
TOOL = HERE / "glakectl" if (HERE / "glakectl").exists() else HERE.parents[1] / "build/lib/tool/glakectl"
LIVE = "\nimport glake\nlive = glake.stats(0)['live']\nassert live >= {}, live\n"
TRAIN = "import torch\nx = torch.ones(1 << 24, device='cuda')\n" + LIVE.format(1 << 26)
# of each its package, what is behind its block in Python, or the program that its shell block starts, and the GPUs it wants
RECIPES = {
    "PyTorch": ("torch", TRAIN, None, 1),
    "CuPy": ("cupy", LIVE.format(8 << 20), None, 1),
    "RMM and cuDF": ("rmm", LIVE.format(1 << 20), None, 1),
    "numba": ("numba", "import numpy\nfrom numba import cuda\na = cuda.to_device(numpy.ones(1 << 20))\n" + LIVE.format(8 << 20),
              "program.py", 1),
    "JAX": ("jax", "import jax\nx = jax.numpy.ones((4096, 4096)) @ jax.numpy.ones((4096, 4096))\nprint(float(x[0, 0]))\n",
            "train.py", 1),
    "DDP and FSDP": ("torch", "import os, torch, torch.distributed as dist\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
                     "dist.init_process_group('nccl')\nm = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())\n"
                     "m(torch.ones(8, 512, device='cuda')).sum().backward()\nimport glake\n"
                     "assert glake.stats()[int(os.environ['LOCAL_RANK'])]['live'] >= 1 << 20\ndist.destroy_process_group()\n",
                     "train.py", 2),
}


def block(name, kind):
    part = re.search(rf"^##+ {name}\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M)[1]
    return re.search(rf"^```{kind}(?: run)?\n(.*?)^```$", part, re.S | re.M)[1]


def gpus():
    said = subprocess.run([str(TOOL), "info", "--json", "--driver", "cuda"], capture_output=True, text=True, check=False)
    return len(re.findall(r'"index":', said.stdout)) if said.returncode == 0 else 0


def main():
    names = sys.argv[1:] or list(RECIPES)
    print(f"1..{len(names)}")
    count, failed = gpus(), 0
    for i, name in enumerate(names):
        package, program, path, wanted = RECIPES[name]
        found = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0
        if count < wanted or not found:
            print(f"ok {i + 1} - {name} # SKIP {'no ' + package if not found else f'{count} GPUs'}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            if path:
                Path(folder, path).write_text(program, encoding="ascii")
                command = ["sh", "-ec", block(name, "sh")]
            else:
                Path(folder, "recipe.py").write_text(block(name, "python") + program, encoding="ascii")
                command = [sys.executable, "recipe.py"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env={
                **os.environ, "PATH": f"{TOOL.parent}:{os.environ['PATH']}", "NCCL_NVLS_ENABLE": "0"})
        served = name != "JAX" or re.search(r"[1-9]\d* blocks", done.stderr)
        failed += done.returncode != 0 or not served
        print(f"{'ok' if not done.returncode and served else 'not ok'} {i + 1} - {name}", flush=True)
        for line in (done.stdout + done.stderr).splitlines()[-12 if done.returncode or not served else -3:]:
            print("#", line)
    sys.exit(failed > 0)


main()
