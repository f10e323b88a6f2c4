"""LoRA adapters: by name, from a folder that is watched, as tensors of TensorRT-LLM, and as models of OpenAI's API."""
import json
import pathlib
import shutil
import struct
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http as httpclient
from serve_process import Serving, run
from tritonclient.utils import InferenceServerException
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo" / "model"
LAYERS, HIDDEN, Q, KV, INNER, RANK = 7, 384, 384, 128, 960, 4
# Name in PEFT's files, number of TensorRT-LLM, outputs, inputs.
MODULES = [("self_attn.q_proj", 1, Q, HIDDEN), ("self_attn.v_proj", 3, KV, HIDDEN), ("self_attn.o_proj", 4, HIDDEN, Q), ("mlp.gate_proj", 5, INNER, HIDDEN),
           ("mlp.down_proj", 6, HIDDEN, INNER), ("mlp.up_proj", 7, INNER, HIDDEN)]
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18, 90, 61, 5, 14, 77, 39, 120, 8, 44, 99, 10, 3, 71, 55, 23, 42, 17, 66, 81, 29, 6, 200, 31, 9, 111, 48]


def matrices(seed):
    """A and B of each module and layer."""
    rng = np.random.default_rng(seed)
    for layer in range(LAYERS):
        for name, number, rows, columns in MODULES:
            yield layer, name, number, (rng.standard_normal((RANK, columns)) * 0.1).astype(np.float16), (rng.standard_normal((rows, RANK)) * 0.1).astype(np.float16)


def write_adapter(folder, seed, **config):
    """PEFT's files. lora_alpha equals the rank, so that the scale is 1."""
    tensors = {}
    for layer, name, _, a, b in matrices(seed):
        module = f"base_model.model.model.layers.{layer}.{name}"
        tensors[module + ".lora_A.weight"], tensors[module + ".lora_B.weight"] = a, b
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F16", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": "all-linear", **config}))
    (folder / "new").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in tensors.values()))
    (folder / "new").rename(folder / "adapter_model.safetensors")  # a file that is replaced, not written in place


def task_tensors(seed):
    rows = [(number, layer, np.concatenate([a.ravel(), b.ravel()])) for layer, _, number, a, b in matrices(seed)]
    weights = np.zeros((len(rows), max(len(values) for _, _, values in rows)), np.float16)
    for row, (_, _, values) in zip(weights, rows):
        row[:len(values)] = values
    return {"lora_weights": weights, "lora_config": np.array([[number, layer, RANK] for number, layer, _ in rows], np.int32)}


@pytest.fixture(scope="module")
def llm(start_server, tmp_path_factory):
    root, folder = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("adapters")
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "demo"
    shutil.copytree(DEMO, checkpoint)
    write_adapter(folder / "listed", 1)
    prefetched = tmp_path_factory.mktemp("tasks")
    (prefetched / "77").mkdir()
    for name, values in task_tensors(1).items():  # as TensorRT-LLM's converters write them
        np.save(prefetched / f"77/model.{name}.npy", values[None])
    (prefetched / "broken").mkdir()
    (root / "llm/1").mkdir(parents=True)
    parameters = {"gpt_model_path": checkpoint, "max_seq_len": 128, "enable_kv_cache_reuse": "true", "exclude_input_in_output": "true",
                  "lora_adapters": f"fixed={folder / 'listed'}", "lora_dir": folder, "lora_prefetch_dir": prefetched, "lora_cache_host_memory_bytes": 1 << 20, "stats_check_period_ms": 0}
    (root / "llm/config.pbtxt").write_text('backend: "cpu_reference"\nmax_batch_size: 0\n' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters.items()))
    server = start_server(root)
    server.adapters = folder
    return server


def ask(llm, name=None, parameter=None, task=None, **tensors):
    """The output ids, and the number of prompt tokens that were in the cache."""
    values = {"input_ids": np.array(PROMPT, np.int32), "input_lengths": np.array([len(PROMPT)], np.int32), "request_output_len": np.array([8], np.int32), **tensors}
    if task is not None:
        values["lora_task_id"] = np.array([task], np.uint64)
    inputs = []
    for key, value in values.items():
        inputs.append(httpclient.InferInput(key, value.shape, {"int32": "INT32", "uint64": "UINT64", "float16": "FP16"}[str(value.dtype)]).set_data_from_numpy(value))
    if name is not None:
        inputs.append(httpclient.InferInput("lora_name", [1], "BYTES").set_data_from_numpy(np.array([name.encode()], object)))
    with httpclient.InferenceServerClient(llm.url.removeprefix("http://")) as client:
        answer = client.infer("llm", inputs, parameters={"lora_name": parameter} if parameter else None)
    return answer.as_numpy("output_ids").ravel().tolist(), answer.as_numpy("num_cached_tokens").item()


