"""Restricted endpoints, which require a secret header."""
import pathlib
import re

import grpc
import pytest
from http_request import send_http
from raw_http import Raw
from tritonclient.grpc import service_pb2, service_pb2_grpc

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"


@pytest.fixture(scope="module")
def server(start_server, test_backends):
    return start_server(GOLDEN, [test_backends, "--model-control-mode=explicit",
                                 "--load-model=identity_fp32", "--http-restricted-api=model-repository,trace:Admin=secret",
                                 "--grpc-restricted-protocol=model-repository,inference:Admin=secret", "--grpc-restricted-protocol=health:probe=x"],
                        "/v2/models/identity_fp32/ready")


def status(server, path, headers=None, body=None):
    """Returns the status and the body."""
    code, _, answer = send_http(server.url + path, body, headers)
    return code, answer


def test_the_line_of_the_start_names_the_groups(server):
    [summary] = re.findall(r"Open to clients: (.*)", server.text())
    assert "But over HTTP only clients with their secrets may call the groups model-repository, trace." in summary
    assert "But over gRPC only clients with their secrets may call the groups health, inference, model-repository." in summary


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


# Other spellings of the path of a restricted endpoint. The server compares paths as they are sent, so they name no endpoint.
@pytest.mark.parametrize("path", ["/v2/repository/%69ndex", "//v2/repository/index", "/v2//repository/index", "/v2/repository//index", "/v2/repository/index/",
                                  "/V2/repository/index", "/v2/Repository/Index", "/v2/./repository/index", "/v2/x/../repository/index", "/v2/repository/index%00",
                                  "/v2/repository/index;x", "v2/repository/index", "/v2%2frepository/index", "\\v2/repository/index"])
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_no_spelling_of_the_path_avoids_the_restriction(server, path, version):
    with Raw(server.http) as client:
        client.send(f"POST {path} {version}\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert client.answer()[0] in (400, 404)


@pytest.mark.parametrize("line", ["POST /v2/repository/index HTTP/1.0", "POST /v2/repository/index HTTP/1.1", "POST /v2/repository/index?x=/v2 HTTP/1.1",
                                  "POST http://x/v2/repository/index HTTP/1.1", "GET /v2/trace/setting HTTP/1.0"])
def test_the_restriction_holds_in_every_http_version(server, line):
    with Raw(server.http) as client:
        client.send(f"{line}\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert client.answer()[0] in (400, 403, 404)
    for name in ("Admin", "admin", "ADMIN"):
        with Raw(server.http) as client:
            client.send(f"POST /v2/repository/index HTTP/1.0\r\nHost: x\r\n{name}: secret\r\nContent-Length: 0\r\n\r\n".encode())
            assert client.answer()[0] == 200


@pytest.mark.parametrize("method, expected", [("RepositoryIndex", "UNAVAILABLE"), ("RepositoryIndex/", "UNIMPLEMENTED"), ("repositoryindex", "UNIMPLEMENTED"),
                                              ("%52epositoryIndex", "UNIMPLEMENTED"), ("./RepositoryIndex", "UNIMPLEMENTED"),
                                              ("/RepositoryIndex", "UNIMPLEMENTED"), ("RepositoryIndex?x", "UNIMPLEMENTED")])
def test_no_spelling_of_a_method_avoids_the_restriction(server, method, expected):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        assert code(channel.unary_unary(f"/inference.GRPCInferenceService/{method}"), b"")[0] == expected
