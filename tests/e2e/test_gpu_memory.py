"""Tensors in GPU memory that a client shares. By default with the test driver (tests/support/cuda), whose device memory cannot be accessed
directly; with NEREID_TEST_GPU=1 with the machine's driver."""
import json
import os
import pathlib
import struct
import urllib.error
import urllib.request

from http_request import send_http
import pytest
from cuda_client import CudaClient

IS_REAL = os.environ.get("NEREID_TEST_GPU") == "1"
CPU, PINNED, GPU = 0, 1, 2
IDENTITY = """backend: "identity_c" %s
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
PLACES = """backend: "memory_types" instance_group [ { kind: %s } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "MEMORY_TYPES" data_type: TYPE_INT32 dims: [ 4 ] } ]
"""
ENSEMBLE = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "MEMORY_TYPES" data_type: TYPE_INT32 dims: [ 4 ] }, { name: "COPY" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "on_gpu" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "MEMORY_TYPES" value: "MEMORY_TYPES" } },
  { model_name: "identity" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "COPY" } } ] }
"""
MODELS = {"identity": IDENTITY % "", "cached": IDENTITY % "response_cache { enable: true }", "on_gpu": PLACES % "KIND_GPU",
          "on_cpu": PLACES % "KIND_CPU", "both": ENSEMBLE}
VALUES = [1.5, -2.0, 3.25, 4096.0]
DATA = struct.pack("4f", *VALUES)


def write_models(folder):
    for name, config in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        kind = "" if name in ("on_gpu", "on_cpu", "both") else "instance_group [ { kind: KIND_CPU } ]\n"
        (folder / name / "config.pbtxt").write_text(config + kind)


@pytest.fixture(scope="module")
def driver(tmp_path_factory, test_backends):
    """Returns the driver's library and the environment for processes that use it."""
    if IS_REAL:
        return "libcuda.so.1", dict(os.environ)
    folder = pathlib.Path(test_backends.partition("=")[2]).parent / "cuda"
    shared = tmp_path_factory.mktemp("cuda")
    environment = {**os.environ, "NEREID_FAKE_CUDA_DIR": str(shared)}
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return str(folder / "libcuda.so.1"), environment


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory, test_backends, driver):
    repository = tmp_path_factory.mktemp("models")
    write_models(repository)
    running = start_server(repository, [test_backends, "--allow-client-shm=true", "--cache-config=local,size=1048576", "--pinned-memory-pool-byte-size=8388608",
                                        "--cuda-memory-pool-byte-size=0:4194304"], environment=driver[1])
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(driver):
    running = CudaClient(*driver)
    yield running
    running.close()


def post(server, path, body, expect=200):
    status, _, text = send_http(server.url + path, body, method="POST")
    assert status == expect, text
    return json.loads(text) if text else {}


def register(server, client, name, size=len(DATA)):
    block, handle = client.allocate(size)
    post(server, f"/v2/cudasharedmemory/region/{name}/register", {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": size})
    return block


def infer(server, model, inputs, outputs, expect=200):
    return post(server, f"/v2/models/{model}/infer", {"inputs": inputs, "outputs": outputs}, expect)


def in_region(region, size=len(DATA)):
    return {"shared_memory_region": region, "shared_memory_byte_size": size}


def given(name, region):
    return {"name": name, "shape": [4], "datatype": "FP32", "parameters": in_region(region)}


@pytest.fixture(scope="module")
def regions(server, client):
    """Returns the memory blocks of the regions "in", which contains DATA, and "out"."""
    blocks = register(server, client, "in"), register(server, client, "out")
    client.write(blocks[0], DATA)
    return blocks


def test_a_model_on_the_cpu_reads_and_writes_regions_on_the_gpu(server, client, regions):
    client.write(regions[1], bytes(len(DATA)))
    answer = infer(server, "identity", [given("INPUT0", "in")], [{"name": "OUTPUT0", "parameters": in_region("out")}])
    assert answer["outputs"][0]["shape"] == [4] and "data" not in answer["outputs"][0]
    assert client.read(regions[1], len(DATA)) == DATA


def test_outputs_without_a_region_come_in_the_body(server, regions):
    answer = infer(server, "identity", [given("INPUT0", "in")], [{"name": "OUTPUT0"}])
    assert answer["outputs"][0]["data"] == VALUES


@pytest.mark.parametrize("model, kind", [("on_gpu", GPU), ("on_cpu", PINNED)])
def test_a_backend_gets_pinned_memory_and_that_of_the_gpu(server, regions, model, kind):
    answer = infer(server, model, [given("INPUT0", "in")], [{"name": "MEMORY_TYPES"}])
    assert answer["outputs"][0]["data"] == [kind, 1, 1, CPU]


def test_ensemble_passes_on_gpu_tensors(server, client, regions):
    client.write(regions[1], bytes(len(DATA)))
    answer = infer(server, "both", [given("IN", "in")], [{"name": "MEMORY_TYPES"}, {"name": "COPY", "parameters": in_region("out")}])
    places = next(output for output in answer["outputs"] if output["name"] == "MEMORY_TYPES")
    assert places["data"] == [GPU, 1, 1, CPU]
    assert client.read(regions[1], len(DATA)) == DATA


def test_the_cache_keeps_outputs_that_lay_on_the_gpu(server, client, regions):
    body = [{"name": "INPUT0", "shape": [4], "datatype": "FP32", "data": VALUES}]
    for _ in range(2):
        client.write(regions[1], bytes(len(DATA)))
        infer(server, "cached", body, [{"name": "OUTPUT0", "parameters": in_region("out")}])
        assert client.read(regions[1], len(DATA)) == DATA
    with urllib.request.urlopen(f"{server.url}/v2/models/cached/stats", timeout=60) as answer:
        statistics = json.load(answer)["model_stats"][0]["inference_stats"]
    assert statistics["cache_hit"]["count"] == 1 and statistics["cache_miss"]["count"] == 1


def test_classification_of_gpu_outputs_is_refused(server, regions):
    wish = {"name": "OUTPUT0", "parameters": {"classification": 2, **in_region("out")}}
    answer = infer(server, "identity", [given("INPUT0", "in")], [wish], expect=400)
    assert answer["error"] == "Output can't set both 'shared_memory_region' and 'classification'"
    assert server.alive()


def test_regions_that_do_not_exist_are_refused(server, client):
    _, handle = client.allocate(1 << 20)
    path = "/v2/cudasharedmemory/region/wrong/register"
    wrong = {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": 1 << 35}
    assert "wrong" in post(server, path, wrong, 400)["error"]
    assert "wrong" in post(server, path, {**wrong, "device_id": 4711}, 400)["error"]
    assert "wrong" in post(server, path, {**wrong, "raw_handle": {"b64": "A" * 84 + "AA=="}}, 400)["error"]


def test_the_metrics_page_shows_pools_and_gpus(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    assert "nv_pinned_memory_pool_total_bytes 8388608" in page
    for name in ("utilization", "memory_total_bytes", "memory_used_bytes", "power_usage"):
        assert f'nv_gpu_{name}{{gpu_uuid="GPU-' in page, page


def test_a_gpu_that_is_too_full_gets_no_model(start_server, tmp_path, test_backends, driver):
    write_models(tmp_path)
    running = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--model-load-gpu-limit=0:0"], environment=driver[1])
    try:
        assert "GPU 0" in post(running, "/v2/repository/models/on_gpu/load", {}, 400)["error"]
        post(running, "/v2/repository/models/on_cpu/load", {})
    finally:
        running.stop()
