"""`--model-namespacing`: models with equal names in two repositories, each called by the ensemble in its own repository."""
import json
import urllib.error
import urllib.request

import pytest

PYTHON = """backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + np.float32(%d))])
                for request in requests]
"""
ENSEMBLE = """platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "add" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } ] }
"""


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("namespaces")
    for repository, ensemble, summand in (("one", "first", 1), ("two", "second", 2)):
        (root / repository / "add/1").mkdir(parents=True)
        (root / repository / "add/config.pbtxt").write_text(PYTHON)
        (root / repository / "add/1/model.py").write_text(MODEL % summand)
        (root / repository / ensemble / "1").mkdir(parents=True)
        (root / repository / ensemble / "config.pbtxt").write_text(ENSEMBLE)
    running = start_server(root / "one", [f"--model-repository={root / 'two'}", "--model-namespacing=true"])
    running.root = root
    return running


def call(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data), timeout=60) as answer:
        return answer.read().decode()


def infer(server, model):
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [10]}]}
    return json.loads(call(server, f"/v2/models/{model}/infer", body))["outputs"][0]["data"][0]


def test_each_ensemble_calls_the_model_beside_it(server):
    assert infer(server, "first") == 11
    assert infer(server, "second") == 12


def test_an_ambiguous_name_is_answered_with_the_candidates(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        infer(server, "add")
    text = refused.value.read().decode().replace("\\/", "/")
    assert refused.value.code == 400
    assert f"{server.root}/one/add" in text and f"{server.root}/two/add" in text


def test_index_lists_both_models_and_metrics_distinguish_them(server):
    index = json.loads(call(server, "/v2/repository/index", {}))
    assert sorted(entry["name"] for entry in index) == ["add", "add", "first", "second"]
    assert all(entry["state"] == "READY" for entry in index)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    for repository in ("one", "two"):
        assert f'nv_inference_request_success{{model="add",version="1",namespace="{server.root}/{repository}"}}' in page
