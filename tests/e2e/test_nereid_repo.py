"""nereid-repo with real checkpoints: its repositories are served without changes. Environment: NEREID_TEST_DATA, the folder of tiny checkpoints."""
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

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
    assert run(dist, "check", tmp_path / "repository").stdout == ""
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
    assert found.stdout.count("has neither tokenizer.json nor tokenizer.model") == 2
    severities = [one["severity"] for one in json.loads(run(dist, "check", repository, "--json").stdout)]
    assert severities == ["error"] * 3


def test_usage_errors_end_with_2(dist, tmp_path):
    assert run(dist).returncode == 2
    assert run(dist, "--help").returncode == 0
    assert run(dist, "check", tmp_path / "absent").returncode == 2
    assert "did you mean '--checkpoint'" in run(dist, "new", "llm", "--checkpiont", "x").stderr
