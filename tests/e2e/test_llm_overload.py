"""Many concurrent LLM requests, and requests that are abandoned: stopped by id, cancelled, disconnected, more than the cache holds, more than the
queue accepts. On the CPU; with NEREID_TEST_GPU=1 also on a GPU."""
import asyncio
import os
import pathlib
import random
import re
import shutil
import socket
import time
import urllib.request

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from waiting import wait_for

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
CONFIG = """backend: "%s"
max_batch_size: 0
model_transaction_policy { decoupled: true }
parameters { key: "gpt_model_path" value { string_value: "%s" } }
parameters { key: "exclude_input_in_output" value { string_value: "true" } }
parameters { key: "stats_check_period_ms" value { string_value: "1" } }
parameters { key: "max_num_sequences" value { string_value: "%d" } }
parameters { key: "max_tokens_in_paged_kv_cache" value { string_value: "%d" } }
"""
EVICTS = 'parameters { key: "batch_scheduler_policy" value { string_value: "max_utilization" } }\n'
BEAMS = 'parameters { key: "max_beam_width" value { string_value: "4" } }\n'
QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 4 } }\n"
BACKENDS = ["cpu_reference"] + (["gpu_llm"] if os.environ.get("NEREID_TEST_GPU") == "1" else [])
CACHE_TOKENS = 512


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory, backend):
    root, checkpoint = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("checkpoint") / "demo"
    shutil.copytree(DEMO, checkpoint)
    for name, sequences, tokens, more in (("llm", 64, 8192, ""), ("full", 16, CACHE_TOKENS, ""), ("evicts", 16, CACHE_TOKENS, EVICTS),
                                          ("queue", 1, 2048, QUEUE), ("beams", 8, 8192, BEAMS)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG % (backend, checkpoint, sequences, tokens) + more)
    running = start_server(root, ["--grpc-max-requests-per-stream=4096"])
    yield running
    running.stop()


def request(model, prompt, tokens, id_="", streaming=False, stop=False):
    one = pb.ModelInferRequest(model_name=model, id=id_)
    for name, datatype, values in (("input_ids", "INT32", prompt), ("input_lengths", "INT32", [len(prompt)]),
                                   ("request_output_len", "INT32", [tokens]), ("end_id", "INT32", [-1]), ("streaming", "BOOL", [streaming]),
                                   ("stop", "BOOL", [stop])):
        contents = one.inputs.add(name=name, datatype=datatype, shape=[len(values)]).contents
        (contents.bool_contents if datatype == "BOOL" else contents.int_contents).extend(values)
    for name in ("output_ids", "finish_reason"):
        one.outputs.add(name=name)
    return one


def connect(server, *options):
    return grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.use_local_subchannel_pool", 1), *options])


def ask(server, requests):
    with connect(server) as channel:
        return ask_over(service_pb2_grpc.GRPCInferenceServiceStub(channel), requests)


def ask_over(stub, requests):
    """Sends all requests at once over one stream; returns {id: (ids, finish reason or error)}."""
    answers = {}
    for reply in stub.ModelStreamInfer(iter(requests), timeout=600):
        response = reply.infer_response
        if reply.error_message:
            answers[response.id] = ([], reply.error_message)
            continue
        found = outputs_of(reply)
        ids, _ = answers.get(response.id, ([], ""))
        ids = ids + np.frombuffer(found.get("output_ids", b""), np.int32).tolist()
        answers[response.id] = (ids, found.get("finish_reason", b"")[4:].decode())
    return answers


def outputs_of(reply):
    return dict(zip([output.name for output in reply.infer_response.outputs], reply.infer_response.raw_output_contents))


def gauges(server, model):
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60).read().decode()
    values = {}
    for line in page.splitlines():
        if line.startswith(("nv_trt_llm", "nereid_llm")) and f'model="{model}"' in line:
            kinds = [value for key, value in re.findall(r'(\w+)="([^"]*)"', line) if key not in ("model", "version", "le")]
            if kinds:  # histograms have no value of their own
                values[f"{line.split('{')[0]}:{kinds[0]}"] = float(line.split()[-1])
    return values


def expect_all_released(server, model):
    wanted = {"nv_trt_llm_request_metrics:active": 0, "nv_trt_llm_request_metrics:waiting": 0, "nv_trt_llm_kv_cache_block_metrics:used": 0}
    wait_for(lambda: wanted.items() <= gauges(server, model).items(), lambda: f"nothing in use, now {gauges(server, model)}")


