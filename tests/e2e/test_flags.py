"""The effects of flags that no other test needs."""
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException
from waiting import wait_for

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
HOSTILE = """backend: "hostile" instance_group [ { kind: KIND_CPU } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "fault" value { string_value: "model_initialize_twice" } }
"""
ON_GPU = """backend: "memory_types" instance_group [ { kind: KIND_GPU } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "MEMORY_TYPES" data_type: TYPE_INT32 dims: [ 4 ] } ]
"""


WARM = """backend: "identity_c" instance_group [ { kind: KIND_CPU } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
model_warmup [ { name: "two zeros" batch_size: 1 count: 2
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } } ]
"""


def write_model(repository, config):
    (repository / "m/1").mkdir(parents=True)
    (repository / "m/config.pbtxt").write_text(config)


def run(dist, repository, *flags, environment=None):
    """Runs a server that is expected to fail; returns its exit status and output."""
    ports = [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
    done = subprocess.run([str(dist / "bin/nereid"), f"--model-repository={repository}", *ports, *flags], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **(environment or {})})
    return done.returncode, done.stderr


def test_a_load_is_tried_again_as_often_as_the_flag_says(start_server, dist, tmp_path, test_backends):
    write_model(tmp_path, HOSTILE)
    status, said = run(dist, tmp_path, test_backends, "--model-load-retry-count=1")
    assert status == 1 and "hostile: not yet" in said
    server = start_server(tmp_path, [test_backends, "--model-load-retry-count=2"])
    with urllib.request.urlopen(server.url + "/v2/models/m/ready", timeout=60) as answer:
        assert answer.status == 200


def test_gpu_below_the_minimum_capability_is_not_used(start_server, dist, tmp_path, test_backends):
    """With the test driver's GPU, whose compute capability is 7.5."""
    folder = pathlib.Path(test_backends.partition("=")[2]).parent / "cuda"
    environment = {"NEREID_FAKE_CUDA_DEVICES": "1", "LD_LIBRARY_PATH": ":".join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))}
    write_model(tmp_path, ON_GPU)
    status, said = run(dist, tmp_path, test_backends, "--min-supported-compute-capability=7.6", environment=environment)
    assert status == 1 and "KIND_GPU" in said and "no GPU" in said, said
    server = start_server(tmp_path, [test_backends, "--min-supported-compute-capability=7.5"], environment=environment)
    assert "min_supported_compute_capability | 7.5" in pathlib.Path(server.log).read_text()


