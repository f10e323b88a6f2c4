"""A coroutine of a model that is not decoupled: calls "doubler" for all elements concurrently and returns the responses."""
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if len(values) == 0:
            raise ValueError("nothing to gather")
        calls = [pb_utils.InferenceRequest(model_name="doubler", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", values[i:i + 1])])
                 for i in range(len(values))]
        answers = await asyncio.gather(*(call.async_exec() for call in calls))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate([each.output_tensors()[0].as_numpy() for each in answers]))])
