"""The memory of requests in flight: what clients send is bounded by one budget, grows with what has arrived, and its end fails one request only."""
import gzip
import json
import random
import re
import resource
import socket
import threading
import urllib.request

import grpc
import pytest
from raw_http import Raw, post
from raw_http2 import DATA, END_HEADERS, HEADERS, RawHttp2, call, frame, request_headers
from tritonclient.grpc import service_pb2, service_pb2_grpc

MIB = 1 << 20
CONFIG = """backend: "identity_c"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: {0} dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: {0} dims: [ -1 ] }} ]
"""
ECHO = """platform: "ensemble"
input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "text" model_version: -1 input_map { key: "INPUT0" value: "text_input" }
                               output_map { key: "OUTPUT0" value: "text_output" } } ] }
"""
INFER = b"/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("memory") / "models"
    for name, data_type in (("bytes", "TYPE_UINT8"), ("text", "TYPE_STRING")):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(data_type))
    return root


@pytest.fixture(scope="module")
def server(start_server, repository, test_backends):
    return start_server(repository, [test_backends, f"--max-request-memory-size={24 * MIB}"])


def binary_request(size):
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    return post("/v2/models/bytes/infer", head + bytes(size), f"Inference-Header-Content-Length: {len(head)}")


def grpc_request(size):
    message = service_pb2.ModelInferRequest(model_name="bytes", raw_input_contents=[bytes(size)])
    message.inputs.add(name="INPUT0", datatype="UINT8", shape=[size])
    return message


def metrics(server):
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60).read().decode()
    return {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("nereid_request_memory")}


