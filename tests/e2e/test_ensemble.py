"""Ensembles from a client's point of view, with models that do one simple operation each."""
import json
import pathlib
import re
import shutil
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

MODELS = pathlib.Path(__file__).parents[1] / "golden/repo"


def tensors(specs):
    return ", ".join(f'{{ name: "{name}" data_type: TYPE_{kind} dims: {dims} {"optional: true" if optional else ""} }}'
                     for name, kind, dims, *optional in specs)


def write_ensemble(repository, name, inputs, outputs, steps, max_batch_size=0, more=""):
    """`steps` is a list of (model, {its input: tensor}, {its output: tensor})."""
    def maps(field, entries):
        return " ".join(f'{field} {{ key: "{key}" value: "{value}" }}' for key, value in entries.items())

    text = ", ".join(f'{{ model_name: "{model}" model_version: -1 {maps("input_map", ins)} {maps("output_map", outs)} }}'
                     for model, ins, outs in steps)
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(
        f'platform: "ensemble"\nmax_batch_size: {max_batch_size}\ninput [ {tensors(inputs)} ]\noutput [ {tensors(outputs)} ]\n'
        f"ensemble_scheduling {{ step [ {text} ] {more} }}\n")


MAX_DEPTH = 32
FLOATS, NUMBER = ("FP32", [16]), ("INT32", [1])
ADD, DOUBLE = ("add_one", {"IN": "X"}, {"OUT": "MID"}), ("double", {"IN": "MID"}, {"OUT": "Y"})


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("ensembles")
    for model in ("add_one", "double", "repeat", "identity_int32", "identity_fp32", "params", "fail", "dtypes"):
        shutil.copytree(MODELS / model, repository / model)
    write_ensemble(repository, "chain", [("X", *FLOATS)], [("Y", *FLOATS), ("MID", *FLOATS)], [ADD, DOUBLE], 8)
    write_ensemble(repository, "nested", [("A", *FLOATS)], [("B", *FLOATS)],
                   [("chain", {"X": "A"}, {"Y": "HALF"}), ("chain", {"X": "HALF"}, {"Y": "B"})], 8)
    write_ensemble(repository, "diamond", [("X", *FLOATS)], [("L", *FLOATS), ("R", *FLOATS)],
                   [ADD, ("double", {"IN": "MID"}, {"OUT": "L"}), ("add_one", {"IN": "MID"}, {"OUT": "R"})], 8)
    shutil.copytree(MODELS / "double", repository / "classifier")
    config = repository / "classifier/config.pbtxt"
    config.write_text(config.read_text().replace('name: "OUT"', 'name: "OUT" label_filename: "labels.txt"'))
    (repository / "classifier/labels.txt").write_text("".join(f"class {i}\n" for i in range(16)))
    write_ensemble(repository, "labelled", [("X", *FLOATS)], [("Y", *FLOATS)], [("classifier", {"IN": "X"}, {"OUT": "Y"})], 8)
    write_ensemble(repository, "relabelled", [("X", *FLOATS)], [("Y", *FLOATS)], [("labelled", {"X": "X"}, {"Y": "Y"})], 8)
    for level in range(1, MAX_DEPTH + 1):
        step = ("add_one", {"IN": "X"}, {"OUT": "Y"}) if level == 1 else (f"level{level - 1}", {"X": "X"}, {"Y": "Y"})
        write_ensemble(repository, f"level{level}", [("X", *FLOATS)], [("Y", *FLOATS)], [step], 8)
    # X is produced before the decoupled step, so every response contains it.
    stream = [("identity_int32", {"INPUT0": "PART"}, {"OUTPUT0": "Y"}), ("repeat", {"IN": "X"}, {"OUT": "PART"}),
              ("identity_int32", {"INPUT0": "X"}, {"OUTPUT0": "BEFORE"})]
    write_ensemble(repository, "stream", [("X", *NUMBER)], [("Y", *NUMBER), ("BEFORE", *NUMBER)], stream)
    write_ensemble(repository, "narrow_stream", [("X", *NUMBER)], [("Y", *NUMBER), ("BEFORE", *NUMBER)], stream,
                   more="max_inflight_requests: 1")
    write_ensemble(repository, "streams", [("X", *NUMBER)], [("Z", *NUMBER)],
                   [("stream", {"X": "X"}, {"Y": "Y"}), ("repeat", {"IN": "Y"}, {"OUT": "Z"})])
    write_ensemble(repository, "describe", [("X", *NUMBER)], [("TEXT", "STRING", [1])], [("params", {"INPUT0": "X"}, {"OUTPUT0": "TEXT"})])
    write_ensemble(repository, "failing", [("X", *NUMBER)], [("Y", *NUMBER)],
                   [("identity_int32", {"INPUT0": "X"}, {"OUTPUT0": "Z"}), ("fail", {"INPUT0": "Z"}, {"OUTPUT0": "Y"})])
    write_ensemble(repository, "optional", [("A", "INT8", [-1], True), ("B", "STRING", [-1], True)], [("C", "INT8", [-1]), ("D", "STRING", [-1])],
                   [("dtypes", {"I_INT8": "A", "I_STRING": "B"}, {"O_INT8": "C", "O_STRING": "D"})])
    return start_server(repository, [test_backends])


