"""Sends every sampling parameter of the `tensorrt_llm` model to a running server. The expected tokens follow from the logits that the server
returns and from the parameter's definition, written here in NumPy. Each test also shows that the result differs without the parameter."""
import collections
import pathlib

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18, 90, 61]
TOKENS = 24
CONFIG = """backend: "cpu_reference"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{path}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "64" }} }}
parameters {{ key: "max_beam_width" value {{ string_value: "4" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
"""
OWN_DEFAULTS = 'parameters { key: "sampling_defaults" value { string_value: "generation_config" } }'
TYPES = {bool: np.bool_, int: np.int32, float: np.float32}
WIDE = {np.bool_: "BOOL", np.int32: "INT32", np.float32: "FP32", np.uint64: "UINT64"}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    (root / "llm" / "1").mkdir(parents=True)
    (root / "llm" / "config.pbtxt").write_text(CONFIG.format(path=DEMO))
    (root / "own" / "1").mkdir(parents=True)
    (root / "own" / "config.pbtxt").write_text(CONFIG.format(path=DEMO) + OWN_DEFAULTS)
    return start_server(root)


def ask(server, names=("output_ids",), tokens=TOKENS, model="llm", **fields):
    fields = {"end_id": -1, "input_ids": np.array(PROMPT, np.int32), "input_lengths": len(PROMPT), "request_output_len": tokens, **fields}
    inputs = []
    for name, value in fields.items():
        if not isinstance(value, np.ndarray):
            value = np.array([value], np.uint64 if name in ("seed", "random_seed") else TYPES[type(value)])
        inputs.append(httpclient.InferInput(name, list(value.shape), WIDE[value.dtype.type]).set_data_from_numpy(value))
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120)
    answer = client.infer(model, inputs, outputs=[httpclient.InferRequestedOutput(name) for name in names])
    return {name: answer.as_numpy(name) for name in names}


def answer(server, **fields):
    """Returns the tokens, and the logits of each step before any sampling rule."""
    got = ask(server, ("output_ids", "generation_logits", "sequence_length"), return_generation_logits=True, **fields)
    length = got["sequence_length"][0]
    return got["output_ids"][0][:length].tolist(), got["generation_logits"][0][:length].astype(np.float64)


def ids(server, **fields):
    return answer(server, **fields)[0]


@pytest.fixture(scope="module")
def greedy(server):
    tokens, logits = answer(server)
    assert tokens == logits.argmax(-1).tolist() and len(tokens) == TOKENS
    return tokens


def greedy_with_rule(logits, rule):
    """Returns the greedy tokens if `rule` changes the logits of each step, given all preceding tokens."""
    tokens = list(PROMPT)
    for row in logits:
        row = row.copy()
        rule(tokens, row)
        tokens.append(int(row.argmax()))
    return tokens[len(PROMPT):]


def repetition(tokens, row):
    seen = list(set(tokens))
    row[seen] = np.where(row[seen] < 0, row[seen] * 1.7, row[seen] / 1.7)


def presence(tokens, row):
    row[list(set(tokens))] -= 2.5


def frequency(tokens, row):
    for token, count in collections.Counter(tokens).items():
        row[token] -= 1.25 * count


def no_repeated_pair(tokens, row):
    row[[b for a, b in zip(tokens, tokens[1:]) if a == tokens[-1]]] = -np.inf


BIAS = (7.0 * np.cos(np.arange(4096))).astype(np.float32)


def biased(tokens, row):
    row += BIAS[:len(row)]


@pytest.mark.parametrize("fields, rule", [
    (dict(repetition_penalty=1.7), repetition), (dict(presence_penalty=2.5), presence), (dict(frequency_penalty=1.25), frequency),
    (dict(no_repeat_ngram_size=2), no_repeated_pair), (dict(embedding_bias=BIAS), biased)], ids=lambda value: "".join(value) if isinstance(value, dict) else "")
def test_a_rule_changes_the_logits_by_its_definition(server, greedy, fields, rule):
    if "embedding_bias" in fields:
        fields = {"embedding_bias": BIAS[:answer(server, tokens=1)[1].shape[1]]}
    tokens, logits = answer(server, **fields)
    assert tokens == greedy_with_rule(logits, rule)
    assert tokens != greedy


