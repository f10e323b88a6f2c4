"""Every recorded HTTP exchange, sent again byte for byte."""
import pytest

import compare
import differences
import http_wire
import ordered
import recording

# A request that keeps the model busy meanwhile, so that the recorded one waits in its queue.
SLOW = (b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 81\r\n\r\n"
        b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[0.5]}]}      ')
BESIDE = {"h_err_queue_timeout_param": SLOW}

ON_METRICS_PORT = {"h_metrics", "h_metrics_post", "h_metrics_wrong_path"}


@pytest.mark.parametrize("name", ordered.alone(recording.names("h")))
def test_answer_is_the_recorded_one(server, name):
    reason = differences.reason_to_skip(name)
    if reason:
        pytest.skip(reason)
    exchange = recording.read_http(name)
    port = server.metrics if name in ON_METRICS_PORT else server.http
    patience = 1.0 if exchange.note else 20.0
    with http_wire.busy(port, BESIDE.get(name)):
        answer = http_wire.exchange(port, exchange.request, patience)
    compare.http(exchange, http_wire.parse(exchange.response), answer, server.paths, differences.expected(name))
