"""Python models from their authors' and clients' point of view: all functions of triton_python_backend_utils."""
import json
import threading
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from python_support import PATIENCE_S, ask_caller, is_ready, log_of, post, python_flags, stream_of, wait_for


def test_arguments_of_initialize(python_server, python_repository):
    assert ask_caller(python_server, "args") == {
        "model_instance_kind": "CPU", "model_instance_name": "caller_0_0", "model_instance_device_id": "0",
        "model_repository": str(python_repository / "caller"), "model_version": "1", "model_name": "caller", "config": "caller"}


@pytest.mark.parametrize("case, expected", [
    ("exec", [2.0, 4.0]),
    ("bytes", [2.0, 4.0]),
    ("kinds_of_texts", [["an id", each, True, "an id"] for each in ("of NumPy", "an id", 1, 2)]),
    ("large", True),
    ("fails", {"error": "minus one", "code": 2}),
    ("async", [[2.0 * each] for each in range(20)]),
    ("memory", [[2.0, 4.0], {"k": 1, "t": "x", "b": True}, True]),
    ("metrics", [3.0, 2.5, True]),
    ("dlpack", [[1.0, 2.0], True, [True, False], "bool", [1, 0], "DLPack does not have support for string tensors."]),
    ("shapes_by_dlpack", [[3, 0], [0, 3], [1, 2, 1], [], [1, 3]]),
    ("free", True),
    ("processes", [[0, 9], [0, 9]]),
    ("codes", [0, 1, 2, 3, 4, 5, 6, 7, 2, 1, "bytes"]),
    ("types", [["|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "|O"], [1, 2, 9, 10, 11, 13, 13],
               [11, 1, 13], [None, None, None], ["|b1", "<u2", "<f2", "|O"], [True, 6, True]]),
    ("strings", ["0100000061020000006263000000000300000064c3a9", ["a", "bc", "", "d\u00e9"]]),
    ("config", ["TYPE_FP32", [1], None, False, True]),
    ("constants", [1, 1, 2, 0, 1, 0, 1]),
    ("refusals", [*["TypeError"] * 8, "TritonModelException", *["TypeError"] * 2]),
    ("abandoned", [2.0, 4.0]),
    ("no_parameters", ["{}", "{}"]),
    ("dropped", [0.0, 0, True]),
    ("cancelled_late", [0, True]),
    ("nameless", ["Tensor name cannot be an empty string."] * 2),
    ("async_cancel", ["cancelled", [2.0, 4.0]]),
    ("own_readiness", [True, True, False, False, "Failed to check model readiness: Failed to process the request for model 'caller_0_0', message: failed "
                       "to get model version from specified version string 'one' (details: stol), version should be an integral value > 0",
                       "TypeError", "TypeError", "TypeError"]),
    ("positional", ["id", 7, 0, 0, ["OUT"], [2.0, 4.0], "text", 2, True, 0, 1, "PyCapsule", "IN", None, "InferenceTrace"]),
    ("unnamed", [2.0, 4.0]),
    ("reused_arrays", ["final later", True, "raised"]),
    ("own_lists", [2, 1]),
    ("ranges", ["TypeError"] * 8 + ["nothing"] * 5 + ["TypeError"] * 4 + ["nothing"]),
    ("wide_parameters", [f"parameter 'p': expected an integer of 64 bits, got {each}" for each in (2**63, 2**70, -2**63 - 1, 2**70)]),
    ("texts_of_numbers", [["MemoryType.TRITONSERVER_MEMORY_CPU"] * 2 + [1], ["MetricKind.GAUGE"] * 2 + [1], ["LogLevel.WARNING"] * 2 + [1],
                          ["__ErrorCode.NOT_FOUND"] * 2 + [2]]),
    ("weak_references", [2, 1]),
    ("metrics_of_a_family", [2.0, 1.0, 0.0]),
    ("hosts_own", ["TypeError"] * (4 + 6 * 3)),
    ("scattered_arrays", [[1.0, 4.0], [-7.0] * 3, ["a", "c"], True]),
    ("written_by_dlpack", [[9.0, 2.0], [2, 0], True]),
    ("end_of_a_stream", ["Iteration is done for the responses."] * 2),
    ("truth_of_names", [[True, "c_python_backend_utils", each, True] for each in ("MemoryType", "MetricKind", "Logger.LogLevel", "TritonError.__ErrorCode")]),
    ("half_texts", ["TypeError"] * 6),
    ("kinds_of_arguments", [["TypeError"] * 19, 1, 10**6, [2.0, 4.0]]),
    ("empty_strings", [[]] * 3),
    ("nones", ["TypeError"] * 2 + ["TritonModelException", "nothing"] + ["TypeError"] * 2 + ["TritonModelException"] * 2 + ["TypeError", "TritonModelException"] +
              ["TypeError"] * 2 + ["TritonModelException", "nothing"]),
    ("lent_by_dlpack", [[1, 0]] * 3),
    ("early", "BLS is only supported during the 'execute' function."),
])
def test_answer_to(python_server, case, expected):
    assert ask_caller(python_server, case) == expected


@pytest.mark.parametrize("case, asked, expected", [
    ("in_another_order", [], {"OUT": [1.0], "OTHER": [2, 3]}),
    ("as_configured", ["OTHER"], {"OTHER": [2, 3]}),
    ("undeclared", [], {"OUT": [1.0], "OTHER": [2, 3]}),
    ("undeclared_and_long", ["OUT"], {"OUT": [1.0]}),
    ("undeclared_alone", [], {}),
    ("missing", ["OUT", "OTHER"], {"OUT": [1.0]}),
    ("none", [], {}),
])
def test_outputs_are_those_that_are_configured_and_wanted(python_server, case, asked, expected):
    status, answer = post(python_server, "/v2/models/loose/infer", {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]}],
                                                                    **({"outputs": [{"name": name} for name in asked]} if asked else {})})
    assert status == 200 and {each["name"]: each["data"] for each in answer["outputs"]} == expected, answer
    tensor = grpcclient.InferInput("CASE", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([case.encode()], np.object_))
    seen = stream_of(python_server, "loose_stream", [tensor], outputs=[grpcclient.InferRequestedOutput(name) for name in asked] or None)
    assert [{each.name: result.as_numpy(each.name).tolist() for each in result.get_response().outputs} for result in seen] == [expected] * bool(expected)


