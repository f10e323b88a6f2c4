"""Sends every recorded HTTP request again, byte for byte."""
import pytest

import compare
import differences
import http_wire
import ordered
import recording

# Recordings whose answer occurs only while the model is busy.
BESIDE = ["h_err_queue_timeout_param"]

ON_METRICS_PORT = {"h_metrics", "h_metrics_post", "h_metrics_wrong_path"}


@pytest.mark.parametrize("name", [name for name in ordered.alone(recording.names("h")) if name not in BESIDE])
def test_answer_is_the_recorded_one(server, name):
    reason = differences.reason_to_skip(name)
    if reason:
        pytest.skip(reason)
    exchange = recording.read_http(name)
    port = server.metrics if name in ON_METRICS_PORT else server.http
    patience = 1.0 if exchange.note else 20.0
    answer = http_wire.exchange(port, exchange.request, patience)
    compare.http(exchange, http_wire.parse(exchange.response), answer, server.paths, differences.expected(name))


@pytest.mark.parametrize("name", BESIDE)
def test_answer_of_a_busy_model_is_the_recorded_one(server, name):
    exchange = recording.read_http(name)
    wanted = http_wire.parse(exchange.response)
    # There is no signal that the instance has taken the other request. If it had not, the pause was too short.
    for seconds in (0.5, 1, 2, 4, 8, 16):
        with http_wire.busy(server.http, "slow", seconds):
            answer = http_wire.exchange(server.http, exchange.request)
        if answer.status == wanted.status:
            break
    compare.http(exchange, wanted, answer, server.paths, differences.expected(name))
