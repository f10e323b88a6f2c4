"""The OpenAI API and Anthropic's messages, asked by their own clients: against the demo checkpoint with a chat template, and against a model without weights that has every
tensor that the routes know (openai_models/oracle)."""
import json
import pathlib
import shutil
import subprocess

import pytest

from http_request import send_http
from python_support import python_flags
from raw_http import Raw, post
from waiting import wait_for

openai = pytest.importorskip("openai")
ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ("{% for m in messages %}{{ '<|endoftext|>' + m.role + ': ' + m.content|trim + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% if thinks %}<think>{# </think> #}{% endif %}{% endif %}")
MESSAGES = [{"role": "user", "content": "Once upon a time"}]


@pytest.fixture(scope="module")
def cancelled(tmp_path_factory):
    return tmp_path_factory.mktemp("cancelled") / "file"


@pytest.fixture(scope="module")
def server(start_server, chat_repository, cancelled):
    repository = chat_repository(TEMPLATE, "--decoupled")
    shutil.copytree(ROOT / "tests/e2e/openai_models/oracle", repository / "oracle")
    return start_server(repository, python_flags("--cors-origin=https://chat.example", "--http-max-input-size=1000000", "--stream-keep-alive-secs=1"),
                        environment={"ORACLE_CANCELLED": str(cancelled)})


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def ask(client, content, **fields):
    return client.chat.completions.create(model="oracle", messages=[{"role": "user", "content": content}], **fields)


def ask_pieces(client, pieces, **fields):
    return ask(client, json.dumps(pieces), **fields)


def error_of(client, **fields):
    with pytest.raises(openai.APIStatusError) as error:
        client.chat.completions.create(**{"model": "oracle", "messages": MESSAGES, **fields})
    return error.value


def http(server, path, body=None, method=None, **headers):
    """Returns (status, headers, body) of one request."""
    return send_http(server.url + path, body, {name.replace("_", "-"): value for name, value in headers.items()}, method)


def test_a_chat_is_answered_whole_and_as_a_stream(client):
    fields = {"model": "ensemble", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**fields)
    assert whole.object == "chat.completion" and whole.model == "ensemble" and whole.id.startswith("chatcmpl-")
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 8 and whole.usage.total_tokens == whole.usage.prompt_tokens + 8
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "length" and all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_is_in_every_chunk_of_a_stream_that_asks_for_it(client):
    chunks = list(client.chat.completions.create(model="ensemble", messages=MESSAGES, max_tokens=4, temperature=0, stream=True,
                                                 stream_options={"include_usage": True, "continuous_usage_stats": True}))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 4 and chunks[-1].choices == []
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {chunks[-1].usage.prompt_tokens}


@pytest.mark.parametrize("path, fields, comment", [("/v1/chat/completions", {}, ": keep-alive\n\n"), ("/v1/messages", {"max_tokens": 5}, "event: ping\n")])
def test_a_stream_that_is_silent_is_kept_alive(server, path, fields, comment):
    content = json.dumps([{"text_output": ["a"]}, {"sleep": 2.2, "text_output": ["b"], "finish_reason": ["stop"]}])
    body = {"model": "oracle", "messages": [{"role": "user", "content": content}], "stream": True, **fields}
    status, _, text = http(server, path, json.dumps(body).encode())
    text = text.decode() if isinstance(text, bytes) else text
    assert status == 200 and comment in text[text.index('"a"'):text.index('"b"')]


def test_prompts_are_completed_alone_and_in_a_list(client):
    fields = {"model": "ensemble", "max_tokens": 6, "temperature": 0}
    alone = [client.completions.create(prompt=prompt, **fields) for prompt in ("Once upon a time", "The dog")]
    together = client.completions.create(prompt=["Once upon a time", "The dog"], **fields)
    assert [choice.text for choice in together.choices] == [each.choices[0].text for each in alone]
    assert [choice.index for choice in together.choices] == [0, 1]
    assert together.usage.prompt_tokens == sum(each.usage.prompt_tokens for each in alone) and together.usage.completion_tokens == 12
    echo = client.completions.create(prompt="The dog", echo=True, **fields)
    assert echo.choices[0].text == "The dog" + alone[1].choices[0].text
    texts = ["", ""]
    for chunk in client.completions.create(prompt=["Once upon a time", "The dog"], stream=True, **fields):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in together.choices]


