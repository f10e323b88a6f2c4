"""The host checks the messages of a worker. A worker that sends invalid messages is ended, and its request fails with an error that names the
fault."""
import os

import pytest
from python_support import check_no_leaks, is_ready, post, python_flags, wait_for, write_model

PREFIX = f"nereid_garbage_{os.getpid()}"
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
CODE = """
import marshal, os, time
from nereid_worker import channel

class TritonPythonModel:
    def execute(self, requests):
        key = requests[0]._key
        message = {message}
        os.write(channel.{channel}_fd, message if type(message) is bytes else marshal.dumps(message, 2))
        time.sleep(600)
"""


def answer(responses):
    return f"(0, (0, None, {responses}))"


def response(outputs, error="None", parameters="()"):
    return answer(f"((({outputs}), {error}, {parameters}),)")


def tensor(datatype, shape, data):
    return response(f"('OUT', {datatype}, {shape}, {data}),")


FP32, BYTES = 11, 13
ANSWERS = {
    "no_answer": ("()", "an answer is not (is_error, value)"),
    "no_list": ("(0, 5)", "where a tuple was expected"),
    "error_without_text": ("(1, 5)", "where a text was expected"),
    "two_parts": ("(0, (0, None))", "a message has a tuple of 2 elements where 3 were expected"),
    "more_behind_it": ("(0, (0, None, (None,)), 1)", "a message has a tuple of 3 elements where 2 were expected"),
    "responses_with_an_error": ("(0, (0, 'raised', (None,)))", "a message has a tuple of 1 elements where 0 were expected"),
    "no_response": (answer("()"), "a message has a tuple of 0 elements where 1 were expected"),
    "two_responses": (answer("(None, None)"), "a message has a tuple of 2 elements where 1 were expected"),
    "number": (answer("(7,)"), "unknown outcome 7 in place of a response"),
    "long_number": ("(0, (1 << 80, None, (None,)))", "a message has an int of more than 64 bits"),
    "error_code": (response("", "(99, 'text')"), "an error has code 99"),
    "parameter": (response("", parameters="((1, 2),)"), "where a text was expected"),
    "tensor_of_three": (response("('OUT', 11, ()),"), "a message has a tuple of 3 elements where 4 were expected"),
    "datatype": (tensor(99, (1,), b"abcd"), "tensor 'OUT' has type 99"),
    "dimensions": (tensor(FP32, "(1,) * 1025", b"abcd"), "a shape has 1025 dimensions"),
    "negative": (tensor(FP32, (-1,), b"abcd"), "tensor 'OUT': "),
    "overflow": (tensor(FP32, (1 << 62, 1 << 62), b"abcd"), "tensor 'OUT': "),
    "too_short": (tensor(FP32, (2,), b"abcd"), "tensor 'OUT': expected 8 bytes for FP32 [2], got 4"),
    "text_beyond_its_end": (tensor(BYTES, (1,), b"\x09\0\0\0ab"), "tensor 'OUT': "),
    "texts_too_few": (tensor(BYTES, (2,), b"\x01\0\0\0a"), "tensor 'OUT': "),
    "place_of_five": (tensor(FP32, (4,), (64, 16, 1, 2, 3)), "the location of a tensor has 5 elements"),
    "place_inside_a_block": (tensor(FP32, (4,), (65, 16)), "a message names 16 bytes at 65 of shared memory"),
    "place_of_a_header": (tensor(FP32, (4,), (0, 16)), "a message names 16 bytes at 0 of shared memory"),
    "place_that_wraps": (tensor(FP32, (4,), (-64, 16)), "of shared memory"),
    "handed_back_without_a_flag": (tensor(FP32, (4,), (64, 16, 5)), "where a bool was expected"),
    "handle": (tensor(FP32, (4,), (0, b"short", 0, 16)), "a CUDA IPC handle has 5 bytes"),
    "texts_on_a_gpu": (tensor(BYTES, (1,), (0, b"x" * 64, 0, 16)), "a BYTES tensor cannot be in GPU memory"),
    "elsewhere_without_a_place": ("b'l123'", "a packet without the location of its message"),
    "elsewhere_beyond": ("b'l' + bytes(7) + b'x' + (16).to_bytes(8, 'little')", "of shared memory"),
    "long_packet": ("b'(' * 130000", "a message of 130000 bytes where at most "),
}
POSTED = {
    "nothing": ("()", "a message without a kind"),
    "kind": ("(99,)", "a message of kind 99"),
    "log_level": ("(12, 99, 'text', 'file', 1)", "log level 99"),
    "log_text": ("(12, 0, 5, 'file', 1)", "where a text was expected"),
    "respond_with_more": ("(11, key, ((), None, ()), 0, 1)", "bytes more than expected"),
    "respond_with_none_and_more": ("(11, key, None, 1, 1)", "bytes more than expected"),
    "respond_with_a_place": ("(11, key, ((('OUT', 11, (4,), (1 << 40, 16)),), None, ()), 1)", "a message names 16 bytes at 1099511627776"),
    "cancel": ("(14, 'x')", "where an int was expected"),
    "readiness": ("(15, 1, 2, 'x')", "where a bool was expected"),
    "operation": ("(13, 1, 99, (1,))", "unknown operation 99"),
    "call_of_nothing": ("(13, 1, 1, ())", "a message has a tuple of 0 elements where 2 were expected"),
    "call_with_a_handed_back_input": (
        "(13, 1, 1, (('m', -1, '', 0, 0, 0, (), (), (('IN', 11, (4,), (64, 16, True)),), 0, -1), False))", "the location of a tensor has 3 elements"),
    "family": ("(13, 1, 7, (1, 2))", "a message has a tuple of 2 elements where 3 were expected"),
    "labels": ("(13, 1, 8, (1, (5,), None))", "where a tuple was expected"),
    "metric": ("(13, 1, 9, ('x', 1.0))", "where an int was expected"),
    "load": ("(13, 1, 4, ('m', '', (('path', 5),)))", "where bytes was expected"),
    "unload": ("(13, 1, 5, ('m', 2))", "where a bool was expected"),
    "is_ready": ("(13, 1, 6, ('m',))", "a message has a tuple of 1 elements where 2 were expected"),
}
CASES = {f"{channel}_{name}": (channel, *case) for channel, cases in (("command", ANSWERS), ("posted", POSTED)) for name, case in cases.items()}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("garbage") / "models"
    for name, (channel, message, _) in CASES.items():
        write_model(root, name, CODE.format(channel=channel, message=message), CONFIG)
    running = start_server(root, python_flags(f"--backend-config=python,shm-region-prefix-name={PREFIX}"))
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


@pytest.mark.parametrize("name", CASES)
def test_worker_that_sends_invalid_messages_is_ended_with_a_reason(server, name):
    status, answer = post(server, f"/v2/models/{name}/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [0]}]})
    assert status == 503 and "was ended: it sent an invalid message: " in answer["error"] and CASES[name][-1] in answer["error"], answer
    wait_for(lambda: is_ready(server, name), "the worker is back")
    check_no_leaks(server, PREFIX)
