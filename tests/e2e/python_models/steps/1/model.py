"""Takes a request IN times before it answers with the number of times that it saw the request."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seen = {}

    def execute(self, requests):
        return [self.step(each) for each in requests]

    def step(self, request):
        number = request.correlation_id()
        self.seen[number] = self.seen.get(number, 0) + 1
        if self.seen[number] < pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().item():
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[self.seen.pop(number)]], np.int32))])
