"""Closed-loop loads on a server from third-party tools: wrk over HTTP, h2load over gRPC, perf_analyzer over both.

Each load is called as load(server, concurrency, seconds) and returns a LoadResult. It raises LoadFailed if the tool does not end or reports no
results.
"""
import csv
import dataclasses
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile

WRK = """wrk.method = "POST"
local file = io.open("%(body)s", "rb")
wrk.body = file:read("*a")
%(headers)s
"""


@dataclasses.dataclass(frozen=True, order=True)
class LoadResult:
    rate: float  # requests a second
    p50_ms: float
    p99_ms: float
    requests: int = 0  # total number, if the tool reports it


class LoadFailed(Exception):
    pass


def run(command, limit_s):
    """Returns the output of the command. The command and its children are killed after limit_s seconds."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise LoadFailed(f"stopped after {limit_s} s") from None
    if process.returncode != 0:
        raise LoadFailed(f"{os.path.basename(command[0])} failed ({process.returncode})")
    return output


def json_body(num_floats):
    inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [num_floats], "data": [float(i) for i in range(num_floats)]}]
    return json.dumps({"inputs": inputs}).encode(), {}


def binary_body(num_floats, batch=()):
    inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [*batch, num_floats], "parameters": {"binary_data_size": 4 * num_floats}}]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return header + bytes(4 * num_floats), {"Inference-Header-Content-Length": len(header)}


def grpc_body(model, num_floats, batch=()):
    """A ModelInferRequest with gRPC's 5-byte prefix. Every length is below 128 and therefore one byte, except for that of the raw input."""
    field = lambda number, data: bytes([number << 3 | 2]) + (bytes([len(data)]) if len(data) < 128 else
                                                             bytes([len(data) & 127 | 128, len(data) >> 7])) + data
    tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, bytes([*batch, num_floats]))
    message = field(1, model.encode()) + field(5, tensor) + field(7, bytes(4 * num_floats))
    return b"\0" + struct.pack(">I", len(message)) + message


def open_stream(port):
    """Returns the socket of a connection with one open ModelStreamInfer call. The server has acknowledged a ping sent after the call's headers."""
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def literal(name, value):
        return bytes([0, len(name)]) + name + bytes([len(value)]) + value

    headers = b"".join(literal(*field) for field in [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/inference.GRPCInferenceService/ModelStreamInfer"), (b":authority", b"bench"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")])
    settings, request_headers, ping, end_headers, ack = 4, 1, 6, 4, 1
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, b"") + frame(request_headers, end_headers, 1, headers) +
                   frame(ping, 0, 0, bytes(8)))
    received = b""
    while frame(ping, ack, 0, bytes(8)) not in received:
        more = client.recv(4096)
        if not more:
            raise OSError("the server closed the connection of a stream")
        received += more
    return client


def milliseconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def wrk(folder, path, body=None):
    """A load by wrk: POST of body, a (bytes, headers) pair, or GET if it is None. folder receives the script that wrk reads."""
    script = []
    if body:
        stem = folder / f"wrk-{len(list(folder.glob('*.lua')))}"
        stem.with_suffix(".body").write_bytes(body[0])
        headers = "\n".join(f'wrk.headers["{key}"] = "{value}"' for key, value in body[1].items())
        stem.with_suffix(".lua").write_text(WRK % {"body": stem.with_suffix(".body"), "headers": headers})
        script = ["-s", str(stem.with_suffix(".lua"))]

    def load(server, concurrency, seconds):
        command = ["wrk", *script, "--latency", "-t1" if concurrency == 1 else "-t2", f"-c{concurrency}", f"-d{seconds}s",
                   f"http://127.0.0.1:{server.http}{path}"]
        output = run(command, 30 + 3 * seconds)
        assert "Non-2xx" not in output, output
        percentile = lambda p: milliseconds(re.search(rf"^\s+{p}%\s+(\S+)", output, re.M).group(1))
        return LoadResult(float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1)), percentile(50), percentile(99),
                      int(re.search(r"(\d+) requests in", output).group(1)))

    return load


def h2load(folder, model, body):
    """A load by h2load: ModelInfer calls of one fixed message, up to eight at a time on a connection."""
    path = folder / f"h2load-{model}.body"
    path.write_bytes(body)

    def load(server, concurrency, seconds):
        streams = min(concurrency, 8)
        connections = concurrency // streams
        log = folder / "h2load.log"
        log.unlink(missing_ok=True)  # h2load would append to it
        before = server.num_executed(model)
        run(["h2load", f"-c{connections}", f"-m{streams}", "-t2" if connections > 1 else "-t1", f"-D{seconds}", f"-d{path}",
                      "-Hcontent-type: application/grpc", "-Hte: trailers", f"--log-file={log}",
                      f"http://127.0.0.1:{server.grpc}/inference.GRPCInferenceService/ModelInfer"], 30 + 3 * seconds)
        us = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
        # h2load counts gRPC errors as status 200, so the server's statistics must confirm that the model ran.
        executed = server.num_executed(model) - before
        if not us or executed < len(us):
            raise LoadFailed(f"{len(us)} responses, {executed} executions")
        return LoadResult(len(us) / seconds, us[len(us) // 2] / 1000, us[len(us) * 99 // 100] / 1000, executed)

    return load


def perf_analyzer(program, protocol, model, shape=16):
    """A load by perf_analyzer: protocol http (binary tensors) or grpc."""

    def load(server, concurrency, seconds):
        before = server.num_executed(model)
        with tempfile.NamedTemporaryFile(suffix=".csv") as table:
            run([program, "-m", model, "-u", f"127.0.0.1:{getattr(server, protocol)}", "-i", protocol, "--async",
                 "--shape", f"INPUT0:{shape}", "--concurrency-range", str(concurrency), "--measurement-interval", str(1000 * seconds),
                 "--stability-percentage", "999", "--max-trials", "10", "-f", table.name], 60 + 12 * seconds)
            row = next(csv.DictReader(open(table.name)), None)
        if row is None:
            raise LoadFailed("perf_analyzer wrote no results")
        return LoadResult(float(row["Inferences/Second"]), float(row["p50 latency"]) / 1000, float(row["p99 latency"]) / 1000,
                      server.num_executed(model) - before)

    return load
