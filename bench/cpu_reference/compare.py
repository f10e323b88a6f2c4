#!/usr/bin/env python3
"""Compares the CPU backend with llama.cpp on the same weights, in one run: decode and prefill of a Llama shape with 1.24 billion parameters in bf16
and int4, and of a small one.

    bench/cpu_reference/compare.py [--build build/release] [--threads 2] [--rounds 5] [--cases bf16,int4,small] [--peer PYTHON]

PYTHON is an interpreter whose environment has `llama-cpp-python` and `gguf` (pip install both). Without it, only our backend is measured. Requires
NumPy and, for all cases, 8 GB of free space under --folder. The two backends alternate, and each result is the median of the rounds.
"""
import argparse
import json
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy

LARGE = {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "inner": 8192, "vocab": 128256}
SMALL = {"hidden": 384, "layers": 8, "heads": 6, "kv_heads": 6, "inner": 1024, "vocab": 4096}
CASES = {"bf16": (LARGE, "bf16"), "int4": (LARGE, "int4"), "small": (SMALL, "bf16")}
GROUP = 128
CONTEXT, PROMPT = 128, 512


def matrices(s):
    """Yields our name, llama.cpp's name, outputs, inputs."""
    kv = s["hidden"] // s["heads"] * s["kv_heads"]
    for i in range(s["layers"]):
        ours, theirs = f"model.layers.{i}.", f"blk.{i}."
        yield ours + "self_attn.q_proj", theirs + "attn_q", s["hidden"], s["hidden"]
        yield ours + "self_attn.k_proj", theirs + "attn_k", kv, s["hidden"]
        yield ours + "self_attn.v_proj", theirs + "attn_v", kv, s["hidden"]
        yield ours + "self_attn.o_proj", theirs + "attn_output", s["hidden"], s["hidden"]
        yield ours + "mlp.gate_proj", theirs + "ffn_gate", s["inner"], s["hidden"]
        yield ours + "mlp.up_proj", theirs + "ffn_up", s["inner"], s["hidden"]
        yield ours + "mlp.down_proj", theirs + "ffn_down", s["hidden"], s["inner"]
    yield "lm_head", "output", s["vocab"], s["hidden"]


def norms(s):
    for i in range(s["layers"]):
        yield f"model.layers.{i}.input_layernorm", f"blk.{i}.attn_norm"
        yield f"model.layers.{i}.post_attention_layernorm", f"blk.{i}.ffn_norm"
    yield "model.norm", "output_norm"


def random_bf16(random, *shape):
    """Values +-(0.03 .. 0.06)."""
    bits = random.integers(0, 1 << 16, shape, numpy.uint16)
    return (bits & 0x807F) | 0x3D00


