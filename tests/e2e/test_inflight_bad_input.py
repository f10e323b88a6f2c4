"""Requests to `inflight_batcher_llm` repositories that cannot be answered: 400 with the limit in the text, and nothing else is disturbed."""
import json
import re
import shutil
import urllib.error
import urllib.request

import pytest
from test_inflight_repositories import PROMPT, ask, make_generation

INPUTS = [{"name": "input_ids", "datatype": "INT32", "shape": [1, 4], "data": [5, 6, 7, 8]}, {"name": "input_lengths", "datatype": "INT32", "shape": [1, 1], "data": [4]},
          {"name": "request_output_len", "datatype": "INT32", "shape": [1, 1], "data": [3]}]


@pytest.fixture(scope="module")
def server(start_server, dist, tmp_path_factory):
    """A decoupled repository, and the engine once more: not decoupled ("whole"), without outputs for logits ("bare")."""
    root = make_generation(dist, tmp_path_factory.mktemp("bad") / "models", "main", "--decoupled")
    config = (root / "tensorrt_llm/config.pbtxt").read_text()
    for name, changed in {"whole": config.replace("decoupled: true", "decoupled: false"),
                          "bare": re.sub(r'output \{ name: "\w+_logits".*\n', "", config.replace("decoupled: true", "decoupled: false"))}.items():
        shutil.copytree(root / "tensorrt_llm", root / name)
        (root / name / "config.pbtxt").write_text(changed.replace('name: "tensorrt_llm"', f'name: "{name}"'))
    return start_server(root)


def flag(name, value=True):
    return {"name": name, "datatype": "BOOL", "shape": [1, 1], "data": [value]}


def rows(inputs, count):
    return [{**tensor, "shape": [count, *tensor["shape"][1:]], "data": tensor["data"] * count} for tensor in inputs]


@pytest.mark.parametrize("model, fields, texts", [
    ("whole", {"inputs": INPUTS + [flag("streaming")]}, ["'streaming' is true", "decoupled"]),
    ("whole", {"inputs": rows(INPUTS, 2)}, ["decoupled", "2"]),
    ("whole", {"inputs": INPUTS + [{"name": "beam_width", "datatype": "INT32", "shape": [1, 1], "data": [5]}]}, ["'beam_width' is 5, expected 1 to 1"]),
    ("bare", {"inputs": INPUTS + [flag("return_context_logits")]}, ["return_context_logits", "context_logits"]),
    ("bare", {"inputs": INPUTS + [flag("return_generation_logits")]}, ["return_generation_logits", "generation_logits"]),
    ("ensemble", {"text_input": PROMPT * 200, "max_tokens": 5}, ["prompt of 2000 tokens", "limit is 1024"]),
    ("ensemble", {"text_input": PROMPT, "max_tokens": 0}, ["max_tokens", "0, expected 1 or more"]),
    ("tensorrt_llm_bls", {"text_input": PROMPT, "max_tokens": 5, "beam_width": 9}, ["'beam_width' is 9, expected 1 to 1"]),
], ids=lambda value: value if isinstance(value, str) else None)
def test_a_request_that_cannot_be_answered_gets_400_and_the_limit(server, model, fields, texts):
    before = ask(server, "ensemble", text_input=PROMPT, max_tokens=6)
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(server, model, "infer" if "inputs" in fields else "generate", **fields)
    message = json.load(caught.value)["error"]
    assert caught.value.code == 400 and all(text in message for text in texts), message
    assert ask(server, "ensemble", text_input=PROMPT, max_tokens=6) == before


def test_a_stream_of_several_rows_numbers_them(server):
    """Upstream refuses this combination; here each response has the row that it belongs to."""
    body = json.dumps({"text_input": [PROMPT, "The king"], "max_tokens": [4, 4], "stream": [True, True]}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/ensemble/generate_stream", data=body)
    events = [json.loads(line[6:]) for line in urllib.request.urlopen(request, timeout=60).read().decode().split("\n\n") if line]
    by_row = {row: "".join(event["text_output"] for event in events if event["batch_index"] == row) for row in (0, 1)}
    assert by_row[0] == json.loads(ask(server, "ensemble", text_input=PROMPT, max_tokens=4))["text_output"] and len(by_row[1]) > 3
