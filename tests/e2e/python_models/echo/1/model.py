"""Returns the properties of a request other than its tensors."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps({
            "id": each.request_id(), "correlation": each.correlation_id(), "flags": int(each.flags()), "timeout": int(each.timeout()),
            "outputs": sorted(each.requested_output_names()), "parameters": json.loads(each.parameters() or "{}")}).encode()], np.object_))])
                for each in requests]
