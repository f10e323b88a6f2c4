"""Generates texts for prompts. Each prompt becomes a call of the model `ensemble`; all calls of a request run concurrently. A model that is not
decoupled answers once, with the whole texts. A decoupled model sends a response for each token, with the new text of one prompt."""
import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        values = {key: each["string_value"] for key, each in config.get("parameters", {}).items()}
        self.max_tokens = int(values.get("max_tokens") or 128)
        self.batch_size = int(values.get("batch_size") or 0)
        self.is_continuous = bool(values.get("full_batch_size"))
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)

    def execute(self, requests):
        if not self.is_decoupled:
            return [asyncio.run(self.answer(each)) for each in requests]
        return asyncio.run(self.stream_all(requests))

    def prompts_of(self, request):
        """Returns the prompts of a request; `A|B` counts as two."""
        given = pb_utils.get_input_tensor_by_name(request, "prompt").as_numpy().ravel()
        prompts = [part for each in given for part in each.decode().split("|")]
        if self.batch_size and not self.is_continuous:
            prompts = [prompts[i % len(prompts)] for i in range(self.batch_size)]
        return prompts

    def call(self, request, prompt):
        limit = pb_utils.get_input_tensor_by_name(request, "max_tokens")
        max_tokens = int(limit.as_numpy().flat[0]) if limit is not None else self.max_tokens
        inputs = [pb_utils.Tensor("text_input", np.array([[prompt.encode()]], object)),
                  pb_utils.Tensor("max_tokens", np.array([[max_tokens]], np.int32)),
                  pb_utils.Tensor("stream", np.array([[self.is_decoupled]]))]
        return pb_utils.InferenceRequest(model_name="ensemble", request_id=request.request_id(), inputs=inputs,
                                         requested_output_names=["text_output"])

    async def pieces(self, request, prompt):
        async for response in await self.call(request, prompt).async_exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            output = pb_utils.get_output_tensor_by_name(response, "text_output")
            if output is not None:
                yield output.as_numpy().flat[0]

    async def whole(self, request, prompt):
        return b"".join([piece async for piece in self.pieces(request, prompt)])

    async def answer(self, request):
        try:
            texts = await asyncio.gather(*(self.whole(request, each) for each in self.prompts_of(request)))
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("generation", np.array(texts, object))])

    async def stream_all(self, requests):
        await asyncio.gather(*(self.stream(each) for each in requests))

    async def stream(self, request):
        sender = request.get_response_sender()
        prompts = self.prompts_of(request)

        async def one(index, prompt):
            async for piece in self.pieces(request, prompt):
                texts = np.array([piece if i == index else b"" for i in range(len(prompts))], object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("generation", texts)]))

        try:
            await asyncio.gather(*(one(*each) for each in enumerate(prompts)))
        except pb_utils.TritonModelException as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
