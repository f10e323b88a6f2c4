"""`nereid-repo new qaic-style`: repositories with the layout of Qualcomm's LLM samples, for the demo model."""
import json
import os
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
    """mistral_7b and starcoder_15b (with a batch of three) return complete texts, mistral_decoupled one token at a time; all call the same engine."""
    root = tmp_path_factory.mktemp("qaic")
    config = root / "compile_config.json"
    config.write_text(json.dumps({"prefill_seq_len": 128, "ctx_len": 256, "full_batch_size": 4, "num_cores": 14, "mxint8_kv_cache": False}))
    made = make(dist, root / "models", "--model_name", "mistral_7b", "--model_type", "kv_cache", "--compile_config_path", config)
    assert made.returncode == 0, made.stderr
    assert "'num_cores' has no effect" in made.stderr
    other = make(dist, root / "other", "--model_name", "mistral_decoupled", "--model_type", "causal", "--decoupled")
    assert other.returncode == 0, other.stderr
    config.write_text(json.dumps({"batch_size": 3}))
    fixed = make(dist, root / "fixed", "--model_name", "starcoder_15b", "--compile_config_path", config)
    assert fixed.returncode == 0, fixed.stderr
    shutil.move(root / "other/mistral_decoupled", root / "models/mistral_decoupled")
    shutil.move(root / "fixed/starcoder_15b", root / "models/starcoder_15b")
    return start_server(root / "models", [f"--backend-config=python,interpreter={sys.executable}"])


def whole(server, prompt):
    return json.loads(ask(server, "ensemble", text_input=prompt, max_tokens=12))["text_output"]


def test_a_prompt_is_answered_as_the_engine_answers_it(server):
    answer = json.loads(ask(server, "mistral_7b", prompt=PROMPTS[0], id="42", max_tokens=12))
    assert answer["generation"] == whole(server, PROMPTS[0])


def test_prompts_in_one_text_are_a_batch(server):
    answer = json.loads(ask(server, "mistral_7b", prompt="|".join(PROMPTS), max_tokens=12))
    assert answer["generation"] == [whole(server, each) for each in PROMPTS]


@pytest.mark.parametrize("num_prompts", [1, 2, 5])
def test_a_fixed_batch_size_cuts_and_repeats_prompts(server, num_prompts):
    prompts = (PROMPTS * 3)[:num_prompts]
    answer = json.loads(ask(server, "starcoder_15b", prompt="|".join(prompts), max_tokens=4))
    texts = {each: json.loads(ask(server, "ensemble", text_input=each, max_tokens=4))["text_output"] for each in PROMPTS}
    assert answer["generation"] == [texts[prompts[i % num_prompts]] for i in range(3)]


def test_more_prompts_than_a_full_batch_are_answered(server):
    prompts = PROMPTS * 3
    answer = json.loads(ask(server, "mistral_7b", prompt="|".join(prompts), max_tokens=12))
    assert answer["generation"] == [whole(server, each) for each in prompts]


@pytest.mark.parametrize("name, flags, is_decoupled", [
    ("starcoder_15b", ["--model_type", "causal"], False), ("starcoder_decoupled", ["--model_type=causal", "--decoupled"], True),
    ("mistral_7b", ["--model_type", "kv_cache"], False), ("mistral_decoupled", ["--model_type=kv_cache", "--decoupled"], True)])
