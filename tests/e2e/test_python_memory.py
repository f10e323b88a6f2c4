"""Shared memory that runs out: the requests that want more get an error, what was begun for them is given back, and the rest goes on."""
import os

import numpy as np
import pytest
from python_support import binary_request, check_nothing_stays, post, python_flags, write_model
from raw_http import Raw

PREFIX = f"nereid_memory_{os.getpid()}"
LIMIT_BYTES = 1 << 20
NO_ROOM = "Failed to increase the shared memory pool size for key '" + PREFIX
TEXT = f" bytes: at most {LIMIT_BYTES} are allowed by shm-max-byte-size"
NUM_FLOATS = 1 << 14  # 64 KiB, which travel through shared memory

# The first number of the input is what it does.
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

# Outputs that are short each and travel in the message, which together is a long one.
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
    check_nothing_stays(running, PREFIX)


@pytest.fixture(autouse=True)
def nothing_stays(server):
    yield
    check_nothing_stays(server, PREFIX)


def ask(server, case, num_floats=1):
    """The error, or None."""
    status, answer = post(server, "/v2/models/hoarder/infer", {"inputs": [
        {"name": "IN", "datatype": "FP32", "shape": [num_floats], "data": [case] + [0] * (num_floats - 1)}]})
    return None if status == 200 else answer["error"]


def fill(server):
    """Inputs that the model keeps, until no more fit."""
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
        assert ask(server, KEEP) is None  # a short one needs none
        assert ask(server, FORGET) is None
    assert ask(server, FORGET, NUM_FLOATS) is None


def test_slow_clients_leave_a_long_input_its_place(server):
    """Inputs that are kept lie between what the clients bring, and go."""
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
def test_what_a_model_says_at_too_great_length_is_an_error_that_leaves_nothing(server, case):
    for _ in range(3):
        error = ask(server, case)
        assert error is not None and NO_ROOM in error and "_from_worker' to " in error and TEXT in error, error
        assert ask(server, FITS) is None


def test_a_call_whose_inputs_find_no_memory_is_answered_with_an_error(server):
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
