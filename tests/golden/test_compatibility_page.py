"""docs/compatibility.md says what is so."""
import os
import re

import grpc
import pytest
from tritonclient.grpc import service_pb2

import compatibility_page
import differences
import http_wire

# The flags of Triton 2.51 and of later versions.
TRITON_FLAGS = """
    --help --model-repository --model-store --model-control-mode --repository-poll-secs --load-model --exit-on-error --exit-timeout-secs
    --strict-readiness --disable-auto-complete-config --strict-model-config --model-config-name --model-load-thread-count
    --model-load-retry-count --model-namespacing --backend-directory --backend-config --repoagent-directory --cache-directory --cache-config
    --response-cache-byte-size --rate-limit --rate-limit-resource --pinned-memory-pool-byte-size --cuda-memory-pool-byte-size
    --cuda-virtual-address-size --enable-peer-access --buffer-manager-thread-count --min-supported-compute-capability --model-load-gpu-limit
    --host-policy --id --allow-http --http-address --http-port --reuse-http-port --http-thread-count --http-max-input-size
    --http-header-forward-pattern --http-restricted-api --allow-grpc --grpc-address --grpc-port --reuse-grpc-port --grpc-infer-thread-count
    --grpc-infer-allocation-pool-size --grpc-max-response-pool-size --grpc-header-forward-pattern --grpc-restricted-protocol --grpc-use-ssl
    --grpc-use-ssl-mutual --grpc-server-cert --grpc-server-key --grpc-root-cert --grpc-keepalive-time --grpc-keepalive-timeout
    --grpc-keepalive-permit-without-calls --grpc-http2-max-pings-without-data --grpc-http2-min-recv-ping-interval-without-data
    --grpc-http2-max-ping-strikes --grpc-max-connection-age --grpc-max-connection-age-grace --grpc-infer-response-compression-level
    --allow-metrics --allow-gpu-metrics --allow-cpu-metrics --metrics-address --metrics-port --metrics-interval-ms --metrics-config
    --trace-config --trace-file --trace-level --trace-rate --trace-count --trace-log-frequency --log-verbose --log-info --log-warning
    --log-error --log-format --log-file --allow-client-shm --allow-sagemaker --sagemaker-port --sagemaker-safe-port-range
    --sagemaker-thread-count --allow-vertex-ai --vertex-ai-port --vertex-ai-thread-count --vertex-ai-default-model""".split()


@pytest.fixture(scope="session")
def installed():
    if not os.environ.get("NEREID_DIST"):
        pytest.skip("NEREID_DIST names no installed tree")
    return os.environ["NEREID_DIST"] + "/bin/nereid"


def test_the_table_of_differences_is_that_of_the_replay():
    assert compatibility_page.table_on_page("differences") == compatibility_page.difference_table(), \
        "write the tables anew: NEREID_DIST=dist python tests/golden/compatibility_page.py"
    for entry in differences.DIFFERENCES:
        assert entry["reason"], entry


def test_flags_on_the_page_are_as_the_server_says(installed):
    page = {row.split("`")[1] for row in compatibility_page.table_on_page("flags") if row.startswith("| `")}
    known = {name for name, _, _ in compatibility_page.flags()}
    assert set(TRITON_FLAGS) - {"--help"} <= page <= known


def test_every_flag_of_triton_is_known(installed):
    known = {name for name, _, _ in compatibility_page.flags()} | {"--help"}
    assert set(TRITON_FLAGS) <= known


def test_every_call_is_on_the_page_and_none_is_unimplemented(server):
    page = compatibility_page.PAGE.read_text()
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        for method in service.methods:
            assert f"`{method.name}`" in page
            if method.client_streaming:
                continue
            call = channel.unary_unary(f"/{service.full_name}/{method.name}", request_serializer=lambda message: message,
                                       response_deserializer=lambda data: data)
            try:
                call(b"", timeout=30)
            except grpc.RpcError as error:
                assert error.code() != grpc.StatusCode.UNIMPLEMENTED, method.name


def endpoints():
    section = compatibility_page.PAGE.read_text().split("## Endpoints over HTTP", 1)[1].split("\n## ", 1)[0]
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        for path in re.findall(r"`([^`]+)`", row[0]):
            for method in row[1].split(", "):
                yield method, path


def test_every_endpoint_on_the_page_is_there(server):
    wrong = {"GET": "DELETE", "POST": "DELETE"}
    for method, path in endpoints():
        port = server.metrics if path == "/metrics" else server.http
        path = path.replace("{model}", "nosuch").replace("{version}", "1").replace("{region}", "none")
        request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        answer = http_wire.exchange(port, request)
        assert answer.status not in (405, 501) and b'"Not Found"' not in answer.body, (method, path, answer)
        refused = http_wire.exchange(port, request.replace(method.encode(), wrong[method].encode(), 1))
        assert refused.status == 405, (method, path, refused)


def test_every_metric_of_the_core_is_on_the_page():
    page = compatibility_page.PAGE.read_text()
    sources = (compatibility_page.PAGE.parents[1] / "host/core/observe").glob("*.cc")
    shown = {name for source in sources for name in re.findall(r'"(nv_[a-z_]+)"', source.read_text())}
    assert len(shown) > 20 and {name for name in shown if f"`{name}`" not in page} == set()
