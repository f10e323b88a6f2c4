"""Shared memory that runs out: requests that need more get an error, memory that was allocated for them is freed, and everything else continues."""
import os

import numpy as np
import pytest
from python_support import binary_request, check_no_leaks, post, python_flags, write_model
from raw_http import Raw

PREFIX = f"nereid_memory_{os.getpid()}"
LIMIT_BYTES = 1 << 20
NO_ROOM = "Failed to increase the shared memory pool size for key '" + PREFIX
TEXT = f" bytes: at most {LIMIT_BYTES} are allowed by shm-max-byte-size"
NUM_FLOATS = 1 << 14  # 64 KiB, which are passed in shared memory

# The first number of the input selects the action.
CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

KEEP, FORGET, TOO_LONG, SECOND_TOO_LONG, FITS, SEND, CALL, CALL_TOO_LONG, CALL_MANY = range(9)


class TritonPythonModel:
    kept = []

    def execute(self, requests):
        return [self.answer(each) for each in requests]

    def answer(self, request):
        values = request.inputs()[0].as_numpy()
        case = int(values[0])
        outputs = [np.zeros(1, np.float32)]
        if case == KEEP:
            self.kept.append(values)
        elif case == FORGET:
            self.kept.clear()
        elif case == TOO_LONG:
            outputs = [np.zeros(1 << 18, np.float32)]
        elif case == SECOND_TOO_LONG:
            outputs = [np.zeros(150_000, np.float32), np.zeros(150_000, np.float32)]
        elif case == FITS:
            outputs = [np.zeros(150_000, np.float32)]
        elif case == SEND:
            request.get_response_sender().send(self.response([np.zeros(1 << 18, np.float32)]))
        elif case == CALL:
            outputs = [self.called("mirror", ["OUT"], np.ones(16384, np.float32))]
        elif case == CALL_TOO_LONG:
            outputs = [self.called("mirror", ["OUT"], np.ones(1 << 18, np.float32))]
        elif case == CALL_MANY:
            outputs = [self.called("many", [f"OUT{i}" for i in range(10)], np.ones(1, np.float32))]
        return self.response(outputs)

    @staticmethod
    def called(model, outputs, values):
        response = pb_utils.InferenceRequest(model_name=model, requested_output_names=outputs, inputs=[pb_utils.Tensor("IN", values)]).exec()
        if response.has_error():
            raise pb_utils.TritonModelException("called: " + response.error().message())
        return response.output_tensors()[0].as_numpy()[:1].copy()

    @staticmethod
    def response(outputs):
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in zip(("OUT", "OUT2"), outputs)])
"""
KEEP, FORGET, TOO_LONG, SECOND_TOO_LONG, FITS, SEND, CALL, CALL_TOO_LONG, CALL_MANY = range(9)

# Many short outputs, which are passed inside the message and make it long.
MANY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(f"OUT{i}", np.zeros(2000, np.float32)) for i in range(10)]) for _ in requests]
"""

MIRROR = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]) for each in requests]
"""


def config(outputs):
    tensors = ", ".join(f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] }}' for name in outputs)
    return ('backend: "python"\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
            f"output [ {tensors} ]\ninstance_group [ {{ kind: KIND_CPU count: 1 }} ]\n")


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("memory") / "models"
    write_model(root, "hoarder", CODE, config(["OUT", "OUT2"]))
    write_model(root, "many", MANY, config([f"OUT{i}" for i in range(10)]))
    write_model(root, "mirror", MIRROR, config(["OUT"]))
    running = start_server(root, python_flags(*(f"--backend-config=python,{each}" for each in (
        f"shm-region-prefix-name={PREFIX}", "shm-default-byte-size=65536", "shm-growth-byte-size=65536", f"shm-max-byte-size={LIMIT_BYTES}"))))
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


@pytest.fixture(autouse=True)
def no_leaks(server):
    yield
    check_no_leaks(server, PREFIX)


def ask(server, case, num_floats=1):
    """Returns the error, or None."""
    status, answer = post(server, "/v2/models/hoarder/infer", {"inputs": [
        {"name": "IN", "datatype": "FP32", "shape": [num_floats], "data": [case] + [0] * (num_floats - 1)}]})
    return None if status == 200 else answer["error"]


def fill(server):
    """Makes the model keep inputs until no more fit."""
    for count in range(LIMIT_BYTES // (4 * NUM_FLOATS) + 1):
        error = ask(server, KEEP, NUM_FLOATS)
        if error is not None:
            assert count > 10
            return error
    return None


def test_inputs_that_a_model_keeps_run_out_of_memory_alone(server):
    for _ in range(2):
        error = fill(server)
        assert error is not None and NO_ROOM in error and "_to_worker' to " in error and TEXT in error and "model 'hoarder'" in error
        assert ask(server, KEEP) is None  # a short input needs no shared memory
        assert ask(server, FORGET) is None
    assert ask(server, FORGET, NUM_FLOATS) is None


def test_slow_clients_do_not_fragment_memory_for_long_inputs(server):
    """Inputs that the model keeps are allocated between those of the clients and are then freed."""
    part = np.zeros(NUM_FLOATS, np.float32)
    request = binary_request("hoarder", part)
    slow = []
    for _ in range(4):
        slow.append(Raw(server.http))
        slow[-1].send(request[:len(request) // 2])
        for _ in range(3):
            assert ask(server, KEEP, NUM_FLOATS) is None
    assert ask(server, FORGET) is None
    assert ask(server, FORGET, 15 * NUM_FLOATS) is None
    for each in slow:
        each.close()


@pytest.mark.parametrize("case", [TOO_LONG, SECOND_TOO_LONG, SEND])
def test_too_long_messages_of_a_model_are_errors_without_leaks(server, case):
    for _ in range(3):
        error = ask(server, case)
        assert error is not None and NO_ROOM in error and "_from_worker' to " in error and TEXT in error, error
        assert ask(server, FITS) is None


def test_call_without_memory_for_inputs_fails(server):
    for _ in range(3):
        error = ask(server, CALL_TOO_LONG)
        assert error is not None and "called: " + NO_ROOM in error and TEXT in error, error
        assert ask(server, FITS) is None


@pytest.mark.parametrize("case", [CALL, CALL_MANY])
def test_a_called_models_answer_that_finds_no_memory_is_the_calls_error(server, case):
    assert ask(server, case) is None
    fill(server)
    error = ask(server, case)
    assert error is not None and "called: " in error and NO_ROOM in error and TEXT in error, error
    assert ask(server, FORGET) is None
    assert ask(server, case) is None