def error_of(llm, **request):
    with pytest.raises(InferenceServerException) as caught:
        ask(llm, **request)
    return caught.value.message()


def test_an_adapter_is_used_by_name_and_has_prefixes_of_its_own(llm):
    plain, _ = ask(llm)
    adapted, cached = ask(llm, name="listed")
    assert adapted != plain and cached == 0
    assert ask(llm, name="listed") == (adapted, 32) and ask(llm, parameter="listed") == (adapted, 32)
    assert ask(llm, name="fixed") == (adapted, 0)  # the same files, loaded as another adapter
    assert ask(llm)[0] == plain and ask(llm, name="")[0] == plain
    assert "LoRA adapter 'other' is not known; adapters: 'fixed', 'listed'" in error_of(llm, name="other")
    with urllib.request.urlopen(f"http://127.0.0.1:{llm.metrics}/metrics", timeout=60) as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith("vllm:lora_requests_info{")]
    assert len(lines) == 1 and 'max_lora="64"' in lines[0] and 'running_lora_adapters=""' in lines[0] and 'waiting_lora_adapters=""' in lines[0]


def test_a_watched_folder_loads_replaces_and_unloads(llm):
    write_adapter(llm.adapters / "later", 2)
    names = lambda: error_of(llm, name="?").rpartition("adapters: ")[2]
    wait_for(lambda: "'later'" in names(), "the new adapter")
    first, _ = ask(llm, name="later")
    write_adapter(llm.adapters / "later", 3)
    wait_for(lambda: ask(llm, name="later")[0] != first, "the replaced adapter")
    shutil.rmtree(llm.adapters / "later")
    wait_for(lambda: "'later'" not in names(), "the adapter is unloaded")
    write_adapter(llm.adapters / "broken", 2, use_dora=True)
    wait_for(lambda: "LoRA adapter 'broken' in" in llm.text() and "'use_dora' is true: not supported" in llm.text(), "the line of the broken adapter")


def test_tensors_of_tensorrt_llm_stay_in_the_cache(llm):
    expected, _ = ask(llm, name="listed")
    assert ask(llm, task=77)[0] == expected
    assert "broken' is no LoRA task: expected a number" in llm.text()
    assert error_of(llm, task=1).endswith("LoRA task 1 not found in cache. Please send LoRA weights with request")
    assert ask(llm, task=1, **task_tensors(1))[0] == expected
    assert ask(llm, task=1)[0] == expected
    assert ask(llm, task=0)[0] == ask(llm)[0]
    for task in range(2, 6):  # each takes 340 kB of 1 MiB
        ask(llm, task=task, **task_tensors(task))
    assert "LoRA task 1 not found in cache" in error_of(llm, task=1)
    wrong = task_tensors(1)
    wrong["lora_config"][3, 0] = 9
    assert "row 3, cross_attn_q of layer 0: this model has no such module" in error_of(llm, task=30, **wrong)
    wrong["lora_config"][3] = (1, 0, 65)
    assert "row 3, attn_q of layer 0: rank 65, expected 1 to 64 (lora_cache_max_adapter_size)" in error_of(llm, task=30, **wrong)
    wrong["lora_config"][3] = (1, 7, 4)
    assert "row 3, attn_q of layer 7: expected a layer from 0 to 6" in error_of(llm, task=30, **wrong)
    assert "'lora_weights' needs 'lora_task_id'" in error_of(llm, **task_tensors(1))
    assert "'lora_name' 'listed' and the tensors of a LoRA task" in error_of(llm, name="listed", task=1)


