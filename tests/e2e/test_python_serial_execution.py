"""Requests that wait for a Python model without batching are passed to its worker in advance (serial execution). Neither the model nor clients
notice a difference."""
import concurrent.futures
import json
import os
import pathlib
import urllib.request

import numpy as np
import pytest
import tritonclient.http as triton
from python_support import PATIENCE_S, binary_output, binary_request, check_no_leaks, post, python_flags, wait_for, write_model
from raw_http import Raw

PREFIX = f"nereid_in_turn_{os.getpid()}"
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
# The first number of the input selects the action. WAIT blocks the worker until a file exists, so that other requests queue; WAIT_AGAIN waits for
# another file. TELL returns the second numbers of the executed requests.
CODE = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

ECHO, WAIT, DIE, FAIL, WAIT_AGAIN, TELL = range(6)


class TritonPythonModel:
    def initialize(self, args):
        self.path = os.path.join(args["model_repository"], "go")
        self.executed = []

    def wait(self, path):
        open(path + ".waiting", "w").close()
        while not os.path.exists(path):
            time.sleep(0.001)

    def execute(self, requests):
        assert len(requests) == 1
        values = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        self.executed.append(values[-1])
        if values[0] == WAIT:
            self.wait(self.path)
        elif values[0] == WAIT_AGAIN:
            self.wait(self.path + ".again")
        elif values[0] == TELL:
            values = np.array(self.executed, np.float32)
        elif values[0] == DIE:
            os._exit(7)
        elif values[0] == FAIL:
            raise ValueError("as asked")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])]
"""
STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        values = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        for each in values:
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([each], np.float32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# Models that return their input and write to it when the next request comes: (what the model keeps, how it writes to that).
REWRITERS = {
    "keeper": ("values", "self.kept"),
    "keeper_of_a_part": ("values[1:]", "self.kept"),
    "keeper_of_the_tensor": ("requests[0].inputs()[0]", "self.kept.as_numpy()"),
    "keeper_of_the_request": ("requests[0]", "self.kept.inputs()[0].as_numpy()"),
    "keeper_of_the_bytes": ("memoryview(values)", "np.frombuffer(self.kept, np.float32)"),
    "keeper_of_nothing": ("np.empty(1)", "self.kept"),
}
REWRITER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    kept = None

    def execute(self, requests):
        if self.kept is not None:
            {written}[:] = -1
        values = requests[0].inputs()[0].as_numpy()
        self.kept = {kept}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])]
"""
ECHO, WAIT, DIE, FAIL, WAIT_AGAIN, TELL = range(6)


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("in_turn")
    write_model(root, "steps", CODE, CONFIG)
    write_model(root, "stream", STREAM, CONFIG + "model_transaction_policy { decoupled: true }\n")
    for name, (kept, written) in REWRITERS.items():
        write_model(root, name, REWRITER.format(kept=kept, written=written), CONFIG)
    running = start_server(root, python_flags(f"--backend-config=python,shm-region-prefix-name={PREFIX}"))
    running.go = root / "steps/go"
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


def ask(server, *values):
    return post(server, "/v2/models/steps/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": list(values)}]})


def statistics(server, model="steps"):
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats", timeout=PATIENCE_S) as answer:
        return json.load(answer)["model_stats"][0]


def statistics_after(server, count):
    """Returns the statistics when they count this many executions: an execution is counted shortly after its answer is sent."""
    wait_for(lambda: statistics(server)["execution_count"] >= count, "the executions are counted")
    return statistics(server)


def metric(server, name, label):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(each.rsplit(" ", 1)[1]) for each in lines if each.startswith(name + "{") and 'model="steps"' in each and label in each)


def pending(server):
    return metric(server, "nv_inference_pending_request_count", "")


def canceled(server):
    return metric(server, "nv_inference_request_failure", 'reason="CANCELED"')


def answers_behind_long_request(server, cases):
    """Returns the answers to requests that wait while the worker is busy, in order. The first of them is quick, so that the others are passed
    together."""
    waiting = server.go.with_name("go.waiting")
    for each in (server.go, waiting):
        each.unlink(missing_ok=True)
    with concurrent.futures.ThreadPoolExecutor(len(cases) + 2) as pool:
        first = pool.submit(ask, server, WAIT)
        wait_for(waiting.exists, "the worker waits")
        others = []
        for i, case in enumerate([ECHO, *cases]):
            others.append(pool.submit(ask, server, case, i))
            wait_for(lambda count=i + 1: pending(server) == count, "the request waits")
        server.go.touch()
        assert first.result(PATIENCE_S)[0] == 200
        return [each.result(PATIENCE_S) for each in others][1:]


