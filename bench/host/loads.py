"""Closed-loop loads on a server, by tools that others wrote: wrk over HTTP, perf_analyzer over HTTP and gRPC.

Each load is called as load(server, concurrency, seconds) and returns a Figure.
"""
import csv
import dataclasses
import json
import re
import subprocess
import tempfile

WRK = """wrk.method = "POST"
local file = io.open("%(body)s", "rb")
wrk.body = file:read("*a")
%(headers)s
"""


@dataclasses.dataclass(frozen=True, order=True)
class Figure:
    rate: float  # requests a second
    p50_ms: float
    p99_ms: float
    requests: int = 0  # in all, where the tool says it


def json_body(num_floats):
    inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [num_floats], "data": [float(i) for i in range(num_floats)]}]
    return json.dumps({"inputs": inputs}).encode(), {}


def binary_body(num_floats):
    inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [num_floats], "parameters": {"binary_data_size": 4 * num_floats}}]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return header + bytes(4 * num_floats), {"Inference-Header-Content-Length": len(header)}


def milliseconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def wrk(folder, path, body=None):
    """A load by wrk: POST of body, a (bytes, headers) pair, or GET without one. folder keeps the script that wrk reads."""
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
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert "Non-2xx" not in output, output
        percentile = lambda p: milliseconds(re.search(rf"^\s+{p}%\s+(\S+)", output, re.M).group(1))
        return Figure(float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1)), percentile(50), percentile(99),
                      int(re.search(r"(\d+) requests in", output).group(1)))

    return load


def perf_analyzer(program, protocol, model, shape=16):
    """A load by perf_analyzer: protocol http (binary tensors) or grpc."""

    def load(server, concurrency, seconds):
        with tempfile.NamedTemporaryFile(suffix=".csv") as table:
            command = [program, "-m", model, "-u", f"127.0.0.1:{getattr(server, protocol)}", "-i", protocol, "--async",
                       "--shape", f"INPUT0:{shape}", "--concurrency-range", str(concurrency), "--measurement-interval", str(1000 * seconds),
                       "--stability-percentage", "999", "--max-trials", "3", "-f", table.name]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            row = next(csv.DictReader(open(table.name)))
        return Figure(float(row["Inferences/Second"]), float(row["p50 latency"]) / 1000, float(row["p99 latency"]) / 1000)

    return load
