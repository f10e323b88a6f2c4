"""Sends IN responses of 1 MiB each."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(1 << 18, number, np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
