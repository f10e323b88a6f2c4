"""What untrusted clients can reach and do: the defaults of both program names, calls that change the server, and calls that carry code."""
import contextlib
import json
import pathlib
import re
import socket

import grpc
import pytest
from http_request import send_http
from raw_http import Raw
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
CONFIG = json.dumps({"backend": "identity_c", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
                     "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]})
SHM_DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


@pytest.fixture(scope="module")
def own_address():
    """An address of this machine that is not loopback. A client that connects to it counts as remote."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, only chooses a route
        except OSError:
            pytest.skip("this machine has no address but loopback")
        if probe.getsockname()[0].startswith("127."):
            pytest.skip("this machine has no address but loopback")
        return probe.getsockname()[0]


def start(start_server, test_backends, *flags, **more):
    return start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", *flags],
                        "/v2/models/identity_fp32/ready", address="0.0.0.0", **more)


@pytest.fixture(scope="module")
def server(start_server, test_backends):
    return start(start_server, test_backends)


@pytest.fixture(scope="module")
def open_server(start_server, test_backends):
    return start(start_server, test_backends, "--remote-admin", "--allow-inline-models", "--allow-client-shm=true")


@pytest.fixture(scope="module")
def triton(start_server, test_backends):
    return start(start_server, test_backends, "--max-client-connections=3", f"--max-client-memory-size={1 << 20}", program="tritonserver")


def http(server, host, path, body=None, headers=None):
    """Returns (status, error) of a request."""
    status, _, answer = send_http(f"http://{host}:{server.http}{path}", body, headers)
    return status, "" if status == 200 else json.loads(answer)["error"]


def call(server, host, method, request):
    """Returns (code, details) of a gRPC call."""
    with grpc.insecure_channel(f"{host}:{server.grpc}") as channel:
        try:
            getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), method)(request, timeout=60)
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()


# What each changes, over HTTP and over gRPC.
CHANGES = {
    "load": (("/v2/repository/models/identity_fp32/load", {}), ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity_fp32"))),
    "unload": (("/v2/repository/models/nosuch/unload", {}), ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="nosuch"))),
    "log": (("/v2/logging", {"log_verbose_level": 0}),
            ("LogSettings", pb.LogSettingsRequest(settings={"log_verbose_level": pb.LogSettingsRequest.SettingValue(uint32_param=0)}))),
    "trace": (("/v2/trace/setting", {"trace_rate": "9"}),
              ("TraceSetting", pb.TraceSettingRequest(settings={"trace_rate": pb.TraceSettingRequest.SettingValue(value=["9"])}))),
    "model trace": (("/v2/models/identity_fp32/trace/setting", {"trace_rate": "9"}),
                    ("TraceSetting", pb.TraceSettingRequest(model_name="identity_fp32",
                                                            settings={"trace_rate": pb.TraceSettingRequest.SettingValue(value=["9"])}))),
}
SHM_CHANGES = {
    "register": (("/v2/systemsharedmemory/region/r/register", {"key": "/nosuch", "byte_size": 4}),
                 ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="r", key="/nosuch", byte_size=4))),
    "unregister": (("/v2/systemsharedmemory/unregister", {}), ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest())),
    "register cuda": (("/v2/cudasharedmemory/region/r/register", {"raw_handle": {"b64": "AA=="}, "device_id": 0, "byte_size": 4}),
                      ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"x", byte_size=4))),
    "unregister cuda": (("/v2/cudasharedmemory/unregister", {}), ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest())),
}
INLINE = [(("/v2/repository/models/identity_fp32/load", {"parameters": {"config": CONFIG}}),
           ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity_fp32",
                                                                 parameters={"config": pb.ModelRepositoryParameter(string_param=CONFIG)}))),
          (("/v2/repository/models/inline/load", {"parameters": {"config": CONFIG, "file:1/model.py": ""}}),
           ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="inline", parameters={
               "file:1/model.py": pb.ModelRepositoryParameter(bytes_param=b"")})))]


@pytest.mark.parametrize("what", CHANGES)
def test_only_a_local_client_changes_the_server(server, own_address, what):
    over_http, over_grpc = CHANGES[what]
    status, error = http(server, own_address, *over_http)
    assert status == 403 and "--remote-admin" in error
    code, details = call(server, own_address, *over_grpc)
    assert code == "PERMISSION_DENIED" and details == error
    assert http(server, "127.0.0.1", *over_http)[0] != 403
    assert call(server, "127.0.0.1", *over_grpc)[0] != "PERMISSION_DENIED"


def test_a_remote_client_reads_and_infers(server, own_address):
    assert http(server, own_address, "/v2/models/identity_fp32/infer", {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]})[0] == 200
    for path in ("/v2/logging", "/v2/trace/setting", "/v2/models/stats", "/v2/systemsharedmemory/status"):
        assert http(server, own_address, path) == (200, "")
    assert call(server, own_address, "LogSettings", pb.LogSettingsRequest()) == ("OK", "")
    assert call(server, own_address, "TraceSetting", pb.TraceSettingRequest()) == ("OK", "")
    assert call(server, own_address, "RepositoryIndex", pb.RepositoryIndexRequest()) == ("OK", "")


def test_a_request_through_a_local_proxy_is_remote(server):
    for header in ("X-Forwarded-For", "Forwarded", "Via", "Origin"):
        assert http(server, "127.0.0.1", *CHANGES["log"][0], headers={header: "x"})[0] == 403


def test_a_unix_socket_is_local(start_server, test_backends, tmp_path):
    running = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", f"--grpc-address=unix:{tmp_path}/s"])
    with grpc.insecure_channel(f"unix:{tmp_path}/s") as channel:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad(CHANGES["load"][1][1], timeout=60)
    running.stop()


@pytest.mark.parametrize("over_http, over_grpc", INLINE)
def test_code_in_a_load_request_needs_a_flag(server, open_server, own_address, over_http, over_grpc):
    status, error = http(server, "127.0.0.1", *over_http)
    assert status == 403 and "--allow-inline-models" in error
    assert call(server, "127.0.0.1", *over_grpc) == ("PERMISSION_DENIED", error)
    assert "--remote-admin" in http(server, own_address, *over_http)[1]
    assert http(open_server, own_address, *over_http)[0] != 403
    assert call(open_server, own_address, *over_grpc)[0] != "PERMISSION_DENIED"


@pytest.mark.parametrize("what", SHM_CHANGES)
def test_clients_register_no_shared_memory_by_default(server, triton, open_server, own_address, what):
    over_http, over_grpc = SHM_CHANGES[what]
    for running in (server, triton):
        assert http(running, "127.0.0.1", *over_http) == (501, SHM_DISABLED)
        assert call(running, "127.0.0.1", *over_grpc) == ("UNIMPLEMENTED", SHM_DISABLED)
    assert http(server, own_address, *over_http)[0] == 403
    assert http(open_server, own_address, *over_http)[1] != SHM_DISABLED
    assert call(open_server, own_address, *over_grpc)[1] != SHM_DISABLED


@pytest.mark.parametrize("what", CHANGES)
def test_under_the_compatible_name_every_client_may_what_triton_permits(triton, own_address, what):
    over_http, over_grpc = CHANGES[what]
    assert http(triton, own_address, *over_http)[0] in (200, 400, 404)
    assert call(triton, own_address, *over_grpc)[0] != "PERMISSION_DENIED"
    assert http(triton, own_address, *INLINE[0][0]) == (200, "")


def test_file_locations_do_not_change_over_the_network(triton):
    for path, body, words in (("/v2/logging", {"log_file": "/tmp/x"}, "log file location"), ("/v2/trace/setting", {"trace_file": "/tmp/x"}, "trace file location")):
        status, error = http(triton, "127.0.0.1", path, body)
        assert status == 501 and words in error
    for method, request in (("LogSettings", pb.LogSettingsRequest(settings={"log_file": pb.LogSettingsRequest.SettingValue(string_param="/tmp/x")})),
                            ("TraceSetting", pb.TraceSettingRequest(settings={"trace_file": pb.TraceSettingRequest.SettingValue(value=["/tmp/x"])}))):
        assert call(triton, "127.0.0.1", method, request)[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize("program, address", [("nereid", "127.0.0.1"), ("tritonserver", "0.0.0.0")])
def test_the_name_of_the_program_decides_the_addresses(start_server, test_backends, own_address, program, address):
    running = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--allow-sagemaker=true", "--sagemaker-port=0"], "/v2/health/live", address=None,
                           program=program)
    text = running.text()
    started = re.findall(r"Started (?:GRPCInferenceService|HTTPService|Sagemaker HTTPService|Metrics Service) at (\S+):\d+", text)
    assert started == [address] * 4
    for port in (running.http, running.grpc, running.metrics):
        reached = socket.socket().connect_ex((own_address, port)) == 0
        assert reached == (program == "tritonserver")
    [summary] = re.findall(r"Open to clients: (.*)", text)
    for port, name in ((running.http, "HTTP"), (running.grpc, "gRPC"), (running.metrics, "metrics")):
        assert f"{name} {address}:{port}" in summary
    assert ("every client may change" in summary) == (program == "tritonserver")
    assert ("load and unload models, also with code" in summary) == (program == "tritonserver")
    running.stop()


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_an_old_http_version_is_no_way_around(server, own_address, version):
    with Raw(server.http) as client:
        client.close()
        client.socket = socket.create_connection((own_address, server.http), timeout=60)
        client.send(f"POST /v2/logging {version}\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert client.answer()[0] == 403


def test_one_client_gets_no_more_than_its_part_of_the_memory(triton, own_address):
    body = "x" * (3 << 20)
    status, error = http(triton, own_address, "/v2/models/identity_fp32/infer", body)
    assert status == 503 and "--max-client-memory-size" in error
    assert http(triton, "127.0.0.1", "/v2/models/identity_fp32/infer", body)[0] == 400, "a local client has no limit of its own"


def test_one_client_gets_no_more_than_its_part_of_the_connections(triton, own_address):
    def served(host):
        """Returns a connection that the server has answered, or None."""
        client = socket.create_connection((host, triton.http), timeout=60)
        try:
            client.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            if b" 200 " in client.recv(4096):
                return client
        except ConnectionError:
            pass
        client.close()
        return None

    with contextlib.ExitStack() as stack:
        connections = []
        while len(connections) < 3:  # some of earlier tests may not be closed yet
            if client := served(own_address):
                connections.append(stack.enter_context(client))
        assert served(own_address) is None
        assert call(triton, own_address, "ServerLive", pb.ServerLiveRequest())[0] == "UNAVAILABLE"
        stack.enter_context(served("127.0.0.1"))
