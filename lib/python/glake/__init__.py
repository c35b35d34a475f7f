# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake under Python: GPU memory for PyTorch and CuPy without fragmentation.

    import glake
    glake.use()            # before anything uses the GPU; PyTorch's tensors are glake's then,
                           # and torch.multiprocessing sends them (share.py)

    python3 -m glake train.py ...      the same for a program as it is

    glake.use_cupy()       CuPy's arrays are glake's; use_rmm, use_numba, use_warp and others
                           likewise (doors.py)
    glake.pool()           a torch.cuda.MemPool on glake, below PyTorch's own allocator
    glake.stats()          figures of every GPU; memory_stats() has PyTorch's names
    glake.snapshot()       for pytorch.org/memory_viz; needs use(events=100000), and for the lines
                           that asked for memory use(events=100000, stacks=32) (events.py)
    glake.spill(tensor)    its contents to the host; fetch, suspend and resume (tier.py)
    with glake.tag("weights"):     what is made here goes and comes together: suspend(tag="weights")
                           (tier.py)
    glake.spilled_activations()    what autograd keeps goes to the host until it is needed
                           (spilled.py); spilled_optimizer() likewise (optimizer.py)
    glake.pinned_empty()   pinned memory of the host of the exact size; use_pinned() (host.py)
    glake.guard("canary")  finds what kernels write where they should not; check() raises it with the
                           lines that made the tensors, whose(tensor) says what an address is (guarded.py)
    glake.weights.load()   weights that several processes have once (weights.py)
    glake.trim()           gives unused memory back; budget() bounds what is held
    glake.on_shortage(function)    is called where a request finds no room, and may free some (shortage.py)
    glake.info()           versions, files and the configuration; python3 -m glake --info

The library is looked for in $GLAKE_LIBRARY_PATH and nowhere else if that is set; else in this package
and beside it, in the build folder of a source tree, where it was installed, and where the system
finds libraries (library.py).
"""

import importlib

from .events import history, snapshot, stacks
from .figures import budget, memory_stats, stats, trim
from .installed import VERSION
from .library import GlakeError, info, last_error
from .pytorch import pool, use

__version__ = VERSION
_FILES = {  # loaded with the first of these names
    "guarded": "guard check findings whose GuardError",
    "tier": "spill fetch advise quiet suspend resume tag tags pin unpin",
    "saver": "use_memory_saver", "vllm": "use_vllm VllmAllocator",
    "shortage": "on_shortage",
    "managed_memory": "managed prefetch prefer", "host": "pinned_empty pinned_use use_pinned",
    "spilled": "spilled_activations", "optimizer": "spilled_optimizer",
    "doors": "use_cupy use_numba use_rmm use_warp rmm_resource memory_resource ort_options stream_end"}
__all__ = ["GlakeError", "budget", "history", "info", "last_error", "memory_stats", "pool", "snapshot",
           "stacks", "stats", "trim", "use", *(name for names in _FILES.values() for name in names.split())]


def __getattr__(name):
    """What other runtimes ask for, and what is beyond the GPU, lie in files of their own."""
    for file, names in _FILES.items():
        if name in names.split():
            return getattr(importlib.import_module("." + file, __name__), name)
    if name != "_numba_memory_manager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(".doors", __name__)._numba_class()


def __dir__():
    return sorted({*globals(), *__all__})
