"""Structured output of the demo checkpoint: by the tensors of the ensemble, and by the routes of OpenAI and Anthropic. Every output is checked by other code:
PyPI's jsonschema, and Python's re."""
import json
import os
import random
import re
import threading
import time
import urllib.error
import urllib.request

from http_request import send_http
import jsonschema
import pytest

TEMPLATE = ("{% for m in messages %}{{ m.role + ': ' + m.content|trim + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}
NUM_SCHEMAS = int(os.environ.get("NEREID_NUM_SCHEMAS", 24))  # of the property test


@pytest.fixture(scope="module")
def server(start_server, chat_repository):
    return start_server(chat_repository(TEMPLATE, "--decoupled", json_whitespace=1))


def post(server, path, body):
    """Returns the status and the body."""
    status, _, text = send_http(server.url + path, body, {"Content-Type": "application/json"})
    return status, text.decode()


def generate(server, guide_type, guide="", **fields):
    body = {"text_input": "Once upon a time", "max_tokens": 200, "temperature": 2.0, "top_p": 1.0, "guided_decoding_guide_type": guide_type,
            "guided_decoding_guide": guide if isinstance(guide, str) else json.dumps(guide), **fields}
    status, text = post(server, "/v2/models/ensemble/generate", body)
    return status, json.loads(text)


def chat(server, **fields):
    status, text = post(server, "/v1/chat/completions", {"model": "ensemble", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 200, **fields})
    return status, json.loads(text)


@pytest.mark.parametrize("guide_type, guide, check", [
    ("json_schema", PERSON, lambda text: jsonschema.validate(json.loads(text), PERSON)),
    ("json", "", lambda text: isinstance(json.loads(text), (dict, list)) or pytest.fail(text)),
    ("regex", "(cat|dog){2,3}[0-9]{4}é", lambda text: re.fullmatch("(cat|dog){2,3}[0-9]{4}é", text) or pytest.fail(text)),
    ("choice", ["yes", "no", "perhaps"], lambda text: text in ("yes", "no", "perhaps") or pytest.fail(text)),
    ("ebnf_grammar", 'root ::= "(" root ")" | [a-c]+ "!"', lambda text: re.fullmatch(r"\(*[abc]+!\)*", text) or pytest.fail(text)),
    ("structural_tag", {"format": {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": PERSON}, "end": "</f>"}},
     lambda text: jsonschema.validate(json.loads(text.removeprefix("<f>").removesuffix("</f>")), PERSON)),
])
def test_the_output_has_the_form_of_the_guide(server, guide_type, guide, check):
    for seed in range(3):
        status, answer = generate(server, guide_type, guide, seed=seed)
        assert status == 200, answer
        # A text without an end is the beginning of one.
        if answer["finish_reason"] == "stop":
            check(answer["text_output"])
        else:
            assert answer["finish_reason"] == "length" and guide_type in ("json", "ebnf_grammar"), answer


@pytest.mark.parametrize("name, text, pattern", [
    ("guided_regex", "(cat|dog){2}[0-9]{4}", r"(cat|dog){2}\d{4}"),
    ("guided_choice", '["yes", "no"]', "yes|no"),
    ("guided_grammar", 'root ::= "a" [bc]{3}', "a[bc]{3}"),
    ("guided_json", '{"enum": ["a", 17]}', r'\s?("a"|17(\.0+)?)'),
    ("response_format", '{"type": "json_schema", "json_schema": {"schema": {"const": "abc"}}}', r'\s?"abc"'),
])
def test_request_parameters_name_a_guide(server, name, text, pattern):
    fields = {"text_input": "Once upon a time", "max_tokens": 40, "temperature": 2.0, "seed": 5}
    status, body = post(server, "/v2/models/ensemble/generate", {**fields, "parameters": {name: text}})
    assert status == 200, body
    assert re.fullmatch(pattern, json.loads(body)["text_output"]), body
    # What the grammar forces is not sampled token by token, and is the same text.
    status, plain = post(server, "/v2/models/ensemble/generate", {**fields, "parameters": {name: text, "speculative_decoding": False}})
    assert json.loads(plain)["text_output"] == json.loads(body)["text_output"]


@pytest.mark.parametrize("parameters, message", [
    ({"guided_regex": "a", "guided_json": "{}"}, "request parameter 'guided_regex': not beside 'guided_json'"),
    ({"guided_json": 3}, "request parameter 'guided_json': expected a text"),
    ({"response_format": '{"type": "yaml"}'}, "request parameter 'response_format': type: 'yaml', expected text"),
    ({"guided_json": "false"}, "no text fits the grammar"),
])
def test_request_parameters_that_cannot_be_held_are_refused(server, parameters, message):
    status, body = post(server, "/v2/models/ensemble/generate", {"text_input": "Once", "max_tokens": 4, "parameters": parameters})
    assert status == 400 and message in json.loads(body)["error"], body


def test_a_limit_of_tokens_ends_a_text_that_is_not_complete(server):
    status, answer = generate(server, "json_schema", PERSON, max_tokens=3)
    assert status == 200 and answer["finish_reason"] == "length"


@pytest.mark.parametrize("guide_type, guide, message", [
    ("json_schema", {"properties": {"a": {"uniqueItems": True, "type": "array"}}}, "#/properties/a: uniqueItems: items that must differ cannot be enforced"),
    ("json_schema", "{", "guided_decoding_guide (json_schema): "),
    ("json_schema", {"type": "integer", "minimum": 3, "maximum": 2}, "guided_decoding_guide (json_schema): "),
    ("regex", "(a", "guided_decoding_guide (regex): "),
    ("regex", "(", "guided_decoding_guide (regex): "),
    ("choice", [], "the list of choices is empty"),
    ("choice", [1], "expected a JSON list of texts"),
    ("ebnf_grammar", "root ::= missing", "guided_decoding_guide (ebnf_grammar): "),
    ("structural_tag", {"format": {"type": "cat"}}, "#/format: type 'cat' is not supported"),
    ("structural_tag", '{"format":' + 600 * "[" + 600 * "]" + "}", "512"),
    ("xml", "a", "input 'guided_decoding_guide_type': 'xml', expected one of json, json_schema, regex, ebnf_grammar, structural_tag, choice"),
    ("regex", "", "input 'guided_decoding_guide_type' is 'regex': it needs 'guided_decoding_guide'"),
])
def test_a_guide_that_does_not_compile_is_the_clients_error(server, guide_type, guide, message):
    status, answer = generate(server, guide_type, guide)
    assert status == 400 and message in answer["error"], answer


def test_beams_are_refused_by_name(server):
    status, answer = generate(server, "regex", "a", beam_width=2)
    assert status in (400, 501) and "beam_width" in answer["error"], answer


# What is refused names its reason; what is not is held, although it looks as if it could not be.
HOSTILE = {
    "a keyword": ("json_schema", {"properties": {"a": {"pattern": "("}}}, "#/properties/a: pattern: "),
    "a schema that is itself": ("json_schema", {"$ref": "#"}, "#: $ref: the schema refers to itself without end"),
    "recursion without an end": ("json_schema", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no text fits the grammar"),
    "rules without an end": ("ebnf_grammar", 'root ::= "a" root', "no text fits the grammar"),
    "no text": ("json_schema", {"type": "integer", "minimum": 3, "maximum": 2}, "no text fits the grammar"),
    "combinations": ("json_schema", {"allOf": [{"anyOf": [{"required": [f"p{i}"]}, {"properties": {f"p{i}": False}}]} for i in range(20)]}, "combinations of alternatives"),
    "a large regex": ("regex", "".join(f"(?=(.*{c}){{40}}.*)" for c in "abcdefghijklmnop") + ".*", "compiling it exceeds the limit of work or memory"),
    "slow masks": ("regex", "(" + "|".join(f"[a-z]{{{i}}}{chr(97 + i % 26)}" for i in range(1, 3000)) + "){1,100}", "following the text exceeds the limit of work or memory"),
    "nested repetitions": ("ebnf_grammar", "root ::= (((((root{100000}){100000}){100000}){100000}){100000})", "no text fits the grammar"),
    "a grammar of 10 MB": ("ebnf_grammar", 'root ::= "a"' + "\n" * 10_000_000, "has 10000012 bytes; at most 8388608 are allowed"),
    "a regex of 10 MB": ("regex", "ab" * 5_000_000, "has 10000000 bytes; at most 8388608 are allowed"),
    "100,000 values": ("json_schema", {"enum": [f"value-{i}" for i in range(100_000)]}, None),
    "nested quantifiers": ("regex", "(((a{0,1000}){1000}){1000}b)?(a*)*(a|aa)+(x+x+)+y", None),
    "many states": ("regex", "(a|b)*a(a|b){500}c", None),
}


def test_others_go_on_while_hostile_guides_are_compiled(server):
    """Each guide is refused with its reason or held, and a neighbour's stream is what it is alone. Prints the longest time between two of its tokens, with -s."""
    fields = {"text_input": "Once upon a time", "max_tokens": 150, "temperature": 0.0, "stream": True}

    def stream(gaps):
        request = urllib.request.Request(server.url + "/v2/models/ensemble/generate_stream", data=json.dumps(fields).encode())
        text, before = "", None
        with urllib.request.urlopen(request, timeout=120) as reply:
            for line in reply:
                if line.startswith(b"data:"):
                    text += json.loads(line[5:])["text_output"]
                    now = time.monotonic()
                    gaps.append(now - (before or now))
                    before = now
        return text

    alone = stream([])
    for name, (guide_type, guide, message) in HOSTILE.items():
        gaps, texts, is_over = [], [], threading.Event()

        def listen(gaps=gaps, texts=texts, is_over=is_over):
            while not texts or not is_over.is_set():
                texts.append(stream(gaps))

        neighbour = threading.Thread(target=listen)
        neighbour.start()
        started = time.monotonic()
        status, answer = generate(server, guide_type, guide, max_tokens=20)
        took = time.monotonic() - started
        is_over.set()
        neighbour.join()
        print(f"{name}: status {status} after {took * 1000:.0f} ms, {len(gaps)} tokens of the neighbour, at most {max(gaps) * 1000:.0f} ms between two")
        assert set(texts) == {alone}
        if message is None:
            assert status == 200, (name, answer)
        else:
            assert status == 400 and message in answer["error"], (name, answer)


@pytest.mark.parametrize("fields, pattern", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PERSON}}}, None),
    ({"structured_outputs": {"json": PERSON}}, None),
    ({"guided_json": json.dumps(PERSON)}, None),
    ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
    ({"guided_regex": "[0-9]{3}"}, "[0-9]{3}"),
    ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
    ({"guided_choice": ["red", "green"]}, "red|green"),
    ({"structured_outputs": {"grammar": 'root ::= "x" [0-9]{2}'}}, "x[0-9]{2}"),
    ({"guided_grammar": 'root ::= "x" [0-9]{2}'}, "x[0-9]{2}"),
])
def test_the_fields_of_chats_restrict_the_answer(server, fields, pattern):
    status, answer = chat(server, **fields)
    assert status == 200, answer
    text = answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    if pattern is None:
        jsonschema.validate(json.loads(text), PERSON)
    else:
        assert re.fullmatch(pattern, text)


