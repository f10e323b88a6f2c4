"""Tests a framework through the backend API: ONNX Runtime, in a backend of ours that uses the wheel's shared library."""
import json
import subprocess
import urllib.request

import numpy as np
import onnx_file
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils
import wheels

NUMERIC = [name for name in onnx_file.TYPES if name != "BYTES"]
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


@pytest.fixture(scope="module")
def backend_directory(backends, tmp_path_factory):
    """A folder with the backend and ONNX Runtime."""
    root = tmp_path_factory.mktemp("backends") / "onnxruntime"
    root.mkdir()
    wheel = wheels.unpacked("onnxruntime==1.31.1") / "content"
    library, = (wheel / "onnxruntime/capi").glob("libonnxruntime.so.*")
    (root / "libonnxruntime.so").symlink_to(library)
    (root / "libtriton_onnxruntime.so").symlink_to(backends / "onnxruntime/libtriton_onnxruntime.so")
    return root.parent

SEQUENCES = """max_batch_size: 4
sequence_batching {
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "SUM" output_name: "NEW_SUM" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
model_warmup [ { name: "zeros" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } } ]
"""


def add_model(root, name, onnx, config=""):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(f'backend: "onnxruntime"\ninstance_group [ {{ kind: KIND_CPU }} ]\n{config}')
    (root / name / "1/model.onnx").write_bytes(onnx)


@pytest.fixture(scope="module")
def server(start, dist, backend_directory, tmp_path_factory):
    root = tmp_path_factory.mktemp("onnx")
    add_model(root, "product", onnx_file.model(
        [onnx_file.node("MatMul", ["X", "W"], ["Y"])], [onnx_file.tensor("X", "FP32", [-1, 4])], [onnx_file.tensor("Y", "FP32", [-1, 3])],
        [onnx_file.weights("W", WEIGHTS)]), "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 1000 }\n")
    for datatype in NUMERIC:
        add_model(root, f"same_{datatype}", onnx_file.model(
            [onnx_file.node("Identity", ["X"], ["Y"])], [onnx_file.tensor("X", datatype, [-1, -1])], [onnx_file.tensor("Y", datatype, [-1, -1])]))
    add_model(root, "texts", onnx_file.model(
        [onnx_file.node("Identity", ["X"], ["Y"])], [onnx_file.tensor("X", "BYTES", [-1])], [onnx_file.tensor("Y", "BYTES", [-1])]))
    add_model(root, "sum", onnx_file.model(
        [onnx_file.node("Add", ["X", "SUM"], ["Y"]), onnx_file.node("Identity", ["Y"], ["NEW_SUM"]), onnx_file.node("Identity", ["START"], ["STARTS"])],
        [onnx_file.tensor(name, "FP32", [-1, 1]) for name in ("X", "SUM", "START")],
        [onnx_file.tensor(name, "FP32", [-1, 1]) for name in ("Y", "NEW_SUM", "STARTS")]), SEQUENCES)
    add_model(root, "broken", b"this is no model")
    server = start(dist / "bin/nereid", root, backend_directory, flags=["--exit-on-error=false", "--strict-readiness=false"])
    yield server
    assert server.stop() == 0


def test_it_passes_the_check_of_backends(dist, backend_directory, tmp_path):
    add_model(tmp_path, "product", onnx_file.model(
        [onnx_file.node("MatMul", ["X", "W"], ["Y"])], [onnx_file.tensor("X", "FP32", [-1, 4])], [onnx_file.tensor("Y", "FP32", [-1, 3])],
        [onnx_file.weights("W", WEIGHTS)]), "max_batch_size: 8\ndynamic_batching { }\n")
    done = subprocess.run([str(dist / "bin/nereid-backend-check"), "--model", str(tmp_path / "product"),
                           str(backend_directory / "onnxruntime/libtriton_onnxruntime.so")], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "11 passed, 0 failed" in done.stdout, done.stdout + done.stderr


def post(server, path):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, method="POST", data=b""), timeout=60) as answer:
        return answer.read()


def infer(client, module, model, values, datatype):
    tensor = module.InferInput("X", list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    return client.infer(model, [tensor]).as_numpy("Y")


def test_tensors_come_from_the_file(server):
    config = json.loads(server.get("/v2/models/product/config"))
    assert config["input"] == [dict(config["input"][0], name="X", data_type="TYPE_FP32", dims=[4])]
    assert config["output"] == [dict(config["output"][0], name="Y", data_type="TYPE_FP32", dims=[3])]
    assert json.loads(server.get("/v2/models/product"))["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [-1, 3]}]


def test_sequences_keep_their_state(server):
    config = json.loads(server.get("/v2/models/sum/config"))
    assert [tensor["name"] for tensor in config["input"]] == ["X"]
    assert [tensor["name"] for tensor in config["output"]] == ["Y", "STARTS"]
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        sums = {7: [], 8: []}
        for step in range(3):
            for sequence, answers in sums.items():
                tensor = httpclient.InferInput("X", [1, 1], "FP32")
                tensor.set_data_from_numpy(np.full((1, 1), sequence, np.float32))
                result = client.infer("sum", [tensor], sequence_id=sequence, sequence_start=step == 0, sequence_end=step == 2)
                answers.append((result.as_numpy("Y").item(), result.as_numpy("STARTS").item()))
    assert sums == {7: [(7, 1), (14, 0), (21, 0)], 8: [(8, 1), (16, 0), (24, 0)]}


@pytest.mark.parametrize("module", [httpclient, grpcclient], ids=["http", "grpc"])
def test_a_product(server, module):
    with module.InferenceServerClient(f"127.0.0.1:{server.http if module is httpclient else server.grpc}") as client:
        for rows in (1, 3, 8):
            values = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
            assert np.allclose(infer(client, module, "product", values, "FP32"), values @ WEIGHTS)


def test_requests_at_once(server):
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=8) as client:
        pending = []
        for i in range(64):
            values = np.full((1 + i % 3, 4), i, dtype=np.float32)
            tensor = httpclient.InferInput("X", list(values.shape), "FP32")
            tensor.set_data_from_numpy(values)
            pending.append((values, client.async_infer("product", [tensor])))
        for values, request in pending:
            assert np.allclose(request.get_result().as_numpy("Y"), values @ WEIGHTS)


@pytest.mark.parametrize("datatype", NUMERIC)
def test_every_numeric_type(server, datatype):
    values = np.array([[0, 1, 2], [3, 4, 100]]).astype(tritonclient.utils.triton_to_np_dtype(datatype))
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        assert np.array_equal(infer(client, httpclient, f"same_{datatype}", values, datatype), values)
        empty = np.zeros((0, 3), dtype=values.dtype)
        assert infer(client, httpclient, f"same_{datatype}", empty, datatype).shape == (0, 3)


def test_errors_of_the_framework(server):
    """An error of ONNX Runtime becomes the error of the load or of the request."""
    index = {model["name"]: model for model in json.loads(post(server, "/v2/repository/index"))}
    assert index["broken"]["state"] == "UNAVAILABLE" and "model.onnx" in index["broken"]["reason"]
    assert index["texts"]["state"] == "UNAVAILABLE" and "'X': element type 8" in index["texts"]["reason"]
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        with pytest.raises(Exception, match=r"unexpected shape for input .X. for model .product.. Expected \[-1,4\], got \[1,5\]"):
            infer(client, httpclient, "product", np.zeros((1, 5), dtype=np.float32), "FP32")
        assert np.allclose(infer(client, httpclient, "product", np.ones((1, 4), dtype=np.float32), "FP32"), WEIGHTS.sum(0))
