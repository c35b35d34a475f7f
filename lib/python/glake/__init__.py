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
                           that asked for memory use(events=100000, stacks=32) (frames.py)
    glake.spill(tensor)    its contents to the host; fetch, suspend and resume (tier.py)
    with glake.tag("weights"):     what is made here goes and comes together: suspend(tag="weights")
                           (tagging.py)
    glake.spilled_activations()    what autograd keeps goes to the host until it is needed
                           (spilled.py); spilled_optimizer() likewise (optimizer.py)
    glake.pinned_empty()   pinned memory of the host of the exact size; use_pinned() (host.py)
    glake.trim()           gives unused memory back; budget() bounds what is held
    glake.info()           versions, files and the configuration; python3 -m glake --info

The library is looked for in $GLAKE_LIBRARY_PATH and nowhere else if that is set; else beside this
file, in the build folder of a source tree, where it was installed, and where the system finds
libraries (library.py).
"""

import collections
import ctypes
import functools
import importlib
import os
import pickle
import sys
import warnings

from . import library
from .installed import DATADIR as _DATADIR, LIBDIR as _LIBDIR, VERSION as __version__
from .library import GlakeError
from .records import (_CALLS, _RUNGS, _Block, _DriverStats, _Error, _many, _Record, _Sized,
                           _Stats)

_HERE = os.path.dirname(os.path.realpath(__file__))
_CREATE, _RELEASE, _SYNC = (_CALLS.index(name) for name in ("create", "release", "sync"))

_lib, _kept = None, []  # kept: what others hold by address only
_state = {"torch": False, "allocator": None, "events": 0}


def _load():
    global _lib
    if _lib:
        return _lib
    lib = library.load(_LIBDIR, __version__, os.path.realpath(__file__))
    pointer, size, number, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
    for name, result, *arguments in (
            ("glake_torch_context", pointer), ("glake_torch_why", text),
            ("glake_torch_try_alloc", pointer, size, number, pointer),
            ("glake_torch_give_back", None, pointer), ("glake_torch_history", number, size),
            ("glake_torch_history_get", size, number, pointer, size),
            ("glake_error_class_name", text, number)):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    _lib = lib
    return lib


def _context():
    """The library and the context of this process, opened if it was not."""
    lib = _load()
    context = lib.glake_torch_context()
    if not context:
        raise GlakeError("glake could not be opened: " + lib.glake_torch_why().decode())
    return lib, ctypes.c_void_p(context)


def _call(name, *arguments):
    lib, context = _context()
    answer = getattr(lib, name)(context, *arguments)
    if answer < 0:
        error = last_error()
        raise GlakeError(f"{name}: {error['text'] or os.strerror(-answer)} ({error['class']})")
    return answer


def _fetch(function, record, *arguments):
    _call(function, *arguments, ctypes.byref(record))
    return record


def _unused():
    """Whether PyTorch has not begun to use its GPUs: asking for figures would open them."""
    return _state["torch"] and not _load().glake_torch_opened()


def last_error():
    """The record of the last call of this thread that failed."""
    lib, record = _load(), _Error()
    lib.glake_last_error(ctypes.byref(record))
    return {"err": record.err, "class": lib.glake_error_class_name(record.error_class).decode(),
            "native": record.native, "call": record.call.decode(),
            "text": record.text.decode(errors="replace")}


def info():
    """The version, what was loaded from where, and the configuration file that is read."""
    return library.info(_load(), __version__, os.path.realpath(__file__))


def _index(device):
    """A device as PyTorch takes it: a number, 'cuda:1', a torch.device, None for the current."""
    if device is None and "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        return sys.modules["torch"].cuda.current_device()
    index = getattr(device, "index", device)
    if isinstance(device, str):
        index = device.partition(":")[2]
    return int(index or 0)


def stats(device=None):
    """The figures of a GPU as the library has them, or of all of them by their numbers."""
    if _unused():
        return {}
    if device is None:
        return {i: stats(i) for i in range(_call("glake_device_count"))}
    figures = _fetch("glake_stats_get", _Stats(), _index(device))
    driver = _fetch("glake_driver_stats_get", _DriverStats())
    row = {name: getattr(figures, name) for name, _ in _Stats._fields_[1:]}
    return dict(row, rungs=dict(zip(_RUNGS, figures.rungs)),
                driver_calls=dict(zip(_CALLS, driver.calls)), driver_ns=driver.now_ns,
                driver_call_ns=dict(zip(_CALLS, driver.ns)))


def trim(device=None, keep=0):
    """Gives memory that nothing uses back to the driver; the number of bytes."""
    if _unused():
        return 0
    if device is None:
        return sum(trim(i, keep) for i in range(_call("glake_device_count")))
    return _fetch("glake_trim", ctypes.c_size_t(), _index(device), ctypes.c_size_t(keep)).value


def budget(size=None, device=None):
    """Sets the most physical memory to hold on a GPU, in bytes or as "24GiB"; says what it is."""
    device, value = _index(device), ctypes.c_uint64()
    if size is not None:
        size = str(size if isinstance(size, str) else int(size)).encode()
        if _load().glake_size_parse(size, ctypes.byref(value)):
            raise GlakeError(f"budget: {last_error()['text']} (INVAL)")
        _call("glake_budget_set", device, ctypes.c_size_t(value.value))
    most = _fetch("glake_budget_get", ctypes.c_size_t(), device).value
    return None if most == ctypes.c_size_t(-1).value else most


def _stat(current, peak=None, allocated=None):
    """One statistic of PyTorch. There are no small and large pools: all is in large_pool."""
    allocated = current if allocated is None else allocated
    row = {"current": current, "peak": max(peak or 0, current), "allocated": allocated,
           "freed": allocated - current}
    return {"all": row, "large_pool": dict(row), "small_pool": dict.fromkeys(row, 0)}


def _nested_stats(device):
    f = _fetch("glake_stats_get", _Stats(), device)
    calls = _fetch("glake_driver_stats_get", _DriverStats()).calls
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

    rows = {} if _unused() else _nested_stats(_index(device))
    return collections.OrderedDict(sorted(flat("", rows)))


def history(events=100000, *, stacks=0):
    """Begins to remember requests for snapshot(), and with `stacks` so many Python frames of who
    asked (frames.py); 0 ends that. About 100 ns an event, and 1 us with 20 frames."""
    lib = _load()
    if stacks or "glake.frames" in sys.modules:
        importlib.import_module(".frames", __name__).begin(stacks if events else 0)
    if lib.glake_torch_history(min(int(events), sys.maxsize)):
        raise GlakeError("there is no memory for a history")
    if _state["allocator"]:
        _state["allocator"].glake_torch_watch(int(events > 0))
    _state["events"] = int(events)


def _records(live):
    get = _load().glake_torch_history_get
    records = (_Record * (get(live, None, 0) + 1024))()  # others may add some
    return records[:min(get(live, records, len(records)), len(records))]


def _pages(device):
    """Live blocks by address, and the runs of pages that they touch: [first, last, blocks]."""
    lib, context = _context()
    runs, about = [], _Block()
    for record in sorted(_records(1), key=lambda r: r.address):
        if record.device != device or lib.glake_query(
                context, ctypes.c_void_p(record.address), ctypes.byref(about)):
            continue  # of another GPU, or freed meanwhile
        if about.away:
            continue  # it has no pages
        page, end = about.page_size, about.base + about.given
        if not runs or about.base // page * page > runs[-1][1]:
            runs.append([about.base // page * page, 0, []])
        runs[-1][1] = max(runs[-1][1], -(-end // page) * page)
        runs[-1][2].append((about.base, about.given, about.size, record.stream, record.stack))
    return runs


def _segments(device, frames):
    """The same as PyTorch shows its segments, with the room between blocks."""
    for first, last, live in _pages(device):
        blocks, end = [], first
        for base, size, asked, _, stack in [*live, (last, 0, 0, 0, 0)]:
            rows = ((end, base - end, 0, "inactive", []),
                    (base, size, asked, "active_allocated", frames[stack]))
            blocks += [dict(zip(("address", "size", "requested_size", "state", "frames"), row))
                       for row in rows if row[1]]
            end = base + size
        taken = sum(row[1] for row in live)
        yield {"device": device, "address": first, "total_size": last - first, "blocks": blocks,
               "allocated_size": taken, "active_size": taken, "stream": live[0][3],
               "requested_size": sum(row[2] for row in live), "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": True, "frames": []}


def snapshot(path=None):
    """The memory as pytorch.org/memory_viz takes it, also into a file: live blocks on the pages
    that they touch, and what was asked for and freed of late; with the frames of who asked where
    glake.history() was told to take them, of a free those of its request."""
    if not _state["events"]:
        raise GlakeError("nothing was remembered: call glake.use(events=100000) or "
                         "glake.history() before the memory is asked for")
    actions = ("alloc", "free_requested", "oom")
    taken = sys.modules.get("glake.frames")  # none were taken where nobody asked for it
    frames = taken.Frames() if taken else collections.defaultdict(list)
    traces = [[] for _ in range(_call("glake_device_count"))]
    for record in _records(0):
        row = {"action": actions[record.action], "size": record.size, "stream": record.stream,
               "time_us": record.time_us, "frames": frames[record.stack]}
        row["device_free" if row["action"] == "oom" else "addr"] = record.address
        traces[record.device].append(row)
        if row["action"] == "free_requested":
            traces[record.device].append(dict(row, action="free_completed"))
    picture = {"segments": [s for i in range(len(traces)) for s in _segments(i, frames)],
               "device_traces": traces, "allocator_settings": {"backend": "glake"},
               "external_annotations": [], "glake": stats()}
    if path:
        with open(path, "wb") as file:
            pickle.dump(picture, file, protocol=4)
    return picture


def _torch():
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


def _plug(torch, alloc, free, hooks):
    """An allocator of PyTorch, made of functions of the library."""
    from . import share  # it needs this file whole
    lib = _load()
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


def _install(torch):
    """Puts the class of torch_allocator.cc in the place of PyTorch's allocator; None where there is
    no object of it for this PyTorch, and why."""
    from . import compiler, share
    try:
        made = compiler.load(torch, "allocator", "-lc10", "-lc10_cuda", "-ltorch_cuda")
    except compiler.NotMade as error:
        return None, str(error)
    made.glake_torch_install.restype = ctypes.c_char_p
    why = made.glake_torch_install()
    if why:
        raise GlakeError(f"PyTorch keeps its allocator: {why.decode(errors='replace')}")
    share.answer(torch)  # tensors for other processes
    return made, ""


def _plug_in(torch, answers):
    """The same by function pointers, which do not reach all of PyTorch."""
    plug = _plug(torch, "glake_torch_alloc", "glake_torch_free", _HOOKS)
    try:
        torch.cuda.memory.change_current_allocator(plug)
    except RuntimeError as error:
        raise GlakeError(f"PyTorch keeps its allocator, something has used it: {error}") from None
    if answers:
        _answer_for_torch(torch)


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
        return min(1.0, (budget(device=device) or memory) / memory)

    answers = {
        "_cuda_memoryStats": _nested_stats,
        "_cuda_resetPeakMemoryStats": lambda device: _call("glake_stats_reset", device),
        "_cuda_resetAccumulatedMemoryStats": lambda device: None,
        "_cuda_memorySnapshot": lambda *_: snapshot(),
        "_cuda_record_memory_history": record,
        "_cuda_getMemoryFraction": fraction,
        "_accelerator_getDeviceStats": _nested_stats,
        "_accelerator_resetPeakStats": lambda device: _call("glake_stats_reset", device),
        "_accelerator_resetAccumulatedStats": lambda device: None,
        "_set_cudnn_benchmark": benchmark,
    }
    for owner, rows in ((torch._C, answers), (torch, {"compile": compiled}),
                        (cudnn, {"setter": benchmark})):
        for name, answer in rows.items():
            if hasattr(owner, name):
                setattr(owner, name, functools.wraps(getattr(owner, name), updated=())(answer))


def use(*, settings=None, answers=True, events=0, stacks=0):
    """
    Makes glake PyTorch's allocator, with every hook. To be called before CUDA starts. `settings`
    are keys of glake.conf(5), as {"pool.budget": "24GiB"}, also for processes started later. With
    `answers` torch.cuda.memory_stats and its kind work, and `events` are kept for snapshot(), with
    `stacks` frames of each.
    """
    if _state["torch"]:
        return
    torch = _torch()
    if torch.cuda.is_initialized():
        raise GlakeError("CUDA is already initialised: call glake.use() before anything uses the "
                         "GPU, at best right after importing torch, or run python3 -m glake")
    _state["allocator"], why = _install(torch)
    if why:
        warnings.warn(f"glake serves PyTorch {torch.__version__} as a plug-in, without cudagraph trees, "
                      f"torch.cuda.MemPool and PyTorch's own snapshots: {why}", stacklevel=2)
        _plug_in(torch, answers)
    _state["torch"] = True
    for key, value in (settings or {}).items():
        os.environ["GLAKE_" + key.upper().replace(".", "_")] = str(value)
    if events:
        history(events, stacks=stacks)


def pool(**options):
    """
    A torch.cuda.MemPool, which takes the options, whose segments are glake's. PyTorch's allocator
    stays on top, with its statistics, graphs and sharing; glake sees its segments only.
    """
    torch = _torch()
    if _state["torch"]:
        raise GlakeError("glake.use() has made glake the allocator, so all memory is glake's; "
                         "glake.pool() is for programs that keep PyTorch's")
    if not hasattr(torch.cuda, "MemPool"):
        raise GlakeError(f"PyTorch {torch.__version__} is too old: it has no torch.cuda.MemPool")
    _context()
    plug = _plug(torch, "glake_torch_segment_alloc", "glake_torch_segment_free", {})
    return torch.cuda.MemPool(plug.allocator(), **options)


_FILES = {  # they need this one whole
    "tier": "spill fetch advise quiet suspend resume", "tagging": "tag tags pin unpin",
    "saver": "use_memory_saver", "vllm": "use_vllm VllmAllocator",
    "managed_memory": "managed prefetch prefer", "host": "pinned_empty pinned_use use_pinned",
    "frames": "stacks", "spilled": "spilled_activations", "optimizer": "spilled_optimizer",
    "doors": "use_cupy use_numba use_rmm use_warp rmm_resource memory_resource ort_options "
                   "stream_end"}


def __getattr__(name):
    """What other runtimes ask for, and what is beyond the GPU, lie in files of their own."""
    for file, names in _FILES.items():
        if name in names.split():
            return getattr(importlib.import_module("." + file, __name__), name)
    if name != "_numba_memory_manager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(".doors", __name__)._numba_class()