def post(server, path, body):
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def infer(server, model, inputs, outputs=None, **more):
    body = {"inputs": [{"name": name, "datatype": kind, "shape": list(np.shape(data)), "data": data} for name, kind, data in inputs], **more}
    if outputs is not None:
        body["outputs"] = [{"name": name} for name in outputs]
    answer = post(server, f"/v2/models/{model}/infer", body)
    return {one["name"]: one["data"] for one in answer["outputs"]}, answer


def refused(server, model, inputs, outputs=None):
    with pytest.raises(urllib.error.HTTPError) as caught:
        infer(server, model, inputs, outputs)
    return caught.value.code, json.load(caught.value)["error"]


def streamed(server, model, value):
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/generate_stream", data=json.dumps({"X": value}).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]


def floats(*rows):
    return [[float(row)] * 16 for row in rows]


def test_ensembles_may_be_nested_to_the_limit(server):
    assert infer(server, f"level{MAX_DEPTH}", [("X", "FP32", floats(1))])[0] == {"Y": [2.0] * 16}


@pytest.mark.parametrize("outputs", [None, ["Y"], ["MID"], ["MID", "Y"]], ids=str)
def test_any_subset_of_outputs_can_be_requested(server, outputs):
    data, answer = infer(server, "chain", [("X", "FP32", floats(1))], outputs)
    assert set(data) == set(outputs or ["Y", "MID"])
    assert data.get("MID", [2.0] * 16) == [2.0] * 16 and data.get("Y", [4.0] * 16) == [4.0] * 16
    assert answer["parameters"] == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}


def test_a_parameter_occurs_once_in_the_answer(server):
    body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "data": [0] * 16}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/models/chain/infer", data=body)) as reply:
        assert reply.read().count(b'"sequence_id"') == 1


def test_steps_that_a_subset_does_not_need_do_not_run(server):
    def runs():
        with urllib.request.urlopen(server.url + "/v2/models/double/stats") as reply:
            return json.load(reply)["model_stats"][0]["inference_stats"]["success"]["count"]
    before = runs()
    infer(server, "chain", [("X", "FP32", floats(1))], ["MID"])
    assert runs() == before


def test_a_batch_goes_through_as_it_is(server):
    data, answer = infer(server, "chain", [("X", "FP32", floats(1, 2, 3))], ["Y"])
    assert answer["outputs"][0]["shape"] == [3, 16] and data["Y"] == sum(floats(4, 6, 8), [])


def test_an_ensemble_is_a_step_of_another(server):
    data, _ = infer(server, "nested", [("A", "FP32", floats(1))])
    assert data == {"B": [10.0] * 16}


def test_one_tensor_feeds_two_steps(server):
    data, _ = infer(server, "diamond", [("X", "FP32", floats(1))])
    assert data == {"L": [4.0] * 16, "R": [3.0] * 16}


