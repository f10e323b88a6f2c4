"""`nereid serve`, `nereid pull` and the command line around them."""
import hashlib
import json
import os
import pathlib
import pty
import queue
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from hub_server import COMMIT, Hub, files_of
from serve_process import ANY_PORTS, PROMPT, Serving, run
from terminal import read_terminal
from tritonclient.utils import InferenceServerException
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_generate_prints_the_text_of_one_request(dist, tmp_path):
    command = ["generate", "demo", "--prompt", PROMPT["text_input"], "--max-tokens=8", "--temperature=0", "--engine=cpu"]
    answer = run(dist, *command, environment={"TMPDIR": str(tmp_path)})
    serving = Serving(dist, tmp_path, "demo")
    expected = json.loads(serving.ask("demo"))["text_output"]
    assert serving.stop() == 0
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected + "\n", "")
    assert not list(tmp_path.iterdir())


def test_generate_names_what_is_wrong(dist, tmp_path):
    refused = run(dist, "generate", "demo", "--prompt=x", "--temperature=-1")
    assert refused.returncode == 1 and refused.stderr.startswith("nereid generate: ") and "temperature" in refused.stderr
    assert run(dist, "generate", tmp_path, "--prompt=x").returncode == 1
    assert run(dist, "generate", "demo", "--promt=x").stderr == "nereid generate: unknown option '--promt' (did you mean '--prompt'?)\n"



@pytest.fixture(scope="module")
def demo_model():
    return ROOT / "demo/model"


@pytest.fixture
def hub(demo_model):
    running = Hub("org/story", {**files_of(demo_model), "README.md": b"text", "pytorch_model.bin": b"x" * 5000})
    yield running
    running.stop()


@pytest.fixture
def hub_environment(hub, tmp_path):
    return {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "", "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": "", "no_proxy": "127.0.0.1"}


def pull(dist, environment, model="org/story"):
    return run(dist, "pull", model, environment=environment)


# ---- serving

def test_serve_demo_answers_streams_and_leaves_nothing_behind(dist, tmp_path):
    serving = Serving(dist, tmp_path, "demo")
    assert [path.name.startswith("nereid-serve-") for path in tmp_path.iterdir()] == [True]
    assert "model     demo: LlamaForCausalLM, 12.1 M parameters, BF16, 24.1 MB, context of 1,024 tokens\n" in serving.output
    assert "engine    " in serving.output and re.search(r"weights 24.1 MB, KV cache of [\d,]+ tokens", serving.output)
    assert serving.url.startswith("http://127.0.0.1:")
    whole = json.loads(serving.ask("demo"))
    assert whole["num_output_tokens"] == 8
    events = [json.loads(event[6:]) for event in serving.ask("demo", "generate_stream", stream=True).split("\n\n") if event]
    assert len(events) > 2 and "".join(event["text_output"] for event in events) == whole["text_output"]
    assert serving.curl.startswith(f"curl {serving.url}/v1/completions ") and '"model": "demo"' in serving.curl
    metrics = re.search(r"metrics (\S+)", serving.output)[1]
    tables = run(dist, "top", "--url", metrics, "--count=2", "--interval", "1").stdout.splitlines()
    assert len(tables) == 4 and tables[2].split()[0] == "MODEL" and tables[3].split()[0] == "demo" and tables[3].endswith(" %")
    assert serving.stop() == 0
    assert list(tmp_path.iterdir()) == []
    assert run(dist, "top", "--url", metrics).returncode == 1


def test_serve_several_checkpoints_side_by_side(dist, tmp_path, demo_model):
    shutil.copytree(demo_model, tmp_path / "tales")
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "private").mkdir()
    serving = Serving(dist, tmp_path / "private", tmp_path / "tales", "demo", "--max-model-len", "32", "--engine=cpu")
    assert json.loads(serving.ask("tales"))["text_output"] == json.loads(serving.ask("demo"))["text_output"]
    assert "engine    CPU" in serving.output
    with pytest.raises(urllib.error.HTTPError) as caught:
        serving.ask("tales", text_input="Once " * 40)
    assert "32" in caught.value.read().decode()
    assert serving.stop(signal.SIGINT) == 0
    assert list((tmp_path / "private").iterdir()) == []


