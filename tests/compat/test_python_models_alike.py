"""The same model.py files under NVIDIA's python backend and under ours, both in our server: the same answers. What differs on purpose is
in DIFFERENCES, with why."""
import json
import os
import pathlib
import queue
import shutil
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

TESTS = pathlib.Path(__file__).resolve().parents[1]
GOLDEN, E2E = TESTS / "golden/repo", TESTS / "e2e/python_models"
LEFT_OUT = {"brain"}  # BF16, which needs a GPU's client library there
PATIENCE_S = 120


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
    "counter, fails": ("counter", tensors(IN=np.array([-1], np.float32)), {}),
    "echo": ("echo", tensors(IN=floats(1)), {"request_id": "one", "parameters": {"p": 5}, "timeout": 10_000_000}),
    "echo, sequence of a number": ("echo", tensors(IN=floats(1)), {"sequence_id": 2**40, "sequence_start": True}),
    "echo, sequence of a text": ("echo", tensors(IN=floats(1)), {"sequence_id": "abc", "sequence_end": True}),
    "gatherer": ("gatherer", tensors(IN=floats(3)), {}),
    "gatherer, fails": ("gatherer", tensors(IN=floats(0)), {}),
    "plain": ("plain", tensors(IN=floats(5)), {}),
    "moody": ("moody", tensors(IN=np.array([True])), {}),
    **{f"fragile {case}": ("fragile", {"CASE": np.array([case.encode()], np.object_)}, {}) for case in (
        "stdout", "wrong_type", "unprintable", "recursion", "out_of_memory")},
    "mirror": ("mirror", tensors(IN=floats(30_000)), {}),
    "steps": ("steps", tensors(IN=np.array([[5]], np.int32)), {}),
    **{f"fail {mode}": ("fail", tensors(INPUT0=np.array([mode], np.int32)), {}) for mode in range(5)},
    **{f"seq {step}": ("seq", tensors(INPUT=np.array([[step]], np.int32)),
                       {"sequence_id": 9, "sequence_start": step == 1, "sequence_end": step == 3}) for step in (1, 2, 3)},
    **{f"seq_oldest {step}": ("seq_oldest", tensors(INPUT=np.array([[step]], np.int32)),
                              {"sequence_id": 9, "sequence_start": step == 1, "sequence_end": step == 3}) for step in (1, 2, 3)},
    **{f"caller {case}": case_of_caller(case) for case in (
        "early", "exec", "bytes", "large", "unknown", "fails", "async", "stream_refused", "request", "codes", "types", "strings", "config",
        "constants", "tensors", "refusals", "sequence", "free", "directory", "nameless", "memory", "dlpack", "args", "control", "async_cancel",
        "logs")},
    "caller stream": case_of_caller("stream", [5.0]),
    "caller stream_resumed": case_of_caller("stream_resumed", [3.0]),
    "caller async_stream": case_of_caller("async_stream", [3.0]),
}
DIFFERENCES = {
    "counter, fails": "an exception in a coroutine is the error of its open requests; there they end without one",
    "caller fails": "an error of a called model keeps its code; there it becomes INTERNAL",
    "caller memory": "a response of a called model has parameters, which 2.51 does not know",
    "caller dlpack": "a tensor made of another shares its memory",
    "caller control": "an error of model control is said once",
    "caller async_stream": "the responses of a called model can be awaited one by one",
    "caller unknown": "the error is the host's own, with its code",
    "caller stream_refused": "the error is UNSUPPORTED and names the calls to use",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("alike") / "models"
    for folder in (GOLDEN, E2E):
        for model in folder.iterdir():
            if model.name not in LEFT_OUT:
                shutil.copytree(model, root / model.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(E2E.parent / "python_gpu_models/plain", root / "plain")
    (root / "ens/1").mkdir(exist_ok=True)
    return root


@pytest.fixture(scope="module")
def servers(start, dist, their_server_on_our_core, python_environment, repository):
    """Ours, theirs."""
    both = (start(dist / "bin/nereid", repository, dist / "backends", dict(os.environ, NEREID_PYTHON=sys.executable)),
            start(dist / "bin/nereid", repository, their_server_on_our_core / "backends", python_environment))
    yield both
    for server in both:
        assert server.stop() == 0


def parsed(value):
    """JSON in a text as what it says: the members of an object have no order."""
    try:
        return json.loads(value) if isinstance(value, bytes) else value
    except ValueError:
        return value


def as_texts(result):
    """Outputs and parameters of one response, as texts that a failure shows."""
    response = result.get_response()
    parameters = {key: str(value).strip() for key, value in response.parameters.items() if key != "triton_final_response"}
    outputs = {each.name: (each.datatype, list(each.shape), [parsed(value) for value in result.as_numpy(each.name).ravel().tolist()])
               for each in response.outputs}
    return {"outputs": outputs, "parameters": parameters, "id": response.id}


def ask(server, model, inputs, further):
    """Every response of a stream: of any model, decoupled or not."""
    made = []
    for name, array in inputs.items():
        tensor = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    arrived, seen = queue.Queue(), []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        try:
            client.async_stream_infer(model, made, enable_empty_final_response=True, **further)
            while True:
                result, error = arrived.get(timeout=PATIENCE_S)
                if error is not None:
                    # Behind the first line are the places in the model's files, which lie elsewhere for each.
                    seen.append(error.message().splitlines()[0] if isinstance(error, InferenceServerException) else str(error))
                    return seen
                if result.get_response().outputs:
                    seen.append(as_texts(result))
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return seen
        finally:
            client.stop_stream(cancel_requests=True)


@pytest.mark.parametrize("row", ROWS)
def test_the_same_answer(servers, row):
    ours, theirs = (ask(server, *ROWS[row]) for server in servers)
    if row in DIFFERENCES:
        assert ours != theirs, f"no difference any more: {DIFFERENCES[row]}"
    else:
        assert ours == theirs


def test_every_model_has_a_row(repository):
    assert {row[0] for row in ROWS.values()} >= {each.name for each in repository.iterdir()}


def test_configurations_are_completed_alike(servers, repository):
    for model in repository.iterdir():
        ours, theirs = (json.loads(server.get(f"/v2/models/{model.name}/config")) for server in servers)
        assert ours == theirs, model.name
