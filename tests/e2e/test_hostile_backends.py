"""Backends that misbehave (tests/support/backends/hostile): each fault affects only the backend's own models."""
import http.client
import json
import socket
import urllib.error
import urllib.request

from http_request import send_http
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

# The answer to a request, by the model's fault.
ANSWERS = {
    "execute": "hostile: execute fails as told",
    "execute_throws": "hostile: execute throws as told",
    "no_response": "without sending a final response",
    "unknown_output": "NO_SUCH_OUTPUT",
    "huge_output": "4611686018427387904",
    "flags_only": "expected a single response, got 0",
    "two_responses": "expected a single response, got 2",
}
# The reason of a failed load, by the model's fault.
LOADS = {
    "model_initialize": "hostile: model_initialize fails as told",
    "model_initialize_throws": "hostile: model_initialize throws as told",
    "instance_initialize": "hostile: instance_initialize fails as told",
    "instance_initialize_throws": "hostile: instance_initialize throws as told",
}
OTHERS = ["none", "late", "sends_twice", "sends_early", "releases_twice", "never", "instance_ready", "instance_ready_throws"]


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
    """Returns the status and the answer."""
    status, _, answer = send_http(f"{server.url}/v2/models/{model}/infer", BODY, timeout_s=timeout)
    return status, json.loads(answer)


def assert_others_are_served(server):
    status, answer = infer(server, "identity")
    assert status == 200 and answer["outputs"][0]["data"] == [1, 2]


def reason(server, model):
    request = urllib.request.Request(f"{server.url}/v2/repository/index", b"")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return next(entry for entry in json.load(answer) if entry["name"] == model).get("reason", "")


@pytest.mark.parametrize("fault", ANSWERS)
def test_a_failed_execution_answers_its_request_alone(server, fault):
    for _ in range(2):  # the model continues to work
        status, answer = infer(server, fault)
        assert status >= 400 and ANSWERS[fault] in answer["error"]
    assert_others_are_served(server)


@pytest.mark.parametrize("fault", LOADS)
def test_failed_load_reports_the_reason(server, fault):
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


def test_unanswered_request_does_not_block_others(server):
    with socket.create_connection(("127.0.0.1", server.http)) as waiting:
        waiting.sendall(b"POST /v2/models/never/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        for _ in range(20):
            assert_others_are_served(server)
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
    assert_others_are_served(server)


@pytest.mark.parametrize("fault", ["instance_ready", "instance_ready_throws"])
def test_model_whose_readiness_check_fails_is_not_ready(server, fault):
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{server.url}/v2/models/{fault}/ready", timeout=60)
    assert infer(server, fault)[0] == 200


@pytest.fixture(scope="module")
def alone(start_server, test_backends, tmp_path_factory):
    """alone(fault, flags=()): returns a server with the model `identity` and one model of the backend `hostile`, both loaded or attempted."""
    def start(fault, flags=()):
        root = tmp_path_factory.mktemp("alone")
        for name, backend in (("identity", "identity_c"), ("hostile", "hostile")):
            (root / name / "1").mkdir(parents=True)
            (root / name / "config.pbtxt").write_text(CONFIG.format(backend=backend, fault=fault))
        return start_server(root, [test_backends, "--exit-on-error=false", "--strict-readiness=false", *flags])

    return start


@pytest.mark.parametrize("fault, said", [("initialize", "initialize fails as told"), ("initialize_throws", "initialize throws as told")])
def test_a_backend_that_fails_itself_fails_its_models(alone, fault, said):
    server = alone("none", [f"--backend-config=hostile,fault={fault}"])
    assert "hostile: " + said in reason(server, "hostile")
    assert_others_are_served(server)


@pytest.mark.parametrize("fault", ["attributes", "attributes_throws"])
def test_a_backend_without_attributes_serves(alone, fault):
    server = alone("none", [f"--backend-config=hostile,fault={fault}"])
    assert infer(server, "hostile")[0] == 200


FINALISERS = {"instance_finalize": "failed to finalise instance 'hostile_0'", "model_finalize": "failed to finalise model 'hostile'",
              "finalize": "backend 'hostile' failed to finalise"}


def model_fault_and_flags(fault):
    """Returns the fault of the model, and the flags that give the fault to the backend itself."""
    return ("none", [f"--backend-config=hostile,fault={fault}"]) if fault.startswith("finalize") else (fault, [])


@pytest.mark.parametrize("how", ["", "_throws"])
@pytest.mark.parametrize("entry", FINALISERS)
def test_failing_finalizer_is_named_and_the_server_exits(alone, entry, how):
    server = alone(*model_fault_and_flags(entry + how))
    assert infer(server, "hostile")[0] == 200
    assert server.stop() == 0
    named = next(line for line in server.text().splitlines() if FINALISERS[entry] in line)
    assert f"hostile: {entry} {'throws' if how else 'fails'} as told" in named


HANGING = {"instance_finalize": "1 models have not ended: 'hostile'", "model_finalize": "1 models have not ended: 'hostile'",
           "finalize": "backend 'hostile' has not ended: Finalize did not return within 5 s"}


@pytest.fixture(scope="module")
def hanging_servers(alone):
    """A server for each finaliser that hangs. They stop at the same time, because each waits some seconds."""
    servers = {}
    for entry in HANGING:
        fault, flags = model_fault_and_flags(entry + "_hangs")
        servers[entry] = alone(fault, [*flags, "--exit-timeout-secs=1"])
        assert infer(servers[entry], "hostile")[0] == 200
    for server in servers.values():
        server.begin_stop()
    return servers


@pytest.mark.parametrize("entry", HANGING)
def test_a_finaliser_that_hangs_is_named_and_the_server_ends(hanging_servers, entry):
    server = hanging_servers[entry]
    assert server.wait() == 1
    assert HANGING[entry] in server.text()
    assert "exiting although work is still running: " in server.text()


EXITS = {"execute": "hostile_0: ModelInstanceExecute", "instance_finalize": "hostile_0: ModelInstanceFinalize",
         "model_finalize": "hostile: ModelFinalize", "finalize": "hostile: Finalize"}


@pytest.mark.parametrize("entry", EXITS)
def test_a_backend_that_ends_the_process_is_named(alone, entry):
    server = alone(*model_fault_and_flags(entry + "_exits"))
    if entry == "execute":
        with pytest.raises((OSError, http.client.HTTPException)):
            infer(server, "hostile")
        assert server.process.wait(timeout=60) == 1
    else:
        assert infer(server, "hostile")[0] == 200
        assert server.stop() == 1
    assert EXITS[entry] + " called exit()" in server.text()


@pytest.mark.parametrize("waits_for_end, expected", [(False, ["first", "second"]), (True, ["first", "first", "second", "second"])])
def test_a_model_that_promised_one_response_has_one_in_a_stream(server, waits_for_end, expected):
    given = tritonclient.grpc.InferInput("INPUT0", [2], "FP32")
    given.set_data_from_numpy(np.array([1, 2], np.float32))
    heard = []
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: heard.append(error or result.get_response()))
        for id_ in ("first", "second"):
            client.async_stream_infer("two_responses", [given], request_id=id_, enable_empty_final_response=waits_for_end)
        client.stop_stream()
    assert [each.id for each in heard] == expected
    assert [len(each.outputs) for each in heard] == ([1, 0, 1, 0] if waits_for_end else [1, 1])
