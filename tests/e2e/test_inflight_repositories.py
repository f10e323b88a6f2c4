"""Repositories of all releases of TensorRT-LLM for the demo model: filled by the command lines of the releases' documents or made by `nereid-repo new
inflight`, served, and asked through the ensemble and through tensorrt_llm_bls with KServe clients."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import numpy
import pytest
import tritonclient.grpc
from tested_engine import ENGINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "demo/model"
TEMPLATES = ROOT / "repo_templates/inflight_batcher_llm"
PROMPT = "Once upon a time there was a little girl who"
GOLDEN = " was so beautiful that she was quite frightened"  # eight tokens, greedy
GENERATIONS = ["0.5", "0.9", "0.13", "0.18", "main"]
# As in the README of each release: placeholders that the release did not have yet stay.
COMMAND_LINES = {
    "preprocessing": "tokenizer_dir:{checkpoint},tokenizer_type:auto,triton_max_batch_size:4,preprocessing_instance_count:1",
    "postprocessing": "tokenizer_dir:{checkpoint},tokenizer_type:auto,triton_max_batch_size:4,postprocessing_instance_count:1",
    "tensorrt_llm": "triton_backend:tensorrtllm,triton_max_batch_size:4,decoupled_mode:True,max_beam_width:1,engine_dir:{checkpoint},"
                    "max_tokens_in_paged_kv_cache:2560,max_attention_window_size:2560,kv_cache_free_gpu_mem_fraction:0.5,exclude_input_in_output:True,"
                    "enable_kv_cache_reuse:False,batching_strategy:inflight_fused_batching,max_queue_delay_microseconds:0",
    "ensemble": "triton_max_batch_size:4",
    "tensorrt_llm_bls": "triton_max_batch_size:4,decoupled_mode:True,bls_instance_count:1,accumulate_tokens:False",
}


# The chain of tensorrt_llm_bls as a Python model, with what the tests send. The dataclass has a default that Python refuses from 3.11 on, as the models
# of releases 0.9 to 0.13 have.
PYTHON_CHAIN = '''
from dataclasses import dataclass

import numpy as np
import triton_python_backend_utils as pb_utils


@dataclass
class Names:
    absent: np.ndarray = np.array([])


class TritonPythonModel:
    def call(self, model, inputs, outputs):
        request = pb_utils.InferenceRequest(model_name=model, inputs=[pb_utils.Tensor(name, value) for name, value in inputs.items()],
                                            requested_output_names=outputs)
        for response in request.exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            if response.output_tensors():
                yield {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}

    def execute(self, requests):
        assert Names().absent.size == 0
        for request in requests:
            given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            prepared = next(self.call("preprocessing", {"QUERY": given["text_input"], "REQUEST_OUTPUT_LEN": given["max_tokens"]},
                                      ["INPUT_ID", "REQUEST_INPUT_LEN", "OUT_END_ID"]))
            inputs = {"input_ids": prepared["INPUT_ID"], "input_lengths": prepared["REQUEST_INPUT_LEN"], "request_output_len": given["max_tokens"],
                      "end_id": prepared["OUT_END_ID"], "streaming": given.get("stream", np.array([[False]]))}
            sender = request.get_response_sender()
            for part in self.call("tensorrt_llm", inputs, ["output_ids", "sequence_length"]):
                text = next(self.call("postprocessing", {"TOKENS_BATCH": part["output_ids"], "SEQUENCE_LENGTH": part["sequence_length"]}, ["OUTPUT"]))
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text["OUTPUT"])]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''


def fill(file, substitutions, *flags):
    return subprocess.run([sys.executable, TEMPLATES / "tools/fill_template.py", *flags, file, substitutions], capture_output=True, text=True)


def ask(server, model, endpoint="generate", **fields):
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/{endpoint}", data=json.dumps(fields).encode())
    return urllib.request.urlopen(request, timeout=60).read().decode()


def stream(server, model, **fields):
    """The texts of a stream."""
    return [json.loads(line[6:])["text_output"] for line in ask(server, model, "generate_stream", stream=True, **fields).split("\n\n") if line]


def make_generation(dist, out, generation, *flags):
    made = subprocess.run([dist / "bin/nereid-repo", "new", "inflight", "--generation", generation, "--checkpoint", CHECKPOINT, "--out", out,
                           "--backend", ENGINE, *flags], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture(scope="module")
def filled(start_server, tmp_path_factory):
    """The templates, filled by the documents' command lines. A second BLS model accumulates tokens, a third one is not decoupled, and a fourth one drafts
    with a model that often differs from its target, because it sees only the last tokens."""
    root = tmp_path_factory.mktemp("inflight") / "models"
    shutil.copytree(TEMPLATES, root, ignore=shutil.ignore_patterns("tools"))
    for name, config in {"accumulating": "decoupled_mode:True,accumulate_tokens:True", "whole": "decoupled_mode:False,accumulate_tokens:",
                         "drafting": "decoupled_mode:True,accumulate_tokens:False,tensorrt_llm_draft_model_name:narrow"}.items():
        shutil.copytree(root / "tensorrt_llm_bls", root / name)
        file = root / name / "config.pbtxt"
        file.write_text(file.read_text().replace('name: "tensorrt_llm_bls"', f'name: "{name}"'))
        assert fill(file, f"triton_max_batch_size:4,bls_instance_count:1,{config}", "-i").returncode == 0
    shutil.copytree(root / "tensorrt_llm_bls", root / "python_chain")
    file = root / "python_chain/config.pbtxt"
    file.write_text(file.read_text().replace('name: "tensorrt_llm_bls"', 'name: "python_chain"').replace('backend: "bls"', 'backend: "python"'))
    (root / "python_chain/1/model.py").write_text(PYTHON_CHAIN)
    assert fill(file, COMMAND_LINES["tensorrt_llm_bls"], "-i").returncode == 0
    shutil.copytree(root / "tensorrt_llm", root / "narrow")
    file = root / "narrow/config.pbtxt"
    file.write_text(file.read_text().replace('name: "tensorrt_llm"', 'name: "narrow"'))
    line = COMMAND_LINES["tensorrt_llm"].format(checkpoint=CHECKPOINT).replace("max_attention_window_size:2560", "max_attention_window_size:4")
    assert fill(file, line, "-i").returncode == 0
    for model, line in COMMAND_LINES.items():
        done = fill(root / model / "config.pbtxt", line.format(checkpoint=CHECKPOINT), "--in_place")
        assert done.returncode == 0 and not done.stdout, done.stderr
    return start_server(root)


def test_the_ensemble_and_the_bls_model_give_the_same_text(filled):
    answers = {model: json.loads(ask(filled, model, text_input=PROMPT, max_tokens=12, bad_words="", stop_words=""))
               for model in ("ensemble", "tensorrt_llm_bls", "whole", "accumulating")}
    texts = {answer["text_output"] for answer in answers.values()}
    assert len(texts) == 1 and texts.pop().startswith(GOLDEN), answers


def test_a_python_chain_gives_the_text_and_the_stream_of_the_native_one(filled):
    fields = {"text_input": PROMPT, "max_tokens": 12}
    assert json.loads(ask(filled, "python_chain", **fields))["text_output"] == json.loads(ask(filled, "tensorrt_llm_bls", **fields))["text_output"]
    assert stream(filled, "python_chain", **fields) == stream(filled, "tensorrt_llm_bls", **fields)


def test_streams_of_the_bls_model_are_those_of_the_ensemble(filled):
    texts = stream(filled, "ensemble", text_input=PROMPT, max_tokens=12)
    assert len(texts) > 3 and stream(filled, "tensorrt_llm_bls", text_input=PROMPT, max_tokens=12) == texts


def test_accumulated_texts_grow_to_the_whole_text(filled):
    texts = stream(filled, "tensorrt_llm_bls", text_input=PROMPT, max_tokens=12)
    sums = ["".join(texts[:i + 1]) for i in range(len(texts))]
    assert stream(filled, "accumulating", text_input=PROMPT, max_tokens=12) == sums


def test_a_model_that_is_not_decoupled_refuses_a_stream(filled):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(filled, "whole", text_input=PROMPT, max_tokens=12, stream=True)
    assert caught.value.code == 400 and "'whole' sends one response" in caught.value.read().decode()


@pytest.mark.parametrize("more", [{}, {"top_k": 50, "temperature": 1.5, "random_seed": 3}, {"stop_words": " frightened"}, {"min_length": 20},
                                  {"repetition_penalty": 1.5, "bad_words": " beautiful"}])
def test_a_text_with_draft_tokens_is_that_without(filled, more):
    fields = {"text_input": PROMPT, "max_tokens": 24, "return_log_probs": True, **more}
    plain = json.loads(ask(filled, "drafting", **fields))
    drafted = json.loads(ask(filled, "drafting", num_draft_tokens=4, use_draft_logits=True, **fields))
    if ENGINE != "cpu_reference":  # what was drafted is computed as a prompt, with other last bits, and one of two nearly equal tokens may be taken
        assert len(os.path.commonprefix([drafted["text_output"], plain["text_output"]])) > 10
        assert drafted["output_log_probs"][:2] == pytest.approx(plain["output_log_probs"][:2], abs=0.05)
        return
    assert drafted["text_output"] == plain["text_output"] and len(plain["text_output"]) > 10
    assert drafted["output_log_probs"] == pytest.approx(plain["output_log_probs"], abs=1e-4)
    assert drafted["cum_log_probs"] == pytest.approx(plain["cum_log_probs"], abs=1e-3)


@pytest.mark.parametrize("more, text", [({"stream": True}, "'stream' is true"), ({"beam_width": 2}, "'beam_width' is 2"),
                                        ({"num_draft_tokens": -1}, "expected 0 or more, got -1")])
def test_what_draft_tokens_exclude_is_refused_by_name(filled, more, text):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(filled, "drafting", **{"text_input": PROMPT, "max_tokens": 8, "num_draft_tokens": 2, **more})
    assert caught.value.code == 400 and text in caught.value.read().decode()


@pytest.mark.parametrize("field, value", [("num_draft_tokens", 4), ("use_draft_logits", True)])
def test_what_no_called_model_has_is_refused_by_name(filled, field, value):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(filled, "tensorrt_llm_bls", text_input=PROMPT, max_tokens=2, **{field: value})
    assert f"input '{field}'" in caught.value.read().decode()
    assert json.loads(ask(filled, "tensorrt_llm_bls", text_input=PROMPT, max_tokens=2, **{field: type(value)(0)}))["text_output"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_each_release_is_served_to_its_clients(start_server, dist, tmp_path, generation):
    server = start_server(make_generation(dist, tmp_path / "models", generation, "--decoupled"))
    integer = "UINT32" if generation == "0.5" else "INT32"
    values = {"text_input": ("BYTES", PROMPT.encode()), "max_tokens": (integer, 8), "stream": ("BOOL", True)}
    if generation == "0.5":
        values |= {"bad_words": ("BYTES", b""), "stop_words": ("BYTES", b"")}
    inputs = []
    for name, (data_type, value) in values.items():
        tensor = numpy.array([[value]], dtype=tritonclient.utils.triton_to_np_dtype(data_type))
        inputs.append(tritonclient.grpc.InferInput(name, tensor.shape, data_type))
        inputs[-1].set_data_from_numpy(tensor)
    models = ["ensemble"] + (["tensorrt_llm_bls"] if generation != "0.5" else [])
    for model in models:
        results = []
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            client.start_stream(lambda result, error: results.append(error or result))
            client.async_stream_infer(model, inputs)
            client.stop_stream()
        texts = [result.as_numpy("text_output") for result in results]
        # Until 0.13 every response has the number of its row, and clients of that time read it.
        assert [result.as_numpy("batch_index") is not None for result in results] == [generation == "0.13"] * len(results)
        assert b"".join(text.ravel()[0] for text in texts).decode() == GOLDEN and len(texts) >= 8, texts


@pytest.mark.parametrize("generation, adds", [("0.9", False), ("0.13", True)])
def test_special_tokens_are_added_as_each_release_does_by_default(start_server, dist, tmp_path, generation, adds):
    """Where `add_special_tokens` is not filled in, releases 0.7 to 0.11 add none."""
    tokenizer = pathlib.Path(os.environ.get("NEREID_TEST_DATA", "")) / "tokenizers/llama3"
    if not tokenizer.is_dir():
        pytest.skip("NEREID_TEST_DATA names no folder of tokenizers")
    model = make_generation(dist, tmp_path / "made", generation) / "preprocessing"
    config = (model / "config.pbtxt").read_text()
    config = re.sub(r'(key: "add_special_tokens" value { string_value: )"\w+"', r'\1"${add_special_tokens}"', config)
    (model / "config.pbtxt").write_text(config.replace(str(CHECKPOINT), str(tokenizer)))
    shutil.copytree(model, tmp_path / "models/preprocessing")
    server = start_server(tmp_path / "models")
    answer = json.loads(ask(server, "preprocessing", "infer", inputs=[
        {"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello"]},
        {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [8]}], outputs=[{"name": "INPUT_ID"}]))
    assert (answer["outputs"][0]["data"][0] == 128000) == adds, answer


def test_a_postprocessing_model_of_0_5_decodes_whole_rows(start_server, dist, tmp_path):
    """NVIDIA's template of that release has no SEQUENCE_LENGTH."""
    made = make_generation(dist, tmp_path / "made", "0.5")
    config = (made / "postprocessing/config.pbtxt").read_text()
    shutil.copytree(made / "postprocessing", tmp_path / "models/postprocessing")
    (tmp_path / "models/postprocessing/config.pbtxt").write_text("\n".join(line for line in config.split("\n") if "SEQUENCE_LENGTH" not in line))
    checked = subprocess.run([dist / "bin/nereid-repo", "check", tmp_path / "models"], capture_output=True, text=True)
    assert checked.stdout == "1 model, no faults\n"
    server = start_server(tmp_path / "models")
    texts = []
    for ids in ([500], [500, 501]):
        tokens = {"name": "TOKENS_BATCH", "datatype": "INT32", "shape": [1, 1, len(ids)], "data": ids}
        texts.append(json.loads(ask(server, "postprocessing", "infer", inputs=[tokens]))["outputs"][0]["data"][0])
    assert texts[1].startswith(texts[0]) and len(texts[1]) > len(texts[0]) > 0


