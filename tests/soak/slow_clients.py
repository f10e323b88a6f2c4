"""Thousands of slow and idle clients: the server's memory stays flat and other clients are answered. Part of scripts/test --all; it takes some minutes.

    python tests/soak/slow_clients.py --dist dist --backends build/release/tests/backends [--scale 1.0] [--csv FILE]

Three loads, one after the other, on loopback: clients that read a stream of tokens slowly (half of them over HTTP, half over gRPC), idle connections with
connections that have sent half of a request, and streams that their clients drop. While each lasts, another client sends requests and measures. All
clients run in this process; for 15,000 connections at a time the limit of open files has to be 16,384 or more (`ulimit -n`)."""
import argparse
import csv
import json
import os
import pathlib
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

from tritonclient.grpc import service_pb2 as pb

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/e2e")]
import raw_http2  # noqa: E402
from raw_http import post  # noqa: E402
from server_process import ServerProcess  # noqa: E402

TOKEN_BYTES, NUM_TOKENS, INTERVAL_MS = 8, 400, 50


def memory_mb(server, what="VmRSS"):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) // 1024
    return 0


class Others:
    """A client that sends one request after the other until the end of the block."""

    def __init__(self, server):
        self._server, self._stop, self.seconds, self.failures = server, threading.Event(), [], 0

    def __enter__(self):
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def _ask(self):
        request = urllib.request.Request(self._server.url + "/v2/models/counters/infer", data=b'{"inputs":[]}')
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                urllib.request.urlopen(request, timeout=30).read()
                self.seconds.append(time.monotonic() - begin)
            except OSError:
                self.failures += 1
            self._stop.wait(0.02)

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def numbers(self):
        ordered = sorted(self.seconds)
        return {"others": len(ordered), "others failed": self.failures, "median ms": round(1000 * statistics.median(ordered), 1),
                "99th percentile ms": round(1000 * ordered[len(ordered) * 99 // 100], 1), "longest ms": round(1000 * ordered[-1])}


def connect(port, receive_buffer=4096):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    one.settimeout(60)
    one.connect(("127.0.0.1", port))
    return one


def stream_over_http(server):
    one = connect(server.http)
    one.sendall(post("/v2/models/fountain/generate_stream", {"COUNT": NUM_TOKENS, "INTERVAL_MS": INTERVAL_MS, "SIZE": TOKEN_BYTES}))
    return one


def stream_over_grpc(server, message):
    one = connect(server.grpc)
    one.sendall(raw_http2.PREFACE + raw_http2.frame(raw_http2.SETTINGS, 0, 0, b"") +
                raw_http2.call(b"/inference.GRPCInferenceService/ModelStreamInfer", message))
    return one


def read_slowly(clients, seconds):
    """Reads 256 bytes of each client now and then. Returns how many bytes arrived and how many clients were cut off."""
    end, num_bytes, closed = time.monotonic() + seconds, 0, set()
    while time.monotonic() < end:
        for each in clients:
            each.setblocking(False)
            try:
                data = each.recv(256)
                num_bytes += len(data)
                if not data:
                    closed.add(each)
            except BlockingIOError:
                pass
            except OSError:
                closed.add(each)
    return num_bytes, len(closed)


def close(clients):
    for each in clients:
        each.close()


def settle(server, seconds=6):
    time.sleep(seconds)
    return memory_mb(server)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True)
    parser.add_argument("--backends", required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all numbers of clients")
    parser.add_argument("--csv", help="file for the numbers")
    parser.add_argument("--seconds", type=float, default=20, help="duration of each load")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = lambda number: max(1, int(number * options.scale))  # noqa: E731

    folder = pathlib.Path(tempfile.mkdtemp())
    repository = folder / "repository"
    shutil.copytree(ROOT / "tests/support/repositories/patient", repository)
    shutil.copytree(repository / "ticker", repository / "fountain")
    config = repository / "fountain/config.pbtxt"
    config.write_text(config.read_text().replace('"patient"', '"fountain"'))
    server = ServerProcess([options.dist + "/bin/nereid"], [f"--model-repository={repository}", f"--backend-directory={options.backends}",
                                                            "--http-max-connections=40000"], folder / "log", dict(os.environ))
    try:
        return run(server, count, options.seconds, options.csv)
    finally:
        print(f"the server ended with {server.stop()}")
        shutil.rmtree(folder)


def run(server, count, seconds, csv_file):
    """Prints one row per load: memory in MB before, while all clients were connected, at the end of the load and after the clients had left, and what
    other clients saw."""
    request = pb.ModelInferRequest(model_name="fountain")
    for name, value in (("COUNT", NUM_TOKENS), ("INTERVAL_MS", INTERVAL_MS), ("SIZE", TOKEN_BYTES)):
        request.inputs.add(name=name, datatype="INT32", shape=[1]).contents.int_contents.append(value)
    message = request.SerializeToString()
    rows = []

    def finish(load, before, opened, end, others, note):
        rows.append({"load": load, "before MB": before, "connected MB": opened, "end MB": end, "after MB": settle(server), **others.numbers(), "note": note})
        print(", ".join(f"{name}: {value}" for name, value in rows[-1].items()), flush=True)

    before = memory_mb(server)
    with Others(server) as others:
        num = count(10_000)
        clients = [stream_over_http(server) if index % 2 else stream_over_grpc(server, message) for index in range(num)]
        opened = memory_mb(server)
        num_bytes, num_closed = read_slowly(clients, seconds)
        end = memory_mb(server)
        close(clients)
    finish(f"{num} slow readers of streams", before, opened, end, others, f"{num_bytes / 1e6:.1f} MB read, {num_closed} connections closed")

    before = memory_mb(server)
    with Others(server) as others:
        idle = [connect(server.http if index % 2 else server.grpc) for index in range(count(10_000))]
        half = [connect(server.http if index % 2 else server.grpc) for index in range(count(5_000))]
        for index, each in enumerate(half):
            each.sendall(b"POST /v2/models/counters/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{" if index % 2 else raw_http2.PREFACE[:20])
        opened = memory_mb(server)
        time.sleep(seconds)
        end = memory_mb(server)
        close(idle + half)
    finish(f"{len(idle)} idle and {len(half)} half-open connections", before, opened, end, others, "")

    before = memory_mb(server)
    with Others(server) as others:
        num = count(2_000)
        for index in range(num):
            one = stream_over_http(server) if index % 2 else stream_over_grpc(server, message)
            if index % 3:
                one.recv(64)
            one.close()
        end = memory_mb(server)
    with urllib.request.urlopen(server.url + "/v2/models/fountain/stats", timeout=60) as answer:
        entry = json.load(answer)["model_stats"][0]["inference_stats"]
    finish(f"{num} dropped streams", before, end, end, others,
           f"of all streams {entry['success']['count']} ended well and {entry['fail']['count']} were cancelled")
    if csv_file:
        with open(csv_file, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return 1 if any(row["others failed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
