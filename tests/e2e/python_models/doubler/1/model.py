import json

import triton_python_backend_utils as pb_utils
from helper import twice  # a file beside this one


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if values[0] == -1:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("minus one", pb_utils.TritonError.NOT_FOUND)))
                continue
            parameters = json.loads(request.parameters() or "{}")
            further = {"parameters": parameters} if parameters else {}  # a parameter that older backends do not have
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", twice(values))], **further))
        return responses
