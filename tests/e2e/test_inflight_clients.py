"""The clients of `inflight_batcher_llm` repositories, as users call them."""
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "repo_templates/inflight_batcher_llm/tools"
TEXT = "Once upon a time there was a little girl who"


@pytest.fixture(scope="module")
def server(start_server, dist, tmp_path_factory):
    root = tmp_path_factory.mktemp("clients") / "models"
    made = subprocess.run([dist / "bin/nereid-repo", "new", "inflight", "--generation", "0.18", "--checkpoint", ROOT / "demo/model", "--out", root,
                           "--backend", "cpu_reference", "--decoupled"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    shutil.copytree(root / "tensorrt_llm", root / "whole")
    config = (root / "whole/config.pbtxt").read_text()
    (root / "whole/config.pbtxt").write_text(config.replace('name: "tensorrt_llm"', 'name: "whole"').replace("decoupled: true", "decoupled: false"))
    return start_server(root)


def run(server, name, *arguments, scheme=""):
    return subprocess.run([sys.executable, TOOLS / name, "-u", f"{scheme}127.0.0.1:{server.grpc}", *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)


def outputs(done):
    return [line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("Output sequence")]


def test_ids_are_the_same_streamed_and_whole(server):
    whole = run(server, "inflight_batcher_llm_client.py", "--model-name", "whole", "--text", TEXT)
    streamed = run(server, "inflight_batcher_llm_client.py", "-S", "--text", TEXT, scheme="grpc://")
    assert whole.returncode == streamed.returncode == 0, whole.stderr + streamed.stderr
    assert "Got completed request" in whole.stdout and f"Input: {TEXT}" in whole.stdout and "Output beam 0: " in whole.stdout
    assert outputs(whole) == outputs(streamed) and len(outputs(whole)[0].split(",")) == 16


@pytest.mark.parametrize("more", [["-S"], []])
def test_a_stopped_request_gives_what_it_has(server, more):
    done = run(server, "inflight_batcher_llm_client.py", *more, "--text", TEXT, "--request-id", "7", "--stop-after-ms", "60", "--request-output-len", "1500")
    assert done.returncode == 0 and "Got cancellation response from server" in done.stdout, done.stderr
    assert len(outputs(done)) == 1 and len(outputs(done)[0].split(",")) < 1500


def test_a_cancelled_request_ends_the_client(server):
    done = run(server, "inflight_batcher_llm_client.py", "-S", "--text", TEXT, "--stop-after-ms", "60", "--stop-via-request-cancel", "--request-output-len",
               "1500")
    assert done.returncode == 0, done.stderr


def test_end_to_end_texts_are_compared(server):
    one = run(server, "end_to_end_grpc_client.py", "-p", TEXT, "-o", 12)
    assert one.returncode == 0 and one.stdout.startswith("0: "), one.stderr
    text = one.stdout.removeprefix("0: ").removesuffix("\n")
    assert run(server, "end_to_end_grpc_client.py", "-S", "-p", TEXT, "-o", 12, "--check-outputs", "--expected-outputs", text).returncode == 0
    both = run(server, "end_to_end_grpc_client.py", "-p", TEXT, TEXT, "-o", 12, "--batch-inputs", "--check-outputs", "--expected-outputs", text, text)
    assert both.returncode == 0, both.stdout + both.stderr
    assert run(server, "end_to_end_grpc_client.py", "-p", TEXT, "-o", 12, "--check-outputs", "--expected-outputs", "other").returncode == 1


def test_a_refusal_of_the_server_is_the_message(server):
    done = run(server, "inflight_batcher_llm_client.py", "--model-name", "whole", "--text", TEXT, "-b", 9)
    assert done.returncode == 1 and "input 'beam_width' is 9" in done.stderr and "Traceback" not in done.stderr
