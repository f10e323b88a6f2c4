r"""Runs the models preprocessing, postprocessing, tensorrt_llm_bls and ensemble of NVIDIA's tensorrtllm_backend, code and configurations unchanged,
with our LLM engine. Run by hand, because the models are third-party files:

    git clone --branch v0.18.2 https://github.com/triton-inference-server/tensorrtllm_backend
    build/venv/bin/python tests/compat/manual/trtllm_models.py tensorrtllm_backend/all_models/inflight_batcher_llm --dist dist \
    --checkpoint demo/model --interpreter PYTHON

The interpreter runs the models. It needs NumPy and transformers, from v0.13 on Pillow and requests, and torch where the release's files import it.
The templates are filled in like tools/fill_template.py does. The results are compared with our own model chain for the same checkpoint: texts, log
probabilities and token counts of the ensemble and of the BLS model, complete and streamed, of decoupled models and others, with end ids, stop words,
bad words, sampling, penalties, beams and the prompt; and the logits of their ensemble with those of their BLS model.
"""
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

import numpy as np
import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import processes  # noqa: E402

PROMPT = "Once upon a time"
PLAIN = {"text_input": PROMPT, "max_tokens": 12, "bad_words": "", "stop_words": "", "end_id": 2, "pad_id": 2}


def cases(words, ids, seed):
    """The requests by name. `words` and `ids` are those of the plain answer; `seed` is the release's name of the seed parameter. The temperature
    is not set, because the BLS model of v0.9.0 does not forward it."""
    return {"plain": {}, "end id": {"end_id": ids[-4]}, "another prompt": {"text_input": "The little dog"}, "stop words": {"stop_words": [" " + words[3], "nosuchword"]},
            "bad words": {"bad_words": [" " + words[1]]}, "sampled": {"top_k": 5, seed: 11},
            "penalties": {"repetition_penalty": 1.5}, "log probs": {"return_log_probs": True}, "beams": {"beam_width": 2},
            "beams with log probs": {"beam_width": 2, "return_log_probs": True},
            "with the prompt": {"exclude_input_in_output": False}, "logits": {"return_context_logits": True, "return_generation_logits": True},
            "numbers of tokens": {"return_num_input_tokens": True, "return_num_output_tokens": True}}


def filled(text, checkpoint, decoupled):
    values = {"triton_max_batch_size": "4", "decoupled_mode": str(decoupled), "tokenizer_dir": str(checkpoint), "engine_dir": str(checkpoint),
              "add_special_tokens": "True", "skip_special_tokens": "True", "preprocessing_instance_count": "1",
              "postprocessing_instance_count": "1", "bls_instance_count": "1", "accumulate_tokens": str(decoupled),
              "tensorrt_llm_model_name": "tensorrt_llm", "tensorrt_llm_draft_model_name": "", "multimodal_encoders_name": "",
              "logits_datatype": "TYPE_FP32", "triton_backend": "tensorrtllm", "batching_strategy": "inflight_fused_batching",
              "max_queue_delay_microseconds": "0", "max_queue_size": "0", "visual_model_path": "", "multimodal_model_path": "",
              "max_num_images": "1", "encoder_input_features_data_type": "TYPE_FP16", "prompt_embedding_table_data_type": "TYPE_FP16",
              "exclude_input_in_output": "True", "max_beam_width": "2"}
    return string.Template(text).safe_substitute(values)


def post(server, path, body):
    """Returns the parsed answer, or for a stream the list of its events."""
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode()}
    if "generate_stream" in path:
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(text)


def make_ours(options, checkpoint, folder, _, decoupled):
    subprocess.run([options.dist / "bin/nereid-repo", "new", "llm", "--checkpoint", checkpoint, "--out", folder / "ours",
                    *(["--decoupled"] if decoupled else [])], check=True, capture_output=True)
    config = folder / "ours/tensorrt_llm/config.pbtxt"
    config.write_text(config.read_text() + 'parameters { key: "max_beam_width" value { string_value: "2" } }\n')
    return folder / "ours"


