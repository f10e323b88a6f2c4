"""A server process, ours or another with Triton's flags, on ports that the system gave."""
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

PATIENCE_S = 180


def foreign_environment(**further):
    """For a program of others that loads our library: where that was built with sanitizers, their runtime has to come first
    (NEREID_SANITIZER_RUNTIME, which our own programs hold themselves), and what the program leaks is its own affair."""
    runtime = os.environ.get("NEREID_SANITIZER_RUNTIME")
    preload = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if runtime else {}
    return {**os.environ, **preload, **further}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """`command` is the executable; `environment` the whole of it. Ready once constructed."""

    def __init__(self, command, repository, backends, log, environment, flags=()):
        self.log = pathlib.Path(log)
        # Between the system's choice and the server's bind another process may take a port: then once more.
        for attempt in range(3):
            self.http, self.grpc, self.metrics = free_ports(3)
            with self.log.open("w") as out:
                self.process = subprocess.Popen(
                    [str(command), f"--model-repository={repository}", f"--backend-directory={backends}", "--http-address=127.0.0.1",
                     "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1", f"--http-port={self.http}", f"--grpc-port={self.grpc}",
                     f"--metrics-port={self.metrics}", *flags], stdout=out, stderr=subprocess.STDOUT, env=environment)
            if self._wait_ready():
                return
            if "already in use" not in self.text() or attempt == 2:
                pytest.fail(f"the server ended or is not ready: {self.text()[-3000:]}")

    def _wait_ready(self):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v2/health/ready", timeout=5):
                    return True
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        self.stop()
        return False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http}"

    def text(self):
        return self.log.read_text(errors="replace")

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.http}{path}", timeout=60) as answer:
            return answer.read().decode()

    def stop(self):
        """Ends it as an operator would; the exit code, None where it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
