"""Sends random mutations of valid HTTP and gRPC requests. The process must survive and answer a valid request after each batch. The seed is fixed.
Each test stops after a few seconds, unless NEREID_MUTATIONS gives the number of mutations that each of the four tests tries (the full number: 250000).
Then it also prints the server's resident memory before and after (`pytest -s`)."""
import json
import os
import pathlib
import random
import socket
import time
import urllib.request

import grpc
import pytest
from raw_http2 import PREFACE, SETTINGS, call, frame
from tritonclient.grpc import service_pb2

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
COUNT = int(os.environ.get("NEREID_MUTATIONS", "0"))
BUDGET_S = 7  # per test
BATCH = 250
SEED = 20261121
pytestmark = pytest.mark.timeout(0 if COUNT else 300)
TENSOR = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2]}


@pytest.fixture(scope="module")
def server(start_server, test_backends):
    return start_server(GOLDEN, [test_backends, "--allow-client-shm=true", "--allow-inline-models", "--model-control-mode=explicit",
                                 *[f"--load-model={model}" for model in ("identity_fp32", "identity_string", "dtypes", "textgen", "repeat")],
                                 "--http-max-input-size=1048576", "--log-info=false", "--log-error=false", "--log-warning=false"],
                        "/v2/models/textgen/ready")


