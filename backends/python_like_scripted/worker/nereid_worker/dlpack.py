"""Converts tensors to and from DLPack capsules without a copy. NumPy makes the capsules of arrays. Types that NumPy cannot export (BF16, and bool
in old versions) are exported as unsigned integers, and their type code is changed in the capsule."""
import ctypes

import numpy as np

from .data_types import BF16, BYTES, DTYPES
from .errors import TritonModelException

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_NOT_CONTIGUOUS = "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
# DLPack's (code, bits), by Triton's type number
_KINDS = {1: (_BOOL, 8), 2: (_UINT, 8), 3: (_UINT, 16), 4: (_UINT, 32), 5: (_UINT, 64), 6: (_INT, 8), 7: (_INT, 16), 8: (_INT, 32),
          9: (_INT, 64), 10: (_FLOAT, 16), 11: (_FLOAT, 32), 12: (_FLOAT, 64), BF16: (_BFLOAT, 16)}
_TYPES = {kind: number for number, kind in _KINDS.items()}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("type_code", ctypes.c_uint8), ("type_bits", ctypes.c_uint8), ("type_lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _function(name, result, *arguments):
    """A function of Python's C API. Each has its own prototype, because other libraries set those of ctypes.pythonapi, too."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer_in = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_pointer_in_dying = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_is_unused_dying = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_UNUSED, _USED = b"dltensor", b"used_dltensor"  # kept here, because a capsule does not copy its name


def _tensor_in(capsule):
    return _DLTensor.from_address(_pointer_in(capsule, _UNUSED))


class _TensorArray(np.ndarray):
    """The array that a capsule holds. As in Triton, it keeps the whole Tensor alive, whose references models count."""
    tensor = None


def capsule_of(tensor):
    if tensor._type == BYTES:
        raise TritonModelException("DLPack does not have support for string tensors.")
    if tensor._gpu is not None:
        return _gpu_capsule_of(tensor)
    bits = tensor.bits()
    if not bits.flags.writeable:
        bits = bits.copy()
    code = {BF16: _BFLOAT}.get(tensor._type, _BOOL if bits.dtype == np.bool_ else None)
    if bits.dtype == np.bool_:
        bits = bits.view(np.uint8)
    bits = bits.view(_TensorArray)
    bits.tensor = tensor
    capsule = bits.__dlpack__()
    if code is not None:
        _tensor_in(capsule).type_code = code
    return capsule


def _capsule_from(source):
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TritonModelException("Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and "
                                   "`__dlpack_device__` attributes")
    device = source.__dlpack_device__()[0]
    if device not in (_CPU, _CUDA, _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {int(device)} is not support by Python backend.")
    return source.__dlpack__()


def received(name, source):
    """(Triton's type number, shape, data) of an object with __dlpack__, or of a capsule. The data is an array that shares the memory (of uint16
    for BF16), or a GpuMemory. `name` is that of the tensor to be made, for error texts."""
    capsule = source if type(source).__name__ == "PyCapsule" else _capsule_from(source)
    described = _tensor_in(capsule)
    if described.device_type == _CUDA:
        return _received_on_gpu(name, capsule)
    if described.device_type not in (_CPU, _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {described.device_type} is not support by Python backend.")
    number, shape, size = _described(name, described)
    pointer = (described.data or 0) + described.byte_offset
    taken = _take_ownership(capsule)
    dtype = np.dtype(np.uint16) if number == BF16 else DTYPES[number]
    if size == 0:
        array = np.empty(shape, dtype)
    else:
        memory = (ctypes.c_char * size).from_address(pointer)
        memory.owner = taken
        array = np.ndarray(shape, dtype, memory)  # writable, as in Triton
    return number, shape, array


def _described(name, described):
    """(Triton's type number, shape, size in bytes) of a capsule's tensor."""
    shape = tuple(described.shape[:described.ndim])
    number = _TYPES.get((described.type_code, described.type_bits)) if described.type_lanes == 1 else None
    if number is None:
        raise TritonModelException(f"Tensor '{name}': no type for DLPack's code {described.type_code} of {described.type_bits} bits")
    size = described.type_bits // 8
    for dim in shape:
        size *= dim
    if size and described.strides and not _is_compact(shape, described.strides[:described.ndim]):
        raise TritonModelException(_NOT_CONTIGUOUS)
    return number, shape, size


def _take_ownership(capsule):
    """Takes the tensor out of the capsule. The returned object keeps the memory alive."""
    managed = _Managed.from_address(_pointer_in(capsule, _UNUSED))
    _rename(capsule, _USED)
    return _CapsuleOwner(managed)


# ---- GPU memory

_exported: "dict[int, tuple]" = {}  # (structure, dimensions, tensor) of each exported GPU tensor, by the address of the structure


@_DELETER
def _delete(address):
    _exported.pop(address, None)


@_DESTRUCTOR
def _destroy(capsule):
    """Destructor of a capsule whose tensor was not taken."""
    if _is_unused_dying(capsule, _UNUSED):
        _exported.pop(_pointer_in_dying(capsule, _UNUSED), None)


def _gpu_capsule_of(tensor):
    memory, shape = tensor._gpu, tensor._shape
    code, bits = _KINDS[tensor._type]
    dims = (ctypes.c_int64 * len(shape))(*shape)
    managed = _Managed(_DLTensor(memory.pointer, _CUDA, memory.device, len(shape), code, bits, 1,
                                 ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64)), None, 0), None, _delete)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, dims, tensor)
    return _new_capsule(address, _UNUSED, ctypes.cast(_destroy, ctypes.c_void_p))


class _CapsuleOwner:
    """Owns the tensor of a capsule; calls its deleter at the end."""

    def __init__(self, managed):
        self._managed = managed

    def __del__(self):
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def _is_compact(shape, strides):
    expected = 1
    for i in reversed(range(len(shape))):
        if shape[i] != 1 and strides[i] != expected:
            return False
        expected *= shape[i]
    return True


def _received_on_gpu(name, capsule):
    from .gpu import GpuMemory
    described = _tensor_in(capsule)
    number, shape, size = _described(name, described)
    pointer = (described.data or 0) + described.byte_offset
    return number, shape, GpuMemory(described.device_id, pointer, size, _take_ownership(capsule))
