"""Answers that are separated into content, reasoning and tool calls: the input parse_output of the ensemble that nereid-repo makes. An engine that answers
with its prompt, in Python, makes the answers; the demo's engine makes the streams."""
import json
import queue
import re
import shutil
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from python_support import python_flags
from tritonclient.utils import InferenceServerException

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{% endif %}{# <tool_call> #}"
TOOLS = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {}}}])
ANSWER = ('<think>\nÜber it.\n</think>\n\nI call.\n<tool_call>\n{"name": "f", "arguments": {"city": "Zürich", "days": [1, 2]}}\n</tool_call>\n'
          '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
ENGINE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.streams = 0

    def execute(self, requests):
        for request in requests:
            ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy().reshape(-1)
            streaming = pb_utils.get_input_tensor_by_name(request, "streaming")
            size = 2 if streaming is not None and streaming.as_numpy().any() else len(ids)
            self.streams += 1
            sender = request.get_response_sender()
            for index, at in enumerate(range(0, len(ids), size)):
                is_last = at + size >= len(ids)
                outputs = {"output_ids": ids[None, None, at:at + size].astype(np.int32), "sequence_length": np.array([[len(ids[at:at + size])]], np.int32),
                           "prior_ids": ids[None, :at].astype(np.int32), "finish_reason": np.array([["stop" if is_last else ""]], object),
                           "stream_position": np.array([[self.streams, index]], np.uint64)}
                tensors = [pb_utils.Tensor(name, value) for name, value in outputs.items()]
                sender.send(pb_utils.InferenceResponse(tensors))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def server(start_server, chat_repository):
    repository = chat_repository(TEMPLATE, "--decoupled")
    # The models of the demo, and beside them an ensemble whose engine repeats the prompt.
    shutil.copytree(repository / "tensorrt_llm", repository / "echo", ignore=shutil.ignore_patterns("*.safetensors"))
    config = (repository / "tensorrt_llm/config.pbtxt").read_text()
    (repository / "echo/config.pbtxt").write_text(re.sub('backend: "[a-z_]+"', 'backend: "python"', config, count=1))
    (repository / "echo/1/model.py").write_text(ENGINE)
    shutil.copytree(repository / "ensemble", repository / "echo_ensemble")
    path = repository / "echo_ensemble/config.pbtxt"
    path.write_text(path.read_text().replace('name: "ensemble"', 'name: "echo_ensemble"').replace('"tensorrt_llm"', '"echo"'))
    return start_server(repository, python_flags())


def responses(server, model, stream, **inputs):
    """All responses of a request, as lists of (text_output, reasoning, tool_calls, num_reasoning_tokens); None where the output is absent."""
    tensors = []
    for name, value in {"max_tokens": 12, "exclude_input_in_output": True, "stream": stream, **inputs}.items():
        dtype = {bool: "BOOL", int: "INT32", str: "BYTES"}[type(value)]
        tensors.append(grpcclient.InferInput(name, [1, 1], dtype))
        tensors[-1].set_data_from_numpy(np.array([[value.encode() if isinstance(value, str) else value]], {"BOOL": bool, "INT32": np.int32, "BYTES": object}[dtype]))
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, tensors, enable_empty_final_response=True)
        found = []
        while True:
            answer = answers.get(timeout=60)
            if isinstance(answer, InferenceServerException):
                raise answer
            values = [answer.as_numpy(name) for name in ("text_output", "reasoning", "tool_calls", "num_reasoning_tokens")]
            if values[0] is not None:
                flat = [None if value is None else value.flatten()[0] for value in values]
                found.append([value.decode() if isinstance(value, bytes) else value for value in flat])
            if answer.get_response().parameters["triton_final_response"].bool_param:
                return found


def add_up(found):
    """What a client makes of the responses: (content, reasoning, calls as (name, arguments))."""
    calls = []
    for _, _, deltas, *_ in found:
        for delta in json.loads(deltas or "[]"):
            if "id" in delta:
                assert delta["type"] == "function" and delta["index"] == len(calls)
                calls.append([delta["function"]["name"], ""])
            calls[delta["index"]][1] += delta["function"]["arguments"]
    return "".join(each[0] for each in found), "".join(each[1] for each in found), calls


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_separated_into_content_reasoning_and_calls(server, stream):
    messages = json.dumps([{"role": "user", "content": ANSWER}])
    found = responses(server, "echo_ensemble", stream, messages=messages, tools=TOOLS, parse_output=True)
    assert len(found) > 20 if stream else len(found) == 1
    assert 5 < sum(each[3] for each in found) < len("<think>\nÜber it.\n</think>")
    assert add_up(found) == ("I call.", "Über it.", [["f", '{"city": "Zürich", "days": [1, 2]}'], ["f", "{}"]])


def test_without_tools_there_is_only_reasoning_and_without_asking_only_text(server):
    messages = json.dumps([{"role": "user", "content": ANSWER}])
    content, reasoning, calls = add_up(responses(server, "echo_ensemble", True, messages=messages, parse_output=True))
    assert content == ANSWER.split("</think>")[1].lstrip() and reasoning == "Über it." and not calls
    for more in ({}, {"parse_output": False, "tools": TOOLS}):
        found = responses(server, "echo_ensemble", True, messages=messages, **more)
        assert "".join(each[0] for each in found) == ANSWER and all(each[1:] == [None] * 3 for each in found)


def test_a_prompt_that_opens_the_reasoning_begins_the_answer_inside(server):
    messages = json.dumps([{"role": "user", "content": "a plan</think>an answer<think>\n"}])
    assert add_up(responses(server, "echo_ensemble", True, messages=messages, parse_output=True)) == ("an answer<think>\n", "a plan", [])


def test_faulty_tools_are_refused_by_name(server):
    with pytest.raises(InferenceServerException, match="tools"):
        responses(server, "echo_ensemble", False, text_input="hi", tools="[", parse_output=True)


def test_the_engines_stream_is_parsed_from_response_to_response(server):
    plain = responses(server, "ensemble", True, text_input="Once upon a time")
    found = responses(server, "ensemble", True, text_input="Once upon a time", parse_output=True, tools=TOOLS)
    assert len(found) == len(plain) == 12
    assert add_up(found) == ("".join(each[0] for each in plain), "", [])
    whole = responses(server, "ensemble", False, text_input="Once upon a time", parse_output=True, tools=TOOLS)
    assert add_up(whole) == add_up(found)


def test_chat_completions_have_reasoning_and_tool_calls(server):
    body = {"model": "echo_ensemble", "messages": [{"role": "user", "content": ANSWER}], "tools": json.loads(TOOLS), "max_tokens": 100}

    def post(more):
        request = urllib.request.Request(f"http://127.0.0.1:{server.http}/v1/chat/completions", json.dumps({**body, **more}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    answer = json.loads(post({}))
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    assert choice["message"]["content"] == "I call." and choice["message"]["reasoning_content"] == "Über it."
    whole = [[call["function"]["name"], call["function"]["arguments"]] for call in choice["message"]["tool_calls"]]
    assert whole == [["f", '{"city": "Zürich", "days": [1, 2]}'], ["f", "{}"]]
    chunks = [json.loads(line[6:]) for line in post({"stream": True}).splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [[delta.get("content") or "", "", json.dumps(delta.get("tool_calls", []))] for delta in deltas]
    assert add_up(calls) == ("I call.", "", whole)
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Über it."
