"""Returns its input, whole and as views of it."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(each, "IN").as_numpy()) for each in requests]

    def answer(self, values):
        half = len(values) // 2
        views = {"WHOLE": values, "AGAIN": values, "FIRST": values[:half], "LAST": values[half:], "EVEN": values[::2], "BITS": values.view(np.uint32)}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, view) for name, view in views.items()])