def words(*lists):
    """Returns the format of word lists: all ids, then the end of each word."""
    flat = [token for word in lists for token in word]
    ends = np.cumsum([len(word) for word in lists]).tolist()
    return np.array([flat, ends + [-1] * (len(flat) - len(ends))], np.int32)


def test_bad_words_never_come(server, greedy):
    word, pair = greedy[0], greedy[4:6]

    def bad(tokens, row):
        row[word] = -np.inf
        if tokens[-1] == pair[0]:
            row[pair[1]] = -np.inf

    tokens, logits = answer(server, bad_words_list=words([word], pair))
    assert tokens == greedy_with_rule(logits, bad) and word not in tokens


def test_a_request_that_may_use_no_token_is_an_error(server, greedy):
    size = answer(server, tokens=1)[1].shape[1]
    none = np.full(size, -np.inf, np.float32)
    message = f"output token 1: the request's rules ban all {size} tokens"
    for fields in ({}, {"runtime_top_p": 0.9}, {"beam_width": 2}):
        with pytest.raises(InferenceServerException, match=message):
            ask(server, embedding_bias=none, **fields)
    followers = words(*([greedy[0], token] for token in range(size)))
    with pytest.raises(InferenceServerException, match="output token 2: the request's rules ban all"):
        ask(server, bad_words_list=followers)
    assert ids(server) == greedy


def test_a_temperature_alone_samples_only_with_defaults_of_our_own(server, greedy):
    hot = {"temperature": 3.0, "random_seed": 5}
    assert ids(server, **hot) == greedy, "as with TensorRT-LLM"
    assert "'temperature' 3 without runtime_top_k" in server.log.read_text()
    drawn = ids(server, model="own", **hot)
    assert drawn != greedy and drawn == ids(server, model="own", runtime_top_p=1.0, **hot)
    assert ids(server, model="own") == greedy
    assert ids(server, model="own", temperature=0.0) == greedy
    assert ids(server, model="own", runtime_top_k=1, **hot) == greedy


def test_stop_words_and_end_ids_end_an_output(server, greedy):
    at = greedy.index(greedy[5])
    assert ids(server, end_id=greedy[5])[:at] == greedy[:at] and len(ids(server, end_id=greedy[5])) <= at + 1
    found = ids(server, stop_words_list=words(greedy[7:9]))
    assert found == greedy[:len(found)] and len(found) <= 9


@pytest.mark.parametrize("name", ["min_length", "min_tokens"])
def test_no_end_comes_before_the_least_length(server, greedy, name):
    end = greedy[3]
    first = greedy.index(end)

    def late(tokens, row):
        if len(tokens) - len(PROMPT) < 10:
            row[end] = -np.inf

    tokens, logits = answer(server, end_id=end, **{name: 10})
    assert len(tokens) >= 10 > first + 1
    assert tokens == greedy_with_rule(logits, late)[:len(tokens)]


def test_log_probabilities_are_those_of_the_logits(server):
    got = ask(server, ("output_ids", "generation_logits", "output_log_probs", "cum_log_probs"), return_generation_logits=True, return_log_probs=True)
    logits = got["generation_logits"][0].astype(np.float64)
    wanted = (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(TOKENS), got["output_ids"][0]]
    assert np.allclose(got["output_log_probs"][0], wanted, atol=1e-4) and np.allclose(got["cum_log_probs"], wanted.sum(), atol=1e-3)


def probabilities(row, temperature):
    weights = np.exp((row - row.max()) / temperature)
    return weights / weights.sum()


def kept_by_top_p(row, temperature, top_p):
    """Returns the most likely tokens with a total probability of top_p, with a small tolerance for rounding."""
    order = np.argsort(-row, kind="stable")
    before = np.cumsum(probabilities(row, temperature)[order]) - probabilities(row, temperature)[order]
    return set(order[before < top_p + 1e-4].tolist())