def test_a_forked_process_calls_the_host_and_its_parent_goes_on(python_server):
    answer = ask_caller(python_server, "forked")
    told = answer.pop("told")
    assert answer == {"stream": [[0.0], [1.0], [2.0], "empty"], "metric": 3.0, "exec": [2.0, 4.0], "input": [1.0, 2.0]}
    assert told[:5] == [[2.0, 4.0], True, [2.0, 4.0], [[0.0], [1.0], "empty"], [[0.0], [1.0], "empty"]]
    assert told[5] == {"error": "minus one", "code": 2} and "Model 'no_such' is not ready" in told[6]["error"]
    assert told[7:10] == [1.0, False, True] and told[10].startswith("Failed to increment metric value: Failed to process the request")
    assert told[11] == "process PID cannot have answers to a call of the process that forked it"
    lines = wait_for(lambda: [each for each in log_of(python_server).splitlines() if "model 'caller': from a forked process" in each], "its line is in the log")
    assert lines[0].startswith("W") and "model.py:" in lines[0]


def test_a_process_that_is_started_anew_cannot_call_the_host(python_server):
    assert ask_caller(python_server, "spawned") == ["process PID cannot call the host: it has no way to the model's process"] * 2


def test_streams_of_other_models(python_server):
    assert ask_caller(python_server, "stream", [5.0]) == [*([each] for each in range(5)), "empty"]
    assert ask_caller(python_server, "async_stream", [3.0]) == [*([each] for each in range(3)), "empty"]
    assert ask_caller(python_server, "stream_resumed", [3.0]) == [[0.0], [[1.0], [2.0], "empty"], [[0.0], [1.0], [2.0], "empty"]]
    assert "Please use 'decoupled=True' argument" in ask_caller(python_server, "stream_refused", [3.0])["error"]
    assert ask_caller(python_server, "cancel") == [[0.0], 7]


def test_called_models_get_ids_and_flags(python_server):
    heard = ask_caller(python_server, "sequence")
    assert [each["correlation"] for each in heard] == [0, 7, 2**63, "abc"]
    assert all((each["id"], each["flags"], each["outputs"]) == ("id", 3, ["OUT"]) for each in heard), heard