def test_the_fields_of_the_engine_are_honoured(client):
    fields = {"model": "ensemble", "prompt": "Once upon a time", "max_tokens": 6, "seed": 3}
    several = client.completions.create(n=2, temperature=1.5, **fields)
    assert [choice.index for choice in several.choices] == [0, 1] and several.choices[0].text != several.choices[1].text
    assert several.usage.completion_tokens == 12
    likely = client.completions.create(logprobs=2, temperature=0, **fields).choices[0]
    assert "".join(likely.logprobs.tokens) == likely.text
    assert all(max(top, key=top.get) == token for top, token in zip(likely.logprobs.top_logprobs, likely.logprobs.tokens))
    extra = {"return_token_ids": True, "allowed_token_ids": [300, 301]}
    allowed = client.completions.create(logit_bias={"301": 100}, extra_body=extra, **fields).choices[0]
    assert allowed.token_ids == [301] * 6
    stopped = client.completions.create(extra_body={**extra, "stop_token_ids": [300, 301]}, **fields).choices[0]
    assert stopped.finish_reason == "stop" and stopped.stop_reason in ("300", "301", 300, 301)


def test_a_temperature_alone_samples(client):
    fields = {"model": "ensemble", "prompt": "The", "max_tokens": 8}
    texts = {client.completions.create(temperature=1.5, seed=seed, **fields).choices[0].text for seed in range(4)}
    assert len(texts) > 1
    assert len({client.completions.create(**fields).choices[0].text for _ in range(4)}) > 1  # OpenAI's default is 1, and seeds differ
    assert len({client.completions.create(temperature=0, seed=seed, **fields).choices[0].text for seed in range(2)}) == 1


def test_fields_reach_the_model_as_tensors(client):
    extra = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}, "return_token_ids": True}
    inputs = json.loads(ask(client, "inputs", max_tokens=9, seed=-1, stop=["a", "b"], logit_bias={"7": -1.5}, temperature=0.5, top_p=0.25, n=2,
                            logprobs=True, top_logprobs=3, reasoning_effort="low", extra_body=extra,
                            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]).choices[0].message.content)
    assert json.loads(inputs.pop("messages")[0]) == [{"role": "user", "content": "inputs"}]
    assert json.loads(inputs.pop("tools")[0])[0]["function"]["name"] == "f"
    assert json.loads(inputs.pop("chat_template_kwargs")[0]) == {"reasoning_effort": "low", "enable_thinking": False}
    assert inputs == {"max_tokens": [9], "seed": [2**64 - 1], "stop_words": ["a", "b"], "logit_bias_ids": [7], "logit_bias_values": [-1.5],
                      "temperature": [0.5], "top_p": [0.25], "top_k": [5], "num_return_sequences": [2], "return_log_probs": [True],
                      "num_top_logprobs": [3], "return_token_ids": [True], "parse_output": [True]}
    ids = json.loads(client.completions.create(model="oracle", prompt=[[3, 4]], stream=False).choices[0].text)
    assert ids.pop("seed") and ids["prompt_token_ids"] == [3, 4] and ids["max_tokens"] == [16] and "text_input" not in ids


CALL = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": "{\"a\":1}"}}, {"index": 1, "id": "call_2", "type": "function",
                                                              "function": {"name": "g", "arguments": "{}"}}]
TOOL_PIECES = [{"text_output": [""], "reasoning": ["think"], "num_input_tokens": [5], "num_cached_tokens": [4], "num_output_tokens": [1]},
               {"text_output": ["hi"], "tool_calls": [json.dumps(CALL[:1])]},
               {"text_output": [""], "tool_calls": [json.dumps(CALL[1:])], "finish_reason": ["stop"], "num_output_tokens": [3]}]


def test_tool_calls_and_reasoning_are_passed_on(client):
    choice = (whole := ask_pieces(client, TOOL_PIECES)).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "hi"
    assert choice.message.reasoning_content == choice.message.reasoning == "think"
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls] == \
        [("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")]
    assert whole.usage.prompt_tokens_details.cached_tokens == 4 and whole.usage.completion_tokens == 3
    with client.chat.completions.stream(model="oracle", messages=[{"role": "user", "content": json.dumps(TOOL_PIECES)}]) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls"
    assert [(call.id, call.function.name, call.function.arguments) for call in streamed.message.tool_calls] == \
        [("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")]
    single = ask_pieces(client, TOOL_PIECES, parallel_tool_calls=False, extra_body={"include_reasoning": False}).choices[0].message
    assert len(single.tool_calls) == 1 and not hasattr(single, "reasoning")