def make_theirs(options, checkpoint, folder, tried, decoupled):
    for name in ("preprocessing", "postprocessing", "tensorrt_llm", *tried):
        shutil.copytree(options.models / name, folder / "theirs" / name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "theirs" / name / "1").mkdir(exist_ok=True)
        config = folder / "theirs" / name / "config.pbtxt"
        config.write_text(filled(config.read_text(), checkpoint, decoupled))
    return folder / "theirs"


def seen_of(server, model, body, decoupled):
    """Returns what must be equal for one case: text (of each beam) and log probabilities, complete and streamed."""
    whole = post(server, f"/v2/models/{model}/generate", body)
    if "text_output" not in whole:
        return {"error": whole}
    texts = whole["text_output"] if isinstance(whole["text_output"], list) else [whole["text_output"]]
    seen = {"texts": [each.strip() for each in texts]}
    if body.get("return_log_probs"):
        seen |= {name: np.round(np.ravel(whole.get(name, [])), 4).tolist() for name in ("cum_log_probs", "output_log_probs")}
    if body.get("return_generation_logits"):
        seen |= {name: [len(values := np.ravel(whole.get(name, []))), np.round(values[:100], 3).tolist()]
                 for name in ("context_logits", "generation_logits")}
    if body.get("return_num_input_tokens"):
        seen |= {name: whole.get(name) for name in ("num_input_tokens", "num_output_tokens")}
    if decoupled and body.get("beam_width", 1) == 1:
        pieces = [each.get("text_output", each) for each in post(server, f"/v2/models/{model}/generate_stream", {**body, "stream": True})]
        # The BLS model accumulates the text of its responses.
        seen["streamed"] = str(pieces[-1] if model == "tensorrt_llm_bls" else "".join(map(str, pieces))).strip()
    return seen


def compare(ours, theirs, models, decoupled, tokenizer, seed, config):
    """`config` is that of the release's ensemble, which does not have every input."""
    plain = seen_of(ours, "ensemble", PLAIN, decoupled)
    words, ids, failed = plain["texts"][0].split(), tokenizer.encode(f"{PROMPT} {plain['texts'][0]}").ids, 0
    print(f"decoupled: {decoupled}, ours: {plain}")
    for name, changes in cases(words, ids, seed).items():
        if not all(f'"{each}"' in config for each in changes):
            print(f"  {name}: not of this release")
            continue
        # Our own chain returns no logits, so their two models are compared with each other.
        expected = seen_of(theirs if name == "logits" else ours, "ensemble", {**PLAIN, **changes, **({"random_seed": 11} if name == "sampled" else {})}, decoupled)
        if name not in ("plain", "numbers of tokens") and "log" not in name and expected == plain:
            print(f"  {name}: changes nothing")
            failed += 1
        if name == "logits" and not (expected["context_logits"][0] and expected["generation_logits"][0]):
            print("  logits: none")
            failed += 1
        for model in models:
            if "beam" in name and decoupled and model == "tensorrt_llm_bls":
                continue  # the BLS model accumulates tokens here, and does not support that with beams
            seen = seen_of(theirs, model, {**PLAIN, **changes}, decoupled)
            print(f"  {name}, {model}: {'alike' if seen == expected else f'{seen} where {expected} was expected'}")
            failed += seen != expected
    return failed


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
        tried = ("ensemble",) if options.without_bls else ("ensemble", "tensorrt_llm_bls")
        for decoupled in (True, False):
            ours, theirs = (make(options, checkpoint, scratch / str(decoupled), tried, decoupled) for make in (make_ours, make_theirs))
            flags = [f"--backend-config=python,interpreter={options.interpreter}"]
            both = [processes.Server(options.dist / "bin/nereid", each, options.dist / "backends", scratch / f"{each.name}.log",
                                     dict(os.environ), flags) for each in (ours, theirs)]
            try:
                config = (options.models / "ensemble/config.pbtxt").read_text()
                seed = "random_seed" if "random_seed" in config else "seed"
                failed += compare(*both, tried, decoupled, tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json")), seed, config)
            finally:
                for server in both:
                    server.stop()
            if failed:
                print(both[1].text()[-4000:])
                break
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
