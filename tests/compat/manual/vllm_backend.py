"""Loads Triton's vLLM backend, its files unchanged, as a Python-based backend with a fake vLLM engine. Run by hand, because the backend consists
of third-party files:

    git clone https://github.com/triton-inference-server/vllm_backend
    build/venv/bin/python tests/compat/manual/vllm_backend.py vllm_backend/src --dist dist --interpreter PYTHON

The interpreter runs the backend. It needs NumPy and Pillow.
"""
import argparse
import contextlib
import json
import os
import pathlib
import queue
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as grpcclient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import processes  # noqa: E402

FAKE_VLLM = pathlib.Path(__file__).resolve().parent / "fake_vllm"
# An image of 1 x 1 pixel.
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def write_model(root, name, config="", **engine):
    (root / name / "1").mkdir(parents=True)
    (root / name / "1/model.json").write_text(json.dumps({"model": name, **engine}))
    (root / name / "1/multi_lora.json").write_text(json.dumps({"alpaca": "weights"}))
    (root / name / "config.pbtxt").write_text('backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n' + config)


def flag(key):
    return f'parameters {{ key: "{key}" value: {{ string_value: "true" }} }}\n'


def post(server, path, **body):
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return json.loads(error.read())
    if path.endswith("_stream"):
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(text or "null")


def cancelled(server):
    """Returns the responses to a stream that its client cancels."""
    arrived = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        tensors = [grpcclient.InferInput("text_input", [1], "BYTES"), grpcclient.InferInput("stream", [1], "BOOL")]
        tensors[0].set_data_from_numpy(np.array([b"forever"], np.object_))
        tensors[1].set_data_from_numpy(np.array([True]))
        client.async_stream_infer("small", tensors)
        arrived.get(timeout=60)
        client.stop_stream(cancel_requests=True)
    return post(server, "/v2/models/small/generate", text_input="still here", sampling_parameters="{}", exclude_input_in_output=True)


CHECKS = {
    "whole": lambda server: (post(server, "/v2/models/small/generate", text_input="a b c", parameters={"temperature": 0})["text_output"], "a b cc b a"),
    "excluded": lambda server: (post(server, "/v2/models/small/generate", text_input="a b c", exclude_input_in_output=True)["text_output"], "c b a"),
    "sampling parameters": lambda server: (post(server, "/v2/models/small/generate", text_input="a b c", exclude_input_in_output=True,
                                                sampling_parameters='{"max_tokens": "2", "n": "2"}')["text_output"], ["c b", "c b"]),
    "streamed": lambda server: ([each["text_output"] for each in post(server, "/v2/models/small/generate_stream", text_input="a b c", stream=True)],
                                ["c", " b", " a"]),
    "additional outputs": lambda server: (
        {key: value for key, value in post(
            server, "/v2/models/small/generate", text_input="a b", return_finish_reason=True, return_cumulative_logprob=True, return_logprobs=True,
            return_num_input_tokens=True, return_num_output_tokens=True).items() if key not in ("model_name", "model_version", "text_output")},
        {"finish_reason": "stop", "cumulative_logprob": -1.0, "num_input_tokens": 2, "num_output_tokens": 2,
         "logprobs": json.dumps([{str(i): {"logprob": -0.5, "rank": 1, "decoded_token": word}} for i, word in enumerate("ba")])}),
    "image": lambda server: (post(server, "/v2/models/small/generate", text_input="a", image=IMAGE, exclude_input_in_output=True)["text_output"], "1 a"),
    "LoRA": lambda server: (post(server, "/v2/models/small/generate", text_input="a", exclude_input_in_output=True,
                                 parameters={"lora_name": "alpaca"})["text_output"], "weights a"),
    "unknown LoRA": lambda server: ("LoRA llama is not supported" in post(server, "/v2/models/small/generate", text_input="a",
                                                                         parameters={"lora_name": "llama"})["error"], True),
    "embedding": lambda server: (json.loads(post(server, "/v2/models/small/generate", text_input="a",
                                                 embedding_request='{"input": "a"}')["text_output"]), [0.5, 0.5]),
    "wrong parameters": lambda server: ("Error generating stream: " in post(
        server, "/v2/models/small/generate", text_input="a", parameters={"nosuch": 1})["error"], True),
    "cancelled": lambda server: (cancelled(server)["text_output"], "here still"),
    "metrics": lambda server: ('vllm:generation_tokens_total{model="small",version="1"}' in urllib.request.urlopen(
        f"http://127.0.0.1:{server.metrics}/metrics", timeout=60).read().decode(), True),
    "load that fails": lambda server: ("no such checkpoint" in post(server, "/v2/repository/models/failing/load")["error"], True),
    "sick engine": lambda server: (post(server, "/v2/repository/models/sick/load"), None) and (
        "Model is unavailable due to unhealthy vLLM engine" in post(server, "/v2/models/sick/generate", text_input="a")["error"], True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--dist", type=pathlib.Path, default="dist")
    parser.add_argument("--interpreter", default=sys.executable)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        shutil.copytree(options.source, scratch / "backends/vllm", ignore=shutil.ignore_patterns("__pycache__"))
        for each in (options.dist / "backends").iterdir():
            (scratch / "backends" / each.name).symlink_to(each.resolve())
        write_model(scratch / "models", "small", flag("REPORT_CUSTOM_METRICS"), enable_lora=True)
        write_model(scratch / "models", "failing", fails=True)
        write_model(scratch / "models", "sick", flag("ENABLE_VLLM_HEALTH_CHECK"), sick=True)
        server = processes.Server(options.dist / "bin/nereid", scratch / "models", scratch / "backends", scratch / "log",
                                  dict(os.environ, PYTHONPATH=str(FAKE_VLLM)),
                                  [f"--backend-config=python,interpreter={options.interpreter}", "--model-control-mode=explicit", "--load-model=small"])
        for name, check in CHECKS.items():
            try:
                got, expected = check(server)
            except Exception as error:  # noqa: BLE001 shown
                got, expected = repr(error), "an answer"
            failed += got != expected
            print(f"{name}: {'ok' if got == expected else f'expected {expected!r}, got {got!r}'}", flush=True)
        with contextlib.suppress(Exception):
            failed += server.stop() != 0
        print(pathlib.Path(scratch / "log").read_text(errors="replace")[-2000:] if failed else "all as expected")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
