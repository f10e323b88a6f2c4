"""Leased outputs: large outputs of Python models, which are sent to clients from the worker's shared memory. Clients get the model's bytes,
whatever the model, the worker and other requests do while a slow client reads."""
import os

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as system_memory
from python_support import (binary_output, binary_request, check_no_leaks, is_ready, load_by_request, post, python_flags,
                            unload, wait_for, write_model)
from raw_http import Raw

PREFIX = f"nereid_loans_{os.getpid()}"
NUM_SLOW = 1 << 21  # 8 MiB, most of which stays in the server if the client does not read
SIZES = (1 << 14, (1 << 14) + 1, 1 << 18, NUM_SLOW)
MAX_LENT_BYTES, MAX_LENT_BLOCKS = 64 << 20, 16

DIE, TELL_FREE = -1, -2
CODE = """
import os
import numpy as np
from c_python_backend_utils import shared_memory
import triton_python_backend_utils as pb_utils

DIE, TELL_FREE = -1, -2


class TritonPythonModel:
    kept = None

    def execute(self, requests):
        {before}
        responses = []
        for each in requests:
            values = each.inputs()[0].as_numpy()
            if values[0] == DIE:
                os._exit(1)
            if values[0] == TELL_FREE:
                values = np.array([shared_memory.free_memory()], np.float32)
            {answer}
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]))
        return responses

    def again(self, values):
        self.kept[:] = values
        return self.kept
"""
FORGET = "if self.kept is not None: self.kept[:] = -1"
MODELS = {  # (before, answer)
    "mirror": ("pass", "pass"),
    "maker": ("pass", "values = values + 0"),
    "keeper": (FORGET, "self.kept = values"),
    "keeper_of_a_view": (FORGET, "self.kept = values[1:]"),
    "keeper_of_a_tensor": ("if self.kept is not None: self.kept.as_numpy()[:] = -1", "self.kept = each.inputs()[0]"),
    "keeper_of_its_bytes": ("if self.kept is not None: np.frombuffer(self.kept, np.uint8)[:] = 255", "self.kept = memoryview(values)"),
    "maker_again": (FORGET, "self.kept = values = values.copy() if self.kept is None or self.kept.size != values.size else self.again(values)"),
    "twice": ("pass", "pass"),
}
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
STREAM = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            sender = each.get_response_sender()
            values = each.inputs()[0].as_numpy()
            for i in range(20):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values + i)]))
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("loans") / "models"
    for name, (before, answer) in MODELS.items():
        write_model(root, name, CODE.format(before=before, answer=answer), CONFIG)
    (root / "twice/1/model.py").write_text((root / "twice/1/model.py").read_text().replace(
        '[pb_utils.Tensor("OUT", values)]', '[pb_utils.Tensor("OUT", values), pb_utils.Tensor("OUT2", values)]'))
    (root / "twice/config.pbtxt").write_text(CONFIG + 'output [ { name: "OUT2" data_type: TYPE_FP32 dims: [ -1 ] } ]\n')
    write_model(root, "cached", CODE.format(before="pass", answer="pass"), CONFIG + "response_cache { enable: true }\n")
    write_model(root, "stream", STREAM, CONFIG + "model_transaction_policy { decoupled: true }\n")
    running = start_server(root, python_flags("--allow-client-shm=true", f"--backend-config=python,shm-region-prefix-name={PREFIX}", "--model-control-mode=explicit",
                                              "--load-model=*", "--cache-config=local,size=67108864",
                                              "--http-write-timeout-secs=1000", "--grpc-write-timeout=1000000"))  # long enough for a slow machine
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


@pytest.fixture(params=[httpclient, grpcclient], ids=["http", "grpc"])
def client(request, server):
    with request.param.InferenceServerClient(f"127.0.0.1:{server.http if request.param is httpclient else server.grpc}") as one:
        one.types = request.param
        yield one


def floats(count, seed):
    return np.random.default_rng(seed).random(count, np.float32)


def infer(client, model, values, *outputs, **how):
    given = client.types.InferInput("IN", list(values.shape), "FP32")
    given.set_data_from_numpy(values)
    return client.infer(model, [given], outputs=[client.types.InferRequestedOutput(name, **how) for name in outputs or ("OUT",)])


def test_outputs_equal_the_models_answers(client):
    for seed, count in enumerate(SIZES):
        values = floats(count, seed)
        for model in (*MODELS, "cached", "cached"):
            assert np.array_equal(infer(client, model, values).as_numpy("OUT"), values), (model, count)


def test_one_input_may_be_two_outputs(client):
    for seed in range(3):
        values = floats(1 << 18, seed)
        result = infer(client, "twice", values, "OUT", "OUT2")
        assert np.array_equal(result.as_numpy("OUT"), values) and np.array_equal(result.as_numpy("OUT2"), values)