def expect_while_running(server, model, requests, is_seen):
    """Sends the requests, waits until is_seen(gauges) and cancels them; then all gauges must be idle."""
    with connect(server) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(requests), timeout=600)
        deadline = time.monotonic() + 60
        while not is_seen(seen := gauges(server, model)):
            assert time.monotonic() < deadline, seen
            time.sleep(0.005)
        call.cancel()
    expect_all_released(server, model)
    seen = gauges(server, model)
    idle = ["nv_trt_llm_request_metrics:scheduled", "nv_trt_llm_request_metrics:context", "nv_trt_llm_kv_cache_block_metrics:fraction"]
    idle += [f"nv_trt_llm_inflight_batcher_metrics:{kind}" for kind in ("generation_requests", "paused_requests", "total_context_tokens")]
    assert {key: seen[key] for key in idle} == dict.fromkeys(idle, 0)
    assert seen["nv_trt_llm_kv_cache_block_metrics:free"] == seen["nv_trt_llm_kv_cache_block_metrics:max"] > 0
    return seen


def test_gauges_show_preempted_requests(server):
    requests = [request("evicts", list(range(5, 25)), 400, f"paused-{i}") for i in range(10)]
    seen = expect_while_running(server, "evicts", requests, lambda g: g["nv_trt_llm_inflight_batcher_metrics:paused_requests"] > 0
                                and g["nv_trt_llm_request_metrics:waiting"] > 0 and g["nv_trt_llm_kv_cache_block_metrics:fraction"] > 0.5)
    assert seen["nereid_llm_engine:preemptions"] > 0


def test_gauges_count_the_beams_of_a_request_as_one(server):
    one = request("beams", list(range(5, 25)), 900, "beams")
    one.inputs.add(name="beam_width", datatype="INT32", shape=[1]).contents.int_contents.append(4)
    running = ["nv_trt_llm_inflight_batcher_metrics:generation_requests", "nv_trt_llm_request_metrics:active", "nv_trt_llm_request_metrics:scheduled"]

    def is_seen(values):
        assert max(values[key] for key in running) <= 1
        return all(values[key] == 1 for key in running)

    expect_while_running(server, "beams", [one], is_seen)


def num_ended(server, model):
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines()
               if line.startswith(("nv_inference_request_failure", "nv_inference_request_success")) and f'model="{model}"' in line)


def prompts(count, length=6):
    draws = random.Random(5)
    return [[draws.randrange(3, 400) for _ in range(length)] for _ in range(count)]


def test_a_client_that_does_not_read_delays_no_other_and_gets_every_token(start_server, tmp_path, backend):
    checkpoint = tmp_path / "demo"
    shutil.copytree(DEMO, checkpoint)
    (tmp_path / "repository/llm/1").mkdir(parents=True)
    (tmp_path / "repository/llm/config.pbtxt").write_text(CONFIG % (backend, checkpoint, 8, 4096))
    server = start_server(tmp_path / "repository", ["--grpc-max-unsent-size=4096"])
    [prompt] = prompts(1)
    with connect(server, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384)) as idle:  # it reads little ahead
        unread = service_pb2_grpc.GRPCInferenceServiceStub(idle).ModelStreamInfer(iter([request("llm", prompt, 900, streaming=True)]), timeout=600)
        expected = ask(server, [request("llm", prompt, 900, "x")])["x"]  # meanwhile the other request has all its tokens, too
        answers = ask(server, [request("llm", prompt, 20, str(index), streaming=True) for index in range(4)])
        assert all(ids == expected[0][:20] for ids, _ in answers.values()) and len(answers) == 4
        replies = [outputs_of(reply)["output_ids"] for reply in unread]
    assert np.frombuffer(b"".join(replies), np.int32).tolist() == expected[0]
    assert len(replies) < 900  # tokens that waited were merged
    server.stop()


