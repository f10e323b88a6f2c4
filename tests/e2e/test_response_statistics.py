"""Response statistics (tests/support/backends/reporter): counts and times equal those of Triton 2.51 for the same library and requests."""
import json
import queue
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

CONFIG = """backend: "reporter"
instance_group [ { kind: KIND_CPU count: 1 } ]
model_transaction_policy { decoupled: true }
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
SUCCESS, EMPTY, FAILURE, CANCELLATION, REQUEST_SUCCESS, REQUEST_FAILURE = range(1, 7)
REQUESTS = [[SUCCESS, SUCCESS, EMPTY, REQUEST_SUCCESS], [SUCCESS, FAILURE, CANCELLATION, REQUEST_SUCCESS], [EMPTY, EMPTY, EMPTY, REQUEST_FAILURE],
            [CANCELLATION], [SUCCESS, EMPTY, SUCCESS, EMPTY, SUCCESS, REQUEST_SUCCESS]]
# Recorded values: (count, ns) of compute_infer, compute_output, success, fail, empty_response and cancel, by response index.
KINDS = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
RESPONSES = {
    "0": ((4, 3700), (3, 300), (3, 3000), (0, 0), (1, 1000), (1, 1000)),
    "1": ((4, 7800), (2, 200), (1, 2000), (1, 2000), (2, 4000), (0, 0)),
    "2": ((3, 8900), (1, 100), (1, 3000), (0, 0), (2, 6000), (1, 3000)),
    "3": ((1, 4000), (0, 0), (0, 0), (0, 0), (1, 4000), (0, 0)),
    "4": ((1, 4900), (1, 100), (1, 5000), (0, 0), (0, 0), (0, 0)),
}


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    (repository / "reporter/1").mkdir(parents=True)
    (repository / "reporter/config.pbtxt").write_text(CONFIG)
    return start_server(repository, [test_backends])


def ask(server, kinds):
    """Reads until the end of the stream: by then the backend has reported."""
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.put(error))
        tensor = grpcclient.InferInput("INPUT0", [len(kinds)], "INT32")
        tensor.set_data_from_numpy(np.array(kinds, dtype=np.int32))
        client.async_stream_infer("reporter", [tensor], enable_empty_final_response=True)
        assert answers.get(timeout=60) is None
        client.stop_stream()


def test_responses_are_counted_as_triton_counts_them(server):
    for kinds in REQUESTS:
        ask(server, kinds)
    with urllib.request.urlopen(f"{server.url}/v2/models/reporter/stats", timeout=60) as answer:
        statistics = json.load(answer)["model_stats"][0]
    assert statistics["inference_count"] == 3 and statistics["execution_count"] == 4
    counts = {kind: figures["count"] for kind, figures in statistics["inference_stats"].items()}
    assert counts == {"success": 3, "fail": 1, "queue": 3, "compute_input": 3, "compute_infer": 3, "compute_output": 3, "cache_hit": 0,
                      "cache_miss": 0}
    seen = {index: tuple((figures[kind]["count"], figures[kind]["ns"]) for kind in KINDS)
            for index, figures in statistics["response_stats"].items()}
    assert seen == RESPONSES
    assert statistics["batch_stats"] == [{"batch_size": 1, "compute_input": {"count": 4, "ns": 40}, "compute_infer": {"count": 4, "ns": 80},
                                          "compute_output": {"count": 4, "ns": 120}}]


def phases(server, model):
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats", timeout=60) as answer:
        figures = json.load(answer)["model_stats"][0]["inference_stats"]
    return [figures[phase]["ns"] for phase in ("compute_input", "compute_infer", "compute_output")]


def ask_for_text(server, path, body):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data=json.dumps(body).encode()), timeout=120) as answer:
        assert answer.read()


def test_engine_and_ensemble_report_the_phases_of_a_request(demo):
    """As NVIDIA's test of their repository expects: no phase has zero time."""
    ask_for_text(demo, "/v2/models/ensemble/generate", {"text_input": "Once", "max_tokens": 2})
    assert min(phases(demo, "tensorrt_llm")) > 0
    assert min(phases(demo, "ensemble")) > 0


def test_python_models_report_the_phases_of_a_request(python_server):
    ask_for_text(python_server, "/v2/models/doubler/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]}]})
    assert min(phases(python_server, "doubler")) > 0
