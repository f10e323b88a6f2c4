#!/usr/bin/env python3
"""Measures the loading of a checkpoint on the CPU, by format: time, compared with reading its files from the page cache, and memory, compared with
their size.

    bench/cpu_reference/loads.py [--build build/release] [--threads 2] [--rounds 3] [--folder DIR] [--formats bf16,sharded,awq,gptq,trtllm,trtllm-awq]

Uses a Llama shape with 617 million parameters. Requires NumPy and 1.3 GB of free space under --folder. "cold" first drops the files from the page
cache, and counts the bytes read from disk until every weight was used once. Memory is the private memory of the process and the mapped part of the
files.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

import numpy

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, VOCAB, GROUP = 2048, 8, 32, 8, 8192, 32000, 128
KV = HIDDEN // HEADS * KV_HEADS
BASE = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": LAYERS,
        "max_position_embeddings": 2048}
HF = {**BASE, "model_type": "llama", "tie_word_embeddings": False}
TRT = {**BASE, "architecture": "LlamaForCausalLM", "hidden_act": "silu", "norm_epsilon": 1e-5, "rotary_base": 10000.0, "dtype": "bfloat16", "position_embedding_type": "rope_gpt_neox",
       "use_parallel_embedding": False, "head_size": HIDDEN // HEADS, "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1}}
LINEAR = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KV, HIDDEN), "self_attn.v_proj": (KV, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
          "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
BYTES = {"BF16": 2, "F16": 2, "I32": 4, "I8": 1}
BLOCK = ((numpy.random.default_rng(1).integers(0, 1 << 16, 1 << 22, numpy.uint16) & 0x807F) | 0x3D00).tobytes()  # bf16 of +-(0.03 .. 0.06)


def save(path, tensors):
    """tensors: name -> (type, shape). The values do not matter here."""
    header, size = {}, 0
    for name, (kind, shape) in tensors.items():
        count = BYTES[kind] * int(numpy.prod(shape))
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [size, size + count]}
        size += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        while size > 0:
            size -= out.write(BLOCK[:size])


def linear(name, rows, columns, form):
    groups = columns // GROUP
    if form == "awq":
        return {f"{name}.qweight": ("I32", (columns, rows // 8)), f"{name}.qzeros": ("I32", (groups, rows // 8)), f"{name}.scales": ("F16", (groups, rows))}
    if form == "gptq":
        return {f"{name}.qweight": ("I32", (columns // 8, rows)), f"{name}.qzeros": ("I32", (groups, rows // 8)), f"{name}.scales": ("F16", (groups, rows))}
    return {f"{name}.weight": ("BF16", (rows, columns))}


def write_hf(folder, form, num_files=1):
    parts = [{} for _ in range(num_files)]
    parts[0]["model.embed_tokens.weight"] = ("BF16", (VOCAB, HIDDEN))
    parts[-1] |= {"model.norm.weight": ("BF16", (HIDDEN,)), "lm_head.weight": ("BF16", (VOCAB, HIDDEN))}
    for layer in range(LAYERS):
        into, prefix = parts[layer * num_files // LAYERS], f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            into[f"{prefix}{norm}.weight"] = ("BF16", (HIDDEN,))
        for name, shape in LINEAR.items():
            into |= linear(prefix + name, *shape, form)
    config = dict(HF)
    if form in ("awq", "gptq"):
        config["quantization_config"] = {"quant_method": form, "bits": 4, "group_size": GROUP, **({"zero_point": True, "version": "gemm"} if form == "awq" else {"desc_act": False})}
    (folder / "config.json").write_text(json.dumps(config))
    if num_files == 1:
        return save(folder / "model.safetensors", parts[0])
    names = [f"model-{i + 1:05}-of-{num_files:05}.safetensors" for i in range(num_files)]
    for name, part in zip(names, parts):
        save(folder / name, part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {tensor: name for name, part in zip(names, parts) for tensor in part}}))


def write_trtllm(folder, is_awq):
    """Writes two tensor-parallel ranks."""
    tensors = {"transformer.vocab_embedding.weight": ("BF16", (VOCAB, HIDDEN)), "transformer.ln_f.weight": ("BF16", (HIDDEN,)), "lm_head.weight": ("BF16", (VOCAB // 2, HIDDEN))}

    def add(name, rows, columns, split):
        rows, columns = (rows // 2, columns) if split == "rows" else (rows, columns // 2)
        if not is_awq:
            tensors[name + ".weight"] = ("BF16", (rows, columns))
            return
        tensors[name + ".weight"] = ("I8", (rows // 2, columns))  # the transposed layout [in, out / 2] of the converter
        tensors[name + ".weights_scaling_factor"] = ("BF16", (rows, columns // GROUP))
        tensors[name + ".prequant_scaling_factor"] = ("BF16", (columns,))

    for layer in range(LAYERS):
        prefix = f"transformer.layers.{layer}."
        tensors |= {prefix + "input_layernorm.weight": ("BF16", (HIDDEN,)), prefix + "post_layernorm.weight": ("BF16", (HIDDEN,))}
        add(prefix + "attention.qkv", HIDDEN + 2 * KV, HIDDEN, "rows")
        add(prefix + "attention.dense", HIDDEN, HIDDEN, "columns")
        add(prefix + "mlp.fc", INNER, HIDDEN, "rows")
        add(prefix + "mlp.gate", INNER, HIDDEN, "rows")
        add(prefix + "mlp.proj", HIDDEN, INNER, "columns")
    quantization = {"quant_algo": "W4A16_AWQ", "group_size": GROUP, "has_zero_point": False, "pre_quant_scale": True, "exclude_modules": ["lm_head"]} if is_awq else {"quant_algo": None}
    (folder / "config.json").write_text(json.dumps({**TRT, "quantization": quantization}))
    for rank in range(2):
        save(folder / f"rank{rank}.safetensors", tensors)


FORMATS = {
    "bf16": lambda folder: write_hf(folder, "bf16"),
    "sharded": lambda folder: write_hf(folder, "bf16", 4),
    "awq": lambda folder: write_hf(folder, "awq"),
    "gptq": lambda folder: write_hf(folder, "gptq"),
    "trtllm": lambda folder: write_trtllm(folder, False),
    "trtllm-awq": lambda folder: write_trtllm(folder, True),
}


def read_ms(files):
    """Milliseconds to read the files from the page cache on one thread."""
    start = time.perf_counter()
    buffer = bytearray(1 << 20)
    for file in files:
        with file.open("rb", buffering=0) as data:
            while data.readinto(buffer):
                pass
    return (time.perf_counter() - start) * 1e3


def drop(files):
    os.sync()
    for file in files:
        with file.open("rb") as data:
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(options, name, folder):
    FORMATS[name](folder)
    files = sorted(folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    command = [str(options.build / "bench/cpu_reference/load_bench"), str(folder), str(options.threads)]

    def load():
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    drop(files)
    cold = load()
    read_ms(files)
    reads, loads = [], []
    for _ in range(options.rounds):
        reads.append(read_ms(files))
        loads.append(load())
    one = loads[-1]
    median = lambda stage, key: statistics.median(each[stage][key] for each in loads)  # noqa: E731
    print(f"| {name} | {size / 1e6:.0f} | {statistics.median(reads):.0f} | {median('load', 'wall_ms'):.0f} | {median('load', 'processor_ms'):.0f} | {median('first_step', 'wall_ms'):.0f} | "
          f"{one['load']['own_kb'] * 1024 / 1e6:.0f} + {one['load']['mapped_kb'] * 1024 / 1e6:.0f} | {one['first_step']['own_kb'] * 1024 / 1e6:.0f} + {one['first_step']['mapped_kb'] * 1024 / 1e6:.0f} | "
          f"{one['first_step']['peak_kb'] * 1024 / 1e6:.0f} | {cold['first_step']['disk_bytes'] / 1e6:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    print("| format | files MB | reading them ms | load ms | processor ms | load and first token ms | own + mapped MB after the load | after the first token | peak MB | from the disk when cold MB |")
    print("|" + "---|" * 10)
    for name in options.formats.split(","):
        folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
        try:
            measure(options, name, folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
