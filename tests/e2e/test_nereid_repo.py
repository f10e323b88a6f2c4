"""nereid-repo with real checkpoints: its repositories are served without changes. Environment: NEREID_TEST_DATA, the folder of tiny checkpoints."""
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import numpy
import pytest
import tritonclient.grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY_VOCABULARY = 512


def run(dist, *arguments):
    return subprocess.run([dist / "bin/nereid-repo", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def tiny():
    folder = pathlib.Path(os.environ.get("NEREID_TEST_DATA", "")) / "tiny"
    if not os.environ.get("NEREID_TEST_DATA") or not folder.is_dir():
        pytest.skip("NEREID_TEST_DATA names no folder of tiny checkpoints")
    return folder


def cut_tokenizer():
    """Returns the demo's tokenizer, limited to the ids of the tiny checkpoints."""
    tokenizer = json.loads((ROOT / "demo/model/tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {token: index for token, index in model["vocab"].items() if index < TINY_VOCABULARY}
    model["merges"] = [merge for merge in model["merges"]
                       if "".join(merge if isinstance(merge, list) else merge.split(" ")) in model["vocab"]]
    return json.dumps(tokenizer)


def make_checkpoint(tiny, name, folder):
    shutil.copytree(tiny / name, folder)
    (folder / "tokenizer.json").write_text(cut_tokenizer())
    return folder


def ask(server, endpoint, **fields):
    request = urllib.request.Request(f"{server.url}/v2/models/ensemble/{endpoint}", data=json.dumps(fields).encode())
    return urllib.request.urlopen(request, timeout=60)


def streamed_text(server, **fields):
    with ask(server, "generate_stream", stream=True, **fields) as reply:
        events = [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]
    return "".join(event["text_output"] for event in events), events[-1]["finish_reason"]


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2", "gpt_bigcode", "qwen2", "gemma2", "phi3", "gpt_neox", "mixtral", "starcoder2"])
def test_repository_of_a_checkpoint_answers_complete_and_streamed(start_server, dist, tiny, tmp_path, name):
    checkpoint = make_checkpoint(tiny, name, tmp_path / "checkpoint")
    made = run(dist, "new", "llm", "--checkpoint", checkpoint, "--out", tmp_path / "repository", "--decoupled", "--backend", "cpu_reference")
    assert made.returncode == 0, made.stderr
    assert run(dist, "check", tmp_path / "repository").stdout == "4 models, no faults\n"
    server = start_server(tmp_path / "repository")
    fields = {"text_input": "He said to the man", "max_tokens": 24}
    with ask(server, "generate", **fields) as reply:
        whole = json.load(reply)
    assert whole["num_output_tokens"] == 24 or whole["finish_reason"] == "stop"
    assert streamed_text(server, **fields) == (whole["text_output"], whole["finish_reason"])
    server.stop()


@pytest.mark.parametrize("placement", ["--copy", "--link", None])
def test_repository_without_decoupling_refuses_to_stream(start_server, dist, tmp_path, placement):
    made = run(dist, "new", "llm", "--checkpoint", ROOT / "demo/model", "--out", tmp_path / "repository", "--max-batch-size=4",
               *([placement] if placement else []))
    assert made.returncode == 0, made.stderr
    server = start_server(tmp_path / "repository")
    with ask(server, "generate", text_input="Once upon a time", max_tokens=5) as reply:
        assert json.load(reply)["num_output_tokens"] == 5
    with ask(server, "generate_stream", text_input="Once upon a time", max_tokens=5) as reply:
        assert reply.read().count(b"data: ") == 1
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(server, "generate", text_input="Once upon a time", max_tokens=5, stream=True)
    assert caught.value.code == 400 and "decoupled" in json.load(caught.value)["error"]
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [2, 1], "data": ["Once upon", "The king"]},
                       {"name": "max_tokens", "datatype": "INT32", "shape": [2, 1], "data": [3, 3]}]}
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(server.url + "/v2/models/ensemble/infer", data=json.dumps(body).encode()), timeout=60)
    assert caught.value.code == 400 and "decoupled" in json.load(caught.value)["error"]
    server.stop()


