"""Runs NVIDIA's Python backend, unchanged, in our server and tests what a model.py can use."""
import json
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

MODELS = {
    "double": """
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        assert json.loads(args["model_config"])["name"] == args["model_name"]
        assert args["model_version"] == "1" and args["model_instance_kind"] == "CPU"

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() * 2)]) for request in requests]
""",
    # Calls `double` through the core, twice.
    "caller": """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            for _ in range(2):
                call = pb_utils.InferenceRequest(model_name="double", requested_output_names=["OUTPUT0"],
                                                 inputs=[pb_utils.Tensor("INPUT0", tensor.as_numpy())])
                response = call.exec()
                if response.has_error():
                    raise pb_utils.TritonModelException(response.error().message())
                tensor = pb_utils.get_output_tensor_by_name(response, "OUTPUT0")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())]))
        return answers
""",
    # Sends one response per value.
    "stream": """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for value in pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", value.reshape(1))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "failing": """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("told to fail")
""",
    # Completes its own configuration.
    "complete": """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]) for request in requests]
""",
}
TENSORS = """input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


@pytest.fixture(scope="module")
def server(start, dist, their_server_on_our_core, python_environment, tmp_path_factory):
    repository = tmp_path_factory.mktemp("python_models")
    for name, code in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1/model.py").write_text(code)
        config = 'backend: "python"\n' + ("" if name == "complete" else TENSORS)
        if name == "stream":
            config += "model_transaction_policy { decoupled: true }\n"
        (repository / name / "config.pbtxt").write_text(config)
    # A Python-based backend: it consists of a model.py, and its models have no file of their own.
    scripted = their_server_on_our_core / "backends/scripted"
    scripted.mkdir(exist_ok=True)
    (scripted / "model.py").write_text(MODELS["double"])
    (repository / "of_a_script/1").mkdir(parents=True)
    (repository / "of_a_script/config.pbtxt").write_text('backend: "scripted"\n' + TENSORS)
    running = start(dist / "bin/nereid", repository, their_server_on_our_core / "backends", python_environment,
                    flags=["--backend-config=python,shm-default-byte-size=1048576", "--backend-config=python,shm-growth-byte-size=1048576"])
    yield running
    assert running.stop() == 0


def infer(server, model, values):
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=100, connection_timeout=100) as client:
        tensor = httpclient.InferInput("INPUT0", [len(values)], "FP32")
        tensor.set_data_from_numpy(np.array(values, dtype=np.float32))
        return client.infer(model, [tensor]).as_numpy("OUTPUT0").tolist()


def test_it_passes_the_check_of_backends(dist, their_server_on_our_core, python_environment, tmp_path):
    model = tmp_path / "double"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(MODELS["double"])
    (model / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: 8\n' + TENSORS)
    sizes = ["--setting", "shm-default-byte-size=1048576", "--setting", "shm-growth-byte-size=1048576"]
    done = subprocess.run([str(dist / "bin/nereid-backend-check"), "--model", str(model), *sizes,
                           str(their_server_on_our_core / "backends/python/libtriton_python.so")],
                          env=python_environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "12 passed, 0 failed" in done.stdout, done.stdout + done.stderr


def test_a_model_answers(server):
    for _ in range(3):
        assert infer(server, "double", [1, 2]) == [2, 4]


def test_a_model_calls_another_through_the_core(server):
    assert infer(server, "caller", [1, 3]) == [4, 12]


def test_a_model_completes_its_configuration(server):
    assert infer(server, "complete", [7]) == [7]
    assert json.loads(server.get("/v2/models/complete/config"))["input"][0]["name"] == "INPUT0"


def test_a_backend_may_be_a_script(server):
    assert infer(server, "of_a_script", [4]) == [8]


def test_an_exception_is_the_clients_error(server):
    with pytest.raises(Exception, match="told to fail"):
        infer(server, "failing", [1])
    assert infer(server, "double", [1]) == [2]


def test_a_decoupled_model_streams(server):
    import queue
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        tensor = grpcclient.InferInput("INPUT0", [3], "FP32")
        tensor.set_data_from_numpy(np.array([5, 6, 7], dtype=np.float32))
        client.async_stream_infer("stream", [tensor], enable_empty_final_response=True)
        seen = []
        while True:
            result, error = answers.get(timeout=90)
            assert error is None, error
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            seen.append(result.as_numpy("OUTPUT0").item())
    assert seen == [5, 6, 7]


def test_statistics_count_its_executions(server):
    infer(server, "double", [1])
    statistics = json.loads(server.get("/v2/models/double/stats"))["model_stats"][0]
    assert statistics["execution_count"] >= 1 and statistics["inference_stats"]["success"]["count"] >= 1
