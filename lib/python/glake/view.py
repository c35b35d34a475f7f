# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Memory of the library as a tensor: a View speaks DLPack, which PyTorch, NumPy, CuPy and others read, and nothing
touches the memory for it. And the stream that memory is used on.
"""

import contextlib
import ctypes
import sys

from . import library
from .records import many

KINDS = {"int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8),
         "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16)}
_CPU, _CUDA = 1, 2
_SOFT = 1


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", ctypes.c_void_p), *many(ctypes.c_int32, "device_type device_id ndim"),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                *many(ctypes.c_void_p, "shape strides"), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", _Tensor), *many(ctypes.c_void_p, "manager deleter")]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [*many(ctypes.c_uint32, "major minor"), *many(ctypes.c_void_p, "manager deleter"),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def on_host():
    """Whether memory of the library is that of the host, on the software device."""
    lib, opened = library.context()
    return lib.glake_backend(opened) == _SOFT


def kind_of(dtype):
    """The name of a data type, a key of KINDS; None if tensors of it are not given."""
    name = str(dtype).removeprefix("torch.")
    return name if name in KINDS else None


def bytes_of(dtype):
    return KINDS[dtype][1] // 8


def rows(shape):
    """The strides of a tensor without gaps."""
    strides = [1] * len(shape)
    for side in range(len(shape) - 1, 0, -1):
        strides[side - 1] = strides[side] * shape[side]
    return strides


class View:
    """Strides count elements. The maker of a view keeps the memory for as long as tensors of it live."""

    def __init__(self, address, shape, strides, dtype, device):
        self._address, self._shape, self._strides = address, tuple(shape), tuple(strides)
        self._dtype, self._device, self._kind = dtype, device, _CPU if on_host() else _CUDA

    def __dlpack_device__(self):
        return (self._kind, self._device)

    def __dlpack__(self, *, max_version=None, **_):
        # NumPy takes what has no version for memory that must not be written.
        kind, name = (_Versioned, b"dltensor_versioned") if max_version and max_version[0] else (_Managed, b"dltensor")
        count = len(self._shape)
        sides = ctypes.c_int64 * (2 * count)
        # The record is of malloc(), and free() itself ends it: a tensor may outlive the interpreter.
        place = _libc.malloc(ctypes.sizeof(kind) + ctypes.sizeof(sides))
        if not place:
            raise MemoryError
        ctypes.memset(place, 0, ctypes.sizeof(kind))
        managed, below = kind.from_address(place), place + ctypes.sizeof(kind)
        sides.from_address(below)[:] = [*self._shape, *self._strides]
        if kind is _Versioned:
            managed.major = 1
        managed.deleter = ctypes.cast(_libc.free, ctypes.c_void_p)
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.device_id = self._address, self._kind, self._device
        tensor.ndim, (tensor.code, tensor.bits), tensor.lanes = count, KINDS[self._dtype], 1
        tensor.shape, tensor.strides = below, below + 8 * count
        return _capsule(place, name, None)

    def tensor(self):
        """PyTorch's where that is there, else this."""
        torch = sys.modules.get("torch")
        return torch.from_dlpack(self) if torch else self


def address_of(place):
    """Of a tensor of PyTorch or CuPy, of an array of NumPy or of ctypes, or a number; None is nothing."""
    if hasattr(place, "data_ptr"):
        return ctypes.c_void_p(place.data_ptr())
    if isinstance(place, ctypes.Array):
        return ctypes.c_void_p(ctypes.addressof(place))
    data = getattr(place, "data", None)
    return ctypes.c_void_p(place.ctypes.data if hasattr(place, "ctypes") else getattr(data, "ptr", place))


def stream_of(stream, device):
    """A stream as the library takes it. Streams are those of PyTorch, of CuPy, or addresses; None is PyTorch's
    current one, or the legacy default stream."""
    if stream is None and "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        stream = sys.modules["torch"].cuda.current_stream(device)
    return ctypes.c_void_p(getattr(stream, "cuda_stream", getattr(stream, "ptr", stream)))


def queued_on(stream, device):
    """What PyTorch makes within is made and freed in the order of this stream; None is its current one."""
    torch = sys.modules["torch"]
    if stream is None or not torch.cuda.is_available():
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream_of(stream, device).value or 0, device=device))