@pytest.mark.parametrize("model", ["stream", "narrow_stream"])
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_each_response_of_a_decoupled_step_becomes_one_in_order(server, model, count):
    events = streamed(server, model, count)
    assert [event["Y"] for event in events] == list(range(count))
    assert all(event["BEFORE"] == count for event in events)


def test_an_error_in_mid_stream_comes_after_the_good_responses(server):
    events = streamed(server, "stream", -2)
    assert [event.get("Y") for event in events] == [0, 1, None]
    assert events[2]["error"] == "in ensemble 'stream', step 1 ('repeat'): stream error"


def test_decoupled_steps_nest(server):
    assert [event["Z"] for event in streamed(server, "streams", 4)] == [0, 0, 1, 0, 1, 2]


def test_a_part_from_before_the_stream_is_one_response(server):
    request = urllib.request.Request(f"{server.url}/v2/models/stream/config")
    with urllib.request.urlopen(request) as reply:
        assert json.load(reply)["model_transaction_policy"] == {"decoupled": True}
    client, answers = grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}"), []
    value = grpcclient.InferInput("X", [1], "INT32")
    value.set_data_from_numpy(np.array([5], dtype=np.int32))
    client.start_stream(lambda result, error: answers.append((result, error)))
    client.async_stream_infer("stream", [value], outputs=[grpcclient.InferRequestedOutput("BEFORE")], enable_empty_final_response=True)
    client.stop_stream()
    assert [error for _, error in answers] == [None] * len(answers)
    values = [result.as_numpy("BEFORE") for result, _ in answers]
    assert [int(value[0]) for value in values if value is not None] == [5]
    assert answers[-1][0].get_response().parameters["triton_final_response"].bool_param


def test_request_properties_reach_the_step(server):
    data, answer = infer(server, "describe", [("X", "INT32", [1])], id="r-7", parameters={
        "sequence_id": 42, "sequence_start": True, "timeout": 9000000, "color": "red", "depth": 3, "fast": True})
    said = json.loads(data["TEXT"][0])
    assert said["id"] == "r-7" and said["corr"] == 42 and said["flags"] == 1 and said["timeout"] == 9000000
    assert {"color": "red", "depth": 3, "fast": True}.items() <= said["parameters"].items()
    assert answer["id"] == "r-7"
    assert answer["parameters"] == {"sequence_id": 42, "sequence_start": True, "sequence_end": False}


@pytest.mark.parametrize("value, status", [(3, 500), (4, 404), (5, 400), (6, 503)])
def test_a_failing_step_gives_its_name_and_its_code(server, value, status):
    code, error = refused(server, "failing", [("X", "INT32", [value])])
    assert code == status and error == f"in ensemble 'failing', step 1 ('fail'): error {value}"


@pytest.mark.parametrize("inputs, expected", [
    ([("A", "INT8", [1, 2])], {"C": [1, 2]}),
    ([("B", "BYTES", ["x"])], {"D": ["x"]}),
    ([("A", "INT8", [3]), ("B", "BYTES", ["y", "z"])], {"C": [3], "D": ["y", "z"]}),
], ids=["A", "B", "both"])
def test_optional_tensors_may_be_left_out(server, inputs, expected):
    assert infer(server, "optional", inputs)[0] == expected


def count(server, model):
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats") as reply:
        return json.load(reply)["model_stats"][0]


