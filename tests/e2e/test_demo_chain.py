"""The main use case: prompts are completed by plug-ins alone, with common clients. The expected answers (tests/data/demo_golden.json) were made
with Hugging Face transformers in float32."""
import asyncio
import concurrent.futures
import json
import pathlib
import queue
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from streams import streamed_text
from waiting import wait_for

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "data/demo_golden.json").read_text())["prompts"]
TOKENS = 48


def post(demo, path, body, timeout=120):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(demo.url + path, data=data), timeout=timeout)


def generate(demo, **fields):
    return json.load(post(demo, "/v2/models/ensemble/generate", fields))


def events(demo, **fields):
    with post(demo, "/v2/models/ensemble/generate_stream", {"stream": True, **fields}) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]


def refused(demo, fields, model="ensemble"):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(demo, f"/v2/models/{model}/generate", fields)
    return caught.value.code, json.load(caught.value)["error"]


def inputs_for(module, text, tokens, stream):
    made = []
    for name, value, datatype in (("text_input", np.array([[text.encode()]], dtype=object), "BYTES"),
                                  ("max_tokens", np.array([[tokens]], dtype=np.int32), "INT32"), ("stream", np.array([[stream]]), "BOOL")):
        one = module.InferInput(name, value.shape, datatype)
        one.set_data_from_numpy(value)
        made.append(one)
    return made


@pytest.mark.parametrize("row", GOLDEN, ids=range(len(GOLDEN)))
def test_generate_returns_the_text_of_transformers(demo, row):
    answer = generate(demo, text_input=row["text"], max_tokens=TOKENS)
    assert answer["text_output"] == row["greedy_text"]
    assert answer["num_input_tokens"] == len(row["ids"])


@pytest.mark.parametrize("row", GOLDEN, ids=range(len(GOLDEN)))
def test_streamed_chunks_join_to_the_whole_text(demo, row):
    pieces = events(demo, text_input=row["text"], max_tokens=TOKENS)
    assert len(pieces) > 1
    assert "".join(piece["text_output"] for piece in pieces) == row["greedy_text"]
    assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == ["length"]


def test_grpc_unary_writes_the_same(demo):
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{demo.grpc}")
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("ensemble", inputs_for(grpcclient, GOLDEN[0]["text"], TOKENS, False))
    result, error = answers.get(timeout=60)
    client.stop_stream()
    assert error is None and result.as_numpy("text_output").flatten()[0].decode() == GOLDEN[0]["greedy_text"]


def test_grpc_stream_joins_to_the_same(demo):
    text = streamed_text(demo, "ensemble", inputs_for(grpcclient, GOLDEN[1]["text"], TOKENS, True))
    assert text == GOLDEN[1]["greedy_text"]


def test_grpc_asyncio_streams(demo):
    async def run():
        async with grpcaio.InferenceServerClient(f"127.0.0.1:{demo.grpc}") as client:
            async def requests():
                yield {"model_name": "ensemble", "inputs": inputs_for(grpcclient, GOLDEN[2]["text"], TOKENS, True), "enable_empty_final_response": True}
            text = ""
            async for result, error in client.stream_infer(requests()):
                assert error is None
                piece = result.as_numpy("text_output")
                text += piece.flatten()[0].decode() if piece is not None and piece.size else ""
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return text
    assert asyncio.run(run()) == GOLDEN[2]["greedy_text"]


def test_http_client_calls_a_step_by_itself(demo):
    with httpclient.InferenceServerClient(f"127.0.0.1:{demo.http}") as client:
        value = httpclient.InferInput("QUERY", [1, 1], "BYTES")
        value.set_data_from_numpy(np.array([[GOLDEN[0]["text"].encode()]], dtype=object))
        length = httpclient.InferInput("REQUEST_OUTPUT_LEN", [1, 1], "INT32")
        length.set_data_from_numpy(np.array([[4]], dtype=np.int32))
        result = client.infer("preprocessing", [value, length])
    assert result.as_numpy("INPUT_ID").flatten().tolist() == GOLDEN[0]["ids"]


def test_http_asyncio_client_reads_metadata(demo):
    async def run():
        async with httpaio.InferenceServerClient(f"127.0.0.1:{demo.http}") as client:
            assert await client.is_server_ready() and await client.is_model_ready("ensemble")
            return await client.get_model_metadata("ensemble")
    assert {one["name"] for one in asyncio.run(run())["outputs"]} >= {"text_output", "finish_reason"}