def test_the_samples_are_made_by_their_flags(dist, tmp_path, name, flags, is_decoupled):
    config = tmp_path / "compile_config.json"
    config.write_text(json.dumps({"onnx_path": "m.onnx", "prefill_seq_len": 32, "ctx_len": 128, "batch_size": 1, "full_batch_size": None, "num_cores": 14,
                                  "mxfp6_matmul": False, "mxint8_kv_cache": False, "aic_enable_depth_first": True, "mos": 1}))
    made = make(dist, tmp_path / "models", "--model_name", name, "--compile_config_path", config, "--python_backend_dir", "/opt/qaic_backend_python", *flags)
    assert made.returncode == 0, made.stderr
    for without_meaning in ("'onnx_path'", "'num_cores'", "'aic_enable_depth_first'", "'mos'", "--python_backend_dir"):
        assert f"{without_meaning} has no effect" in made.stderr
    assert ("--model_type causal: the engine keeps a KV cache" in made.stderr) == ("causal" in " ".join(flags))
    written = (tmp_path / "models" / name / "config.pbtxt").read_text()
    assert f"decoupled: {str(is_decoupled).lower()} " in written and 'key: "batch_size"      value { string_value: "1" }' in written
    engine = (tmp_path / "models/tensorrt_llm/config.pbtxt").read_text()
    assert 'key: "max_seq_len" value { string_value: "128" }' in engine
    assert 'key: "max_num_tokens" value { string_value: "96" }' in engine
    check = subprocess.run([dist / "bin/nereid-repo", "check", tmp_path / "models", "--backend-directory", dist / "backends"], capture_output=True, text=True,
                           env={"NEREID_PYTHON": sys.executable, **os.environ})
    assert check.returncode == 0, check.stdout + check.stderr


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
                          "--url", server.url.removeprefix("http://"), "--stream"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == whole(server, PROMPTS[1]) + "\n", run.stderr
    run = subprocess.run([sys.executable, clients / "client_http.py", "--model", "mistral_decoupled", "--prompt", PROMPTS[1], "--url", server.url],
                         capture_output=True, text=True)
    assert run.returncode == 1 and "mistral_decoupled: 500" in run.stderr, run.stderr
    run = subprocess.run([sys.executable, clients / "client_grpc.py", "--model", "mistral_decoupled", "--prompt", PROMPTS[1], "--max-tokens", "12",
                          "--url", f"http://127.0.0.1:{server.grpc}"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.splitlines()[-1] == str([whole(server, PROMPTS[1])]), run.stderr


def test_the_command_of_the_samples_runs_as_printed(dist, tmp_path):
    """Without --hf_model_name and --out, and with the sample's own configuration. The model is in the cache of Hugging Face's tools."""
    repository = tmp_path / "hub/models--mistralai--Mistral-7B-v0.1"
    commit = "0" * 40
    shutil.copytree(ROOT / "demo/model", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    config = tmp_path / "compile_config.json"
    config.write_text(json.dumps({"prefill_seq_len": 128, "ctx_len": 1024, "full_batch_size": 4, "mxfp6_matmul": True, "mxint8_kv_cache": True}))
    command = [sys.executable, dist / "share/nereid/tools/generate_llm_model_repo.py", "--model_name", "mistral_7b", "--model_type", "kv_cache",
               "--python_backend_dir", "/opt/qaic_backend_python", "--compile_config_path", config]
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")})
    assert made.returncode == 0, made.stderr
    assert "'mxfp6_matmul' has no effect: the model runs at the checkpoint's precision" in made.stderr
    engine = (tmp_path / "model_repo/tensorrt_llm/config.pbtxt").read_text()
    assert 'key: "kv_cache_dtype" value { string_value: "int8" }' in engine and str(repository) in engine
    assert (tmp_path / "model_repo/mistral_7b/1/model.py").is_file()
    absent = subprocess.run([*command, "--out", "again"], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "HF_HUB_CACHE": str(tmp_path)})
    assert absent.returncode == 2 and "'nereid pull mistralai/Mistral-7B-v0.1' downloads it" in absent.stderr
    unnamed = subprocess.run([dist / "bin/nereid-repo", "new", "qaic-style", "--model_name", "m"], capture_output=True, text=True, cwd=tmp_path)
    assert unnamed.returncode == 2 and "--hf_model_name is missing" in unnamed.stderr


@pytest.mark.parametrize("arguments, config, text", [
    (["--model_name", "m", "--model_type", "diffusion"], None, "--model_type: expected causal or kv_cache, got 'diffusion'"),
    (["--model_name", "ensemble"], None, "--model_name: 'ensemble' is a model that it calls"),
    (["--model_name", "a/b"], None, "--model_name: expected a name, got 'a/b'"),
    (["--model_name", "m", "--aic_binary_dir", "x"], None, "--aic_binary_dir"),
    (["--model_name", "m"], {"mxint8_kv_cache": 1}, "'mxint8_kv_cache': expected true or false, got 1"),
    (["--model_name", "m"], {"mxfp6_matmul": True}, "with --checkpoint_precision the model runs"),
    (["--model_name", "m"], {"ctx_len": 0}, "'ctx_len': expected a number of 1 or more, got 0"),
    (["--model_name", "m"], {"ctx_length": 5}, "unknown key 'ctx_length'"),
])
def test_unsupported_requests_are_named(dist, tmp_path, arguments, config, text):
    if config is not None:
        (tmp_path / "compile_config.json").write_text(json.dumps(config))
        arguments = [*arguments, "--compile_config_path", tmp_path / "compile_config.json"]
    made = make(dist, tmp_path / "models", *arguments)
    assert made.returncode == 2 and text in made.stderr, made.stderr
    assert not (tmp_path / "models").exists()
