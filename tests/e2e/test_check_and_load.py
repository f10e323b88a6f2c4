"""What `nereid-repo check` passes, loads, and what it refuses, does not: one repository with a model for each kind of fault, checked once and loaded
model by model."""
import json
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo/model"
TOKENS = 'input { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] }\noutput { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] }\n'
PROMPT = ('input { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] }\ninput { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }\n'
          'output { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] }\n')


def parameters(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def engine(more="", **values):
    return 'backend: "cpu_reference"\nmax_batch_size: 0\n' + parameters(**{"gpt_model_path": DEMO, **values}) + more


def tokenizer(tensors, directory=DEMO, **values):
    return f'backend: "tokenizer"\nmax_batch_size: 4\n{tensors}{parameters(tokenizer_dir=directory, **values)}'


def ensemble(step, inputs=(("text", "QUERY"),), outputs=(("INPUT_ID", "ids"),), data_type="TYPE_STRING"):
    lines = [f'input {{ name: "{name}" data_type: {data_type} dims: [ 1 ] }}' for name, _ in inputs]
    lines += [f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ -1 ] }}' for _, name in outputs]
    maps = [f'input_map {{ key: "{key}" value: "{name}" }}' for name, key in inputs]
    maps += [f'output_map {{ key: "{key}" value: "{name}" }}' for key, name in outputs]
    return 'platform: "ensemble"\nmax_batch_size: 4\n' + "\n".join(lines) + f'\nensemble_scheduling {{ step {{ model_name: "{step}" model_version: -1\n' \
        + "\n".join(maps) + "\n} }\n"


def chain(**values):
    return ('backend: "bls"\nmax_batch_size: 4\ninput { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }\n'
            'output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }\n' + parameters(**values))


WHOLE = (("text", "QUERY"), ("length", "REQUEST_OUTPUT_LEN"))
# By model: its config.pbtxt. None: there is none.
SOUND = {
    "engine": engine(),
    "lookahead": engine(decoding_mode="lookahead", lookahead_window_size="4", lookahead_ngram_size="3", lookahead_verification_set_size="4"),
    "engine_with_settings": engine(max_beam_width="4", decoding_mode="top_k_top_p", enable_kv_cache_reuse="true", max_tokens_in_paged_kv_cache="512",
                                   lora_cache_max_adapter_size="64", gpu_device_ids="${gpu_device_ids}", kv_cache_free_gpu_mem_fraction="0.5"),
    "engine_v1": engine(gpt_model_type="V1", participant_ids="0,1", max_attention_window_size="64, 128", max_beam_width="0"),
    "engine_with_tiers": engine(enable_kv_cache_reuse="true", kv_cache_host_memory_bytes="1048576", kv_cache_disk_path="blocks", kv_cache_disk_bytes="1048576"),
    "engine_with_draft": engine(speculative_decoding=f"draft={DEMO.parent / 'draft'}", sink_token_length="4", max_attention_window_size="64"),
    "chain_of_absent_models": chain(accumulate_tokens="True", tensorrt_llm_model_name="later"),
    "preprocessing": tokenizer(PROMPT, chat_parser="none"),
    "postprocessing": tokenizer(TOKENS, skip_special_tokens="false"),
}
BROKEN = {
    "decoding_mode": engine(decoding_mode="medusa"),
    "decoding_mode_unknown": engine(decoding_mode="best"),
    "encoder": engine(encoder_model_path=DEMO),
    "medusa": engine(medusa_choices="{0,0},{0,1}"),
    "eagle": engine(eagle_choices="{0,0}"),
    "nodes": engine(num_nodes="2"),
    "fraction": engine(kv_cache_free_gpu_mem_fraction="7"),
    "fraction_text": engine(kv_cache_free_gpu_mem_fraction="abc"),
    "beams": engine(max_beam_width="-1"),
    "cached_tokens": engine(max_tokens_in_paged_kv_cache="-5"),
    "window": engine(max_attention_window_size="-3"),
    "window_list": engine(max_attention_window_size="64,x"),
    "adapter_rank": engine(lora_cache_max_adapter_size="-1"),
    "draft_tokens": engine(max_draft_tokens="100"),
    "draft_tokens_of_trees": engine(max_draft_tokens="128", speculative_decoding=f"medusa={DEMO}"),
    "drafter_medusa": engine(speculative_decoding=f"medusa={DEMO}"),
    "drafter": engine(speculative_decoding="maybe"),
    "drafter_folder": engine(speculative_decoding="draft=/absent"),
    "drafter_head": engine(speculative_decoding=f"eagle3={DEMO}"),
    "sinks": engine(sink_token_length="4"),
    "host_memory": engine(kv_cache_host_memory_bytes="-1"),
    "file_without_size": engine(kv_cache_disk_path="blocks"),
    "size_without_file": engine(kv_cache_disk_bytes="1048576"),
    "events_without_cache": engine(kv_events_endpoint="tcp://127.0.0.1:1"),
    "adapters": engine(lora_adapters="name"),
    "adapter_folder": engine(lora_adapters="name=/absent"),
    "adapters_folder": engine(lora_dir="/absent"),
    "lookahead_sizes": engine(lookahead_window_size="4", lookahead_ngram_size="3", lookahead_verification_set_size="4"),
    "lookahead_too_large": engine(decoding_mode="lookahead", lookahead_window_size="16", lookahead_ngram_size="5", lookahead_verification_set_size="17"),
    "lookahead_two_drafters": engine(decoding_mode="lookahead", speculative_decoding="ngram"),
    "lookahead_few_drafts": engine(speculative_decoding="lookahead", max_draft_tokens="8"),
    "devices": engine(gpu_device_ids="0,0"),
    "device_groups": engine(gpu_device_ids="0,1;2,3"),
    "boolean": engine(enable_kv_cache_reuse="perhaps"),
    "misspelt_key": engine(max_beam_widht="4"),
    "batching": engine(gpt_model_type="static"),
    "unknown_input": engine('input { name: "made_up" data_type: TYPE_INT32 dims: [ 1 ] }\n'),
    "input_type": engine('input { name: "input_ids" data_type: TYPE_FP32 dims: [ -1 ] }\n'),
    "unknown_output": engine('output { name: "made_up" data_type: TYPE_INT32 dims: [ 1 ] }\n'),
    "absent_checkpoint": engine(gpt_model_path="/absent"),
    "plan": engine(gpt_model_path="{repository}/plan_files"),
    "lacking_tensors": engine(gpt_model_path="{repository}/lacking_files"),
    "cut_off": engine(gpt_model_path="{repository}/cut_files"),
    "architecture": engine(gpt_model_path="{repository}/other_files"),
    "unfit_engine": engine(tokenizer_dir="{repository}/unfit_files"),
    "unfit_preprocessing": tokenizer(PROMPT, "{repository}/unfit_files"),
    "absent_tokenizer": tokenizer(PROMPT, "/absent"),
    "misspelt_tensor": tokenizer(PROMPT.replace("QUERY", "QUERYY")),
    "add_special_tokens": tokenizer(PROMPT, add_special_tokens="maybe"),
    "chat_parser": tokenizer(PROMPT, chat_parser="best"),
    "chain": chain(accumulate_tokens="maybe"),
    "unknown_backend": 'backend: "tensorrt_llm"\n',
    "no_backend": "max_batch_size: 4\n",
    "no_config": None,
    "unfilled_number": 'backend: "cpu_reference"\nmax_batch_size: ${triton_max_batch_size}\n',
    "other_name": 'name: "another"\n' + engine(),
    "syntax": 'backend: "cpu_reference\n',
    "unknown_field": 'backend: "cpu_reference"\nmax_batch_sizes: 4\n',
    "absent_version": engine("version_policy { specific { versions: [ 7 ] } }\n"),
    "python_without_file": 'backend: "python"\n' + TOKENS,
    "gpu": engine("instance_group [ { kind: KIND_GPU gpus: [ 99 ] } ]\n"),
    "calls_itself": ensemble("calls_other"),
    "calls_other": ensemble("calls_itself"),
    "calls_nothing": ensemble("absent_model"),
    "wrong_map": ensemble("preprocessing", (("text", "QUERYY"), ("length", "REQUEST_OUTPUT_LEN"))),
    "lacks_input": ensemble("preprocessing"),
    "wrong_type": ensemble("preprocessing", data_type="TYPE_FP32", inputs=WHOLE),
}


