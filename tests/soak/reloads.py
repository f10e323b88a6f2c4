"""Reloads a model a thousand times while clients send requests to it over HTTP and gRPC: no request may fail. Part of scripts/test --all.

    python tests/soak/reloads.py --dist dist --backends build/release/tests/backends [--reloads 1000] [--csv FILE]

Every reload is an explicit load of a model that is already loaded, after its configuration file has been changed,
so that the server replaces the version that is in use."""
import argparse
import csv
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import urllib.request

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/e2e")]
from server_process import ServerProcess  # noqa: E402

MODEL = "counters"


def memory_mb(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


class Clients:
    """Threads that send one request after the other until the end of the block."""

    def __init__(self, server, num_http, num_grpc):
        self._server, self._stop, self._lock = server, threading.Event(), threading.Lock()
        self.num_requests, self.failures = 0, []
        self._threads = [threading.Thread(target=self._send, args=(invoke,)) for invoke in [self._http] * num_http + [self._grpc] * num_grpc]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for each in self._threads:
            each.join()

    def _send(self, open_client):
        call = open_client()
        num_requests, failures = 0, []
        while not self._stop.is_set():
            try:
                call()
            except (OSError, grpc.RpcError) as error:
                failures.append(repr(error))
            num_requests += 1
        with self._lock:
            self.num_requests += num_requests
            self.failures += failures

    def _http(self):
        request = urllib.request.Request(f"{self._server.url}/v2/models/{MODEL}/infer", data=b'{"inputs":[]}')
        return lambda: urllib.request.urlopen(request, timeout=60).read()

    def _grpc(self):
        channel = grpc.insecure_channel(f"127.0.0.1:{self._server.grpc}", options=[("grpc.use_local_subchannel_pool", 1)])
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name=MODEL)
        return lambda: stub.ModelInfer(request, timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True)
    parser.add_argument("--backends", required=True)
    parser.add_argument("--reloads", type=int, default=1000)
    parser.add_argument("--csv", help="file for the numbers")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    repository = folder / "repository"
    shutil.copytree(ROOT / "tests/support/repositories/patient", repository)
    server = ServerProcess([options.dist + "/bin/nereid"], [f"--model-repository={repository}", f"--backend-directory={options.backends}",
                                                            "--model-control-mode=explicit", f"--load-model={MODEL}", "--log-info=false"],
                           folder / "log", dict(os.environ))
    try:
        return run(server, repository / MODEL / "config.pbtxt", options)
    finally:
        print(f"the server ended with {server.stop()}")
        shutil.rmtree(folder)


def run(server, config, options):
    text = config.read_text()
    before, begin = memory_mb(server), time.monotonic()
    with Clients(server, 4, 4) as clients:
        for number in range(options.reloads):
            config.write_text(text + f'parameters {{ key: "reload" value {{ string_value: "{number}" }} }}\n')
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{MODEL}/load", data=b"{}"), timeout=120).read()
            if (number + 1) % 100 == 0:
                print(f"{number + 1} reloads, {memory_mb(server)} MB", flush=True)
    row = {"reloads": options.reloads, "seconds": round(time.monotonic() - begin), "requests": clients.num_requests, "failed": len(clients.failures),
           "before MB": before, "after MB": memory_mb(server)}
    print(", ".join(f"{name}: {value}" for name, value in row.items()), *clients.failures[:5], sep="\n")
    if options.csv:
        with open(options.csv, "w", newline="") as out:
            writer = csv.DictWriter(out, row)
            writer.writeheader()
            writer.writerow(row)
    return 1 if clients.failures else 0


if __name__ == "__main__":
    sys.exit(main())
