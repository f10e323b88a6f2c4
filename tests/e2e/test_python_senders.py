"""Response senders, in decoupled models and others; the return values of execute(); requests without a response. tests/compat runs the same model
with Triton's Python backend."""
import json

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from python_support import post, stream_of


def call_speaker(server, case, model="speaker"):
    return post(server, f"/v2/models/{model}/infer", {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]}]})


def raised_exceptions(server):
    status, answer = call_speaker(server, "told")
    assert status == 200, answer
    return json.loads(answer["outputs"][0]["data"][0])


@pytest.mark.parametrize("case, expected", [
    ("final", "final"), ("final_later", "final later"), ("final_much_later", "final much later"), ("sender_of_a_thread", "of a thread"),
    ("sends_after_return", "returned")])
def test_a_sender_answers_once(python_server, case, expected):
    status, answer = call_speaker(python_server, case)
    assert (status, answer.get("outputs", [{}])[0].get("data")) == (200, [expected]), answer


def test_a_sender_refuses_what_cannot_be_sent(python_server):
    raised_exceptions(python_server)
    assert call_speaker(python_server, "misuse")[1]["outputs"][0]["data"] == ["first"]
    unable, refused = "Unable to send response. ", "TritonModelException"
    assert raised_exceptions(python_server) == [
        [refused, "Inference Response object must be provided when the response flags is set to zero."],
        [refused, unable + "Unsupported flag provided."],
        ["TypeError", ""],
        [refused, unable + "Non-decoupled model cannot send complete final before sending a response."],
        "nothing",
        *[[refused, unable + "Non-decoupled model cannot send more than one response."]] * 2,
        "nothing",
        [refused, unable + "Response sender has been closed."],
        [refused, unable + "Non-decoupled model cannot send more than one response."]]
    call_speaker(python_server, "sends_after_return")
    assert call_speaker(python_server, "kept")[0] == 200
    assert raised_exceptions(python_server) == [[refused, unable + "Non-decoupled model cannot send more than one response."],
                                   [refused, unable + "Response sender has been closed."]]


@pytest.mark.parametrize("case, text", [
    ("returns_tuple", "Expected a list in the execute return, found type '<class 'tuple'>'."),
    ("returns_generator", "Expected a list in the execute return, found type '<class 'generator'>'."),
    ("returns_dict", "Expected a list in the execute return, found type '<class 'dict'>'."),
    ("returns_text", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."),
    ("returns_two", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2"),
    ("rescheduled_and_returned", "Expected a None object in the execute function return list for reschduled request, found type '"),
    ("half_sent_and_returned", "Unable to send response. Non-decoupled model cannot send more than one response."),
    ("half_sent_and_raised", "ValueError: behind what was sent"),
    ("raised", "ValueError: raised"),
    ("never", "expected exactly 1 response, because the model is not decoupled; its response sender was closed without one"),
])
def test_an_answer_that_is_none_is_an_error(python_server, case, text):
    status, answer = call_speaker(python_server, case)
    assert status == 500 and text in answer["error"], answer


def test_response_without_final_flag_arrives_when_its_sender_is_deleted(python_server):
    status, answer = call_speaker(python_server, "half")
    assert (status, answer["outputs"][0]["data"]) == (200, ["half"])


@pytest.mark.parametrize("case, expected", [("half", ["half"]), ("never", []), ("final_later", ["final later"])])
def test_stream_ends_when_its_sender_is_deleted(python_server, case, expected):
    tensor = grpcclient.InferInput("CASE", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([case.encode()], object))
    assert [each.as_numpy("OUT")[0].decode() for each in stream_of(python_server, "speaker_stream", [tensor])] == expected


def test_an_error_closes_the_senders(python_server):
    raised_exceptions(python_server)
    assert call_speaker(python_server, "raised")[0] == 500
    assert call_speaker(python_server, "kept")[1]["outputs"][0]["data"] == ["kept"]
    texts = [text for _, text in raised_exceptions(python_server)]
    assert texts[0] == "Unable to send response. Response sender has been closed.", texts
