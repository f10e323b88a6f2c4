"""API keys on HTTP, gRPC and metrics: who may do what, reloading, and that keys appear neither in logs nor in front of models."""
import json
import os
import pathlib
import signal
import subprocess
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from http_request import send_http
from python_support import python_flags
from raw_http import Raw
from raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RawHttp2, frame, request_headers
from server_process import free_ports
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from waiting import wait_for

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
PATIENCE_S = 20


class Keys:
    """A key file, and the keys by name."""

    def __init__(self, dist, path):
        self.dist, self.path, self.texts, self.entries = dist, path, {}, []

    def add(self, name, *rights, models=(), more=()):
        flags = [f"--right={right}" for right in rights] + [f"--model={model}" for model in models]
        made = subprocess.run([self.dist / "bin/nereid-repo", "new", "key", f"--name={name}", *flags, *more], capture_output=True, text=True, check=True)
        lines = made.stdout.splitlines()
        self.texts[name] = lines[1]
        self.entries.append(json.loads(lines[4]))

    def write(self):
        """Replaces the file in one step, as an editor or Kubernetes does."""
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": self.entries}))
        new.rename(self.path)

    def header(self, name):
        return {} if name is None else {"Authorization": "Bearer " + self.texts.get(name, name)}


@pytest.fixture(scope="module")
def keys(dist, tmp_path_factory):
    keys = Keys(dist, tmp_path_factory.mktemp("keys") / "keys.json")
    keys.add("client", "infer", "metadata", models=["identity_*", "params"])
    keys.add("watch", "metrics", "statistics")
    keys.add("admin", "admin", "metadata")
    keys.add("past", "infer", more=["--expires=2020-01-01T00:00:00Z"])
    keys.write()
    return keys


@pytest.fixture(scope="module")
def cloud_port():
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(start_server, test_backends, keys, cloud_port):
    cloud = ["--allow-sagemaker=true", f"--sagemaker-port={cloud_port}"]
    return start_server(GOLDEN, python_flags(test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", "--load-model=textgen",
                                             "--load-model=params", f"--api-key-file={keys.path}", "--log-verbose=2", "--http-header-forward-pattern=.*",
                                             "--grpc-header-forward-pattern=.*", *cloud),
                        environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "identity_fp32"})


def http(server, path, headers, body=None, port=None):
    """Returns (status, text, headers of the answer)."""
    status, answered, text = send_http(f"http://127.0.0.1:{port or server.http}{path}", body, headers)
    return status, text.decode(), answered


