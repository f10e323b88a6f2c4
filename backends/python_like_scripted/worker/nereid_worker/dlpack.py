"""Tensors as DLPack capsules, without a copy. NumPy does the work; types that it cannot name (BF16, and bool where it is old) travel as
unsigned integers whose type code is changed in the capsule."""
import ctypes

import numpy as np

from .data_types import BF16, BYTES
from .errors import TritonModelException
from .tensor import Tensor

_UINT, _BFLOAT, _BOOL = 1, 4, 6
_CPU = 1


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("type_code", ctypes.c_uint8), ("type_bits", ctypes.c_uint8), ("type_lanes", ctypes.c_uint16)]


def _tensor_in(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _DLTensor.from_address(pointer(capsule, b"dltensor"))


class _Holder:
    """A capsule, for those who want an object that gives one."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, *, stream=None, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (_CPU, 0)


def capsule_of(tensor):
    if tensor._type == BYTES:
        raise TritonModelException("DLPack does not have support for string tensors.")
    bits = tensor.bits()
    if not bits.flags.writeable:
        bits = bits.copy()
    code = {BF16: _BFLOAT}.get(tensor._type, _BOOL if bits.dtype == np.bool_ else None)
    if bits.dtype == np.bool_:
        bits = bits.view(np.uint8)
    capsule = bits.__dlpack__()
    if code is not None:
        _tensor_in(capsule).type_code = code
    return capsule


def tensor_of(name, source):
    """From an object with __dlpack__, or a capsule."""
    if hasattr(source, "__dlpack_device__") and source.__dlpack_device__()[0] != _CPU:
        if not hasattr(source, "cpu"):
            raise TritonModelException(f"Tensor '{name}': expected memory of the CPU, got DLPack device {source.__dlpack_device__()}")
        source = source.cpu()
    capsule = source.__dlpack__() if hasattr(source, "__dlpack__") else source
    described = _tensor_in(capsule)
    if described.device_type != _CPU:
        raise TritonModelException(f"Tensor '{name}': expected memory of the CPU, got DLPack device type {described.device_type}")
    code = described.type_code
    if code in (_BFLOAT, _BOOL):
        described.type_code = _UINT
    array = np.from_dlpack(_Holder(capsule))
    if code == _BFLOAT:
        if array.dtype != np.uint16:
            raise TritonModelException(f"Tensor '{name}': expected floats of 16 bits, got {array.dtype.itemsize * 8}")
        return Tensor.of_bits(name, BF16, array)
    return Tensor(name, array.view(np.bool_) if code == _BOOL else array)