@pytest.mark.parametrize("model", ["mirror", "maker"])
def test_outputs_that_are_not_sent_as_they_are(server, client, model):
    values = floats(1 << 16, 7)
    classes = infer(client, model, values, class_count=2).as_numpy("OUT")
    assert [int(each.decode().split(":")[1]) for each in classes] == np.argsort(-values, kind="stable")[:2].tolist()
    name = f"{PREFIX}_{client.types.__name__[-4:]}"
    region = system_memory.create_shared_memory_region(name, "/" + name, values.nbytes)
    try:
        client.register_system_shared_memory(name, "/" + name, values.nbytes)
        given, wanted = client.types.InferInput("IN", [values.size], "FP32"), client.types.InferRequestedOutput("OUT")
        given.set_data_from_numpy(values)
        wanted.set_shared_memory(name, values.nbytes)
        client.infer(model, [given], outputs=[wanted])
        assert np.array_equal(system_memory.get_contents_as_numpy(region, np.float32, [values.size]), values)
        client.unregister_system_shared_memory(name)
    finally:
        system_memory.destroy_shared_memory_region(region)
    status, answer = post(server, f"/v2/models/{model}/infer", {"inputs": [
        {"name": "IN", "datatype": "FP32", "shape": [values.size], "data": values.tolist()}]})
    assert status == 200 and np.array_equal(np.array(answer["outputs"][0]["data"], np.float32), values)


class SlowClient:
    """Has sent its request and reads nothing until its output is requested."""

    def __init__(self, server, model, values):
        self.raw = Raw(server.http, receive_buffer=4096)
        self.ask(model, values)
        self.raw.left = self.raw.socket.recv(1)  # the answer has begun

    def ask(self, model, values):
        self.raw.send(binary_request(model, values))

    def output(self):
        return binary_output(self.raw)


def slow(server, model, seed):
    values = floats(NUM_SLOW, seed)
    return SlowClient(server, model, values), values


@pytest.mark.parametrize("model", [name for name in MODELS if name != "twice"])
def test_a_slow_client_gets_its_own_bytes(server, client, model):
    one, values = slow(server, model, 1)
    for seed in range(2, 8):
        other = floats(NUM_SLOW if seed % 2 else 1 << 14, seed)
        assert np.array_equal(infer(client, model, other).as_numpy("OUT"), other)
    assert np.array_equal(one.output(), values)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "twice"])
def test_serial_execution_does_not_change_previous_answers(server, model):
    """The worker may receive the next requests before the host has read its answer. Models that write to memory that they kept do so then."""
    clients = [SlowClient(server, model, floats(4096, 0)) for _ in range(16)]
    for one in clients:
        one.output()
    for seed in range(20):
        asked = [floats(4096 if seed % 2 else 1 << 15, (seed, i)) for i in range(len(clients))]
        for one, values in zip(clients, asked):
            one.ask(model, values)
        for one, values in zip(clients, asked):
            assert np.array_equal(one.output(), values)


@pytest.mark.parametrize("model", ["mirror", "maker"])
def test_a_slow_client_gets_the_bytes_of_a_worker_that_died(server, model):
    one, values = slow(server, model, 1)
    assert post(server, f"/v2/models/{model}/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [DIE]}]})[0] == 503
    wait_for(lambda: is_ready(server, model), "the worker is back")
    assert np.array_equal(one.output(), values)
    check_no_leaks(server, PREFIX)


@pytest.mark.parametrize("model", ["mirror", "maker"])
def test_a_slow_client_gets_the_bytes_of_a_model_that_was_unloaded(server, model):
    one, values = slow(server, model, 1)
    unload(server, model)
    wait_for(lambda: not is_ready(server, model), "the model is gone")
    load_by_request(server, model)
    assert np.array_equal(one.output(), values)
    check_no_leaks(server, PREFIX)


def test_clients_that_leave_give_everything_back(server):
    for seed in range(MAX_LENT_BLOCKS + 4):  # more than may be leased at the same time
        slow(server, "maker", seed)[0].raw.close()

    def all_is_free():
        status, answer = post(server, "/v2/models/maker/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [TELL_FREE]}]})
        assert status == 200, answer
        return answer["outputs"][0]["data"][0] in region_bytes(server, "from_worker")
    wait_for(all_is_free, "the worker has all of its memory")


def region_bytes(server, name=""):
    """Returns the sizes of the workers' regions, rounded to FP32."""
    sizes = []
    for each in os.listdir(f"/proc/{server.process.pid}/fd"):
        path = f"/proc/{server.process.pid}/fd/{each}"
        try:
            if f"{PREFIX}_{name}" in os.readlink(path):
                sizes.append(float(np.float32(os.stat(path).st_size)))
        except FileNotFoundError:
            pass
    return sizes


@pytest.mark.parametrize("model", ["mirror", "maker"])
def test_slow_clients_hold_a_part_of_the_workers_memory_alone(server, model):
    waiting = [slow(server, model, seed) for seed in range(MAX_LENT_BLOCKS + 4)]
    assert max(region_bytes(server)) <= MAX_LENT_BYTES + 3 * 4 * NUM_SLOW
    for one, values in waiting:
        assert np.array_equal(one.output(), values)


def test_late_read_stream_is_complete(server):
    values = floats(1 << 18, 3)
    given = grpcclient.InferInput("IN", [values.size], "FP32")
    given.set_data_from_numpy(values)
    answers = []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.append(error or result.as_numpy("OUT")))
        client.async_stream_infer("stream", [given])
        client.stop_stream()
    assert len(answers) == 21
    assert all(np.array_equal(answer, values + i) for i, answer in enumerate(answers[:20])) and np.array_equal(answers[20], values)