def kept(fields, step, row, tokens):
    temperature, allowed = fields["temperature"], set(range(len(row)))
    if "runtime_top_k" in fields:
        allowed &= set(np.argsort(-row, kind="stable")[:fields["runtime_top_k"]].tolist())
    if "min_p" in fields:
        share = probabilities(row, temperature)
        allowed &= set(np.flatnonzero(share >= fields["min_p"] * share.max() * (1 - 1e-4)).tolist())
    if "runtime_top_p" in fields:
        top_p, decay, least = fields["runtime_top_p"], fields.get("runtime_top_p_decay", 1.0), 1e-6
        least = fields.get("runtime_top_p_min", fields.get("runtime_top_k_min", least))
        for token in tokens:
            top_p = max(top_p * decay, least) if token != fields.get("runtime_top_p_reset_ids") else fields["runtime_top_p"]
        allowed &= kept_by_top_p(row, temperature, top_p)
    return allowed


def count_excluded(server, fields, rule, seeds=range(12)):
    """Draws tokens with `fields`; returns how many of them `rule` excludes, and how many were drawn."""
    outside = drawn = 0
    for seed in seeds:
        tokens, logits = answer(server, seed=seed, **fields)
        outside += sum(token not in kept(rule, step, row, tokens[:step]) for step, (token, row) in enumerate(zip(tokens, logits)))
        drawn += len(tokens)
    return outside, drawn


HOT = {"temperature": 2.0}
FALLING = {**HOT, "runtime_top_p": 0.9, "runtime_top_p_decay": 0.7}


@pytest.mark.parametrize("fields, without", [
    ({**HOT, "runtime_top_k": 5}, {**HOT, "runtime_top_k": 50}),
    ({**HOT, "runtime_top_p": 0.4}, {**HOT, "runtime_top_p": 0.95}),
    ({**HOT, "min_p": 0.2}, {**HOT, "min_p": 0.001}),
    (FALLING, {**FALLING, "runtime_top_p_decay": 1.0}),
    ({**FALLING, "runtime_top_p_min": 0.3}, {**FALLING, "runtime_top_p_decay": 1.0}),
    ({**FALLING, "runtime_top_k_min": 0.3}, {**FALLING, "runtime_top_p_decay": 1.0}),
    ({**HOT, "runtime_top_k": 20, "runtime_top_p": 1.0, "min_p": 0.05}, {**HOT, "runtime_top_p": 1.0}),
], ids=["top_k", "top_p", "min_p", "top_p_decay", "top_p_min", "top_k_min", "several"])
def test_sampled_tokens_satisfy_the_rule(server, fields, without):
    outside, drawn = count_excluded(server, fields, fields)
    assert drawn == 12 * TOKENS and outside == 0
    assert count_excluded(server, without, fields)[0] > drawn // 20


