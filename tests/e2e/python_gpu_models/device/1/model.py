"""Returns tensors on the GPU: the input unchanged, its second half, and twice the input in the model's own memory. The arithmetic runs on the CPU
between two copies."""
import ctypes

import numpy as np
import triton_python_backend_utils as pb_utils

DRIVER = ctypes.CDLL("libcuda.so.1")
FLOAT, CUDA = 2, 2


def copied(pointer, count):
    values = np.empty(count, np.float32)
    assert DRIVER.cuMemcpy(ctypes.c_uint64(values.ctypes.data), ctypes.c_uint64(pointer), ctypes.c_size_t(values.nbytes)) == 0
    return values


class Allocation:
    """GPU memory of this model, freed with the last tensor that uses it."""

    def __init__(self, values):
        self.pointer = ctypes.c_uint64()
        assert DRIVER.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(values.nbytes)) == 0
        assert DRIVER.cuMemcpy(self.pointer, ctypes.c_uint64(values.ctypes.data), ctypes.c_size_t(values.nbytes)) == 0

    def __del__(self):
        DRIVER.cuMemFree_v2(self.pointer)


def described(capsule):
    """Returns (pointer, count) of the one-dimensional float tensor in a DLPack capsule."""
    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    tensor = Tensor.from_address(pointer(capsule, b"dltensor"))
    assert (tensor.device_type, tensor.device_id, tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (CUDA, 0, 1, FLOAT, 32, 1)
    return tensor.data + tensor.byte_offset, tensor.shape[0]


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(each, "IN")) for each in requests]

    def answer(self, tensor):
        from nereid_worker.gpu import GpuMemory
        if tensor.is_cpu():
            return pb_utils.InferenceResponse([pb_utils.Tensor("IS_CPU", np.array([True]))])
        try:
            tensor.as_numpy()
            refused = "no error"
        except pb_utils.TritonModelException as error:
            refused = str(error)
        assert tensor.__dlpack_device__() == (CUDA, 0)
        pointer, count = described(tensor.to_dlpack())
        allocation = Allocation(2 * copied(pointer, count))
        own = pb_utils.Tensor.on_gpu("OWN", tensor.triton_dtype(), (count,), GpuMemory(0, allocation.pointer.value, 4 * count, allocation))
        half = count // 2
        last = pb_utils.Tensor.on_gpu("LAST", tensor.triton_dtype(), (count - half,), GpuMemory(0, pointer + 4 * half, 4 * (count - half), tensor))
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("IS_CPU", np.array([tensor.is_cpu()])), pb_utils.Tensor.from_dlpack("SAME", tensor),
            pb_utils.Tensor.from_dlpack("LAST", last), pb_utils.Tensor.from_dlpack("OWN", own.to_dlpack()),
            pb_utils.Tensor("TEXT", np.array([refused.encode()], np.object_))])