def test_concurrent_requests_get_the_same_answers_as_single_ones(demo):
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        rows = GOLDEN * 8
        answers = list(pool.map(lambda row: generate(demo, text_input=row["text"], max_tokens=TOKENS)["text_output"], rows))
    assert answers == [row["greedy_text"] for row in rows]


def test_seed_fixes_the_text_under_load(demo):
    fields = {"text_input": "Once upon a time", "max_tokens": 40, "temperature": 0.9, "top_p": 0.95, "top_k": 100, "random_seed": 11}
    alone = generate(demo, **fields)["text_output"]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        crowd = [pool.submit(generate, demo, **{**fields, "random_seed": seed}) for seed in range(16)]
        texts = [one.result()["text_output"] for one in crowd]
    assert texts[11] == alone and len(set(texts)) > 8


def test_stop_words_end_the_text(demo):
    answer = generate(demo, text_input=GOLDEN[3]["text"], max_tokens=TOKENS, stop_words=[" fortune"])
    assert answer["finish_reason"] == "stop"
    assert answer["text_output"] in GOLDEN[3]["greedy_text"] and answer["num_output_tokens"] < TOKENS


def test_over_long_prompts_are_refused_with_limit_and_length(demo):
    code, message = refused(demo, {"text_input": "bear " * 3000, "max_tokens": 4})
    assert code == 400 and "1024" in message


@pytest.mark.parametrize("fields, needles", [
    ({"text_input": "", "max_tokens": 4}, ("input_ids", "empty")),
    ({"text_input": "a", "max_tokens": -1}, ("-1",)),
    ({"max_tokens": 4}, ("QUERY", "MESSAGES", "PROMPT_TOKEN_IDS")),
    ({"text_input": "a", "prompt_token_ids": [5], "max_tokens": 4}, ("QUERY", "PROMPT_TOKEN_IDS")),
    ({"messages": "[]", "prompt_token_ids": [5], "max_tokens": 4}, ("MESSAGES", "PROMPT_TOKEN_IDS")),
    ({"prompt_token_ids": [5, 123456], "max_tokens": 4}, ("PROMPT_TOKEN_IDS", "token id 123456 at index 1", "vocabulary of")),
    ({"prompt_token_ids": [-1], "max_tokens": 4}, ("PROMPT_TOKEN_IDS", "token id -1 at index 0")),
    ({"text_input": 7, "max_tokens": 4}, ("text_input",)),
    ({"text_input": "a", "max_tokens": "many"}, ("max_tokens",)),
    ({"text_input": "a", "max_tokens": 4, "temperature": -2.0}, ("temperature", "-2")),
    ({"text_input": "a", "max_tokens": 4, "top_p": 3.0}, ("top_p", "3")),
], ids=["empty prompt", "negative length", "no prompt", "text and ids", "messages and ids", "unknown id", "negative id", "number for text", "text for number", "temperature", "top_p"])
def test_bad_requests_are_refused_by_name(demo, fields, needles):
    code, message = refused(demo, fields)
    assert code == 400 and all(needle in message for needle in needles), message
    assert demo.alive()


def test_unknown_models_are_not_found(demo):
    code, message = refused(demo, {"text_input": "a"}, model="nobody")
    assert code in (400, 404) and "nobody" in message


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_a_client_that_leaves_frees_the_engine_at_once(demo, path):
    """Requests for long texts whose clients disconnect before the first byte must not delay the next request, and must count as cancelled."""
    body = json.dumps({"text_input": "Once upon a time", "max_tokens": 900, "stream": path.endswith("stream")}).encode()
    before = failures(demo, "CANCELED")
    for _ in range(24):
        with socket.create_connection(("127.0.0.1", demo.http)) as client:
            client.sendall(f"POST /v2/models/ensemble/{path} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    wait_for(lambda: failures(demo, "CANCELED") >= before + 24, lambda: f"24 cancelled requests, now {failures(demo, 'CANCELED') - before}")
    assert generate(demo, text_input=GOLDEN[0]["text"], max_tokens=TOKENS)["text_output"] == GOLDEN[0]["greedy_text"]


def failures(demo, reason):
    page = urllib.request.urlopen(f"http://127.0.0.1:{demo.metrics}/metrics").read().decode()
    rows = [line for line in page.splitlines() if line.startswith("nv_inference_request_failure") and f'"{reason}"' in line and '"ensemble"' in line]
    assert rows, "no such metric"
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


def test_the_server_ends_cleanly(start_server, dist):
    assert start_server(dist / "share/demo_repository").stop() == 0
