"""The inference protocol over HTTP with common clients: tritonclient, asyncio, plain urllib. The test backend `python` imitates the models of
tests/golden/repo."""
import asyncio
import json
import pathlib
import shutil
import urllib.error
import urllib.request

from http_request import send_http
import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import InferenceServerException

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ["identity_fp32", "identity_int32", "identity_string", "identity_batch", "dtypes", "textgen", "repeat", "versions", "fail", "params"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    target = tmp_path_factory.mktemp("models")
    for model in MODELS:
        shutil.copytree(ROOT / "tests/golden/repo" / model, target / model)
    return target


@pytest.fixture(scope="module")
def server(start_server, repository, test_backends):
    return start_server(repository, [test_backends, "--allow-inline-models", "--model-control-mode=explicit", "--load-model=*"])


@pytest.fixture
def client(server):
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as one:
        yield one


def call(server, path, body=None, method=None):
    """Returns the status and the body."""
    status, _, answer = send_http(server.url + path, body, method=method)
    return status, answer


def input_of(array, name="INPUT0", datatype=None, binary=True):
    types = {"f": "FP32", "i": "INT32", "O": "BYTES"}
    tensor = httpclient.InferInput(name, list(array.shape), datatype or types[array.dtype.kind])
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("identity_fp32")
    assert not client.is_model_ready("identity_fp32", "9")
    assert not client.is_model_ready("nosuch")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("versions")["versions"] == ["1", "3"]
    assert client.get_model_config("identity_batch")["max_batch_size"] == 8


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_tensors_travel_in_every_form(client, binary_in, binary_out):
    numbers = np.array([1.5, -2, 3e10, 0.1], dtype=np.float32)
    texts = np.array([b"abc", b"", "z\u00fcrich\n\"".encode()], dtype=object)
    for model, array in (("identity_fp32", numbers), ("identity_string", texts)):
        outputs = [httpclient.InferRequestedOutput("OUTPUT0", binary_data=binary_out)]
        result = client.infer(model, [input_of(array, binary=binary_in)], outputs=outputs, request_id="r1")
        assert result.get_response()["id"] == "r1"
        got = result.as_numpy("OUTPUT0")
        if array.dtype == object and not binary_out:
            got = np.array([text.encode() if isinstance(text, str) else text for text in got], dtype=object)
        np.testing.assert_array_equal(got, array)


def test_large_tensors(client):
    array = np.arange(2_000_000, dtype=np.float32)
    np.testing.assert_array_equal(client.infer("identity_fp32", [input_of(array)]).as_numpy("OUTPUT0"), array)


def test_a_version_may_be_named(client):
    array = np.ones((2, 2), dtype=np.int32)
    assert client.infer("versions", [input_of(array)]).get_response()["model_version"] == "3"
    assert client.infer("versions", [input_of(array)], model_version="1").get_response()["model_version"] == "1"
    with pytest.raises(InferenceServerException, match="version 2"):
        client.infer("versions", [input_of(array)], model_version="2")


def test_parameters_reach_the_model(client):
    result = client.infer("params", [input_of(np.ones(1, dtype=np.int32))], request_id="p", sequence_id=7, sequence_start=True,
                          sequence_end=True, timeout=500_000, parameters={"x": "y", "n": 3, "t": True, "f": 0.5})
    seen = json.loads(result.as_numpy("OUTPUT0")[0])
    assert seen["id"] == "p" and seen["corr"] == 7 and seen["flags"] == 3 and seen["timeout"] == 500_000
    assert {key: seen["parameters"][key] for key in "xntf"} == {"x": "y", "n": 3, "t": True, "f": 0.5}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -2**63, -2**63 - 1, 2**64])
def test_a_parameter_that_no_integer_holds_is_a_double(client, number):
    seen = client.infer("params", [input_of(np.ones(1, dtype=np.int32))], parameters={"big": number}).as_numpy("OUTPUT0")[0]
    big = json.loads(seen)["parameters"]["big"]
    assert big == (number if -2**63 <= number < 2**63 else float(number))


@pytest.mark.parametrize("path, change, said", [
    ("/v2/trace/setting", {"trace_rate": "0"}, "Unable to parse 'trace_rate'. Expecting value >= 1, got:0"),
    ("/v2/trace/setting", {"trace_rate": "-1"}, "Unable to parse 'trace_rate', got: -1"),
    ("/v2/trace/setting", {"trace_rate": "1.5"}, "Unable to parse 'trace_rate', got: 1.5"),
    ("/v2/trace/setting", {"trace_count": "5x"}, "Unable to parse 'trace_count', got: 5x"),
    ("/v2/trace/setting", {"log_frequency": "-1"}, "Unable to parse 'log_frequency', got: -1"),
    ("/v2/trace/setting", {"no_such": "1"}, "unknown trace setting 'no_such'"),
    ("/v2/trace/setting", {"trace_mode": "triton"}, "trace mode can not be updated through network protocol"),
    ("/v2/logging", {"no_such": 1}, "unknown log setting 'no_such'"),
    ("/v2/logging", {"log_verbose_level": 2**32}, "invalid argument for log_verbose_level, got: 4294967296, expected at most 2147483647"),
])
def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(server, path, change, said):
    def settings():
        with urllib.request.urlopen(server.url + path, timeout=60) as answer:
            return json.load(answer)

    before = settings()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(change).encode()), timeout=60)
    assert json.load(refused.value) == {"error": said}
    assert settings() == before


