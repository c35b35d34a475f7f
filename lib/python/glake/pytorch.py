# SPDX-License-Identifier: LGPL-2.1-or-later
"""
PyTorch on glake: glake.use() makes it the allocator of all tensors, with every hook, and glake.pool() one
below PyTorch's own.
"""

import ctypes
import functools
import os
import warnings

from . import figures, library
from .events import history, snapshot
from .library import GlakeError

_kept = []  # what PyTorch holds by address only


def module():
    """PyTorch, if it is one that takes plug-ins."""
    try:
        import torch
    except ImportError as error:
        raise GlakeError(f"PyTorch is not installed: {error}") from None
    if not getattr(torch.version, "cuda", None):
        raise GlakeError(f"PyTorch {torch.__version__} is built without CUDA")
    if not hasattr(torch.cuda.memory, "CUDAPluggableAllocator"):
        raise GlakeError(f"PyTorch {torch.__version__} is too old: it takes no plug-in")
    return torch


_HOOKS = dict(zip(
    ("set_init_fn set_reset_fn set_memory_fraction_fn set_base_alloc_fn set_record_stream_fn "
     "set_begin_allocate_to_pool set_end_allocate_to_pool_fn set_release_pool").split(),
    "init reset memory_fraction base_alloc record_stream begin_pool end_pool release_pool".split()))


def plug_in(torch, alloc, free, hooks):
    """An allocator of PyTorch, made of functions of the library."""
    from . import share  # where PyTorch is used; it needs this file whole
    lib = library.load()
    share.answer(torch)  # tensors for other processes
    plug = torch.cuda.memory.CUDAPluggableAllocator(lib.path, alloc, free)
    inside = plug.allocator()
    for setter, name in hooks.items():
        if not hasattr(inside, setter):
            raise GlakeError(f"PyTorch {torch.__version__} is too old: its allocators have no "
                             f"{setter}, and without it memory would be used too early or twice")
        function = getattr(lib, "glake_torch_" + name)
        getattr(inside, setter)(ctypes.cast(function, ctypes.c_void_p).value)
    _kept.append(plug)
    return plug


def _answer_for_torch(torch):
    """Functions that PyTorch's class of plug-ins leaves without an answer, answered here."""
    inner_compile, cudnn = torch.compile, type(torch.backends.cudnn).__dict__.get("benchmark")

    def record(enabled, context, _stacks, most, *_):
        history(most if enabled else 0, stacks=bool(context))

    def benchmark(wanted):
        if wanted:
            warnings.warn("glake: cudnn.benchmark stays off: PyTorch asks its own allocator for "
                          "the largest block then, and no plug-in can answer", stacklevel=3)

    def compiled(*arguments, **named):
        import torch._inductor.config as config
        config.triton.cudagraph_trees = False  # these keep books in PyTorch's own allocator
        return inner_compile(*arguments, **named)

    def fraction(device):
        memory = torch.cuda.get_device_properties(device).total_memory
        return min(1.0, (figures.budget(device=device) or memory) / memory)

    answers = {
        "_cuda_memoryStats": figures.nested_stats,
        "_cuda_resetPeakMemoryStats": lambda device: library.call("glake_stats_reset", device),
        "_cuda_resetAccumulatedMemoryStats": lambda device: None,
        "_cuda_memorySnapshot": lambda *_: snapshot(),
        "_cuda_record_memory_history": record,
        "_cuda_getMemoryFraction": fraction,
        "_accelerator_getDeviceStats": figures.nested_stats,
        "_accelerator_resetPeakStats": lambda device: library.call("glake_stats_reset", device),
        "_accelerator_resetAccumulatedStats": lambda device: None,
        "_set_cudnn_benchmark": benchmark,
    }
    for owner, rows in ((torch._C, answers), (torch, {"compile": compiled}),
                        (cudnn, {"setter": benchmark})):
        for name, answer in rows.items():
            if hasattr(owner, name):
                setattr(owner, name, functools.wraps(getattr(owner, name), updated=())(answer))


def _install(torch):
    """Puts the class of torch_allocator.cc in the place of PyTorch's allocator. Says why there is no
    object of it for this PyTorch, if there is none."""
    from . import compiler, share
    try:
        made = compiler.load(torch, "allocator", "-lc10", "-lc10_cuda", "-ltorch_cuda")
    except compiler.NotMade as error:
        return str(error)
    made.glake_torch_install.restype = ctypes.c_char_p
    why = made.glake_torch_install()
    if why:
        raise GlakeError(f"PyTorch keeps its allocator: {why.decode(errors='replace')}")
    share.answer(torch)  # tensors for other processes
    _kept.append(made)
    library.watch = made.glake_torch_watch
    return ""


def _plug_in(torch, answers):
    """The same by function pointers, which do not reach all of PyTorch."""
    plug = plug_in(torch, "glake_torch_alloc", "glake_torch_free", _HOOKS)
    try:
        torch.cuda.memory.change_current_allocator(plug)
    except RuntimeError as error:
        raise GlakeError(f"PyTorch keeps its allocator, something has used it: {error}") from None
    if answers:
        _answer_for_torch(torch)


def use(*, settings=None, answers=True, events=0, stacks=0):
    """
    Makes glake PyTorch's allocator, with every hook. To be called before CUDA starts. `settings`
    are keys of glake.conf(5), as {"pool.budget": "24GiB"}, also for processes started later. With
    `answers` torch.cuda.memory_stats and its kind work, and `events` are kept for snapshot(), with
    `stacks` frames of each.
    """
    if library.plugged:
        return
    torch = module()
    if torch.cuda.is_initialized():
        raise GlakeError("CUDA is already initialised: call glake.use() before anything uses the "
                         "GPU, at best right after importing torch, or run python3 -m glake")
    why = _install(torch)
    if why:
        warnings.warn(f"glake serves PyTorch {torch.__version__} as a plug-in, without cudagraph trees, "
                      f"torch.cuda.MemPool and snapshots of PyTorch's own: {why}", stacklevel=2)
        _plug_in(torch, answers)
    library.plugged = True
    for key, value in (settings or {}).items():
        os.environ["GLAKE_" + key.upper().replace(".", "_")] = str(value)
    if events:
        history(events, stacks=stacks)


def pool(**options):
    """
    A torch.cuda.MemPool, which takes the options, whose segments are glake's. PyTorch's allocator
    stays on top, with its statistics, graphs and sharing; glake sees its segments only.
    """
    torch = module()
    if library.plugged:
        raise GlakeError("glake.use() has made glake the allocator, so all memory is glake's; "
                         "glake.pool() is for programs that keep PyTorch's")
    if not hasattr(torch.cuda, "MemPool"):
        raise GlakeError(f"PyTorch {torch.__version__} is too old: it has no torch.cuda.MemPool")
    library.context()
    plug = plug_in(torch, "glake_torch_segment_alloc", "glake_torch_segment_free", {})
    return torch.cuda.MemPool(plug.allocator(), **options)
