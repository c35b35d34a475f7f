# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.kv.Growable beside the class that it stands in for, both through the same calls, on a CPU: for growable.py.

    growable_real.py vllm|sglang

The engine's own files are read from the environment of this interpreter, where its package lies without what it depends
on (pip install --no-deps). They run over a driver that is made up here, of pages of the host which can be mapped and
not; the modules of the engine that they import beside are stood in for, and so is what of PyTorch wants a GPU. What
releases of vLLM do not have, vllm/utils/extensible_tensor.py of pull request 56492, can be put there by hand.

Prints a line for each thing that was compared, "ok WHAT" or "no WHAT"; "skip WHY" where the class is not there.
"""

import ast
import contextlib
import ctypes
import importlib.util
import math
import os
import random
import sys
import types

M = 1 << 20
PAGE = 2 * M
LIMIT = 24 * M  # of the driver below theirs, and of glake
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
ANONYMOUS, FIXED, READ_WRITE = 0x22, 0x10, 3


def skip(why):
    print("skip", why)
    sys.exit(0)


def compare(what, got, want):
    print("ok" if got == want else "no", what if got == want else f"{what}: Growable {got!r}, theirs {want!r}")


class Pages:
    """Addresses, and pages that are behind them or not; others are a fault, as on a GPU."""

    def __init__(self):
        self.held, self.sizes, self.mapped, self.number = 0, {}, {}, 0

    def reserve(self, size):
        at = libc.mmap(None, size + PAGE, 0, ANONYMOUS, -1, 0)
        assert at and at != ctypes.c_void_p(-1).value
        return -(-at // PAGE) * PAGE

    def unreserve(self, at, size):
        assert not [x for x in self.mapped if at <= x < at + size], "mapped"
        assert not libc.munmap(at, size)

    def create(self, size):
        assert not size % PAGE
        if self.held + size > LIMIT:
            return None
        self.held += size
        self.number += 1
        self.sizes[self.number] = size
        return self.number

    def map(self, at, size, handle):
        assert self.sizes[handle] == size, "a handle is mapped whole"
        assert not [x for x, (n, _) in self.mapped.items() if at < x + n and x < at + size], "mapped twice"
        self.mapped[at] = (size, handle)

    def access(self, at, size):
        assert not libc.mprotect(at, size, READ_WRITE)

    def unmap(self, at, size):
        assert self.mapped.pop(at)[0] == size, "as it was mapped"
        libc.mmap(at, size, 0, ANONYMOUS | FIXED, -1, 0)

    def release(self, handle):
        self.held -= self.sizes.pop(handle)


def module(name, path=None, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    if path:
        made.__path__ = [path]
    sys.modules[name] = made
    return made


def place(name):
    """The folder of a package, which is not imported for it."""
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    return found and found.submodule_search_locations and list(found.submodule_search_locations)[0]


def outcome(fn, *arguments):
    """What came, or the kind of error that whoever calls the engine's class can catch."""
    try:
        fn(*arguments)
    except (ValueError, IndexError, RuntimeError) as error:
        return [kind.__name__ for kind in (ValueError, IndexError, RuntimeError) if isinstance(error, kind)]
    return "done"


def as_theirs(ours, theirs):
    """An error of theirs is caught as what it was: ours is that too, and may be more."""
    return ours == theirs if isinstance(theirs, str) or isinstance(ours, str) else set(theirs) <= set(ours)


class VllmDriver:
    dlpack_device_type = 1

    def __init__(self, pages):
        self.pages = pages
        self.map, self.unmap, self.release = pages.map, pages.unmap, pages.release
        self.reserve, self.free_reserved = pages.reserve, pages.unreserve

    def ensure_context(self, device):
        pass

    def granularity(self, device):
        return PAGE

    def create(self, size, device, **_):
        handle = self.pages.create(size)
        if handle is None:
            raise RuntimeError("GPU driver error 2: out of memory")
        return handle

    def set_access(self, at, size, device):
        self.pages.access(at, size)