def test_an_answer_of_max_tokens_tokens_without_a_reason_was_ended_by_them(client):
    pieces = [{"text_output": ["a"], "num_output_tokens": [1]}, {"text_output": ["b"], "num_output_tokens": [3]}]

    def reason(**fields):
        whole = ask_pieces(client, pieces, **fields).choices[0].finish_reason
        assert list(ask_pieces(client, pieces, stream=True, **fields))[-1].choices[0].finish_reason == whole
        return whole

    assert reason(max_tokens=3) == reason(max_completion_tokens=3) == "length"
    assert reason() == reason(max_tokens=4) == reason(max_tokens=2) == "stop"
    # A stop word may have been the last token.
    assert reason(max_tokens=3, stop=["b"]) == "stop"
    pieces[-1]["finish_reason"] = ["stop"]
    assert reason(max_tokens=3) == "stop"


def test_several_answers_and_their_log_probabilities_are_passed_on(client):
    pieces = [{"text_output": [text], "sequence_index": [index], "finish_reason": ["stop"], "num_input_tokens": [2], "num_output_tokens": [1],
               "token_texts": [text], "output_log_probs": [-0.5], "top_token_texts": [[text, "z"]], "top_logprobs": [[-0.5, -2.0]],
               "output_token_ids": [7], "stop_reason": ["5"]} for index, text in ((1, "b"), (0, "a"))]
    answer = ask_pieces(client, pieces, n=2, logprobs=True, top_logprobs=2, extra_body={"return_token_ids": True})
    assert [choice.message.content for choice in answer.choices] == ["a", "b"] and answer.usage.completion_tokens == 2
    token = answer.choices[1].logprobs.content[0]
    assert (token.token, token.logprob, token.bytes) == ("b", -0.5, [98]) and token.top_logprobs[1].token == "z"
    assert answer.choices[0].token_ids == [7] and answer.choices[0].stop_reason == "5"
    choice = client.completions.create(model="oracle", prompt=json.dumps(pieces[1:]), logprobs=2).choices[0]
    assert choice.logprobs.tokens == ["a"] and choice.logprobs.top_logprobs == [{"a": -0.5, "z": -2.0}]


def test_a_model_that_fails_is_reported_where_the_client_can_see_it(client):
    error = error_of(client, messages=[{"role": "user", "content": "error"}])
    assert error.status_code == 400 and error.code == "context_length_exceeded" and "9" in error.message and "8" in error.message
    late = [{"text_output": ["a"]}, {"error": "broken"}]
    assert error_of(client, messages=[{"role": "user", "content": json.dumps(late)}]).status_code == 500
    seen = []
    with pytest.raises(openai.APIError, match="broken"):
        for chunk in ask_pieces(client, late, stream=True):
            seen.append(chunk.choices[0].delta.content)
    assert seen == ["", "a"]


@pytest.mark.parametrize("fields, status, param", [
    ({"model": "absent"}, 404, "model"),
    ({"model": ""}, 404, "model"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "messages[0].content[0]"),
    ({"temperature": 3}, 400, "temperature"),
    ({"response_format": {"type": "json_object"}}, 400, "response_format"),
    ({"tool_choice": "required"}, 400, "tool_choice"),
    ({"extra_body": {"top_kk": 1}}, 400, "top_kk"),
    ({"extra_body": {"stop": 5}}, 400, "stop"),
    ({"stop": ["x"] * 17}, 400, "stop"),
])
def test_a_faulty_request_is_refused_by_name(client, fields, status, param):
    error = error_of(client, **fields)
    assert error.status_code == status and error.param == param, error.message
    if status == 404:
        assert error.code == "model_not_found" and "'ensemble', 'oracle'" in error.message


def test_the_models_with_text_are_listed(client, server):
    assert [model.id for model in client.models.list()] == ["ensemble", "oracle"]
    assert client.models.retrieve("oracle").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("preprocessing")
    assert http(server, "/health")[0] == http(server, "/ping")[0] == 200
    assert json.loads(http(server, "/version")[2])["version"] == json.loads(http(server, "/v2")[2])["nereid_version"]


