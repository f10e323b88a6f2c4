"""How schedulers treat waiting requests, in a running server: delayed and rejected timeouts, shared resources, batching libraries, warm-up of
sequence models, instances that are added during work. A model blocks until a test creates a file, so that later requests queue."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

from http_request import send_http
import pytest
from waiting import wait_for

GATED = """import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.gate = json.loads(args["model_config"])["parameters"]["gate"]["string_value"]
        self.busy = self.gate + "." + args["model_name"]
        self.turn = 0

    def execute(self, requests):
        self.turn += 1
        for request in requests:
            if pb_utils.get_input_tensor_by_name(request, "X").as_numpy().flat[0] == 0:
                open(self.busy, "w").close()
                while not os.path.exists(self.gate):
                    time.sleep(0.01)
        made = np.array([[self.turn, len(requests)]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TURN_AND_SIZE", made)]) for _ in requests]
"""
CONFIG = """backend: "python"
max_batch_size: 8
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "TURN_AND_SIZE" data_type: TYPE_INT32 dims: [ 2 ] }} ]
parameters {{ key: "gate" value {{ string_value: "{gate}" }} }}
{more}
"""
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"


def add_model(root, name, more, code=GATED):
    folder = root / "repository" / name
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(code)
    (folder / "config.pbtxt").write_text(CONFIG.format(gate=root / "gate", more=more))
    return folder


class Clients:
    """Sends concurrent requests. `pending` waits until so many of them are queued."""

    def __init__(self, server, root):
        self.server, self.root = server, root
        self.pool = concurrent.futures.ThreadPoolExecutor(16)

    def send(self, model, value, **parameters):
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}], "parameters": parameters}
        return self.pool.submit(self._ask, model, body)

    def _ask(self, model, body):
        status, _, answer = send_http(f"{self.server.url}/v2/models/{model}/infer", body)
        return tuple(json.loads(answer)["outputs"][0]["data"]) if status == 200 else (status, json.loads(answer)["error"])

    def metric(self, name, model):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.metrics}/metrics", timeout=60) as answer:
            return float(re.search(rf'^{name}{{model="{model}",version="1"}} (.*)$', answer.read().decode(), re.M)[1])

    def wait_for_pending(self, model, count):
        wait_for(lambda: self.metric("nv_inference_pending_request_count", model) == count, f"{count} pending requests")

    def occupy(self, model):
        """Sends a request that occupies the model until the gate opens."""
        request = self.send(model, 0)
        wait_for(lambda: request.done() or (self.root / f"gate.{model}").exists(), "the model waits at its gate")
        assert not request.done(), request.result()
        return request


@pytest.fixture
def start(start_server, tmp_path):
    def run(*flags):
        return Clients(start_server(tmp_path / "repository", flags), tmp_path)

    return run


def queue_policy(action):
    return "dynamic_batching { preferred_batch_size: [ 1 ] default_queue_policy { timeout_action: %s allow_timeout_override: true } }\n" % action + ONE


def test_delay_serves_timed_out_requests_after_the_others(start, tmp_path):
    add_model(tmp_path, "m", queue_policy("DELAY").replace("preferred_batch_size: [ 1 ]", ""))
    config = tmp_path / "repository/m/config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 1"))
    clients = start()
    first = clients.occupy("m")
    hurried = clients.send("m", 1, timeout=1)  # microseconds
    clients.wait_for_pending("m", 1)
    patient = clients.send("m", 1)
    clients.wait_for_pending("m", 2)
    (tmp_path / "gate").touch()
    assert [one.result() for one in (first, patient, hurried)] == [(1, 1), (2, 1), (3, 1)]


def test_reject_answers_timed_out_requests_while_the_model_works(start, tmp_path):
    add_model(tmp_path, "m", queue_policy("REJECT"))
    clients = start()
    first = clients.occupy("m")
    patient = clients.send("m", 1)
    clients.wait_for_pending("m", 1)
    assert clients.send("m", 1, timeout=1).result() == (503, "Request timeout expired")
    assert not first.done() and not patient.done()
    (tmp_path / "gate").touch()
    assert first.result()[0] == 1 and patient.result()[0] == 2


def test_models_that_share_a_resource_take_turns(start, tmp_path):
    limited = 'instance_group [ { kind: KIND_CPU count: 1 rate_limiter { resources [ { name: "R" global: true count: 2 } ] } } ]\n'
    add_model(tmp_path, "holds", limited)
    add_model(tmp_path, "waits", limited)
    add_model(tmp_path, "free", ONE)
    clients = start("--rate-limit=execution_count", "--rate-limit-resource=R:2")
    holding = clients.occupy("holds")
    behind = clients.send("holds", 1)
    clients.wait_for_pending("holds", 1)
    waiting = clients.send("waits", 1)
    clients.wait_for_pending("waits", 1)
    assert clients.send("free", 1).result() == (1, 1)
    assert clients.metric("nv_inference_pending_request_count", "waits") == 1 and not waiting.done()
    (tmp_path / "gate").touch()
    assert holding.result()[0] == 1 and behind.result()[0] == 2 and waiting.result() == (1, 1)


def test_a_model_that_wants_more_than_there_is_does_not_load(start, tmp_path):
    add_model(tmp_path, "m", 'instance_group [ { kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 3 } ] } } ]\n')
    clients = start("--rate-limit=execution_count", "--rate-limit-resource=R:2", "--exit-on-error=false", "--strict-readiness=false")
    with urllib.request.urlopen(urllib.request.Request(clients.server.url + "/v2/repository/index", b""), timeout=60) as answer:
        reason = json.load(answer)[0]["reason"]
    assert "R" in reason and "3" in reason and "2" in reason


def test_batching_library_determines_the_end_of_a_batch(start, test_backends, tmp_path):
    folder = add_model(tmp_path, "m", 'dynamic_batching { }\nparameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "three.so" } }\n' + ONE)
    shutil.copy(pathlib.Path(test_backends.partition("=")[2]).parent / "batchers/batch_of_three.so", folder / "three.so")
    clients = start()
    first = clients.occupy("m")
    others = [clients.send("m", 1) for _ in range(7)]
    clients.wait_for_pending("m", 7)
    (tmp_path / "gate").touch()
    assert first.result() == (1, 1)
    assert sorted(one.result() for one in others) == [(2, 3)] * 3 + [(3, 3)] * 3 + [(4, 1)]


WARMED = """import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.iterates = "iterative_sequence" in config["sequence_batching"] and config["sequence_batching"]["iterative_sequence"]
        self.log = open(config["parameters"]["gate"]["string_value"] + "." + args["model_name"], "a")

    def execute(self, requests):
        answers = []
        for request in requests:
            start, end, value = (int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]) for name in ("START", "END", "X"))
            self.log.write(f"{value} {start} {end}\\n")
            self.log.flush()
            if self.iterates and start:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                answers.append(None)
                continue
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("TURN_AND_SIZE", np.zeros((1, 2), np.int32))]))
        return answers