def write_checkpoints(root):
    """Damaged copies of the demo checkpoint, in folders beside the repository."""
    for name in ("cut", "other", "unfit", "lacking"):
        shutil.copytree(DEMO, root / f"{name}_files")
    weights = root / "cut_files/model.safetensors"
    with open(weights, "r+b") as file:
        file.truncate(weights.stat().st_size - 1000)
    (root / "other_files/config.json").write_text('{"model_type": "rwkv"}')
    data = json.loads((DEMO / "tokenizer.json").read_text())
    data["model"]["vocab"]["unheard"] = json.loads((DEMO / "config.json").read_text())["vocab_size"] + 4
    (root / "unfit_files/tokenizer.json").write_text(json.dumps(data))
    lacking = root / "lacking_files/model.safetensors"
    content = lacking.read_bytes()
    lacking.write_bytes(content.replace(b'"model.norm.weight"', b'"model.norm.weighs"'))
    (root / "plan_files").mkdir()
    (root / "plan_files/rank0.engine").write_bytes(b"ftrt")
    (root / "plan_files/config.json").write_text('{"version": "0.9.0", "pretrained_config": {"architecture": "LlamaForCausalLM"}, "build_config": {}}')


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("check_and_load")
    write_checkpoints(root)
    for name, config in (SOUND | BROKEN).items():
        (root / "models" / name / "1").mkdir(parents=True)
        if config is not None:
            (root / "models" / name / "config.pbtxt").write_text(config.replace("{repository}", str(root)))
    return root / "models"


@pytest.fixture(scope="module")
def faults(repository, dist):
    """By model: the messages of the errors that `nereid-repo check` finds."""
    done = subprocess.run([dist / "bin/nereid-repo", "check", repository, "--json"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = {}
    for finding in json.loads(done.stdout):
        if finding["severity"] == "error":
            name = pathlib.Path(finding["file"]).relative_to(repository).parts[0]
            found.setdefault(name, []).append(finding["message"])
    return found


@pytest.fixture(scope="module")
def server(start_server, repository):
    return start_server(repository, ["--model-control-mode=explicit"])


def load_fault(server, name):
    """The message with which the server refuses to load the model, or None."""
    request = urllib.request.Request(f"{server.url}/v2/repository/models/{name}/load", data=b"{}")
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        assert 400 <= error.code < 500, (error.code, name)
        return json.load(error)["error"]
    return None


@pytest.mark.parametrize("name", SOUND)
def test_what_check_passes_loads(server, faults, name):
    assert name not in faults and load_fault(server, name) is None


@pytest.mark.parametrize("name", BROKEN)
def test_what_check_refuses_does_not_load(server, faults, name):
    assert faults.get(name) and load_fault(server, name) is not None
