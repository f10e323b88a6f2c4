"""Repeats every recorded gRPC call."""
import pytest

import differences
import grpc_wire
import ordered
import recording


@pytest.mark.parametrize("name", ordered.alone(recording.names("g")))
def test_answer_is_the_recorded_one(server, name):
    reason = differences.reason_to_skip(name)
    if reason:
        pytest.skip(reason)
    exchange = recording.read_grpc(name)
    grpc_wire.compare(exchange, grpc_wire.call(server.grpc, exchange), server.paths, differences.expected(name))
