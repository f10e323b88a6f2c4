"""Invalid input over HTTP: each request gets the right status and a message that names the fault; the process and other requests are not affected."""
import gzip
import json
import pathlib
import shutil
import socket
import struct

import pytest

from raw_http import Raw, post

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFER = "/v2/models/identity_fp32/infer"
# Triton's text
TOO_LARGE = "request JSON size of {} bytes exceeds the maximum allowed input size of 1000000 bytes. Use --http-max-input-size to increase the limit."
GOOD = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for model in ("identity_fp32", "identity_string", "identity_batch", "textgen", "repeat"):
        shutil.copytree(ROOT / "tests/golden/repo" / model, repository / model)
    return start_server(repository, [test_backends, "--allow-client-shm=true", "--http-max-input-size=1000000"])


@pytest.fixture(autouse=True)
def still_serves(server):
    """After each test a valid request is still answered."""
    yield
    with Raw(server.http) as client:
        client.send(post(INFER, GOOD))
        assert client.answer()[0] == 200


def refused(server, request, *, status=400):
    """Returns the error message of the answer to `request`, which is raw bytes."""
    with Raw(server.http) as client:
        client.send(request)
        got, headers, body = client.answer()
    assert got == status, body
    assert headers["content-type"] == "application/json"
    return json.loads(body)["error"]


def tensor(**changes):
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2], **changes}]}


@pytest.mark.parametrize("body, words", [
    (b"", "empty"), (b"{", "byte 1"), (b"[]", "an object"), (b'{"inputs":[', "byte 11"), (b'{"inputs":[]} x', "byte 14"),
    (b'{"inputs":[],"inputs":[]}', "given twice"), (b'{"inputs":NaN}', "byte 10"), (b'{"inputs":[]}\xff', "byte 13"),
    (b'{"id":"\xff","inputs":[]}', "UTF-8"), (b'[' * 100_000, "an object"), (b'{"a":' * 100_000, "nested deeper than 103"),
    (b'{"inputs":' + b'[' * 100_000, "INPUT0|an object"),
])
def test_malformed_json(server, body, words):
    assert any(word in refused(server, post(INFER, body)) for word in words.split("|"))


@pytest.mark.parametrize("body, words", [
    (tensor(datatype="INT32"), "INPUT0"), (tensor(datatype="FLOAT"), "INPUT0"), (tensor(datatype=3), "INPUT0"),
    (tensor(shape=[3]), "shape [3] needs 3"), (tensor(shape=[-2]), "-2"), (tensor(shape=[1, 2]), "INPUT0"), (tensor(shape="x"), "'shape'"),
    (tensor(shape=[4611686018427387904]), "INPUT0"), (tensor(shape=[2**63]), "dimension"), (tensor(shape=[2**62, 8]), "INPUT0"),
    (tensor(shape=[1] * 1000), "dimensions"), (tensor(data=[[1], [2, 3]]), "more than the 2 elements"), (tensor(data=["a", "b"]), "a number"),
    (tensor(data=[1, 1e39]), "does not fit FP32"), (tensor(data=3), "an array"), (tensor(data=[None, 1]), "null"),
    (tensor(name="NOPE"), "NOPE"), (tensor(name=""), "input ''"), ({"inputs": []}, "INPUT0"), ({}, "'inputs'"),
    ({"inputs": GOOD["inputs"] * 2}, "INPUT0"), ({**GOOD, "outputs": [{"name": "NOPE"}]}, "NOPE"),
    ({**GOOD, "parameters": {"timeout": -1}}, "timeout"), ({**GOOD, "parameters": {"x": []}}, "'x'"),
    ({**GOOD, "parameters": {"triton_x": 1}}, "'triton_'"), ({**GOOD, "id": 7}, "'id'"),
    (tensor(parameters={"binary_data_size": 8}), "set 'data' 'binary_data_size'"),
])
def test_wrong_tensors(server, body, words):
    assert words in refused(server, post(INFER, body))


@pytest.mark.parametrize("parameters, status, words", [
    ({"shared_memory_region": "r"}, 404, "'r'"),
    ({"shared_memory_region": "r", "shared_memory_byte_size": 8}, 404, "'r'"),
    ({"shared_memory_region": 5, "shared_memory_byte_size": 8}, 400, "expected a string"),
    ({"shared_memory_region": "r", "shared_memory_byte_size": -8}, 400, "'shared_memory_byte_size'"),
    ({"shared_memory_region": "r", "shared_memory_byte_size": 8, "binary_data_size": 8}, 400, "'binary_data_size'"),
])
def test_wrong_use_of_shared_memory(server, parameters, status, words):
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": parameters}]}
    assert words in refused(server, post(INFER, body), status=status)


@pytest.mark.parametrize("length, words", [("x", "'x'"), ("-1", "(0, "), ("99999", "99999"), ("1", "byte 1"), ("99999999999999999999", "999")])
def test_wrong_header_length(server, length, words):
    assert words in refused(server, post(INFER, GOOD, f"Inference-Header-Content-Length: {length}"))


@pytest.mark.parametrize("claimed, sent", [(8, 4), (8, 12), (2**40, 8), (0, 8)])
def test_binary_data_of_another_size(server, claimed, sent):
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": claimed}}]}).encode()
    error = refused(server, post(INFER, head + bytes(sent), f"Inference-Header-Content-Length: {len(head)}"))
    assert any(words in error for words in ("additional bytes", "additional input data", "byte size"))


