"""Lookahead decoding on a whole server: the answers are those without it, and its sizes are those that parameters and requests name."""
import json
import pathlib
import urllib.error
import urllib.request

import pytest
from serve_process import Serving
from tested_engine import ENGINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18]
SAMPLED = {"runtime_top_p": ("FP32", [0.95]), "seed": ("UINT64", [7])}


def write(repository, name, **parameters):
    values = {"gpt_model_path": ROOT / "demo" / "model", "max_seq_len": 256, "max_num_sequences": 4, "exclude_input_in_output": "true", "batch_invariant": "true", **parameters}
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f'backend: "{ENGINE}"\nmax_batch_size: 0\n' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items()))


def load(server, name):
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{name}/load", data=b"{}"), timeout=60).close()


def refusal(call, *arguments, **more):
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(*arguments, **more)
    return json.load(caught.value)["error"]


def ask(server, model, **more):
    tensors = {"input_ids": ("INT32", PROMPT), "input_lengths": ("INT32", [8]), "request_output_len": ("INT32", [100]), "return_perf_metrics": ("BOOL", [True]), **more}
    body = {"inputs": [{"name": name, "datatype": kind, "shape": [len(data)], "data": data} for name, (kind, data) in tensors.items()]}
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {each["name"]: each["data"] for each in json.load(answer)["outputs"]}


def sizes(window=None, ngram=None, verification=None):
    names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
    return {name: ("INT32", [value]) for name, value in zip(names, (window, ngram, verification), strict=True) if value is not None}


@pytest.fixture(scope="module")
def server(own_server, own_repository):
    write(own_repository, "plain")
    write(own_repository, "named", speculative_decoding="lookahead")
    write(own_repository, "mode", decoding_mode="lookahead", lookahead_window_size="7", lookahead_ngram_size="5", lookahead_verification_set_size="7")
    for name in ("plain", "named", "mode"):
        load(own_server, name)
    return own_server


@pytest.mark.parametrize("more", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_lookahead_decoding_changes_no_answer(server, more):
    plain = ask(server, "plain", **more)
    for model in ("named", "mode"):
        for request_sizes in ({}, sizes(2, 2, 1), sizes(ngram=3)):
            answer = ask(server, model, **more, **request_sizes)
            assert answer["output_ids"] == plain["output_ids"]
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as page:
        text = page.read().decode()
    assert 'drafter="lookahead"' in text


def test_the_sizes_of_a_request_are_at_most_those_of_the_model(server):
    assert refusal(ask, server, "named", **sizes(5)) == "input 'lookahead_window_size' is 5: that of the model is 4, which a request may not exceed"
    assert refusal(ask, server, "mode", **sizes(ngram=6)) == "input 'lookahead_ngram_size' is 6: that of the model is 5, which a request may not exceed"
    assert refusal(ask, server, "mode", **sizes(ngram=1)) == "input 'lookahead_ngram_size' is 1, expected at least 2"
    assert "input 'lookahead_verification_set_size' is 1: the model has no lookahead decoding" in refusal(ask, server, "plain", **sizes(verification=1))


def test_sizes_that_do_not_fit_are_refused_at_load(server, own_repository):
    mode = {"decoding_mode": "lookahead"}
    for name, parameters, parts in [
            ("large", {**mode, "lookahead_window_size": 16, "lookahead_ngram_size": 5, "lookahead_verification_set_size": 17},
             ["has 131 draft tokens a step, (window + verification set) * (ngram - 1) - 1, expected 1 to 127"]),
            ("short", {**mode, "lookahead_ngram_size": 1}, ["parameter 'lookahead_ngram_size' is '1', expected 2 to 129"]),
            ("other", {**mode, "speculative_decoding": "ngram"}, ["'decoding_mode' is 'lookahead' and 'speculative_decoding' is 'ngram'"]),
            ("text", {"speculative_decoding": "lookahead=4,3"}, ["got '4,3', expected WINDOW,NGRAM,VERIFICATION"]),
            ("alone", {"lookahead_window_size": 4}, ["'lookahead_window_size' is 4: it needs 'decoding_mode' or 'speculative_decoding' lookahead"])]:
        write(own_repository, name, **parameters)
        message = refusal(load, server, name)
        for part in parts:
            assert part in message, message


def test_serve_speculates_by_lookahead_decoding(dist, tmp_path):
    texts = []
    for arguments in ([], ["--speculate", "lookahead"], ["--speculate", "lookahead=5,4,5"]):
        (folder := tmp_path / str(len(texts))).mkdir()
        serving = Serving(dist, folder, "demo", "--engine=cpu", *arguments)
        try:
            texts.append(json.loads(serving.ask("demo", max_tokens=120))["text_output"])
            if arguments:
                smaller = json.loads(serving.ask("demo", max_tokens=120, lookahead_window_size=3, lookahead_ngram_size=2))["text_output"]
                assert smaller == texts[0]
                with pytest.raises(urllib.error.HTTPError) as caught:
                    serving.ask("demo", lookahead_window_size=6)
                assert "'lookahead_window_size' is 6" in caught.value.read().decode()
        finally:
            serving.stop()
    assert texts[1:] == texts[:1] * 2
