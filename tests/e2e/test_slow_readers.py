"""Streams whose models send faster than their clients read: the model waits, the server's memory stays within the limit, and a client that reads
everything gets everything. Models: `ticker` (patient, a thread for each request), `wrapped` (an ensemble of it), `ticks` (one thread), `fountain` (one
thread that does not wait), `speech` and `caller` (Python)."""
import json
import pathlib
import shutil
import threading

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from patient_client import connect, counters, request, wait_running
from python_support import python_flags
from raw_http import Raw, post
from waiting import wait_for

LIMIT_BYTES = 8_000_000
RESPONSE_BYTES = 500_000
NUM_RESPONSES = 120
# Beside the limit: responses between model, ensemble and frontend, sockets, and what the allocator keeps.
MAX_GROWTH_BYTES = 60_000_000

WRAPPED = """platform: "ensemble"
input { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "INTERVAL_MS" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "SIZE" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "DATA" data_type: TYPE_UINT8 dims: [ -1 ] }
ensemble_scheduling { step [ { model_name: "ticker" model_version: -1
  input_map { key: "COUNT" value: "COUNT" } input_map { key: "INTERVAL_MS" value: "INTERVAL_MS" } input_map { key: "SIZE" value: "SIZE" }
  output_map { key: "DATA" value: "DATA" } } ] }
"""
TICKS = """backend: "ticker"
input { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "DELAY_MS" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "TICK" data_type: TYPE_INT32 dims: [ 1 ] }
instance_group { kind: KIND_CPU count: 1 }
model_transaction_policy { decoupled: true }
"""
PYTHON = """backend: "python"
input { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "INTERVAL_MS" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "SIZE" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "DATA" data_type: TYPE_UINT8 dims: [ -1 ] }
instance_group { kind: KIND_CPU count: 1 }
model_transaction_policy { decoupled: true }
"""
SPEECH = """import threading
import numpy as np
import triton_python_backend_utils as pb_utils

def value(request, name):
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0])

def speak(sender, count, size):
    for index in range(count):
        if sender.is_cancelled():
            break
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("DATA", np.full(size, index % 256, np.uint8))]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            threading.Thread(target=speak, args=(each.get_response_sender(), value(each, "COUNT"), value(each, "SIZE"))).start()
"""
CALLER = """import threading
import triton_python_backend_utils as pb_utils

def forward(request):
    sender = request.get_response_sender()
    call = pb_utils.InferenceRequest(model_name="ticker", requested_output_names=["DATA"], inputs=request.inputs())
    for response in call.exec(decoupled=True):
        if sender.is_cancelled():
            break
        if response.output_tensors():
            sender.send(pb_utils.InferenceResponse(response.output_tensors()))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            threading.Thread(target=forward, args=(each,)).start()
"""


@pytest.fixture(scope="module")
def server(start_server, patient_repository, test_backends):
    target = patient_repository
    shutil.copytree(target / "ticker", target / "fountain")
    (target / "fountain/config.pbtxt").write_text((target / "ticker/config.pbtxt").read_text().replace('"patient"', '"fountain"'))
    for name, config, code in (("wrapped", WRAPPED, ""), ("ticks", TICKS, ""), ("speech", PYTHON, SPEECH), ("caller", PYTHON, CALLER)):
        (target / name / "1").mkdir(parents=True)
        (target / name / "config.pbtxt").write_text(config)
        if code:
            (target / name / "1/model.py").write_text(code)
    return start_server(target, python_flags(test_backends, f"--grpc-max-unsent-size={LIMIT_BYTES}", f"--http-max-unsent-size={LIMIT_BYTES}",
                                             "--grpc-write-timeout=400", "--http-write-timeout-secs=1"))


@pytest.fixture
def stub(server):
    with connect(server) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def memory_bytes(server, what):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {what}")


class Memory:
    """The growth of the server's memory. In the block the largest value is measured."""

    def __init__(self, server):
        self._server = server

    def __enter__(self):
        pathlib.Path(f"/proc/{self._server.process.pid}/clear_refs").write_text("5")  # the largest value is measured from here on
        self._before = memory_bytes(self._server, "VmRSS")
        return self

    def __exit__(self, *_):
        self.growth = memory_bytes(self._server, "VmHWM") - self._before


def streamed(server, model, count=NUM_RESPONSES, size=RESPONSE_BYTES):
    """The call of a stream, which has a connection of its own. It is read only as far as its caller reads it."""
    channel = connect(server)
    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request(model, count=count, size=size)]), timeout=120)
    return channel, call


