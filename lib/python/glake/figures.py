# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What the library counts, under its own names and under those of PyTorch, and the bounds of what it holds.
"""

import collections
import ctypes
import re

from . import library
from .library import GlakeError
from .records import CALLS, RUNGS, Device, DriverStats, Stats

_CREATE, _RELEASE, _SYNC = (CALLS.index(name) for name in ("create", "release", "sync"))


def stats(device=None):
    """The figures of a GPU as the library has them, or of all of them by their numbers."""
    if library.unused():
        return {}
    if device is None:
        return {i: stats(i) for i in range(library.call("glake_device_count"))}
    figures = library.fetch("glake_stats_get", Stats(), library.index(device))
    driver = library.fetch("glake_driver_stats_get", DriverStats())
    row = {name: getattr(figures, name) for name, _ in Stats._fields_[1:]}
    return dict(row, rungs=dict(zip(RUNGS, figures.rungs)),
                driver_calls=dict(zip(CALLS, driver.calls)), driver_ns=driver.now_ns,
                driver_call_ns=dict(zip(CALLS, driver.ns)))


def trim(device=None, keep=0):
    """Gives memory that nothing uses back to the driver; the number of bytes."""
    if library.unused():
        return 0
    if device is None:
        return sum(trim(i, keep) for i in range(library.call("glake_device_count")))
    return library.fetch("glake_trim", ctypes.c_size_t(), library.index(device),
                         ctypes.c_size_t(library.number("trim: keep", keep))).value


def _part(size):
    """0.8, "0.8" or "80%" as a number; None for a size."""
    if isinstance(size, float) and size > 1 and size.is_integer():
        return None
    text = str(size)
    if not (isinstance(size, float) or re.fullmatch(r"[0-9.]*%|[0-9]*\.[0-9]*", text)):
        return None
    try:
        part = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise GlakeError(f"budget: '{text}' is no part of a GPU; right is above 0% to 100%, as 80% or 0.8 "
                         "(INVAL)")
    return part


def budget(size=None, device=None):
    """
    Sets the most physical memory to hold on a GPU, in bytes, as "24GiB", or a part of the GPU, as "80%" or
    0.8; says what it is.
    """
    device, value = library.index(device), ctypes.c_uint64()
    if size is not None:
        part = _part(size)
        text = size if isinstance(size, str) else str(int(size) if isinstance(size, float) else library.number("budget", size))
        if part:
            value.value = int(part * library.fetch("glake_device_get", Device(), device).memory)
        elif library.load().glake_size_parse(text.encode(), ctypes.byref(value)):
            raise GlakeError(f"budget: {library.last_error()['text']} (INVAL)")
        library.call("glake_budget_set", device, ctypes.c_size_t(value.value))
    most = library.fetch("glake_budget_get", ctypes.c_size_t(), device).value
    return None if most == ctypes.c_size_t(-1).value else most


def _stat(current, peak=None, allocated=None):
    """One statistic of PyTorch. There are no small and large pools: all is in large_pool."""
    allocated = current if allocated is None else allocated
    row = {"current": current, "peak": max(peak or 0, current), "allocated": allocated,
           "freed": allocated - current}
    return {"all": row, "large_pool": dict(row), "small_pool": dict.fromkeys(row, 0)}


def nested_stats(device):
    f = library.fetch("glake_stats_get", Stats(), device)
    calls = library.fetch("glake_driver_stats_get", DriverStats()).calls
    blocks, taken = _stat(f.live_blocks, None, f.allocs), _stat(f.given, f.peak_live)
    nothing = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return {
        "allocation": blocks, "active": blocks, "allocated_bytes": taken, "active_bytes": taken,
        "requested_bytes": _stat(f.live, f.peak_live),
        "reserved_bytes": _stat(f.reserved, f.peak_reserved),
        "segment": _stat(calls[_CREATE] - calls[_RELEASE], None, calls[_CREATE]),
        "inactive_split": _stat(f.free_extents),
        "inactive_split_bytes": _stat(max(f.reserved - f.free_pages - f.given, 0)),
        "oversize_allocations": nothing, "oversize_segments": nothing, "max_split_size": -1,
        "num_alloc_retries": sum(f.rungs), "num_ooms": f.oom, "num_sync_all_streams": calls[_SYNC],
        "num_device_alloc": calls[_CREATE], "num_device_free": calls[_RELEASE]}


def memory_stats(device=None):
    """The same under the names of torch.cuda.memory_stats, as far as they mean something here."""
    def flat(prefix, rows):
        for name, row in rows.items():
            yield from flat(f"{prefix}{name}.", row) if isinstance(row, dict) else [
                (prefix + name, row)]

    rows = {} if library.unused() else nested_stats(library.index(device))
    return collections.OrderedDict(sorted(flat("", rows)))
