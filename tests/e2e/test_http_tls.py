"""HTTP over TLS: standard clients with and without a client certificate, and clients that misbehave below HTTP."""
import functools
import json
import pathlib
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import gevent.ssl
import numpy as np
import pytest
import tritonclient.http as httpclient
from raw_http import Raw, post

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
INFER = "/v2/models/identity_fp32/infer"


def start(start_server, test_backends, certificates, mutual):
    context = certificates.authority.context(certificates.client if mutual else None)
    return start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", "--load-model=textgen",
                                 "--http-thread-count=2", *certificates.flags("http", mutual)], "/v2/models/textgen/ready", context)


@pytest.fixture(scope="module")
def server(start_server, test_backends, certificates):
    return start(start_server, test_backends, certificates, mutual=False)


@pytest.fixture(scope="module")
def mutual_server(start_server, test_backends, certificates):
    return start(start_server, test_backends, certificates, mutual=True)


def tls_socket(server, context):
    return context.wrap_socket(socket.create_connection(("127.0.0.1", server.http), timeout=60), server_hostname="127.0.0.1")


class RawTls(Raw):
    def __init__(self, server, context=None):
        self.socket = tls_socket(server, context or server.tls)
        self.left = b""


def echo(url, server, context, count, binary=True):
    """Calls identity_fp32 with tritonclient."""
    values = np.arange(count, dtype=np.float32)
    tensor = httpclient.InferInput("INPUT0", [count], "FP32")
    tensor.set_data_from_numpy(values, binary_data=binary)
    with httpclient.InferenceServerClient(url, ssl=True, ssl_context_factory=lambda: context, network_timeout=120) as client:
        for _ in range(3):
            assert np.array_equal(client.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0"), values)


def gevent_context(certificates, client=None):
    context = gevent.ssl.create_default_context(cafile=str(certificates.authority.cert))
    if client:
        context.load_cert_chain(*map(str, client))
    return context


def test_openssl_is_only_loaded_for_tls(server, start_server, test_backends):
    plain = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit"])
    maps = {one: pathlib.Path(f"/proc/{one.process.pid}/maps").read_text() for one in (plain, server)}
    assert "libssl" not in maps[plain] and "libcrypto" not in maps[plain]
    assert "libssl" in maps[server]
    plain.stop()


@pytest.mark.parametrize("count", [4, 5000, 500_000])
def test_tritonclient_infers_over_tls(server, certificates, count):
    echo(f"127.0.0.1:{server.http}", server, gevent_context(certificates), count, binary=count != 5000)


def test_a_stream_over_tls(server):
    body = json.dumps({"text_input": "a b c", "max_tokens": 3}).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + "/v2/models/textgen/generate_stream", body), timeout=60, context=server.tls) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        assert reply.read().count(b"data: ") >= 1


def test_requests_that_arrive_in_the_same_records_are_all_answered(server):
    tensors = [{"inputs": [{"name": "INPUT0", "shape": [500], "datatype": "FP32", "data": [float(i)] * 500}]} for i in range(100)]
    with RawTls(server) as client:
        client.send(b"".join(post(INFER, tensor) for tensor in tensors))
        for tensor in tensors:
            status, _, body = client.answer()
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == tensor["inputs"][0]["data"]


def test_slowly_read_answer_arrives_completely(server):
    count = 400_000
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [count], "datatype": "FP32", "parameters": {"binary_data_size": 4 * count}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    sent = np.arange(count, dtype=np.float32).tobytes()
    with RawTls(server) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.send(post(INFER, body + sent, f"Inference-Header-Content-Length: {len(body)}"))
        _, headers, answer = client.answer()
        assert answer[int(headers["inference-header-content-length"]):] == sent


def test_the_end_is_announced(server):
    with RawTls(server) as client:
        client.send(b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.answer()[0] == 200
        client.socket.suppress_ragged_eofs = False  # by default, an end without close_notify raises
        assert client.socket.recv(1) == b""


def alive(server):
    assert server.alive()
    with urllib.request.urlopen(server.url + "/v2/health/live", timeout=60, context=server.tls) as reply:
        assert reply.status == 200


def test_plain_http_on_tls_port_gets_an_error(server):
    with Raw(server.http, timeout=60) as client:
        client.send(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = client.answer()
        assert (status, headers["connection"], json.loads(body)) == (400, "close", {"error": "this port speaks TLS: use https"})
        assert client.closed()
    alive(server)


@pytest.mark.parametrize("data", [b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"\xff" * 70000, b"\x16\x03\x01\0\x05\x01\0\0\x01\0", b"\x17\x03\x03\0\x01x"])
def test_invalid_tls_does_not_affect_others(server, data):
    with Raw(server.http, timeout=60) as client:
        try:
            client.send(data)
            client.half_close()
            while client.socket.recv(1 << 16):
                pass
        except OSError as error:  # closed with unread bytes
            assert not isinstance(error, TimeoutError)
    alive(server)


def test_idle_tls_clients_do_not_block_others(server):
    silent = [socket.create_connection(("127.0.0.1", server.http), timeout=60) for _ in range(8)]
    for _ in range(4):
        alive(server)
    for each in silent:
        each.close()


def test_a_client_trusts_only_its_authority(server, certificates):
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_socket(server, certificates.untrusted.context())
    alive(server)


def test_a_known_client_is_served(mutual_server, certificates):
    echo(f"127.0.0.1:{mutual_server.http}", mutual_server, gevent_context(certificates, certificates.client), 100)


@pytest.mark.parametrize("who", [None, "untrusted_client"])
def test_an_unknown_client_is_not_served(mutual_server, certificates, who):
    context = certificates.authority.context(who and getattr(certificates, who))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        # With TLS 1.3 the client gets the error at its first read.
        with tls_socket(mutual_server, context) as client:
            client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1) == b""
            raise ConnectionError
    alive(mutual_server)


@functools.cache
def empty_repository(folder):
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize("port", ["http", "grpc"])
@pytest.mark.parametrize("index", range(9))
def test_bad_files_are_refused_by_name(dist, certificates, port, index):
    flags, complaint = certificates.bad_flags(port)[index]
    ended = subprocess.run([dist / "bin/nereid", f"--model-repository={empty_repository(certificates.folder)}", "--http-port=0", "--grpc-port=0",
                            "--metrics-port=0", *flags], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert ended.returncode == 1
    assert complaint in ended.stderr