@pytest.mark.parametrize("broken, expected", [
    (lambda c: (c / "tokenizer.json").unlink(), "has neither tokenizer.json nor tokenizer.model"),
    (lambda c: (c / "model.safetensors").unlink(), "has neither model.safetensors nor model.safetensors.index.json"),
    (lambda c: (c / "config.json").write_text('{"model_type": "rwkv"}'), "model_type 'rwkv' is not supported"),
    (lambda c: os.truncate(c / "model.safetensors", 100000), "is cut off"),
], ids=["tokenizer", "weights", "architecture", "truncated"])
def test_new_names_missing_files_of_a_checkpoint(dist, tmp_path, broken, expected):
    checkpoint = shutil.copytree(ROOT / "demo/model", tmp_path / "checkpoint")
    broken(checkpoint)
    made = run(dist, "new", "llm", "--checkpoint", checkpoint, "--out", tmp_path / "repository")
    assert made.returncode == 2 and expected in made.stderr and str(checkpoint) in made.stderr
    assert not (tmp_path / "repository").exists()


def test_check_finds_later_damage(dist, tmp_path):
    repository = tmp_path / "repository"
    assert run(dist, "new", "llm", "--checkpoint", ROOT / "demo/model", "--out", repository, "--copy").returncode == 0
    (repository / "tensorrt_llm/1/tokenizer.json").unlink()
    config = repository / "ensemble/config.pbtxt"
    config.write_text(config.read_text().replace('key: "runtime_top_k" ', 'key: "runtime_topk" '))
    line = 1 + next(i for i, text in enumerate(config.read_text().splitlines()) if "runtime_topk" in text)
    found = run(dist, "check", repository)
    assert found.returncode == 1
    assert f"{config}:{line}:" in found.stdout and "did you mean 'runtime_top_k'?" in found.stdout
    assert found.stdout.endswith("\n4 models, 3 errors\n")
    assert found.stdout.count("has neither tokenizer.json nor tokenizer.model") == 2
    severities = [one["severity"] for one in json.loads(run(dist, "check", repository, "--json").stdout)]
    assert severities == ["error"] * 3


