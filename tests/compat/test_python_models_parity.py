"""Runs the same model.py files with NVIDIA's Python backend and with ours, both in our server, and compares the answers. DIFFERENCES lists
intended differences with their reasons.

NVIDIA's backend sometimes aborts its process, in Triton as well as here: a destructor that frees shared memory throws if it cannot lock it, mostly
with several concurrent calls of other models on a busy machine. The question is then repeated with a new server.
"""
import json
import os
import pathlib
import queue
import shutil
import signal
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

TESTS = pathlib.Path(__file__).resolve().parents[1]
GOLDEN, E2E = TESTS / "golden/repo", TESTS / "e2e/python_models"
EXCLUDED = {"brain"}  # BF16, which requires a GPU client library in NVIDIA's backend
PATIENCE_S = 120
THEIR_ABORT = "boost::interprocess::lock_exception"
MAX_ABORTS = 8  # per question
FLAGS = [f"--backend-config=python,stub-timeout-seconds={PATIENCE_S}"]  # on a busy machine many workers start slowly


def tensors(**arrays):
    return {name: np.asarray(array) for name, array in arrays.items()}


def floats(count, start=0):
    return np.arange(start, start + count, dtype=np.float32)


def case_of_caller(case, values=(1.0, 2.0)):
    return "caller", {"CASE": np.array([case.encode()], np.object_), "IN": np.array(values, np.float32)}, {}


ROWS = {
    "identity_fp32": ("identity_fp32", tensors(INPUT0=floats(5)), {}),
    "identity_fp32, empty": ("identity_fp32", tensors(INPUT0=floats(0)), {}),
    "identity_fp32, long": ("identity_fp32", tensors(INPUT0=floats(100_000)), {}),
    "identity_int32": ("identity_int32", tensors(INPUT0=np.arange(3, dtype=np.int32)), {}),
    "identity_string": ("identity_string", tensors(INPUT0=np.array([b"", b"a", "d\u00e9".encode(), b"\xff"], np.object_)), {}),
    "identity_batch": ("identity_batch", tensors(INPUT0=floats(32).reshape(2, 16)), {}),
    "dynbatch": ("dynbatch", tensors(INPUT0=floats(64).reshape(4, 16)), {}),
    "add_one": ("add_one", tensors(IN=floats(16).reshape(1, 16)), {}),
    "double": ("double", tensors(IN=floats(16).reshape(1, 16)), {}),
    "ens": ("ens", tensors(X=floats(16).reshape(1, 16)), {}),
    "dtypes": ("dtypes", {f"I_{name}": np.array([1, 0, 2]).astype(dtype) for name, dtype in (
        ("BOOL", np.bool_), ("UINT8", np.uint8), ("UINT16", np.uint16), ("UINT32", np.uint32), ("UINT64", np.uint64), ("INT8", np.int8),
        ("INT16", np.int16), ("INT32", np.int32), ("INT64", np.int64), ("FP16", np.float16), ("FP32", np.float32), ("FP64", np.float64))}, {}),
    "versions, 1": ("versions", tensors(INPUT0=np.arange(4, dtype=np.int32).reshape(2, 2)), {"model_version": "1"}),
    "versions, 3": ("versions", tensors(INPUT0=np.arange(4, dtype=np.int32).reshape(2, 2)), {"model_version": "3"}),
    "params": ("params", {}, {"parameters": {"a": 1, "b": "x", "c": True}, "request_id": "r1"}),
    "slow": ("slow", tensors(INPUT0=floats(1).reshape(1, 1)), {}),
    "textgen": ("textgen", {"text_input": np.array([b"ab cd"], np.object_), "max_tokens": np.array([3], np.int32)}, {}),
    "repeat": ("repeat", tensors(IN=np.array([3], np.int32)), {}),
    "autoc": ("autoc", tensors(INPUT0=floats(4)), {}),
    "doubler, fails": ("doubler", tensors(IN=np.array([-1], np.float32)), {}),
    "counter": ("counter", tensors(IN=np.array([4], np.float32)), {}),
    "echo": ("echo", tensors(IN=floats(1)), {"request_id": "one", "parameters": {"p": 5}, "timeout": 10_000_000}),
    "echo, sequence of a number": ("echo", tensors(IN=floats(1)), {"sequence_id": 2**40, "sequence_start": True}),
    "echo, sequence of a text": ("echo", tensors(IN=floats(1)), {"sequence_id": "abc", "sequence_end": True}),
    "gatherer": ("gatherer", tensors(IN=floats(3)), {}),
    "gatherer, fails": ("gatherer", tensors(IN=floats(0)), {}),
    "plain": ("plain", tensors(IN=floats(5)), {}),
    "moody": ("moody", tensors(IN=np.array([True])), {}),
    **{f"fragile {case}": ("fragile", {"CASE": np.array([case.encode()], np.object_)}, {}) for case in (
        "stdout", "wrong_type", "unprintable", "generator_coroutine", "recursion", "out_of_memory", "sys_exit", "interrupt")},
    "mirror": ("mirror", tensors(IN=floats(30_000)), {}),
    "steps": ("steps", tensors(IN=np.array([[5]], np.int32)), {}),
    **{f"fail {mode}": ("fail", tensors(INPUT0=np.array([mode], np.int32)), {}) for mode in range(5)},
    **{f"seq {step}": ("seq", tensors(INPUT=np.array([[step]], np.int32)),
                       {"sequence_id": 9, "sequence_start": step == 1, "sequence_end": step == 3}) for step in (1, 2, 3)},
    **{f"seq_oldest {step}": ("seq_oldest", tensors(INPUT=np.array([[step]], np.int32)),
                              {"sequence_id": 9, "sequence_start": step == 1, "sequence_end": step == 3}) for step in (1, 2, 3)},
    **{f"caller {case}": case_of_caller(case) for case in (
        "early", "exec", "unnamed", "bytes", "large", "unknown", "fails", "async", "stream_refused", "request", "codes", "types", "strings", "config",
        "constants", "tensors", "refusals", "sequence", "free", "directory", "nameless", "memory", "dlpack", "args", "control", "async_cancel",
        "logs", "texts", "parameters", "config_changes", "control_texts", "errors_of_calls", "kinds_of_texts", "metric_kinds", "own_readiness", "positional",
        "reused_arrays", "own_lists", "ranges", "texts_of_numbers", "weak_references",
        "metrics_of_a_family", "hosts_own", "scattered_arrays", "written_by_dlpack", "end_of_a_stream", "truth_of_names", "half_texts", "empty_strings", "kinds_of_arguments", "nones",
        "lent_by_dlpack")},
    "flood": ("flood", tensors(IN=np.array([3], np.int32)), {}),
    "caller stream": case_of_caller("stream", [5.0]),
    "caller stream_resumed": case_of_caller("stream_resumed", [3.0]),
    "caller async_stream": case_of_caller("async_stream", [3.0]),
}
OUTPUTS = {"all": {}, "one": {"outputs": ["OTHER"]}}
LOOSE = ("as_configured", "in_another_order", "undeclared", "undeclared_alone", "undeclared_and_long", "missing", "none", "twice", "of_another_type",
         "of_another_shape")