def test_binary_strings_with_wrong_length(server):
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 8}}]}).encode()
    for data in (struct.pack("<I", 2**31) + b"abcd", struct.pack("<I", 3) + b"abcd"):
        assert "INPUT0" in refused(server, post("/v2/models/identity_string/infer", head + data, f"Inference-Header-Content-Length: {len(head)}"))


@pytest.mark.parametrize("path, status", [
    ("/v2/models/nosuch/infer", 404), ("/v2/models/nosuch/generate", 404), ("/v2/models/nosuch/generate_stream", 404),
    ("/v2/models/identity_fp32/versions/9/infer", 404), ("/v2/models/identity_fp32/versions/x/infer", 404), ("/nope", 404),
    ("/v2/models/repeat/infer", 501), ("/v2/health/ready", 405), ("/v2/models/identity_fp32", 405), ("/v2/systemsharedmemory/status", 405),
    ("/v2/systemsharedmemory/register", 400), ("/v2/cudasharedmemory/region//status", 404),
    ("/v2/models/../../etc/passwd", 404), ("/v2/models/%2e%2e/infer", 404), ("/v2/repository/models/..%2f/load", 503),
])
def test_unknown_and_wrong_paths(server, path, status):
    refused(server, post(path, GOOD), status=status)


@pytest.mark.parametrize("body, words", [
    (b"", "byte 0"), (b"{", "byte 1"), (b'{"text_input":null}', "text_input"), (b'{"text_input":["a","b"]}', "'text_input' to tensor with proper shape"),
    (b'{"text_input":"a","max_tokens":"x"}', "max_tokens"), (b'{"text_input":"a","max_tokens":9999999999}', "INT32"),
    (b'{"text_input":"a","foo":[1]}', "'foo'"), (b'{"text_input":"a","text_input":"b"}', "given twice"), (b"{}", "text_input"),
    (b'{"text_input":"\\ud800"}', "surrogate"),
])
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_wrong_generate_bodies(server, path, body, words):
    assert words in refused(server, post(f"/v2/models/textgen/{path}", body))


def test_too_large_a_body_is_refused_before_it_is_read(server):
    with Raw(server.http) as client:
        client.send(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000001\r\nExpect: 100-continue\r\n\r\n".encode())
        status, headers, body = client.answer()
        assert status == 400 and headers["connection"] == "close"
        assert json.loads(body)["error"] == TOO_LARGE.format("1000001")
        assert client.closed()
    with Raw(server.http) as client:
        client.send(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.send(b"80000\r\n" + b" " * 0x80000 + b"\r\n")
        client.send(b"80000\r\n")
        assert client.answer()[0] == 400


def test_tensors_may_nest_as_deep_as_in_triton(server):
    deep = 1
    for _ in range(100):
        deep = [deep]
    with Raw(server.http) as client:
        client.send(post(INFER, tensor(shape=[1], data=deep)))
        assert client.answer()[0] == 200
    assert "nested deeper" in refused(server, post(INFER, tensor(shape=[1], data=[deep])))


def test_a_body_of_many_chunks(server):
    count = 70_000
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()
    body += b" " * (count - len(body))
    with Raw(server.http) as client:
        client.send(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.send(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert client.answer()[0] == 200


def test_an_unknown_encoding_is_refused(server):
    assert "compression" in refused(server, post(INFER, GOOD, "Content-Encoding: br"), status=501)


def test_a_body_that_grows_beyond_the_limit_is_refused(server):
    bomb = gzip.compress(bytes(80 << 20))
    assert refused(server, post(INFER, bomb, "Content-Encoding: gzip")) == (
        "Decompressed data size exceeds the maximum allowed value of 1000000 bytes. Use --http-max-input-size to increase the limit.")


@pytest.mark.parametrize("request_bytes, status", [
    (b"GARBAGE\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400), (b"GET / HTTP/9.9\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n", 431), (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
    (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET /v2 HTTP/1.1\r\n\r\n", 400), (b"GET /v2 HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    (b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\n", 400),
    (b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nnonsense\r\n\r\n", 400),
])
def test_requests_that_are_not_http(server, request_bytes, status):
    with Raw(server.http) as client:
        client.send(request_bytes)
        assert client.answer()[0] == status
        assert client.closed()


def test_pipelined_requests_are_answered_in_order_past_a_wrong_one(server):
    with Raw(server.http) as client:
        bodies = [tensor(data=[i, i]) if i % 5 else {"inputs": i} for i in range(50)]
        client.send(b"".join(post(INFER, body) for body in bodies))
        for i in range(len(bodies)):
            status, _, answer = client.answer()
            assert status == (200 if i % 5 else 400)
            if i % 5:
                assert json.loads(answer)["outputs"][0]["data"] == [i, i]


def test_a_request_in_single_bytes(server):
    with Raw(server.http) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(INFER, GOOD):
            client.send(bytes([byte]))
        assert client.answer()[0] == 200


def test_connections_that_end_anywhere_in_a_request(server):
    whole = post(INFER, GOOD)
    for cut in range(0, len(whole), 7):
        client = Raw(server.http)
        client.send(whole[:cut])
        if cut % 2:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        client.close()


def test_hundreds_of_idle_connections_do_not_affect_others(server):
    silent = [Raw(server.http) for _ in range(500)]
    for client in silent[::2]:
        client.send(b"POST /v2/mod")
    with Raw(server.http) as client:
        client.send(post(INFER, GOOD))
        assert client.answer()[0] == 200
    for client in silent:
        client.close()