def test_a_stream_of_several_answers_follows_the_grammar(server):
    _, text = post(server, "/v1/chat/completions", {"model": "ensemble", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 200, "n": 3, "stream": True,
                                                     "logprobs": True, "top_logprobs": 2, "structured_outputs": {"json": PERSON}})
    texts = ["", "", ""]
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
    for each in texts:
        jsonschema.validate(json.loads(each), PERSON)


def test_completions_and_responses_restrict_the_answer_too(server):
    status, text = post(server, "/v1/completions", {"model": "ensemble", "prompt": "A", "max_tokens": 200, "response_format": {"type": "json_object"}, "temperature": 0})
    answer = json.loads(text)["choices"][0]
    assert status == 200 and answer["text"].lstrip().startswith("{")
    status, text = post(server, "/v1/responses", {"model": "ensemble", "input": "A", "max_output_tokens": 200,
                                                  "text": {"format": {"type": "json_schema", "name": "p", "strict": True, "schema": PERSON}}})
    answer = json.loads(text)
    assert status == 200 and answer["text"]["format"]["type"] == "json_schema"
    jsonschema.validate(json.loads(answer["output"][0]["content"][0]["text"]), PERSON)


@pytest.mark.parametrize("fields, message", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p"}}}, "response_format.json_schema.schema: this field is required"),
    ({"response_format": {"type": "xml"}}, "response_format.type: 'xml', expected text, json_object, json_schema or structural_tag"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": {"uniqueItems": True}}}}, "uniqueItems: items that must differ cannot be enforced"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs: expected one of"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern: this field is not supported"),
    ({"structured_outputs": {"regex": "a"}, "guided_json": {}}, "guided_json: not beside 'structured_outputs'"),
    ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex: expected a string, got a number"),
])
def test_fields_that_cannot_be_held_are_refused(server, fields, message):
    for more in ({}, {"stream": True}):
        status, answer = chat(server, **fields, **more)
        assert status == 400 and message in answer["error"]["message"], answer


