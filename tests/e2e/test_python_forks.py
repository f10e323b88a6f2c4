"""Processes that a Python model forks, and their calls of the host."""
import re
import shutil
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from python_support import ask_caller, load_by_request, post, unload, wait_for, write_model
from streams import stream_of

CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
FORKER = """
import multiprocessing
import multiprocessing.pool
import os
import random
import signal
import threading
import time
import numpy as np
import triton_python_backend_utils as pb_utils
forking = multiprocessing.get_context("fork")

def call(model, values):
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", np.array(values, np.float32))])

def doubled(values):
    response = call("doubler", values).exec()
    return response.error().message() if response.has_error() else response.output_tensors()[0].as_numpy()

def response_of(values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values, np.float32))])

class TritonPythonModel:
    def execute(self, requests):
        return [response_of(self.answer(each.inputs()[0].as_numpy())) for each in requests]
"""


@pytest.fixture
def load(python_server, python_repository):
    loaded = []

    def load_one(name, methods, config=CONFIG):
        write_model(python_repository, name, FORKER + methods, config)
        load_by_request(python_server, name)
        loaded.append(name)
    yield load_one
    for each in loaded:
        unload(python_server, each)
        shutil.rmtree(python_repository / each)


def ask(server, name, values=(1.0,)):
    status, answer = post(server, f"/v2/models/{name}/infer",
                          {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": list(values)}]})
    assert status == 200, answer
    return answer["outputs"][0]["data"]


def input_of(values):
    tensor = grpcclient.InferInput("IN", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32))
    return tensor


def test_processes_forked_before_a_model_may_call_do_so_later(python_server, load):
    """A process pool that initialize() creates; each process calls from several threads."""
    load("pooled", """
    def initialize(self, args):
        self.pool = forking.Pool(2)

    def answer(self, values):
        return np.array(self.pool.map(many, [8, 3000, 70000])).reshape(-1)

def many(size):
    with multiprocessing.pool.ThreadPool(4) as threads:
        ends = threads.map(lambda each: bool((doubled(np.arange(size) + each) == 2 * (np.arange(size) + each)).all()), range(12))
    return ends
""")
    assert ask(python_server, "pooled") == [1.0] * 36


def test_processes_killed_during_a_call_leave_nothing_behind(python_server, load):
    """They leave no threads, descriptors or shared memory in the model's process, and do not affect requests of other models."""
    load("killer", """
    def answer(self, values):
        end = [doubled([1, 2])[1]]
        before = held()
        for number in range(int(values[0])):
            child = forking.Process(target=call_on, args=(number % 2,))
            child.start()
            time.sleep(random.uniform(0.02, 0.2))
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            child.close()
            end.append(doubled([1, 2])[1])
        for _ in range(int(values[1])):
            if held() == before:
                break
            time.sleep(0.05)
        after = held()
        print("held before", before, "and after", after)
        return end + [float(before == after)]

def held():
    from nereid_worker import calls, channel
    threads = sorted(each.name for each in threading.enumerate())
    used = len(channel.outgoing._map) - channel.outgoing.free_bytes()
    return (threads, len(os.listdir("/proc/self/fd")), used, len(channel.incoming._living), len(calls._pending), len(calls._abandoned))

def call_on(is_stream):
    while True:
        if is_stream:
            list(call("counter", [np.inf]).exec(decoupled=True))
        else:
            doubled(np.ones(500000))
""")
    ask(python_server, "killer", [2.0, 0.0])  # the first call starts threads, which stay; from here on, nothing more may remain
    assert ask(python_server, "killer", [24.0, 200.0]) == [4.0] * 25 + [1.0]
    wait_for(lambda: pending(python_server, "counter") == 0, "streams that nobody reads are cancelled")
    assert ask_caller(python_server, "stream", [2.0]) == [[0.0], [1.0], "empty"]


def pending(server, model):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics") as page:
        return sum(float(each) for each in re.findall(rf'nv_inference_pending_request_count{{model="{model}",version="1"}} (\S+)', page.read().decode()))


def test_a_forked_process_answers_requests_of_a_decoupled_model(python_server, load):
    """Sends long and short responses, all before the final one, which the model's process sends when no sender is left."""
    load("answered_by_forks", """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            child = forking.Process(target=send_all, args=(sender, request.inputs()[0].as_numpy()))
            child.start()
            child.join()

def send_all(sender, sizes):
    for each in sizes:
        sender.send(response_of(np.full(int(each), each)))
""", CONFIG + "model_transaction_policy { decoupled: true }\n")
    seen = [each.as_numpy("OUT") for each in stream_of(python_server, "answered_by_forks", [input_of([3, 50000, 1, 2000])])]
    assert [each.size for each in seen] == [3, 50000, 1, 2000] and all((each == each.size).all() for each in seen)


def test_metrics_of_a_forked_process_end_with_it_and_those_of_its_model_do_not(python_server, load):
    load("measured_by_forks", """
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(name="kept_by_model", description="", kind=pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric(labels={"of": "model"})

    def answer(self, values):
        child = forking.Process(target=self.count, args=(values,))
        child.start()
        child.join()
        return [self.metric.value(), child.exitcode]

    def count(self, values):
        family = pb_utils.MetricFamily(name="made_by_fork", description="", kind=pb_utils.MetricFamily.COUNTER)
        metric = family.Metric(labels={"of": "fork"})
        metric.increment(5)
        self.metric.increment(metric.value())
        del self.metric, self.family
        os._exit(int(values[0]))
""")
    assert ask(python_server, "measured_by_forks", [3.0]) == [5.0, 3.0]
    wait_for(lambda: "made_by_fork" not in page(python_server), "the metric of the process that ended is gone")
    assert 'kept_by_model{of="model"} 5' in page(python_server)
    assert ask(python_server, "measured_by_forks", [4.0]) == [10.0, 4.0]


def page(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics") as answer:
        return answer.read().decode()


def test_a_process_forked_by_a_forked_one_calls_the_host(python_server, load):
    """While its parent also calls."""
    load("generations", """
    def answer(self, values):
        results = forking.SimpleQueue()
        child = forking.Process(target=grow, args=(results, 3))
        child.start()
        child.join()
        return sorted(results.get() for _ in range(4))

def grow(results, number):
    results.put(float(doubled([number])[0]))
    if number:
        child = forking.Process(target=grow, args=(results, number - 1))
        child.start()
        ends = [float(doubled([each])[0]) for each in range(100)]
        child.join()
        assert ends == [2.0 * each for each in range(100)]
""")
    assert ask(python_server, "generations") == [0.0, 2.0, 4.0, 6.0]