def test_an_unknown_release_is_refused(dist, tmp_path):
    made = subprocess.run([dist / "bin/nereid-repo", "new", "inflight", "--generation", "0.14", "--checkpoint", CHECKPOINT, "--out", tmp_path / "out"],
                          capture_output=True, text=True)
    assert made.returncode == 2 and "expected 0.5, 0.9, 0.13, 0.18 or main, got '0.14'" in made.stderr and not (tmp_path / "out").exists()


def test_fill_template_takes_the_values_that_the_documents_give(tmp_path):
    file = tmp_path / "config.pbtxt"
    file.write_text('a: "${a}" b: "${b}" c: "${c}" queue: ${max_queue_size} # costs $5\n')
    done = fill(file, r"a:1\,2\:3,b:http://host:8000/x")
    assert done.stdout == 'a: "1,2:3" b: "http://host:8000/x" c: "${c}" queue: 0 # costs $5\n' and not done.stderr
    assert "no placeholder 'aa'; did you mean 'a'?" in fill(file, "aa:1", "-i").stderr
    assert file.read_text().endswith("queue: 0 # costs $5\n")


@pytest.mark.parametrize("substitutions", ["a", ":x", "a:1,b"])
def test_fill_template_refuses_what_is_no_pair(tmp_path, substitutions):
    file = tmp_path / "config.pbtxt"
    file.write_text("a: ${a}")
    done = fill(file, substitutions, "-i")
    assert done.returncode == 1 and "expected NAME:VALUE" in done.stderr and file.read_text() == "a: ${a}"
    assert "No such file" in fill(tmp_path / "absent", "a:1").stderr


