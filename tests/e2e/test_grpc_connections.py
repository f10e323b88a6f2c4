"""gRPC connections: TLS with and without client certificates, keep-alive, the age of connections, compression."""
import pathlib
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from raw_http2 import ACK, DATA, GOAWAY, PING, RawHttp2, call, frame
from tritonclient.grpc import service_pb2, service_pb2_grpc

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
LIVE = b"/inference.GRPCInferenceService/ServerLive"
TOO_MANY_PINGS = 11  # ENHANCE_YOUR_CALM


@pytest.fixture(scope="module")
def start(start_server, test_backends):
    return lambda *flags: start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", *flags])


@pytest.fixture(scope="module")
def tls_server(start, certificates):
    return start(*certificates.flags("grpc"))


@pytest.fixture(scope="module")
def mutual_server(start, certificates):
    return start(*certificates.flags("grpc", mutual=True))


def echo(server, certificates, client=None):
    values = np.arange(100_000, dtype=np.float32)
    tensor = grpcclient.InferInput("INPUT0", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    cert, key = client or (None, None)
    with grpcclient.InferenceServerClient(f"localhost:{server.grpc}", ssl=True, root_certificates=str(certificates.authority.cert),
                                          private_key=key and str(key), certificate_chain=cert and str(cert)) as one:
        assert np.array_equal(one.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0"), values)


def failure(target, credentials=None):
    """Returns the status of ServerLive on a channel that cannot connect."""
    with grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target) as channel:
        with pytest.raises(grpc.RpcError) as error:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=60)
    return error.value.code()


def test_tritonclient_over_tls(tls_server, certificates):
    echo(tls_server, certificates)


def test_without_tls_or_trust_there_is_no_call(tls_server, certificates):
    target = f"localhost:{tls_server.grpc}"
    assert failure(target) == grpc.StatusCode.UNAVAILABLE
    untrusted = grpc.ssl_channel_credentials(certificates.untrusted.cert.read_bytes())
    assert failure(target, untrusted) == grpc.StatusCode.UNAVAILABLE
    echo(tls_server, certificates)


def test_mutual_tls_serves_known_clients_only(mutual_server, certificates):
    target, roots = f"localhost:{mutual_server.grpc}", certificates.authority.cert.read_bytes()
    assert failure(target, grpc.ssl_channel_credentials(roots)) == grpc.StatusCode.UNAVAILABLE
    cert, key = certificates.untrusted_client
    assert failure(target, grpc.ssl_channel_credentials(roots, key.read_bytes(), cert.read_bytes())) == grpc.StatusCode.UNAVAILABLE
    echo(mutual_server, certificates, certificates.client)


def test_a_client_that_pings_too_often_is_sent_away(start):
    server = start("--grpc-http2-max-ping-strikes=1")
    with RawHttp2(server.grpc) as client:
        client.send(frame(PING, 0, 0, bytes(8)) * 10)
        goaway = client.wait_for(GOAWAY)
        assert int.from_bytes(goaway[4:8], "big") == TOO_MANY_PINGS and goaway[8:] == b"too_many_pings"


@pytest.mark.parametrize("flags", [["--grpc-http2-max-ping-strikes=0"],
                                   ["--grpc-http2-min-recv-ping-interval-without-data=0", "--grpc-keepalive-permit-without-calls=true"]])
def test_pings_may_be_allowed(start, flags):
    server = start(*flags)
    with RawHttp2(server.grpc) as client:
        for number in range(20):
            client.send(frame(PING, 0, 0, number.to_bytes(8, "big")))
            assert client.wait_for(PING, ACK) == number.to_bytes(8, "big")
        client.send(call(LIVE, b""))
        assert client.wait_for(DATA)[0] == 0


def test_the_server_pings_idle_connections_and_drops_dead_ones(start):
    server = start("--grpc-keepalive-time=1000", "--grpc-keepalive-timeout=1000", "--grpc-keepalive-permit-without-calls=true",
                   "--grpc-http2-max-pings-without-data=0")
    with RawHttp2(server.grpc) as client:
        # Each answered ping causes another one.
        for _ in range(2):
            client.send(frame(PING, ACK, 0, client.wait_for(PING, 0)))
        client.wait_for(PING, 0)
        with pytest.raises((EOFError, ConnectionResetError)):  # this ping is not answered
            client.wait_for(None)


def test_connections_end_at_their_age_and_streams_after_the_grace(start):
    server = start("--grpc-max-connection-age=300", "--grpc-max-connection-age-grace=300")
    with RawHttp2(server.grpc) as client:
        client.wait_for(GOAWAY)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        end = threading.Event()
        stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer((end.wait() for _ in range(1)), timeout=60)
        with pytest.raises(grpc.RpcError) as error:
            next(stream)
        end.set()
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("level, is_compressed", [("none", 0), ("high", 1)])
def test_responses_are_compressed_on_demand(start, level, is_compressed):
    server = start(f"--grpc-infer-response-compression-level={level}")
    infer = service_pb2.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[bytes(40000)])
    infer.inputs.add(name="INPUT0", datatype="FP32", shape=[10000])
    with RawHttp2(server.grpc) as client:
        client.send(call(b"/inference.GRPCInferenceService/ModelInfer", infer.SerializeToString(), (b"grpc-accept-encoding", b"identity,gzip")))
        data = client.wait_for(DATA)
        assert data[0] == is_compressed
        assert (int.from_bytes(data[1:5], "big") < 4000) == bool(is_compressed)
