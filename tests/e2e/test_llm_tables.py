"""Every tensor of the `tensorrt_llm` model, by the table that the program prints: its effect is seen, or the text of its refusal, or its log line."""
import json
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest
from tested_engine import ENGINE

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18, 90, 61, 5, 14, 77, 39, 120, 8, 44, 99, 10, 3, 71, 55, 23, 42, 17, 66, 81, 29, 6, 200, 31, 9, 111, 48]
CONFIG = f"""backend: "{ENGINE}"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{DEMO}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "8" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
"""
WIDE = 'parameters { key: "max_beam_width" value { string_value: "4" } }\n'
TABLE = [[0.5] * 384, [-1.0] * 384]
TABLED = {"input_ids": [4096] + PROMPT[1:], "prompt_embedding_table": TABLE}
# With whole blocks of every engine's KV cache.
LONG = {"input_ids": (PROMPT * 3)[:80], "input_lengths": 80, "return_kv_cache_reuse_stats": True}
LONG_TABLED = {**LONG, "input_ids": [4096] + LONG["input_ids"][1:], "prompt_embedding_table": TABLE}
DRAWN = {"runtime_top_k": 200, "temperature": 4.0, "seed": 7}
NUCLEUS = {"runtime_top_p": 0.95, "temperature": 4.0, "seed": 7}
BEAMS = {"beam_width": 3}
# For each input that works: two requests whose answers differ by it. A function receives the ids of the plain answer.
DIFFERS = {
    "input_ids": ({"input_ids": PROMPT[::-1]}, {}),
    "input_lengths": ({"input_lengths": 5}, {}),
    "request_output_len": ({"request_output_len": 3}, {}),
    "end_id": (lambda ids: {"end_id": ids[2]}, {}),
    "stop_words_list": (lambda ids: {"stop_words_list": [[ids[2]], [1]]}, {}),
    "stop_words": ({"stop_words": ["e", "a", "o", " ", "t"]}, {}),
    "bad_words_list": (lambda ids: {"bad_words_list": [[ids[0]], [1]]}, {}),
    "embedding_bias": (lambda ids: {"embedding_bias": [0.0] * 5 + [1000.0] + [0.0] * (vocabulary() - 6)}, {}),
    "beam_width": (BEAMS, {}),
    "num_return_sequences": ({"num_return_sequences": 2}, {}),
    "temperature": (DRAWN, {**DRAWN, "temperature": 0.1}),
    "runtime_top_k": (DRAWN, {**DRAWN, "runtime_top_k": 1}),
    "runtime_top_p": (NUCLEUS, {**NUCLEUS, "runtime_top_p": 0.01}),
    "runtime_top_p_min": ({**NUCLEUS, "runtime_top_p_decay": 0.01, "runtime_top_p_min": 0.95}, {**NUCLEUS, "runtime_top_p_decay": 0.01}),
    "runtime_top_k_min": ({**NUCLEUS, "runtime_top_p_decay": 0.01, "runtime_top_k_min": 0.95}, {**NUCLEUS, "runtime_top_p_decay": 0.01}),
    "runtime_top_p_decay": ({**NUCLEUS, "runtime_top_p_decay": 0.01}, NUCLEUS),
    "min_p": ({**DRAWN, "min_p": 0.9}, DRAWN),
    "beam_search_diversity_rate": ({**BEAMS, "beam_search_diversity_rate": 5.0}, BEAMS),
    "repetition_penalty": ({"repetition_penalty": 9.0}, {}),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 1}, {}),
    "min_length": (lambda ids: {"end_id": ids[1], "min_length": 5}, lambda ids: {"end_id": ids[1]}),
    "min_tokens": (lambda ids: {"end_id": ids[1], "min_tokens": 5}, lambda ids: {"end_id": ids[1]}),
    "presence_penalty": ({"presence_penalty": 50.0}, {}),
    "frequency_penalty": ({"frequency_penalty": 50.0}, {}),
    "prompt_ignore_length": ({"presence_penalty": -50.0, "prompt_ignore_length": 34}, {"presence_penalty": -50.0}),
    "random_seed": ({"runtime_top_k": 200, "temperature": 4.0, "random_seed": 8}, {"runtime_top_k": 200, "temperature": 4.0}),
    "seed": (DRAWN, {**DRAWN, "seed": 8}),
    "exclude_input_in_output": ({"exclude_input_in_output": False}, {}),
    "stop": ({"stop": True}, {}),  # answered without outputs
    "cache_salt": ({**LONG, "cache_salt": "a"}, LONG),
    "stop_token_ids": (lambda ids: {"stop_token_ids": [ids[2]]}, {}),
    "ignore_eos": (lambda ids: {"end_id": ids[2], "ignore_eos": True}, lambda ids: {"end_id": ids[2]}),
    "include_stop_str_in_output": (lambda ids: {"stop_token_ids": [ids[2]], "include_stop_str_in_output": True},
                                   lambda ids: {"stop_token_ids": [ids[2]]}),
    "skip_special_tokens": ({"skip_special_tokens": False}, {}),
    "logit_bias_ids": ({"logit_bias_ids": [5], "logit_bias_values": [1000.0]}, {}),
    "logit_bias_values": ({"logit_bias_ids": [5], "logit_bias_values": [1000.0]}, {"logit_bias_ids": [5], "logit_bias_values": [-1000.0]}),
    "allowed_token_ids": ({"allowed_token_ids": [5, 6]}, {}),
    "num_top_logprobs": ({"num_top_logprobs": 2}, {}),
    "num_prompt_logprobs": ({"num_prompt_logprobs": 2}, {}),
    "thinking_token_budget": ({"thinking_token_budget": 1, "thinking_end_ids": [5]}, {"thinking_token_budget": 4, "thinking_end_ids": [5]}),
    "thinking_begin_ids": ({"thinking_token_budget": 1, "thinking_end_ids": [5]},
                           {"thinking_token_budget": 1, "thinking_end_ids": [5], "thinking_begin_ids": [5]}),
    "prompt_embedding_table": (TABLED, {**TABLED, "prompt_embedding_table": TABLE[::-1]}),
    "prompt_embeds": ({"prompt_embeds": TABLE}, {}),
    "prompt_table_extra_ids": ({**LONG_TABLED, "prompt_table_extra_ids": [9] * 80}, LONG_TABLED),
    "thinking_end_ids": ({"thinking_token_budget": 1, "thinking_end_ids": [5]}, {"thinking_token_budget": 1, "thinking_end_ids": [6]}),
}
# Inputs whose effect needs more than one answer: other tests show it.
ELSEWHERE = {"streaming": "test_llm_overload.py", "priority": "scheduler_test.cc", "len_penalty": "beam_search_test.cc", "early_stopping": "beam_search_test.cc",
             "runtime_top_p_reset_ids": "sampler_test.cc", "guided_decoding_guide": "test_structured_output.py",
             "guided_decoding_guide_type": "test_structured_output.py", "draft_input_ids": "drafter_test.cc",
             "prompt_vocab_size": "test_prompt_tables.py",
             "retention_token_range_starts": "test_kv_cache.py", "retention_token_range_ends": "test_kv_cache.py",
             "retention_token_range_priorities": "test_kv_cache.py", "retention_token_range_durations_ms": "test_kv_cache.py",
             "retention_decode_priority": "test_kv_cache.py", "retention_decode_duration_ms": "test_kv_cache.py",
             "draft_logits": "test_draft_models.py", "draft_acceptance_threshold": "test_draft_models.py",
             "lookahead_window_size": "test_lookahead.py", "lookahead_ngram_size": "test_lookahead.py", "lookahead_verification_set_size": "test_lookahead.py",
             "lora_name": "test_lora.py", "lora_task_id": "test_lora.py", "lora_weights": "test_lora.py", "lora_config": "test_lora.py"}