def test_asyncio_clients_share_the_server(server):
    async def one(client, value):
        array = np.full(16, value, dtype=np.float32)
        result = await client.infer("identity_fp32", [input_of(array)])
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)

    async def many():
        async with httpaio.InferenceServerClient(f"127.0.0.1:{server.http}", conn_limit=32) as client:
            await asyncio.gather(*(one(client, value) for value in range(200)))

    asyncio.run(many())


def test_parallel_requests_of_one_client(server):
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=8) as client:
        arrays = [np.full(8, i, dtype=np.int32) for i in range(100)]
        waiting = [client.async_infer("identity_int32", [input_of(array)]) for array in arrays]
        for array, one in zip(arrays, waiting):
            np.testing.assert_array_equal(one.get_result().as_numpy("OUTPUT0"), array)


def test_generate_and_its_stream(server):
    status, body = call(server, "/v2/models/textgen/generate", {"text_input": "hi", "foo": "bar", "n": 3})
    assert status == 200
    assert json.loads(body) == {"index": 0, "model_name": "textgen", "model_version": "1", "text_output": 'hi {"foo":"bar","n":3}'}
    assert list(json.loads(body)) == sorted(json.loads(body))
    status, body = call(server, "/v2/models/textgen/generate_stream", {"text_input": "hi", "max_tokens": 3})
    events = body.decode().split("\n\n")
    assert status == 200 and events.pop() == ""
    assert [json.loads(event.removeprefix("data: "))["index"] for event in events] == [0, 1, 2]


def test_generate_needs_exactly_one_response(server):
    status, body = call(server, "/v2/models/textgen/generate", {"text_input": "hi", "max_tokens": 3})
    assert status == 500 and b"exactly 1 response" in body
    status, body = call(server, "/v2/models/repeat/generate", {"IN": 0})
    assert status == 500 and b"exactly 1 response" in body
    assert call(server, "/v2/models/repeat/generate_stream", {"IN": 0}) == (200, b"")


def test_an_error_is_a_status_before_the_first_response_and_an_event_after_it(server):
    status, body = call(server, "/v2/models/textgen/generate_stream", {"text_input": "fail", "max_tokens": 3})
    assert status == 200
    assert [json.loads(event[6:]) for event in body.decode().split("\n\n")[:-1]][-1] == {"error": "generation failed"}
    for path in ("generate", "generate_stream"):
        status, body = call(server, f"/v2/models/fail/{path}", {"INPUT0": 4})
        assert (status, json.loads(body)) == (404, {"error": "error 4"})


@pytest.mark.parametrize("code, status", [(2, 400), (3, 500), (4, 404), (5, 400), (6, 503), (7, 501), (8, 400), (9, 400)])
def test_error_codes_of_models_become_statuses(server, code, status):
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [code]}]}
    assert call(server, "/v2/models/fail/infer", body) == (status, json.dumps({"error": f"error {code}"}, separators=(",", ":")).encode())


def test_models_are_loaded_and_unloaded_by_request(server, client):
    client.unload_model("params")
    assert not client.is_model_ready("params")
    state = {model["name"]: model.get("state") for model in client.get_model_repository_index()}
    assert state["params"] in ("UNLOADING", "UNAVAILABLE") and state["dtypes"] == "READY"
    status, body = call(server, "/v2/models/params/infer", {"inputs": []})
    assert status == 404 and b"params" in body
    client.load_model("params")
    assert client.is_model_ready("params")
    status, body = call(server, "/v2/repository/models/nosuch/load", b"")
    assert status >= 400 and b"nosuch" in body
    for body in ({"parameters": {"zzz": "x"}}, {"parameters": {"file:1/x": "not base64!", "config": "{}"}}, b"{"):
        assert call(server, "/v2/repository/models/params/load", body)[0] == 400
    assert client.is_model_ready("params")


def test_statistics_count_requests(server, client):
    before = client.get_inference_statistics("identity_int32")["model_stats"][0]["inference_count"]
    client.infer("identity_int32", [input_of(np.ones(1, dtype=np.int32))])
    assert client.get_inference_statistics("identity_int32")["model_stats"][0]["inference_count"] == before + 1
    assert len(client.get_inference_statistics()["model_stats"]) >= len(MODELS)


def test_log_settings_are_read_and_changed(client):
    assert client.get_log_settings()["log_info"] is True
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    client.update_log_settings({"log_verbose_level": 0})
    with pytest.raises(InferenceServerException, match="log_nope"):
        client.update_log_settings({"log_nope": 1})


def test_metrics_are_on_their_own_port(server):
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics").read().decode()
    assert "nv_inference_request_success" in page
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", data=b"")
    assert call(server, "/metrics")[0] == 404


def test_stopped_server_exits_with_0(start_server, repository, test_backends):
    assert start_server(repository, [test_backends]).stop() == 0
