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


def ids_of(server, **fields):
    return ask(server, return_token_ids=True, **{"text_input": TEXT, "max_tokens": 16, "end_id": -1, **fields})["output_token_ids"]


def test_token_ids_are_returned_where_a_request_asks_for_them(demo):
    prompt = prompt_ids(demo)
    whole = ask(demo, text_input=TEXT, max_tokens=12, return_token_ids=True)
    assert whole["prompt_ids"] == prompt and len(whole["output_token_ids"]) == whole["num_output_tokens"]
    pieces = stream(demo, text_input=TEXT, max_tokens=12, return_token_ids=True)
    ids = [piece["output_token_ids"] if isinstance(piece["output_token_ids"], list) else [piece["output_token_ids"]] for piece in pieces]
    assert sum(ids, []) == whole["output_token_ids"]
    assert [piece.get("prompt_ids") for piece in pieces] == [prompt] + [None] * (len(pieces) - 1)
    plain = ask(demo, text_input=TEXT, max_tokens=12)
    assert not {"output_token_ids", "prompt_ids", "token_texts", "top_logprobs"} & set(plain)


def test_stop_token_ids_end_the_text_and_are_named(demo):
    ids = ids_of(demo)
    stop = next(each for each in ids[3:] if each not in ids[:3])
    where = ids.index(stop)
    fields = {"text_input": TEXT, "max_tokens": 16, "stop_token_ids": [4000, stop], "return_token_ids": True}
    answer = ask(demo, **fields)
    assert (answer["finish_reason"], answer["stop_reason"]) == ("stop", str(stop)) and answer["output_token_ids"] == ids[:where]
    included = ask(demo, include_stop_str_in_output=True, **fields)
    assert included["output_token_ids"] == ids[:where + 1] and included["stop_reason"] == str(stop)
    last = stream(demo, **fields)[-1]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", str(stop))
    assert ask(demo, **{**fields, "stop_token_ids": [4000]})["stop_reason"] == ""
    assert ids_of(demo, stop_token_ids=[stop], min_tokens=where + 1)[where] != stop


def test_a_models_end_token_has_no_reason_and_can_be_ignored(demo):
    ids = ids_of(demo)
    answer = ask(demo, text_input=TEXT, max_tokens=16, end_id=ids[2])
    assert (answer["finish_reason"], answer["stop_reason"], answer["num_output_tokens"]) == ("stop", "", ids.index(ids[2]))
    ignored = ask(demo, text_input=TEXT, max_tokens=16, end_id=ids[2], ignore_eos=True)
    assert (ignored["finish_reason"], ignored["num_output_tokens"]) == ("length", 16)
    both = ask(demo, text_input=TEXT, max_tokens=16, end_id=ids[2], ignore_eos=True, stop_token_ids=[ids[2]])
    assert both["stop_reason"] == str(ids[2])


def test_a_stop_word_is_named_and_may_be_part_of_the_text(demo):
    text = ask(demo, text_input=TEXT, max_tokens=24)["text_output"]
    stop = text[9:13]  # begins and ends inside words
    end = text.index(stop) + len(stop)
    cut = ask(demo, text_input=TEXT, max_tokens=24, stop_words=["nowhere", stop])
    assert (cut["text_output"], cut["stop_reason"]) == (text[:end - len(stop)], stop)
    kept = ask(demo, text_input=TEXT, max_tokens=24, stop_words=["nowhere", stop], include_stop_str_in_output=True)
    assert (kept["text_output"], kept["stop_reason"], kept["finish_reason"]) == (text[:end], stop, "stop")
    pieces = stream(demo, text_input=TEXT, max_tokens=24, stop_words=[stop], include_stop_str_in_output=True)
    assert "".join(piece["text_output"] for piece in pieces) == text[:end]