def test_each_is_answered_as_if_it_were_alone(server):
    before = statistics(server)
    answers = answers_behind_long_request(server, [ECHO, FAIL, ECHO, ECHO, FAIL, ECHO])
    for i, (status, answer) in enumerate(answers, 1):
        if i in (2, 5):
            assert status == 500 and "ValueError: as asked" in answer["error"], answer
        else:
            assert status == 200 and answer["outputs"][0]["data"] == [0.0, i], answer
    after = statistics_after(server, before["execution_count"] + 8)
    assert after["execution_count"] - before["execution_count"] == 8 and after["inference_count"] - before["inference_count"] == 6
    assert after["inference_stats"]["fail"]["count"] - before["inference_stats"]["fail"]["count"] == 2


def test_requests_not_begun_by_a_dead_worker_go_to_the_next_one(server):
    answers = answers_behind_long_request(server, [ECHO, DIE, ECHO, ECHO, DIE, ECHO])
    assert [status for status, _ in answers[:4]] == [200, 503, 200, 200], answers
    assert "exited with code 7" in answers[1][1]["error"]
    for i in (0, 2, 3):
        assert answers[i][1]["outputs"][0]["data"] == [0.0, i + 1]
    wait_for(lambda: ask(server, ECHO)[0] == 200, "the worker is back")


def test_cancelled_request_in_the_worker_is_not_executed(server):
    before, canceled_before = statistics(server), canceled(server)
    first, again = server.go, server.go.with_name("go.again")
    for each in (first, again):
        each.unlink(missing_ok=True)
        each.with_name(each.name + ".waiting").unlink(missing_ok=True)
    clients = []

    def send(what, number):
        clients.append(Raw(server.http))
        clients[-1].send(binary_request("steps", np.array([what, number], np.float32)))

    send(WAIT, 100)
    wait_for(first.with_name("go.waiting").exists, "the worker waits")
    for number, what in enumerate([ECHO, ECHO, WAIT_AGAIN, *[ECHO] * 6], 101):  # the first request is executed alone, the others are passed together
        send(what, number)
        wait_for(lambda: pending(server) == number - 100, "the request waits")  # noqa: B023
    first.touch()
    wait_for(again.with_name("go.again.waiting").exists, "the worker waits again")
    assert pending(server) == 0  # the worker has all of them
    for number in (104, 107, 109):
        clients[number - 100].close()
    wait_for(lambda: num_connections(server) == len(clients) - 3, "the clients are gone")
    again.touch()
    for number in (100, 101, 102, 103, 105, 106, 108):
        assert binary_output(clients[number - 100]).tolist()[1] == number
    status, answer = ask(server, TELL, 110)
    assert status == 200 and [each for each in answer["outputs"][0]["data"] if each >= 100] == [100, 101, 102, 103, 105, 106, 108, 110]
    after = statistics_after(server, before["execution_count"] + 8)
    assert after["execution_count"] - before["execution_count"] == 8
    assert after["inference_stats"]["fail"]["count"] - before["inference_stats"]["fail"]["count"] == 3
    assert canceled(server) - canceled_before == 3


def num_connections(server):
    """Returns the number of client connections that the server has open over HTTP."""
    port = f":{server.http:04X}"
    lines = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(fields[1].endswith(port) and fields[3] in ("01", "08") for fields in lines)  # established, or closed only by the client


def test_serially_executed_requests_have_separate_tensors(server):
    """Outputs that are inputs are in the host's memory and must be kept until the host has read the answer."""
    sizes = (1, 16, 5_000, 40_000)
    binary = {"binary_data": True}

    def client(number):
        with triton.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=PATIENCE_S) as one:
            for i in range(60):
                values = np.full(sizes[(number + i) % len(sizes)], 1000 * number + i, np.float32)
                values[0] = ECHO
                tensor = triton.InferInput("IN", values.shape, "FP32").set_data_from_numpy(values, **binary)
                answer = one.infer("steps", [tensor], outputs=[triton.InferRequestedOutput("OUT", **binary)])
                assert np.array_equal(answer.as_numpy("OUT"), values)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for each in [pool.submit(client, number) for number in range(12)]:
            each.result(PATIENCE_S)


@pytest.mark.parametrize("model", REWRITERS)
def test_model_writes_to_its_last_input_change_no_answer(server, model):
    """The input was the answer, which the host may not have read yet."""
    clients = [Raw(server.http) for _ in range(16)]
    for seed in range(20):
        asked = [np.full(4096 if seed % 2 else 1 << 15, 16 * seed + i, np.float32) for i in range(len(clients))]
        for one, values in zip(clients, asked):
            one.send(binary_request(model, values))
        for one, values in zip(clients, asked):
            assert np.array_equal(binary_output(one), values)
    for one in clients:
        one.close()


def test_serially_executed_streams_are_complete(server):
    def client(number):
        for i in range(20):
            body = json.dumps({"IN": [100 * number + i, 1, 2]}).encode()
            request = urllib.request.Request(f"{server.url}/v2/models/stream/generate_stream", data=body)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                values = [json.loads(line[5:])["OUT"] for line in answer.read().decode().splitlines() if line.startswith("data:")]
            assert values == [100 * number + i, 1, 2]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(client, number) for number in range(8)]:
            each.result(PATIENCE_S)
