"""Runs the examples of clients in docs/ as they are printed, but for the ports: curl, and Python with OpenAI's, Anthropic's and NVIDIA's clients. The demo model
stands in for larger ones, so that texts have no meaning; statuses, types and forms are checked."""
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from serve_process import Serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CHAT_TEMPLATE = "{% if tools %}{{ tools | tojson }} {% endif %}{% for message in messages %}{{ message.content }} {% endfor %}"
VOCABULARY, HIDDEN = 4096, 384


def blocks(page, language):
    return [text for found, text in FENCE.findall((ROOT / "docs" / page).read_text()) if found == language]


def run_python(code, folder=None):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_curl(command):
    done = subprocess.run(["bash", "-c", command.replace("curl ", "curl -sSf ")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def chat(dist, tmp_path_factory):
    """The address of a served checkpoint that can chat, as `nereid serve ./Qwen3-8B` of the pages."""
    folder = tmp_path_factory.mktemp("chat")
    shutil.copytree(ROOT / "demo/model", folder / "Qwen3-8B")
    (folder / "Qwen3-8B/chat_template.jinja").write_text(CHAT_TEMPLATE)
    serving = Serving(dist, folder, folder / "Qwen3-8B")
    yield serving.url.removeprefix("http://")
    assert serving.stop() == 0


@pytest.mark.parametrize("page, number", [("openai.md", 1), ("structured_output.md", 1), ("tool_calls.md", 1)])
def test_conversations_with_curl(chat, page, number):
    commands = [block for block in blocks(page, "") if block.startswith("curl ")]
    assert len(commands) == number
    for command in commands:
        (choice,) = run_curl(command.replace("localhost:8000", chat))["choices"]
        assert choice["finish_reason"] in ("stop", "length") and choice["message"]["content"]
        if "json_schema" in command and choice["finish_reason"] == "stop":
            assert set(json.loads(choice["message"]["content"])) == {"name", "age"}


def test_openais_and_anthropics_clients(chat):
    completions, messages = blocks("openai.md", "python")
    assert "import openai" in completions and "import anthropic" in messages
    for code in (completions, messages):
        assert len(run_python(code.replace("localhost:8000", chat))) > 10


def test_the_schema_of_a_class(chat):
    (code,) = blocks("structured_output.md", "python")
    assert run_python(code.replace("localhost:8000", chat)).strip() in ("positive", "negative")


def test_the_clients_of_triton(demo):
    (code,) = blocks("from-triton.md", "python")
    assert len(run_python(code.replace("localhost:8001", f"localhost:{demo.grpc}"))) > 10
    commands = [block for block in blocks("from-triton.md", "") if block.startswith("curl ") and "messages" not in block]
    assert len(commands) == 2
    completion, generated = (run_curl(command.replace("localhost:8000", f"localhost:{demo.http}")) for command in commands)
    assert completion["usage"]["completion_tokens"] == 60 and generated["num_output_tokens"] == 60


def test_prompt_tables(demo, tmp_path):
    """The rows are the model's own of a text of 20 tokens, so that both inputs have the same answer."""
    with open(ROOT / "demo/model/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        first, last = header["model.embed_tokens.weight"]["data_offsets"]
        file.seek(file.tell() + first)
        embeddings = (np.frombuffer(file.read(last - first), np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(VOCABULARY, HIDDEN)

    def encode(text):
        body = json.dumps({"model": "ensemble", "prompt": text}).encode()
        with urllib.request.urlopen(f"http://localhost:{demo.http}/tokenize", body, timeout=60) as reply:
            return json.loads(reply.read())["tokens"]

    text = "Classify: the film was fine."
    ids = encode("Once upon a time there was a king who had three sons and a daughter, and they lived in a forest")[:20]
    np.save(tmp_path / "virtual_tokens.npy", embeddings[ids].astype(np.float16))
    function, table, embeds, of_torch = blocks("prompt_tables.md", "python")
    assert "torch" in of_torch and text in table  # test_prompt_tables.py has files as torch writes them
    names = f"class tokenizer:\n    encode = {{{text!r}: {encode(text)}}}.get\nvocab_size = {VOCABULARY}\n"
    code = "\n".join([names, function.replace("localhost:8001", f"localhost:{demo.grpc}"), table, embeds])
    printed = run_python(code, tmp_path)  # the same text twice
    assert len(printed) > 6 and printed[:len(printed) // 2] == printed[len(printed) // 2:]


def test_a_python_model(start_server, tmp_path):
    (model,) = blocks("python.md", "python")
    config, commands = blocks("python.md", "")
    folder = tmp_path / "models/upper/1"
    folder.mkdir(parents=True)
    assert model.startswith("# models/upper/1/model.py") and config.startswith("# models/upper/config.pbtxt")
    (folder / "model.py").write_text(model)
    (folder.parent / "config.pbtxt").write_text(config)
    server = start_server(tmp_path / "models")
    command = next(line for line in commands.splitlines() if line.startswith("curl "))
    assert run_curl(command.replace("localhost:8000", f"localhost:{server.http}"))["UPPER"] == "HELLO"


def test_a_trace_of_the_page_on_operations(start_server, dist, tmp_path):
    command = next(block for block in blocks("operations.md", "") if "triton,file=" in block)
    flags = [flag.replace("/tmp/trace.json", str(tmp_path / "trace.json")).replace("rate=100", "rate=1") for flag in command.split() if flag.startswith("--trace")]
    assert len(flags) == 3
    server = start_server(dist / "share/demo_repository", flags)
    body = json.dumps({"text_input": "Once", "max_tokens": 2}).encode()
    with urllib.request.urlopen(f"http://localhost:{server.http}/v2/models/ensemble/generate", body, timeout=60):
        pass
    server.begin_stop()
    server.wait()
    assert any(entry.get("model_name") == "ensemble" for entry in json.loads((tmp_path / "trace.json").read_text()))
