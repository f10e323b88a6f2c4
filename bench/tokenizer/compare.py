#!/usr/bin/env python3
"""Benchmarks the tokenizer library, PyPI `tokenizers` and `tiktoken` on one thread and prints a Markdown table.

    compare.py TOKENIZER_BENCH TOKENIZERS_DIR TEXT_FILE [FAMILY ...]

TOKENIZERS_DIR has one folder per family. TEXT_FILE is divided into documents of about 2 KB, as in tokenizer_bench. Each library has a warm-up pass;
the result is the median CPU time of 5 passes (9 in tokenizer_bench). tiktoken is only measured for families with byte-rank vocabularies.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402

DOCUMENT_BYTES = 2048
TIKTOKEN_FAMILIES = ("llama3", "qwen2", "gpt2", "mistral-tekken")


def documents(data):
    result = []
    while data:
        end = data.find(b"\n", min(DOCUMENT_BYTES, len(data) - 1))
        cut = len(data) if end < 0 else end + 1
        result.append(data[:cut].decode())
        data = data[cut:]
    return result


def timed(body, passes=5):
    body()
    times = []
    for _ in range(passes):
        start = time.process_time()
        body()
        times.append(time.process_time() - start)
    return statistics.median(times)


def byte_of():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    rest = [b for b in range(256) if b not in printable]
    table.update({chr(0x100 + index): b for index, b in enumerate(rest)})
    return table


def tiktoken_of(folder):
    spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    table = byte_of()
    added = {token["content"] for token in spec["added_tokens"]}
    vocab = {token: rank for token, rank in spec["model"]["vocab"].items() if token not in added and all(char in table for char in token)}
    ranks = {bytes(table[char] for char in token): rank for token, rank in vocab.items()}
    steps = spec["pre_tokenizer"].get("pretokenizers", [])
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    pattern = patterns[0] if patterns else r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    return tiktoken.Encoding(folder.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def row(bench, folder, text_file):
    ours = json.loads(subprocess.run([bench, folder / "tokenizer.json", text_file, "--json"], check=True, capture_output=True, text=True).stdout)
    texts = documents(pathlib.Path(text_file).read_bytes())
    size, tokens = ours["bytes"] / 1e6, ours["tokens"] / 1e6
    encode, decode = size / ours["encode, 2 KB documents"], tokens / ours["decode, 2 KB documents"]
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = size / timed(lambda: [reference.encode(text, add_special_tokens=False) for text in texts])
    cells = [folder.name, f"{encode:.1f}", f"{theirs:.2f}", f"{encode / theirs:.1f}"]
    if folder.name in TIKTOKEN_FAMILIES:
        other = tiktoken_of(folder)
        ids = [other.encode_ordinary(text) for text in texts]
        other_encode = size / timed(lambda: [other.encode_ordinary(text) for text in texts])
        other_decode = sum(map(len, ids)) / 1e6 / timed(lambda: [other.decode_bytes(row) for row in ids])
        cells += [f"{other_encode:.1f}", f"{encode / other_encode:.1f}", f"{decode:.0f}", f"{other_decode:.0f}", f"{decode / other_decode:.1f}"]
    else:
        cells += ["", "", f"{decode:.0f}", "", ""]
    stream_ns = ours["stream, id by id"] / ours["tokens"] * 1e9
    whole = size / ours["encode, one document"]
    return cells + [f"{stream_ns:.0f}", f"{whole:.1f}", f"{ours['heap'] / 1e6:.1f}", f"{(ours['heap'] - ours['strings']) / 1e6:.1f}", f"{ours['load'] * 1e3:.0f}"]


def main():
    bench, root, text_file = sys.argv[1:4]
    families = sys.argv[4:] or sorted(path.parent.name for path in pathlib.Path(root).glob("*/tokenizer.json"))
    print("| family | encode MB/s | tokenizers | ratio | tiktoken | ratio | decode M tok/s | tiktoken | ratio | stream ns/token | "
          "one document MB/s | heap MB | less the tokens' strings | load ms |")
    print("|" + "---|" * 14)
    for family in families:
        print("| " + " | ".join(row(bench, pathlib.Path(root) / family, text_file)) + " |", flush=True)


if __name__ == "__main__":
    main()