def test_bodies_that_are_no_request_are_refused(server):
    def error(path, body, **headers):
        status, _, text = http(server, path, body, **headers)
        return status, json.loads(text)["error"]["message"]

    assert error("/v1/completions", b'{"model":"ensemble",}') == (400, "invalid JSON at byte 20: expected a member name, got '}'")
    assert error("/v1/chat/completions", b"") == (400, "invalid JSON at byte 0: expected an object, got the end of the text")
    assert error("/v1/chat/completions", b"{}") == (400, "model: this field is required")
    assert error("/v1/chat/completions", b"[" * 5000)[0] == 400
    assert error("/v1/chat/completions", b" " * 1000001)[0] == 413
    assert error("/v1/chat/completions", None)[0] == 405
    assert error("/v1/models", b"{}")[0] == 405
    assert error("/v1/embeddings", b"{}") == (404, "there is no route /v1/embeddings")
    assert error("/v1/chat/completions", b"{}", Content_Encoding="br")[0] == 415


def test_a_request_keeps_its_id(server):
    body = json.dumps({"model": "oracle", "prompt": "inputs"}).encode()
    assert http(server, "/v1/completions", body, X_Request_Id="mine-1")[1]["X-Request-Id"] == "mine-1"
    status, headers, answer = http(server, "/v1/completions", body)
    assert headers["X-Request-Id"] == json.loads(answer)["id"]


def test_web_pages_may_use_the_server_if_they_are_listed(server):
    body = json.dumps({"model": "oracle", "prompt": "inputs"}).encode()
    status, headers, _ = http(server, "/v1/completions", body, Origin="https://chat.example")
    assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://chat.example"
    status, headers, _ = http(server, "/v1/completions", body, Origin="https://evil.example")
    assert status == 403 and headers["Access-Control-Allow-Origin"] is None
    assert http(server, "/v1/models", Host="evil.example:1")[0] == 403
    # KServe's routes: as for browsers, and programs may call the host by any name.
    kserve = "/v2/models/oracle"
    assert http(server, kserve, Origin="https://evil.example")[0] == 403 == http(server, kserve, Host="evil.example", Sec_Fetch_Mode="navigate")[0]
    assert http(server, kserve + "/generate", b"{}", Origin="null")[0] == 403
    assert http(server, kserve, Origin="https://chat.example")[0] == http(server, kserve, Host="proxy.example")[0] == 200
    assert http(server, kserve, Accept_Language="en")[0] == 200
    preflight = {"Origin": "https://chat.example", "Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-a"}
    status, headers, _ = http(server, "/v1/completions", method="OPTIONS", **preflight)
    assert status == 204 and headers["Access-Control-Allow-Headers"] == "authorization,x-a" and "POST" in headers["Access-Control-Allow-Methods"]
    assert http(server, "/v1/completions", method="OPTIONS", **{**preflight, "Origin": "https://evil.example"})[0] >= 400


def test_a_client_that_leaves_cancels_its_request(server, client, cancelled):
    raw = Raw(server.http)
    body = {"model": "oracle", "messages": [{"role": "user", "content": "forever"}], "stream": True}
    raw.send(post("/v1/chat/completions", body).replace(b"Host: x\r\n", b"Host: localhost\r\n"))
    raw.read_until(b"more ")
    assert not cancelled.exists()
    raw.close()
    wait_for(cancelled.exists, "the model is cancelled")
    assert ask(client, "inputs").choices[0].finish_reason == "stop"


def asked(server, path, body):
    status, _, text = http(server, path, json.dumps(body).encode())
    return status, json.loads(text)