def resident_mb(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


@pytest.fixture(autouse=True)
def print_memory(request, server):
    before, begin = resident_mb(server), time.monotonic()
    yield
    if COUNT:
        print(f"\n{request.node.name}: {COUNT} mutations in {time.monotonic() - begin:.0f} s, {before} MB before, {resident_mb(server)} MB after")


def http_request(path, body, *headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def http_seeds():
    binary = json.dumps({"inputs": [{**{key: TENSOR[key] for key in ("name", "shape", "datatype")}, "parameters": {"binary_data_size": 8}}],
                         "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True, "classification": 1}}]}).encode()
    infer = "/v2/models/identity_fp32/infer"
    return [
        http_request(infer, {"id": "a", "inputs": [TENSOR], "parameters": {"sequence_id": 3, "priority": 1, "x": "y"}}),
        http_request(infer, binary + bytes(8), f"Inference-Header-Content-Length: {len(binary)}"),
        http_request("/v2/models/identity_string/infer", {"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "BYTES", "data": ["a", "\u00e9"]}]}),
        http_request("/v2/models/textgen/generate", {"text_input": "hello", "max_tokens": 2}),
        http_request("/v2/models/textgen/generate_stream", {"text_input": "hello", "max_tokens": 2}),
        http_request("/v2/systemsharedmemory/region/r/register", {"key": "/nosuch", "byte_size": 4}),
        http_request("/v2/trace/setting", {"trace_rate": "7", "trace_level": ["OFF"]}),
        http_request("/v2/logging", {"log_info": False, "log_verbose_level": 0}),
        http_request("/v2/repository/index", {"ready": True}),
        b"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /v2/models/identity_fp32/versions/1/config HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=0.5\r\n\r\n",
    ]


def grpc_seeds():
    infer = service_pb2.ModelInferRequest(model_name="identity_fp32", id="a", raw_input_contents=[bytes(8)])
    infer.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    infer.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1
    infer.parameters["sequence_id"].int64_param = 1
    typed = service_pb2.ModelInferRequest(model_name="identity_string")
    typed.inputs.add(name="INPUT0", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"a", b"bc"])
    shared = service_pb2.SystemSharedMemoryRegisterRequest(name="r", key="/nosuch", byte_size=4)
    trace = service_pb2.TraceSettingRequest()
    trace.settings["trace_rate"].value.append("7")
    return [("ModelInfer", infer), ("ModelInfer", typed), ("SystemSharedMemoryRegister", shared), ("TraceSetting", trace),
            ("ModelMetadata", service_pb2.ModelMetadataRequest(name="dtypes", version="1")), ("RepositoryIndex", service_pb2.RepositoryIndexRequest()),
            ("ModelStatistics", service_pb2.ModelStatisticsRequest(name="repeat"))]


def mutate(chance, data):
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 1:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
        elif kind == 2:
            del data[at:at + chance.randrange(1, 17)]
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 4:
            data[at:at] = data[at:at + chance.randrange(1, 65)]
        else:
            data[at:at] = chance.choice((b"\0", b"\xff\xff\xff\xff", b"99999999999999999999", b"-1", b"\r\n", b"[[[[", b'{"', b"1e999", b"null"))
    return bytes(data)


def send(port, data):
    """Sends the data, closes the sending side and reads to the end: the server must answer or close."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            assert not isinstance(error, TimeoutError), data


def check(server):
    assert server.alive()
    request = urllib.request.Request(server.url + "/v2/models/identity_fp32/infer", json.dumps({"inputs": [TENSOR]}).encode())
    assert json.loads(urllib.request.urlopen(request, timeout=60).read())["outputs"][0]["data"] == [1, 2]


def batches():
    """Yields consecutive batches, up to NEREID_MUTATIONS mutations or the time limit."""
    end = time.monotonic() + BUDGET_S
    done = 0
    while done < COUNT or not COUNT and (done == 0 or time.monotonic() < end):
        yield done
        done += BATCH


def test_mutated_http_requests(server):
    chance = random.Random(SEED)
    seeds = http_seeds()
    for _ in batches():
        for _ in range(BATCH):
            send(server.http, mutate(chance, chance.choice(seeds)))
        check(server)


def test_mutated_grpc_messages(server):
    chance = random.Random(SEED + 1)
    seeds = [(method, message.SerializeToString()) for method, message in grpc_seeds()]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        calls = {method: channel.unary_unary(f"/inference.GRPCInferenceService/{method}", request_serializer=None, response_deserializer=None)
                 for method, _ in seeds}
        for _ in batches():
            pending = []
            for _ in range(BATCH):
                method, message = chance.choice(seeds)
                pending.append(calls[method].future(mutate(chance, message), timeout=60))
            for call in pending:
                assert call.code() != grpc.StatusCode.DEADLINE_EXCEEDED
            check(server)


def stream_seeds():
    """Returns stream requests. Models whose input determines the number of responses are excluded, because a mutation could request very many."""
    plain, empty = service_pb2.ModelInferRequest(), service_pb2.ModelInferRequest()
    plain.CopyFrom(grpc_seeds()[0][1])
    empty.CopyFrom(grpc_seeds()[1][1])
    empty.parameters["triton_enable_empty_final_response"].bool_param = True
    empty.parameters["sequence_id"].string_param = "s"
    return [plain.SerializeToString(), empty.SerializeToString()]


def test_mutated_messages_of_streams(server):
    """Each stream contains a mutated and a valid message. The valid one is answered unless the mutated one ended the stream."""
    chance = random.Random(SEED + 3)
    seeds = stream_seeds()
    num_answered = 0
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        open_stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer", request_serializer=None, response_deserializer=None)
        for _ in batches():
            streams = [open_stream(iter((mutate(chance, chance.choice(seeds)), seeds[0])), timeout=60) for _ in range(BATCH)]
            for stream in streams:
                try:
                    assert sum(1 for _ in stream) >= 2
                    num_answered += 1
                except grpc.RpcError as error:
                    assert error.code() != grpc.StatusCode.DEADLINE_EXCEEDED
            check(server)
    assert num_answered > 0


def test_mutated_http2_frames(server):
    good = frame(SETTINGS, 0, 0, b"") + call(b"/inference.GRPCInferenceService/ServerLive", b"")
    chance = random.Random(SEED + 2)
    for _ in batches():
        for _ in range(BATCH):
            send(server.grpc, PREFACE + mutate(chance, good))
        check(server)
