"""The routes of SageMaker and Vertex AI, as these platforms use them."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading

import pytest
from http_request import send_http
from server_process import free_ports

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
JSON = {"Content-Type": "application/json"}
INFER = {"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
SAGEMAKER_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VERTEX_BINARY = "application/vnd.vertex-ai-triton.binary+json;json-header-size="


def ask(port, method, path, body=None, headers=None):
    """Returns (status, headers, body)."""
    return send_http(f"http://127.0.0.1:{port}{path}", body, headers, method)


def binary_request(content_type):
    """Returns (body, headers) of a request with two floats after its JSON header and binary output."""
    head = json.dumps({"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    return head + struct.pack("<2f", 3, 4), {"Content-Type": f"{content_type}{len(head)}"}


def check_binary(port, path, content_type):
    body, headers = binary_request(content_type)
    status, answered, answer = ask(port, "POST", path, body, headers)
    assert status == 200 and answered["Content-Type"].startswith(content_type)
    check_answer(answer, int(answered["Content-Type"][len(content_type):]))
    check_bad_lengths(port, path, content_type, body)


def check_answer(answer, split):
    assert json.loads(answer[:split])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert struct.unpack("<2f", answer[split:]) == (3, 4)


def check_bad_lengths(port, path, content_type, body):
    for bad in ("x", "-1", "99999"):
        assert ask(port, "POST", path, body, {"Content-Type": content_type + bad})[0] == 400
    assert ask(port, "POST", path, body, {"Content-Type": "a, " + content_type + "5"})[0] == 400


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    target = tmp_path_factory.mktemp("models")
    shutil.copytree(GOLDEN / "identity_fp32", target / "identity_fp32")
    return target


@pytest.fixture(scope="module")
def sagemaker(start_server, test_backends, repository):
    [port] = free_ports(1)
    start_server(repository, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", "--allow-sagemaker=true",
                              f"--sagemaker-port={port}"], environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "identity_fp32"})
    return port


def test_sagemaker_ping_and_invocations(sagemaker):
    assert ask(sagemaker, "GET", "/ping")[0] == 200
    assert ask(sagemaker, "POST", "/ping")[0] == 405
    status, headers, body = ask(sagemaker, "POST", "/invocations", INFER, JSON)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["outputs"][0]["data"] == [1, 2]
    assert ask(sagemaker, "GET", "/invocations")[0] == 405
    assert ask(sagemaker, "POST", "/invocations", {}, JSON)[0] == 400
    check_binary(sagemaker, "/invocations", SAGEMAKER_BINARY)


@pytest.mark.parametrize("path", ["/", "/pong", "/v2", "/v2/models/identity_fp32/infer", "/modelsx"])
def test_sagemaker_has_no_other_routes(sagemaker, path):
    assert ask(sagemaker, "GET", path)[0] == 404


def unpack(folder, *models):
    """Creates a folder as the platform does when it unpacks an archive."""
    for model in models:
        shutil.copytree(GOLDEN / model, folder / model)
    return folder


def test_sagemaker_loads_calls_and_unloads_models(sagemaker, tmp_path):
    url = str(unpack(tmp_path / "abc123/model", "identity_fp32"))
    assert ask(sagemaker, "GET", "/models")[2] == b'{"models":[]}'
    assert ask(sagemaker, "POST", "/models/abc123/invoke", INFER, JSON)[0] == 404
    load = {"model_name": "abc123", "url": url}
    assert ask(sagemaker, "POST", "/models", load, {**JSON, "X-Amzn-SageMaker-Target-Model": "some.tar.gz"})[0] == 200
    assert ask(sagemaker, "POST", "/models", load, JSON)[0] == 409
    entry = {"modelName": "abc123", "modelUrl": url}
    assert json.loads(ask(sagemaker, "GET", "/models")[2]) == {"models": [entry]}
    assert json.loads(ask(sagemaker, "GET", "/models/abc123")[2]) == entry
    status, _, body = ask(sagemaker, "POST", "/models/abc123/invoke", INFER, {**JSON, "X-Amzn-SageMaker-Target-Model": "some.tar.gz"})
    assert status == 200 and json.loads(body)["model_name"] == "abc123"
    check_binary(sagemaker, "/models/abc123/invoke", SAGEMAKER_BINARY)
    assert ask(sagemaker, "DELETE", "/models/abc123")[0] == 200
    assert ask(sagemaker, "DELETE", "/models/abc123")[0] == 404
    assert ask(sagemaker, "GET", "/models/abc123")[0] == 404
    # The same model again, and under another name at the same time.
    assert ask(sagemaker, "POST", "/models", load, JSON)[0] == 200
    assert ask(sagemaker, "DELETE", "/models/abc123")[0] == 200


def test_sagemaker_takes_a_model_without_a_folder_around_it(sagemaker, tmp_path):
    shutil.copytree(GOLDEN / "identity_fp32", tmp_path / "model")
    assert ask(sagemaker, "POST", "/models", {"model_name": "bare", "url": str(tmp_path / "model")}, JSON)[0] == 200
    assert ask(sagemaker, "POST", "/models/bare/invoke", INFER, JSON)[0] == 200
    assert ask(sagemaker, "DELETE", "/models/bare")[0] == 200


def test_sagemaker_refuses_bad_loads(sagemaker, tmp_path):
    two = unpack(tmp_path / "two", "identity_fp32", "identity_int32")
    broken = tmp_path / "broken/model"
    broken.mkdir(parents=True)
    (broken / "config.pbtxt").write_text("nonsense")
    for body in (b"", b"{", {"model_name": "m"}, {"url": str(two)}, {"model_name": "m", "url": "/nosuch"}, {"model_name": "m", "url": "/proc/self"},
                 {"model_name": "m", "url": f"{tmp_path}/../../../dev"}, {"model_name": "m", "url": str(two)}, {"model_name": 5, "url": "x"},
                 {"model_name": "m", "url": str(broken.parent)}):
        status, _, answer = ask(sagemaker, "POST", "/models", body, JSON)
        assert status == 400 and json.loads(answer)["error"], body
    assert ask(sagemaker, "GET", "/models")[2] == b'{"models":[]}'
    # A failed load is forgotten, so that the name can be used again.
    shutil.rmtree(broken)
    shutil.copytree(GOLDEN / "identity_fp32", broken)
    assert ask(sagemaker, "POST", "/models", {"model_name": "m", "url": str(broken.parent)}, JSON)[0] == 200
    assert ask(sagemaker, "DELETE", "/models/m")[0] == 200


def test_sagemaker_loads_of_one_name_at_once_have_one_winner(sagemaker, tmp_path):
    url = str(unpack(tmp_path / "model", "identity_fp32"))
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(sagemaker, "POST", "/models", {"model_name": "one", "url": url}, JSON)[0]))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200, 409, 409, 409]
    assert ask(sagemaker, "DELETE", "/models/one")[0] == 200


ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


@pytest.fixture(scope="module")
def vertex(start_server, test_backends, repository):
    [port] = free_ports(1)
    # This mode disables HTTP by default, but the tests use HTTP to find out when the server is ready.
    start_server(repository, [test_backends, "--allow-http=true"], environment={**ROUTES, "AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": str(port)})
    return port


def test_vertex_ai_health_and_prediction(vertex):
    assert ask(vertex, "GET", "/health")[0] == 200
    status, _, body = ask(vertex, "POST", "/predict", INFER, JSON)
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1, 2]
    assert ask(vertex, "GET", "/predict")[0] == 405
    assert ask(vertex, "GET", "/v2")[0] == 404
    body, headers = binary_request(VERTEX_BINARY)
    status, answered, answer = ask(vertex, "POST", "/predict", body, headers)
    # Only the request uses Vertex AI's format. As in Triton, the answer has the protocol's own header.
    assert status == 200 and answered["Content-Type"] == "application/octet-stream"
    check_answer(answer, int(answered["Inference-Header-Content-Length"]))
    check_bad_lengths(vertex, "/predict", VERTEX_BINARY, body)


@pytest.mark.parametrize("target, part", [("v2", b'"extensions"'), ("v2/models/identity_fp32", b'"inputs"'), ("v2/models/identity_fp32/config", b'"backend"'),
                                          ("v2/models/identity_fp32/stats", b"model_stats"), ("v2/models/stats", b"model_stats"), ("v2/health/live", b""),
                                          ("v2/repository/index", b"identity_fp32"), ("v2/systemsharedmemory/status", b"["), ("metrics", b"nv_inference")])
def test_vertex_ai_redirects(vertex, target, part):
    status, _, body = ask(vertex, "POST", "/predict", b"", {"X-Vertex-Ai-Triton-Redirect": target})
    assert status == 200 and part in body


def test_vertex_ai_redirects_inference_and_refuses_the_rest(vertex):
    assert ask(vertex, "POST", "/predict", INFER, {"X-Vertex-Ai-Triton-Redirect": "v2/models/identity_fp32/infer"})[0] == 200
    assert ask(vertex, "POST", "/predict", INFER, {"X-Vertex-Ai-Triton-Redirect": "v2/models/nosuch/infer"})[0] == 404
    assert ask(vertex, "POST", "/predict", INFER, {"X-Vertex-Ai-Triton-Redirect": "nonsense"})[0] == 404


@pytest.mark.parametrize("environment, flags, complaint", [
    ({"AIP_HEALTH_ROUTE": "/health"}, ["--allow-vertex-ai=true"], "AIP_PREDICT_ROUTE"),
    ({"AIP_PREDICT_ROUTE": "/predict"}, ["--allow-vertex-ai=true"], "AIP_HEALTH_ROUTE"),
    (ROUTES, ["--allow-vertex-ai=true"], "--vertex-ai-default-model: required unless exactly one model is ready, got 0"),
    (ROUTES, ["--allow-vertex-ai=true", "--vertex-ai-default-model=m"], "--vertex-ai-default-model: expected a ready model, got 'm'"),
    ({"AIP_HTTP_PORT": "x"}, [], "AIP_HTTP_PORT"),
    ({"SAGEMAKER_TRITON_INFERENCE_TYPE": "stream"}, ["--allow-sagemaker=true"], "SAGEMAKER_TRITON_INFERENCE_TYPE"),
])
def test_missing_platform_settings_are_named(dist, tmp_path, environment, flags, complaint):
    ended = subprocess.run([dist / "bin/nereid", f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                            "--sagemaker-port=0", *flags], capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert ended.returncode == 1
    assert complaint in ended.stderr