def test_clients_trust_the_roots_that_a_variable_names(dist, tmp_path, certificates):
    serving = Serving(dist, tmp_path, "demo", *certificates.flags("http"))
    top = ["top", "--count=1", "--url", serving.url]
    refused = run(dist, *top, environment={"SSL_CERT_FILE": ""})
    assert refused.returncode == 1 and "certificate" in refused.stderr
    trusted = run(dist, *top, environment={"SSL_CERT_FILE": str(certificates.authority.cert)})
    assert trusted.returncode == 0 and "demo" in trusted.stdout, trusted.stderr
    assert serving.stop() == 0


def test_what_a_model_lacks_is_said(dist, tmp_path):
    """A longer sequence than the model's, and a chat with a model that only continues texts."""
    serving = Serving(dist, tmp_path, "demo", "--max-model-len", "5000")
    assert "parameter 'max_seq_len' is 5000, the model's own limit of 1024 tokens holds" in serving.output
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{serving.url}/v1/chat/completions", data=body), timeout=60)
    assert caught.value.code == 400 and "'nereid serve --chat-template FILE' gives it one" in caught.value.read().decode()
    assert serving.stop() == 0


def test_sighup_opens_a_rotated_access_log_again(dist, tmp_path):
    log, older = tmp_path / "access.log", tmp_path / "access.log.1"
    serving = Serving(dist, tmp_path, "demo", f"--access-log={log}", "--log-info=true", f"--log-file={tmp_path / 'log'}")
    complete(serving, "demo")
    log.rename(older)
    (tmp_path / "log").rename(tmp_path / "log.1")
    serving.process.send_signal(signal.SIGHUP)
    wait_for(lambda: (tmp_path / "log").exists() and "reloaded access log" in (tmp_path / "log").read_text(), "the line of the reload")
    complete(serving, "demo")
    assert serving.stop() == 0
    assert [len(path.read_text().splitlines()) for path in (older, log)] == [1, 1]


def states(serving):
    """The models that are ready, without their steps."""
    with urllib.request.urlopen(urllib.request.Request(f"{serving.url}/v2/repository/index", data=b'{"ready": true}'), timeout=60) as reply:
        return {each["name"] for each in json.load(reply) if "_" not in each["name"]}


