#!/usr/bin/env python3
"""Compares Python models of the host with those of another server that accepts Triton's flags, in one run with the same model.py files.

    compare_python.py --nereid dist/bin/nereid --peer "tritonserver" --python build/venv/bin/python

Requires wrk and curl. Each cell is measured on one server directly after the other; with --rounds the best value counts. A ratio is Nereid's
value divided by the other server's. Prints Markdown. Never asserts.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request

import loads
import servers

IO = """input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(each, "INPUT0").as_numpy())])
                for each in requests]
"""
STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for each in requests:
            sender = each.get_response_sender()
            for i in range(int(pb_utils.get_input_tensor_by_name(each, "INPUT0").as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([i], np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CALLER = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for each in requests:
            count = int(pb_utils.get_input_tensor_by_name(each, "INPUT0").as_numpy()[0])
            values = np.zeros(16, np.float32)
            started = time.perf_counter()
            for _ in range(count):
                response = pb_utils.InferenceRequest(model_name="%s", requested_output_names=["OUTPUT0"],
                                                     inputs=[pb_utils.Tensor("INPUT0", values)]).exec()
                assert not response.has_error(), response.error().message()
            spent = np.array([(time.perf_counter() - started) / count], np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", spent)]))
        return responses
"""


def write_model(folder, name, code, config=""):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text('backend: "python"\n' + IO + config)
    (folder / name / "1/model.py").write_text(code)


def write_repository(folder):
    write_model(folder, "identity", IDENTITY)
    write_model(folder, "stream", STREAM, "model_transaction_policy { decoupled: true }\n")
    write_model(folder, "call_python", CALLER % "identity")
    servers.write_model(folder, "identity_c", servers.C_MODEL + "max_batch_size: 0\n" + servers.IO.format(dims=-1))
    write_model(folder, "call_c", CALLER % "identity_c")


def infer(server, model, value):
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [value]}]}
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}/v2/models/{model}/infer", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())["outputs"][0]["data"][0]


def streamed_per_second(server, count):
    started = time.perf_counter()
    output = subprocess.run(["curl", "-sfN", f"http://127.0.0.1:{server.http}/v2/models/stream/generate_stream", "-d", json.dumps({"INPUT0": count})],
                            check=True, capture_output=True).stdout
    assert output.count(b"data:") >= count, output[-300:]
    return count / (time.perf_counter() - started)