ROWS |= {f"{model} {case}, {which}": (model, {"CASE": np.array([case.encode()], np.object_)}, outputs)
         for model in ("loose", "loose_stream") for case in LOOSE for which, outputs in OUTPUTS.items()}
ALSO_DECOUPLED = ("speaker", "loose")  # also tested as decoupled models
# The requests that a model gets in sequence; `told` returns the exceptions that were raised in it.
SENDER_REQUESTS = {
    **{case: (case, "told") for case in (
        "final", "final_later", "final_much_later", "sender_of_a_thread", "errors", "misuse", "sent_and_returned", "half_sent_and_returned", "half_sent_and_raised", "returns_list",
        "rescheduled_and_returned", "returns_tuple", "returns_dict", "returns_response", "returns_text", "returns_two", "returns_nothing")},
    "a sender whose request was answered": ("sends_after_return", "kept", "told"),
    "a sender whose request failed": ("raised", "kept", "told"),
}
DIFFERENCES = {
    "speaker half_sent_and_returned": "an error takes the place of a response that waits for its final flag; there both are sent",
    "speaker half_sent_and_raised": "the same",
    "caller fails": "an error of a called model keeps its code; there it becomes INTERNAL",
    "caller memory": "a response of a called model has parameters, which 2.51 does not know",
    "caller dlpack": "a tensor made of another shares its memory",
    "caller async_stream": "the responses of a called model can be awaited one by one",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("alike") / "models"
    for folder in (GOLDEN, E2E):
        for model in folder.iterdir():
            if model.name not in EXCLUDED:
                shutil.copytree(model, root / model.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(E2E.parent / "python_gpu_models/plain", root / "plain")
    (root / "ens/1").mkdir(exist_ok=True)
    for model in ALSO_DECOUPLED:
        shutil.copytree(E2E / model, root / f"{model}_stream")
        with open(root / f"{model}_stream/config.pbtxt", "a") as config:
            config.write("model_transaction_policy { decoupled: true }\n")
    return root


class RestartingServer:
    """The server with NVIDIA's backend. It is restarted if the backend aborts it."""

    def __init__(self, start):
        self._start = start
        self.server = start()

    def answer(self, question):
        """Returns question(server)."""
        for _ in range(MAX_ABORTS):
            try:
                answer = question(self.server)
            except (OSError, InferenceServerException, queue.Empty):
                if self.is_up():
                    raise
            else:
                if self.is_up():
                    return answer
            self.start_again()
        return pytest.fail(f"NVIDIA's backend ended its server {MAX_ABORTS} times in one question")

    def is_up(self):
        try:
            self.server.get("/v2/health/live")
            return True
        except OSError:  # connections are refused or closed: the process is ending
            return False

    def start_again(self):
        exit_code = self.server.process.wait(timeout=PATIENCE_S)
        assert exit_code == -signal.SIGABRT and THEIR_ABORT in self.server.text(), (exit_code, self.server.text()[-3000:])
        self.server = self._start()


@pytest.fixture(scope="module")
def ours(start, dist, repository):
    server = start(dist / "bin/nereid", repository, dist / "backends", dict(os.environ, NEREID_PYTHON=sys.executable), FLAGS)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def theirs(start, dist, their_server_on_our_core, python_environment, repository):
    running = RestartingServer(lambda: start(dist / "bin/nereid", repository, their_server_on_our_core / "backends", python_environment, FLAGS))
    yield running
    exit_code = running.server.stop()
    # NVIDIA's backend may abort. It may also keep a model longer than the exit timeout, which our server then reports.
    said = {-signal.SIGABRT: THEIR_ABORT, 1: "exiting although work is still running"}
    assert exit_code == 0 or said[exit_code] in running.server.text()


def parsed(value):
    """Parses JSON in a text, so that the order of an object's members does not matter."""
    try:
        return json.loads(value) if isinstance(value, bytes) else value
    except ValueError:
        return value


def as_texts(result):
    """Returns the outputs and parameters of one response as texts, which are shown on failure."""
    response = result.get_response()
    parameters = {key: str(value).strip() for key, value in response.parameters.items() if key != "triton_final_response"}
    outputs = {each.name: (each.datatype, list(each.shape), [parsed(value) for value in result.as_numpy(each.name).ravel().tolist()])
               for each in response.outputs}
    return {"outputs": outputs, "parameters": parameters, "id": response.id}


def ask(server, model, inputs, further):
    """Returns every response of a stream, for decoupled models and others."""
    made = []
    for name, array in inputs.items():
        tensor = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    further = {**further, "outputs": [grpcclient.InferRequestedOutput(name) for name in further["outputs"]]} if "outputs" in further else further
    arrived, seen = queue.Queue(), []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        try:
            client.async_stream_infer(model, made, enable_empty_final_response=True, **further)
            while True:
                result, error = arrived.get(timeout=PATIENCE_S)
                if error is not None:
                    # The lines after the first contain paths of the model's files, which differ.
                    seen.append(error.message().splitlines()[0] if isinstance(error, InferenceServerException) else str(error))
                    return seen
                if result.get_response().outputs:
                    seen.append(as_texts(result))
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return seen
        finally:
            client.stop_stream(cancel_requests=True)


def compare(row, our_answer, their_answer):
    if row in DIFFERENCES:
        assert our_answer != their_answer, f"no difference any more: {DIFFERENCES[row]}"
    else:
        assert our_answer == their_answer


@pytest.mark.parametrize("model", ["speaker", "speaker_stream"])
@pytest.mark.parametrize("case", SENDER_REQUESTS)
def test_senders_do_the_same(ours, theirs, model, case):
    def speak(server):
        return [ask(server, model, {"CASE": np.array([each.encode()], np.object_)}, {}) for each in SENDER_REQUESTS[case]]
    compare(f"{model} {case}", speak(ours), theirs.answer(speak))


@pytest.mark.parametrize("row", ROWS)
def test_the_same_answer(ours, theirs, row):
    compare(row, ask(ours, *ROWS[row]), theirs.answer(lambda server: ask(server, *ROWS[row])))


def test_every_model_has_a_row(repository):
    assert {row[0] for row in ROWS.values()} | {"speaker", "speaker_stream"} == {each.name for each in repository.iterdir()}


def test_configurations_are_completed_equally(ours, theirs, repository):
    def config(server):
        return json.loads(server.get(f"/v2/models/{model.name}/config"))
    for model in repository.iterdir():
        assert config(ours) == theirs.answer(config), model.name