class Refused(Exception):
    """A request was answered with this error."""


def vocabulary():
    return json.loads((DEMO / "config.json").read_text())["vocab_size"]


def table(dist, title):
    page = subprocess.run([dist / "bin/nereid-repo", "tables"], capture_output=True, text=True, check=True).stdout
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    return {row[0].strip("`"): row[1:] for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()
                                                   if line.startswith("| `"))}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    restricted = {f"mode_{mode}": f'parameters {{ key: "decoding_mode" value {{ string_value: "{mode}" }} }}\n' for mode in ("top_k", "top_p", "beam_search")}
    reuse = 'parameters { key: "enable_kv_cache_reuse" value { string_value: "true" } }\n'
    for name, more in ({"llm": reuse} | restricted).items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG + WIDE + more)
    return start_server(root)


def flat(value):
    return [each for part in value for each in flat(part)] if isinstance(value, list) else [value]


def shape(value):
    return [len(value), *shape(value[0])] if isinstance(value, list) else []


def ask(server, inputs, fields, outputs=(), model="llm"):
    """The outputs by name, without the times, which always differ."""
    fields = {"input_ids": PROMPT, "input_lengths": len(PROMPT), "request_output_len": 12, **fields}
    body, binary = {"id": "1", "inputs": []}, b""
    for name, value in fields.items():
        tensor = {"name": name, "datatype": inputs[name][0].removeprefix("TYPE_").replace("STRING", "BYTES"), "shape": shape(value) or [1]}
        if tensor["datatype"] == "FP16":  # which has no JSON form
            binary += (content := np.array(flat(value), np.float16).tobytes())
            tensor["parameters"] = {"binary_data_size": len(content)}
        else:
            tensor["data"] = flat(value)
        body["inputs"].append(tensor)
    if outputs:
        body["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", data=head + binary, headers={"Inference-Header-Content-Length": len(head)})
    try:
        answer = urllib.request.urlopen(request, timeout=120)
    except urllib.error.HTTPError as error:
        assert error.code in (400, 501)
        raise Refused(json.load(error)["error"]) from None
    with answer:
        return {each["name"]: each["data"] for each in json.load(answer).get("outputs", []) if not each["name"].endswith(("_ns", "stream_position"))}


