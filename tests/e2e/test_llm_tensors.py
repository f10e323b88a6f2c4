"""The tensors of the `tensorrt_llm` model beyond a plain prompt: several sequences, beams, logits, statistics, metrics."""
import concurrent.futures
import json
import pathlib
import shutil
import urllib.request

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException
from waiting import wait_for

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18, 90, 61, 5, 14, 77, 39, 120, 8, 44, 99, 10, 3, 71, 55, 23, 42, 17, 66, 81, 29, 6, 200, 31, 9, 111, 48]
TYPES = {bool: ("BOOL", bool), int: ("INT32", np.int32), float: ("FP32", np.float32)}
CONFIG = """backend: "cpu_reference"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{path}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "8" }} }}
parameters {{ key: "enable_kv_cache_reuse" value {{ string_value: "true" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
parameters {{ key: "max_beam_width" value {{ string_value: "4" }} }}
"""
NARROW = """parameters { key: "kv_cache_dtype" value { string_value: "int8" } }
parameters { key: "max_attention_window_size" value { string_value: "32" } }
parameters { key: "sink_token_length" value { string_value: "4" } }
"""
OLD = """input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] },
        { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "runtime_top_k" data_type: TYPE_UINT32 dims: [ 1 ] optional: true },
        { name: "return_log_probs" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
        { name: "prompt_embedding_table" data_type: TYPE_FP16 dims: [ -1, -1 ] optional: true } ]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }, { name: "cum_log_probs" data_type: TYPE_FP32 dims: [ -1 ] },
         { name: "output_log_probs" data_type: TYPE_FP32 dims: [ -1, -1 ] }, { name: "context_logits" data_type: TYPE_FP32 dims: [ -1, -1 ] },
         { name: "generation_logits" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] } ]
"""
INVARIANT = 'parameters { key: "batch_invariant" value { string_value: "true" } }'


@pytest.fixture(scope="module")
def llm(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "demo"
    shutil.copytree(DEMO, checkpoint)
    for name, more in (("llm", ""), ("narrow", NARROW), ("invariant", INVARIANT), ("old", OLD)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(path=checkpoint) + more)
    return start_server(root)


def ask_old_release(llm, top_k):
    """Uses the data types of release 0.6."""
    body = {"inputs": [{"name": name, "datatype": datatype, "shape": [len(values)], "data": values} for name, datatype, values in (
        ("input_ids", "INT32", PROMPT), ("input_lengths", "INT32", [len(PROMPT)]), ("request_output_len", "INT32", [6]), ("runtime_top_k", "UINT32", [top_k]))],
        "outputs": [{"name": "output_ids"}]}
    with urllib.request.urlopen(urllib.request.Request(f"{llm.url}/v2/models/old/infer", data=json.dumps(body).encode()), timeout=120) as answer:
        return json.load(answer)["outputs"][0]["data"]


def ask(llm, outputs, prompt=PROMPT, tokens=6, model="llm", **fields):
    client = httpclient.InferenceServerClient(f"127.0.0.1:{llm.http}", network_timeout=120, connection_timeout=120)
    given = {"input_ids": np.array(prompt, np.int32), "input_lengths": np.array([len(prompt)], np.int32),
             "request_output_len": np.array([tokens], np.int32)}
    for name, value in fields.items():
        if isinstance(value, str):
            given[name] = np.array([value.encode()], dtype=object)
        else:
            given[name] = np.array([value], np.uint64 if name == "seed" else TYPES[type(value)][1])
    inputs = []
    for name, value in given.items():
        datatype = {"int32": "INT32", "float32": "FP32", "bool": "BOOL", "uint64": "UINT64", "object": "BYTES"}[str(value.dtype)]
        inputs.append(httpclient.InferInput(name, list(value.shape), datatype))
        inputs[-1].set_data_from_numpy(value)
    answer = client.infer(model, inputs, outputs=[httpclient.InferRequestedOutput(name) for name in outputs])
    return {name: answer.as_numpy(name) for name in outputs}


@pytest.fixture(scope="module")
def with_generation_config(start_server, tmp_path_factory):
    """The demo with a generation_config.json that enables sampling, which one model obeys and another does not; and models with half-precision
    logits."""
    root = tmp_path_factory.mktemp("repository")
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "demo"
    shutil.copytree(DEMO, checkpoint)
    recommends = {"eos_token_id": 0, "do_sample": True, "temperature": 1.5, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.2}
    (checkpoint / "generation_config.json").write_text(json.dumps(recommends))
    logits = "".join(f'output {{ name: "{name}" data_type: TYPE_%s dims: {dims} }}\n'
                     for name, dims in (("context_logits", [-1, -1]), ("generation_logits", [-1, -1, -1]), ("output_ids", [-1, -1])))
    logits = logits.replace('"output_ids" data_type: TYPE_%s', '"output_ids" data_type: TYPE_INT32')
    drawn = 'parameters { key: "sampling_defaults" value { string_value: "generation_config" } }'
    for name, more in (("drawn", drawn), ("plain", ""), ("fp16", logits % ("FP16", "FP16")), ("fp32", logits % ("FP32", "FP32"))):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(path=checkpoint) + more)
    return start_server(root)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_logits_agree_with_the_tokens_and_their_log_probabilities(llm):
    got = ask(llm, ["output_ids", "context_logits", "generation_logits", "output_log_probs", "cum_log_probs", "prompt_log_probs"],
              return_context_logits=True, return_generation_logits=True, return_log_probs=True, return_prompt_log_probs=True)
    ids = got["output_ids"][0]
    context, generation = got["context_logits"], got["generation_logits"][0]
    assert context.shape == (len(PROMPT), generation.shape[1]) and len(generation) == len(ids) == 6
    assert np.array_equal(generation.argmax(axis=-1), ids)
    assert np.array_equal(context[-1], generation[0])  # the first token was chosen from both
    wanted = log_softmax(generation)[np.arange(6), ids]
    assert np.allclose(got["output_log_probs"][0], wanted, atol=1e-4)
    assert np.allclose(got["cum_log_probs"], wanted.sum(), atol=1e-3)
    assert np.allclose(got["prompt_log_probs"], log_softmax(context)[np.arange(len(PROMPT) - 1), PROMPT[1:]], atol=1e-4)