def test_a_tokenizer_is_asked_without_its_engine(server, client):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(ROOT / "demo/model/tokenizer.json"))
    ids = tokenizer.encode("Once upon a time").ids
    assert asked(server, "/tokenize", {"model": "ensemble", "prompt": "Once upon a time"}) == (200, {"count": len(ids), "tokens": ids})
    assert asked(server, "/detokenize", {"model": "ensemble", "tokens": ids}) == (200, {"prompt": "Once upon a time"})
    assert asked(server, "/detokenize", {"model": "ensemble", "tokens": []}) == (200, {"prompt": ""})
    chat = tokenizer.encode("<|endoftext|>user: Once upon a time\nassistant:").ids
    body = {"model": "ensemble", "messages": MESSAGES}
    assert asked(server, "/tokenize", body)[1]["tokens"] == chat
    assert asked(server, "/v1/chat/completions/render", {**body, "temperature": 0, "max_tokens": 5})[1]["token_ids"] == chat
    rendered = asked(server, "/v1/completions/render", {"model": "ensemble", "prompt": ["Once upon a time", "The"]})[1]
    assert [each["token_ids"] for each in rendered] == [ids, tokenizer.encode("The").ids]
    usage = client.chat.completions.create(model="ensemble", messages=MESSAGES, max_tokens=1).usage
    assert usage.prompt_tokens == len(chat)
    assert asked(server, "/apply-template", body) == (200, {"prompt": "<|endoftext|>user: Once upon a time\nassistant:"})
    assert asked(server, "/tokenize", {"model": "oracle", "prompt": "x"})[0] == 400
    assert asked(server, "/tokenize", {"model": "ensemble"})[1]["error"]["param"] == "prompt"