@pytest.mark.parametrize("sequence_id", [2**40, "abc"])
def test_model_gets_the_sequence_id(python_server, sequence_id):
    with grpcclient.InferenceServerClient(f"127.0.0.1:{python_server.grpc}") as client:
        tensor = grpcclient.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.ones(1, np.float32))
        answer = client.infer("echo", [tensor], sequence_id=sequence_id, sequence_start=True, request_id="r", timeout=10**7, parameters={"p": 5})
    assert json.loads(answer.as_numpy("OUT")[0]) == {"id": "r", "correlation": sequence_id, "flags": 1, "timeout": 10**7, "outputs": ["OUT"],
                                                     "parameters": {"p": 5}}


def test_returned_requests_are_rescheduled(python_server):
    """Several sequences at the same time. Each request is rescheduled as often as it specifies before it is answered."""
    answers = {}

    def ask(sequence_id, steps):
        with grpcclient.InferenceServerClient(f"127.0.0.1:{python_server.grpc}") as client:
            tensor = grpcclient.InferInput("IN", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[steps]], np.int32))
            answers[sequence_id] = client.infer("steps", [tensor], sequence_id=sequence_id, client_timeout=PATIENCE_S).as_numpy("OUT").item()

    expected = {1: 1, 2: 7, 3: 30, 4: 3}
    threads = [threading.Thread(target=ask, args=each) for each in expected.items()]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == expected