@pytest.mark.parametrize("model", ["ticker", "wrapped", "fountain", "speech", "caller"])
def test_a_grpc_client_that_reads_gets_everything(server, stub, model):
    with Memory(server) as memory:
        channel, call = streamed(server, model)
        with channel:
            data = [answer.infer_response.raw_output_contents[-1] for answer in call if answer.infer_response.raw_output_contents]
    assert [len(each) for each in data] == [RESPONSE_BYTES] * NUM_RESPONSES
    assert [each[0] for each in data] == list(range(NUM_RESPONSES))
    assert memory.growth < LIMIT_BYTES + MAX_GROWTH_BYTES
    wait_running(stub, 0)


@pytest.mark.parametrize("model", ["ticker", "wrapped", "speech"])
def test_an_http_client_that_reads_gets_everything(server, model):
    num_responses, size = 60, 100_000  # each element is a number of up to four characters
    with Memory(server) as memory, Raw(server.http) as client:
        client.send(post(f"/v2/models/{model}/generate_stream", {"COUNT": num_responses, "INTERVAL_MS": 0, "SIZE": size}))
        _, _, body = client.answer()
    events = [json.loads(event[6:])["DATA"] for event in body.decode().split("\n\n")[:-1]]
    assert [(event[0], len(event)) for event in events] == [(index, size) for index in range(num_responses)]
    assert memory.growth < LIMIT_BYTES + MAX_GROWTH_BYTES


@pytest.mark.parametrize("model", ["ticker", "wrapped", "caller"])
def test_a_grpc_client_that_reads_nothing_is_cut_off(server, stub, model):
    before = counters(stub)[1]
    with Memory(server) as memory:
        channel, call = streamed(server, model, count=-1)
        with channel:
            wait_running(stub, 1)
            assert len(list(streamed(server, "ticker", count=3)[1])) == 3  # others are served meanwhile
            wait_for(lambda: counters(stub) == (0, before + 1), "the request is cancelled")
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert memory.growth < LIMIT_BYTES + MAX_GROWTH_BYTES


def test_an_http_client_that_reads_nothing_is_cut_off(server, stub):
    before = counters(stub)[1]
    with Memory(server) as memory, Raw(server.http, receive_buffer=4096) as client:
        client.send(post("/v2/models/ticker/generate_stream", {"COUNT": -1, "INTERVAL_MS": 0, "SIZE": 100_000}))
        wait_for(lambda: counters(stub) == (0, before + 1), "the request is cancelled")
    assert memory.growth < LIMIT_BYTES + MAX_GROWTH_BYTES


def test_a_client_that_cancels_ends_the_wait_of_its_model(server, stub):
    before = counters(stub)[1]
    channel, call = streamed(server, "ticker", count=-1)
    with channel:
        wait_running(stub, 1)
        next(call)
        call.cancel()
        wait_for(lambda: counters(stub) == (0, before + 1), "the request is cancelled")


def test_a_model_with_one_thread_serves_others_after_a_client_that_does_not_read(server):
    def ticks(count):
        one = pb.ModelInferRequest(model_name="ticks")
        for name, value in (("COUNT", count), ("DELAY_MS", 0)):
            one.inputs.add(name=name, datatype="INT32", shape=[1]).contents.int_contents.append(value)
        return one

    with connect(server) as idle, connect(server) as reading:
        unread = service_pb2_grpc.GRPCInferenceServiceStub(idle).ModelStreamInfer(iter([ticks(2_000_000_000)]), timeout=120)
        assert next(unread).infer_response.outputs  # it has the model's thread
        answers = service_pb2_grpc.GRPCInferenceServiceStub(reading).ModelStreamInfer(iter([ticks(100)]), timeout=120)
        assert len([each for each in answers if each.infer_response.outputs]) == 100
        with pytest.raises(grpc.RpcError):
            list(unread)


@pytest.mark.parametrize("model", ["fountain", "speech"])
def test_a_client_that_does_not_read_delays_no_other_stream_of_its_model(server, model):
    channel, _unread = streamed(server, model, count=10_000)
    with channel:
        heard = []
        reader = threading.Thread(target=lambda: heard.extend(streamed(server, model, count=200, size=1000)[1]))
        reader.start()
        reader.join(timeout=60)
    assert len([each for each in heard if each.infer_response.outputs]) == 200