def test_the_api_describes_itself(server):
    description = json.loads(http(server, "/openapi.json")[2])
    chat = description["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat["properties"]["temperature"]["maximum"] == 2 and chat["required"] == ["model", "messages"]
    assert "structured_outputs" in chat["properties"] and "prediction" not in chat["properties"] and "get" in description["paths"]["/v1/models/{id}"]


def test_anthropics_client_is_answered(server):
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as client:
        fields = {"model": "ensemble", "max_tokens": 8, "messages": MESSAGES, "extra_body": {"temperature": 0}}
        whole = client.messages.create(**fields)
        assert whole.role == "assistant" and whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 8
        with client.messages.stream(**fields) as stream:
            assert "".join(stream.text_stream) == whole.content[0].text
            assert stream.get_final_message().usage == whole.usage
        assert client.messages.count_tokens(model="ensemble", messages=MESSAGES).input_tokens == whole.usage.input_tokens
        asked = [{"role": "user", "content": json.dumps(TOOL_PIECES)}]
        blocks = client.messages.create(model="oracle", max_tokens=5, messages=asked).content
        assert [block.type for block in blocks] == ["thinking", "text", "tool_use", "tool_use"] and blocks[2].input == {"a": 1}
        with client.messages.stream(model="oracle", max_tokens=5, messages=asked) as stream:
            message = stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.content[2].input == {"a": 1} and message.stop_reason == "tool_use"
        with pytest.raises(anthropic.NotFoundError) as error:
            client.messages.create(model="absent", max_tokens=5, messages=MESSAGES)
        assert error.value.body["type"] == "error" and error.value.body["error"]["type"] == "not_found_error"
        with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
            client.messages.create(model="oracle", max_tokens=5, messages=MESSAGES, tool_choice={"type": "any"})


def test_responses_are_stored_and_continued(server, client):
    fields = {"model": "ensemble", "input": "Once upon a time", "max_output_tokens": 6, "temperature": 0}
    first = client.responses.create(**fields)
    assert first.status == "incomplete" and first.output_text and first.usage.output_tokens == 6
    assert client.responses.retrieve(first.id) == first
    second = client.responses.create(**{**fields, "input": "Go on"}, previous_response_id=first.id)
    items = [{"role": "user", "content": "Once upon a time"}, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "Go on"}]
    assert second.usage.input_tokens == client.responses.input_tokens.count(model="ensemble", input=items).input_tokens
    assert second.output_text == client.responses.create(**{**fields, "input": items}).output_text
    client.responses.delete(first.id)
    for missing in (lambda: client.responses.retrieve(first.id), lambda: client.responses.cancel(first.id),
                    lambda: client.responses.retrieve(client.responses.create(**fields, store=False).id)):
        with pytest.raises(openai.NotFoundError):
            missing()
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(**fields, previous_response_id=first.id)
    with client.responses.stream(model="oracle", input=json.dumps(TOOL_PIECES)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and "response.function_call_arguments.done" in kinds
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"] and final.output_text == "hi"
    assert final.output[2].arguments == '{"a":1}' and client.responses.retrieve(final.id).output_text == "hi"


def test_the_engine_honours_the_fields_of_clients(client):
    fields = {"model": "ensemble", "messages": MESSAGES, "max_tokens": 6}
    several = client.chat.completions.create(**fields, n=3, seed=1, temperature=1.2)
    assert [choice.index for choice in several.choices] == [0, 1, 2] and len({choice.message.content for choice in several.choices}) > 1
    assert several.usage.completion_tokens == 18
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**fields, n=3, seed=1, temperature=1.2, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == [choice.message.content for choice in several.choices]

    whole = client.chat.completions.create(**fields, temperature=0, logprobs=True, top_logprobs=2, extra_body={"return_token_ids": True})
    choice = whole.choices[0]
    tokens = choice.logprobs.content
    assert len(tokens) == len(choice.token_ids) == 6 and len(whole.prompt_token_ids) == whole.usage.prompt_tokens
    assert "".join(token.token for token in tokens) == choice.message.content
    assert all(len(token.top_logprobs) == 2 and token.top_logprobs[0].token == token.token for token in tokens)
    ids = client.completions.create(model="ensemble", prompt=whole.prompt_token_ids, max_tokens=6, temperature=0, logprobs=1)
    assert ids.choices[0].text == choice.message.content and ids.choices[0].logprobs.tokens == [token.token for token in tokens]
    batch = client.completions.create(model="ensemble", prompt=[whole.prompt_token_ids] * 2, max_tokens=6, temperature=0)
    assert [each.text for each in batch.choices] == [choice.message.content] * 2

    stopped = client.chat.completions.create(**fields, temperature=0, extra_body={"stop_token_ids": [choice.token_ids[2]]}).choices[0]
    assert stopped.finish_reason == "stop" and stopped.stop_reason == str(choice.token_ids[2])
    word = tokens[3].token
    assert client.chat.completions.create(**fields, temperature=0, stop=[word]).choices[0].message.content == choice.message.content.split(word)[0]
    banned = {str(choice.token_ids[0]): -100}
    assert client.chat.completions.create(**fields, temperature=0, logit_bias=banned).choices[0].message.content != choice.message.content
    allowed = {"allowed_token_ids": [choice.token_ids[0]]}
    only = client.chat.completions.create(**fields, temperature=0, extra_body=allowed).choices[0].message.content
    assert only == tokens[0].token * 6
    assert client.chat.completions.create(model="ensemble", messages=MESSAGES, temperature=0, extra_body={"min_tokens": 3}).usage.completion_tokens >= 3


def complete(client, **fields):
    extra = {name: fields.pop(name) for name in list(fields) if name in ("prompt_logprobs", "truncate_prompt_tokens", "return_token_ids")}
    return client.completions.create(**{"model": "ensemble", "temperature": 0, "max_tokens": 2, **fields}, extra_body=extra)


def test_log_probabilities_of_the_prompt(client):
    whole = complete(client, prompt="Once upon a time", max_tokens=4, logprobs=1, return_token_ids=True).choices[0]
    ids = whole.prompt_token_ids + whole.token_ids
    # The answer is most likely, so that as a prompt its tokens are the likeliest ones again.
    echo = complete(client, prompt=[ids], echo=True, logprobs=1).choices[0]
    assert echo.text.startswith("Once upon a time" + whole.text) and "".join(echo.logprobs.tokens) == echo.text
    start, end = len(whole.prompt_token_ids), len(ids)
    assert echo.logprobs.tokens[start:end] == whole.logprobs.tokens
    assert echo.logprobs.token_logprobs[start:end] == pytest.approx(whole.logprobs.token_logprobs, abs=1e-4)
    assert echo.logprobs.token_logprobs[0] is None and echo.logprobs.top_logprobs[0] is None
    assert [list(top) for top in echo.logprobs.top_logprobs[start:end]] == [[token] for token in whole.logprobs.tokens]
    assert [echo.text[at:].startswith(token) for at, token in zip(echo.logprobs.text_offset, echo.logprobs.tokens)] == [True] * len(echo.logprobs.tokens)
    pieces = list(complete(client, prompt=[ids], echo=True, logprobs=1, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == echo.text
    assert [token for piece in pieces for token in piece.choices[0].logprobs.tokens] == echo.logprobs.tokens
    prompt = complete(client, prompt=[ids], prompt_logprobs=2).choices[0].prompt_logprobs
    assert prompt[0] is None and len(prompt) == len(ids)
    for place, token in zip(prompt[start:], ids[start:]):
        assert place[str(token)]["rank"] == 1 and len(place) == 2 and max(each["logprob"] for each in place.values()) == place[str(token)]["logprob"]
    chat = client.chat.completions.create(model="ensemble", messages=MESSAGES, max_tokens=1, n=2, extra_body={"prompt_logprobs": 0})
    assert chat.prompt_logprobs[0] is None and all(len(place) == 1 for place in chat.prompt_logprobs[1:])
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens


def test_an_answer_without_tokens_is_its_prompt(client):
    ids = complete(client, prompt="Once upon a time", return_token_ids=True).choices[0].prompt_token_ids
    more = complete(client, prompt="Once upon a time", echo=True, logprobs=1).choices[0]
    for prompt in ("Once upon a time", ids):
        answer = complete(client, prompt=prompt, max_tokens=0, echo=True, logprobs=1)
        choice = answer.choices[0]
        assert choice.text == "".join(choice.logprobs.tokens) == "Once upon a time" and choice.finish_reason == "length"
        assert choice.logprobs.token_logprobs == pytest.approx(more.logprobs.token_logprobs[:len(ids)], abs=1e-4)
        assert answer.usage.completion_tokens == 0 and answer.usage.prompt_tokens == len(ids)
        pieces = list(complete(client, prompt=prompt, max_tokens=0, echo=True, logprobs=1, stream=True))
        assert "".join(piece.choices[0].text for piece in pieces) == choice.text and pieces[-1].choices[0].finish_reason == "length"
        assert [token for piece in pieces for token in piece.choices[0].logprobs.tokens] == choice.logprobs.tokens
    with pytest.raises(openai.BadRequestError, match="max_tokens: expected at least 1 without 'echo', got 0"):
        complete(client, prompt="Once", max_tokens=0)


def test_a_stream_echoes_its_prompts(client):
    texts = ["", ""]
    for chunk in complete(client, prompt=["Once upon", "The dog"], echo=True, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in complete(client, prompt=["Once upon", "The dog"], echo=True).choices]


def test_the_best_answers_are_kept(client):
    fields = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 1.2, "seed": 3, "logprobs": 0}
    every = complete(client, n=4, **fields)
    best = complete(client, n=2, best_of=4, **fields)
    means = [sum(choice.logprobs.token_logprobs) for choice in every.choices]
    expected = [every.choices[index].text for index in sorted(range(4), key=lambda index: -means[index])[:2]]
    assert [choice.text for choice in best.choices] == expected and [choice.index for choice in best.choices] == [0, 1]
    assert best.usage.completion_tokens == every.usage.completion_tokens


def test_a_prompt_is_truncated(client, server):
    long = complete(client, prompt="Once upon a time there was a dog", truncate_prompt_tokens=3, return_token_ids=True)
    short = complete(client, prompt=long.choices[0].prompt_token_ids)
    assert long.usage.prompt_tokens == 3 and long.choices[0].text == short.choices[0].text
    context = client.models.retrieve("ensemble").max_model_len
    filled = complete(client, prompt=[[300] * (context + 50)], truncate_prompt_tokens=-1)
    assert filled.usage.prompt_tokens == context - 2 and filled.usage.completion_tokens == 2
    _, rendered = asked(server, "/v1/completions/render", {"model": "ensemble", "prompt": [[1, 2, 3], [4]], "truncate_prompt_tokens": 2})
    assert [each["token_ids"] for each in rendered] == [[2, 3], [4]]


def test_the_last_message_is_continued(client, server):
    messages = [*MESSAGES, {"role": "assistant", "content": " There was a "}]
    _, rendered = asked(server, "/apply-template", {"model": "ensemble", "messages": messages, "continue_final_message": True})
    assert rendered == {"prompt": "<|endoftext|>user: Once upon a time\n<|endoftext|>assistant: There was a"}
    extra = {"continue_final_message": True, "add_generation_prompt": False, "return_token_ids": True}
    chat = client.chat.completions.create(model="ensemble", messages=messages, max_tokens=4, temperature=0, extra_body=extra)
    assert chat.choices[0].message.content == complete(client, prompt=chat.prompt_token_ids, max_tokens=4).choices[0].text
    assert error_of(client, model="ensemble", extra_body={"continue_final_message": True, "add_generation_prompt": True}).status_code == 400


def test_tools_and_documents_need_a_template_that_knows_them(server, client):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for fields, param in (({"tools": tools}, "tools"), ({"extra_body": {"documents": [{"text": "a"}]}}, "documents")):
        error = error_of(client, model="ensemble", max_tokens=2, **fields)
        assert (error.status_code, error.body["param"], error.body["code"]) == (400, param, "unsupported_parameter")
    assert client.chat.completions.create(model="ensemble", messages=MESSAGES, tools=tools, tool_choice="none", max_tokens=2).choices
    body = {"model": "ensemble", "messages": MESSAGES, "max_tokens": 2, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    assert asked(server, "/v1/messages", body)[0] == 400


def test_a_budget_ends_the_reasoning(client):
    """The template says that the model reasons, which the demo's model does not stop by itself."""
    def reasoned(budget, **fields):
        extra = {"thinking_token_budget": budget, "chat_template_kwargs": {"thinks": True}}
        answer = client.chat.completions.create(model="ensemble", messages=MESSAGES, max_tokens=24, temperature=0, extra_body=extra, **fields)
        return answer.choices[0].message, answer.usage
    free = client.chat.completions.create(model="ensemble", messages=MESSAGES, max_tokens=24, temperature=0,
                                          extra_body={"chat_template_kwargs": {"thinks": True}}).choices[0].message
    assert free.content == "" and free.reasoning
    bounded, usage = reasoned(5)
    assert bounded.content and bounded.reasoning and free.reasoning.startswith(bounded.reasoning)
    assert 5 < usage.completion_tokens_details.reasoning_tokens < 5 + len("</think>") + 1
    assert not getattr(reasoned(0)[0], "reasoning", None)
    assert reasoned(5, n=2)[0].content == bounded.content
    extra = {"thinking_token_budget": 0, "chat_template_kwargs": {"thinks": True}, "guided_choice": ["yes", "no"]}
    assert client.chat.completions.create(model="ensemble", messages=MESSAGES, extra_body=extra).choices[0].message.content in ("yes", "no")


@pytest.fixture(scope="module")
def keyed(start_server, dist, tmp_path_factory):
    """A server with API keys, and the key that may use the model `oracle` alone."""
    repository = tmp_path_factory.mktemp("keyed") / "models"
    for name in ("oracle", "other"):
        shutil.copytree(ROOT / "tests/e2e/openai_models/oracle", repository / name)
    lines = subprocess.run([dist / "bin/nereid-repo", "new", "key", "--name=a", "--right=infer", "--right=metadata", "--model=oracle"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    file = repository.parent / "keys.json"
    file.write_text(json.dumps({"keys": [json.loads(lines[4])]}))
    return start_server(repository, python_flags(f"--api-key-file={file}", "--http-header-forward-pattern=.*")), lines[1]


def test_a_key_decides_which_models_its_client_uses(keyed):
    server, key = keyed
    body = json.dumps({"model": "oracle", "messages": [{"role": "user", "content": "inputs"}], "max_tokens": 5}).encode()
    for headers in ({"Authorization": "Bearer " + key}, {"x_api_key": key}):
        assert http(server, "/v1/messages", body, **headers)[0] == http(server, "/v1/chat/completions", body, **headers)[0] == 200
        assert [each["id"] for each in json.loads(http(server, "/v1/models", **headers)[2])["data"]] == ["oracle"]
        status, _, text = http(server, "/v1/chat/completions", body.replace(b"oracle", b"other"), **headers)
        assert status == 403 and json.loads(text)["error"]["type"] == "permission_error"
    status, _, text = http(server, "/v1/chat/completions", body)
    assert status == 401 and json.loads(text)["error"]["code"] == "invalid_api_key"
    assert json.loads(http(server, "/v1/messages", body, x_api_key="wrong")[2])["error"]["type"] == "authentication_error"
    assert http(server, "/v1/chat/completions", b"x" * 2000000)[0] == 401 and http(server, "/health")[0] == 200
    # A page of another server has no key unless its user gave it.
    assert http(server, "/v1/chat/completions", body, Origin="https://evil.example", Authorization="Bearer " + key)[0] == 200
    stored = json.loads(http(server, "/v1/responses", json.dumps({"model": "oracle", "input": "inputs"}).encode(), x_api_key=key)[2])["id"]
    assert http(server, "/v1/responses/" + stored, Authorization="Bearer " + key)[0] == 200
    assert http(server, "/v1/responses/" + stored)[0] == 401