def vllm(torch, glake, kv):
    at = place("vllm")
    file = at and os.path.join(at, "utils/extensible_tensor.py")
    if not at:
        skip("vllm is not installed")
    if not os.path.exists(file):
        skip("this vllm has no utils/extensible_tensor.py, of pull request 56492")
    pages = Pages()
    driver = VllmDriver(pages)
    module("vllm", at)
    module("vllm.utils", os.path.dirname(file))
    module("vllm.logger", init_logger=lambda name: types.SimpleNamespace(warning_once=print, info=lambda *_: None))
    module("vllm.utils.vmm_driver", get_vmm_driver=lambda: driver)
    torch.accelerator.synchronize = torch.accelerator.empty_cache = lambda *_: None
    torch.accelerator.current_device_index = lambda: 0
    torch.cuda.init = lambda: None
    from vllm.utils import extensible_tensor
    Theirs, Range = extensible_tensor.ExtensibleTensor, extensible_tensor._VirtualBuffer

    for wrong in ((-1, "cuda", 1), (100, "cuda", 3), (100, "cuda", 0), (100, "cpu", 1)):
        got, want = outcome(kv.Growable, *wrong), outcome(Theirs, *wrong)
        compare(f"made of {wrong}", as_theirs(got, want), True)

    def told(x):
        return {name: getattr(x, name) for name in (
            "num_bytes bytes_per_segment num_segments segment_capacity_bytes capacity_bytes physical_bytes "
            "granularity").split() if hasattr(extensible_tensor.ExtensibleTensor, name)}

    for size, segments in ((10 * M, 1), (9 * M, 3), (8192, 2), (6 * M - 6, 3), (0, 1)):
        what = f"{size} bytes in {segments} segments"
        ours, theirs = kv.Growable(size, "cuda", segments), Theirs(size, "cuda", segments)
        base, steps, failed = (ours.base_ptr, theirs.base_ptr), random.Random(size), []
        compare(f"{what}, at first", told(ours), told(theirs))
        full = ours.full_view(), theirs.full_view()
        compare(f"{what}, all of it", *((x.shape, x.dtype, x.untyped_storage().nbytes()) for x in full))
        cap = size // segments
        for step in range(120):
            old = theirs.bytes_per_segment
            more = old + steps.randint(0, cap // 8)
            want = steps.choice([old, old + 1, old - 1, cap + 1, steps.randint(0, cap), *[more] * 5])
            if steps.random() < 0.05 or old == cap:
                ours.release_physical()
                theirs.release_physical()
            elif want >= old:
                got = outcome(ours.resize_per_segment_, want, True), outcome(theirs.resize_per_segment_, want, True)
                if not as_theirs(*got):
                    failed.append((step, want, got))
            elif want >= 0 and outcome(theirs.resize_per_segment_, want) != ["ValueError"]:
                failed.append((step, want, "they shrink"))  # what Growable does alone
            if told(ours) != told(theirs):
                failed.append((step, want, told(ours), told(theirs)))
            for i in range(segments):
                mine, other, value = ours.segment_view(i), theirs.segment_view(i), steps.randint(1, 255)
                if not torch.equal(mine, other):
                    failed.append((step, want, "contents of segment", i))
                if mine.untyped_storage().nbytes() != other.untyped_storage().nbytes():
                    failed.append((step, want, "storage of segment", i))
                mine.fill_(value)
                other.fill_(value)
        compare(f"{what}, 120 steps", failed[:3], [])
        compare(f"{what}, where it lies", (ours.base_ptr, theirs.base_ptr), base)
        compare(f"{what}, a segment that is not there", outcome(ours.segment_view, segments),
                outcome(theirs.segment_view, segments))
        ours.free()
        theirs.free()
        compare(f"{what}, freed", (ours.base_ptr, ours.num_bytes, ours.physical_bytes, outcome(ours.free)),
                (theirs.base_ptr, theirs.num_bytes, theirs.physical_bytes, outcome(theirs.free)))

    ours, theirs = kv.Growable(20 * M), Range(20 * M, 0)
    steps, failed = random.Random(7), []
    for step in range(200):
        first, end = steps.randint(-1, 20) * M // 2, steps.randint(0, 42) * M // 2
        got = outcome(ours.ensure_committed_range, first, end), outcome(theirs.ensure_committed_range, first, end)
        if not as_theirs(*got) or ours.committed_bytes != theirs.committed_bytes:
            failed.append((step, first, end, got, ours.committed_bytes, theirs.committed_bytes))
        if not step % 20:
            ours.release_physical()
            theirs.release_physical()
    compare("ranges, 200 steps", failed[:3], [])
    ours.free()
    theirs.free()

    glake.trim()
    glake.budget(LIMIT)
    ours, theirs = kv.Growable(32 * M, num_segments=2), Theirs(32 * M, "cuda", 2)
    for x in (ours, theirs):
        x.resize_per_segment_(2 * M)
    got = outcome(ours.resize_per_segment_, 16 * M), outcome(theirs.resize_per_segment_, 16 * M)
    compare("no room", as_theirs(*got), True)
    held = ours.physical_bytes // M, theirs.physical_bytes // M
    compare("no room, for them the first segment has it", held, (4, 18))
    theirs.free()
    ours.free()
    compare("nothing is left of theirs", (pages.held, pages.mapped), (0, {}))


class Cuda:
    """cuda.bindings.driver, as far as it is used."""

    def __init__(self, pages):
        self.pages = pages
        enums = {"CUresult": "CUDA_SUCCESS",
                 "CUmemAllocationGranularity_flags": "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED",
                 "CUmemAllocationType": "CU_MEM_ALLOCATION_TYPE_PINNED",
                 "CUmemLocationType": "CU_MEM_LOCATION_TYPE_DEVICE",
                 "CUmemAccess_flags": "CU_MEM_ACCESS_FLAGS_PROT_READWRITE"}
        for name, value in enums.items():
            setattr(self, name, types.SimpleNamespace(**{value: 0}))
        self.CUmemAllocationHandleType = types.SimpleNamespace(
            CU_MEM_HANDLE_TYPE_NONE=0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR=1, CU_MEM_HANDLE_TYPE_FABRIC=8)

    def CUmemAllocationProp(self):
        return types.SimpleNamespace(location=types.SimpleNamespace(), allocFlags=types.SimpleNamespace())

    def CUmemAccessDesc(self):
        return types.SimpleNamespace(location=types.SimpleNamespace())

    def cuMemGetAllocationGranularity(self, prop, flag):
        return 0, PAGE

    def cuMemAddressReserve(self, size, alignment, address, flags):
        return 0, self.pages.reserve(size)

    def cuMemCreate(self, size, prop, flags):
        handle = self.pages.create(size)
        return (2, None) if handle is None else (0, handle)

    def cuMemMap(self, at, size, offset, handle, flags):
        self.pages.map(at, size, handle)
        return (0,)

    def cuMemSetAccess(self, at, size, descs, count):
        self.pages.access(at, size)
        return (0,)

    def cuMemUnmap(self, at, size):
        self.pages.unmap(at, size)
        return (0,)

    def cuMemRelease(self, handle):
        self.pages.release(handle)
        return (0,)

    def cuMemAddressFree(self, at, size):
        self.pages.unreserve(at, size)
        return (0,)


class Stub:
    """BumpArenaStub, which compiles a library: one address behind the other."""

    sfx, allocator = "stub", None

    def set_extents(self, extents):
        (self.at, _), = extents
        self.first, Stub.last = self.at, self

    def set_align(self, align):
        self.align = align

    def take(self, size):
        at, self.at = self.at, self.at + -(-size // self.align) * self.align
        return at


class Landed:
    """A tensor of a GPU, as SGLang's class looks at it."""

    is_cuda = True

    def __init__(self, at, shape, dtype, torch, view):
        self.at, self.shape, self.dtype, self.device = at, shape, dtype, types.SimpleNamespace(index=0)
        self.tensor = torch.from_dlpack(view.View(at, shape, view.rows(shape), view.kind_of(dtype), 0))

    def data_ptr(self):
        return self.at


def sglang(torch, glake, kv):
    at = place("sglang")
    if not at:
        skip("sglang is not installed")
    if not os.path.exists(os.path.join(at, "srt/mem_cache/kv_vmm_backing.py")):
        skip("this sglang has no srt/mem_cache/kv_vmm_backing.py")
    from glake import view
    for name in ("", ".srt", ".srt.mem_cache"):
        module("sglang" + name, at + name.replace(".", "/"))
    module("sglang.srt.utils", at + "/srt/utils", log_info_on_rank0=lambda *_: None)
    from sglang.srt.utils import cuda_vmm_utils
    pages = Pages()
    cuda_vmm_utils._drv, cuda_vmm_utils.pynvml = Cuda(pages), None
    cuda_vmm_utils.logger.setLevel("ERROR")
    from sglang.srt.mem_cache import kv_vmm_backing
    kv_vmm_backing.BumpArenaStub = Stub
    inside = contextlib.nullcontext
    kv_vmm_backing.torch = types.SimpleNamespace(
        empty=lambda shape, dtype, device: Landed(
            Stub.last.take(math.prod(shape) * dtype.itemsize), shape, dtype, torch, view),
        cuda=types.SimpleNamespace(device=inside, use_mem_pool=inside, synchronize=lambda: None,
                                   MemPool=lambda allocator, no_split: None))
    with open(os.path.join(at, "srt/mem_cache/memory_pool.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())  # it imports all of the engine: the class that is wanted stands by itself
    tree.body = [x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == "KvBufferDesc"]
    found = {"math": math}
    exec(compile(tree, "memory_pool.py", "exec"), found)  # pylint: disable=exec-used
    Told, Theirs = found["KvBufferDesc"], kv_vmm_backing.KvVmmBufferOwner

    def both(descs, **options):
        options = {"device": "cuda", "device_id": 0, "buffer_descs": descs, **options}
        return kv.Growable.of_buffers(**options), Theirs(**options)

    def rows(tokens, page, layers, heads, item, one):
        """K and V of each layer, in rows of a token, or of a page."""
        size = tokens + page
        shape = (size, heads, 64) if one == 1 else (size // one, one, heads, 64)
        return [Told(f"{kind}{i}", shape, row_bytes=one * heads * 64 * item, tokens_per_row=one)
                for kind in "kv" for i in range(layers)]

    for what, tokens, page, dtype, descs in (
            ("tokens", 20000, 1, torch.float16, rows(20000, 1, 2, 1, 2, 1)),
            ("pages", 4096, 256, torch.bfloat16, rows(4096, 256, 1, 16, 2, 256)),
            ("one raw buffer", 12 * M + 5, 1, torch.uint8,
             [Told("raw", (12 * M + 5,), row_bytes=1, tokens_per_row=1)])):
        ours, theirs = both(descs, store_dtype=dtype, page_size=page, reserved_num_tokens=tokens)
        compare(f"{what}, a page at first", ours.backed_bytes, theirs.backed_bytes)
        compare(f"{what}, tensors", [(tuple(x.shape), x.dtype) for x in ours.tensors],
                [(tuple(x.shape), x.dtype) for x in theirs.tensors])
        address, steps, failed = [x.data_ptr() for x in ours.tensors], random.Random(tokens), []
        most, end = 0, page

        def mark(token, value):
            for pair in zip(ours.tensors, theirs.tensors):
                for x in pair[0], pair[1].tensor:
                    x.view(torch.uint8).view(-1)[token // descs[0].tokens_per_row * descs[0].row_bytes] = value

        for step in range(150):
            name = "finalize" if not step % 15 else "ensure_prefix"
            more = min(tokens, end + steps.randint(0, tokens // 40))
            want = steps.choice([0, -1, steps.randint(1, end), more, more, more, tokens + page + 16])
            got = outcome(getattr(ours, name), want), outcome(getattr(theirs, name), want)
            if not as_theirs(*got) or ours.backed_bytes != theirs.backed_bytes:
                failed.append((step, name, want, got, ours.backed_bytes, theirs.backed_bytes))
            if got[1] == "done" and want > most:
                most = end = want
                mark(want - 1, step % 250 + 1)
        for mine, other in zip(ours.tensors, theirs.tensors):
            size = (most + descs[0].tokens_per_row - 1) // descs[0].tokens_per_row * descs[0].row_bytes
            one, two = (x.view(torch.uint8).view(-1)[:size] for x in (mine, other.tensor))
            if not torch.equal(one[two != 0], two[two != 0]):
                failed.append("contents")
        compare(f"{what}, 150 steps", failed[:3], [])
        compare(f"{what}, where they lie", [x.data_ptr() for x in ours.tensors], address)
        ours.ensure_prefix(tokens)
        held = ours.backed_bytes
        compare(f"{what}, and it shrinks", (ours.release_beyond(page) + ours.backed_bytes, ours.backed_bytes < held),
                (held, True))
        for x in ours, theirs:
            x.close()
        compare(f"{what}, closed", *((x.tensors, x.backed_bytes, outcome(x.ensure_prefix, 0), outcome(x.close))
                                     for x in (ours, theirs)))
        for last in (page, tokens // 2, tokens):
            ours, theirs = both(descs, store_dtype=dtype, page_size=page, reserved_num_tokens=tokens)
            got = outcome(ours.finalize, last), outcome(theirs.finalize, last)
            compare(f"{what}, finalize {last}", (as_theirs(*got), ours.backed_bytes), (True, theirs.backed_bytes))
            for x in ours, theirs:
                x.close()

    arena = kv_vmm_backing.KvVmmArena(0, 20 * M)
    ours = kv.Growable(20 * M)
    for offset, want in ((0, 1), (0, 1), (0, 5 * M), (8 * M, 2 * M), (8 * M, M), (5, M), (18 * M, 3 * M), (20 * M, 1),
                         (4 * M, 0)):
        got = outcome(ours.commit_range, offset, want), outcome(arena.commit_range, offset, want)
        compare(f"commit_range {offset} {want}", (as_theirs(*got), ours.backed_bytes), (True, arena.backed_bytes))
    compare("the arena", (ours.granularity, ours.reserved), (arena.granularity, arena.reserved))
    arena.close()
    ours.close()
    compare("after close", as_theirs(outcome(ours.commit_range, 0, 1), outcome(arena.commit_range, 0, 1)), True)

    glake.trim()
    glake.budget(LIMIT)
    ours, theirs = both(rows(200000, 1, 1, 1, 2, 1), store_dtype=torch.float16, page_size=1,
                        reserved_num_tokens=200000)
    compare("no room", as_theirs(outcome(ours.ensure_prefix, 100000), outcome(theirs.ensure_prefix, 100000)), True)
    compare("no room, for them one buffer has it", (ours.backed_bytes // M, theirs.backed_bytes // M), (4, 16))
    ours.close()
    theirs.close()
    compare("nothing is left of theirs", (pages.held, pages.mapped), (0, {}))


def main():
    try:
        import torch
    except ImportError:
        skip("torch is not installed")
    import glake
    from glake import kv
    {"vllm": vllm, "sglang": sglang}[sys.argv[1]](torch, glake, kv)


main()
