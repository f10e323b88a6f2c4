"""Runs `nereid serve` and the other sub-commands."""
import atexit
import json
import os
import re
import signal
import subprocess
import urllib.request

import pytest

ANY_PORTS = ["--port=0", "--grpc-port=0", "--metrics-port=0"]
PROMPT = {"text_input": "Once upon a time", "max_tokens": 8}


class Serving:
    """A running `nereid serve`. `temporary` is the folder in which it makes its private one."""

    def __init__(self, dist, temporary, *arguments, environment=None):
        self.temporary = temporary
        self.process = subprocess.Popen([dist / "bin/nereid", "serve", *map(str, arguments), *ANY_PORTS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env={**os.environ, "TMPDIR": str(temporary), **(environment or {})})
        atexit.register(self.kill)  # where a test fails before it stops the server
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if line.startswith("curl "):
                break
        else:
            pytest.fail(f"the server ended: {self.output}")
        self.curl = line
        self.url = re.search(r"ready +(\S+?),", self.output)[1]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()

    def ask(self, model, endpoint="generate", **fields):
        request = urllib.request.Request(f"{self.url}/v2/models/{model}/{endpoint}", data=json.dumps({**PROMPT, **fields}).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.output += self.process.stdout.read()
        return self.process.wait(timeout=60)


def run(dist, *arguments, environment=None):
    return subprocess.run([dist / "bin/nereid", *map(str, arguments)], capture_output=True, text=True, timeout=60, env={**os.environ, **(environment or {})})
