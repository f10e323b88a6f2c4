import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Is ready or not, as the last request specified."""

    def initialize(self, args):
        self.mood = True

    async def is_ready(self):
        return self.mood

    def execute(self, requests):
        self.mood = bool(pb_utils.get_input_tensor_by_name(requests[-1], "IN").as_numpy()[0])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(each, "IN").as_numpy())])
                for each in requests]
