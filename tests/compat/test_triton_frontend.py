"""Runs NVIDIA's `tritonserver` executable, unchanged, with our libtritonserver.so, and our server with NVIDIA's library."""
import json
import os
import shutil

import numpy as np
import processes
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient


def infer(client, module, values):
    tensor = module.InferInput("INPUT0", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, dtype=np.float32))
    return client.infer("identity", [tensor], request_id="r1")


@pytest.fixture(scope="module")
def theirs(start, their_server_on_our_core, identity_repository, backends, tmp_path_factory):
    """NVIDIA's frontends with our core."""
    server = start(their_server_on_our_core / "bin/tritonserver", identity_repository, backends, processes.foreign_environment(),
                   flags=["--model-control-mode=explicit", "--load-model=identity", "--metrics-interval-ms=100"])
    yield server
    assert server.stop() == 0


def test_the_core_is_ours(theirs):
    assert "libtritonserver.so" in open(f"/proc/{theirs.process.pid}/maps").read()
    assert "model_lifecycle.cc" in theirs.text()


@pytest.mark.parametrize("module", [httpclient, grpcclient], ids=["http", "grpc"])
def test_it_answers_inferences(theirs, module):
    with module.InferenceServerClient(f"127.0.0.1:{theirs.http if module is httpclient else theirs.grpc}") as client:
        for count in (1, 16, 100_000):
            result = infer(client, module, list(range(count)))
            assert np.array_equal(result.as_numpy("OUTPUT0"), np.arange(count, dtype=np.float32))


def test_it_describes_models(theirs):
    metadata = json.loads(theirs.get("/v2/models/identity"))
    assert metadata["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1]}]
    config = json.loads(theirs.get("/v2/models/identity/config"))
    assert config["backend"] == "identity_c" and config["instance_group"][0]["kind"] == "KIND_CPU"
    statistics = json.loads(theirs.get("/v2/models/identity/stats"))["model_stats"][0]
    assert statistics["name"] == "identity" and statistics["version"] == "1"
    assert "nv_inference_request_success" in theirs.get("/metrics", theirs.metrics)


def test_it_reports_errors_as_with_its_own_core(theirs):
    with httpclient.InferenceServerClient(f"127.0.0.1:{theirs.http}") as client:
        tensor = httpclient.InferInput("NO_SUCH", [1], "FP32")
        tensor.set_data_from_numpy(np.zeros(1, dtype=np.float32))
        with pytest.raises(Exception, match="NO_SUCH"):
            client.infer("identity", [tensor])
        with pytest.raises(Exception, match="nosuch"):
            client.get_model_metadata("nosuch")


def test_it_loads_and_unloads(theirs):
    with grpcclient.InferenceServerClient(f"127.0.0.1:{theirs.grpc}") as client:
        client.load_model("identity", config=json.dumps({"backend": "identity_c", "max_batch_size": 4, "input": [
            {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}], "output": [
                {"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]}))
        assert client.get_model_config("identity").config.max_batch_size == 4
        index = client.get_model_repository_index().models
        assert [(model.name, model.state) for model in index] == [("identity", "READY")]
        client.load_model("identity", config=json.dumps({"backend": "identity_c", "max_batch_size": 0, "input": [
            {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}], "output": [
                {"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]}))
        assert client.get_model_config("identity").config.max_batch_size == 0


def test_its_traces_are_made_by_our_core(start, their_server_on_our_core, identity_repository, backends, tmp_path):
    trace = tmp_path / "trace.json"
    server = start(their_server_on_our_core / "bin/tritonserver", identity_repository, backends, processes.foreign_environment(),
                   flags=["--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS", "--trace-config=rate=1",
                          f"--trace-config=triton,file={trace}"])
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        infer(client, httpclient, [1, 2, 3])
    assert server.stop() == 0
    # Triton writes one file per log interval; without an interval, a single file at the end.
    entries = [entry for file in tmp_path.iterdir() for entry in json.loads(file.read_text())]
    stamps = [stamp["name"] for entry in entries for stamp in entry.get("timestamps", [])]
    for name in ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END"):
        assert name in stamps
    tensors = {(entry["activity"], entry["tensor"]["name"], entry["tensor"]["data"]) for entry in entries if "tensor" in entry}
    assert ("TENSOR_QUEUE_INPUT", "INPUT0", "1,2,3") in tensors
    assert ("TENSOR_BACKEND_OUTPUT", "OUTPUT0", "1,2,3") in tensors


def test_our_server_runs_on_their_core(start, dist, their_wheel, identity_repository, backends, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(dist / "bin/nereid", tmp_path / "bin/nereid")
    (tmp_path / "lib/libtritonserver.so").symlink_to(their_wheel / "nvidia_pytriton.libs/libtritonserver-717102f0.so")
    libraries = f"{tmp_path}/lib:{their_wheel}/nvidia_pytriton.libs"
    server = start(tmp_path / "bin/nereid", identity_repository, backends, environment=dict(os.environ, LD_LIBRARY_PATH=libraries))
    for module, port in ((httpclient, server.http), (grpcclient, server.grpc)):
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert infer(client, module, [4, 5]).as_numpy("OUTPUT0").tolist() == [4, 5]
    assert json.loads(server.get("/v2"))["version"] == "2.51.0"
    assert server.stop() == 0