def call(server, method, request, headers):
    """Returns (code, details) of a gRPC call."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        try:
            getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), method)(request, timeout=60,
                                                                                metadata=[(name.lower(), value) for name, value in headers.items()])
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()


TENSOR = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
INFER = pb.ModelInferRequest(model_name="identity_fp32", inputs=[pb.ModelInferRequest.InferInputTensor(
    name="INPUT0", shape=[1], datatype="FP32", contents=pb.InferTensorContents(fp32_contents=[1]))])
# (path, body, gRPC method, its message): who may call it
CALLS = [
    ("/v2/models/identity_fp32/infer", {"inputs": [TENSOR]}, "ModelInfer", INFER, {"client"}),
    ("/v2/models/textgen/generate", {"text_input": "a"}, "ModelInfer", pb.ModelInferRequest(model_name="textgen"), set()),
    ("/v2/models/nosuch/infer", {"inputs": [TENSOR]}, "ModelInfer", pb.ModelInferRequest(model_name="nosuch"), set()),
    ("/v2", None, "ServerMetadata", pb.ServerMetadataRequest(), {"client", "admin"}),
    ("/v2/models/identity_fp32/config", None, "ModelConfig", pb.ModelConfigRequest(name="identity_fp32"), {"client", "admin"}),
    ("/v2/models/textgen", None, "ModelMetadata", pb.ModelMetadataRequest(name="textgen"), {"admin"}),
    ("/v2/models/textgen/ready", None, "ModelReady", pb.ModelReadyRequest(name="textgen"), {"admin"}),
    ("/v2/repository/index", {}, "RepositoryIndex", pb.RepositoryIndexRequest(), {"admin"}),
    ("/v2/models/stats", None, "ModelStatistics", pb.ModelStatisticsRequest(), {"watch"}),
    ("/v2/models/textgen/stats", None, "ModelStatistics", pb.ModelStatisticsRequest(name="textgen"), {"watch"}),
    ("/v2/logging", None, "LogSettings", pb.LogSettingsRequest(), {"admin"}),
    ("/v2/trace/setting", {"trace_rate": "9"}, "TraceSetting",
     pb.TraceSettingRequest(settings={"trace_rate": pb.TraceSettingRequest.SettingValue(value=["9"])}), {"admin"}),
    ("/v2/systemsharedmemory/status", None, "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(), {"admin"}),
    ("/v2/repository/models/identity_fp32/load", {}, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity_fp32"), {"admin"}),
]


@pytest.mark.parametrize("path, body, method, message, who", CALLS)
def test_a_key_permits_what_its_rights_say(server, keys, path, body, method, message, who):
    for name in (None, "past", "client.guess", "nobody", "x"):
        status, text, headers = http(server, path, keys.header(name), body)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), (name, text)
        assert call(server, method, message, keys.header(name))[0] == "UNAUTHENTICATED"
    for name in ("client", "watch", "admin"):
        status, text, _ = http(server, path, keys.header(name), body)
        code, details = call(server, method, message, keys.header(name))
        if name in who:
            assert (status, code) == (200, "OK"), (name, text, details)
        else:
            assert (status, code) == (403, "PERMISSION_DENIED"), name
            assert f"'{name}' has no right" in text and details == json.loads(text)["error"]


def test_the_metrics_need_a_key(server, keys):
    expected = {None: 401, "past": 401, "client": 403, "admin": 403, "watch": 200}
    assert {name: http(server, "/metrics", keys.header(name), port=server.metrics)[0] for name in expected} == expected


@pytest.mark.parametrize("path, body, expected", [
    ("/ping", None, {None: 200, "client": 200}), ("/invocations", {"inputs": [TENSOR]}, {None: 401, "client": 200, "admin": 403}),
    ("/models", None, {None: 401, "client": 403, "admin": 200}), ("/models", {"model_name": "m", "url": "/nosuch"}, {None: 401, "client": 403, "admin": 400}),
    ("/models/identity_fp32/invoke", {"inputs": [TENSOR]}, {None: 401, "client": 404, "admin": 403})])
def test_the_port_of_a_cloud_platform_needs_a_key(server, keys, cloud_port, path, body, expected):
    assert {name: http(server, path, keys.header(name), body, port=cloud_port)[0] for name in expected} == expected


def test_the_health_of_the_server_needs_no_key(server):
    assert http(server, "/v2/health/live", {})[0] == http(server, "/v2/health/ready", {})[0] == 200
    assert call(server, "ServerReady", pb.ServerReadyRequest(), {})[0] == "OK"
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        check(b"", timeout=60)
        for service in (b"textgen", b"nosuch"):
            with pytest.raises(grpc.RpcError) as error:
                check(b"\n" + bytes([len(service)]) + service, timeout=60)
            assert error.value.code().name == "UNAUTHENTICATED"
        with pytest.raises(grpc.RpcError) as error:
            next(channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter([b""]), timeout=60))
        assert error.value.code().name == "UNAUTHENTICATED"


def test_each_request_of_a_stream_needs_the_right(server, keys):
    def outcome(*models, headers):
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            requests = [pb.ModelInferRequest(model_name=model, inputs=INFER.inputs) for model in models]
            try:
                return [answer.infer_response.model_name for answer in stub.ModelStreamInfer(
                    iter(requests), timeout=60, metadata=[(name.lower(), value) for name, value in headers.items()])]
            except grpc.RpcError as error:
                return error.code().name
    assert outcome("identity_fp32", "identity_fp32", headers=keys.header("client")) == ["identity_fp32"] * 2
    assert outcome("identity_fp32", "textgen", headers=keys.header("client")) == "PERMISSION_DENIED"
    assert outcome("identity_fp32", headers=keys.header(None)) == "UNAUTHENTICATED"
    assert outcome(headers=keys.header(None)) == "UNAUTHENTICATED"


@pytest.mark.parametrize("length", ["Content-Length: 60000000", "Transfer-Encoding: chunked"])
def test_a_large_body_without_a_right_is_not_awaited(server, keys, length):
    for path, name, expected in (("/v2/models/identity_fp32/infer", None, 401), ("/v2/models/textgen/infer", "client", 403), ("/v2/nosuch", "client", 404)):
        with Raw(server.http) as client:
            lines = [f"POST {path} HTTP/1.1", "Host: x", length, *(f"{header}: {value}" for header, value in keys.header(name).items())]
            client.send("\r\n".join(lines).encode() + b"\r\n\r\n")
            status, headers, _ = client.answer()
            assert (status, headers["connection"]) == (expected, "close")


@pytest.fixture(scope="module")
def cloud_ports(start_server, test_backends, keys):
    sagemaker, vertex = free_ports(2)
    start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", "--load-model=textgen",
                          f"--api-key-file={keys.path}", "--allow-sagemaker=true", f"--sagemaker-port={sagemaker}", "--allow-vertex-ai=true",
                          f"--vertex-ai-port={vertex}", "--vertex-ai-default-model=identity_fp32"],
                 environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "identity_fp32", "AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"})
    return {"sagemaker": sagemaker, "vertex": vertex}


@pytest.mark.parametrize("length", ["Content-Length: 60000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("port, path, redirect, name, expected", [
    ("sagemaker", "/invocations", None, None, 401), ("sagemaker", "/invocations", None, "watch", 403), ("sagemaker", "/models", None, None, 401),
    ("sagemaker", "/models/other/invoke", None, "client", 403), ("sagemaker", "/models/identity_x/invoke", None, "client", 404),
    ("sagemaker", "/other", None, "client", 404), ("sagemaker", "/ping", None, None, 405), ("vertex", "/predict", None, None, 401),
    ("vertex", "/predict", "v2/models/textgen/infer", "client", 403), ("vertex", "/predict", "v2/nosuch", "client", 404),
    ("vertex", "/predict", "metrics", None, 401), ("vertex", "/health", None, None, 405), ("vertex", "/other", None, "client", 404)])
def test_the_cloud_ports_do_not_await_a_body_without_a_right(cloud_ports, keys, port, path, redirect, name, expected, length):
    with Raw(cloud_ports[port]) as client:
        lines = [f"POST {path} HTTP/1.1", "Host: x", length, *(f"{header}: {value}" for header, value in keys.header(name).items())]
        if redirect:
            lines.append(f"X-Vertex-Ai-Triton-Redirect: {redirect}")
        client.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        status, headers, _ = client.answer()
        assert (status, headers["connection"]) == (expected, "close")


@pytest.mark.parametrize("port, path", [("sagemaker", "/invocations"), ("vertex", "/predict")])
def test_the_cloud_ports_read_a_large_body_with_a_right(cloud_ports, keys, port, path):
    tensor = {**TENSOR, "shape": [300_000], "data": [1] * 300_000}
    request = urllib.request.Request(f"http://127.0.0.1:{cloud_ports[port]}{path}", json.dumps({"inputs": [tensor]}).encode(),
                                     {"Content-Type": "application/json", **keys.header("client")})
    assert urllib.request.urlopen(request, timeout=60).status == 200


def test_a_message_without_a_key_is_not_awaited(server):
    with RawHttp2(server.grpc) as client:
        client.send(frame(HEADERS, END_HEADERS, 1, request_headers(b"/inference.GRPCInferenceService/ModelInfer")))
        client.wait_for(HEADERS)  # the status, although no message has arrived
        client.send(frame(DATA, END_STREAM, 1, b"\0\0\0\0\1x"))
    assert server.alive()


def test_a_large_body_with_a_key_is_read(server, keys):
    tensor = {**TENSOR, "shape": [300_000], "data": [1] * 300_000}
    assert http(server, "/v2/models/identity_fp32/infer", keys.header("client"), {"inputs": [tensor]})[0] == 200


def test_a_key_reaches_neither_model_nor_log(server, keys):
    values = np.ones(1, np.int32)
    headers = {**keys.header("client"), "X-Other": "forwarded"}
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as one:
        given = httpclient.InferInput("INPUT0", [1], "INT32")
        given.set_data_from_numpy(values)
        seen = [one.infer("params", [given], headers=dict(headers)).as_numpy("OUTPUT0")[0]]  # it changes its argument
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as one:
        given = grpcclient.InferInput("INPUT0", [1], "INT32")
        given.set_data_from_numpy(values)
        seen.append(one.infer("params", [given], headers={name.lower(): value for name, value in headers.items()}).as_numpy("OUTPUT0")[0])
    for text in map(bytes.decode, seen):
        parameters = {name.lower() for name in json.loads(text)["parameters"]}
        assert "x-other" in parameters and "authorization" not in parameters
        assert keys.texts["client"] not in text
    http(server, "/v2/models/identity_fp32", {"Authorization": "Bearer guessed.secret"})
    assert not [name for name, text in keys.texts.items() if text.partition(".")[2] in server.text()]
    assert "guessed.secret" not in server.text()


def test_a_changed_file_is_read_again(start_server, test_backends, dist, tmp_path):
    keys = Keys(dist, tmp_path / "keys.json")
    keys.add("old", "metadata")
    keys.write()
    server = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", f"--api-key-file={keys.path}"])

    def status(name):
        return http(server, "/v2", keys.header(name))[0]

    assert status("old") == 200
    keys.path.write_text("{")
    wait_for(lambda: "kept the previous API keys" in server.text(), "the line of the damaged file")
    assert f"--api-key-file '{keys.path}'" in server.text()
    assert status("old") == 200
    keys.entries.clear()
    keys.add("new", "metadata")
    keys.write()
    wait_for(lambda: status("new") == 200, "the new key")
    assert status("old") == 401
    reloads = server.text().count("reloaded API keys")
    os.kill(server.process.pid, signal.SIGHUP)
    wait_for(lambda: server.text().count("reloaded API keys") > reloads, "the line of the reload")
    assert server.stop() == 0


@pytest.mark.parametrize("content, reason", [(None, "No such file"), ("", "expected an object"), ('{"keys": [{"name": "a", "key": "x"}]}', "key 1 ('a'): unknown member 'key'")])
def test_a_bad_file_ends_the_start(dist, tmp_path, content, reason):
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    ended = subprocess.run([dist / "bin/nereid", f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                            f"--api-key-file={path}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"--api-key-file '{path}'" in ended.stderr and reason in ended.stderr


@pytest.mark.parametrize("arguments, reason", [([], "--name is missing"), (["--name=a"], "--right is missing"), (["--name=a.b", "--right=infer"], "letters, digits"),
                                               (["--name=a", "--right=inference"], "model-control, log, trace, shared-memory, metrics, admin, got 'inference'"),
                                               (["--name=a", "--right=infer", "--expires=tomorrow"], "--expires: expected a time like"),
                                               (["--name=a", "--right=infer", "--out=keys.json"], "new key: takes no option '--out'; known: --name, ")])
def test_a_key_needs_a_name_and_a_right(dist, arguments, reason):
    done = subprocess.run([dist / "bin/nereid-repo", "new", "key", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and reason in done.stderr
