# SPDX-License-Identifier: LGPL-2.1-or-later
"""
GPU memory of glake for other runtimes under Python. The package has these names as its own and loads
this file with the first of them:

    glake.use_cupy()                CuPy's arrays, in the order of CuPy's current stream
    glake.use_rmm()                 RMM, and cuDF and what else stands on it
    glake.use_warp()                Warp's arrays, in the order of Warp's current stream
    glake.memory_resource(device)   a MemoryResource of cuda.core, in the order of its streams
    NUMBA_CUDA_MEMORY_MANAGER=glake       numba's arrays; or glake.use_numba()
    glake.ort_options(device)       options of ONNX Runtime's CUDA provider

Streams that memory was asked for or freed on are the library's to ask about until it is told of
their end, glake.stream_end(stream), and the driver may end a process that asks about one that has
gone. Objects of streams that CuPy, Warp and cuda.core hand over are kept here until then; RMM hands
over an address, so whoever destroys its streams says so before.

numba and, unless it is told a stream, ONNX Runtime ask for memory without saying on which stream
they use it. They get it in the manner of cudaMalloc and cudaFree: a request waits where memory
comes behind the work of somebody else, and a free waits for the GPU.
"""

import ctypes
import errno
import functools
import importlib
import sys

from . import figures, library
from .library import GlakeError
from .records import Device, Sized, many

_kept = []     # what others hold by address only
_streams = {}  # objects by the address of the stream that ends with them


def _package(name, title):
    """A package of somebody else; one sentence if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise GlakeError(f"{title} is not installed or does not load: {error}") from None


@functools.lru_cache(None)
def _library():
    """The functions for blocks of the library, with the context open."""
    lib, _ = library.context()
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for name, result, *arguments in (
            ("glake_torch_free", None, pointer, size, number, pointer),
            ("glake_torch_segment_alloc", pointer, size, number, pointer),
            ("glake_torch_segment_free", None, pointer, size, number, pointer),
            ("glake_ort_functions", number, number, pointer, ctypes.POINTER(_OrtFunctions))):
        function = getattr(lib, name, None)
        if not function:
            raise GlakeError(f"{lib.path} is older than this module: it has no {name}")
        function.restype, function.argtypes = result, arguments
    return lib


def _refused(size, device):
    """Why the last request of this thread came to nothing."""
    error = library.last_error()
    return (f"glake has no {size} bytes for GPU {device}: "
            f"{error['text'] or 'the GPU cannot be waited for'} ({error['class']})")


def _alloc(size, device, stream):
    """Memory in the order of a stream."""
    ptr = _library().glake_torch_try_alloc(size or 1, device, stream)
    if not ptr:
        raise MemoryError(_refused(size, device))
    return ptr


def _free(ptr, size, device, stream):
    """Behind what the stream has to do now, and the stream that it was asked for on."""
    _library().glake_torch_free(ptr, size, device, stream)


def _handle(stream):
    """The address of a stream that speaks CUDA's protocol; None is the default stream."""
    return stream.__cuda_stream__()[1] if stream is not None else None


def _keep(handle, stream):
    """That address, and the object stays until stream_end."""
    if handle and handle not in _streams:
        _streams[handle] = stream
    return handle


def stream_end(stream, device=None):
    """
    Says that a stream is about to be destroyed: an address, or what has __cuda_stream__. Work may
    be left on it.
    """
    handle = _handle(stream) if hasattr(stream, "__cuda_stream__") else stream
    library.call("glake_stream_end", library.index(device), ctypes.c_void_p(handle))
    _streams.pop(handle, None)


def _devices(device):
    return range(library.call("glake_device_count")) if device is None else [library.index(device)]


def use_cupy():
    """Makes glake CuPy's allocator, in the order of CuPy's current stream."""
    cupy = _package("cupy", "CuPy")
    lib = _library()

    def give(size, device):
        stream = cupy.cuda.get_current_stream()
        ptr = lib.glake_torch_try_alloc(size, device, _keep(stream.ptr, stream))
        if not ptr and size:
            raise cupy.cuda.memory.OutOfMemoryError(
                size, figures.stats(device)["reserved"], figures.budget(device=device) or 0)
        return ptr or 0

    hook = cupy.cuda.PythonFunctionAllocator(
        give, lambda ptr, _device: lib.glake_torch_give_back(ptr))
    cupy.cuda.set_allocator(hook.malloc)
    _kept.append(hook)


def rmm_resource(device=0):
    """
    A memory resource of RMM on a GPU, for its adaptors. RMM calls Python for each request, which
    takes the interpreter's lock and a few microseconds; glake/rmm.hpp does so from C++ without.
    """
    rmm = _package("rmm", "RMM")
    if not hasattr(rmm.mr, "CallbackMemoryResource"):
        raise GlakeError(f"RMM {rmm.__version__} is too old: it has no "
                         "CallbackMemoryResource")
    device = library.index(device)
    _library()
    return rmm.mr.CallbackMemoryResource(
        lambda size, stream: _alloc(size, device, _handle(stream)) if size else 0,
        lambda ptr, size, stream: _free(ptr, size, device, _handle(stream)))


def use_rmm(device=None):
    """Makes glake RMM's resource of a GPU, or of all that glake sees."""
    rmm = _package("rmm", "RMM")
    for index in _devices(device):
        rmm.mr.set_per_device_resource(index, rmm_resource(index))