def test_minimum_top_p_keeps_more_than_the_likeliest_token(server):
    """Without a minimum, a decayed top_p becomes greedy."""
    late = slice(TOKENS // 2, None)

    def unlikely(fields):
        rows = [answer(server, seed=seed, **fields) for seed in range(12)]
        return sum(np.sum(logits[late].argmax(-1) != np.array(tokens[late])) for tokens, logits in rows)

    fallen = {**FALLING, "runtime_top_p_decay": 0.3}
    assert unlikely(fallen) == 0
    assert unlikely({**fallen, "runtime_top_p_min": 0.6}) > 12
    assert unlikely({**fallen, "runtime_top_k_min": 0.6}) > 12


def test_a_reset_token_starts_top_p_anew(server):
    fields = {**FALLING, "runtime_top_p_decay": 0.2}
    drawn = collections.Counter(token for seed in range(12) for token in ids(server, seed=seed, **fields))
    reset, times = drawn.most_common(1)[0]
    assert times > 12
    fields["runtime_top_p_reset_ids"] = int(reset)
    assert count_excluded(server, fields, fields)[0] == 0
    num_excluded = 0  # tokens after a reset that would be excluded without the reset
    fallen = {name: value for name, value in fields.items() if name != "runtime_top_p_reset_ids"}
    for seed in range(12):
        tokens, logits = answer(server, seed=seed, **fields)
        num_excluded += sum(step > 4 and token not in kept(fallen, step, row, tokens[:step]) for step, (token, row) in enumerate(zip(tokens, logits)))
    assert num_excluded > 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_sampled_frequencies_match_probabilities(server, temperature):
    """Tests the first token, 16 sequences at a time, with fixed seeds."""
    fields = dict(tokens=1, temperature=temperature, runtime_top_k=8)
    [row] = answer(server, seed=0, **fields)[1]
    best = np.argsort(-row, kind="stable")[:8]
    share = probabilities(row[best], temperature)
    draws = np.concatenate([ask(server, num_return_sequences=16, seed=1000 * seed, **fields)["output_ids"][:, 0] for seed in range(40)])
    counts = np.array([np.sum(draws == token) for token in best])
    assert counts.sum() == 640
    deviation = np.sqrt(640 * share * (1 - share))
    assert np.all(np.abs(counts - 640 * share) <= 4.5 * deviation + 1)


@pytest.mark.parametrize("name", ["seed", "random_seed"])
def test_a_seed_moves_the_draws_and_repeats_them(server, name):
    outputs = [ids(server, runtime_top_k=50, **HOT, **{name: seed}) for seed in (1, 2, 2 ** 63, 1)]
    assert outputs[0] == outputs[3] and len({tuple(output) for output in outputs}) == 3


def test_no_temperature_and_one_candidate_are_greedy(server, greedy):
    assert ids(server, temperature=0.0, runtime_top_k=50, seed=3) == greedy
    assert ids(server, runtime_top_k=1, seed=3, **HOT) == greedy
    assert ids(server, runtime_top_k=50, seed=3, **HOT) != greedy


def beams(server, **fields):
    got = ask(server, ("output_ids", "cum_log_probs", "sequence_length"), tokens=8, beam_width=4, return_log_probs=True, **fields)
    return [(row[:length].tolist(), float(total)) for row, length, total in zip(got["output_ids"], got["sequence_length"], got["cum_log_probs"])]


def test_diversity_parts_the_beams(server):
    alike, apart = ([tuple(row) for row, _ in beams(server, **fields)] for fields in ({}, {"beam_search_diversity_rate": 5.0}))
    assert len(set(alike)) == len(set(apart)) == 4 and alike != apart


def test_the_length_penalty_chooses_among_beams_that_end_early(server, greedy):
    """The end id appears early in some beams; a large length penalty favours the long ones."""
    end = greedy[2]
    short, long = ([len(row) for row, _ in beams(server, end_id=end, len_penalty=value)] for value in (-2.0, 4.0))
    assert min(short) < 8 and sum(short) < sum(long)


@pytest.mark.parametrize("fields, message", [
    (dict(min_length=-3), "'min_length' is -3, expected 0 or more"), (dict(min_tokens=-3), "'min_tokens' is -3, expected 0 or more"),
    (dict(runtime_top_k_min=2.0), "'runtime_top_k_min' is 2, expected 1e-06 to 1"), (dict(runtime_top_p_min=2.0), "'runtime_top_p_min' is 2, expected 1e-06 to 1"),
    (dict(runtime_top_k=-1), "'runtime_top_k' is -1, expected 0 or more"), (dict(min_p=-0.5), "'min_p' is -0.5, expected 0 to 1"),
    (dict(runtime_top_p_decay=0.0), "'runtime_top_p_decay' is 0, expected 1e-06 to 1"),
    (dict(runtime_top_p_reset_ids=-2), "'runtime_top_p_reset_ids' is -2, expected -1 (none) to"),
    (dict(repetition_penalty=0.0), "'repetition_penalty' is 0, expected 1e-06 to 1e+06"), (dict(embedding_bias=np.ones(9999, np.float32)), "'embedding_bias' has 9999 values, expected at most"),
    (dict(len_penalty=1000.0, beam_width=2), "'len_penalty' is 1000, expected -100 to 100"), (dict(priority=1001), "'priority' is 1001, expected -1000 to 1000"),
    (dict(bad_words_list=words([1 << 20])), "'bad_words_list' holds token id 1048576"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_out_of_range_values_are_named_as_sent(server, fields, message):
    with pytest.raises(InferenceServerException) as caught:
        ask(server, **fields)
    assert message in str(caught.value) and server.alive()
