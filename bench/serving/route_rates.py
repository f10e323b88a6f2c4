#!/usr/bin/env python3
"""Compares the rates of OpenAI's routes with those of KServe's generate_stream, and measures how fast models take turns in the memory.

    route_rates.py --dist dist --checkpoint FOLDER [--batches 1,64] [--tokens 256] [--rounds 5] [--swaps 8 --memory-budget 20GB] [--csv FILE]

Starts `nereid serve` with FOLDER (first_token.py --keep writes one of a real model's size) and a chat template that passes the message on, so that all routes
have the same prompt. As many streams as the batch begin at the same time, and each ends after --tokens tokens; a cell is the median of the rounds, in which
the routes alternate. With --swaps it then serves the folder under two names with a memory budget that holds one of them: each request names the model that is
not loaded, and its time is that to the first event of its stream. Meanwhile a second client asks both models without a pause, and must get all its answers.
The clients are one process on the same machine. Prints rows of CSV. Never asserts.
"""
import argparse
import asyncio
import csv
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
PROMPT = "Once upon a time there was"
FIELDS = ("case", "measure", "value", "unit")


def request(route, model, num_tokens):
    fields = {"ignore_eos": True, "stream": True, "max_tokens": num_tokens, "temperature": 0}
    if route == "generate_stream":
        path = f"/v2/models/{model}/generate_stream"
        fields |= {"text_input": PROMPT}
    else:
        path = "/v1/" + {"chat": "chat/completions", "completions": "completions"}[route]
        fields |= {"model": model, "stream_options": {"include_usage": True}}
        fields |= {"messages": [{"role": "user", "content": PROMPT}]} if route == "chat" else {"prompt": PROMPT}
    body = json.dumps(fields).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def stream(port, message):
    """Returns (seconds to the first event, number of events, whole text)."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message)
    first, pieces = None, []
    while piece := await reader.read(1 << 16):
        pieces.append(piece)
        if first is None and b"data: " in piece:
            first = time.perf_counter() - began
    writer.close()
    text = b"".join(pieces)
    if not text.startswith(b"HTTP/1.1 200") or b'"error"' in text or first is None:
        raise RuntimeError(text[-600:].decode(errors="replace"))
    return first, text.count(b"data: "), text


async def rate(port, route, model, batch, num_tokens):
    """Returns tokens a second from the first request to the last event."""
    message = request(route, model, num_tokens)
    began = time.perf_counter()
    answers = await asyncio.gather(*(stream(port, message) for _ in range(batch)))
    seconds = time.perf_counter() - began
    for _, _, text in answers:
        used = re.findall(rb'"(?:completion_tokens|num_output_tokens)": ?(\d+)', text)
        if not used or int(used[-1]) != num_tokens:
            raise RuntimeError(f"{route}: expected {num_tokens} tokens, got {used[-1:]}")
    return batch * num_tokens / seconds


async def compare(port, arguments, write):
    routes = ("generate_stream", "chat", "completions")
    for batch in (int(each) for each in arguments.batches.split(",")):
        rates = {route: [] for route in routes}
        for round_index in range(arguments.rounds + 1):  # the first one warms up
            for route in routes[round_index % 3:] + routes[:round_index % 3]:
                value = await rate(port, route, "first", batch, arguments.tokens)
                if round_index > 0:
                    rates[route].append(value)
        kserve = statistics.median(rates["generate_stream"])
        for route, values in rates.items():
            write(f"{batch} streams, {route}", "median", round(statistics.median(values), 1), "tokens/s")
            write(f"{batch} streams, {route}", "each", " ".join(f"{value:.0f}" for value in values), "tokens/s")
            write(f"{batch} streams, {route}", "beside generate_stream", round(statistics.median(values) / kserve, 4), "")


async def ask_both(port, stop, counts):
    message = {name: request("completions", name, 4) for name in ("first", "second")}
    while not stop.is_set():
        for name in ("first", "second"):
            try:
                await stream(port, message[name])
                counts["answered"] += 1
            except (RuntimeError, OSError) as error:
                counts["lost"] += 1
                print(error, file=sys.stderr)


async def swap(port, arguments, write):
    seconds = []
    for index in range(arguments.swaps):
        first, _, _ = await stream(port, request("completions", ("second", "first")[index % 2], 4))
        seconds.append(round(first, 3))
    loaded = [(await stream(port, request("completions", ("second", "first")[(arguments.swaps - 1) % 2], 4)))[0] for _ in range(5)]
    write("a model that is not loaded", "first event, median", statistics.median(seconds), "s")
    write("a model that is not loaded", "first event, each", " ".join(map(str, seconds)), "s")
    write("a model that is loaded", "first event, median", round(statistics.median(loaded), 4), "s")
    stop, counts = asyncio.Event(), {"answered": 0, "lost": 0}
    clients = [asyncio.create_task(ask_both(port, stop, counts)) for _ in range(2)]
    await asyncio.sleep(arguments.swap_seconds)
    stop.set()
    await asyncio.gather(*clients)
    for name, count in counts.items():
        write("two clients that ask both models", name, count, "requests")


class Server:
    def __init__(self, arguments, folder, names, *flags):
        self.port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
        self.log = open(folder / "log", "w+")
        command = [arguments.dist / "bin/nereid", "serve", *[arguments.checkpoint] * len(names), *(f"--name={name}" for name in names),
                   f"--port={self.port}", "--grpc-port=0", "--metrics-port=0", *flags, *(arguments.flag or [])]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return self
            except OSError:
                if self.process.poll() is not None:
                    self.log.seek(0)
                    raise SystemExit(self.log.read()[-3000:]) from None
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.seek(0)
        print(self.log.read()[-6000:], file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, type=pathlib.Path)
    parser.add_argument("--checkpoint", required=True, type=pathlib.Path)
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--swaps", type=int, default=0)
    parser.add_argument("--swap-seconds", type=float, default=10, help="how long the two clients ask")
    parser.add_argument("--memory-budget")
    parser.add_argument("--flag", action="append", help="of the server")
    parser.add_argument("--csv", type=argparse.FileType("w"), default=sys.stdout)
    arguments = parser.parse_args()
    writer = csv.writer(arguments.csv)
    writer.writerow(FIELDS)

    def write(*row):
        writer.writerow(row)
        arguments.csv.flush()

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        names = ("first", "second")
        if arguments.rounds > 0:
            template = folder / "template.jinja"
            template.write_text(TEMPLATE)
            with Server(arguments, folder, names[:1], f"--chat-template={template}") as server:
                asyncio.run(compare(server.port, arguments, write))
        if arguments.swaps > 0:
            with Server(arguments, folder, names, "--memory-budget", arguments.memory_budget) as server:
                asyncio.run(swap(server.port, arguments, write))


if __name__ == "__main__":
    main()