"""
WARMED_CONFIG = """sequence_batching {
  %s
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
                  { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] } ] }
model_warmup [ { name: "zero" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } } ]
""" + ONE


def test_sequence_models_are_warm_before_they_serve(start, tmp_path):
    add_model(tmp_path, "plain", WARMED_CONFIG % "direct { }", WARMED)
    add_model(tmp_path, "iterative", WARMED_CONFIG % "iterative_sequence: true", WARMED)
    clients = start()
    assert (tmp_path / "gate.plain").read_text() == "0 1 1\n", "a whole sequence"
    assert (tmp_path / "gate.iterative").read_text() == "0 1 0\n0 0 0\n", "as often as the model wants it"
    assert clients.send("plain", 7, sequence_id=3, sequence_start=True).result() == (0, 0)
    assert clients.send("iterative", 8).result() == (0, 0)
    assert (tmp_path / "gate.plain").read_text().endswith("7 1 0\n")
    assert (tmp_path / "gate.iterative").read_text().endswith("8 1 0\n8 0 0\n")


def test_an_instance_joins_while_the_other_works(start, tmp_path):
    folder = add_model(tmp_path, "m", ONE)
    clients = start("--model-control-mode=explicit", "--load-model=m")

    def load(count):
        config = folder / "config.pbtxt"
        config.write_text(re.sub(r"count: \d", f"count: {count}", config.read_text()))
        urllib.request.urlopen(urllib.request.Request(clients.server.url + "/v2/repository/models/m/load", b"{}"), timeout=120).read()

    first = clients.occupy("m")
    second = clients.send("m", 1)
    clients.wait_for_pending("m", 1)
    load(2)
    assert second.result() == (1, 1), "the new instance took it"
    assert not first.done()
    load(1)  # the new instance is removed again while the first one is still busy
    last = clients.send("m", 1)
    clients.wait_for_pending("m", 1)
    (tmp_path / "gate").touch()
    assert first.result() == (1, 1) and last.result() == (2, 1)
    log = pathlib.Path(clients.server.log).read_text()
    assert log.count("loading: m:1") == 1, "the model itself stays"


def test_a_host_policy_binds_the_threads_of_its_instances(start_server, tmp_path, dist):
    add_model(tmp_path, "m", 'instance_group [ { name: "bound" kind: KIND_CPU count: 1 host_policy: "narrow" } ]\n')
    core = max(os.sched_getaffinity(0))
    server = start_server(tmp_path / "repository", [f"--host-policy=narrow,cpu-cores={core}"])

    def name(task):
        try:
            return (task / "comm").read_text().strip()
        except OSError:  # it ended meanwhile
            return ""

    tasks = [task for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir() if name(task) == "bound_0"]
    assert [os.sched_getaffinity(int(task.name)) for task in tasks] == [{core}]


@pytest.mark.parametrize("setting", ["cpu-cores=4-", "numa-node=none", "colour=red"])
def test_a_host_policy_that_makes_no_sense_is_refused_by_name(dist, tmp_path, setting):
    done = subprocess.run([str(dist / "bin/nereid"), f"--model-repository={tmp_path}", f"--host-policy=narrow,{setting}"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1 and "narrow" in done.stderr and setting.split("=")[0] in done.stderr, done.stderr[-1000:]
