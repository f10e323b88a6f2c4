"""The load tool of bench/serving: its workloads, its statistics, and a run with each kind of endpoint that it supports."""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serving"
sys.path.insert(0, str(FOLDER))
from report import summary  # noqa: E402
from workload import workload  # noqa: E402

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,40,3
2023-11-16 18:15:47.1805900,6,30
2023-11-16 18:15:48.6805900,9,2
"""
MOONCAKE = '{"timestamp": 500, "input_length": 12, "output_length": 4}\n{"timestamp": 1500, "input_length": 7, "output_length": 50}\n'


def options(**given):
    defaults = {"trace": None, "lengths": "8x4", "prompts": None, "count": 64, "concurrency": 0, "rate": 0.0, "burst": False, "trace_times": 0.0,
                "max_prompt": 100, "max_output": 100, "seed": 1, "slo_ttft": 500.0, "slo_itl": 50.0}
    return argparse.Namespace(**{**defaults, **given})


def test_traces_are_read_with_their_lengths_and_times(tmp_path):
    (tmp_path / "azure.csv").write_text(AZURE)
    (tmp_path / "mooncake.jsonl").write_text(MOONCAKE)
    rows = workload(options(trace=str(tmp_path / "azure.csv"), trace_times=2.0, max_output=20))
    assert [row[1:3] for row in rows] == [(40, 3), (6, 20), (9, 2)]
    assert [row[0] for row in rows] == pytest.approx([0.0, 0.25, 1.0])
    rows = workload(options(trace=str(tmp_path / "mooncake.jsonl"), trace_times=1.0, max_prompt=10))
    assert [row[:3] for row in rows] == [(0.0, 10, 4), (1.0, 7, 50)]


def test_arrivals_are_those_of_a_poisson_process():
    times = [row[0] for row in workload(options(rate=20.0, count=4000))]
    gaps = [b - a for a, b in zip(times, times[1:])]
    mean = sum(gaps) / len(gaps)
    assert 0.045 < mean < 0.055 and all(gap >= 0 for gap in gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.9 < deviation / mean < 1.1  # the standard deviation of an exponential distribution equals its mean
    assert times == [row[0] for row in workload(options(rate=20.0, count=4000))]
    assert {row[0] for row in workload(options(burst=True))} == {0.0} and {row[0] for row in workload(options(concurrency=2))} == {None}


def test_sums_have_known_answers():
    records = [{"prompt": 10, "output": 3, "error": None, "sent": 0.0, "times": [0.1 + i / 100, 0.11 + i / 100, 0.13 + i / 100], "ended": 2.0}
               for i in range(100)]
    records.append({"prompt": 10, "output": 3, "error": "refused", "sent": 0.5, "times": [], "ended": 4.0})
    result = summary(options(slo_ttft=599.0, slo_itl=16.0), records)
    assert result["requests"] == 101 and result["failed"] == 1 and result["seconds"] == 4.0
    assert result["ttft_ms"] == {"p50": 600.0, "p90": 1000.0, "p99": 1090.0}
    assert result["between_tokens_ms"] == {"p50": 20.0, "p90": 20.0, "p99": 20.0}
    assert result["output_tokens"] == 300 and result["output_tokens_per_s"] == 75.0
    assert result["goodput_requests_per_s"] == 12.5  # the 50 requests whose first token arrived within 599 ms, in 4 s
    assert summary(options(slo_ttft=599.0, slo_itl=14.0), records)["goodput_requests_per_s"] == 0.0


def run(tmp_path, *flags):
    saved = tmp_path / "run.json"
    done = subprocess.run([sys.executable, str(FOLDER / "llm_load.py"), "--save", str(saved), "--processes", "2", *map(str, flags)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(saved.read_text())
    assert report["result"]["failed"] == 0, done.stdout
    assert set(report["machine"]) == {"commit", "gpu", "date", "clocks"}
    for key in ("ttft_ms", "between_tokens_ms"):
        assert set(report["result"][key]) == {"p50", "p90", "p99"}
    return report["result"]


KSERVE = ("--model", "tensorrt_llm", "--vocab", "256", "--lengths", "8x5", "--count", "6")


@pytest.mark.parametrize("arrivals", [("--concurrency", "3"), ("--rate", "200"), ("--burst",)], ids=lambda flags: flags[0][2:])
def test_kserve_over_http(demo, tmp_path, arrivals):
    result = run(tmp_path, "--url", demo.url, *KSERVE, *arrivals)
    assert (result["requests"], result["input_tokens"], result["output_tokens"]) == (6, 48, 30)


def test_kserve_over_grpc(demo, tmp_path):
    result = run(tmp_path, "--api", "kserve-grpc", "--batched", "--url", f"127.0.0.1:{demo.grpc}", *KSERVE, "--concurrency", "3")
    assert (result["requests"], result["output_tokens"]) == (6, 30)


def test_kserve_with_text(demo, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Once upon a time"}\n{"prompt": "The little dog"}\n')
    result = run(tmp_path, "--api", "kserve-text", "--url", demo.url, "--model", "ensemble", "--lengths", "8x6", "--count", "4", "--burst",
                 "--prompts", tmp_path / "prompts.jsonl")
    assert 4 <= result["output_tokens"] <= 24


def test_a_trace_is_played(demo, tmp_path):
    (tmp_path / "azure.csv").write_text(AZURE)
    result = run(tmp_path, "--url", demo.url, "--model", "tensorrt_llm", "--vocab", "256", "--trace", tmp_path / "azure.csv", "--trace-times", "20",
                 "--max-output", "8")
    assert (result["input_tokens"], result["output_tokens"]) == (55, 13)


def test_our_c_api_in_process(dist, tmp_path):
    program = pathlib.Path(os.environ.get("NEREID_TEST_BACKENDS", "/")).parent.parent / "bench/serving/llm_inprocess"
    if not program.exists():
        pytest.skip("llm_inprocess was not built")
    result = run(tmp_path, "--api", "c", "--program", program, "--repository", dist / "share/demo_repository", "--backends", dist / "backends",
                 *KSERVE, "--concurrency", "3")
    assert (result["requests"], result["input_tokens"], result["output_tokens"]) == (6, 48, 30)
    result = run(tmp_path, "--api", "c", "--program", program, "--repository", dist / "share/demo_repository", "--backends", dist / "backends",
                 *KSERVE, "--rate", "100", "--top-p", "0.9")
    assert result["output_tokens"] == 30


def test_the_time_to_the_first_token_of_a_checkpoint(dist, tmp_path):
    done = subprocess.run([sys.executable, str(FOLDER / "first_token.py"), "--folder", str(tmp_path / "tiny"), "--shape", "tiny", "--backend",
                           "cpu_reference", "--dist", str(dist), "--runs", "2"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["first_token_s"]) == 2 and None not in result["first_token_s"], result
    assert not (tmp_path / "tiny").exists()


def test_refusals_are_counted_and_shown(demo, tmp_path):
    done = subprocess.run([sys.executable, str(FOLDER / "llm_load.py"), "--url", demo.url, "--model", "nobody", "--count", "2"],
                          capture_output=True, text=True, timeout=300)
    assert json.JSONDecoder().raw_decode(done.stdout)[0]["failed"] == 2 and "nobody" in done.stdout


class OpenAi:
    """An endpoint that answers every request with the same four text chunks, as /v1/completions or /v1/chat/completions stream them."""

    def __init__(self):
        self.bodies, self.ready = [], threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self.thread.start()
        assert self.ready.wait(60)

    async def serve(self):
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.ready.set()
        await self.end.wait()

    async def answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
        self.bodies.append((head.split()[1], json.loads(await reader.readexactly(size))))
        is_chat = "/chat/" in head
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for text in ("a", "b", "", "c"):
            choice = {"delta": {"content": text}} if is_chat else {"text": text}
            writer.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            await writer.drain()
        writer.write(b'data: {"choices": [], "usage": {"completion_tokens": 5}}\n\ndata: [DONE]\n\n')
        await writer.drain()
        writer.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(60)


@pytest.mark.parametrize("api,path", [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_openai(tmp_path, api, path):
    server = OpenAi()
    result = run(tmp_path, "--api", api, "--url", server.url, "--model", "m", "--lengths", "7x5", "--count", "4", "--concurrency", "2")
    server.close()
    assert result["output_tokens"] == 20  # from the usage, which includes the token without text
    assert [one for one, _ in server.bodies] == [path] * 4
    body = server.bodies[0][1]
    assert body["model"] == "m" and body["max_tokens"] == 5 and body["stream"] is True
    assert len(body["prompt"]) == 7 if api == "openai" else body["messages"][0]["role"] == "user"