def test_special_tokens_are_kept_where_a_request_wants_them(demo):
    fields = {"text_input": TEXT, "max_tokens": 3, "allowed_token_ids": [0], "ignore_eos": True}
    assert ask(demo, **fields)["text_output"] == ""
    text = ask(demo, skip_special_tokens=False, **fields)["text_output"]
    assert text and text == text[:len(text) // 3] * 3
    assert "".join(piece["text_output"] for piece in stream(demo, skip_special_tokens=False, **fields)) == text
    # A stop word is found in the text that the client sees.
    stopped = ask(demo, skip_special_tokens=False, stop_words=[text[:len(text) // 3]], **fields)
    assert (stopped["text_output"], stopped["stop_reason"]) == ("", text[:len(text) // 3])


def test_several_answers_in_one_body_are_in_the_order_of_their_index(demo):
    fields = {"text_input": TEXT, "max_tokens": 6, "num_return_sequences": 3, "top_p": 1.0, "temperature": 1.2, "seed": 5, "end_id": -1}
    texts = {piece["sequence_index"]: "" for piece in stream(demo, **fields)}
    for piece in stream(demo, **fields):
        texts[piece["sequence_index"]] += piece["text_output"]
    answer = ask(demo, **fields)
    assert answer["text_output"] == [texts[index] for index in range(3)] and answer["sequence_index"] == [0, 1, 2]
    assert answer["finish_reason"] == ["length"] * 3 and answer["num_output_tokens"] == [6] * 3 and answer["model_name"] == "ensemble"


def test_several_answers_stream_by_their_index(demo):
    fields = {"text_input": TEXT, "max_tokens": 12, "num_return_sequences": 3, "top_p": 1.0, "temperature": 1.2, "seed": 5, "end_id": -1}
    texts = ["", "", ""]
    ends = []
    for piece in stream(demo, **fields):
        texts[piece["sequence_index"]] += piece["text_output"]
        if piece["finish_reason"]:
            ends.append((piece["sequence_index"], piece["finish_reason"], piece["num_output_tokens"]))
    assert sorted(ends) == [(index, "length", 12) for index in range(3)] and len(set(texts)) > 1
    alone = ask(demo, **{**fields, "num_return_sequences": 1})
    assert alone["text_output"] == texts[0] and "sequence_index" not in alone


def test_logit_bias_and_allowed_tokens_choose_the_tokens(demo):
    ids = ids_of(demo)
    wanted = next(each for each in range(100, 200) if each not in ids)
    assert ids_of(demo, logit_bias_ids=[wanted], logit_bias_values=[100.0]) == [wanted] * 16
    assert ids[0] not in ids_of(demo, logit_bias_ids=[ids[0], wanted], logit_bias_values=[-100.0, 0.0])
    allowed = [ids[0], ids[1], wanted]
    assert set(ids_of(demo, allowed_token_ids=allowed)) <= set(allowed)
    assert ids_of(demo, allowed_token_ids=list(range(4096))) == ids


def test_penalties_count_the_tokens_that_a_reasoning_budget_writes(demo):
    """The bias makes a token likeliest until it has occurred twice. Where the budget replaces a sampled token, the one that was written counts."""
    likely, end = 150, 160

    def tokens(**fields):
        body = {"input_ids": prompt_ids(demo), "input_lengths": len(prompt_ids(demo)), "request_output_len": 8, "end_id": -1, "frequency_penalty": 60.0,
                "logit_bias_ids": [likely], "logit_bias_values": [100.0], **fields}
        return json.load(post(demo, "/v2/models/tensorrt_llm/generate", body))["output_ids"][-8:]

    def is_twice_behind(ids, begin):
        return ids[:len(begin) + 2] == begin + [likely, likely] and not {likely, end} & set(ids[len(begin) + 2:])

    assert is_twice_behind(tokens(), [])
    assert is_twice_behind(tokens(thinking_token_budget=0, thinking_end_ids=[end, end]), [end, end])
    ids = tokens(thinking_token_budget=1, thinking_end_ids=[end, likely])
    assert ids[:3] == [likely, end, likely] and not {likely, end} & set(ids[3:])


def test_priority_and_salt_reach_the_engine(demo):
    fields = {"text_input": TEXT, "max_tokens": 4}
    assert ask(demo, priority=2, cache_salt="a", **fields)["text_output"] == ask(demo, **fields)["text_output"]
    assert "priority" in refusal(demo, priority=5000, **fields)


def as_rows(value, width):
    return [value[at:at + width] for at in range(0, len(value), width)]


def test_likely_tokens_are_the_first_of_the_models_distribution(demo):
    """The greedy token is the first of its list, and its probability the one that return_log_probs gives: before temperature and rules."""
    fields = {"text_input": TEXT, "max_tokens": 8, "end_id": -1, "num_top_logprobs": 3, "return_log_probs": True, "return_token_ids": True}
    answer = ask(demo, **fields)
    ids, probabilities = as_rows(answer["top_logprob_ids"], 3), as_rows(answer["top_logprobs"], 3)
    assert [row[0] for row in ids] == answer["output_token_ids"] and len(ids) == 8
    assert [row[0] for row in probabilities] == pytest.approx(answer["output_log_probs"], abs=1e-5)
    assert all(row == sorted(row, reverse=True) for row in probabilities)
    assert "".join(answer["token_texts"]) == answer["text_output"]
    assert [row[0] for row in as_rows(answer["top_token_texts"], 3)] == answer["token_texts"]
    pieces = stream(demo, **fields)
    assert sum((piece["top_logprob_ids"] for piece in pieces), []) == answer["top_logprob_ids"]
    assert sum((piece["top_token_texts"] for piece in pieces), []) == answer["top_token_texts"]
    drawn = ask(demo, temperature=1.7, top_k=40, presence_penalty=1.0, seed=3, **fields)
    assert drawn["top_logprob_ids"][:3] == ids[0] and drawn["top_logprobs"][:3] == pytest.approx(probabilities[0], abs=1e-5)
    echo = ask(demo, exclude_input_in_output=False, **fields)
    assert echo["text_output"] == TEXT + answer["text_output"] and echo["token_texts"] == answer["token_texts"]
    assert "token_texts" in ask(demo, **{**fields, "num_top_logprobs": 0}) and "top_logprobs" not in ask(demo, **{**fields, "num_top_logprobs": 0})


@pytest.mark.parametrize("fields, needles", [
    ({"stop_token_ids": [4096]}, ("stop_token_ids", "4096", "4095")),
    ({"stop_token_ids": [1] * 1025}, ("stop_token_ids", "1025", "1024")),
    ({"logit_bias_ids": [1]}, ("logit_bias_ids", "logit_bias_values", "1", "0")),
    ({"logit_bias_ids": [9999], "logit_bias_values": [1.0]}, ("logit_bias_ids", "9999")),
    ({"logit_bias_ids": [1] * 1025, "logit_bias_values": [1.0] * 1025}, ("logit_bias_ids", "1025", "1024")),
    ({"allowed_token_ids": [-3]}, ("allowed_token_ids", "-3")),
    ({"allowed_token_ids": [5], "logit_bias_ids": [5], "logit_bias_values": [-1e38], "bad_words": []}, None),
    ({"num_top_logprobs": 21}, ("num_top_logprobs", "21", "20")),
    ({"num_return_sequences": 0}, ("num_return_sequences", "0")),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_values_out_of_range_are_refused_by_name(demo, fields, needles):
    if needles is None:  # unlikely, but allowed
        assert ask(demo, text_input="a", max_tokens=2, **fields)["num_output_tokens"] == 2
        return
    message = refusal(demo, text_input="a", max_tokens=4, **fields)
    assert all(needle in message for needle in needles), message


def test_several_prompts_are_answered_in_one_object(demo):
    prompts = [TEXT, "The king said to the"]
    single = [ask(demo, text_input=prompt, max_tokens=6) for prompt in prompts]
    both = ask(demo, text_input=prompts, max_tokens=[6, 6])
    for name in ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens"):
        assert both[name] == [one[name] for one in single]
    assert both["batch_index"] == [0, 1]


def test_members_without_effect_are_refused_or_logged_once(demo):
    assert refusal(demo, text_input=TEXT, max_tokens=2, temprature=0.5) == "unknown member 'temprature'; did you mean 'temperature'?"
    assert "multimodal rotary positions" in refusal(demo, text_input=TEXT, max_tokens=2, mrope_position_deltas=3)
    assert "no lookahead decoding" in refusal(demo, text_input=TEXT, max_tokens=2, lookahead_window_size=3)
    for _ in range(2):
        ask(demo, text_input=TEXT, max_tokens=2, house_speciality=1)
    assert demo.log.read_text().count("has no input 'house_speciality'") == 1