def refusal(server, inputs, fields, outputs=(), model="llm"):
    with pytest.raises(Refused) as caught:
        ask(server, inputs, fields, outputs, model)
    return str(caught.value)


def test_every_input_has_its_effect_or_its_refusal_or_its_line(server, dist):
    inputs = table(dist, "Inputs")
    ask(server, inputs, {})
    plain = ask(server, inputs, {})  # with a cached prefix, as all that follow
    ids = plain["output_ids"]
    for fields in (LONG, LONG_TABLED):
        ask(server, inputs, fields)  # which are cached from now on
    for name, (datatype, dims, outcome, about) in inputs.items():
        size = [1 if dim == "-1" else int(dim) for dim in re.findall(r"-?\d+", dims)]
        few = "x" if datatype == "TYPE_STRING" else True if datatype == "TYPE_BOOL" else 2
        value = few
        for dim in reversed(size):
            value = [value] * dim
        if outcome == "one log line":
            ask(server, inputs, {name: few})
            ask(server, inputs, {name: few})
            assert server.text().count(f"model 'llm': input '{name}' tunes a mechanism that Nereid does not have; the answers stay the same") == 1
        elif outcome != "works":
            passes, refused = {"refused unless empty": (None, value), "refused if true": (False, True), "refused unless 0": (0, few),
                               "refused if longer than one id": ([2], [2, 3]), "refused if above 1": (1, 2)}[outcome]
            assert refusal(server, inputs, {name: refused}) == f"input '{name}': this feature is not supported ({about})"
            if passes is not None:
                assert ask(server, inputs, {name: passes}) == plain
        elif name.startswith("return_"):
            assert set(ask(server, inputs, {name: True})) > set(plain) or name == "return_perf_metrics", name
            assert ask(server, inputs, {name: False}) == plain
        elif name not in ELSEWHERE:
            first, second = (each(ids) if callable(each) else each for each in DIFFERS[name])
            assert ask(server, inputs, first) != ask(server, inputs, second), name
    assert not ELSEWHERE.keys() - inputs.keys()


def test_outputs_are_those_that_are_asked_for(server, dist):
    inputs, outputs = table(dist, "Inputs"), table(dist, "Outputs")
    plain = set(ask(server, inputs, {}))
    assert plain == {"output_ids", "sequence_length", "prior_ids", "finish_reason", "num_cached_tokens", "stop_reason"}
    every = {name: True for name in inputs if name.startswith("return_")} | {"num_top_logprobs": 2, "num_prompt_logprobs": 2, "skip_special_tokens": True}
    seen = set(ask(server, inputs, every)) | {"stream_position"} | {name for name in outputs if name.endswith("_ns")}
    assert outputs.keys() - seen == {"batch_index", "sequence_index", "context_phase_params"}
    assert "output 'context_phase_params': this feature is not supported" in refusal(server, inputs, {}, ["output_ids", "context_phase_params"])


