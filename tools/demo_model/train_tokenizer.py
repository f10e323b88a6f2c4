#!/usr/bin/env python3
"""Trains the demo model's byte-level BPE tokenizer and writes the corpus as token ids.

usage: train_tokenizer.py TRAIN.txt VALID.txt OUT_DIR
Writes OUT_DIR/{tokenizer.json,tokenizer_config.json} and OUT_DIR/{train,valid}.bin (uint16, documents joined by <|endoftext|>).
Needs PyPI tokenizers and numpy.
"""
import json
import pathlib
import sys

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
END = "<|endoftext|>"
# Words with their leading space, single digits, runs of punctuation, and white space.
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train(documents):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def read_documents(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return [document.strip() for document in text.split(END) if document.strip()]


def encode(tokenizer, documents):
    end = tokenizer.token_to_id(END)
    ids = []
    for encoding in tokenizer.encode_batch(documents):
        ids += encoding.ids + [end]
    return np.array(ids, dtype=np.uint16)


def main():
    train_path, valid_path, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    documents = read_documents(train_path)
    tokenizer = train(documents)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": END, "pad_token": END,
        "clean_up_tokenization_spaces": False, "model_max_length": 1024}, indent=2) + "\n")
    for name, docs in (("train", documents), ("valid", read_documents(valid_path))):
        ids = encode(tokenizer, docs)
        ids.tofile(out / f"{name}.bin")
        characters = sum(map(len, docs))
        print(f"{name}: {len(docs)} documents, {characters} characters, {len(ids)} tokens, {characters / len(ids):.2f} characters a token")


if __name__ == "__main__":
    main()
