"""Coroutines of Python models: concurrent calls, and exceptions in coroutines."""
import pytest
from python_support import log_of, post, python_flags, wait_for, write_model

CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }\n"
# Responds only once two requests are waiting.
PAIRS = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    waiting = []
    def execute(self, requests):
        self.waiting += [(each.get_response_sender(), each.inputs()[0].as_numpy()) for each in requests]
        if len(self.waiting) >= 2:
            for sender, values in self.waiting:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            self.waiting.clear()
"""
# Iterates over the responses with a plain `for` instead of `async for`.
ASKER = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    async def ask(self, value):
        request = pb_utils.InferenceRequest(model_name="pairs", inputs=[pb_utils.Tensor("IN", np.array([value], np.float32))],
                                            requested_output_names=["OUT"])
        answers = []
        for each in await request.async_exec(decoupled=True):
            answers += [float(output.as_numpy()[0]) for output in each.output_tensors()]
        return answers
    async def execute(self, requests):
        first, second = await asyncio.gather(self.ask(1), self.ask(2))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(first + second, np.float32))]) for _ in requests]
"""
ANSWERS_AND_RAISES = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    async def execute(self, requests):
        for each in requests:
            each.get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]),
                                            pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        raise ValueError("behind the answer")
"""
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [5]}]}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    repository = tmp_path_factory.mktemp("coroutines")
    write_model(repository, "pairs", PAIRS, DECOUPLED)
    write_model(repository, "asker", ASKER, CONFIG)
    write_model(repository, "raises", ANSWERS_AND_RAISES, DECOUPLED)
    return start_server(repository, python_flags())


def test_a_stream_is_there_with_its_first_response(server):
    status, answer = post(server, "/v2/models/asker/infer", BODY)
    assert (status, answer["outputs"][0]["data"]) == (200, [1.0, 2.0])


def test_exception_of_a_coroutine_after_the_final_response_is_logged(server):
    status, answer = post(server, "/v2/models/raises/generate", {"IN": [5.0]})
    assert (status, answer["OUT"]) == (200, 5.0), answer
    wait_for(lambda: "ValueError: behind the answer" in log_of(server), "the line")