def test_launch_triton_server_starts_one_process_under_the_known_name(tmp_path):
    """A program in place of the server writes down its name, its arguments and its GPUs."""
    server = tmp_path / "tritonserver"
    server.write_text('#!/bin/sh\necho "$0" "$@" "gpus=$NEREID_GPU_DEVICE_IDS" > "$(dirname "$0")/called"\n')
    server.chmod(0o755)
    done = subprocess.run([sys.executable, TEMPLATES / "tools/launch_triton_server.py", "--world_size", "2", "--tritonserver", server, "--model_repo", tmp_path,
                           "--http_port", "7000", "--oversubscribe", "--log", "--force"], capture_output=True, text=True)
    assert done.returncode == 0 and "--oversubscribe has no effect: there is no mpirun" in done.stderr, done.stderr
    called = (tmp_path / "called").read_text()
    for part in ("/tritonserver ", f"--model-repository={tmp_path}", "--http-port=7000", "--grpc-port=8001", "--log-verbose=3", "gpus=0,1"):
        assert part in called
    refused = subprocess.run([sys.executable, TEMPLATES / "tools/launch_triton_server.py", "--model_repo", tmp_path / "absent"], capture_output=True, text=True)
    assert refused.returncode == 2 and "is not a folder" in refused.stderr
