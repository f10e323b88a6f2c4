"""Returns its input. After the first few answers it always uses the same GPU memory."""
import ctypes

import triton_python_backend_utils as pb_utils

DRIVER = ctypes.CDLL("libcuda.so.1")
MOST_BYTES = 4096


class TritonPythonModel:
    def initialize(self, _arguments):
        from nereid_worker import gpu
        self.pointer = ctypes.c_uint64()
        context = ctypes.c_void_p()
        assert DRIVER.cuInit(0) == 0 and DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and DRIVER.cuCtxSetCurrent(context) == 0
        assert DRIVER.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(MOST_BYTES)) == 0
        self.gpu, self.num_executed = gpu, 0

    def execute(self, requests):
        return [self.answer(each.inputs()[0].as_numpy()) for each in requests]

    def answer(self, values):
        self.num_executed += 1
        if self.num_executed <= 50:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values.copy())])
        assert DRIVER.cuMemcpy(self.pointer, ctypes.c_uint64(values.ctypes.data), ctypes.c_size_t(values.nbytes)) == 0
        memory = self.gpu.GpuMemory(0, self.pointer.value, values.nbytes, self)
        return pb_utils.InferenceResponse([pb_utils.Tensor.on_gpu("OUT", pb_utils.Tensor("OUT", values).triton_dtype(), values.shape, memory)])