def random_schema(random, depth=0):
    """A schema whose values are short, so that most texts end."""
    kinds = ["integer", "number", "string", "boolean", "null", "enum", "const", "format"] + (["object", "array", "any"] if depth < 3 else [])
    kind = random.choice(kinds if depth else ["object", "array"])
    if kind == "integer":
        low = random.randint(-999, 999)
        return {"type": "integer", "minimum": low, "maximum": low + random.randint(0, 999), **({"multipleOf": random.choice([1, 2, 5])} if low % 3 == 0 else {})}
    if kind == "number":
        return {"type": "number", "minimum": 0, "exclusiveMaximum": random.choice([1, 2.5, 100])}
    if kind == "string":
        return random.choice([{"type": "string", "maxLength": random.randint(0, 6)}, {"type": "string", "pattern": random.choice(["^[a-z]{1,4}$", "^x\\d+$", "^(ab|é){2}$"])}])
    if kind == "enum":
        return {"enum": random.sample(["a", "b\n", "ü", 1, 2.5, None, True, [1, "x"], {"k": 0}], random.randint(1, 4))}
    if kind == "const":
        return {"const": random.choice(["x", 0, {"a": [1]}, []])}
    if kind == "format":
        return {"type": "string", "format": random.choice(["date", "ipv4", "uuid"])}
    if kind == "array":
        return {"type": "array", "items": random_schema(random, depth + 1), "minItems": random.randint(0, 2), "maxItems": random.randint(2, 4)}
    if kind == "any":
        return {"anyOf": [random_schema(random, depth + 1) for _ in range(2)]}
    if kind != "object":
        return {"type": kind}
    names = random.sample(["a", "b", "name", "ä b", "x-1", "q\""], random.randint(1, 4))
    return {"type": "object", "properties": {name: random_schema(random, depth + 1) for name in names}, "required": random.sample(names, random.randint(0, len(names))),
            "additionalProperties": False}


def test_texts_drawn_at_a_high_temperature_are_valid(server):
    random_values = random.Random(7)
    num_complete = 0
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for number in range(NUM_SCHEMAS):
        schema = random_schema(random_values)
        status, answer = generate(server, "json_schema", schema, seed=number)
        if status == 400:
            assert "#" in answer["error"] or "no text" in answer["error"], (schema, answer)
            continue
        assert status == 200, (schema, answer)
        if answer["finish_reason"] == "stop":
            num_complete += 1
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(answer["text_output"]))
    assert num_complete > NUM_SCHEMAS // 2
