"""Python models that call models of other backends with unusual answers."""
import json

import pytest
from python_support import ask_caller, python_flags, write_model

CALLER = """
import asyncio
import json
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(*[each.as_numpy() for each in request.inputs()]) for request in requests]

    def answer(self, case, values):
        def request():
            return pb_utils.InferenceRequest(model_name=case[0].decode(), inputs=[pb_utils.Tensor("INPUT0", values)], requested_output_names=["OUTPUT0"])

        async def ask():
            return await request().async_exec(), await request().async_exec(decoupled=True)
        single, stream = asyncio.run(ask())
        seen = [self.seen(each) for each in (request().exec(), single)] + [[self.seen(each) for each in all_of_them]
                for all_of_them in (request().exec(decoupled=True), stream)]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], object))])

    @staticmethod
    def seen(response):
        if response.has_error():
            return [int(response.error().code()), response.error().message()]
        return [each.as_numpy().tolist() for each in response.output_tensors()]
"""
CONFIG = """backend: "python"
input [ { name: "CASE" data_type: TYPE_STRING dims: [ 1 ] }, { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
CALLED = """backend: "hostile"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
parameters {{ key: "fault" value {{ string_value: "{}" }} }}
"""
ANSWER = [[5.0]]
NOTHING = [1, "Unexpected empty response."]
SEEN = {  # by exec and async_exec, and for a stream by both
    "none": [ANSWER] * 2 + [[ANSWER]] * 2,
    "sends_early": [ANSWER] * 2 + [[ANSWER, []]] * 2,
    "flags_only": [NOTHING] * 2 + [[[]]] * 2,
}


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("calls")
    write_model(repository, "caller", CALLER, CONFIG)
    for fault in SEEN:
        write_model(repository, fault, None, CALLED.format(fault))
    return start_server(repository, python_flags(test_backends))


@pytest.mark.parametrize("fault", SEEN)
def test_caller_sees_unusual_answers(server, fault):
    for _ in range(3):
        assert ask_caller(server, fault, [5.0]) == SEEN[fault], json.dumps(SEEN[fault])
