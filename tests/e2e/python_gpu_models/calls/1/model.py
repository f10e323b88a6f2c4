"""Calls "device" with its input without copying it, once with outputs on the GPU and once with outputs in host memory, and returns the results."""
import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.answer(request, request.get_response_sender())
        return [None] * len(requests)

    def answer(self, request, sender):
        tensor = request.inputs()[0]
        on_gpu = self.call(tensor, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)).exec()
        on_host = asyncio.run(self.called(tensor))
        no_gpu = self.call(tensor, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 7)).exec()
        for each in (on_gpu, on_host, no_gpu):
            if each.has_error():
                raise pb_utils.TritonModelException(each.error().message())
        seen = {"on_gpu": self.places(on_gpu), "on_host": self.places(on_host), "no_gpu": self.places(no_gpu),
                "text": self.of(on_gpu, "TEXT").as_numpy()[0].decode(), "callee_is_cpu": bool(self.of(on_host, "IS_CPU").as_numpy()[0]),
                "same": float(self.of(on_host, "SAME").as_numpy().astype(np.float64).sum())}
        sender.send(pb_utils.InferenceResponse([self.of(on_gpu, "SAME"), self.of(on_gpu, "OWN"),
                                                pb_utils.Tensor("SEEN", np.array([json.dumps(seen).encode()], np.object_))]),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def called(self, tensor):
        return await self.call(tensor).async_exec()

    @staticmethod
    def call(tensor, preferred=None):
        return pb_utils.InferenceRequest(model_name="device", requested_output_names=["IS_CPU", "SAME", "OWN", "TEXT"],
                                         inputs=[pb_utils.Tensor.from_dlpack("IN", tensor)], preferred_memory=preferred)

    @staticmethod
    def of(response, name):
        return pb_utils.get_output_tensor_by_name(response, name)

    def places(self, response):
        return {name: "host" if self.of(response, name).is_cpu() else "gpu" for name in ("SAME", "OWN", "TEXT")}