def test_likely_tokens_are_the_greatest_logits_before_any_rule(llm):
    got = ask(llm, ["output_ids", "generation_logits", "top_logprob_ids", "top_logprobs", "output_log_probs"], num_top_logprobs=5, runtime_top_k=50,
              temperature=1.7, repetition_penalty=1.5, seed=3, return_generation_logits=True, return_log_probs=True)
    wanted = log_softmax(got["generation_logits"][0])
    order = np.argsort(-wanted, axis=-1, kind="stable")[:, :5]
    assert got["top_logprob_ids"].tolist() == order.tolist()
    assert np.allclose(got["top_logprobs"], np.take_along_axis(wanted, order, axis=-1), atol=1e-4)
    assert np.allclose(got["output_log_probs"][0], wanted[np.arange(6), got["output_ids"][0]], atol=1e-4)


def test_a_configuration_from_before_0_14_has_all_outputs_in_every_response(llm):
    """Like the backend of those releases. The postprocessing of releases before 0.9 fails without these outputs."""
    names = ("output_log_probs", "cum_log_probs", "context_logits", "generation_logits")
    unasked = ask(llm, ("output_ids", *names), model="old")
    assert {name: unasked[name].shape for name in names} == {"output_log_probs": (1, 6), "cum_log_probs": (1,), "context_logits": (1, 1),
                                                             "generation_logits": (1, 1, 1)}
    assert not any(unasked[name].any() for name in names)
    asked = ask(llm, ("output_ids", *names), model="old", return_log_probs=True)
    assert asked["output_log_probs"].all() and np.isclose(asked["output_log_probs"].sum(), asked["cum_log_probs"][0], atol=1e-4)
    assert asked["output_ids"].tolist() == unasked["output_ids"].tolist()
    assert ask_old_release(llm, top_k=1) == unasked["output_ids"][0].tolist()


def test_several_sequences_differ_and_repeat_with_their_seed(llm):
    fields = dict(num_return_sequences=3, runtime_top_k=50, temperature=1.5, seed=7)
    first = ask(llm, ["output_ids", "sequence_length"], tokens=12, **fields)
    assert first["output_ids"].shape == (3, 12) and list(first["sequence_length"]) == [12, 12, 12]
    assert len({tuple(row) for row in first["output_ids"]}) > 1
    assert np.array_equal(ask(llm, ["output_ids"], tokens=12, **fields)["output_ids"], first["output_ids"])
    alone = ask(llm, ["output_ids"], tokens=12, **{**fields, "num_return_sequences": 1})
    assert np.array_equal(alone["output_ids"][0], first["output_ids"][0])


def test_beams_are_at_least_as_likely_as_the_greedy_output(llm):
    names = ["output_ids", "cum_log_probs", "sequence_length"]
    greedy = ask(llm, names, tokens=8, return_log_probs=True, end_id=-1)
    beams = ask(llm, names, tokens=8, return_log_probs=True, end_id=-1, beam_width=4)
    assert beams["output_ids"].shape == (4, 8) and len({tuple(row) for row in beams["output_ids"]}) == 4
    assert list(beams["cum_log_probs"]) == sorted(beams["cum_log_probs"], reverse=True)
    assert beams["cum_log_probs"][0] >= greedy["cum_log_probs"][0] - 1e-4


