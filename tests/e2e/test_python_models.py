"""Python models as clients and their authors see them: all that triton_python_backend_utils offers, and every way to hurt a host.
The interpreter that runs these tests runs the models too."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

MODELS = pathlib.Path(__file__).parent / "python_models"
PATIENCE_S = 60


def python_flags(*further):
    return [f"--backend-config=python,interpreter={sys.executable}", *further]


def post(server, path, body):
    """The status and the parsed answer."""
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def ask_caller(server, case, values=(1.0, 2.0), **further):
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]},
                       {"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": list(values)}], **further}
    status, answer = post(server, "/v2/models/caller/infer", body)
    assert status == 200, answer
    return json.loads(answer["outputs"][0]["data"][0])


def hurt(server, case):
    return post(server, "/v2/models/fragile/infer", {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]}]})


def is_ready(server, model):
    try:
        return urllib.request.urlopen(f"{server.url}/v2/models/{model}/ready", timeout=PATIENCE_S).status == 200
    except urllib.error.HTTPError:
        return False


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail(f"{what}: not within {PATIENCE_S} s")


def recovered_pid(server):
    """Of the fragile model's worker, once it answers."""
    def pid():
        status, answer = hurt(server, "pid")
        return int(answer["outputs"][0]["data"][0]) if status == 200 else None
    return wait_for(pid, "the worker is back")


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if each.read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                found.append(int(each.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sorted(found)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("python") / "models"
    shutil.copytree(MODELS, root)
    shutil.copytree(MODELS / "doubler", root / "spare")
    return root


@pytest.fixture(scope="module")
def server(start_server, repository):
    """Everything but "spare" is loaded; models are controlled by request."""
    models = [f"--load-model={each.name}" for each in repository.iterdir() if each.name != "spare"]
    running = start_server(repository, python_flags("--model-control-mode=explicit", *models))
    yield running
    running.stop()


# ---- what a model may ask of the host

def test_arguments_of_initialize(server, repository):
    assert ask_caller(server, "args") == {
        "model_instance_kind": "CPU", "model_instance_name": "caller_0_0", "model_instance_device_id": "0",
        "model_repository": str(repository / "caller"), "model_version": "1", "model_name": "caller", "config": "caller"}


@pytest.mark.parametrize("case, expected", [
    ("exec", [2.0, 4.0]),
    ("bytes", [2.0, 4.0]),
    ("large", True),
    ("fails", {"error": "minus one", "code": 2}),
    ("async", [[2.0 * each] for each in range(20)]),
    ("memory", [[2.0, 4.0], {"k": 1, "t": "x", "b": True}, True]),
    ("metrics", [3.0, 2.5, True]),
    ("dlpack", [[1.0, 2.0], True, [True, False], "bool", [1, 0], "DLPack does not have support for string tensors."]),
    ("free", True),
    ("codes", [0, 1, 2, 3, 4, 5, 6, 7, 1, "bytes"]),
    ("types", [["|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "|O"], [1, 2, 9, 10, 11, 13],
               ["|b1", "<u2", "<f2", "|O"]]),
    ("strings", ["0100000061020000006263000000000300000064c3a9", ["a", "bc", "", "d\u00e9"]]),
    ("config", ["TYPE_FP32", [1], None, False, True]),
    ("constants", [1, 1, 2, 0, 1, 0, 1]),
    ("refusals", ["TypeError"] * 8),
    ("async_cancel", ["cancelled", [2.0, 4.0]]),
    ("early", "BLS is only supported during the 'execute' function."),
])
def test_answer_to(server, case, expected):
    assert ask_caller(server, case) == expected


def test_streams_of_other_models(server):
    assert ask_caller(server, "stream", [5.0]) == [[each] for each in range(5)]
    assert ask_caller(server, "async_stream", [3.0]) == [[each] for each in range(3)]
    assert "exec(decoupled=True)" in ask_caller(server, "stream_refused", [3.0])["error"]
    assert ask_caller(server, "cancel") == [[0.0], 7]


def test_other_models_hear_ids_and_flags(server):
    heard = ask_caller(server, "sequence")
    assert [each["correlation"] for each in heard] == [0, 7, 2**63, "abc"]
    assert all((each["id"], each["flags"], each["outputs"]) == ("id", 3, ["OUT"]) for each in heard), heard


@pytest.mark.parametrize("sequence_id", [2**40, "abc"])
def test_a_model_hears_the_id_of_a_sequence(server, sequence_id):
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        tensor = grpcclient.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.ones(1, np.float32))
        answer = client.infer("echo", [tensor], sequence_id=sequence_id, sequence_start=True, request_id="r", timeout=10**7, parameters={"p": 5})
    assert json.loads(answer.as_numpy("OUT")[0]) == {"id": "r", "correlation": sequence_id, "flags": 1, "timeout": 10**7, "outputs": ["OUT"],
                                                     "parameters": {"p": 5}}


def test_requests_are_given_back_to_be_scheduled_again(server):
    """Several sequences at once, each taken as often as its request says before it is answered."""
    answers = {}

    def ask(sequence_id, steps):
        with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
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


def test_a_model_sees_the_context_of_a_trace(start_server, repository):
    """The address of the collector is one where nobody listens: what matters is the context that the client sent."""
    running = start_server(repository, python_flags("--model-control-mode=explicit", "--load-model=caller", "--trace-config=mode=opentelemetry",
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


def test_a_model_that_is_not_there(server):
    answer = ask_caller(server, "unknown")
    assert answer["code"] == 2 and "nosuch" in answer["error"]


def test_models_are_loaded_and_unloaded(server):
    before, between, answer, refused = ask_caller(server, "control")
    assert (before, between, answer) == (False, True, [2.0, 4.0])
    assert "nosuch" in refused


def test_what_a_request_says(server):
    parameters = {"n": 5, "t": "x", "b": True}
    answer = ask_caller(server, "request", id="r1", parameters=parameters, outputs=[{"name": "OUT"}])
    assert answer == {"id": "r1", "correlation": 0, "flags": 0, "timeout": 0, "outputs": ["OUT"], "parameters": parameters,
                      "cancelled": False, "trace": None, "inputs": answer["inputs"]}
    assert sorted(answer["inputs"]) == ["CASE", "IN"]


def test_metrics_are_on_the_page(server):
    ask_caller(server, "metrics")
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=PATIENCE_S).read().decode()
    assert 'caller_seen{kind="a"}' in page
    assert 'caller_sizes_bucket{le="10"} ' in page


def test_lines_of_the_model_are_in_the_log(server):
    assert ask_caller(server, "logs") == "logged"

    def has_them():
        log = pathlib.Path(server.log).read_text(errors="replace")
        return all(f"model 'caller': {text}" in log for text in ("a warning from the model", "a line from the model", "a line on stdout"))
    wait_for(has_them, "the lines are in the log")


def test_the_folder_of_the_model(server, repository):
    assert ask_caller(server, "directory") == str(repository / "caller/1")


def test_bf16_passes_by_dlpack(server):
    bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        tensor = grpcclient.InferInput("IN", [3], "BF16")
        tensor._raw_content = bits.tobytes()
        answer = client.infer("brain", [tensor])
        assert answer.get_response().outputs[0].datatype == "BF16"
        assert answer.get_response().raw_output_contents[0] == bits.tobytes()


def test_streams_reach_the_client(server):
    seen, ended = [], threading.Event()

    def on_response(result, error):
        if error is not None:
            seen.append(str(error))
        elif result.as_numpy("OUT") is not None:
            seen.append(result.as_numpy("OUT")[0])
        if error is not None or result.get_response().parameters["triton_final_response"].bool_param:
            ended.set()

    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
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


def test_the_model_says_whether_it_is_ready(server):
    for mood in (False, True):
        status, _ = post(server, "/v2/models/moody/infer", {"inputs": [{"name": "IN", "datatype": "BOOL", "shape": [1], "data": [mood]}]})
        assert status == 200
        wait_for(lambda: is_ready(server, "moody") == mood, f"readiness {mood}")


def test_concurrent_requests_get_their_own_answers(server):
    wrong = []

    def ask(number):
        for each in range(10):
            value = float(number * 100 + each)
            if ask_caller(server, "exec", [value]) != [2 * value]:
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


# ---- what a model may do to the host

@pytest.mark.parametrize("case, text", [
    ("segv", "was killed by signal 11 (SIGSEGV)"),
    ("exit", "exited with code 3"),
    ("sys_exit", "exited with code 4"),
    ("abort", "was killed by signal 6 (SIGABRT)"),
    ("fork_then_die", "exited with code 5"),
    ("close_all", "the Python worker"),
    ("garbage_answer", "it sent garbage: "),
    ("garbage_place", "it sent garbage: a message names 16384 bytes at 1099511627776"),
    ("garbage_posted", "it sent garbage: "),
])
def test_a_worker_that_ends_answers_with_how(server, case, text):
    before = recovered_pid(server)
    status, answer = hurt(server, case)
    assert status == 503 and text in answer["error"] and "fragile" in answer["error"], answer
    assert recovered_pid(server) != before
    assert not is_running(before)
    assert ask_caller(server, "exec") == [2.0, 4.0]


@pytest.mark.parametrize("case, text", [
    ("wrong_type", "Expected an 'InferenceResponse' object in the execute function return list, found type 'str'."),
    ("unprintable", "Unprintable"),
    ("recursion", "RecursionError: "),
])
def test_a_model_that_errs_goes_on(server, case, text):
    before = recovered_pid(server)
    status, answer = hurt(server, case)
    assert status == 500 and text in answer["error"], answer
    assert recovered_pid(server) == before


def test_a_model_that_prints_blocks_nobody(server):
    recovered_pid(server)
    status, answer = hurt(server, "stdout")
    assert (status, answer["outputs"][0]["data"]) == (200, ["printed"])


def test_shared_memory_cannot_be_taken_away(server):
    recovered_pid(server)
    assert hurt(server, "garbage_memory")[1]["outputs"][0]["data"] == ["PermissionError"]


def test_a_killed_worker_is_replaced_while_it_idles(server):
    before = recovered_pid(server)
    os.kill(before, signal.SIGKILL)
    assert recovered_pid(server) != before


def test_nothing_that_a_worker_forked_stays(server):
    before = recovered_pid(server)
    child = int(hurt(server, "fork")[1]["outputs"][0]["data"][0])
    assert is_running(child)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not is_running(child), "the child's end")
    recovered_pid(server)


def test_a_worker_that_hangs_is_ended_in_time(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", python_flags("--backend-config=python,execute-timeout-seconds=1"))
    for case in ("hang", "stop"):
        before = recovered_pid(running)
        status, answer = hurt(running, case)
        assert status == 503 and "it did not answer within 1000 ms" in answer["error"], answer
        assert recovered_pid(running) != before
    assert running.stop() == 0


def test_workers_end_with_their_host(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", python_flags())
    worker = recovered_pid(running)
    child = int(hurt(running, "fork")[1]["outputs"][0]["data"][0])
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not is_running(worker) and not is_running(child), "the end of the workers")


def test_a_host_that_is_stopped_leaves_nothing(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    running = start_server(tmp_path / "models", python_flags("--backend-config=python,shm-region-prefix-name=nereid_leak_test"))
    worker = recovered_pid(running)
    assert running.stop() == 0
    assert not is_running(worker)
    if os.path.isdir("/dev/shm"):
        assert not [each for each in set(os.listdir("/dev/shm")) - before if "nereid_leak_test" in each]


# ---- what may be wrong at a load

def write_model(root, name, code, config=""):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config or (MODELS / "doubler/config.pbtxt").read_text())
    if code is not None:
        (root / name / "1/model.py").write_text(code)


@pytest.mark.parametrize("code, text", [
    (None, "found no such file"),
    ("import nosuch_module\n", "ModuleNotFoundError: No module named 'nosuch_module'\n\nAt:\n  {path}(1): <module>\n"),
    ("def broken(:\n", "SyntaxError: invalid syntax"),
    ("class Model: pass\n", "has no class TritonPythonModel"),
    ("class TritonPythonModel:\n  def initialize(self, args):\n    raise ValueError('no weights')\n  def execute(self, requests): pass\n",
     "ValueError: no weights\n\nAt:\n  {path}(3): initialize\n"),
    ("import os\nos._exit(9)\n", "exited with code 9"),
])
def test_a_load_that_fails_says_why(server, repository, code, text):
    write_model(repository, "broken", code)
    try:
        status, answer = post(server, "/v2/repository/models/broken/load", {})
        assert status >= 400
        assert text.format(path=repository / "broken/1/model.py") in answer["error"], answer
    finally:
        shutil.rmtree(repository / "broken")


def test_a_load_that_hangs_is_ended_in_time(start_server, tmp_path):
    stages = {"import": "print('reads')\nimport time\ntime.sleep(600)\n",
              "complete": "class TritonPythonModel:\n  @staticmethod\n  def auto_complete_config(config):\n    import time\n    print('completes')\n"
                          "    time.sleep(600)\n  def execute(self, requests): pass\n",
              "initialize": "import triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n  def initialize(self, args):\n    import time\n"
                            "    pb_utils.Logger.log_info('initializes')\n    time.sleep(600)\n  def execute(self, requests): pass\n"}
    for name, code in stages.items():
        write_model(tmp_path / "models", name, code)
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--backend-config=python,stub-timeout-seconds=20"))
    answers = {}
    loads = [threading.Thread(target=lambda name=name: answers.update({name: post(running, f"/v2/repository/models/{name}/load", {})})) for name in stages]
    for each in loads:
        each.start()
    for each in loads:
        each.join()
    for name, task in (("import", "read the model's file within 20000 ms; its last line: 'reads'"),
                       ("complete", "finish auto_complete_config within 20000 ms; its last line: 'completes'"),
                       ("initialize", "finish initialize within 20000 ms; its last line: 'initializes'")):
        status, answer = answers[name]
        assert status >= 400 and f"model '{name}'" in answer["error"] and f"it did not {task}" in answer["error"], answer
    assert running.stop() == 0


def test_a_wrong_parameter_of_the_model_is_named(server, repository):
    config = (MODELS / "doubler/config.pbtxt").read_text() + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "%s" } }\n'
    write_model(repository, "forced", "class TritonPythonModel:\n  def execute(self, requests): pass\n", config % "perhaps")
    status, answer = post(server, "/v2/repository/models/forced/load", {})
    assert status >= 400 and "FORCE_CPU_ONLY_INPUT_TENSORS: expected yes or no, got 'perhaps'" in answer["error"], answer
    (repository / "forced/config.pbtxt").write_text(config % "no")
    assert post(server, "/v2/repository/models/forced/load", {})[0] == 200
    assert post(server, "/v2/repository/models/forced/unload", {})[0] == 200
    shutil.rmtree(repository / "forced")


def test_an_unknown_setting_is_named(start_server, tmp_path):
    write_model(tmp_path / "models", "plain", "class TritonPythonModel:\n  def execute(self, requests): pass\n")
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--backend-config=python,thread-pool-sise=4"))
    status, answer = post(running, "/v2/repository/models/plain/load", {})
    assert status >= 400 and "--backend-config=python,thread-pool-sise: expected one of" in answer["error"], answer
    assert running.stop() == 0


def test_an_interpreter_without_numpy_is_named(server, repository, tmp_path):
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python3").write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    (environment / "bin/python3").chmod(0o755)
    config = (MODELS / "doubler/config.pbtxt").read_text() + f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    write_model(repository, "bare", (MODELS / "doubler/1/model.py").read_text(), config)
    status, answer = post(server, "/v2/repository/models/bare/load", {})
    assert status >= 400 and "interpreter '" in answer["error"], answer
    shutil.rmtree(repository / "bare")


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_a_model_brings_its_environment(server, repository, tmp_path, is_packed):
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python3").symlink_to(sys.executable)
    (environment / "bin/activate").write_text(
        f'export FROM_ENVIRONMENT="it was activated"\npython3() {{ :; }}\nunset -f python3\nexport PATH="{pathlib.Path(sys.executable).parent}:$PATH"\n')
    name = "environment_archive" if is_packed else "environment_folder"
    place = str(environment)
    config = (MODELS / "caller/config.pbtxt").read_text()
    code = (MODELS / "caller/1/model.py").read_text().replace("return self.early", "import os\n        return os.environ.get('FROM_ENVIRONMENT')")
    if is_packed:
        place = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    config += f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{place}" }} }}\n'
    write_model(repository, name, code, config)
    if is_packed:
        subprocess.run(["tar", "-C", environment, "-czf", repository / name / "env.tar.gz", "."], check=True)
    status, answer = post(server, f"/v2/repository/models/{name}/load", {})
    assert status == 200, answer
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["early"]},
                       {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
    status, answer = post(server, f"/v2/models/{name}/infer", body)
    assert status == 200 and json.loads(answer["outputs"][0]["data"][0]) == "it was activated", answer
    assert post(server, f"/v2/repository/models/{name}/unload", {})[0] == 200
    shutil.rmtree(repository / name)


def test_a_backend_may_be_written_in_python(start_server, tmp_path):
    (tmp_path / "backends/triple").mkdir(parents=True)
    (tmp_path / "backends/triple/model.py").write_text("""
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.factor = int(json.loads(args["model_config"])["parameters"]["factor"]["string_value"])

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy() * self.factor)]) for each in requests]
""")
    for name, factor in (("three", 3), ("four", 4)):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(
            f'backend: "triple"\nparameters {{ key: "factor" value {{ string_value: "{factor}" }} }}\n')
    running = start_server(tmp_path / "models", python_flags(f"--backend-directory={tmp_path}/backends"))
    for name, expected in (("three", [3.0, 6.0]), ("four", [4.0, 8.0])):
        status, answer = post(running, f"/v2/models/{name}/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]}]})
        assert status == 200 and answer["outputs"][0]["data"] == expected, answer
    assert running.stop() == 0


# ---- all of it at once

def test_no_reply_is_lost_while_workers_are_killed(server):
    """Clients call a model that calls another, while workers of both are killed at random. Every request is answered, rightly or with an
    error that says what happened, and in the end everything works."""
    stop, answers, faults = threading.Event(), [], []

    def ask(number):
        count = 0
        while not stop.is_set():
            value = float(number * 1000 + count % 1000)
            count += 1
            body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["exec"]},
                               {"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}]}
            status, answer = post(server, "/v2/models/caller/infer", body)
            if status == 200:
                output = json.loads(answer["outputs"][0]["data"][0])
                if output != [2 * value] and "error" not in output:
                    faults.append((value, output))
            elif "the Python worker" not in answer["error"]:
                faults.append((value, answer))
            answers.append(status)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    chance = random.Random(7)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        workers = children(server.process.pid)
        if workers:
            try:
                os.kill(chance.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                pass
        stop.wait(chance.uniform(0.05, 0.6))
    stop.set()
    for each in threads:
        each.join(timeout=PATIENCE_S)
        assert not each.is_alive(), "a reply was lost"
    assert not faults, faults[:3]
    assert server.alive() and 200 in answers

    def works():
        status, _ = post(server, "/v2/models/caller/infer", {"inputs": [
            {"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["exec"]}, {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]})
        return status == 200
    wait_for(works, "the models work again")
