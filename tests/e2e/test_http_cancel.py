"""HTTP clients that disconnect or read too slowly. The `patient` backend answers after the requested time and counts running and cancelled
requests."""
import json
import time
import urllib.request

import pytest

from raw_http import Raw, post
from waiting import wait_for

FOREVER_MS = 3_600_000


@pytest.fixture(scope="module")
def server(start_server, patient_repository, test_backends):
    return start_server(patient_repository, [test_backends, "--http-max-unsent-size=1000000", "--http-write-timeout-secs=1"])


def counters(server):
    """Returns the running and the cancelled requests of the whole server."""
    request = urllib.request.Request(server.url + "/v2/models/counters/infer", data=b'{"inputs":[]}')
    outputs = json.load(urllib.request.urlopen(request, timeout=60))["outputs"]
    values = {output["name"]: output["data"][0] for output in outputs}
    return values["RUNNING"], values["CANCELLED"]


def wait_running(server, count):
    wait_for(lambda: counters(server)[0] == count, lambda: f"{count} running requests, now {counters(server)[0]}")


def infer_body():
    values = {"COUNT": 1, "INTERVAL_MS": FOREVER_MS}
    return {"inputs": [{"name": name, "datatype": "INT32", "shape": [1], "data": [value]} for name, value in values.items()]}


WAITS = {
    "infer": lambda: post("/v2/models/waiter/infer", infer_body()),
    "generate": lambda: post("/v2/models/waiter/generate", {"COUNT": 1, "INTERVAL_MS": FOREVER_MS}),
    "stream before its first event": lambda: post("/v2/models/ticker/generate_stream", {"COUNT": 1, "INTERVAL_MS": FOREVER_MS}),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_client_that_leaves_cancels_its_request_at_once(server, kind):
    _, cancelled = counters(server)
    client = Raw(server.http)
    client.send(WAITS[kind]())
    wait_running(server, 1)
    client.close()
    wait_running(server, 0)
    assert counters(server)[1] == cancelled + 1


@pytest.mark.parametrize("request_bytes", [
    post("/v2/models/waiter/infer", {"inputs": [{"name": name, "datatype": "INT32", "shape": [1], "data": [value]}
                                                for name, value in (("COUNT", 1), ("INTERVAL_MS", 300))]}),
    post("/v2/models/waiter/generate", {"COUNT": 1, "INTERVAL_MS": 300}),
    post("/v2/models/ticker/generate_stream", {"COUNT": 3, "INTERVAL_MS": 100}),
], ids=["infer", "generate", "generate_stream"])
def test_a_client_that_only_ends_its_side_gets_its_answer(server, request_bytes):
    _, cancelled = counters(server)
    with Raw(server.http) as client:
        client.send(request_bytes)
        client.half_close()
        status, _, body = client.answer()
        while status == 100:
            status, _, body = client.answer()
        assert status == 200 and body
        assert client.closed()
    assert counters(server)[1] == cancelled


def test_a_client_that_leaves_in_mid_stream_cancels_its_request(server):
    _, cancelled = counters(server)
    with Raw(server.http) as client:
        client.send(post("/v2/models/ticker/generate_stream", {"COUNT": -1, "INTERVAL_MS": 5}))
        client.read_until(b"\n\n")
    wait_running(server, 0)
    assert counters(server)[1] == cancelled + 1


def test_a_client_that_leaves_behind_pipelined_bytes_cancels_its_request(server):
    _, cancelled = counters(server)
    with Raw(server.http) as client:
        client.send(WAITS["infer"]() + post("/v2/models/counters/infer", {"inputs": []}) * 10)
        wait_running(server, 1)
    wait_running(server, 0)
    assert counters(server)[1] == cancelled + 1


def test_a_stream_that_is_not_read_is_dropped_and_others_go_on(server):
    _, cancelled = counters(server)
    with Raw(server.http, receive_buffer=4096) as slow, Raw(server.http) as reader:
        slow.send(post("/v2/models/ticker/generate_stream", {"COUNT": -1, "INTERVAL_MS": 1, "SIZE": 100_000}))
        reader.send(post("/v2/models/ticker/generate_stream", {"COUNT": 20, "INTERVAL_MS": 20}))
        _, _, body = reader.answer()
        assert body.count(b"data: ") == 20
        wait_running(server, 0)
        assert counters(server)[1] == cancelled + 1


def test_a_slow_reader_within_the_limit_gets_everything(server):
    with Raw(server.http, receive_buffer=4096) as client:
        client.send(post("/v2/models/ticker/generate_stream", {"COUNT": 50, "INTERVAL_MS": 1, "SIZE": 1000}))
        time.sleep(0.5)
        _, _, body = client.answer()
    events = [json.loads(event[6:]) for event in body.decode().split("\n\n")[:-1]]
    assert [event["TICK"] for event in events] == list(range(len(events))) and len(events) == 50


def wait_closed(port):
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "new clients are still taken"
        try:
            Raw(port).close()
        except OSError:
            return
        time.sleep(0.01)


def test_shutdown_finishes_requests_and_refuses_new_clients(start_server, patient_repository, test_backends):
    server = start_server(patient_repository, [test_backends])
    with Raw(server.http) as client:
        client.send(post("/v2/models/ticker/generate_stream", {"COUNT": 40, "INTERVAL_MS": 50}))
        client.read_until(b"\n\n")
        server.process.terminate()
        wait_closed(server.http)
        rest = client.read_until(b"\r\n0\r\n\r\n")
        assert rest.count(b"data: ") >= 38
    assert server.process.wait(timeout=60) == 0


def test_shutdown_cancels_requests_after_the_timeout(start_server, patient_repository, test_backends):
    server = start_server(patient_repository, [test_backends, "--exit-timeout-secs=1"])
    with Raw(server.http) as client:
        client.send(WAITS["infer"]())
        wait_running(server, 1)
        assert server.stop() == 1
    assert "1 requests were cut off" in server.text()
