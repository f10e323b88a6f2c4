#!/usr/bin/env python3
"""Throughput and latency of the HTTP frontend beside another server's, in one run, on the same backend .so.

Needs wrk. Each case runs against both servers in turn, interleaved, so that both see the same machine; the ratio is Nereid's
throughput over the other's. It prints what it measured and on what; it judges nothing.

    compare_http.py --nereid stage/bin/nereid --backends build/tests/backends [--peer "command of a server with Triton's flags"]
"""
import argparse
import json
import os
import pathlib
import platform
import re
import shlex
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CONFIG = """backend: "identity_c"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
WRK = """wrk.method = "POST"
local file = io.open("%(body)s", "rb")
wrk.body = file:read("*a")
%(headers)s
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def write_case(folder, name, body, headers):
    (folder / f"{name}.body").write_bytes(body)
    lines = "\n".join(f'wrk.headers["{key}"] = "{value}"' for key, value in headers.items())
    script = folder / f"{name}.lua"
    script.write_text(WRK % {"body": folder / f"{name}.body", "headers": lines})
    return script


def binary_body(num_floats):
    header = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [num_floats],
                                     "parameters": {"binary_data_size": 4 * num_floats}}],
                         "parameters": {"binary_data_output": True}}).encode()
    return header + bytes(4 * num_floats), {"Inference-Header-Content-Length": len(header)}


def make_cases(folder):
    """Name -> (path, wrk script or None)."""
    infer = "/v2/models/identity/infer"
    floats = [float(i) for i in range(16)]
    text = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": floats}]}).encode()
    return {
        "health/ready": ("/v2/health/ready", None),
        "infer json 16 floats": (infer, write_case(folder, "json", text, {})),
        "infer binary 16 floats": (infer, write_case(folder, "binary", *binary_body(16))),
        "infer binary 1 MiB": (infer, write_case(folder, "mebibyte", *binary_body(1 << 18))),
    }


class Server:
    def __init__(self, command, repository, backends):
        self.port = free_port()
        flags = [f"--model-repository={repository}", f"--backend-directory={backends}", f"--http-port={self.port}",
                 "--http-address=127.0.0.1", "--allow-grpc=false", "--allow-metrics=false"]
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=5)
                return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None and time.monotonic() < deadline, f"{command} does not start"
                time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def milliseconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def measure(server, path, script, connections, seconds):
    """(requests a second, p50 ms, p99 ms, the server's CPU microseconds a request)"""
    command = ["wrk", "--latency", "-t1" if connections == 1 else "-t2", f"-c{connections}", f"-d{seconds}s",
               f"http://127.0.0.1:{server.port}{path}"]
    if script:
        command[1:1] = ["-s", str(script)]
    cpu_before = server.cpu_seconds()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in output, output
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))
    requests = int(re.search(r"(\d+) requests in", output).group(1))
    cpu_us = (server.cpu_seconds() - cpu_before) / requests * 1e6
    return rate, *(milliseconds(re.search(rf"^\s+{p}%\s+(\S+)", output, re.M).group(1)) for p in (50, 99)), cpu_us


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nereid", required=True)
    parser.add_argument("--backends", required=True, help="folder that holds identity_c/libtriton_identity_c.so")
    parser.add_argument("--peer", default=os.environ.get("NEREID_PEER_COMMAND"))
    parser.add_argument("--connections", default="1,8,64")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="repetitions, of which the best counts")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = folder / "models/identity"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        cases = make_cases(folder)
        commands = {"nereid": [arguments.nereid]}
        if arguments.peer:
            commands["peer"] = shlex.split(arguments.peer)
        servers = {name: Server(command, folder / "models", os.path.abspath(arguments.backends)) for name, command in commands.items()}
        print(f"machine: {os.cpu_count()} CPUs, {platform.processor() or platform.machine()}, load {os.getloadavg()[0]:.1f}; "
              f"wrk {arguments.seconds} s a cell, best of {arguments.rounds}; commands: {commands}")
        print("| case | connections | " + " | ".join(f"{name} req/s, p50/p99 ms, CPU us" for name in servers) + " | ratio |")
        print("|---|---|" + "---|" * (len(servers) + 1))
        try:
            for case, (path, script) in cases.items():
                for connections in map(int, arguments.connections.split(",")):
                    best = {}
                    for _ in range(arguments.rounds):
                        for name, server in servers.items():
                            best[name] = max(best.get(name, (0,)), measure(server, path, script, connections, arguments.seconds))
                    cells = " | ".join(f"{rate:,.0f}, {p50:.2f}/{p99:.2f}, {cpu:.0f}" for rate, p50, p99, cpu in best.values())
                    ratio = f"{best['nereid'][0] / best['peer'][0]:.2f}" if "peer" in best else ""
                    print(f"| {case} | {connections} | {cells} | {ratio} |", flush=True)
            print("resident MB: " + ", ".join(f"{name} {server.resident_mb():.0f}" for name, server in servers.items()))
        finally:
            for server in servers.values():
                server.stop()


if __name__ == "__main__":
    main()
