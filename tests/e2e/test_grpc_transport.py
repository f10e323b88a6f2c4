"""HTTP/2 of gRPC with malicious, unusual and slow clients, frame by frame; compression, large tensors, unix sockets."""
import gzip
import pathlib
import socket
import tempfile
import zlib

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from raw_http2 import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, RawHttp2, frame, request_headers
from tritonclient.grpc import service_pb2, service_pb2_grpc

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
LIVE = b"/inference.GRPCInferenceService/ServerLive"
INFER = b"/inference.GRPCInferenceService/ModelInfer"
RST_STREAM, WINDOW_UPDATE, CONTINUATION = 3, 8, 9
WINDOW = 65535  # for clients that send no settings


@pytest.fixture(scope="module")
def start(start_server, test_backends):
    return lambda *flags: start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", *flags])


@pytest.fixture(scope="module")
def server(start):
    return start()


def echo(target, count, **options):
    values = np.arange(count, dtype=np.float32)
    tensor = grpcclient.InferInput("INPUT0", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    with grpcclient.InferenceServerClient(target) as client:
        assert np.array_equal(client.infer("identity_fp32", [tensor], **options).as_numpy("OUTPUT0"), values)


def infer_message(count):
    infer = service_pb2.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[bytes(4 * count)])
    infer.inputs.add(name="INPUT0", datatype="FP32", shape=[count])
    return infer.SerializeToString()


def framed(message, flag=0):
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def headers_frame(stream, path, *others, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, request_headers(path, *others))


def answer_without_message(client):
    """Reads the end of a call that has no message."""
    while True:
        kind, flags, _ = client.read_frame()
        assert kind != DATA
        if kind == HEADERS:
            assert flags == END_HEADERS | END_STREAM
            return


def check(server):
    assert server.alive()
    echo(f"127.0.0.1:{server.grpc}", 100)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_clients_may_compress(server, algorithm):
    echo(f"127.0.0.1:{server.grpc}", 100_000, compression_algorithm=algorithm)


@pytest.mark.parametrize("encoding, pack", [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_compressed_flag_applies_per_message(server, encoding, pack):
    for message in (framed(infer_message(1000)), framed(pack(infer_message(1000)), 1)):
        with RawHttp2(server.grpc) as client:
            client.send(headers_frame(1, INFER, (b"grpc-encoding", encoding)) + frame(DATA, END_STREAM, 1, message))
            assert int.from_bytes(client.wait_for(DATA)[1:5], "big") > 4000


@pytest.mark.parametrize("level, algorithm", [("low", "gzip"), ("high", "deflate")])
def test_compressed_responses_are_read_by_stock_clients(start, level, algorithm):
    echo(f"127.0.0.1:{start(f'--grpc-infer-response-compression-level={level}').grpc}", 100_000, compression_algorithm=algorithm)


def test_a_tensor_of_many_frames_comes_back(server):
    echo(f"127.0.0.1:{server.grpc}", 8 << 20)  # 32 MiB


def test_a_client_that_does_not_read_gets_its_window_and_no_more(server):
    with RawHttp2(server.grpc) as client:
        for stream in (1, 3):
            data = framed(infer_message(15_000))  # less than the server's window before settings are acknowledged
            client.send(headers_frame(stream, INFER) + b"".join(frame(DATA, END_STREAM if at + 16384 >= len(data) else 0, stream, data[at:at + 16384])
                                                                for at in range(0, len(data), 16384)))
        seen = 0
        while seen < WINDOW:
            kind, _, payload = client.read_frame()
            seen += len(payload) if kind == DATA else 0
        assert seen == WINDOW
        check(server)
        # The rest is sent when the window allows it.
        client.send(b"".join(frame(WINDOW_UPDATE, 0, stream, (1 << 20).to_bytes(4, "big")) for stream in (0, 1, 3)))
        while seen < 120_000:
            kind, _, payload = client.read_frame()
            seen += len(payload) if kind == DATA else 0


def test_messages_cut_at_any_byte_are_put_together(server):
    data = framed(infer_message(3))
    with RawHttp2(server.grpc) as client:
        client.send(headers_frame(1, INFER) + b"".join(frame(DATA, 0, 1, data[at:at + 1]) for at in range(len(data))) + frame(DATA, END_STREAM, 1, b""))
        assert len(client.wait_for(DATA)) > 12


@pytest.mark.parametrize("body", [b"", framed(b"")[:3], framed(b"abc")[:6], framed(b"") * 2, framed(b"x", 1), framed(b"x", 7)])
def test_bodies_that_are_not_one_message_are_refused(server, body):
    with RawHttp2(server.grpc) as client:
        client.send(headers_frame(1, LIVE) + frame(DATA, END_STREAM, 1, body))
        answer_without_message(client)
    check(server)


def test_other_content_is_no_call(server):
    fields = request_headers(LIVE).replace(b"application/grpc", b"application/json")
    with RawHttp2(server.grpc) as client:
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, fields))
        answer_without_message(client)


def test_large_headers_are_refused_and_the_connection_lives(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.max_metadata_size", 1 << 20)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=60)
        with pytest.raises(grpc.RpcError) as error:
            stub.ServerLive(service_pb2.ServerLiveRequest(), metadata=(("long", "x" * 40_000),), timeout=60)
        assert error.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
        stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=60)


def test_endless_headers_end_the_connection(server):
    with RawHttp2(server.grpc) as client:
        try:
            client.send(headers_frame(1, LIVE, flags=0) + frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b") * 100_000)
        except (BrokenPipeError, ConnectionResetError):
            pass
        with pytest.raises((EOFError, ConnectionResetError)):
            client.wait_for(None)
    check(server)


def test_a_storm_of_resets_does_no_harm(server):
    reset = (8).to_bytes(4, "big")
    with RawHttp2(server.grpc) as client:
        try:
            for first in range(1, 60_000, 2000):
                client.send(b"".join(headers_frame(stream, INFER) + frame(RST_STREAM, 0, stream, reset) for stream in range(first, first + 2000, 2)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server closed the connection
        check(server)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(512), PREFACE + frame(DATA, 0, 1, b"x"),
                                  PREFACE + frame(SETTINGS, 0, 1, b""), PREFACE + frame(SETTINGS, ACK, 0, b"x"),
                                  PREFACE + frame(SETTINGS, 0, 0, b"") + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
                                  PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 2, request_headers(LIVE)),
                                  PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff")])
def test_connections_without_http2_are_closed(server, data):
    with socket.create_connection(("127.0.0.1", server.grpc), timeout=60) as client:
        client.sendall(data)
        try:
            while client.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    check(server)


def test_a_unix_socket_serves(start):
    with tempfile.TemporaryDirectory() as folder:  # the path is short enough for a socket address
        path = pathlib.Path(folder) / "grpc"
        server = start(f"--grpc-address=unix:{path}")
        echo(f"unix:{path}", 1000)
        assert server.stop() == 0 and not path.exists()
