"""The inputs and outputs of the ensemble beyond TensorRT-LLM's: prompts of token ids, limits, stop rules, token ids and probabilities of answers."""
import json
import urllib.error
import urllib.request

import pytest

TEXT = "Once upon a time"
MODEL = "/v2/models/ensemble/generate"


def post(server, path, fields):
    return urllib.request.urlopen(urllib.request.Request(server.url + path, data=json.dumps(fields).encode()), timeout=120)


def ask(server, **fields):
    return json.load(post(server, MODEL, fields))


def stream(server, **fields):
    with post(server, MODEL + "_stream", {"stream": True, **fields}) as reply:
        return [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]


def refusal(server, **fields):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, MODEL, fields)
    assert caught.value.code == 400
    return json.load(caught.value)["error"]


def prompt_ids(server, text=TEXT):
    fields = [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]
    body = json.load(post(server, "/v2/models/preprocessing/infer", {"inputs": fields, "outputs": [{"name": "INPUT_ID"}]}))
    return body["outputs"][0]["data"]


def test_a_prompt_of_token_ids_is_answered_like_its_text(demo):
    ids = prompt_ids(demo)
    by_text, by_ids = (ask(demo, max_tokens=12, **prompt) for prompt in ({"text_input": TEXT}, {"prompt_token_ids": ids}))
    assert by_ids["text_output"] == by_text["text_output"]
    assert by_ids["num_input_tokens"] == by_text["num_input_tokens"] == len(ids)


def test_without_max_tokens_an_answer_may_fill_the_context(demo):
    ids = prompt_ids(demo)
    prompt = (ids * 300)[:1000]
    answer = ask(demo, prompt_token_ids=prompt, end_id=-1)
    assert answer["num_output_tokens"] == 24 and answer["finish_reason"] == "length"
    message = refusal(demo, prompt_token_ids=(ids * 300)[:1030])
    assert "1030" in message and "1024" in message
