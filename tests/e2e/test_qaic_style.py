"""`nereid-repo new qaic-style`: repositories in the manner of Qualcomm's LLM samples, over the demo model."""
import json
import pathlib
import shutil
import subprocess
import sys
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = ["Once upon a time there was a little girl who", "In a deep forest there lived a bear"]


def make(dist, out, *arguments):
    return subprocess.run([dist / "bin/nereid-repo", "new", "qaic-style", "--hf_model_name", ROOT / "demo/model", "--out", out,
                           "--backend", "cpu_reference", *map(str, arguments)], capture_output=True, text=True)


def ask(server, model, endpoint="generate", **fields):
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/{endpoint}", data=json.dumps(fields).encode())
    return urllib.request.urlopen(request, timeout=120).read().decode()


@pytest.fixture(scope="module")
def server(start_server, dist, tmp_path_factory):
    """mistral_7b answers whole, mistral_decoupled a token at a time; both call the same engine."""
    root = tmp_path_factory.mktemp("qaic")
    config = root / "compile_config.json"
    config.write_text(json.dumps({"prefill_seq_len": 128, "ctx_len": 256, "full_batch_size": 4, "num_cores": 14, "mxint8_kv_cache": False}))
    made = make(dist, root / "models", "--model_name", "mistral_7b", "--model_type", "kv_cache", "--compile_config_path", config)
    assert made.returncode == 0, made.stderr
    assert "'num_cores' has no meaning here" in made.stderr
    other = make(dist, root / "other", "--model_name", "mistral_decoupled", "--model_type", "causal", "--decoupled")
    assert other.returncode == 0, other.stderr
    shutil.move(root / "other/mistral_decoupled", root / "models/mistral_decoupled")
    return start_server(root / "models", [f"--backend-config=python,interpreter={sys.executable}"])


def whole(server, prompt):
    return json.loads(ask(server, "ensemble", text_input=prompt, max_tokens=12))["text_output"]


def test_a_prompt_is_answered_as_the_engine_answers_it(server):
    answer = json.loads(ask(server, "mistral_7b", prompt=PROMPTS[0], id="42", max_tokens=12))
    assert answer["generation"] == whole(server, PROMPTS[0])


def test_prompts_in_one_text_are_a_batch(server):
    answer = json.loads(ask(server, "mistral_7b", prompt="|".join(PROMPTS), max_tokens=12))
    assert answer["generation"] == [whole(server, each) for each in PROMPTS]


def test_a_decoupled_model_answers_token_by_token(server):
    events = [json.loads(line[6:]) for line in ask(server, "mistral_decoupled", "generate_stream", prompt=PROMPTS[0], max_tokens=12).split("\n\n") if line]
    assert len(events) > 3
    assert "".join(event["generation"] for event in events) == whole(server, PROMPTS[0])


def test_the_sample_clients_run(server, dist):
    clients = dist / "share/repo_templates/qaic/clients"
    run = subprocess.run([sys.executable, clients / "client_http.py", "--model", "mistral_7b", "--prompt", "|".join(PROMPTS), "--max-tokens", "12",
                          "--url", server.url], capture_output=True, text=True)
    assert run.returncode == 0 and json.loads(run.stdout) == [whole(server, each) for each in PROMPTS], run.stderr
    run = subprocess.run([sys.executable, clients / "client_http.py", "--model", "mistral_decoupled", "--prompt", PROMPTS[1], "--max-tokens", "12",
                          "--url", server.url, "--stream"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == whole(server, PROMPTS[1]) + "\n", run.stderr
    run = subprocess.run([sys.executable, clients / "client_http.py", "--model", "mistral_decoupled", "--prompt", PROMPTS[1], "--url", server.url],
                         capture_output=True, text=True)
    assert run.returncode == 1 and "mistral_decoupled: 500" in run.stderr, run.stderr
    run = subprocess.run([sys.executable, clients / "client_grpc.py", "--model", "mistral_decoupled", "--prompt", PROMPTS[1], "--max-tokens", "12",
                          "--url", f"127.0.0.1:{server.grpc}"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.splitlines()[-1] == str([whole(server, PROMPTS[1])]), run.stderr


@pytest.mark.parametrize("arguments, config, text", [
    (["--model_name", "m", "--model_type", "diffusion"], None, "--model_type: expected causal or kv_cache, got 'diffusion'"),
    (["--model_name", "ensemble"], None, "--model_name: 'ensemble' is a model that it calls"),
    (["--model_name", "a/b"], None, "--model_name: expected a name, got 'a/b'"),
    (["--model_name", "m", "--aic_binary_dir", "x"], None, "--aic_binary_dir"),
    (["--model_name", "m"], {"mxint8_kv_cache": True}, "'mxint8_kv_cache': not supported"),
    (["--model_name", "m"], {"mxfp6_matmul": True}, "'mxfp6_matmul': not supported"),
    (["--model_name", "m"], {"ctx_len": 0}, "'ctx_len': expected a number of 1 or more, got 0"),
    (["--model_name", "m"], {"ctx_length": 5}, "unknown key 'ctx_length'"),
])
def test_what_cannot_be_made_is_named(dist, tmp_path, arguments, config, text):
    if config is not None:
        (tmp_path / "compile_config.json").write_text(json.dumps(config))
        arguments = [*arguments, "--compile_config_path", tmp_path / "compile_config.json"]
    made = make(dist, tmp_path / "models", *arguments)
    assert made.returncode == 2 and text in made.stderr, made.stderr
    assert not (tmp_path / "models").exists()
