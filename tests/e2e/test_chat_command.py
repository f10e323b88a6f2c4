"""`nereid chat` against a server that is written here, so that each answer is known."""
import http.server
import json
import os
import pty
import subprocess
import threading

import pytest
from terminal import read_terminal


class Answers(http.server.BaseHTTPRequestHandler):
    """Repeats the last message in pieces, after some reasoning; refuses the message "refuse"."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        models = [{"id": name, "object": "model"} for name in self.server.models]
        self.reply(200, json.dumps({"object": "list", "data": models}).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.headers.get("Authorization"), request))
        text = request["messages"][-1]["content"]
        if text == "refuse":
            return self.reply(400, b'{"error": {"message": "the context is full", "code": 400}}')
        deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, *({"content": word + " "} for word in text.split())]
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas] + [{"choices": [], "usage": {}}]
        if text == "fail":
            chunks = [{"error": {"message": "the engine stopped"}}]
        stream = ": keep-alive\n\n" + "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        return self.reply(200, stream.encode(), "text/event-stream")


@pytest.fixture
def server():
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    running.models, running.seen = ["tiny"], []
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def chat(dist, server, text, *arguments, environment=None):
    return subprocess.run([dist / "bin/nereid", "chat", *arguments, f"--url=http://127.0.0.1:{server.server_port}/"], input=text, capture_output=True, text=True,
                          timeout=60, env={**os.environ, **(environment or {})})


def contents(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_an_answer_is_streamed_and_remembered(dist, server):
    ended = chat(dist, server, "one two\nthree\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hm\none two \nhm\nthree \n", "")
    first, second = (request for _, request in server.seen)
    assert first["model"] == "tiny" and first["stream"] is True
    assert contents(second) == [("user", "one two"), ("assistant", "one two "), ("user", "three")]


def test_commands_change_the_conversation(dist, server):
    ended = chat(dist, server, "/system be brief\na\n/reset\nb\n/system\nc\n/exti\n/exit\nd\n", "--max-tokens=7")
    assert ended.returncode == 0 and "unknown command '/exti' (did you mean '/exit'?)" in ended.stderr
    assert [contents(request) for _, request in server.seen] == [[("system", "be brief"), ("user", "a")], [("system", "be brief"), ("user", "b")], [("user", "c")]]
    assert all(request["max_tokens"] == 7 for _, request in server.seen)


def test_errors_of_the_server_are_shown(dist, server):
    for text, expected in [("refuse", "the server answers 400: the context is full"), ("fail", "the engine stopped")]:
        ended = chat(dist, server, text + "\nmore\n")
        assert ended.returncode == 1 and expected in ended.stderr and len(server.seen) == 1
        server.seen.clear()


def test_the_model_must_be_named_where_there_are_several(dist, server):
    server.models = ["a", "b"]
    ended = chat(dist, server, "x\n")
    assert ended.returncode == 1 and "name one of them: a, b" in ended.stderr
    assert chat(dist, server, "x\n", "b").returncode == 0 and server.seen[0][1]["model"] == "b"
    server.models = []
    assert "serves no model" in chat(dist, server, "x\n").stderr


def test_the_key_is_sent_and_the_server_may_be_away(dist, server):
    chat(dist, server, "x\n", environment={"NEREID_API_KEY": "a.b"})
    assert server.seen[0][0] == "Bearer a.b"
    ended = subprocess.run([dist / "bin/nereid", "chat", "--url", "127.0.0.1:1"], input="", capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and ended.stderr.startswith("nereid chat: http://127.0.0.1:1: ")


def test_a_terminal_gets_a_prompt_and_goes_on_after_an_error(dist, server):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([dist / "bin/nereid", "chat", f"--url=http://127.0.0.1:{server.server_port}"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"refuse\nhello\n/exit\n")
    shown = read_terminal(ours)
    assert process.wait(timeout=60) == 0
    assert b"tiny - /help lists the commands" in shown and b"\n> " in shown and b"the context is full" in shown and b"\x1b[2mhm\x1b[0m" in shown and b"hello " in shown