def random_int4(random, rows, columns):
    """Values 0 to 15 [rows, columns], and scales in fp16 [rows, columns / GROUP]."""
    scales = random.uniform(0.002, 0.004, (rows, columns // GROUP)).astype(numpy.float16)
    return random.integers(0, 16, (rows, columns), numpy.uint8), scales


class Safetensors:
    """Writes tensor data as it arrives, and the header before the data at the end."""

    def __init__(self, folder):
        self.folder, self.header, self.size = folder, {}, 0
        self.data = (folder / "data").open("wb")

    def add(self, name, dtype, array):
        blob = numpy.ascontiguousarray(array).tobytes()
        self.header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [self.size, self.size + len(blob)]}
        self.size += len(blob)
        self.data.write(blob)

    def close(self):
        self.data.close()
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        with (self.folder / "model.safetensors").open("wb") as out, (self.folder / "data").open("rb") as data:
            out.write(struct.pack("<Q", len(text)) + text)
            while chunk := data.read(1 << 24):
                out.write(chunk)
        (self.folder / "data").unlink()


def write_ours(folder, shape, kind):
    """Writes a Hugging Face directory with the same numbers as write_theirs."""
    folder.mkdir(parents=True)
    random = numpy.random.default_rng(1)
    out = Safetensors(folder)
    out.add("model.embed_tokens.weight", "BF16", random_bf16(random, shape["vocab"], shape["hidden"]))
    for ours, _ in norms(shape):
        out.add(ours + ".weight", "BF16", numpy.full(shape["hidden"], 0x3F80, numpy.uint16))
    for ours, _, rows, columns in matrices(shape):
        if kind == "bf16":
            out.add(ours + ".weight", "BF16", random_bf16(random, rows, columns))
            continue
        values, scales = random_int4(random, rows, columns)
        eights = values.reshape(rows, columns // 8, 8).astype(numpy.uint32)
        words = sum((eights[..., i] << numpy.uint32(4 * i) for i in range(8)), numpy.zeros((), numpy.uint32)).astype(numpy.uint32)
        out.add(ours + ".weight_packed", "I32", words.view(numpy.int32))
        out.add(ours + ".weight_scale", "F16", scales)
    out.close()
    config = {"model_type": "llama", "vocab_size": shape["vocab"], "hidden_size": shape["hidden"], "intermediate_size": shape["inner"], "num_attention_heads": shape["heads"]}
    config |= {"num_key_value_heads": shape["kv_heads"], "num_hidden_layers": shape["layers"], "max_position_embeddings": 2048, "tie_word_embeddings": False}
    if kind == "int4":
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
        config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": weights}}}
    (folder / "config.json").write_text(json.dumps(config))


def write_theirs(path, shape, kind):
    """Writes the same numbers for llama.cpp: bf16, or Q4_0, whose blocks of 32 repeat the scale of their group."""
    import gguf

    random = numpy.random.default_rng(1)
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(2048)
    out.add_embedding_length(shape["hidden"])
    out.add_block_count(shape["layers"])
    out.add_feed_forward_length(shape["inner"])
    out.add_head_count(shape["heads"])
    out.add_head_count_kv(shape["kv_heads"])
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_dimension_count(shape["hidden"] // shape["heads"])
    out.add_vocab_size(shape["vocab"])
    out.add_tokenizer_model("no_vocab")

    def add_bf16(name, bits):
        out.add_tensor(name, bits.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    add_bf16("token_embd.weight", random_bf16(random, shape["vocab"], shape["hidden"]))
    for _, theirs in norms(shape):
        out.add_tensor(theirs + ".weight", numpy.ones(shape["hidden"], numpy.float32))
    for _, theirs, rows, columns in matrices(shape):
        if kind == "bf16":
            add_bf16(theirs + ".weight", random_bf16(random, rows, columns))
            continue
        values, scales = random_int4(random, rows, columns)
        blocks = values.reshape(rows, columns // 32, 2, 16)
        halves = blocks[:, :, 0] | (blocks[:, :, 1] << 4)
        packed = numpy.concatenate([scales.repeat(GROUP // 32, 1)[..., None].view(numpy.uint8), halves], -1)
        out.add_tensor(theirs + ".weight", packed.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def measure_theirs(path, threads, seconds):
    """Prints the seconds per decoded token and per prefill."""
    import time

    import llama_cpp

    llama = llama_cpp.Llama(model_path=str(path), n_ctx=1024, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads, n_threads_batch=threads, verbose=False)
    ids = [(7 * i) % 4000 + 1 for i in range(PROMPT)]
    prefill = []
    for _ in range(3):
        llama.reset()
        start = time.perf_counter()
        llama.eval(ids)
        prefill.append(time.perf_counter() - start)
    llama.reset()
    llama.eval(ids[:CONTEXT])
    decode = []
    while sum(decode) < seconds or len(decode) < 8:
        llama.n_tokens = CONTEXT  # eval() continues from here and discards later tokens
        start = time.perf_counter()
        llama.eval([17])
        decode.append(time.perf_counter() - start)
    print(json.dumps({"decode": statistics.median(decode), "prefill": statistics.median(prefill)}))


def measure_ours(build, folder, threads, seconds):
    program = build / "bench/cpu_reference/decode_bench"
    command = [program, "--checkpoint", folder, "--threads", str(threads), "--context", str(CONTEXT), "--seconds", str(seconds), "--batches", "1", "--prompts", str(PROMPT)]
    text = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    decode = float(re.search(r"decode batch +1: ([0-9.]+) ms", text)[1]) / 1e3
    prefill = float(re.search(rf"prefill +{PROMPT} tokens: ([0-9.]+) ms", text)[1]) / 1e3
    of_bandwidth = float(re.search(r"of the read bandwidth: ([0-9]+) %", text)[1])
    load = re.search(r"^after the load: .*$", text, re.M)
    return {"decode": decode, "prefill": prefill, "of_bandwidth": of_bandwidth, "load": load[0] if load else ""}


def compare(case, options, folder):
    shape, kind = CASES[case]
    ours, theirs = folder / case, folder / f"{case}.gguf"
    write_ours(ours, shape, kind)
    this = [options.peer, str(pathlib.Path(__file__).resolve()), "--threads", str(options.threads), "--seconds", str(options.seconds)]
    if options.peer:
        subprocess.run([*this, "--write-theirs", case, str(theirs)], check=True)
    rounds = []
    for _ in range(options.rounds):
        measured = [measure_ours(options.build, ours, options.threads, options.seconds)]
        if options.peer:
            text = subprocess.run([*this, "--measure-theirs", str(theirs)], check=True, capture_output=True, text=True).stdout
            measured.append(json.loads(text.splitlines()[-1]))
        rounds.append(measured)
    for what, tokens in (("decode", 1), ("prefill", PROMPT)):
        values = [statistics.median(tokens / one[side][what] for one in rounds) for side in range(len(rounds[0]))]
        peer = f"{values[1]:.1f} | {statistics.median(b[what] / a[what] for a, b in rounds):.2f}" if options.peer else " | "
        bandwidth = f"{statistics.median(one[0]['of_bandwidth'] for one in rounds):.0f} %" if what == "decode" else ""
        print(f"| {case}, {what} | {values[0]:.1f} | {peer} | {bandwidth} |", flush=True)
    print(f"<!-- {case}: {rounds[0][0]['load']} -->", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--cases", default="bf16,int4,small")
    parser.add_argument("--peer", help="Python with llama-cpp-python and gguf")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--write-theirs", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--measure-theirs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_theirs:
        shape, kind = CASES[options.write_theirs[0]]
        return write_theirs(options.write_theirs[1], shape, kind)
    if options.measure_theirs:
        return measure_theirs(options.measure_theirs, options.threads, options.seconds)
    print("| case | tokens/s | llama.cpp | times as fast (median of pairs) | of the read bandwidth |\n|---|---|---|---|---|")
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            compare(case, options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