def post(url, **body):
    request = urllib.request.Request(url, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def refusal(url, **body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, **body)
    return caught.value.code, json.load(caught.value)["error"]["message"]


def test_serve_makes_each_adapter_a_model(dist, tmp_path):
    write_adapter(tmp_path / "adapters/style", 1)
    (tmp_path / "private").mkdir()
    assert "--lora: '/none': no such folder" in run(dist, "serve", "demo", "--lora", "x=/none").stderr
    serving = Serving(dist, tmp_path / "private", "demo", "--engine=cpu", "--lora", f"style={tmp_path}/adapters/style")
    assert f"adapter   style: {tmp_path}/adapters/style\n" in serving.output
    with urllib.request.urlopen(f"{serving.url}/v1/models", timeout=60) as reply:
        models = {model["id"]: model.get("parent") for model in json.load(reply)["data"]}
    assert models == {"demo": None, "style": "demo"}
    url, fields = f"{serving.url}/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    plain, style = post(url, model="demo", **fields), post(url, model="style", **fields)
    assert style["model"] == "style" and style["choices"][0]["text"] != plain["choices"][0]["text"]
    assert post(url, model="demo", lora_name="style", **fields)["choices"][0]["text"] == style["choices"][0]["text"]
    assert refusal(url, model="none", **fields) == (404, "the model 'none' does not exist; models: 'demo', 'style'")
    status, message = refusal(url, model="demo", lora_name="none", **fields)
    assert status == 400 and message.endswith("LoRA adapter 'none' is not known; adapters: 'style'")
    assert refusal(url, model="style", lora_name="style", **fields)[0] == 400
    check_changes(serving.url, tmp_path / "adapters", plain, style, fields)
    assert serving.stop() == 0


def change(url, action, **body):
    request = urllib.request.Request(f"{url}/v1/{action}_lora_adapter", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode()


def check_changes(url, folder, plain, style, fields):
    """Loads and unloads adapters of a server that runs, by the routes of vLLM."""
    completions, load, unload = (f"{url}/v1/{route}" for route in ("completions", "load_lora_adapter", "unload_lora_adapter"))
    text = lambda model: post(completions, model=model, **fields)["choices"][0]["text"]
    names = lambda: [model["id"] for model in json.load(urllib.request.urlopen(f"{url}/v1/models", timeout=60))["data"]]
    style = style["choices"][0]["text"]
    write_adapter(folder / "other", 2)
    assert change(url, "load", lora_name="late", lora_path=f"{folder}/style") == "Success: LoRA adapter 'late' added successfully."
    assert names() == ["demo", "style", "late"] and text("late") == style
    assert refusal(load, lora_name="late", lora_path=f"{folder}/other") == (
        400, "The lora adapter 'late' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.")
    change(url, "load", lora_name="late", lora_path=f"{folder}/other", load_inplace=True, model="demo")
    other = text("late")
    assert other not in (style, plain["choices"][0]["text"])
    assert change(url, "unload", lora_name="late", lora_int_id=1) == "Success: LoRA adapter 'late' removed successfully."
    change(url, "unload", lora_name="style")  # also one of the command line
    assert names() == ["demo"] and refusal(completions, model="style", **fields)[0] == 404
    assert refusal(unload, lora_name="late") == (404, "The lora adapter 'late' cannot be found.")
    status, message = refusal(load, lora_name="late", lora_path=f"{folder}/none")
    assert status == 404 and f"LoRA adapter 'late' in '{folder}/none'" in message
    assert refusal(load, lora_name="demo", lora_path=f"{folder}/other") == (400, "The lora adapter name 'demo' conflicts with a served model.")
    assert refusal(load, lora_name="../x", lora_path=f"{folder}/other")[0] == 400
    assert refusal(load, lora_name="x", lora_path=f"{folder}/other", model="none")[1].endswith("expected a language model that takes LoRA adapters: 'demo'")
    assert refusal(load, lora_name="x") == (400, "lora_path: this field is required")
    # No client can send the command itself.
    command = {"text_input": "x", "max_tokens": 1, "parameters": {"triton_lora_command": True, "triton_lora_name": "x", "triton_lora_path": f"{folder}/other"}}
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{url}/v2/models/demo/generate", **command)
    assert caught.value.code == 400
    assert names() == ["demo"] and change(url, "load", lora_name="style", lora_path=f"{folder}/style") and text("style") == style


def test_the_editor_of_the_demo_model_edits_as_with_peft(dist, tmp_path):
    """demo/editor, with and without draft tokens; PEFT computed the expected texts (tools/demo_model/make_golden.py)."""
    edits = json.loads((ROOT / "tests/data/demo_editor_golden.json").read_text())["prompts"]
    for speculation in ("off", "auto"):
        (folder := tmp_path / speculation).mkdir()
        serving = Serving(dist, folder, "demo", "--engine=cpu", "--lora", f"editor={ROOT / 'demo/editor'}", "--speculate", speculation)
        try:
            for edit in edits:
                body = {"model": "editor", "prompt": edit["text"], "max_tokens": 256, "temperature": 0}
                request = urllib.request.Request(f"{serving.url}/v1/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as reply:
                    choice = json.load(reply)["choices"][0]
                assert (choice["text"], choice["finish_reason"]) == (edit["greedy_text"], "stop")
        finally:
            serving.stop()
