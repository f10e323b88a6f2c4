"""Restricted endpoints, which require a secret header."""
import pathlib
import urllib.error
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"


@pytest.fixture(scope="module")
def server(start_server, test_backends):
    return start_server(GOLDEN, [test_backends, "--model-control-mode=explicit",
                                 "--load-model=identity_fp32", "--http-restricted-api=model-repository,trace:admin=secret",
                                 "--grpc-restricted-protocol=model-repository,inference:admin=secret", "--grpc-restricted-protocol=health:probe=x"],
                        "/v2/models/identity_fp32/ready")


def status(server, path, headers=None, body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, body, headers or {}), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("path, body", [("/v2/repository/index", b""), ("/v2/trace/setting", None)])
def test_http_wants_the_header(server, path, body):
    assert status(server, path, body=body) == (403, b'{"error":"This API is restricted, expecting header \'admin\'"}')
    assert status(server, path, {"admin": "guess"}, body)[0] == 403
    assert status(server, path, {"Admin": "secret"}, body)[0] == 200
    assert status(server, "/v2/models/identity_fp32")[0] == 200


def code(call, request, metadata=None):
    try:
        call(request, timeout=60, metadata=metadata)
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()


def test_grpc_wants_the_header(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        index = service_pb2.RepositoryIndexRequest()
        assert code(stub.RepositoryIndex, index) == (
            "UNAVAILABLE", "This protocol is restricted, expecting header 'triton-grpc-protocol-admin'")
        assert code(stub.RepositoryIndex, index, [("triton-grpc-protocol-admin", "secret")])[0] == "OK"
        assert code(stub.RepositoryIndex, index, [("triton-grpc-protocol-admin", "guess")])[0] == "UNAVAILABLE"
        assert code(stub.ServerLive, service_pb2.ServerLiveRequest())[0] == "UNAVAILABLE"
        assert code(stub.ServerLive, service_pb2.ServerLiveRequest(), [("triton-grpc-protocol-probe", "x")])[0] == "OK"
        assert code(stub.ServerMetadata, service_pb2.ServerMetadataRequest())[0] == "OK"
        with pytest.raises(grpc.RpcError, match="restricted"):
            list(stub.ModelStreamInfer(iter([]), timeout=60))