class _Warp:
    """What Warp asks for memory; it runs with the GPU current, on the stream current there."""

    def __init__(self, device):
        self.device, self.index = device, device.ordinal

    def stream(self):
        return _keep(self.device.stream.cuda_stream, self.device.stream)

    def allocate(self, size_in_bytes):
        return _alloc(size_in_bytes, self.index, self.stream())

    def deallocate(self, ptr, size_in_bytes):
        _free(ptr, size_in_bytes, self.index, self.stream())


def use_warp(device=None):
    """Makes glake Warp's allocator on a GPU, or on all of Warp's."""
    warp = _package("warp", "Warp")
    if not hasattr(warp, "set_device_allocator"):
        raise GlakeError(f"Warp {warp.__version__} is too old: it takes no allocator")
    found = warp.get_cuda_devices() if device is None else [warp.get_device(device)]
    if not found or not all(one.is_cuda for one in found):
        raise GlakeError("Warp sees no GPU")
    _library()
    for one in found:
        warp.set_device_allocator(one, _Warp(one))


@functools.lru_cache(None)
def _resource_class():
    core = _package("cuda.core", "cuda.core")

    class GlakeMemoryResource(core.MemoryResource):
        """GPU memory of glake in the order of streams, as cuda.core's buffers."""

        is_device_accessible, is_host_accessible, is_managed = True, False, False

        def __init__(self, device=None):
            self._device = library.index(device)
            _library()

        @property
        def device_id(self):
            return self._device

        def allocate(self, size, *, stream=None):
            ptr = _alloc(size, self._device, _keep(_handle(stream), stream))
            return core.Buffer.from_handle(ptr, size, mr=self, stream=stream)

        def deallocate(self, ptr, size, *, stream=None):
            if not sys.is_finalizing():
                _free(int(ptr), size, self._device, _keep(_handle(stream), stream))

    return GlakeMemoryResource


def memory_resource(device=None):
    """
    A cuda.core.MemoryResource on a GPU:

        Device(0).memory_resource = glake.memory_resource(0)
    """
    return _resource_class()(device)


@functools.lru_cache(None)
def _numba_class():
    driver = _package("numba.cuda.cudadrv.driver", "numba with CUDA")

    class GlakeNumbaManager(driver.HostOnlyCUDAMemoryManager):
        """numba's arrays on glake. What is freed waits in numba's list, as with its own."""

        interface_version = 1

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self._blocks = {}

        def initialize(self):
            _library()
            self.deallocations.memory_capacity = self.get_memory_info().total

        def memalloc(self, size):
            device = self.context.device.id

            def allocate():
                ptr = _library().glake_torch_segment_alloc(size or 1, device, None)
                if not ptr:
                    raise driver.CudaAPIError(
                        driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY, _refused(size, device))
                return ptr

            ptr, blocks = self._attempt_allocation(allocate), self._blocks
            blocks[ptr] = size

            def finalize():
                if blocks.pop(ptr, None) is not None:  # else freed by a reset
                    self.deallocations.add_item(_give_back, ptr, size)

            return driver.MemoryPointer(
                self.context, ctypes.c_void_p(ptr), size, finalizer=finalize)

        def reset(self):
            super().reset()
            while self._blocks:
                _give_back(self._blocks.popitem()[0])

        def get_ipc_handle(self, memory):
            raise NotImplementedError("memory of glake has no CUDA IPC handle under numba; "
                                      "programs under libglake-preload.so have them")

        def get_memory_info(self):
            """What the GPU has free, and what glake holds of it and nobody uses."""
            index = self.context.device.id
            about, row = library.fetch("glake_device_get", Device(), index), figures.stats(index)
            return driver.MemoryInfo(free=about.free + row["reserved"] - row["given"],
                                     total=about.memory)

    return GlakeNumbaManager


def _give_back(ptr):
    if not sys.is_finalizing():
        _library().glake_torch_segment_free(ptr, 0, 0, None)


def use_numba():
    """Makes glake numba's allocator, before numba has used a GPU."""
    driver = _package("numba.cuda.cudadrv.driver", "numba with CUDA")
    if driver._memory_manager not in (None, _numba_class()):
        raise GlakeError("numba has an allocator already: call glake.use_numba() before "
                         "anything uses the GPU, or set NUMBA_CUDA_MEMORY_MANAGER=glake")
    driver.set_memory_manager(_numba_class())


class _OrtFunctions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("alloc", "free", "empty_cache")]


def ort_options(device=0, stream=None):
    """
    Options of ONNX Runtime's CUDA provider that make a GPU's tensors glake's:

        options = glake.ort_options(0)
        session = onnxruntime.InferenceSession(
            model, providers=[("CUDAExecutionProvider", options)])

    With `stream`, an address or what has __cuda_stream__, sessions run on that stream and their
    memory is in its order; without, each free waits for the GPU. A GPU keeps what it was first
    given.
    """
    index, functions = library.index(device), _OrtFunctions()
    handle = _handle(stream) if hasattr(stream, "__cuda_stream__") else stream
    err = _library().glake_ort_functions(index, handle, ctypes.byref(functions))
    if err == -errno.EBUSY:
        raise GlakeError(f"ONNX Runtime's memory of GPU {index} is in the order of another "
                         "stream already")
    if err:
        raise GlakeError(f"there is no GPU {index} for ONNX Runtime")
    options = {"device_id": str(index)}
    for name in ("alloc", "free", "empty_cache"):
        options["gpu_external_" + name] = str(getattr(functions, name))
    if handle:
        options.update(has_user_compute_stream="1", user_compute_stream=str(handle))
    return options
