"""Statistics of Python models: which time counts as compute time."""
import json
import urllib.request

import pytest
from python_support import PATIENCE_S, post, python_flags, wait_for, write_model

PAUSE_NS = 300_000_000
# Pauses between its response and the final flag.
PAUSES = f"""
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            sender = each.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]))
            time.sleep({PAUSE_NS / 1e9})
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
STREAM = 'backend: "python"\nmodel_transaction_policy { decoupled: true }\n' + TENSORS
ENSEMBLE = 'platform: "ensemble"\n' + TENSORS + """ensemble_scheduling { step [ {
  model_name: "pauses" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    repository = tmp_path_factory.mktemp("statistics")
    write_model(repository, "pauses", PAUSES, STREAM)
    write_model(repository, "around", None, ENSEMBLE)
    return start_server(repository, python_flags())


@pytest.mark.parametrize("model", ["pauses", "around"])
def test_the_wait_for_the_end_of_a_stream_is_computation(server, model):
    status, answer = post(server, f"/v2/models/{model}/generate", {"IN": [5.0]})
    assert (status, answer["OUT"]) == (200, 5.0)
    statistics = wait_for(lambda: counted(server, model), "the counts, which come after the answer")
    assert statistics["success"]["count"] == statistics["compute_infer"]["count"] == 1
    assert statistics["compute_infer"]["ns"] >= PAUSE_NS


def counted(server, model):
    """Returns the statistics once they contain a success with its compute time, else None."""
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats", timeout=PATIENCE_S) as answer:
        statistics = json.load(answer)["model_stats"][0]["inference_stats"]
    return statistics if statistics["success"]["count"] and statistics["compute_infer"]["count"] else None
