"""Graceful shutdown from the clients' point of view, with requests in flight and open sequences."""
import pathlib
import shutil
import threading
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFUSED = "Server is stopping, scheduler for model has stopped accepting new inference requests"
# Creates a file to report that it has begun.
SLOW = """
import pathlib, time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            (pathlib.Path(__file__).parent / "begun").touch()
            time.sleep(int(value[0]) / 1000)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        return responses
"""
ENDLESS = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            tensor = pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())
            while not sender.is_cancelled():
                sender.send(pb_utils.InferenceResponse([tensor]))
                time.sleep(0.01)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = 'input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
STEP = '{{ model_name: "slow" model_version: -1 input_map {{ key: "IN" value: "{}" }} output_map {{ key: "OUT" value: "{}" }} }}'
TWICE = f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {STEP.format("IN", "X")}, {STEP.format("X", "OUT")} ] }}\n'


@pytest.fixture
def repository(tmp_path):
    shutil.copytree(ROOT / "tests/golden/repo/seq", tmp_path / "seq")
    config = tmp_path / "seq/config.pbtxt"
    config.write_text(config.read_text().replace("2000000", "3600000000"))  # no sequence is idle for that long
    for name, text in (("slow", f'backend: "python"\n{TENSORS}'), ("twice", TWICE)):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    (tmp_path / "slow/1/model.py").write_text(SLOW)
    return tmp_path


def number(module, name, value, shape):
    one = module.InferInput(name, shape, "INT32")
    one.set_data_from_numpy(np.array(value, np.int32).reshape(shape))
    return [one]


def slow(client, model, **more):
    return client.infer(model, number(grpc_client, "IN", 1, [1]), **more)


def add(module, client, value, **sequence):
    return int(client.infer("seq", number(module, "INPUT", value, [1, 1]), **sequence).as_numpy("OUTPUT")[0, 0])


def refusal(call, *arguments, **more):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **more)
    return caught.value.message()


def test_stopping_server_refuses_new_requests_by_name_and_finishes_running_ones(start_server, repository):
    server = start_server(repository)
    answers = []
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as grpc, \
            http_client.InferenceServerClient(f"127.0.0.1:{server.http}") as http:
        assert add(grpc_client, grpc, 5, sequence_id=1, sequence_start=True) == 5
        assert add(http_client, http, 70, sequence_id=2, sequence_start=True) == 70
        grpc.async_infer("twice", number(grpc_client, "IN", 1500, [1]), lambda result, error: answers.append(error or result))
        wait_for((repository / "slow/1/begun").exists, "the slow request has begun")
        server.process.terminate()
        wait_for(lambda: "Model 'seq' (version 1) has 2 in-flight inferences" in server.text(), "the line of the sequences")

        with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as other:
            for client in (grpc, other):
                assert refusal(slow, client, "slow", request_id="mine") == f"[request id: mine] {REFUSED}"
                assert refusal(slow, client, "twice", request_id="mine") == f"in ensemble 'twice', [request id: mine] {REFUSED}"
                assert REFUSED in refusal(add, grpc_client, client, 1, sequence_id=3, sequence_start=True)
                assert refusal(client.is_server_live) == refusal(client.is_server_ready) == "Server exiting"
                assert refusal(client.is_model_ready, "slow") == "Server not ready"
        with pytest.raises(ConnectionRefusedError), http_client.InferenceServerClient(f"127.0.0.1:{server.http}") as other:
            other.is_server_live()
        assert REFUSED in refusal(add, http_client, http, 1, sequence_id=3, sequence_start=True)

        assert add(grpc_client, grpc, 7, sequence_id=1) == 12
        assert add(http_client, http, 7, sequence_id=2) == 77
        wait_for(lambda: answers, "an answer")
        assert not isinstance(answers[0], Exception), "a step of an ensemble that had begun was refused"
        assert server.alive(), "it does not wait for open sequences"
        assert add(grpc_client, grpc, 1, sequence_id=1, sequence_end=True) == 13
        assert add(http_client, http, 1, sequence_id=2, sequence_end=True) == 78
        assert server.process.wait(timeout=60) == 0
    for line in ("Model 'twice' (version 1) has 1 in-flight inferences", ": Found 0 model versions that have in-flight inferences",
                 "All models are stopped, unloading models", ": Found 0 live models and 0 in-flight non-inference requests"):
        assert line in server.text()


def test_the_countdown_of_a_stop_begins_at_the_exit_timeout_and_once(start_server, repository):
    server = start_server(repository, ["--exit-timeout-secs=47"])
    assert server.stop() == 0
    assert server.text().count("Timeout 47: Found 0 model versions") == 1


def test_requests_that_are_cut_off_at_the_exit_timeout_are_counted_and_make_the_stop_fail(start_server, tmp_path):
    (tmp_path / "endless/1").mkdir(parents=True)
    (tmp_path / "endless/config.pbtxt").write_text(
        f'backend: "python"\n{TENSORS}model_transaction_policy {{ decoupled: true }}\ninstance_group [ {{ kind: KIND_CPU count: 2 }} ]\n')
    (tmp_path / "endless/1/model.py").write_text(ENDLESS)
    server = start_server(tmp_path, ["--exit-timeout-secs=1"])
    begun = threading.Event()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client, \
            urllib.request.urlopen(f"{server.url}/v2/models/endless/generate_stream", b'{"IN": 1}', timeout=60) as stream:
        assert stream.readline().startswith(b"data:")
        client.start_stream(lambda result, error: begun.set())
        client.async_stream_infer("endless", number(grpc_client, "IN", 1, [1]))
        assert begun.wait(60)
        assert server.stop() == 1
        client.stop_stream(cancel_requests=True)
    text = server.text()
    assert "exit timeout: cancelling 1 HTTP requests" in text and "exit timeout: cancelling 1 GRPC requests" in text
    assert "error: exit timeout of 1 s expired: 2 requests were cut off" in text