def complete(serving, model, **fields):
    body = json.dumps({"model": model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, **fields}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{serving.url}/v1/completions", data=body), timeout=60) as reply:
        return reply.read().decode()


def test_models_take_turns_in_the_memory_budget_and_no_request_is_lost(dist, tmp_path, demo_model):
    shutil.copytree(demo_model, tmp_path / "tales")
    serving = Serving(dist, tmp_path, "demo", tmp_path / "tales", "--memory-budget=30MB")
    assert "tales: weights 24.1 MB, loaded on demand" in serving.output and states(serving) == {"demo"}
    with urllib.request.urlopen(f"{serving.url}/v1/models", timeout=60) as reply:
        assert [model["id"] for model in json.load(reply)["data"]] == ["demo", "tales"]
    text = json.loads(complete(serving, "demo"))["choices"][0]["text"]
    assert json.loads(complete(serving, "tales"))["choices"][0]["text"] == text and states(serving) == {"tales"}
    with ThreadPoolExecutor(8) as pool:
        wanted = [pool.submit(complete, serving, ("demo", "tales")[index % 2], stream=index % 3 == 0) for index in range(24)]
        wanted += [pool.submit(serving.ask, model) for model in ("demo", "tales")]
        answers = [each.result() for each in wanted]
    assert all("[DONE]" in answer or json.loads(answer) for answer in answers)
    assert states(serving) in ({"demo"}, {"tales"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        complete(serving, "absent")
    assert caught.value.code == 404 and "'demo', 'tales'" in caught.value.read().decode()
    assert serving.stop() == 0


def stream_over_grpc(serving, models):
    """The texts that one stream of requests over gRPC gets, by request, and the errors."""
    replies = queue.Queue()
    texts, errors = {str(index): "" for index in range(len(models))}, []
    with grpcclient.InferenceServerClient(re.search(r"gRPC ([\w.]+:\d+)", serving.output)[1]) as client:
        client.start_stream(lambda result, error: replies.put((result, error)))
        for index, model in enumerate(models):
            inputs = []
            for name, value, kind in (("text_input", b"Once upon a time", "BYTES"), ("max_tokens", 8, "INT32"), ("stream", True, "BOOL")):
                inputs.append(grpcclient.InferInput(name, [1, 1], kind))
                inputs[-1].set_data_from_numpy(np.array([[value]], {"BYTES": object, "INT32": np.int32, "BOOL": bool}[kind]))
            client.async_stream_infer(model, inputs, request_id=str(index), enable_empty_final_response=True)
        num_open = len(models)
        while num_open:
            result, error = replies.get(timeout=60)
            if error is not None:
                errors.append(str(error))
                num_open -= 1
                continue
            reply = result.get_response()
            num_open -= reply.parameters["triton_final_response"].bool_param
            if reply.outputs:
                texts[reply.id] += result.as_numpy("text_output").flatten()[0].decode()
        client.stop_stream()
    return list(texts.values()), errors


def test_requests_over_grpc_load_their_models(dist, tmp_path, demo_model):
    shutil.copytree(demo_model, tmp_path / "tales")
    serving = Serving(dist, tmp_path, "demo", tmp_path / "tales", "--memory-budget=30MB")
    expected = json.loads(complete(serving, "demo"))["choices"][0]["text"]
    texts, errors = stream_over_grpc(serving, ["tales", "demo", "absent", "tales"])
    assert texts == [expected, expected, "", expected] and len(errors) == 1 and "absent" in errors[0]
    assert states(serving) == {"tales"}
    with ThreadPoolExecutor(6) as pool:
        wanted = [pool.submit(stream_over_grpc, serving, [("demo", "tales")[index % 2]] * 2) for index in range(6)]
        assert [each.result() for each in wanted] == [([expected] * 2, [])] * 6
    loaded = states(serving).pop()
    with grpcclient.InferenceServerClient(re.search(r"gRPC ([\w.]+:\d+)", serving.output)[1]) as client:
        prompt = grpcclient.InferInput("QUERY", [1, 1], "BYTES")
        prompt.set_data_from_numpy(np.array([[b"Once"]], object))
        with pytest.raises(InferenceServerException, match="decoupled"):  # but the model is loaded
            client.infer({"demo": "tales", "tales": "demo"}[loaded], [prompt])
    assert states(serving) == {"demo", "tales"} - {loaded}
    assert serving.stop() == 0


def test_a_server_that_stops_ends_requests_that_wait_for_a_model(dist, tmp_path, demo_model):
    shutil.copytree(demo_model, tmp_path / "tales")
    serving = Serving(dist, tmp_path, "demo", tmp_path / "tales", "--memory-budget=30MB")
    with ThreadPoolExecutor(8) as pool:
        long = pool.submit(complete, serving, "demo", max_tokens=900, ignore_eos=True)
        waiting = [pool.submit(complete, serving, "tales") for _ in range(3)]
        waiting += [pool.submit(stream_over_grpc, serving, ["tales"]) for _ in range(3)]
        time.sleep(0.1)
        assert serving.stop() == 0
        for each in (long, *waiting):  # an answer or an error; nothing hangs
            each.exception(timeout=60)


def test_an_idle_model_leaves_and_comes_back(dist, tmp_path):
    serving = Serving(dist, tmp_path, "demo", "--idle-seconds=1")
    assert complete(serving, "demo")
    wait_for(lambda: not states(serving), "the model leaves")
    assert complete(serving, "demo") and states(serving) == {"demo"}
    assert serving.stop() == 0


def test_the_access_log_has_a_line_for_each_request_and_no_text(dist, tmp_path):
    serving = Serving(dist, tmp_path, "demo", f"--access-log={tmp_path / 'access.log'}")
    complete(serving, "demo")
    complete(serving, "demo", stream=True)
    serving.ask("demo")
    with pytest.raises(urllib.error.HTTPError):
        complete(serving, "a private name")
    assert serving.stop() == 0
    text = (tmp_path / "access.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["path"], line["status"], line.get("model")) for line in lines] == [
        ("POST", "/v1/completions", 200, "demo"), ("POST", "/v1/completions", 200, "demo"), ("POST", "/v2/models/demo/generate", 200, "demo"),
        ("POST", "/v1/completions", 404, None)]
    for line in lines[:2]:
        assert line["id"].startswith("cmpl-") and line["prompt_tokens"] == 4 and line["output_tokens"] == 8
        assert 0 < line["first_output_ms"] <= line["duration_ms"]
    assert "Once" not in text and "private" not in text
    refused = run(dist, "serve", "demo", "--access-log=/absent/file", *ANY_PORTS)
    assert refused.returncode == 1 and "--access-log: '/absent/file': No such file or directory" in refused.stderr


def test_a_budget_that_does_not_hold_a_model_is_refused(dist):
    refused = run(dist, "serve", "demo", "--memory-budget=1MB")
    assert refused.returncode == 1 and "--memory-budget: model 'demo' has weights of 24.1 MB, got 1.00 MB" in refused.stderr


def test_serve_uses_the_given_chat_template_and_name(dist, tmp_path, demo_model):
    (tmp_path / "own.jinja").write_text("Once upon {{ messages[0].content }}")
    serving = Serving(dist, tmp_path, demo_model, "--name", "teller", "--chat-template", tmp_path / "own.jinja")
    assert "/v1/chat/completions" in serving.curl
    messages = json.dumps([{"role": "user", "content": "a time"}])
    body = json.dumps({"messages": messages, "max_tokens": 8}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{serving.url}/v2/models/teller/generate", data=body), timeout=60) as reply:
        assert json.load(reply)["text_output"] == json.loads(serving.ask("teller"))["text_output"]
    assert serving.stop() == 0


def test_a_signal_while_weights_load_removes_the_folder(dist, tmp_path):
    process = subprocess.Popen([dist / "bin/nereid", "serve", "demo", *ANY_PORTS], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    for line in process.stdout:
        if line.startswith("loading weights  "):
            break
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    assert process.wait(timeout=60) in (0, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--port", "--grpc-port", "--metrics-port"])
def test_a_port_in_use_is_reported_before_anything_else(dist, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(dist, "serve", "demo", *(each for each in ANY_PORTS if not each.startswith(flag + "=")), f"{flag}={port}")
    assert ended.returncode == 1 and ended.stdout == ""
    assert str(port) in ended.stderr and f"{flag} chooses another port" in ended.stderr and ended.stderr.count("\n") == 1


@pytest.mark.parametrize("make, expected", [
    (lambda folder: None, "no such folder, and no organization/model of a hub"),
    (lambda folder: folder.mkdir(), "config.json': is missing; the folder is empty"),
    (lambda folder: (folder.mkdir(), (folder / "model.gguf").write_text("x")), "config.json': is missing; found: model.gguf"),
    (lambda folder: (folder.mkdir(), (folder / "config.json").write_text('{"model_type": "rwkv"}')), "model_type 'rwkv' is not supported"),
], ids=["absent", "empty", "gguf", "unknown"])
def test_serve_says_what_is_wrong_with_a_checkpoint(dist, tmp_path, make, expected):
    make(tmp_path / "checkpoint")
    ended = run(dist, "serve", tmp_path / "checkpoint", *ANY_PORTS)
    assert ended.returncode == 1 and expected in ended.stderr and str(tmp_path) in ended.stderr


def test_a_failed_load_is_told_once_by_its_cause(dist, tmp_path, demo_model):
    shutil.copytree(demo_model, tmp_path / "broken")
    (tmp_path / "broken/tokenizer.json").write_text("{")
    (tmp_path / "private").mkdir()
    ended = run(dist, "serve", tmp_path / "broken", *ANY_PORTS, environment={"TMPDIR": str(tmp_path / "private")})
    assert ended.returncode == 1
    cause = f"Invalid argument: tokenizer '{tmp_path}/broken/tokenizer.json': not valid JSON at byte 2"
    assert ended.stderr == f"nereid serve: {cause}\n"
    assert list((tmp_path / "private").iterdir()) == []
    asked = run(dist, "generate", tmp_path / "broken", "--prompt=x")
    assert asked.returncode == 1 and asked.stderr == f"nereid generate: {cause}\n"
    # A log file has all that was logged.
    ended = run(dist, "serve", tmp_path / "broken", *ANY_PORTS, f"--log-file={tmp_path}/log")
    assert ended.returncode == 1 and ended.stderr == f"nereid serve: {cause}\n"
    assert (tmp_path / "log").read_text().count(cause) == 3


def test_an_engine_that_is_not_installed_is_refused(dist):
    if (dist / "backends/gpu_llm").exists():
        pytest.skip("this installation has an engine for GPUs")
    ended = run(dist, "serve", "demo", "--engine=gpu", *ANY_PORTS)
    assert ended.returncode == 1 and "this installation has no engine for GPUs" in ended.stderr


def test_serve_listens_on_a_unix_socket(dist, tmp_path):
    process = subprocess.Popen([dist / "bin/nereid", "serve", "demo", f"--http-address=unix:{tmp_path}/socket", "--grpc-port=0", "--allow-metrics=false"],
                               stdout=subprocess.PIPE, text=True)
    printed = next(line for line in process.stdout if line.startswith("curl "))
    answer = subprocess.run(["bash", "-c", printed.replace("curl ", "curl -sf ")], capture_output=True, text=True, timeout=60)
    process.terminate()
    process.stdout.read()
    assert process.wait(timeout=60) == 0
    assert printed.startswith(f"curl --unix-socket {tmp_path}/socket http://localhost/v1/completions ") and json.loads(answer.stdout)["model"] == "demo"


def test_a_command_line_that_is_not_understood_ends_with_one_line(dist):
    for arguments, expected in [(["srve"], "unknown command 'srve' (did you mean 'serve'?)"), (["serve", "demo", "--prot=1"], "did you mean '--port'?"),
                                (["serve"], "expected a checkpoint"), (["serve", "demo", "--lora", "a"], "--lora: expected NAME=FOLDER"),
                                (["serve", "demo", "--speculate", "medusa=x"], "--speculate: 'medusa=x': expected medusa=FOLDER"), (["chat", "--ulr=x"], "did you mean '--url'?"),
                                (["top", "--cuont=1"], "did you mean '--count'?")]:
        ended = run(dist, *arguments)
        assert ended.returncode == 2 and expected in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
    ended = run(dist, "--grpc-prot=1")
    assert ended.returncode == 1 and "did you mean '--grpc-port'?" in ended.stderr and ended.stderr.count("\n") == 1


def test_help_is_short_and_lists_the_commands(dist):
    text = run(dist, "serve", "--help")
    assert text.returncode == 0 and text.stdout.count("\n") < 20 and "--chat-template" in text.stdout
    assert "\n  serve CHECKPOINT... " in run(dist, "--help").stdout
    alone = subprocess.run([dist / "bin/nereid"], capture_output=True, text=True, timeout=60)
    assert alone.returncode == 1 and "\n  serve CHECKPOINT... " in alone.stderr and "--model-repository PATH" in alone.stderr
    assert run(dist, "--version").stdout.startswith("nereid 0.")
    assert run(dist, "pull", "--help").returncode == run(dist, "chat", "--help").returncode == 0
    assert run(dist, "grammar", "test", "--help").stdout.startswith("usage: nereid-grammar test ")
    wrong = run(dist, "grammar", "test", "--regex=a", "--json-whitespace=few", "--tokenizer=x")
    assert wrong.returncode == 2 and "--json-whitespace: expected an integer from -1 up, got 'few'" in wrong.stderr


def test_there_are_no_commands_under_the_name_of_triton(dist):
    ended = subprocess.run([dist / "bin/tritonserver", "serve", "demo"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "unknown option 'serve'" in ended.stderr and "--help" in ended.stderr


# ---- the hub

def test_serve_downloads_once_and_then_needs_no_network(dist, tmp_path, hub, hub_environment):
    (tmp_path / "private").mkdir()
    serving = Serving(dist, tmp_path / "private", "org/story", environment=hub_environment)
    assert "model.safetensors  24.2 MB of 24.2 MB\n" in serving.output
    assert json.loads(serving.ask("story"))["num_output_tokens"] == 8
    assert serving.stop() == 0
    snapshot = tmp_path / f"hf/hub/models--org--story/snapshots/{COMMIT}"
    assert sorted(path.name for path in snapshot.iterdir()) == sorted(name for name in hub.files if name not in ("README.md", "pytorch_model.bin"))
    assert all(path.is_symlink() and path.resolve().parent.name == "blobs" for path in snapshot.iterdir())
    assert (tmp_path / "hf/hub/models--org--story/refs/main").read_text() == COMMIT
    assert (snapshot / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    hub.stop()
    serving = Serving(dist, tmp_path / "private", "org/story@main", "--name=again", environment={**hub_environment, "HF_HUB_OFFLINE": "1"})
    assert json.loads(serving.ask("again"))["num_output_tokens"] == 8
    assert serving.stop() == 0


def test_a_cut_connection_is_resumed_where_it_was_cut(dist, tmp_path, hub, hub_environment):
    hub.cuts = 2
    done = pull(dist, hub_environment)
    assert done.returncode == 0, done.stderr
    assert "trying again" in done.stderr
    assert (pathlib.Path(done.stdout.strip()) / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    size = len(hub.files["model.safetensors"])
    ranges = [headers.get("Range") for role, method, path, headers in hub.requests if role == "store" and method == "GET"]
    assert ranges == [None, f"bytes={size // 2}-", f"bytes={size // 2 + (size - size // 2) // 2}-"]
    assert not list((tmp_path / "hf").rglob("*.incomplete"))


def test_a_store_without_ranges_starts_again(dist, hub, hub_environment):
    hub.cuts, hub.has_ranges = 1, False
    done = pull(dist, hub_environment)
    assert done.returncode == 0, done.stderr
    assert (pathlib.Path(done.stdout.strip()) / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_an_earlier_process_left_a_damaged_part(dist, tmp_path, hub, hub_environment):
    blobs = tmp_path / "hf/hub/models--org--story/blobs"
    blobs.mkdir(parents=True)
    part = blobs / (hashlib.sha256(hub.files["model.safetensors"]).hexdigest() + ".incomplete")
    part.write_bytes(b"damage" * 100)
    done = pull(dist, hub_environment)
    assert done.returncode == 0 and "the download is damaged" in done.stderr, done.stderr
    assert (pathlib.Path(done.stdout.strip()) / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_damaged_contents_are_refused(dist, tmp_path, hub, hub_environment, name):
    hub.damaged = {name}
    done = pull(dist, hub_environment)
    assert done.returncode == 1 and f"{name}: the download is damaged: expected" in done.stderr, done.stderr
    assert not (tmp_path / f"hf/hub/models--org--story/snapshots/{COMMIT}/{name}").exists()


def test_a_busy_hub_is_asked_again(dist, hub, hub_environment):
    hub.failures = 1
    assert pull(dist, hub_environment).returncode == 0


def test_the_token_reaches_the_hub_and_not_the_file_store(dist, hub, hub_environment):
    hub.gated_for = "hf_right"
    assert pull(dist, {**hub_environment, "HF_TOKEN": "hf_right"}).returncode == 0
    assert all(headers.get("Authorization") == "Bearer hf_right" for role, _, _, headers in hub.of("hub"))
    assert hub.of("store") and not any("Authorization" in headers for role, _, _, headers in hub.of("store"))


def test_a_token_file_is_read(dist, tmp_path, hub, hub_environment):
    hub.gated_for = "hf_file"
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_file\n")
    assert pull(dist, hub_environment).returncode == 0


def test_what_may_not_be_read_is_explained(dist, hub, hub_environment):
    hub.gated_for = "hf_right"
    done = pull(dist, hub_environment)
    assert done.returncode == 1 and f"accept its conditions at {hub.endpoint}/org/story and set HF_TOKEN" in done.stderr
    assert "set HF_TOKEN to a token that may read it" in pull(dist, hub_environment, "org/other").stderr
    assert "the revision is 'v2'" in pull(dist, hub_environment, "org/story@v2").stderr
    done = pull(dist, {**hub_environment, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 1 and "HF_HUB_OFFLINE forbids to download it" in done.stderr
    assert "has the form organization/model" in pull(dist, hub_environment, "story").stderr


@pytest.mark.parametrize("change, expected", [
    (lambda hub: setattr(hub, "listed", ["config.json", "../../evil.json"]), "'../../evil.json', which is no path inside of the repository"),
    (lambda hub: setattr(hub, "listed", ["config.json", "/etc/evil.json"]), "'/etc/evil.json', which is no path inside of the repository"),
    (lambda hub: setattr(hub, "commit", "../../elsewhere"), "expected a commit of 40 hexadecimal digits"),
    (lambda hub: setattr(hub, "listed", ["config.json", "model.gguf"]), "found: config.json, model.gguf"),
    (lambda hub: hub.files.update({"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'}), "no safetensors file of the repository"),
], ids=["parent", "absolute", "commit", "no weights", "index"])
def test_names_that_a_hub_answers_are_not_trusted(dist, tmp_path, hub, hub_environment, change, expected):
    change(hub)
    done = pull(dist, hub_environment)
    assert done.returncode == 1 and expected in done.stderr, done.stderr
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name or "elsewhere" in path.name]


def test_a_progress_bar_is_drawn_on_a_terminal(dist, hub, hub_environment):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([dist / "bin/nereid", "pull", "org/story"], stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, **hub_environment})
    os.close(theirs)
    shown = read_terminal(ours)
    assert process.wait(timeout=60) == 0
    assert b"\rmodel.safetensors" in shown.replace(b"\x1b[K", b"") and b"[########################]" in shown