def failures(server, model):
    """Returns the number of failures by reason."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics") as reply:
        lines = re.findall(r"nv_inference_request_failure{(.*)} (\d+)", reply.read().decode())
    return {re.search('reason="(\\w+)"', labels)[1]: int(value) for labels, value in lines if f'model="{model}"' in labels}


def test_a_failed_request_of_an_ensemble_is_no_execution_and_no_failure_of_a_backend(server):
    before = count(server, "failing"), failures(server, "failing"), failures(server, "fail")
    with pytest.raises(urllib.error.HTTPError):
        infer(server, "failing", [("X", "INT32", [1])])
    end = time.monotonic() + 60
    while failures(server, "failing")["OTHER"] == before[1]["OTHER"] and time.monotonic() < end:
        time.sleep(0.01)
    assert failures(server, "failing") == before[1] | {"OTHER": before[1]["OTHER"] + 1}
    assert failures(server, "fail") == before[2] | {"BACKEND": before[2]["BACKEND"] + 1}
    after = count(server, "failing")
    assert after["inference_stats"]["fail"]["count"] == before[0]["inference_stats"]["fail"]["count"] + 1
    assert after["execution_count"] == before[0]["execution_count"]


@pytest.mark.parametrize("model", ["labelled", "relabelled"])
def test_classes_have_the_labels_of_the_step_that_gives_the_output(server, model):
    asked = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "data": list(range(16))}],
             "outputs": [{"name": "Y", "parameters": {"classification": 2}}]}
    with urllib.request.urlopen(server.url + f"/v2/models/{model}/infer", json.dumps(asked).encode(), timeout=60) as reply:
        assert json.load(reply)["outputs"][0]["data"] == ["30.000000:15:class 15", "28.000000:14:class 14"]


def test_statistics_count_the_ensemble_and_its_steps(server):
    before = count(server, "chain")["inference_stats"], count(server, "add_one")["inference_stats"]
    infer(server, "chain", [("X", "FP32", floats(1, 2))])
    end = time.monotonic() + 60
    while count(server, "chain")["inference_stats"]["success"]["count"] == before[0]["success"]["count"] and time.monotonic() < end:
        time.sleep(0.01)  # the ensemble counts a request after its answer was sent
    after = count(server, "chain"), count(server, "add_one")
    for old, new in zip(before, after):
        assert new["inference_stats"]["success"]["count"] == old["success"]["count"] + 1
    assert after[0]["inference_stats"]["success"]["ns"] > before[0]["success"]["ns"]


BAD = {
    "no_such_step": ([("X", *FLOATS)], [("Y", *FLOATS)], [("nosuch", {"IN": "X"}, {"OUT": "Y"})], 8, "nosuch"),
    "no_such_input": ([("X", *FLOATS)], [("Y", *FLOATS)], [("double", {"INN": "X"}, {"OUT": "Y"})], 8, "is mapping to non-existing input INN in model double"),
    "nobody_produces": ([("X", *FLOATS)], [("Y", *FLOATS), ("Z", *FLOATS)], [ADD, DOUBLE], 8, "ensemble output 'Z' for ensemble 'nobody_produces' is not used"),
    "types_differ": ([("X", *NUMBER)], [("Y", *FLOATS)], [ADD, DOUBLE], 8, "in ensemble types_differ, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from model types_differ while TYPE_FP32 is inferred from model add_one"),
    "cycle": ([("X", *FLOATS)], [("Y", *FLOATS)],
              [("add_one", {"IN": "Y"}, {"OUT": "M"}), ("double", {"IN": "M"}, {"OUT": "Y"})], 8, "cycle"),
    "batch_too_large": ([("X", *FLOATS)], [("Y", *FLOATS)], [ADD, DOUBLE], 64, "ensemble batch_too_large allows maximum batch size 64, but it contains model add_one which only allows maximum batch size to be 8"),
}


def test_a_faulty_ensemble_names_its_fault_and_leaves_the_others_serving(start_server, test_backends, tmp_path):
    for model in ("add_one", "double"):
        shutil.copytree(MODELS / model, tmp_path / model)
    for name, (inputs, outputs, steps, max_batch_size, _) in BAD.items():
        write_ensemble(tmp_path, name, inputs, outputs, steps, max_batch_size)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit",
                                     "--load-model=add_one"])
    for name, (*_, expected) in BAD.items():
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{name}/load", data=b"{}"), timeout=60)
        error = json.load(caught.value)["error"]
        assert expected in error and name in error, error
    assert infer(server, "add_one", [("IN", "FP32", floats(1))])[0] == {"OUT": [2.0] * 16}
    server.stop()
