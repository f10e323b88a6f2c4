"""Backends that misbehave (tests/support/backends/hostile): each gets its own models into trouble, and nobody else's."""
import http.client
import json
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

CONFIG = """backend: "{backend}"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
parameters {{ key: "fault" value {{ string_value: "{fault}" }} }}
parameters {{ key: "delay_ms" value {{ string_value: "200" }} }}
"""
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()

# What a request to a model with this fault is answered.
ANSWERS = {
    "execute": "hostile: execute fails as told",
    "execute_throws": "hostile: execute_throws throws as told",
    "no_response": "without sending a final response",
    "unknown_output": "NO_SUCH_OUTPUT",
    "huge_output": "4611686018427387904",
    "flags_only": "expected a single response, got 0",
    "two_responses": "expected a single response, got 2",
}
# Why a model with this fault did not load.
LOADS = {
    "model_initialize": "hostile: model_initialize fails as told",
    "model_initialize_throws": "hostile: model_initialize_throws throws as told",
    "instance_initialize": "hostile: instance_initialize fails as told",
}
OTHERS = ["none", "late", "sends_twice", "sends_early", "releases_twice", "never", "model_finalize", "instance_finalize"]


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("hostile")
    models = {"identity": ("identity_c", "none"), "no_entry_points": ("no_entry_points", ""), "missing_symbol": ("missing_symbol", "")}
    models |= {fault: ("hostile", fault) for fault in [*ANSWERS, *LOADS, *OTHERS]}
    for name, (backend, fault) in models.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG.format(backend=backend, fault=fault))
    return start_server(repository, [test_backends, "--exit-on-error=false", "--strict-readiness=false",
                                     "--exit-timeout-secs=1"])


def infer(server, model, timeout=60):
    """Status and answer."""
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", BODY)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def assert_others_are_served(server):
    status, answer = infer(server, "identity")
    assert status == 200 and answer["outputs"][0]["data"] == [1, 2]


def reason(server, model):
    request = urllib.request.Request(f"{server.url}/v2/repository/index", b"")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return next(entry for entry in json.load(answer) if entry["name"] == model).get("reason", "")


@pytest.mark.parametrize("fault", ANSWERS)
def test_a_failed_execution_answers_its_request_alone(server, fault):
    for _ in range(2):  # the model goes on
        status, answer = infer(server, fault)
        assert status >= 400 and ANSWERS[fault] in answer["error"]
    assert_others_are_served(server)


@pytest.mark.parametrize("fault", LOADS)
def test_a_failed_load_says_why(server, fault):
    assert LOADS[fault] in reason(server, fault)
    status, answer = infer(server, fault)
    assert status >= 400 and fault in answer["error"]
    assert_others_are_served(server)


def test_a_library_that_is_no_backend_is_named(server):
    assert "TRITONBACKEND_ModelInstanceExecute" in reason(server, "no_entry_points")
    assert "libtriton_no_entry_points.so" in reason(server, "no_entry_points")


def test_a_library_that_does_not_load_reports_its_own_error(server):
    assert "undefined symbol: TRITONBACKEND_NoSuchFunction" in reason(server, "missing_symbol")


@pytest.mark.parametrize("fault", ["none", "late", "sends_twice", "sends_early", "releases_twice"])
def test_one_answer_comes_whenever_and_however_often_it_is_sent(server, fault):
    for _ in range(3):
        status, answer = infer(server, fault)
        assert status == 200 and answer["outputs"][0]["data"] == [1, 2]


@pytest.mark.parametrize("fault", ["sends_twice", "sends_early", "flags_only", "two_responses"])
def test_grpc_answers_a_call_once(server, fault):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [2], "FP32")
        tensor.set_data_from_numpy(np.array([1, 2], np.float32))
        for _ in range(3):
            if fault in ANSWERS:
                with pytest.raises(InferenceServerException, match=ANSWERS[fault]) as error:
                    client.infer(fault, [tensor])
                assert error.value.status() == "StatusCode.INTERNAL"
            else:
                assert client.infer(fault, [tensor]).as_numpy("OUTPUT0").tolist() == [1, 2]


def test_a_request_that_is_never_answered_holds_up_nobody(server):
    with socket.create_connection(("127.0.0.1", server.http)) as waiting:
        waiting.sendall(b"POST /v2/models/never/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        for _ in range(20):
            assert_others_are_served(server)
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
    assert_others_are_served(server)


def test_failing_finalisers_do_not_keep_the_server_from_ending(start_server, test_backends, tmp_path):
    for fault in ("model_finalize", "instance_finalize"):
        (tmp_path / fault / "1").mkdir(parents=True)
        (tmp_path / fault / "config.pbtxt").write_text(CONFIG.format(backend="hostile", fault=fault))
    server = start_server(tmp_path, [test_backends])
    assert infer(server, "model_finalize")[0] == 200
    assert server.stop() == 0


def test_a_backend_that_fails_itself_fails_its_models(start_server, test_backends, tmp_path):
    (tmp_path / "model/1").mkdir(parents=True)
    (tmp_path / "model/config.pbtxt").write_text(CONFIG.format(backend="hostile", fault="none"))
    server = start_server(tmp_path, [test_backends, "--exit-on-error=false",
                                     "--strict-readiness=false", "--backend-config=hostile,fault=initialize"])
    assert "hostile: initialize fails as told" in reason(server, "model")
    assert server.alive()


def test_a_model_that_does_not_end_is_named_when_the_server_ends(start_server, test_backends, tmp_path):
    for fault in ("instance_finalize_hangs", "none"):
        (tmp_path / fault / "1").mkdir(parents=True)
        (tmp_path / fault / "config.pbtxt").write_text(CONFIG.format(backend="hostile", fault=fault))
    server = start_server(tmp_path, [test_backends, "--exit-timeout-secs=1"])
    assert infer(server, "instance_finalize_hangs")[0] == 200
    assert server.stop() == 0
    assert "1 models have not ended: 'instance_finalize_hangs'" in open(server.log).read()


def test_a_backend_that_ends_the_process_is_named(start_server, test_backends, tmp_path):
    (tmp_path / "exits/1").mkdir(parents=True)
    (tmp_path / "exits/config.pbtxt").write_text(CONFIG.format(backend="hostile", fault="execute_exits"))
    server = start_server(tmp_path, [test_backends])
    with pytest.raises((OSError, http.client.HTTPException)):
        infer(server, "exits")
    assert server.process.wait(timeout=60) == 1
    assert "exits_0: ModelInstanceExecute called exit()" in open(server.log).read()