def test_a_model_sees_the_context_of_a_trace(start_server, python_repository):
    """There is no collector at the address. The test is about the trace context that the client sent."""
    running = start_server(python_repository, python_flags("--model-control-mode=explicit", "--load-model=caller", "--trace-config=mode=opentelemetry",
                                                    "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                                                    "--trace-config=opentelemetry,url=http://127.0.0.1:1/v1/traces"))
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["request"]},
                       {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
    request = urllib.request.Request(running.url + "/v2/models/caller/infer", json.dumps(body).encode(),
                                     {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"})
    answer = json.loads(json.loads(urllib.request.urlopen(request, timeout=PATIENCE_S).read())["outputs"][0]["data"][0])
    assert json.loads(answer["trace"])["traceparent"].split("-")[1] == trace_id
    assert running.stop() == 0


def test_refused_calls_release_their_trace_once(start_server, python_repository, tmp_path):
    """The trace of a refused call, in which nothing happened, is released only once: its id is not in the file."""
    running = start_server(python_repository, python_flags("--model-control-mode=explicit", "--load-model=caller", "--load-model=doubler",
                                                    f"--trace-config=triton,file={tmp_path / 'trace.json'}", "--trace-config=rate=1",
                                                    "--trace-config=level=TIMESTAMPS"))
    for _ in range(20):
        assert "unexpected inference output 'nosuch'" in ask_caller(running, "wrong_output")["error"]
    assert ask_caller(running, "exec") == [2.0, 4.0]
    assert running.stop() == 0
    traced = [(each["id"], each["model_name"]) for each in json.loads((tmp_path / "trace.json").read_text()) if "model_name" in each]
    assert traced == [(number, "caller") for number in range(1, 43, 2)]


def test_a_model_that_is_not_there(python_server):
    assert ask_caller(python_server, "unknown") == {
        "error": "Model nosuch - Error when running inference: Failed for execute the inference request. Model 'nosuch' is not ready.", "code": 1}


def test_models_are_loaded_and_unloaded(python_server):
    before, between, answer, refused = ask_caller(python_server, "control")
    assert (before, between, answer) == (False, True, [2.0, 4.0])
    assert "nosuch" in refused


def test_properties_of_a_request(python_server):
    parameters = {"n": 5, "t": "x", "b": True}
    answer = ask_caller(python_server, "request", id="r1", parameters=parameters, outputs=[{"name": "OUT"}])
    assert answer == {"id": "r1", "correlation": 0, "flags": 0, "timeout": 0, "outputs": ["OUT"], "parameters": parameters,
                      "cancelled": False, "trace": None, "inputs": answer["inputs"]}
    assert sorted(answer["inputs"]) == ["CASE", "IN"]


def test_metrics_are_on_the_page(python_server):
    ask_caller(python_server, "metrics")
    page = urllib.request.urlopen(f"http://127.0.0.1:{python_server.metrics}/metrics", timeout=PATIENCE_S).read().decode()
    assert 'caller_seen{kind="a"}' in page
    assert 'caller_sizes_bucket{le="10"} ' in page


def test_lines_of_the_model_are_in_the_log(python_server):
    assert ask_caller(python_server, "logs") == "logged"

    def has_them():
        log = log_of(python_server)
        return all(f"model 'caller': {text}" in log for text in ("a warning from the model", "a line from the model", "a line on stdout"))
    wait_for(has_them, "the lines are in the log")


def test_the_folder_of_the_model(python_server, python_repository):
    assert ask_caller(python_server, "directory") == str(python_repository / "caller/1")


def test_bf16_passes_by_dlpack(python_server):
    bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{python_server.grpc}") as client:
        tensor = grpcclient.InferInput("IN", [3], "BF16")
        tensor._raw_content = bits.tobytes()
        answer = client.infer("brain", [tensor])
        assert answer.get_response().outputs[0].datatype == "BF16"
        assert answer.get_response().raw_output_contents[0] == bits.tobytes()


def test_streams_reach_the_client(python_server):
    seen, ended = [], threading.Event()

    def on_response(result, error):
        if error is not None:
            seen.append(str(error))
        elif result.as_numpy("OUT") is not None:
            seen.append(result.as_numpy("OUT")[0])
        if error is not None or result.get_response().parameters["triton_final_response"].bool_param:
            ended.set()

    with grpcclient.InferenceServerClient(f"127.0.0.1:{python_server.grpc}") as client:
        client.start_stream(on_response)
        for limit, expected in ((200.0, list(range(200))), (-1.0, None)):
            seen.clear()
            ended.clear()
            tensor = grpcclient.InferInput("IN", [1], "FP32")
            tensor.set_data_from_numpy(np.array([limit], np.float32))
            client.async_stream_infer("counter", [tensor], enable_empty_final_response=True)
            assert ended.wait(PATIENCE_S)
            if expected is not None:
                assert seen == expected
            else:
                assert "ValueError: cannot count to -1.0" in seen[0]
        client.stop_stream()


def test_a_coroutine_answers_for_a_model_that_is_not_decoupled(python_server):
    def gathered(values):
        return post(python_server, "/v2/models/gatherer/infer",
                    {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": values}]})
    for count in (1, 5):
        status, answer = gathered([float(each) for each in range(count)])
        assert status == 200 and answer["outputs"][0]["data"] == [2.0 * each for each in range(count)], answer
    status, answer = gathered([])
    assert status == 500 and "ValueError: nothing to gather" in answer["error"], answer


def test_model_reports_its_readiness(python_server):
    for mood in (False, True):
        status, _ = post(python_server, "/v2/models/moody/infer", {"inputs": [{"name": "IN", "datatype": "BOOL", "shape": [1], "data": [mood]}]})
        assert status == 200
        wait_for(lambda: is_ready(python_server, "moody") == mood, f"readiness {mood}")


def test_views_of_an_input_are_answers(python_server):
    """Long and short ones, of several clients at the same time. An output that is not copied must be read before the next request overwrites it."""
    wrong = []

    def ask(number):
        with grpcclient.InferenceServerClient(f"127.0.0.1:{python_server.grpc}") as client:
            for size in (30_000, 10, 50_000, 3_000):
                values = np.arange(size, dtype=np.float32) + number * 1000
                tensor = grpcclient.InferInput("IN", [size], "FP32")
                tensor.set_data_from_numpy(values)
                answer = client.infer("mirror", [tensor], client_timeout=PATIENCE_S)
                expected = {"WHOLE": values, "AGAIN": values, "FIRST": values[:size // 2], "LAST": values[size // 2:], "EVEN": values[::2],
                            "BITS": values.view(np.uint32)}
                wrong.extend((number, size, name) for name, view in expected.items() if not np.array_equal(answer.as_numpy(name), view))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_concurrent_requests_get_their_own_answers(python_server):
    wrong = []

    def ask(number):
        for each in range(10):
            value = float(number * 100 + each)
            if ask_caller(python_server, "exec", [value]) != [2 * value]:
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