def test_a_server_without_a_repository_ends_as_scripts_expect(dist):
    done = subprocess.run([str(dist / "bin/nereid"), "--http-port=0", "--grpc-port=0", "--metrics-port=0"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: creating server: Invalid argument - --model-repository must be specified"


def test_a_server_without_ports_for_requests_has_that_of_metrics(dist, tmp_path):
    command = [str(dist / "bin/nereid"), f"--model-repository={tmp_path}", "--allow-http=false", "--allow-grpc=false", "--metrics-port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            port = next(found[1] for line in server.stderr if (found := re.search(r"Started Metrics Service at \S+:(\d+)", line)))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert answer.status == 200
        finally:
            server.terminate()
        server.stderr.read()
        assert server.wait(60) == 0


def started(server):
    """Returns the log lines about started services, one per port. The last two may appear after the first answer."""
    def lines():
        found = [each for each in server.text().splitlines() if "Started" in each]
        return len(found) >= 3 and found
    return wait_for(lines, server.text)


@pytest.mark.parametrize("name, line", [("default", r"I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ .+:\d+\] "),
                                        ("ISO8601", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ .+:\d+\] ")])
def test_log_lines_have_the_format_that_the_flag_names(start_server, tmp_path, name, line):
    server = start_server(tmp_path, [f"--log-format={name}"])
    for each in started(server):
        assert re.match(line, each), each


def test_environment_disables_escaping_of_log_messages(start_server, tmp_path, monkeypatch):
    assert all(each.endswith('"') for each in started(start_server(tmp_path, [])))
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0")
    for each in started(start_server(tmp_path, [])):
        assert re.match(r"I\d{4} \S+ \d+ \S+:\d+\] Started ", each), each


def test_a_verbose_log_has_a_line_for_each_http_request(start_server, tmp_path):
    server = start_server(tmp_path, [])
    for level in ("1", "0"):
        urllib.request.urlopen(server.url + "/v2/logging", json.dumps({"log_verbose_level": int(level)}).encode(), timeout=60)
        urllib.request.urlopen(server.url + f"/v2/health/live?{level}", timeout=60)
    said = re.findall(r'"HTTP request: (.+)"', server.text())
    assert said == ["0 /v2/health/live", "2 /v2/logging"]


def test_warnings_of_old_flags_come_before_anything_else(dist, tmp_path):
    said = run(dist, tmp_path / "nosuch", "--disable-auto-complete-config", "--strict-model-config=false")[1]
    assert said.splitlines()[:2] == [
        "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.",
        "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of '--disable-auto-complete-config'!"]


def test_json_log_has_one_object_per_line_and_is_reported(start_server, tmp_path):
    server = start_server(tmp_path, ["--log-format=json"])
    for line in started(server):
        said = json.loads(line)
        assert said["message"].startswith("Started") and (said["level"], said["pid"]) == ("INFO", server.process.pid)
    assert all(json.loads(each)["message"] for each in server.text().split("\n") if each.startswith("{"))

    def settings(change=None):
        data = None if change is None else json.dumps(change).encode()
        with urllib.request.urlopen(urllib.request.Request(server.url + "/v2/logging", data), timeout=60) as answer:
            return json.load(answer)

    assert settings()["log_format"] == settings({"log_format": "json"})["log_format"] == "json"  # setting the current value is accepted
    assert settings({"log_format": "default"})["log_format"] == "default"
    with pytest.raises(urllib.error.HTTPError) as refused:
        settings({"log_format": "json"})
    assert refused.value.code == 400


@pytest.mark.parametrize("flags, variable, name", [([], "json", "json"), (["--log-format=default"], "json", "default"), ([], "other", "default"),
                                                   (["--log-format=ISO8601", "--log-format=json"], "", "json"),
                                                   (["--log-format=json", "--log-format=default"], "", "default")])
def test_log_has_the_reported_format(start_server, tmp_path, monkeypatch, flags, variable, name):
    monkeypatch.setenv("NEREID_LOG_FORMAT", variable)
    server = start_server(tmp_path, flags)
    with urllib.request.urlopen(server.url + "/v2/logging", timeout=60) as answer:
        assert json.load(answer)["log_format"] == name
    for line in started(server):
        assert line.startswith("{") == (name == "json"), line


def used_memory(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        return re.search(r"^nv_cpu_memory_used_bytes (.+)$", answer.read().decode(), re.MULTILINE).group(1)


def test_machine_metrics_are_read_once_per_interval(start_server, tmp_path):
    """The test allocates memory between the measurements, so that the used memory changes each time."""
    slow = start_server(tmp_path, ["--metrics-interval-ms=3600000"])
    quick = start_server(tmp_path, ["--metrics-interval-ms=1"])
    before = used_memory(slow), used_memory(quick)
    taken = []
    deadline = time.monotonic() + 60
    while used_memory(quick) == before[1] and time.monotonic() < deadline:
        taken.append(b"x" * (8 << 20))
        time.sleep(0.01)
    assert used_memory(quick) != before[1]
    assert used_memory(slow) == before[0]


def test_log_has_the_lines_that_scripts_search_for(start_server, tmp_path, test_backends):
    write_model(tmp_path, WARM)
    for folder in ("007", "abc", "configs"):
        (tmp_path / "m" / folder).mkdir()
    server = start_server(tmp_path, [test_backends, "--log-verbose=1"])
    assert server.stop() == 0
    log = server.text()
    for line in ("ignore version directory '007' which contains leading zeros in its directory name",
                 "ignore version directory 'abc' which fails to convert to integral number",
                 "is running warmup sample 'two zeros' for iteration 1", "is running warmup sample 'two zeros' for iteration 2",
                 "Waiting for in-flight requests to complete.", ": Found 0 model versions that have in-flight inferences",
                 "successfully unloaded 'm' version 1"):
        assert line in log, line
    assert "'configs'" not in log


def test_the_verbose_log_follows_requests(start_server, test_backends):
    server = start_server(GOLDEN, [test_backends, "--log-verbose=1", "--model-control-mode=explicit", "--load-model=identity_fp32"],
                          "/v2/models/identity_fp32/ready")
    body = {"id": "one", "inputs": [{"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1.5, -2]}]}
    request = urllib.request.Request(server.url + "/v2/models/identity_fp32/infer?x=1", json.dumps(body).encode())
    assert urllib.request.urlopen(request, timeout=60).status == 200
    body["inputs"][0]["name"] = "NOSUCH"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(request.full_url, json.dumps(body).encode()), timeout=60)
    urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60).close()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        one = grpc_client.InferInput("INPUT0", [2], "FP32")
        one.set_data_from_numpy(np.zeros(2, np.float32))
        client.infer("identity_fp32", [one], request_id="two")
        one.set_shape([3])
        with pytest.raises(InferenceServerException):
            client.infer("identity_fp32", [one], request_id="three")
    assert server.stop() == 0
    log = server.text()
    for line in ("HTTP request: 2 /v2/models/identity_fp32/infer\"", "HTTP request: 0 /v2/models/identity_fp32/ready\"", "HTTP request: 0 /metrics\"",
                 "prepared: request id: one, model: identity_fp32, requested version: -1, actual version: 1, flags: 0x0, correlation id: 0, "
                 "batch size: ", "input: INPUT0, type: FP32, original shape: [2]", "[request id: one] Setting state from INITIALIZED to PENDING",
                 "[request id: one] Setting state from PENDING to EXECUTING", "[request id: one] Setting state from EXECUTING to RELEASED",
                 "Infer failed: ", "Process for ModelInferHandler, rpc_ok=1, 1 step START", "Done for ModelInferHandler, 1\"",
                 "[request id: two] Setting state from EXECUTING to RELEASED", "[request id: three] Infer failed: [request id: three] ",
                 "Adding default backend config setting: default-max-batch-size,4"):
        assert line in log, line


def test_a_start_that_fails_says_once_what_was_found_and_what_to_pass(dist, tmp_path):
    """The last line is the whole answer: no tables, no report of a stop."""
    write_model(tmp_path / "models", 'backend: "nosuch"')
    for path, words in ((tmp_path, f"pass '{tmp_path / 'models'}'"), (tmp_path / "models/m", f"pass '{tmp_path / 'models'}', the folder"),
                        (tmp_path / "absent", "no such folder")):
        status, said = run(dist, path)
        assert status == 1 and len(said.splitlines()) == 1 and words in said, said
    status, said = run(dist, tmp_path / "models")
    assert status == 1 and "+--" not in said and "Timeout" not in said
    assert len([line for line in said.splitlines() if "nosuch" in line]) == 1, said
    assert said.splitlines()[-1] == "error: creating server: Internal - failed to load all models; see the errors above"


@pytest.mark.parametrize("name", ["nereid", "tritonserver"])
def test_an_unknown_option_is_answered_by_one_line(dist, tmp_path, name):
    program = tmp_path / name
    program.symlink_to(dist / "bin/nereid")
    done = subprocess.run([program, "--model-repositry=x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"unknown option '--model-repositry' (did you mean '--model-repository'?); '{name} --help' lists the options\n"


def test_the_metadata_and_the_start_table_name_the_version_of_nereid(start_server, dist, tmp_path):
    server = start_server(tmp_path, [])
    version = subprocess.run([dist / "bin/nereid", "--version"], capture_output=True, text=True, timeout=60).stdout.split()[1]
    with urllib.request.urlopen(server.url + "/v2", timeout=60) as answer:
        assert json.load(answer)["nereid_version"] == version
    assert re.search(rf"\| nereid_version +\| {version} ", server.text())
    assert re.search(r" frontends\.cc:[1-9]\d*\] \"Started HTTPService", server.text()), "a line names its source"


def test_a_repository_that_is_not_there_ends_the_start_or_leaves_a_server_that_is_not_live(start_server, dist, tmp_path):
    absent = tmp_path / "absent"
    status, said = run(dist, absent)
    assert status == 1 and f"failed to stat file {absent}" in said
    server = start_server(absent, ["--exit-on-error=false", "--strict-readiness=false"], wait_for="/v2")
    assert f"failed to stat file {absent}" in server.text()
    for path in ("live", "ready"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server.url}/v2/health/{path}", timeout=60)
        assert refused.value.code == 400
    with urllib.request.urlopen(server.url + "/v2", timeout=60) as answer:
        assert json.load(answer)["name"] == "triton"
    assert server.stop() == 0
