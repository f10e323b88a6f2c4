"""The clients of `inflight_batcher_llm` repositories, as users call them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from tested_engine import ENGINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "repo_templates/inflight_batcher_llm/tools"
TEXT = "Once upon a time there was a little girl who"


@pytest.fixture(scope="module")
def server(start_server, dist, tmp_path_factory):
    root = tmp_path_factory.mktemp("clients") / "models"
    made = subprocess.run([dist / "bin/nereid-repo", "new", "inflight", "--generation", "main", "--checkpoint", ROOT / "demo/model", "--out", root,
                           "--backend", ENGINE, "--decoupled"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    shutil.copytree(root / "tensorrt_llm", root / "whole")
    config = (root / "whole/config.pbtxt").read_text()
    (root / "whole/config.pbtxt").write_text(config.replace('name: "tensorrt_llm"', 'name: "whole"').replace("decoupled: true", "decoupled: false"))
    # A draft model that often differs from its target, because it sees only the last tokens.
    shutil.copytree(root / "whole", root / "narrow")
    config = (root / "narrow/config.pbtxt").read_text().replace('name: "whole"', 'name: "narrow"')
    (root / "narrow/config.pbtxt").write_text(re.sub(r'(key: "max_attention_window_size" value { string_value: )""', r'\1"4"', config))
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


@pytest.mark.parametrize("more", [["-S"], ["--model-name", "whole"]])
def test_a_request_is_compressed_and_has_a_timeout_and_the_named_outputs(server, more):
    plain = run(server, "inflight_batcher_llm_client.py", *more, "--text", TEXT)
    for algorithm in ("gzip", "deflate"):
        done = run(server, "inflight_batcher_llm_client.py", *more, "--text", TEXT, "-C", algorithm, "-t", 60, "--requested-outputs", "output_ids", "sequence_length")
        assert done.returncode == 0 and outputs(done) == outputs(plain), done.stderr
    late = run(server, "inflight_batcher_llm_client.py", *more, "--text", TEXT, "-t", 0.05, "--request-output-len", 1000)
    assert late.returncode != 0 and "Deadline Exceeded" in late.stderr, late.stdout + late.stderr


def test_ids_are_those_of_the_server_where_transformers_is_not_installed(server, tmp_path):
    (tmp_path / "transformers.py").write_text("raise ImportError")
    done = subprocess.run([sys.executable, TOOLS / "inflight_batcher_llm_client.py", "-u", f"127.0.0.1:{server.grpc}", "-S", "--text", TEXT, "--tokenizer-dir",
                           ROOT / "demo/model"], capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 0 and "transformers is not installed" in done.stderr and f"Input: {TEXT}" in done.stdout, done.stderr


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
    streamed = run(server, "end_to_end_grpc_client.py", "-S", "-p", json.dumps([TEXT]), "-o", 12, "--check-outputs", "--expected-outputs",
                   json.dumps([text]))
    assert streamed.returncode == 0 and streamed.stdout.startswith("0 [b'") and streamed.stdout.endswith(text + "\n"), streamed.stdout + streamed.stderr
    both = run(server, "end_to_end_grpc_client.py", "-p", TEXT, TEXT, "-o", 12, "--batch-inputs", "--check-outputs", "--expected-outputs", text, text)
    assert both.returncode == 0, both.stdout + both.stderr
    assert run(server, "end_to_end_grpc_client.py", "-p", TEXT, "-o", 12, "--check-outputs", "--expected-outputs", "other").returncode == 1


def test_a_guided_output_has_the_form_of_the_guide(server):
    done = run(server, "end_to_end_grpc_client.py", "-p", TEXT, "-o", 8, "--guided-decoding-guide-type", "regex",
               "--guided-decoding-guide", "(yes|no)", "--return-perf-metrics")
    assert done.returncode == 0 and "0: yes" in done.stdout or "0: no" in done.stdout, done.stdout + done.stderr
    assert "kv_cache_alloc_total_blocks: " in done.stdout and "last_token_time_ns: " in done.stdout


@pytest.mark.parametrize("draft", ["whole", "narrow"])
def test_the_text_of_speculation_is_that_of_the_target_alone(server, draft):
    """One draft model is the target itself, the other one often differs from it."""
    plain = run(server, "end_to_end_grpc_client.py", "-p", TEXT, "-o", 24).stdout.removeprefix("0: ").removesuffix("\n")
    done = subprocess.run([sys.executable, TOOLS / "e2e_grpc_speculative_decoding_client.py", "--url-target", f"127.0.0.1:{server.grpc}", "-p", TEXT,
                           "-o", "24", "--num-draft-tokens", "4", "--draft-tensorrt-llm-model-name", draft, "-v"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("Final text:\n ")[1].removesuffix("\n").endswith(plain), done.stdout
    assert done.stdout.count("\ndraft_tokens\n") == 5


def test_the_benchmark_prints_adds_and_checks_figures(server, tmp_path):
    def benchmark(*flags):
        return subprocess.run([sys.executable, TOOLS / "benchmark_core_model.py", "-i", "grpc", "-u", f"127.0.0.1:{server.grpc}", "--max-input-len", "9",
                               "--exclude-input-in-output", "--num-requests", "3", *flags, "token-norm-dist", "--input-mean", "7", "--input-stdev", "0",
                               "--output-mean", "5", "--output-stdev", "0"], capture_output=True, text=True, timeout=120, cwd=tmp_path)

    done = benchmark("--op-stats-csv", "figures.csv", "--dump-perfetto-trace", "--tensorrt-llm-model-name", "whole")
    assert done.returncode == 0 and "[INFO] Start benchmarking on 3 prompts." in done.stdout, done.stdout + done.stderr
    assert re.search(r"\|\s+Avg. OP tokens per request\s+\|\s+5.00\s+\|", done.stdout)
    header, row = (tmp_path / "figures.csv").read_text().splitlines()
    assert header.startswith("Requests/Sec,OP tokens/sec,") and row.endswith(",3")
    assert [event["args"] for event in json.loads((tmp_path / "prfetto_dump.json").read_text())] == [{"isl": 7, "osl": 5}] * 3
    (tmp_path / "expected.json").write_text(json.dumps({"key": {"Total requests": 400}}))
    failed = benchmark("--decoupled", "--check-perf-json", "expected.json", "--check-perf-key", "key")
    assert failed.returncode == 1 and "'Total requests' check failed: expected 400, got 3" in failed.stderr, failed.stdout + failed.stderr


@pytest.mark.parametrize("protocol, model", [("grpc", "tensorrt_llm"), ("http", "whole")])
def test_a_data_set_is_measured(server, tmp_path, protocol, model):
    entries = [{"input": "Once upon a time", "instruction": "there was a girl", "output": "who was happy"}, {"input": "word " * 90, "instruction": "", "output": ""}]
    (tmp_path / "data.json").write_text(json.dumps(entries))
    address = f"127.0.0.1:{server.grpc if protocol == 'grpc' else server.http}"
    if protocol == "grpc":
        command = ["identity_test.py", "--max_input_len", "20", "--dataset", "data.json", "--tokenizer_dir", ROOT / "demo/model", "--time_bet_reqs", "0.001"]
    else:
        command = ["benchmark_core_model.py", "--max-input-len", "20", "--tensorrt-llm-model-name", model, "dataset", "--dataset", "data.json", "--tokenizer-dir",
                   ROOT / "demo/model"]
    command[1:1] = ["-i", protocol, "-u", address]
    done = subprocess.run([sys.executable, TOOLS / command[0], *map(str, command[1:])], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and "[INFO] Start benchmarking on 1 prompts." in done.stdout, done.stdout + done.stderr
    assert re.search(r"\|\s+Total requests\s+\|\s+1.00\s+\|", done.stdout) and "Expected op tokens 3.0" in done.stdout


def test_a_refusal_of_the_server_is_the_message(server):
    done = run(server, "inflight_batcher_llm_client.py", "--model-name", "whole", "--text", TEXT, "-b", 9)
    assert done.returncode == 1 and "input 'beam_width' is 9" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name, arguments", [("end_to_end_grpc_client.py", ["-p", TEXT, "-S"]), ("inflight_batcher_llm_client.py", ["--streaming"])])
def test_a_server_that_is_not_there_is_the_message(name, arguments):
    done = subprocess.run([sys.executable, TOOLS / name, "-u", "127.0.0.1:1", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Failed to connect to remote host" in done.stderr and "Traceback" not in done.stderr