def test_a_prefix_is_reused_within_its_salt(llm):
    names = ["output_ids", "num_cached_tokens", "kv_cache_reused_blocks", "kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks"]
    fields = dict(return_kv_cache_reuse_stats=True)
    first = ask(llm, names, cache_salt="one", **fields)
    again = ask(llm, names, cache_salt="one", **fields)
    other = ask(llm, names, cache_salt="two", **fields)
    assert [int(each["kv_cache_reused_blocks"][0]) for each in (first, again, other)] == [0, 2, 0]
    assert [int(each["num_cached_tokens"][0]) for each in (first, again, other)] == [0, 32, 0]
    assert np.array_equal(first["output_ids"], again["output_ids"]) and np.array_equal(first["output_ids"], other["output_ids"])
    for each in (first, again, other):
        assert each["kv_cache_alloc_total_blocks"][0] == each["kv_cache_reused_blocks"][0] + each["kv_cache_alloc_new_blocks"][0] == 3


def test_a_window_with_sinks_over_an_int8_cache_serves_long_outputs(llm):
    first = ask(llm, ["output_ids"], tokens=60, model="narrow", end_id=-1)["output_ids"]
    assert first.shape == (1, 60)
    assert np.array_equal(ask(llm, ["output_ids"], tokens=60, model="narrow", end_id=-1)["output_ids"], first)


def test_a_batch_invariant_model_has_the_same_bits_alone_and_in_company(llm):
    def answer(i):
        return ask(llm, ["output_ids", "generation_logits", "output_log_probs"], PROMPT[i:], 24, "invariant", end_id=-1, return_generation_logits=True, return_log_probs=True)

    alone = [answer(i) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answer, range(8)))
    for one, other in zip(alone, together):
        for name, values in one.items():
            assert values.tobytes() == other[name].tobytes(), name


