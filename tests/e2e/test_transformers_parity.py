"""Compares beam search and sampling rules with PyPI `transformers` on the same checkpoints. Skipped if transformers is not installed."""
import fresh_goldens
import numpy as np
import pytest
import tritonclient.http as httpclient

CONFIG = """backend: "cpu_reference"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{path}" }} }}
parameters {{ key: "max_beam_width" value {{ string_value: "4" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
"""
CASES = [(name, seed) for name in ("llama", "gpt2") for seed in fresh_goldens.SEEDS]


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name, seed in CASES:
        (root / f"{name}-{seed}" / "1").mkdir(parents=True)
        (root / f"{name}-{seed}" / "config.pbtxt").write_text(CONFIG.format(path=fresh_goldens.directory(name, seed)))
    return start_server(root)


def ask(server, model, ids, tokens, **given):
    """Returns each output with the sum of its log probabilities."""
    kinds = {int: np.int32, float: np.float32, bool: bool}
    values = {"input_ids": np.array(ids, np.int32), "input_lengths": np.array([len(ids)], np.int32), "request_output_len": np.array([tokens], np.int32),
              "return_log_probs": np.array([True])}
    values |= {name: value if isinstance(value, np.ndarray) else np.array([value], kinds[type(value)]) for name, value in given.items()}
    types = {"int32": "INT32", "float32": "FP32", "bool": "BOOL"}
    inputs = [httpclient.InferInput(name, list(value.shape), types[str(value.dtype)]).set_data_from_numpy(value) for name, value in values.items()]
    names = ["output_ids", "sequence_length", "cum_log_probs"]
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120)
    answer = client.infer(model, inputs, outputs=[httpclient.InferRequestedOutput(name) for name in names])
    rows, lengths, sums = (answer.as_numpy(name) for name in names)
    return [(row[:length].tolist(), float(total)) for row, length, total in zip(rows, lengths, sums)]


@pytest.mark.timeout(900)  # the first test creates the checkpoints
@pytest.mark.parametrize("name,seed", CASES)
def test_beams_are_those_of_transformers(request, name, seed):
    golden = fresh_goldens.golden(name, seed)
    server = request.getfixturevalue("server")
    tokens = len(golden["prompts"][0]["greedy"])
    for case in golden["beams"]:
        found = ask(server, f"{name}-{seed}", golden["beam_prompt"], tokens, beam_width=golden["beam_width"], len_penalty=case["length_penalty"],
                    early_stopping=case["early_stopping"])
        assert len(found) == len(case["outputs"])
        for (ids, total), wanted in zip(found, case["outputs"]):
            assert ids == wanted["ids"], case
            assert abs(total - wanted["cum_log_prob"]) < 1e-3 * max(1.0, abs(total))


def words(lists):
    """Returns the format of bad_words_list: all ids, then the end of each word."""
    ids = [token for word in lists for token in word]
    ends = np.cumsum([len(word) for word in lists]).tolist()
    return np.array([ids, ends + [-1] * (len(ids) - len(ends))], np.int32)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name,seed", CASES)
def test_greedy_tokens_under_rules_are_those_of_transformers(request, name, seed):
    golden = fresh_goldens.golden(name, seed)
    server = request.getfixturevalue("server")
    tokens = len(golden["prompts"][0]["greedy"])
    for case in golden["ruled"]:
        given = {ours: case[theirs] for theirs, ours in (("min_new_tokens", "min_tokens"), ("repetition_penalty", "repetition_penalty"),
                                                         ("no_repeat_ngram_size", "no_repeat_ngram_size")) if theirs in case}
        if "bad_words_ids" in case:
            given["bad_words_list"] = words(case["bad_words_ids"])
        [(ids, _)] = ask(server, f"{name}-{seed}", golden["beam_prompt"], tokens, **given)
        if case["min_lead"] > 1e-3:  # otherwise rounding may decide
            assert ids == case["ids"], case
