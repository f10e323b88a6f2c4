"""What stays in the prefix cache: retention priorities of requests, by tensors, by request parameters and through the ensemble."""
import json
import pathlib
import urllib.error
import urllib.request

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
CONFIG = f"""backend: "cpu_reference"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{DEMO}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "2" }} }}
parameters {{ key: "max_tokens_in_paged_kv_cache" value {{ string_value: "160" }} }}
parameters {{ key: "enable_kv_cache_reuse" value {{ string_value: "true" }} }}
"""
RANGE = {"retention_token_range_starts": [0], "retention_token_range_ends": [-1], "retention_token_range_priorities": [90]}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    (root / "llm" / "1").mkdir(parents=True)
    (root / "llm" / "config.pbtxt").write_text(CONFIG)
    return start_server(root)


def prompt(first):
    return [first + i for i in range(65)]


def ask(server, ids, parameters=None, **tensors):
    """The number of the prompt's tokens that were cached, or the text of the error."""
    tensors = {"input_ids": ids, "input_lengths": [len(ids)], "request_output_len": [1], **tensors}
    body = {"parameters": parameters or {}, "inputs": [{"name": name, "datatype": "INT32", "shape": [len(data)], "data": data} for name, data in tensors.items()]}
    request = urllib.request.Request(f"{server.url}/v2/models/llm/infer", data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return next(each["data"][0] for each in json.load(answer)["outputs"] if each["name"] == "num_cached_tokens")
    except urllib.error.HTTPError as error:
        assert error.code == 400
        return json.load(error)["error"]


@pytest.mark.parametrize("first, form", [(1, "tensors"), (2, "parameters")])
def test_a_prompt_with_a_higher_priority_outlives_later_ones(server, first, form):
    texts = {name: ",".join(map(str, values)) for name, values in RANGE.items()}
    assert ask(server, prompt(first), **(RANGE if form == "tensors" else {"parameters": texts})) == 0
    plain = prompt(first + 70)
    assert ask(server, plain) == 0
    for other in range(3):
        ask(server, prompt(first + 10 + 20 * other))
    assert ask(server, plain) == 0
    lowered = {"retention_token_range_priorities": [0]}
    assert ask(server, prompt(first), **RANGE | lowered) == 64
    ask(server, prompt(first + 100))
    ask(server, prompt(first + 120))
    assert ask(server, prompt(first)) == 0


@pytest.mark.parametrize("change, message", [
    ({"retention_token_range_starts": [65]}, "'retention_token_range_starts' has 65, expected 0 to 64: the prompt has 65 tokens"),
    ({"retention_token_range_ends": [66]}, "'retention_token_range_ends' has 66 for the start 0, expected 1 to 65"),
    ({"retention_token_range_priorities": [101]}, "'retention_token_range_priorities' is 101, expected 0 to 100"),
    ({"retention_token_range_priorities": [1, 2]}, "'retention_token_range_priorities' has 2 values and 'retention_token_range_starts' has 1"),
    ({"retention_token_range_durations_ms": [0]}, "'retention_token_range_durations_ms' is 0, expected 1 or more"),
    ({"retention_decode_priority": [-1]}, "'retention_decode_priority' is -1, expected 0 to 100"),
    ({"retention_decode_duration_ms": [5]}, "'retention_decode_duration_ms' is 5 without 'retention_decode_priority'"),
    ({"parameters": {"retention_decode_priority": "high"}}, "request parameter 'retention_decode_priority' has 'high', expected integers"),
    ({"parameters": {"retention_decode_priority": 1.5}}, "request parameter 'retention_decode_priority': expected an integer"),
])
def test_a_wrong_retention_is_refused_with_both_values(server, change, message):
    assert message in ask(server, prompt(1), **RANGE | change)


def test_the_ensemble_passes_the_retention_on(demo):
    fields = {"text_input": "Once upon a time", "max_tokens": 2, "retention_token_range_starts": [0], "retention_token_range_ends": [-1],
              "retention_token_range_priorities": [90], "retention_token_range_durations_ms": [60000], "retention_decode_priority": 80, "retention_decode_duration_ms": 1000}

    def generate(**more):
        request = urllib.request.Request(f"{demo.url}/v2/models/ensemble/generate", data=json.dumps(fields | more).encode())
        return urllib.request.urlopen(request, timeout=60).status

    assert generate() == 200
    for name in fields.keys() - {"text_input", "max_tokens"}:
        with pytest.raises(urllib.error.HTTPError) as caught:
            generate(**{name: -7 if name.startswith("retention_decode") else [-7]})
        assert name in json.load(caught.value)["error"]