def test_times_are_in_their_order(llm):
    names = ["arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "total_draft_tokens"]
    got = ask(llm, names, return_perf_metrics=True)
    times = [int(got[name][0]) for name in names[:4]]
    assert 0 < times[0] and times == sorted(times) and got["total_draft_tokens"][0] == 0


def test_generation_config_provides_defaults_for_unset_parameters(with_generation_config):
    def ids(model, **fields):
        return ask(with_generation_config, ["output_ids"], model=model, tokens=24, end_id=-1, **fields)["output_ids"].tolist()

    same = dict(temperature=1.5, runtime_top_k=50, runtime_top_p=0.9, repetition_penalty=1.2)
    for seed in (3, 4):
        assert ids("drawn", seed=seed) == ids("plain", seed=seed, **same)
    assert ids("drawn", seed=3) != ids("drawn", seed=4)
    # Each value in the request overrides the configured one.
    assert ids("drawn", seed=3, temperature=0.7) == ids("plain", seed=3, **{**same, "temperature": 0.7})
    assert ids("drawn", runtime_top_k=1, repetition_penalty=1.0) == ids("plain")
    # Without the parameter, a request without sampling values is greedy.
    assert ids("plain", seed=3) == ids("plain", seed=4) == ids("plain", runtime_top_k=1)


def test_logits_come_in_the_type_that_the_configuration_says(with_generation_config):
    fields = dict(return_context_logits=True, return_generation_logits=True)
    names = ["context_logits", "generation_logits", "output_ids"]
    wide, half = (ask(with_generation_config, names, model=model, **fields) for model in ("fp32", "fp16"))
    for name in names[:2]:
        assert wide[name].dtype == np.float32 and half[name].dtype == np.float16
        assert np.array_equal(wide[name].astype(np.float16), half[name])


def test_logits_of_another_type_are_refused_by_name(start_server, tmp_path):
    (tmp_path / "llm" / "1").mkdir(parents=True)
    output = 'output { name: "context_logits" data_type: TYPE_FP64 dims: [ -1, -1 ] }'
    (tmp_path / "llm" / "config.pbtxt").write_text(CONFIG.format(path=DEMO) + output)
    server = start_server(tmp_path, ["--exit-on-error=false", "--strict-readiness=false"], wait_for="/v2/health/live")
    assert "output 'context_logits': logits of type TYPE_FP64 are not supported, expected TYPE_FP32" in pathlib.Path(server.log).read_text()


def add_model(root, name, key, value):
    (root / name / "1").mkdir(parents=True)
    more = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
    (root / name / "config.pbtxt").write_text(CONFIG.format(path=DEMO) + more)


def test_parameters_without_an_effect_are_named_in_the_log(start_server, tmp_path):
    add_model(tmp_path, "plain", "normalize_log_probs", "false")  # our log probabilities are never normalized
    add_model(tmp_path, "guided", "guided_decoding_backend", "xgrammar")
    add_model(tmp_path, "placed", "gpu_device_ids", "99")
    log = start_server(tmp_path).text()
    assert ("model 'guided': parameter 'guided_decoding_backend' (xgrammar) tunes a mechanism that Nereid does not have; the answers stay the same" in log)
    assert "model 'placed': parameter 'gpu_device_ids' (99) has no effect: this backend runs on the CPU" in log
    assert "model 'plain': parameter" not in log


@pytest.mark.parametrize("fields, message", [
    (dict(beam_width=5), "input 'beam_width' is 5, expected 1 to 4 (parameter max_beam_width)"),
    (dict(num_return_sequences=9), "input 'num_return_sequences' is 9, expected 1 to 8"),
    (dict(temperature=-1.0), "'temperature' is -1, expected 0 to"),
    (dict(runtime_top_p=1.5), "'runtime_top_p' is 1.5, expected 0 to 1"),
    (dict(no_repeat_ngram_size=-1), "'no_repeat_ngram_size' is -1, expected 0 (none) or more"),
    (dict(beam_width=2, beam_search_diversity_rate=-1.0), "'beam_search_diversity_rate' is -1, expected 0 to"),
])
def test_out_of_range_values_are_named_with_the_range(llm, fields, message):
    with pytest.raises(InferenceServerException) as caught:
        ask(llm, ["output_ids"], **fields)
    assert message in str(caught.value) and llm.alive()


def metric(server, line, model="llm"):
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics").read().decode()
    return [float(each.split()[-1]) for each in page.splitlines() if each.startswith(line) and f'model="{model}"' in each]


def test_a_wrong_request_is_not_a_failure_of_the_backend(llm):
    before = [metric(llm, "nv_inference_request_failure{" + f'model="llm",reason="{reason}"') for reason in ("BACKEND", "OTHER")]
    with pytest.raises(InferenceServerException):
        ask(llm, ["output_ids"], temperature=-1.0)
    with pytest.raises(InferenceServerException):
        ask(llm, ["output_ids"], prompt=[10**9])
    after = [metric(llm, "nv_inference_request_failure{" + f'model="llm",reason="{reason}"') for reason in ("BACKEND", "OTHER")]
    assert after == [before[0], [before[1][0] + 2]]


def test_a_prompt_is_counted_once_whatever_its_sequences(llm):
    names = ("nv_llm_input_token_len_sum", "nv_llm_output_token_len_sum", "nereid_llm_queue_seconds_count")
    before = [metric(llm, name)[0] for name in names]
    ask(llm, ["output_ids"], num_return_sequences=3, runtime_top_k=50)
    wanted = [before[0] + len(PROMPT), before[1] + 18, before[2] + 3]
    counts = lambda: [metric(llm, name)[0] for name in names]
    wait_for(lambda: counts() == wanted, lambda: f"{wanted}, now {counts()}")


def test_a_v1_model_has_the_metrics_of_v1_and_an_idle_engine_idle_ones(start_server, tmp_path):
    add_model(tmp_path, "old", "gpt_model_type", "V1")
    server = start_server(tmp_path)
    ask(server, ["output_ids"], model="old")
    families = {"nv_trt_llm_v1_metrics{": [8, 0, 0], 'nv_trt_llm_request_metrics{model="old",request_type="scheduled"': [0],
                "nv_trt_llm_disaggregated_serving_metrics{": [0, 0], "nv_trt_llm_inflight_batcher_metrics": []}
    seen = lambda: {line: metric(server, line, "old") for line in families}
    wait_for(lambda: seen() == families, lambda: f"{families}, now {seen()}")


def test_metrics_have_the_published_families(llm):
    ask(llm, ["output_ids"])

    def value(line):
        return metric(llm, line)

    def poll(line, wanted):  # gauges are updated after the answer was sent
        wait_for(lambda: value(line) and wanted(value(line)[0]), lambda: f"{line}, now {value(line)}")

    poll('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"', lambda count: count == 16)
    poll('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"', lambda count: count > 0)
    poll('nv_trt_llm_request_metrics{model="llm",request_type="max"', lambda count: count == 8)
    poll('nv_trt_llm_request_metrics{model="llm",request_type="active"', lambda count: count == 0)
    poll('nv_trt_llm_runtime_memory_metrics{memory_type="cpu"', lambda count: count > 0)
    poll('nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="paused_requests"', lambda count: count == 0)
    poll('nv_trt_llm_general_metrics{general_type="iteration_counter"', lambda count: count > 0)
    poll("nv_llm_input_token_len_count", lambda count: count > 0)
    poll("nv_llm_output_token_len_count", lambda count: count > 0)
    for family in ("nereid_llm_time_to_first_token_seconds", "nereid_llm_time_per_output_token_seconds", "nereid_llm_inter_token_latency_seconds",
                   "nereid_llm_queue_seconds"):
        poll(family + "_count", lambda count: count > 0)
        poll(family + "_sum", lambda seconds: seconds > 0)
