"""Traces of a running server: in a file, which third-party tools read, and as OpenTelemetry spans sent to a collector in the test."""
import contextlib
import http.server
import json
import pathlib
import socket
import ssl
import threading
import urllib.request

import pytest
from waiting import wait_for

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
INFER = "/v2/models/identity_fp32/infer"
TENSOR = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1.5, -2]}
ACTIVITIES = ["HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
              "COMPUTE_OUTPUT_START", "COMPUTE_END"]


@pytest.fixture(scope="module")
def backends(test_backends):
    return [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32"]


def post(url, body, headers=None):
    request = urllib.request.Request(url, json.dumps(body).encode(), headers or {})
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


def infer(server, request_id, headers=None):
    assert post(server.url + INFER, {"id": request_id, "inputs": [TENSOR]}, headers)["id"] == request_id


def traces(path):
    """Returns the traces of a file by request id: names of timestamps, and tensors."""
    found = {}
    ids = {}
    for entry in json.loads(path.read_text()) if path.exists() and path.stat().st_size else []:
        if "model_name" in entry:
            ids[entry["id"]] = entry["request_id"]
            found[entry["request_id"]] = {"model": entry["model_name"], "timestamps": [], "tensors": []}
        trace = found[ids[entry["id"]]]
        trace["timestamps"] += entry.get("timestamps", [])
        trace["tensors"] += [(entry["activity"], entry["tensor"])] if "tensor" in entry else []
    return found


def test_trace_file_has_the_events_of_each_traced_request(start_server, backends, tmp_path):
    path = tmp_path / "trace.json"
    server = start_server(GOLDEN, [*backends, f"--trace-config=triton,file={path}", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                                   "--trace-config=level=TENSORS"], "/v2/models/identity_fp32/ready")
    for request_id in ("a", "b"):
        infer(server, request_id)
    found = wait_for(lambda: (now := traces(path)) and len(now) == 2 and now, "two traces")
    for trace in found.values():
        assert trace["model"] == "identity_fp32"
        names = [each["name"] for each in trace["timestamps"]]
        assert [name for name in names if name in ACTIVITIES] == ACTIVITIES
        assert {"INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END", "REQUEST_END"} <= set(names)
        assert names.count("INFER_RESPONSE_COMPLETE") == 1
        times = [each["ns"] for each in trace["timestamps"]]
        assert times == sorted(times)
        tensors = dict(trace["tensors"])
        assert tensors["TENSOR_QUEUE_INPUT"] == {"name": "INPUT0", "data": "1.5,-2", "shape": "2", "dtype": "FP32"}
        assert tensors["TENSOR_BACKEND_OUTPUT"]["name"] == "OUTPUT0"


def test_model_settings_select_traced_requests(start_server, backends, tmp_path):
    path = tmp_path / "trace.json"
    server = start_server(GOLDEN, [*backends, f"--trace-config=triton,file={path}", "--trace-config=rate=1"], "/v2/models/identity_fp32/ready")
    infer(server, "before")
    changed = post(f"{server.url}/v2/models/identity_fp32/trace/setting",
                   {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "1", "log_frequency": "1"})
    assert changed["trace_level"] == ["TIMESTAMPS"] and changed["trace_count"] == "1"
    # In Triton's order: users of its C++ client library compare the text.
    assert list(changed) == ["trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode"]
    for request_id in ("first", "second", "third", "fourth"):
        infer(server, request_id)
    found = wait_for(lambda: traces(path.with_name("trace.json.0")), "the first file")
    assert list(found) == ["second"]  # every second request, and one in total
    assert not path.with_name("trace.json.1").exists()


def test_as_many_traces_as_are_counted_are_a_file_of_their_own(start_server, backends, tmp_path):
    path, first, second = (tmp_path / name for name in ("trace.json", "trace.json.0", "trace.json.1"))
    server = start_server(GOLDEN, [*backends, f"--trace-config=triton,file={path}", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS"],
                          "/v2/models/identity_fp32/ready")
    infer(server, "before")
    wait_for(lambda: "before" in traces(path), "the trace")
    for ids in (["a", "b"], ["c", "d"]):
        assert post(f"{server.url}/v2/trace/setting", {"trace_count": "2"})["trace_count"] == "2"
        for request_id in (*ids, "beyond"):
            infer(server, request_id)
    wait_for(lambda: len(traces(second)) == 2, "two traces")
    assert list(traces(first)) == ["a", "b"] and list(traces(second)) == ["c", "d"] and list(traces(path)) == ["before"]
    post(f"{server.url}/v2/trace/setting", {"trace_count": "3"})
    infer(server, "last")
    assert server.stop() == 0
    assert list(traces(path)) == ["before", "last"]  # the count was not reached
    assert sorted(tmp_path.iterdir()) == [path, first, second]


def test_a_full_disk_costs_traces_alone(start_server, backends):
    server = start_server(GOLDEN, [*backends, "--trace-config=triton,file=/dev/full", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS"],
                          "/v2/models/identity_fp32/ready")
    for request_id in range(5):
        infer(server, str(request_id))
    log = pathlib.Path(server.log)
    wait_for(lambda: "/dev/full" in log.read_text() and "No space left on device" in log.read_text(), "the line of the full disk")
    assert server.stop() == 0
    assert log.read_text().count("No space left on device") == 1


class Collector(http.server.BaseHTTPRequestHandler):
    """Stores the spans that it receives."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        for resource in body["resourceSpans"]:
            self.server.resources += resource["resource"]["attributes"]
            for scope in resource["scopeSpans"]:
                self.server.spans += scope["spans"]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running_collector(tls=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.spans, server.resources = [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def collector():
    with running_collector() as server:
        yield server


@pytest.fixture
def tls_collector(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.server)
    with running_collector(context) as server:
        yield server


def test_a_collector_receives_spans_that_hang_together(start_server, backends, collector):
    server = start_server(GOLDEN, [*backends, "--trace-config=mode=opentelemetry", "--trace-config=rate=1000", "--trace-config=level=TIMESTAMPS",
                                   f"--trace-config=opentelemetry,url=http://127.0.0.1:{collector.server_port}/v1/traces",
                                   "--trace-config=opentelemetry,resource=service.name=tested",
                                   "--trace-config=opentelemetry,bsp_schedule_delay=50"], "/v2/models/identity_fp32/ready")
    with urllib.request.urlopen(server.url + "/v2/trace/setting", timeout=60) as answer:
        assert json.load(answer) == {
            "trace_level": ["TIMESTAMPS"], "trace_rate": "1000", "trace_count": "-1", "trace_mode": "opentelemetry",
            "url": f"http://127.0.0.1:{collector.server_port}/v1/traces", "resource": "service.name=tested", "bsp_schedule_delay": "50",
            "bsp_max_queue_size": "2048", "bsp_max_export_batch_size": "512"}
    caller = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    infer(server, "not traced")
    infer(server, "traced", {"traceparent": f"00-{caller[0]}-{caller[1]}-01"})  # a request that the caller traces is traced, whatever the rate
    spans = wait_for(lambda: len(collector.spans) >= 3 and {span["name"]: span for span in collector.spans}, "three spans")
    assert set(spans) == {"InferRequest", "identity_fp32", "compute"}
    assert {span["traceId"] for span in spans.values()} == {caller[0]}
    assert spans["InferRequest"]["parentSpanId"] == caller[1]
    assert spans["identity_fp32"]["parentSpanId"] == spans["InferRequest"]["spanId"]
    assert spans["compute"]["parentSpanId"] == spans["identity_fp32"]["spanId"]
    for span in spans.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    attributes = {each["key"]: each["value"] for each in spans["identity_fp32"]["attributes"]}
    assert attributes["triton.request_id"] == {"stringValue": "traced"}
    assert {"key": "service.name", "value": {"stringValue": "tested"}} in collector.resources


def traced_over_tls(start_server, backends, url, trusted):
    """Starts a server that traces a request and sends it to `url`; `trusted` is the authority of accepted collectors."""
    server = start_server(GOLDEN, [*backends, "--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                                   f"--trace-config=opentelemetry,url={url}", "--trace-config=opentelemetry,bsp_schedule_delay=50"],
                          "/v2/models/identity_fp32/ready", environment={"OTEL_EXPORTER_OTLP_CERTIFICATE": str(trusted)})
    infer(server, "a")
    return server


def test_a_collector_may_speak_tls(start_server, backends, tls_collector, certificates):
    url = f"https://localhost:{tls_collector.server_port}/v1/traces"
    server = traced_over_tls(start_server, backends, url, certificates.authority.cert)
    wait_for(lambda: {"InferRequest", "identity_fp32"} <= {span["name"] for span in tls_collector.spans}, "the spans")
    assert server.stop() == 0
    assert "OpenTelemetry: lost" not in pathlib.Path(server.log).read_text()


def test_spans_are_not_sent_to_an_untrusted_collector(start_server, backends, tls_collector, certificates):
    url = f"https://127.0.0.1:{tls_collector.server_port}/v1/traces"
    server = traced_over_tls(start_server, backends, url, certificates.untrusted.cert)
    wait_for(lambda: "OpenTelemetry: lost" in pathlib.Path(server.log).read_text(), "the line of the lost spans")
    assert "certificate" in pathlib.Path(server.log).read_text() and not tls_collector.spans
    assert server.stop() == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"XXXXXXXXX200 OK\r\n", b"", b"HTTP/1.1 503 Busy\r\n\r\n"], ids=repr)
def test_a_collectors_answer_is_read_as_http(start_server, backends, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
        thread = threading.Thread(target=serve)
        thread.start()
        server = start_server(GOLDEN, [*backends, "--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                                       f"--trace-config=opentelemetry,url=http://127.0.0.1:{listener.getsockname()[1]}/"],
                              "/v2/models/identity_fp32/ready")
        infer(server, "a")
        assert server.stop() == 0
        thread.join()
    assert ("OpenTelemetry: lost" in pathlib.Path(server.log).read_text()) == (b"200 OK\r\n\r\n" not in answer)


def test_an_absent_collector_does_not_hold_up_anything(start_server, backends):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{holder.getsockname()[1]}/v1/traces"
        server = start_server(GOLDEN, [*backends, "--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                                       f"--trace-config=opentelemetry,url={url}"], "/v2/models/identity_fp32/ready")
        infer(server, "a")
        assert server.stop() == 0
    assert "OpenTelemetry: lost" in pathlib.Path(server.log).read_text()
