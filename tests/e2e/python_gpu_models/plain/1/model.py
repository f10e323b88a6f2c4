"""Triples its input, which it receives in host memory wherever the client's memory is."""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 3 * each.inputs()[0].as_numpy())]) for each in requests]