def test_a_tokenizer_that_does_not_fit_is_refused_by_check_and_load(start_server, dist, tmp_path):
    checkpoint = shutil.copytree(ROOT / "demo/model", tmp_path / "checkpoint")
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    size = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    tokenizer["model"]["vocab"]["unheard"] = size + 4
    (tmp_path / "other").mkdir()
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(tokenizer))
    made = run(dist, "new", "llm", "--checkpoint", checkpoint, "--tokenizer", tmp_path / "other", "--out", tmp_path / "repository",
               "--backend", "cpu_reference")
    sizes = f"the tokenizer has ids up to {size + 4}, the checkpoint's vocab_size is {size}"
    assert made.returncode == 1 and sizes in made.stderr
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = tmp_path / "repository/preprocessing/config.pbtxt"
    config.write_text(config.read_text().replace(str(tmp_path / "other"), str(checkpoint)))
    server = start_server(tmp_path / "repository", ["--model-control-mode=explicit"])
    for model in ("preprocessing", "tensorrt_llm"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{model}/load", data=b"{}"), timeout=60)
        assert sizes in json.load(caught.value)["error"]
    server.stop()


def test_ensembles_that_call_each_other_are_refused_by_check_and_load(start_server, dist, tmp_path):
    repository = shutil.copytree(ROOT / "tests/repo_templates/repositories/ensemble_cycle", tmp_path / "repository")
    found = run(dist, "check", repository)
    assert found.returncode == 1 and "ensemble 'left' calls itself: left -> right -> left" in found.stdout
    server = start_server(repository, ["--model-control-mode=explicit"])
    for model in ("left", "right", "own"):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{model}/load", data=b"{}"), timeout=60)
    server.stop()


def test_new_llm_prints_the_command_that_serves_the_repository(dist, tmp_path):
    made = run(dist, "new", "llm", "--checkpoint", ROOT / "demo/model", "--out", tmp_path / "repository")
    assert made.stdout.splitlines()[0] == str(tmp_path / "repository")
    assert made.stdout.splitlines()[1] == f"next: {(dist / 'bin/nereid').resolve()} --model-repository={tmp_path / 'repository'}"


@pytest.fixture(scope="module")
def decoupled(start_server, dist, tmp_path_factory):
    root = tmp_path_factory.mktemp("decoupled") / "repository"
    assert run(dist, "new", "llm", "--checkpoint", ROOT / "demo/model", "--out", root, "--decoupled", "--backend", "cpu_reference").returncode == 0
    return start_server(root)


def test_an_answer_says_that_max_tokens_was_cut(decoupled):
    prompt = "Once upon a time " * 200
    with ask(decoupled, "generate", text_input=prompt, max_tokens=5000) as reply:
        answer = json.load(reply)
    length = answer["num_output_tokens"]
    assert answer["finish_reason"] == "length" and answer["num_input_tokens"] + length == 1024
    assert answer["stop_reason"] == f"max_tokens 5000 was cut to {length}: the model's limit is 1024 tokens, prompt and output together"
    with ask(decoupled, "generate", text_input=prompt, max_tokens=2) as reply:
        assert json.load(reply)["stop_reason"] == ""


def test_several_prompts_of_one_request_are_answered_one_by_one(decoupled):
    prompts = ["Once upon a time", "The king said to the"]
    single = []
    for prompt in prompts:
        with ask(decoupled, "generate", text_input=prompt, max_tokens=6) as reply:
            single.append(json.load(reply)["text_output"])
    inputs = [tritonclient.grpc.InferInput("text_input", [2, 1], "BYTES"), tritonclient.grpc.InferInput("max_tokens", [2, 1], "INT32")]
    inputs[0].set_data_from_numpy(numpy.array([[prompt.encode()] for prompt in prompts], object))
    inputs[1].set_data_from_numpy(numpy.array([[6], [6]], numpy.int32))
    texts = {}
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{decoupled.grpc}") as client:
        client.start_stream(lambda result, error: texts.update({"error": error} if error else {
            int(result.as_numpy("batch_index").item()): result.as_numpy("text_output").item().decode()}))
        client.async_stream_infer("ensemble", inputs)
        client.stop_stream()
    assert texts == dict(enumerate(single))


def test_an_unknown_command_is_named_in_one_line(dist):
    assert run(dist, "chek", "x").stderr == "nereid-repo: unknown command 'chek' (did you mean 'check'?); known: new, check, tables\n"
    assert run(dist, "new", "lm").stderr.startswith("nereid-repo: new: unknown command 'lm' (did you mean 'llm'?)")


def test_new_backend_makes_a_renamed_copy(dist, tmp_path):
    made = run(dist, "new", "backend", "image_resizer", "--out", tmp_path / "out")
    assert made.returncode == 0 and "next: cmake -S" in made.stdout, made.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["CMakeLists.txt", "config.pbtxt", "image_resizer.cc"]


def test_usage_errors_end_with_2(dist, tmp_path):
    assert run(dist).returncode == 2
    assert run(dist, "--help").returncode == 0
    assert run(dist, "check", tmp_path / "absent").returncode == 2
    assert "models' folders" in run(dist, "check", tmp_path / "absent").stderr
    assert "new inflight: takes no option '--max-beam-width'" in run(dist, "new", "inflight", "--max-beam-width", "4").stderr
    assert run(dist, "tables", "--json").stderr == "nereid-repo: tables: takes no option '--json'; known: none\n"
    assert "did you mean '--checkpoint'" in run(dist, "new", "llm", "--checkpiont", "x").stderr