def status_field(server, key):
    """Returns a size from /proc/PID/status in bytes."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def http_answers(server):
    with Raw(server.http) as client:
        client.send(binary_request(1000))
        return client.answer()[0] == 200


def grpc_answers(server):
    with RawHttp2(server.grpc) as client:
        client.send(call(INFER, grpc_request(1000).SerializeToString()))
        return client.wait_for(DATA)[0] == 0


def test_a_body_beyond_the_budget_is_refused_and_the_connection_goes_on(server):
    refused_before = metrics(server).get("nereid_request_memory_refused", 0)
    with Raw(server.http) as client:
        client.send(binary_request(30 * MIB))
        status, _, body = client.answer()
        assert status == 503 and f"of {24 * MIB} bytes" in json.loads(body)["error"]
        client.send(binary_request(1000))
        assert client.answer()[0] == 200
    values = metrics(server)
    assert values["nereid_request_memory_refused"] == refused_before + 1
    assert values["nereid_request_memory_used_bytes"] == 0


def test_messages_and_bodies_share_the_budget(server):
    head, _, body = binary_request(20 * MIB).partition(b"\r\n\r\n")
    with Raw(server.http) as first, grpc.insecure_channel(f"127.0.0.1:{server.grpc}", [("grpc.max_send_message_length", -1)]) as channel:
        first.send(head + b"\r\n\r\n" + body[:-1])
        while metrics(server)["nereid_request_memory_used_bytes"] < 20 * MIB:
            pass
        with pytest.raises(grpc.RpcError) as error:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(grpc_request(8 * MIB), timeout=60)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE and "--max-request-memory-size" in error.value.details()
        first.send(body[-1:])
        assert first.answer()[0] == 200
    assert grpc_answers(server)


def test_a_json_body_costs_little_more_than_its_tensors(start_server, repository, test_backends):
    server = start_server(repository, [test_backends])
    count = 2_000_000
    body = b'{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[%d],"data":[' % count + b",".join([b'"\\n"'] * count) + b"]}]," \
        b'"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}'
    before = status_field(server, "VmHWM")
    with Raw(server.http) as client:
        client.send(post("/v2/models/text/infer", body))
        assert client.answer()[0] == 200
    # The body, its tensor of 5 bytes an element in a buffer that doubles, and the model's copy of it.
    assert status_field(server, "VmHWM") - before < len(body) + 4 * 5 * count + 16 * MIB


def test_a_failed_allocation_fails_the_request_and_not_the_server(start_server, repository, test_backends):
    server = start_server(repository, [test_backends, "--max-request-memory-size=0"])
    assert http_answers(server) and grpc_answers(server)
    limit = status_field(server, "VmSize") + 200 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    statuses = []

    def send():
        with Raw(server.http) as client:
            client.send(binary_request(60 * MIB))
            statuses.append(client.answer()[0])

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 5 and set(statuses) <= {200, 503} and 503 in statuses
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert http_answers(server) and grpc_answers(server)
    assert server.stop() == 0


def test_a_response_without_memory_fails_its_request_and_not_the_server(start_server, repository, test_backends):
    """The text of a JSON response, and a compressed message, need memory after the model has answered."""
    server = start_server(repository, [test_backends, "--max-request-memory-size=0", "--grpc-infer-response-compression-level=high"])
    assert http_answers(server) and grpc_answers(server)
    size = 20 * MIB
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}]}).encode()
    limit = status_field(server, "VmSize") + 60 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with Raw(server.http) as client:
        client.send(post("/v2/models/bytes/infer", head + b"\xff" * size, f"Inference-Header-Content-Length: {len(head)}"))
        assert client.answer()[0] == 503
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        client.send(post("/v2/models/bytes/infer", {"inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [1], "data": [1]}]}))
        assert client.answer()[0] == 200
    limit = status_field(server, "VmSize") + 50 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = grpc_request(0)
        request.inputs[0].shape[:] = [size]
        request.raw_input_contents[:] = [random.Random(1).randbytes(size)]  # it cannot be made shorter
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(request, timeout=60)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE  # or its connection is closed
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert http_answers(server) and grpc_answers(server)
    assert server.stop() == 0


def test_an_openai_answer_without_memory_gets_503(start_server, tmp_path, test_backends):
    for name, config in (("text", CONFIG.format("TYPE_STRING")), ("echo", ECHO)):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    server = start_server(tmp_path / "models", [test_backends, "--max-request-memory-size=0"])

    def ask(size, is_compressed=False):
        """Returns status and answer, or None if there was not even memory for an error and the server has closed the connection."""
        body = json.dumps({"model": "echo", "prompt": "a" * size}).encode()
        headers = ("Content-Encoding: gzip",) if is_compressed else ()
        request = post("/v1/completions", gzip.compress(body, 1) if is_compressed else body, *headers)
        try:
            with Raw(server.http) as client:
                client.send(request.replace(b"Host: x\r\n", b"Host: localhost\r\n"))
                status, _, answer = client.answer()
        except (ConnectionError, EOFError):
            return None
        return status, json.loads(answer)

    assert ask(5)[0] == 200, ask(5)
    refused = []
    for spare in range(4, 130, 21):  # memory ends at another place each time
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (status_field(server, "VmSize") + spare * MIB, resource.RLIM_INFINITY))
        answers = [ask(24 * MIB, is_compressed=True), ask(8 * MIB)]
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        refused += [answer["error"]["message"] for status, answer in filter(None, answers) if status == 503]
        assert all(status in (200, 503) for status, _ in filter(None, answers)), answers
    assert refused and all(re.search("memory|cannot allocate", message) for message in refused), refused
    assert ask(5)[0] == 200
    assert server.stop() == 0


def test_claimed_lengths_cost_nothing(start_server, repository, test_backends):
    """Streams that send 6 bytes and claim messages of 2 GiB."""
    server = start_server(repository, [test_backends, "--grpc-max-streams=0"])
    assert grpc_answers(server)
    limit = status_field(server, "VmSize") + 1024 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with RawHttp2(server.grpc) as client:
        headers = request_headers(INFER)
        for first in range(1, 20_000, 1000):
            client.send(b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, 0, stream, b"\0\x7f\xff\xff\xffx")
                                 for stream in range(first, first + 1000, 2)))
        # A whole call behind all of them.
        message = grpc_request(1000).SerializeToString()
        client.send(frame(HEADERS, END_HEADERS, 30_001, headers))
        client.send(frame(DATA, 1, 30_001, b"\0" + len(message).to_bytes(4, "big") + message))
        assert client.wait_for(DATA)[0] == 0
        assert http_answers(server) and grpc_answers(server)
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert server.stop() == 0


def test_a_port_without_free_descriptors_serves_again(start_server, repository, test_backends):
    server = start_server(repository, [test_backends])
    assert grpc_answers(server) and http_answers(server)
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (100, hard))
    with RawHttp2(server.grpc) as connected:
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=60) for port in (server.grpc, server.http) for _ in range(60)]
        connected.send(call(INFER, grpc_request(1000).SerializeToString()))
        assert connected.wait_for(DATA)[0] == 0
    for each in waiting:
        each.close()
    assert grpc_answers(server) and http_answers(server)
    assert server.stop() == 0