def test_2048_waiting_requests_get_the_same_answers_as_single_ones(server, backend):
    few = prompts(8)
    alone = [ask(server, [request("llm", prompt, 3, "x")])["x"] for prompt in few]
    expect_all_released(server, "llm")  # metrics are updated after the answer
    before = gauges(server, "llm")
    answers = ask(server, [request("llm", few[i % 8], 3, str(i)) for i in range(2048)])
    assert len(answers) == 2048
    same = sum(answers[str(i)] == alone[i % 8] for i in range(2048))
    assert same == 2048 if backend == "cpu_reference" else same > 1900  # on a GPU, nearly equal logits may be chosen differently in another batch
    expect_all_released(server, "llm")
    after = gauges(server, "llm")
    assert after["nereid_llm_engine:output_tokens"] - before["nereid_llm_engine:output_tokens"] == 3 * 2048
    assert after["nereid_llm_engine:steps"] > before["nereid_llm_engine:steps"]
    assert after["nereid_llm_engine:step_microseconds"] > before["nereid_llm_engine:step_microseconds"]
    assert (after["nereid_llm_engine:recorded_steps"] > 0) == (backend == "gpu_llm")  # CUDA graphs
    assert after["nereid_llm_engine:failed_recordings"] == 0


@pytest.mark.parametrize("model", ["full", "evicts"])
def test_more_requests_than_the_cache_fits_are_all_served(server, backend, model):
    many = prompts(24, 40)
    alone = [ask(server, [request(model, prompt, 60, "x")])["x"] for prompt in many[:4]]
    answers = ask(server, [request(model, prompt, 60, str(i)) for i, prompt in enumerate(many)])
    assert len(answers) == 24 and all(len(ids) == 60 and reason == "length" for ids, reason in answers.values())
    if backend == "cpu_reference":
        assert [answers[str(i)] for i in range(4)] == alone
    expect_all_released(server, model)
    preempted = gauges(server, model)["nereid_llm_engine:preemptions"]
    assert preempted > 0 if model == "evicts" else preempted == 0


def test_requests_that_can_never_fit_are_refused_with_the_numbers(server):
    answer = ask(server, [request("full", prompts(1, 400)[0], 400, "x")])["x"]
    assert "KV cache blocks" in answer[1] and f"({CACHE_TOKENS} tokens)" in answer[1]


def test_a_full_queue_refuses_with_its_limit(server):
    answers = ask(server, [request("queue", [7, 8, 9], 100, str(i)) for i in range(40)])
    refused = [reason for _, reason in answers.values() if "maximum queue size" in reason.lower()]
    assert len(answers) == 40 and 0 < len(refused) < 40
    expect_all_released(server, "queue")


def test_a_request_is_stopped_by_its_id(server):
    with connect(server) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        long = stub.ModelStreamInfer(iter([request("llm", [5, 6, 7], 900, "long", streaming=True)]), timeout=600)
        other = stub.ModelStreamInfer(iter([request("llm", [5, 6, 7], 30, "other", streaming=True)]), timeout=600)
        next(long)
        assert ask_over(stub, [request("llm", [1], 1, "long", stop=True)])["long"][0] == []
        reasons = [outputs_of(reply).get("finish_reason", b"")[4:] for reply in long]
        assert len(reasons) < 899 and b"cancelled" in reasons
        assert sum(np.frombuffer(outputs_of(reply).get("output_ids", b""), np.int32).size for reply in other) == 30
    expect_all_released(server, "llm")


def test_a_storm_of_cancels_leaves_nothing_behind(server):
    async def storm():
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            async def one(index, prompt):
                call = stub.ModelStreamInfer(iter([request("llm", prompt, 900, str(index), streaming=True)] * 2))
                await asyncio.sleep(0.002 * (index % 60))
                call.cancel()
            await asyncio.gather(*[one(index, prompt) for index, prompt in enumerate(prompts(300, 30))])
    asyncio.run(storm())
    expect_all_released(server, "llm")
    assert len(ask(server, [request("llm", [5, 6, 7], 5, "x")])["x"][0]) == 5 and server.alive()


def test_clients_that_leave_free_their_places(server):
    ids = ",".join(map(str, prompts(1, 30)[0]))
    body = f'{{"input_ids": [{ids}], "input_lengths": 30, "request_output_len": 900, "streaming": true}}'
    head = f"POST /v2/models/llm/generate_stream HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
    before, tokens = num_ended(server, "llm"), gauges(server, "llm")["nereid_llm_engine:output_tokens"]
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", server.http)) as client:
            client.sendall((head + body).encode())
    wait_for(lambda: num_ended(server, "llm") >= before + 100, lambda: f"the end of 100 requests, now {num_ended(server, 'llm') - before}")
    expect_all_released(server, "llm")
    assert gauges(server, "llm")["nereid_llm_engine:output_tokens"] - tokens < 100 * 900 / 2
