"""Starts a server process for end-to-end tests, on free ports. It can be any server that accepts Triton's flags."""
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class ServerProcess:
    """`command` is a list that ends with the executable; `flags` follow the port flags. The constructor returns when the server answers GET
    `wait_for` with 200. `environment` is the complete environment (None: that of the test). `tls` is the client's TLS context if the server uses
    HTTPS. `address` is that of every port; None leaves it to the server. The server's output goes to the file `log`."""

    def __init__(self, command, flags, log, environment=None, wait_for="/v2/health/ready", tls=None, timeout_s=60, address="127.0.0.1"):
        self.log = pathlib.Path(log)
        self.tls = tls
        self.timeout_s = timeout_s
        # Another process may bind a chosen port before the server does. Then the start is repeated.
        for _ in range(3):
            self.http, self.grpc, self.metrics = free_ports(3)
            ports = [f"--{name}-{what}={value}" for name, port in (("http", self.http), ("grpc", self.grpc), ("metrics", self.metrics))
                     for what, value in (("address", address), ("port", port)) if value is not None]
            with self.log.open("w") as out:
                self.process = subprocess.Popen([*map(str, command), *ports, *map(str, flags)], stdout=out, stderr=subprocess.STDOUT, env=environment)
            if self._answers(wait_for):
                return
            if "already in use" not in self.text():
                break
        pytest.fail(f"the server ended: {self.text()[-3000:]}")

    def _answers(self, path):
        """Waits until the server answers. Returns False if the process ends before."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            if not self.alive():
                return False
            try:
                urllib.request.urlopen(self.url + path, timeout=5, context=self.tls).close()
                return True
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        self.stop()
        pytest.fail(f"{path} does not answer 200: {self.text()[-3000:]}")

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.http}"

    def alive(self):
        return self.process.poll() is None

    def text(self):
        return self.log.read_text(errors="replace")

    def stop(self):
        """Stops the server with SIGTERM. Returns its exit code, or None if it had to be killed."""
        self.begin_stop()
        return self.wait()

    def begin_stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)

    def wait(self):
        try:
            return self.process.wait(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
