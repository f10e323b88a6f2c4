"""Forced tool calls of the demo checkpoint, whose template is of the hermes family, and of the qwen3_coder family: by the clients of OpenAI and Anthropic, whole and
streamed. The arguments are checked by PyPI's jsonschema."""
import json
import urllib.error
import urllib.request

import jsonschema
import pytest

openai = pytest.importorskip("openai")
TEMPLATE = ("{% for m in messages %}{{ m.role + ': ' + m.content|trim + '\\n' }}{% endfor %}{% if tools %}<tool_call>{{ tools|tojson }}{% endif %}"
            "{% if add_generation_prompt %}assistant:{% if enable_thinking %}<think>{% endif %}{% endif %}")
# Calls are written as <tool_call><function=NAME><parameter=NAME>VALUE, with texts as they are.
CODER_TEMPLATE = ("{% for m in messages %}{{ m.role + ': ' + m.content|trim + '\n' }}{% endfor %}{% if tools %}<tools>{{ tools|tojson }}</tools>"
                  "<tool_call>\n<function=NAME>\n<parameter=NAME>\nVALUE\n</parameter>\n</function>\n</tool_call>{% endif %}"
                  "{% if add_generation_prompt %}assistant:{% endif %}")
SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
                    "required": ["city", "days"], "additionalProperties": False},
    "set_light": {"type": "object", "properties": {"on": {"type": "boolean"}, "colour": {"enum": ["red", "grün \"1\""]}}, "required": ["on"],
                  "additionalProperties": False},
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
NAMED = {"type": "function", "function": {"name": "set_light"}}
MESSAGES = [{"role": "user", "content": "Once upon a time"}]


@pytest.fixture(scope="module")
def server(start_server, chat_repository):
    return start_server(chat_repository(TEMPLATE, "--decoupled", json_whitespace=1))


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def chat(client, **fields):
    return client.chat.completions.create(**{"model": "ensemble", "messages": MESSAGES, "tools": TOOLS, "max_tokens": 250, "temperature": 2, **fields})


def check(calls):
    """Takes (name, arguments) of each call."""
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])


@pytest.mark.parametrize("fields", [
    {"tool_choice": "required", "parallel_tool_calls": False},
    {"tool_choice": NAMED},
    {"tool_choice": NAMED, "extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
])
def test_an_answer_is_one_valid_call(client, fields):
    for seed in range(3):
        choice = chat(client, seed=seed, **fields).choices[0]
        assert choice.finish_reason == "tool_calls" and not choice.message.content
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        check(calls)
        assert len(calls) == 1 and (fields["tool_choice"] == "required" or calls[0][0] == "set_light")
        streamed = []
        for chunk in chat(client, seed=seed, stream=True, **fields):
            finish_reason = chunk.choices[0].finish_reason
            assert not chunk.choices[0].delta.content
            for delta in chunk.choices[0].delta.tool_calls or []:
                if delta.function.name:
                    streamed.append((delta.function.name, ""))
                streamed[delta.index] = (streamed[delta.index][0], streamed[delta.index][1] + delta.function.arguments)
        assert streamed == calls and finish_reason == "tool_calls"


def test_a_family_with_its_own_notation_of_arguments_is_forced_too(start_server, chat_repository):
    server = start_server(chat_repository(CODER_TEMPLATE, "--decoupled", json_whitespace=1))
    assert "'qwen3_coder'" in server.log.read_text()
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as coder:
        for fields in ({"tool_choice": "required", "parallel_tool_calls": False}, {"tool_choice": NAMED}):
            for seed in range(2):
                choice = chat(coder, seed=seed, **fields).choices[0]
                assert choice.finish_reason == "tool_calls" and not choice.message.content
                (call,) = choice.message.tool_calls
                check([(call.function.name, call.function.arguments)])
                assert fields["tool_choice"] == "required" or call.function.name == "set_light"
                streamed = ["", ""]
                for chunk in chat(coder, seed=seed, stream=True, **fields):
                    assert not chunk.choices[0].delta.content
                    for delta in chunk.choices[0].delta.tool_calls or []:
                        streamed = [streamed[0] + (delta.function.name or ""), streamed[1] + (delta.function.arguments or "")]
                assert streamed == [call.function.name, call.function.arguments]


def test_several_calls_are_all_valid(client):
    for choice in chat(client, tool_choice="required", seed=1, n=3, max_tokens=400).choices:
        calls = choice.message.tool_calls
        # Only the last call may have been cut by the limit.
        check([(call.function.name, call.function.arguments) for call in (calls if choice.finish_reason == "tool_calls" else calls[:-1])])
        assert calls and not choice.message.content


def test_a_limit_of_tokens_ends_a_call_in_the_middle(client):
    assert chat(client, tool_choice=NAMED, max_tokens=12).choices[0].finish_reason == "length"


def test_the_other_routes_force_calls(server, client):
    tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    fields = {"model": "ensemble", "input": "Once", "tools": tools, "max_output_tokens": 250, "temperature": 2}
    for choice in ("required", {"type": "function", "name": "set_light"}):
        call = client.responses.create(**fields, tool_choice=choice, parallel_tool_calls=False).output[-1]
        assert call.type == "function_call" and (choice == "required" or call.name == "set_light")
        check([(call.name, call.arguments)])
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as other:
        tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "set_light"}):
            answer = other.messages.create(model="ensemble", messages=MESSAGES, max_tokens=250, tools=tools, tool_choice=choice)
            assert answer.stop_reason == "tool_use" and [block.type for block in answer.content] == ["tool_use"]
            check([(answer.content[0].name, json.dumps(answer.content[0].input))])


def test_what_cannot_be_forced_is_the_clients_error(client):
    bad = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    for fields, message in [
            ({"tools": [{"type": "function", "function": {"name": "f", "parameters": bad}}]}, "#/properties/tags: uniqueItems"),
            ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}, "tools[0].function.parameters.type"),
            ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "'g' is not among the tools"),
            ({"response_format": {"type": "json_object"}}, "not beside 'response_format'")]:
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, **{"tool_choice": "required", **fields})
        assert message in error.value.message, error.value.message


def test_kserves_clients_force_calls(server):
    body = {"messages": json.dumps(MESSAGES), "tools": json.dumps(TOOLS), "tool_choice": "required", "parallel_tool_calls": False, "parse_output": True,
            "max_tokens": 250, "temperature": 2.0}

    def generate(**fields):
        request = urllib.request.Request(server.url + "/v2/models/ensemble/generate", data=json.dumps({**body, **fields}).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["error"]
    (call,) = json.loads(generate()["tool_calls"])
    check([(call["function"]["name"], call["function"]["arguments"])])
    assert "input 'TOOL_CHOICE': forced tool calls, not beside 'GUIDED_DECODING_GUIDE_TYPE'" in generate(
        guided_decoding_guide_type="regex", guided_decoding_guide="a")
    assert "input 'TOOL_CHOICE': expected auto, none, required or {" in generate(tool_choice="any")
    assert "input 'TOOL_CHOICE': there are no tools that could be called" in generate(tools="[]")
