"""Starts servers with a model repository of C identity models, for the comparisons in this folder."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

IO = """input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
"""
C_MODEL = 'backend: "identity_c"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
ENSEMBLE = """platform: "ensemble"
max_batch_size: 0
ensemble_scheduling {
  step [ { model_name: "identity" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "MIDDLE" } },
         { model_name: "second" model_version: -1 input_map { key: "INPUT0" value: "MIDDLE" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } ]
}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def write_model(repository, name, config):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)


def write_repository(repository):
    """identity and second accept any length; batched accepts 16 floats through the dynamic batcher; chain is an ensemble of identity and second."""
    for name in ("identity", "second"):
        write_model(repository, name, C_MODEL + "max_batch_size: 0\n" + IO.format(dims=-1))
    write_model(repository, "batched", C_MODEL + "max_batch_size: 64\ndynamic_batching { }\n" + IO.format(dims=16))
    write_model(repository, "chain", ENSEMBLE + IO.format(dims=-1))


class Server:
    """A running server with HTTP and gRPC on free ports, ready once constructed. ready_s is the time from its start until then, in seconds."""

    def __init__(self, command, repository, backends, flags=()):
        self.restart = lambda given=flags: Server(command, repository, backends, given)
        self.http, self.grpc = free_port(), free_port()
        flags = [f"--model-repository={repository}", f"--backend-directory={backends}", f"--http-port={self.http}", f"--grpc-port={self.grpc}",
                 "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--allow-metrics=false", *flags]
        started = time.perf_counter()
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.ready():
            assert self.process.poll() is None and time.perf_counter() - started < 120, f"{command} does not start"
            time.sleep(0.0005)
        self.ready_s = time.perf_counter() - started

    def ready(self):
        # Uses a plain socket, so that polling does not take CPU time from the starting server.
        try:
            with socket.create_connection(("127.0.0.1", self.http), timeout=5) as one:
                one.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
                return b" 200 " in one.recv(4096)
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def num_executed(self, model):
        """Number of inferences of the model so far, from the server's statistics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/{model}/stats", timeout=30) as reply:
            return sum(int(each["inference_count"]) for each in json.load(reply)["model_stats"])

    def cpu_seconds(self):
        """CPU time of all threads that still exist."""
        times = (path.read_text() for path in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"))
        return sum(int(line.split()[0]) for line in times) / 1e9

    def status(self, key):
        return int(re.search(rf"^{key}:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text(), re.M).group(1))

    def resident_mb(self):
        return self.status("VmRSS") / 1024
