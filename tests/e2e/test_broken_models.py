"""Models that are damaged on disk: each load fails with a message that names the damage, and a working model continues to answer."""
import json
import os
import pathlib
import shutil
import struct

import pytest

from http_request import send_http
from python_support import is_ready


def weights(model):
    return model / "1/model.safetensors"


def rewrite_header(path, change):
    """Applies `change` to the JSON header of a safetensors file. The tensor data is unchanged."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])


def edit_config(model, old, new):
    config = model / "config.pbtxt"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))


def edit_checkpoint_config(model, **fields):
    path = model / "1/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


DEEP = "[" * 40_000 + "]" * 40_000


def add_deep_field(path, field):
    path.write_text(path.read_text().rstrip().removesuffix("}") + f', "{field}": {DEEP}}}' if path.exists() else f'{{"{field}": {DEEP}}}')


def replace_by(path, make):
    path.unlink(missing_ok=True)
    make(path)


def write_deep_header(path):
    text = f'{{"{NORM}": {{"dtype": "F32", "shape": {DEEP}, "data_offsets": {DEEP}}}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


NORM = "model.layers.0.input_layernorm.weight"
# Damage -> (a change to the model's folder, words that the error must contain).
DAMAGES = {
    "missing_tensor": (lambda m: rewrite_header(weights(m), lambda h: h.update(other=h.pop(NORM))), [NORM]),
    "misshapen_tensor": (lambda m: rewrite_header(weights(m), lambda h: h[NORM].update(shape=[2, h[NORM]["shape"][0] // 2])), [NORM]),
    "unknown_dtype": (lambda m: rewrite_header(weights(m), lambda h: h[NORM].update(dtype="F17")), ["F17"]),
    "truncated_weights": (lambda m: os.truncate(weights(m), 100000), ["model.safetensors", "truncated"]),
    "empty_weights": (lambda m: os.truncate(weights(m), 0), ["model.safetensors"]),
    "header_beyond_the_file": (lambda m: weights(m).write_bytes(struct.pack("<Q", 1 << 62) + b"{}"), ["model.safetensors"]),
    "no_weights": (lambda m: weights(m).unlink(), ["model.safetensors"]),
    "no_checkpoint_config": (lambda m: (m / "1/config.json").unlink(), ["config.json"]),
    "garbled_checkpoint_config": (lambda m: (m / "1/config.json").write_text("{\"model_type\": "), ["config.json"]),
    "unknown_architecture": (lambda m: edit_checkpoint_config(m, model_type="rwkv", architectures=["RwkvForCausalLM"]), ["rwkv"]),
    "contradicting_width": (lambda m: edit_checkpoint_config(m, intermediate_size=24), ["model.layers.0.mlp"]),
    "unknown_field": (lambda m: edit_config(m, "max_batch_size:", "max_batch_sice:"), ["max_batch_sice"]),
    "unknown_data_type": (lambda m: edit_config(m, "TYPE_UINT64", "TYPE_UINT65"), ["TYPE_UINT65"]),
    "unknown_backend": (lambda m: edit_config(m, 'backend: "', 'backend: "no_such_'), ["no_such_"]),
    "negative_count": (lambda m: edit_config(m, "count: 1 kind: KIND_CPU", "count: -5 kind: KIND_CPU"), ["count", "-5"]),
    "deep_checkpoint_config": (lambda m: add_deep_field(m / "1/config.json", "eos_token_id"), ["config.json", "eos_token_id", "40001"]),
    "deep_generation_config": (lambda m: add_deep_field(m / "1/generation_config.json", "top_k"), ["generation_config.json", "top_k", "40001"]),
    "deep_header": (lambda m: write_deep_header(weights(m)), ["model.safetensors", NORM, "4000"]),
    "fifo_as_checkpoint_config": (lambda m: replace_by(m / "1/config.json", os.mkfifo), ["config.json", "FIFO"]),
    "fifo_as_weights": (lambda m: replace_by(weights(m), os.mkfifo), ["model.safetensors", "FIFO"]),
    "fifo_as_config": (lambda m: replace_by(m / "config.pbtxt", os.mkfifo), ["config.pbtxt", "FIFO"]),
    "endless_config": (lambda m: replace_by(m / "config.pbtxt", lambda path: path.symlink_to("/dev/zero")), ["config.pbtxt", "device"]),
    "no_version": (lambda m: shutil.rmtree(m / "1"), ["version"]),
}


@pytest.fixture(scope="module")
def server(start_server, dist, tmp_path_factory):
    """A server with the demo repository and one damaged copy of its engine per kind of damage, not loaded."""
    repository = tmp_path_factory.mktemp("broken") / "models"
    shutil.copytree(dist / "share/demo_repository", repository)
    for name, (damage, _) in DAMAGES.items():
        shutil.copytree(repository / "tensorrt_llm", repository / name)
        damage(repository / name)
    return start_server(repository, ["--model-control-mode=explicit", "--load-model=ensemble", "--allow-inline-models"])


def post(server, path, body=b"{}"):
    """Returns the status and the answer."""
    status, _, text = send_http(server.url + path, body)
    return status, text.decode()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_model_fails_with_a_reason_and_others_serve(server, damage):
    status, answer = post(server, f"/v2/repository/models/{damage}/load")
    message = json.loads(answer)["error"]
    assert 400 <= status < 600, answer
    assert damage in message and all(word in message for word in DAMAGES[damage][1]), message
    assert post(server, f"/v2/models/{damage}/generate", b'{"input_ids": [1]}')[0] >= 400
    request = json.dumps({"text_input": "Once upon a time", "max_tokens": 4}).encode()
    status, answer = post(server, "/v2/models/ensemble/generate", request)
    assert status == 200 and json.loads(answer)["num_output_tokens"] == 4


@pytest.mark.parametrize("config, words", [
    ('{"backend": "llm", "input": ' + DEEP + "}", "'input' is nested 40001 levels deep, limit 64"),
    ("{" + ",".join(f'"key{i}": 0' for i in range(200_000)) + "}", "and 199992 more errors"),
    ('{"backend": "python", "default_model_filename": "/tmp/model.py"}', "got '/tmp/model.py'"),
])
def test_a_hostile_override_is_refused(server, config, words):
    status, answer = post(server, "/v2/repository/models/tensorrt_llm/load", json.dumps({"parameters": {"config": config}}).encode())
    assert status == 400 and words in json.loads(answer)["error"], answer[:1000]
    assert len(answer) < 4000
    assert is_ready(server, "tensorrt_llm")


def test_weights_truncated_while_serving_fail_only_their_model(server):
    """Overwriting a file in place truncates it first, and the next step reads the missing bytes."""
    repository = pathlib.Path(next(each for each in server.process.args if "--model-repository=" in each).partition("=")[2])
    shutil.copytree(repository / "tensorrt_llm", repository / "cut")
    request = json.dumps({"input_ids": [1, 2, 3], "input_lengths": 3, "request_output_len": 4}).encode()
    assert post(server, "/v2/repository/models/cut/load")[0] == 200
    assert is_ready(server, "cut")
    status, answer = post(server, "/v2/models/cut/generate", request)
    assert status == 200, answer
    os.truncate(weights(repository / "cut"), 4096)
    status, answer = post(server, "/v2/models/cut/generate", request)
    assert status >= 400 and "model.safetensors" in json.loads(answer)["error"], answer
    assert not is_ready(server, "cut")
    assert post(server, "/v2/models/ensemble/generate", json.dumps({"text_input": "Once upon a time", "max_tokens": 4}).encode())[0] == 200
    shutil.copy(weights(repository / "tensorrt_llm"), weights(repository / "cut"))
    assert post(server, "/v2/repository/models/cut/load")[0] == 200
    assert is_ready(server, "cut")
    status, answer = post(server, "/v2/models/cut/generate", request)
    assert status == 200, answer