def pss_mb(pid):
    """Proportional set size (PSS): private memory plus the process's share of shared memory."""
    return int(re.search(r"^Pss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M).group(1)) / 1024


def descendants(pid):
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def bare_interpreter_mb(python):
    with subprocess.Popen([python, "-c", "import numpy; print(); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        size = pss_mb(process.pid)
        process.communicate(b"\n")
    return size


def cpu_seconds(server):
    """CPU time of the server and its worker processes so far."""
    total = server.cpu_seconds()
    for pid in descendants(server.process.pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def with_cpu(load, concurrency, seconds):
    """Returns a measurement of (result, CPU microseconds per request)."""
    def measure(server):
        before = cpu_seconds(server)
        result = load(server, concurrency, seconds)
        return result, (cpu_seconds(server) - before) / max(result.requests, 1) * 1e6
    return measure


def call_us(server, model, count):
    """Returns the mean (time, CPU time) in microseconds of `count` calls that the model makes."""
    before = cpu_seconds(server)
    spent_s = infer(server, model, float(count))
    return spent_s * 1e6, (cpu_seconds(server) - before) / count * 1e6


def best_of(rounds, running, measure, is_better):
    best = {}
    for _ in range(rounds):
        for name, server in running.items():
            result = measure(server)
            best[name] = result if name not in best or is_better(result, best[name]) else best[name]
    return best


def print_rows(running, folder, arguments):
    names = list(running)
    print("| case | connections | " + " | ".join(f"{name}: req/s, p50/p99 ms, CPU us" for name in names) + " | rate | p99 | CPU |")
    print("|---|---|" + "---|" * (len(names) + 3))
    for title, floats in (("identity 16 floats, binary, wrk", 16), ("identity 1 MiB, binary, wrk", 1 << 18)):
        load = loads.wrk(folder, "/v2/models/identity/infer", loads.binary_body(floats))
        for concurrency in (1, 8, 64):
            best = best_of(arguments.rounds, running, with_cpu(load, concurrency, arguments.seconds), lambda a, b: a > b)
            cells = " | ".join(f"{each.rate:,.0f}, {each.p50_ms:.2f}/{each.p99_ms:.2f}, {cpu_us:.0f}" for each, cpu_us in best.values())
            (ours, our_cpu), (peer, peer_cpu) = best[names[0]], best[names[-1]]
            print(f"| {title} | {concurrency} | {cells} | {ours.rate / peer.rate:.2f} | {ours.p99_ms / peer.p99_ms:.2f} | "
                  f"{our_cpu / peer_cpu:.2f} |", flush=True)

    print("\n| case | " + " | ".join(names) + " | ratio |\n|---|" + "---|" * (len(names) + 1))
    best = best_of(arguments.rounds, running, lambda server: streamed_per_second(server, 5000), lambda a, b: a > b)
    print("| responses of one decoupled request, a second | " + " | ".join(f"{best[name]:,.0f}" for name in names)
          + f" | {best[names[0]] / best[names[-1]]:.2f} |", flush=True)
    for model, callee in (("call_c", "C"), ("call_python", "Python")):
        best = best_of(arguments.rounds, running, lambda server, model=model: call_us(server, model, 500), lambda a, b: a < b)
        for column, what in enumerate(("us", "CPU us")):
            print(f"| call of a {callee} model from a model, {what} | " + " | ".join(f"{best[name][column]:,.0f}" for name in names)
                  + f" | {best[names[0]][column] / best[names[-1]][column]:.2f} |", flush=True)
    memory = {name: sum(map(pss_mb, descendants(server.process.pid))) / 4 for name, server in running.items()}
    print("| memory a worker (PSS), MB | " + " | ".join(f"{memory[name]:.1f}" for name in names)
          + f" | bare interpreter with NumPy: {bare_interpreter_mb(arguments.python):.1f} |", flush=True)


def print_starts(commands, backends, rounds):
    print("\n| start with | " + " | ".join(commands) + " | ratio |\n|---|" + "---|" * (len(commands) + 1))
    for count in (1, 8):
        with tempfile.TemporaryDirectory() as folder:
            for i in range(count):
                write_model(pathlib.Path(folder), f"identity_{i}", IDENTITY)
            best = {}
            for _ in range(rounds):
                for name, command in commands.items():
                    server = servers.Server(command, folder, backends[name], ["--model-load-thread-count=4"])
                    best[name] = min(best.get(name, 1e9), server.ready_s)
                    server.stop()
        names = list(commands)
        print(f"| {count} Python models, s | " + " | ".join(f"{best[name]:.2f}" for name in names)
              + f" | {best[names[0]] / best[names[-1]]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nereid", required=True)
    parser.add_argument("--nereid-backends", required=True, help="folder that holds identity_c/libtriton_identity_c.so")
    parser.add_argument("--peer", help="command of the other server, without flags")
    parser.add_argument("--peer-backends", help="its backend directory, with python/ and identity_c/")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of Nereid's workers")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["NEREID_PYTHON"] = arguments.python

    commands = {"nereid": [arguments.nereid]} | ({"peer": shlex.split(arguments.peer)} if arguments.peer else {})
    backends = {"nereid": os.path.abspath(arguments.nereid_backends), "peer": arguments.peer_backends}
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    print(f"\n## {datetime.date.today()}, {os.cpu_count()} x {cpu}, load {os.getloadavg()[0]:.1f}\n\n"
          f"{arguments.seconds} s a cell, best of {arguments.rounds}; the clients share the cores.\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_repository(folder / "models")
        running = {name: servers.Server(command, folder / "models", backends[name]) for name, command in commands.items()}
        try:
            print_rows(running, folder, arguments)
        finally:
            for server in running.values():
                server.stop()
    print_starts(commands, backends, arguments.rounds)


if __name__ == "__main__":
    main()
