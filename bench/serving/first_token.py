#!/usr/bin/env python3
"""Measures the time from server start to the first token of a checkpoint of realistic size. Writes a checkpoint of a Llama shape (random bf16
weights, safetensors) to a folder, preferably in memory, starts `nereid` with it, and retries a request until it is answered. Prints one JSON
object. Never asserts.

    first_token.py --folder /dev/shm/llama-8b [--shape 8b] [--backend gpu_llm] [--dist dist] [--prompt 128] [--runs 3] [--keep]"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

SHAPES = {"8b": (4096, 32, 32, 8, 14336, 128256), "1b": (2048, 16, 32, 8, 8192, 128256), "tiny": (64, 2, 4, 2, 128, 512)}
CONFIG = """backend: "%s"
max_batch_size: 0
model_transaction_policy { decoupled: true }
parameters { key: "gpt_model_path" value { string_value: "%s" } }
parameters { key: "max_num_sequences" value { string_value: "256" } }
parameters { key: "exclude_input_in_output" value { string_value: "true" } }
"""


def tensors(hidden, layers, heads, kv_heads, inner, vocab):
    kv = hidden // heads * kv_heads
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, rows, columns in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden),
                                    ("self_attn.o_proj", hidden, hidden), ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
                                    ("mlp.down_proj", hidden, inner)):
            yield f"{at}{name}.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocab, hidden)


def write_checkpoint(folder, shape):
    """Weights are bf16 values of magnitude 0.0078 to 0.0156: the sign and the mantissa are random."""
    hidden, layers, heads, kv_heads, inner, vocab = SHAPES[shape]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}))
    header, at = {}, 0
    for name, sizes in tensors(*SHAPES[shape]):
        size = 2
        for extent in sizes:
            size *= extent
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = bytearray(64 << 20)
    block[0::2] = os.urandom(len(block) // 2)
    block[1::2] = os.urandom(len(block) // 2).translate(bytes(0x3C if byte < 128 else 0xBC for byte in range(256)))
    with open(folder / "model.safetensors", "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for first in range(0, at, len(block)):
            file.write(memoryview(block)[:min(len(block), at - first)])
    return at


def first_token(args, repository, log):
    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    ids = [7 + i % 50 for i in range(args.prompt)]
    body = json.dumps({"input_ids": ids, "input_lengths": len(ids), "request_output_len": 1}).encode()
    began = time.monotonic()
    server = subprocess.Popen([f"{args.dist}/bin/nereid", f"--model-repository={repository}", "--http-address=127.0.0.1", f"--http-port={port}",
                               "--allow-grpc=false", "--allow-metrics=false"], stdout=log, stderr=subprocess.STDOUT)
    try:
        while server.poll() is None and time.monotonic() - began < 300:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/llm/generate", body, timeout=300) as answer:
                    json.load(answer)
                return round(time.monotonic() - began, 3)
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.01)
        return None
    finally:
        server.terminate()
        server.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--backend", default="gpu_llm")
    parser.add_argument("--dist", default="dist")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the checkpoint for the next run")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder).resolve()
    began = time.monotonic()
    if not (folder / "model.safetensors").exists():
        write_checkpoint(folder, args.shape)
    result = {"shape": args.shape, "bytes": (folder / "model.safetensors").stat().st_size, "written_s": round(time.monotonic() - began, 1)}
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "models" / "llm"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG % (args.backend, folder))
        with open(pathlib.Path(scratch) / "log", "w+") as log:
            result["first_token_s"] = [first_token(args, model.parent, log) for _ in range(args.runs)]
            if None in result["first_token_s"]:
                log.seek(0)
                result["log"] = log.read()[-2000:]
    if not args.keep:
        shutil.rmtree(folder)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
