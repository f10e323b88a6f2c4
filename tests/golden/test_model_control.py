"""The recorded exchanges of explicit model control in their order: each depends on the steps before it. Steps without a recording are requests of the
test.
"""
import pytest

import compare
import differences
import grpc_wire
import http_wire
import recording


def control(action, model):
    return f"POST /v2/repository/models/{model}/{action} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()


STEPS = [
    "x_index_one", "x_index_ready", "x_infer_unloaded", "x_infer_unloaded_meta", "x_unloaded_ready", "x_load_again", "x_load_bad_json",
    "x_load_bad_param", ("unload", "identity_fp32"), "x_infer_after_unload", "x_index_after_unload", ("load", "ens"), "x_unload_ens",
    "x_index_ens_unloaded", ("load", "ens"), "x_unload_ens_dependents", "x_index_ens_dependents", "x_load_config_override",
    "x_config_overridden", "x_load_config_bad", "x_load_config_unknown_field", "x_load_files", ("unload", "fromfiles"), "x_load_badconfig",
    "x_load_badname", "x_load_baddims", "x_load_badens", "x_load_nobackend", ("load", "nomodelfile"), ("load", "noversion"), ("load", "initfail"),
    "x_infer_initfail", "x_index_bad",
    "gx_index", "gx_err_load_param", "gx_load", "gx_index_ready", "gx_load_unknown", "gx_unload", "gx_unload_unknown", "gx_index_after",
]


def test_every_recording_has_its_step():
    assert sorted(step for step in STEPS if isinstance(step, str)) == sorted(recording.names("x") + recording.names("gx"))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step if isinstance(step, str) else "_".join(step))
def test_answer_is_the_recorded_one(controlled_server, step):
    server = controlled_server
    if isinstance(step, tuple):
        http_wire.exchange(server.http, control(*step), 5.0)
        return
    reason = differences.reason_to_skip(step)
    if reason:
        pytest.skip(reason)
    instead = differences.expected(step)
    if step.startswith("gx_"):
        exchange = recording.read_grpc(step)
        grpc_wire.compare(exchange, grpc_wire.call(server.grpc, exchange), server.paths, instead)
    else:
        exchange = recording.read_http(step)
        answer = http_wire.exchange(server.http, exchange.request, 30.0)
        compare.http(exchange, http_wire.parse(exchange.response), answer, server.paths, instead)
