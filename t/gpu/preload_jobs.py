#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Small jobs of Python programs that allocate GPU memory in their own ways, for preload.py: each
prints one line that must not depend on where the memory comes from.

    preload_jobs.py cupy|cupy-async|jax|torch|torch-async|numba
"""

import os
import sys


MIB = 1 << 20


def figures(used, reserved, take, trim):
    """What a pool says of 64 MiB that are had and given back, in MiB and whether they went."""
    trim()
    before, held = used(), reserved()
    block = take(64 * MIB)
    had, most = used() - before, reserved()
    del block
    trim()
    return f"{had // MIB} {used() == before} {most - held >= 32 * MIB} {reserved() - held < 32 * MIB}"


def cupy(asynchronous):
    import cupy as cp

    if asynchronous:
        pool = cp.cuda.MemoryAsyncPool()
        cp.cuda.set_allocator(pool.malloc)
    else:
        cp.cuda.set_allocator(None)  # cudaMalloc and cudaFree for each array
    total = 0.0
    for n in (100, 333, 512):
        a = cp.arange(n * n, dtype=cp.float64).reshape(n, n) % 17
        b = a @ a.T
        with cp.cuda.Stream(non_blocking=True) as stream:
            c = cp.sort(b.ravel())[::7] * 2
            stream.synchronize()
        total += float(c.sum() + b.trace())
    said = figures(pool.used_bytes, pool.total_bytes, lambda size: cp.empty(size, cp.uint8),
                   lambda: (cp.cuda.Device().synchronize(), pool.free_all_blocks())
                   ) if asynchronous else ""
    return f"{total:.3f} {said}"


def jax():
    """A few steps of descent with arrays of 1 GiB together. How many bytes JAX has had at most goes
    to stderr, since a plain run may have more."""
    import jax
    import jax.numpy as jnp

    def loss(ws, x):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x.sum()

    @jax.jit
    def step(ws, x):
        return [w - 1e-3 * g for w, g in zip(ws, jax.grad(loss)(ws, x))]

    n = 4096
    x = jnp.arange(n * n, dtype=jnp.float32).reshape(n, n) % 13 / 13
    ws = [jnp.eye(n, dtype=jnp.float32) for _ in range(8)]
    held = 0
    for i in range(12):
        ws = step(ws, x[: 1024 + 128 * i])
        held = max(held, sum(a.nbytes for a in jax.live_arrays()))
    known = jax.devices()[0].memory_stats() or {}
    print(f"peak {max(held, known.get('peak_bytes_in_use', 0))}", file=sys.stderr)
    return f"{float(sum(w.sum() for w in ws)):.6f} on {jax.devices()[0].platform}"


def torch():
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
    step = torch.optim.Adam(model.parameters(), lr=1e-3)
    side = torch.cuda.Stream()
    for i in range(10):
        x = torch.full((64 + 8 * i, 512), 0.01 * i, device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.current_stream())
            y = model(x)
            x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        loss = y.square().mean()
        step.zero_grad()
        loss.backward()
        step.step()
    torch.cuda.empty_cache()
    if "cudaMallocAsync" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        return f"{loss.item().hex()}"
    cuda = torch.cuda
    cuda.reset_peak_memory_stats()
    before = cuda.max_memory_allocated()
    said = figures(cuda.memory_allocated, cuda.memory_reserved,
                   lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"),
                   lambda: (cuda.synchronize(), cuda.empty_cache()))
    return f"{loss.item().hex()} {said} {(cuda.max_memory_allocated() - before) // MIB}"


def numba():
    import numpy as np

    if not hasattr(np, "row_stack"):  # older numba wants what NumPy 2 has dropped
        np.row_stack = np.vstack
    from numba import cuda

    @cuda.jit
    def double(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] *= 2

    a = cuda.to_device(np.arange(100000, dtype=np.float32))
    double[400, 256](a)
    return f"{float(a.copy_to_host().sum()):.1f}"


def main(job):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if job == "jax":
        os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "cuda_async"
        # or the kernels are those that were the fastest in this run
        os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
    if job == "torch":
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if job == "torch-async":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    jobs = {"cupy": lambda: cupy(False), "cupy-async": lambda: cupy(True), "jax": jax,
            "torch": torch, "torch-async": torch, "torch-cached": torch, "numba": numba}
    print(job, jobs[job]())


main(sys.argv[1])
