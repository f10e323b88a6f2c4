"""Counts up to IN[0] with one response per number, from a coroutine. With infinity it counts until it is cancelled."""
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self.count(request) for request in requests))

    async def count(self, request):
        sender = request.get_response_sender()
        limit = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]
        number = 0
        while number < limit:
            if limit == np.inf and sender.is_cancelled():
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)),
                            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.float32))]))
            number += 1
            await asyncio.sleep(0)
        if limit < 0:
            raise ValueError(f"cannot count to {limit}")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