@pytest.mark.parametrize("mode, fields, message", [
    ("top_k", {"runtime_top_k": 5, "runtime_top_p": 0.5}, "input 'runtime_top_p' is 0.5: the model's parameter decoding_mode is top_k"),
    ("top_k", {"beam_width": 2}, "input 'beam_width' is 2: the model's parameter decoding_mode is top_k"),
    ("top_p", {"runtime_top_k": 5}, "input 'runtime_top_k' is 5: the model's parameter decoding_mode is top_p"),
    ("beam_search", {"beam_width": 2, "runtime_top_k": 5}, "input 'runtime_top_k' is 5: the model's parameter decoding_mode is beam_search"),
])
def test_a_decoding_mode_restricts_its_requests(server, dist, mode, fields, message):
    inputs = table(dist, "Inputs")
    assert refusal(server, inputs, fields, model=f"mode_{mode}") == message
    assert ask(server, inputs, {"runtime_top_k": 1, "runtime_top_p": 0.0, "beam_width": 1}, model=f"mode_{mode}")


INPUTS = """input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] } %s ]
"""


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


@pytest.mark.parametrize("more, message", [
    (INPUTS % ', { name: "runtime_topk" data_type: TYPE_INT32 dims: [ 1 ] optional: true }', "(did you mean 'runtime_top_k'?)"),
    (INPUTS % ', { name: "house_speciality" data_type: TYPE_INT32 dims: [ 1 ] optional: true }', "'house_speciality' is unknown"),
    ('output [ { name: "house_speciality" data_type: TYPE_INT32 dims: [ 1 ] } ]\n', "'house_speciality' is unknown"),
    (INPUTS % ', { name: "temperature" data_type: TYPE_INT32 dims: [ 1 ] optional: true }', "'temperature': expected TYPE_FP32, got TYPE_INT32"),
    (INPUTS.replace('"request_output_len"', '"end_id"') % "", "input 'request_output_len', which"),
    (parameter("max_beam_widht", "4"), "parameter 'max_beam_widht' is unknown (did you mean 'max_beam_width'?)"),
    (parameter("decoding_mode", "redrafter"), "parameter 'decoding_mode' is 'redrafter', expected one of: auto top_k"),
    (parameter("decoding_mode", "medusa"), "parameter 'decoding_mode' is 'medusa' and 'speculative_decoding' is 'off', expected medusa=FOLDER"),
    (parameter("eagle_choices", "{0}"), "parameter 'eagle_choices' is '{0}' and 'speculative_decoding' is 'off', expected eagle3=FOLDER"),
    (parameter("kv_cache_free_gpu_mem_fraction", "7"), "parameter 'kv_cache_free_gpu_mem_fraction' is '7', expected more than 0, up to 1"),
    (parameter("gpu_device_ids", "0,0"), "parameter 'gpu_device_ids' is '0,0', expected numbers of GPUs, each once"),
    (parameter("encoder_model_path", "/engines"), "parameter 'encoder_model_path' is '/engines': not supported (encoder-decoder models)"),
    (parameter("normalize_log_probs", "true"), "parameter 'normalize_log_probs' is 'true': not supported"),
    (parameter("num_nodes", "2"), "parameter 'num_nodes' is '2': not supported"),
    (parameter("max_kv_cache_length", "64") + parameter("house_speciality", "soup") + parameter("gpt_model_type", "V1"), None),
])
def test_what_the_check_refuses_does_not_load_and_what_it_passes_does(own_server, own_repository, dist, tmp_path, request, more, message):
    name = f"model_{request.node.callspec.indices['more']}"
    for root in (own_repository, tmp_path):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG + more)
    checked = subprocess.run([dist / "bin/nereid-repo", "check", tmp_path], capture_output=True, text=True)
    load = urllib.request.Request(f"{own_server.url}/v2/repository/models/{name}/load", data=b"{}")
    if message is None:
        assert checked.returncode == 0 and urllib.request.urlopen(load, timeout=60).status == 200
        return
    assert checked.returncode == 1 and message in checked.stdout
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(load, timeout=60)
    assert message in json.load(caught.value)["error"]
