#!/usr/bin/env python3
"""Opens thousands of streams at once, chats of OpenAI's API and KServe's generate_stream by turns, against one server that it starts with the demo model.

Usage: chat_streams.py --dist dist [--streams 10000] [--max-tokens 8] [--rounds 2] [--csv FILE]
Prints a line of CSV for each run: streams, failed streams, tokens, tokens a second from the first request to the last event, the server's resident memory
before the run and at its peak in MB, their difference in KB a stream, and its threads. All streams are open and generate at the same time: the engine has a
slot for each, and an earlier run has touched the memory of its KV cache. The clients are one process beside the server. Never asserts.
"""
import argparse
import asyncio
import csv
import json
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
PROMPT = "Once upon a time there was"
FIELDS = ("route", "streams", "failed", "tokens", "tokens a second", "before MB", "peak MB", "KB a stream", "threads")


def status(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"])


def request(route, max_tokens):
    if route == "chat":
        path, body = "/v1/chat/completions", {"model": "ensemble", "messages": [{"role": "user", "content": PROMPT}], "ignore_eos": True}
    else:
        path, body = "/v2/models/ensemble/generate_stream", {"text_input": PROMPT, "ignore_eos": True}
    text = json.dumps({**body, "stream": True, "max_tokens": max_tokens, "temperature": 0, "seed": 1}).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


async def stream(port, message, opened, start):
    """Returns how many pieces of text came; None if the stream failed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    opened.release()
    await start.wait()
    writer.write(message)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        pieces, ended = 0, False
        while size := int(await reader.readline(), 16):
            data = await reader.readexactly(size + 2)
            ended |= b"[DONE]" in data or b'"length"' in data or b'"finish_reason":"l' in data
            pieces += len(re.findall(rb'"content":"[^"]|"text_output":"[^"]', data))
            if b'"error"' in data:
                return None
        return pieces if b" 200 " in head.split(b"\r\n", 1)[0] and ended else None
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return None
    finally:
        writer.close()


async def run(route, port, pid, num_streams, max_tokens):
    before, _ = status(pid)
    opened, start = asyncio.Semaphore(0), asyncio.Event()
    message = request(route, max_tokens)
    tasks = []
    for index in range(num_streams):
        tasks.append(asyncio.create_task(stream(port, message, opened, start)))
        if index % 200 == 199:
            await asyncio.sleep(0.02)
    for _ in range(num_streams):
        await opened.acquire()
    began = time.perf_counter()
    start.set()
    peak, threads = before, 0
    while not all(task.done() for task in tasks):
        now, count = status(pid)
        peak, threads = max(peak, now), max(threads, count)
        await asyncio.wait(tasks, timeout=0.25, return_when=asyncio.ALL_COMPLETED)
    seconds = time.perf_counter() - began
    done = [task.result() for task in tasks]
    # Some pieces have no text, so that the tokens are counted by the requests that ended.
    tokens = max_tokens * sum(each is not None for each in done)
    return dict(zip(FIELDS, (route, num_streams, sum(each is None for each in done), tokens, round(tokens / seconds), round(before), round(peak),
                             round((peak - before) * 1024 / num_streams, 1), threads)))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_repository(dist, folder, num_streams, max_tokens):
    shutil.copytree(ROOT / "demo/model", folder / "checkpoint")
    (folder / "checkpoint/chat_template.jinja").write_text(TEMPLATE)
    repository = folder / "models"
    subprocess.run([dist / "bin/nereid-repo", "new", "llm", "--checkpoint", folder / "checkpoint", "--out", repository, "--decoupled"], check=True,
                   stdout=subprocess.DEVNULL)
    engine = repository / "tensorrt_llm/config.pbtxt"
    values = {"max_num_sequences": num_streams, "max_tokens_in_paged_kv_cache": num_streams * (max_tokens + 64)}
    text = engine.read_text()
    for name, value in values.items():
        text = re.sub(rf'(key: "{name}" *value {{ string_value: )"[^"]*"', rf'\1"{value}"', text)
    engine.write_text(text)
    for config in repository.glob("*/config.pbtxt"):
        config.write_text(re.sub(r"max_queue_size: \d+", "max_queue_size: 0", config.read_text()))
    return repository


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--csv")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        repository = make_repository(options.dist, pathlib.Path(folder), options.streams, options.max_tokens)
        port = free_port()
        log = open(pathlib.Path(folder) / "log", "w")
        server = subprocess.Popen([options.dist / "bin/nereid", f"--model-repository={repository}", f"--http-port={port}", "--allow-grpc=false",
                                   "--allow-metrics=false", "--log-info=false"], stdout=log, stderr=log)
        try:
            ready = f"http://127.0.0.1:{port}/v2/health/ready"
            while True:
                try:
                    urllib.request.urlopen(ready, timeout=5)
                    break
                except OSError:
                    assert server.poll() is None, open(log.name).read()[-3000:]
                    time.sleep(0.1)
            rows = []
            asyncio.run(run("generate_stream", port, server.pid, options.streams, options.max_tokens))
            for _ in range(options.rounds):
                for route in ("chat", "generate_stream"):
                    rows.append(asyncio.run(run(route, port, server.pid, options.streams, options.max_tokens)))
                    print(rows[-1], file=sys.stderr)
        finally:
            server.terminate()
            server.wait(timeout=60)
    out = open(options.csv, "w", newline="") if options.csv else sys.stdout
    writer = csv.DictWriter(out, FIELDS)
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
