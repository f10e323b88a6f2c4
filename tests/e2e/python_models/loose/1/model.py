"""Returns outputs that differ from its configuration in the way that CASE names. The model is also used as a decoupled model, which sends every
response with a sender."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def floats(name, *values):
    return pb_utils.Tensor(name, np.array(values, np.float32))


def numbers(name, *values):
    return pb_utils.Tensor(name, np.array(values, np.int32))


def outputs_of(case):
    return {
        "as_configured": lambda: [floats("OUT", 1), numbers("OTHER", 2, 3)],
        "in_another_order": lambda: [numbers("OTHER", 2, 3), floats("OUT", 1)],
        "undeclared": lambda: [floats("OUT", 1), floats("NOSUCH", 4), numbers("OTHER", 2, 3)],
        "undeclared_alone": lambda: [floats("NOSUCH", 4)],
        "undeclared_and_long": lambda: [floats("OUT", 1), pb_utils.Tensor("NOSUCH", np.zeros(1_000_000, np.float32))],
        "missing": lambda: [floats("OUT", 1)],
        "none": lambda: [],
        "twice": lambda: [floats("OUT", 1), floats("OUT", 5), numbers("OTHER", 2, 3)],
        "of_another_type": lambda: [numbers("OUT", 1), numbers("OTHER", 2, 3)],
        "of_another_shape": lambda: [floats("OUT", 1), numbers("OTHER", 2, 3, 4)],
    }[case]()


class TritonPythonModel:
    def initialize(self, args):
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        responses = []
        for request in requests:
            case = pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode()
            response = pb_utils.InferenceResponse(outputs_of(case))
            if self.is_decoupled:
                request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            responses.append(response)
        return None if self.is_decoupled else responses
