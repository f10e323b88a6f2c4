"""The recorded exchanges whose order matters: each depends on those before it."""
import pytest

import compare
import differences
import grpc_wire
import http_wire
import ordered
import recording


def ours(method, path, body):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def name_of(step):
    return step if isinstance(step, str) else step[1]


def replay(server, step, rename=lambda data: data):
    if isinstance(step, tuple):
        answer = http_wire.exchange(server.http, rename(ours(*step)))
        assert answer.status == 200, answer
        return
    reason = differences.reason_to_skip(step)
    if reason:
        pytest.skip(reason)
    instead = differences.expected(step)
    if step.startswith("g_"):
        exchange = recording.read_grpc(step)
        exchange.requests = [rename(text.encode()).decode() for text in exchange.requests]
        grpc_wire.compare(exchange, grpc_wire.call(server.grpc, exchange), server.paths, instead)
    else:
        exchange = recording.read_http(step)
        answer = http_wire.exchange(server.http, rename(exchange.request))
        compare.http(exchange, http_wire.parse(exchange.response), answer, server.paths, instead)


@pytest.mark.parametrize("step", ordered.STEPS, ids=name_of)
def test_answer_is_the_recorded_one(server, shared_objects, step):
    replay(server, step, shared_objects.rename)


def test_a_sequence_is_answered_as_recorded(patient_server):
    for step in ordered.SEQUENCE:
        replay(patient_server, step)
