"""Runs the models preprocessing, postprocessing, tensorrt_llm_bls and ensemble of NVIDIA's tensorrtllm_backend, code and configurations
unchanged, around our engine; by hand, because they are another project's files:

    git clone --branch v0.18.2 https://github.com/triton-inference-server/tensorrtllm_backend
    build/venv/bin/python tests/compat/by_hand/trtllm_models.py tensorrtllm_backend/all_models/inflight_batcher_llm --dist dist \\
        --checkpoint demo/model --interpreter PYTHON

The interpreter runs the models: NumPy and transformers, from v0.13 on Pillow and requests, and torch where the release's files import it. The
templates are filled as tools/fill_template.py does. What is compared: the text of the ensemble and of the BLS model, whole and streamed,
with that of our own chain for the same checkpoint."""
import argparse
import json
import os
import pathlib
import shutil
import string
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import processes  # noqa: E402

PROMPTS = ["Once upon a time", "The little dog"]


def filled(text, checkpoint, decoupled):
    values = {"triton_max_batch_size": "4", "decoupled_mode": str(decoupled), "tokenizer_dir": str(checkpoint), "engine_dir": str(checkpoint),
              "add_special_tokens": "True", "skip_special_tokens": "True", "preprocessing_instance_count": "1",
              "postprocessing_instance_count": "1", "bls_instance_count": "1", "accumulate_tokens": "True",
              "tensorrt_llm_model_name": "tensorrt_llm", "tensorrt_llm_draft_model_name": "", "multimodal_encoders_name": "",
              "logits_datatype": "TYPE_FP32", "triton_backend": "tensorrtllm", "batching_strategy": "inflight_fused_batching",
              "max_queue_delay_microseconds": "0", "max_queue_size": "0", "visual_model_path": "", "multimodal_model_path": "",
              "max_num_images": "1", "encoder_input_features_data_type": "TYPE_FP16", "prompt_embedding_table_data_type": "TYPE_FP16",
              "exclude_input_in_output": "True"}
    return string.Template(text).safe_substitute(values)


def post(server, path, body):
    """The parsed answer; of a stream the list of its events."""
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode()}
    if "generate_stream" in path:
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--dist", type=pathlib.Path, default="dist")
    parser.add_argument("--checkpoint", type=pathlib.Path, default="demo/model")
    parser.add_argument("--interpreter", default=sys.executable)
    parser.add_argument("--without-bls", action="store_true", help="leave out tensorrt_llm_bls, which imports torch in some releases")
    options = parser.parse_args()
    checkpoint, failed = options.checkpoint.resolve(), 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        ours = scratch / "ours"
        subprocess.run([options.dist / "bin/nereid-repo", "new", "llm", "--checkpoint", checkpoint, "--out", ours, "--decoupled"],
                       check=True, capture_output=True)
        theirs = scratch / "theirs"
        tried = ("ensemble",) if options.without_bls else ("ensemble", "tensorrt_llm_bls")
        for name in ("preprocessing", "postprocessing", "tensorrt_llm", *tried):
            shutil.copytree(options.models / name, theirs / name, ignore=shutil.ignore_patterns("__pycache__"))
            (theirs / name / "1").mkdir(exist_ok=True)
            config = theirs / name / "config.pbtxt"
            config.write_text(filled(config.read_text(), checkpoint, decoupled=True))
        expected, texts = {}, {}
        for repository, models in ((ours, ("ensemble",)), (theirs, tried)):
            server = processes.Server(options.dist / "bin/nereid", repository, options.dist / "backends", scratch / "log", dict(os.environ),
                                      [f"--backend-config=python,interpreter={options.interpreter}"])
            for model in models:
                for prompt in PROMPTS:
                    body = {"text_input": prompt, "max_tokens": 12, "bad_words": "", "stop_words": "", "end_id": 2, "pad_id": 2}
                    whole = post(server, f"/v2/models/{model}/generate", body)
                    stream = post(server, f"/v2/models/{model}/generate_stream", {**body, "stream": True})
                    pieces = [each.get("text_output", each) for each in stream] if isinstance(stream, list) else stream
                    texts[repository.name, model, prompt] = (whole.get("text_output", whole), pieces)
            server.stop()
            log = server.text()
        for prompt in PROMPTS:
            expected = texts["ours", "ensemble", prompt]
            print(f"ours: {expected[0]!r}, {len(expected[1])} pieces")
            for model in tried:
                whole, pieces = texts["theirs", model, prompt]
                last = pieces[-1] if pieces and model == "tensorrt_llm_bls" else pieces and "".join(map(str, pieces))
                print(f"  their {model}: {whole!r}\n    streamed: {pieces!r}")
                failed += str(expected[0]).strip() not in str(whole) or str(expected[0]).strip() not in str(last)
        if failed:
            print(log[-4000:])
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
