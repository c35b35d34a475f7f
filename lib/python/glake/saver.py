# SPDX-License-Identifier: LGPL-2.1-or-later
"""
torch_memory_saver on glake. The package has this name as its own and loads this file with it:

    glake.use_memory_saver()       before the first region
    from torch_memory_saver import torch_memory_saver
    with torch_memory_saver.region("weights", enable_cpu_backup=True): ...
    torch_memory_saver.pause("weights")

Regions are pools of PyTorch's own allocator, on segments of glake with a tag; no other library is
loaded, and no LD_PRELOAD is needed. A call that fails raises GlakeError, where the package's own library
ends the process. Contents that are kept lie in locked memory of the host, also with the backend "mmap"
or a disk; get_cpu_backup gives None, and cuda_graph is of its preload alone.
"""

import os

from . import library
from .library import GlakeError


def _check(answer, function, arguments):
    del arguments
    if answer:
        text = library.last_error()["text"] or os.strerror(-answer)
        raise GlakeError(f"{function.__name__}: {text}")
    return answer


def _signatures(theirs):
    def set_up(cdll):
        theirs(cdll)
        cdll.tms_pause.errcheck = cdll.tms_resume.errcheck = _check
    return set_up


def use_memory_saver():
    """Has torch_memory_saver take its memory from glake."""
    try:
        import torch_memory_saver
        from torch_memory_saver import binary_wrapper
        from torch_memory_saver.hooks import mode_torch
    except ImportError as error:
        raise GlakeError(
            f"torch_memory_saver is not installed or does not load: {error}") from None
    if library.plugged:
        raise GlakeError("glake.use() has made glake the allocator; glake.suspend(tag=...) does "
                         "there what torch_memory_saver is for")
    saver = torch_memory_saver.torch_memory_saver
    if saver._impl is not None:
        raise GlakeError("torch_memory_saver is in use already: call glake.use_memory_saver() "
                         "before its first region")
    lib, _ = library.context()
    mode_torch.get_binary_path_from_package = lambda stem: lib.path
    if not getattr(binary_wrapper, "_glake", False):
        binary_wrapper._setup_function_signatures = _signatures(
            binary_wrapper._setup_function_signatures)
        binary_wrapper._glake = True
    saver.hook_mode = "torch"
    return saver
