#!/usr/bin/env python3
"""Compares the tokenizer library with PyPI `tokenizers` on random and malformed input.

    compare_with_reference.py DRIVER TOKENIZERS_DIR [--rounds N] [--seed S] [--mutate N] [FAMILY ...]

DRIVER is the program tokenizer_driver of tests/backends/tokenizer. TOKENIZERS_DIR has one folder per family with a
tokenizer.json. --mutate N compares N random variants of each family instead: other pre-tokenizers, normalizers,
decoders and added tokens with the same vocabulary. Not part of CI; exits with 1 on a difference.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u2003", "\u200b", "\u180e", "\x1c"]
WORDS = ["don't", "WE'LL", "it's", "I'\u017fx", "he'd", "'re", "'VE", "hello", "World", "HTML5", "camelCase", "ABCdef", "x86_64",
         "na\u00efve", "e\u0301", "\u0301", "\u212b", "\uac00\u11a8", "\u1100\u1161\u11a8", "\u4f60\u597d", "\u3053\u3093", "\u0915\u094d\u0937",
         "\u0e01\u0e33", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u01c5", "\u02b0", "\u2160", "\u00bd", "\u0663",
         "\U00011de0", "\ufffd", "\ufeff", "\x00", "\x7f", "12", "3456789", "1,234.5", "//", "==>", "!?", "$", "`", "_", "\u2581", "\u2581\u2581", "<0x41>"]


def random_text(rng, specials):
    kind = rng.random()
    if kind < 0.1:
        char = rng.choice(SPACES + WORDS)
        return char * rng.randrange(1, 200)
    parts = []
    for _ in range(rng.randrange(0, 30)):
        pick = rng.random()
        if pick < 0.3:
            parts.append(rng.choice(SPACES))
        elif pick < 0.6:
            parts.append(rng.choice(WORDS))
        elif pick < 0.7 and specials:
            token = rng.choice(specials)
            parts.append(token if rng.random() < 0.8 else token[: rng.randrange(len(token))])
        elif pick < 0.8:
            parts.append("".join(rng.choice("abcdeABCDE012'.,- ") for _ in range(rng.randrange(1, 12))))
        elif pick < 0.9:
            parts.append(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x300, 0xd800), rng.randrange(0x250, 0x700)])))
        else:
            code = rng.randrange(0xe000, 0x110000)
            parts.append(chr(code))
    return "".join(parts)


def random_ids(rng, tokenizer, bytes_like):
    size = tokenizer.get_vocab_size()
    ids = []
    for _ in range(rng.randrange(0, 24)):
        pick = rng.random()
        if pick < 0.3 and bytes_like:
            ids.append(rng.choice(bytes_like))
        elif pick < 0.4:
            ids.append(rng.randrange(min(size, 300)))
        else:
            ids.append(rng.randrange(size + 5))
    return ids


def random_cuts(rng, ids):
    chunks, at = [], 0
    while at < len(ids):
        step = rng.choice([1, 1, 1, 2, 3, 7])
        chunks.append(ids[at:at + step])
        at += step
    return chunks


def mutate(rng, spec):
    """Replaces the components of `spec` at random, keeping the vocabulary."""
    byte_level = "ByteLevel" in json.dumps(spec["pre_tokenizer"])
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    patterns = [{"Regex": r"\p{N}{1,3}"}, {"String": " "}, {"Regex": r"\s+"}, {"Regex": r"\w+|[^\w\s]+"}, {"Regex": r"[A-Z]?[a-z]+"},
                {"Regex": r"(?=\p{Lu})"}, {"Regex": r"\s?\p{P}+"}, {"String": "a"}, {"Regex": r"x*"}]
    steps = [{"type": "Split", "pattern": rng.choice(patterns), "behavior": rng.choice(behaviors), "invert": rng.random() < 0.3}
             for _ in range(rng.randrange(3))]
    if rng.random() < 0.4:
        steps.append({"type": "Digits", "individual_digits": rng.random() < 0.5})
    if byte_level:
        steps.append({"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": rng.random() < 0.5})
        spec["normalizer"] = rng.choice([None, {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                                         {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": "q"}]}])
    else:
        if rng.random() < 0.7:
            steps.insert(0, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["always", "first", "never"]),
                             "split": rng.random() < 0.5})
            spec["normalizer"] = None
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["always", "never"]), "split": True}
        replace = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
        strip = {"type": "Strip", "content": " ", "start": rng.randrange(3), "stop": 0}
        spec["decoder"] = rng.choice([
            metaspace, None,
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, metaspace]},
            {"type": "Sequence", "decoders": [metaspace, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, replace, strip]},
            {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, strip]},
            {"type": "Sequence", "decoders": [strip, replace, {"type": "Fuse"}]}])
        spec["model"]["byte_fallback"] = rng.random() < 0.7
        spec["model"]["fuse_unk"] = rng.random() < 0.5
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if steps else None
    next_id = max([max(spec["model"]["vocab"].values())] + [t["id"] for t in spec["added_tokens"]]) + 1
    for content in rng.sample(["<x>", "hello", "he", " wor", "[MASK]", "\u00e9", "e\u0301", "lo W", "<x><y>", "12"], 4):
        if content in spec["model"]["vocab"]:
            continue
        spec["added_tokens"].append({"id": next_id, "content": content, "single_word": rng.random() < 0.3, "lstrip": rng.random() < 0.3,
                                     "rstrip": rng.random() < 0.3, "normalized": rng.random() < 0.5, "special": rng.random() < 0.3})
        next_id += 1
    return spec


class Driver:
    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("tokenizer_driver has exited")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, path, program, rounds, rng):
    reference = Tokenizer.from_file(path)
    reference.no_truncation()
    reference.no_padding()
    vocab = reference.get_vocab()
    specials = [token.content for token in reference.get_added_tokens_decoder().values()]
    bytes_like = [i for token, i in vocab.items() if token.startswith("<0x") or len(token) == 1 and ord(token) < 0x144]
    driver = Driver(program, path)
    differences = 0

    def check(what, got, expected):
        nonlocal differences
        if got != expected:
            differences += 1
            if differences <= 5:
                print(f"{name}: {what}\n  got      {got!r}\n  expected {expected!r}")

    for _ in range(rounds):
        text = random_text(rng, specials)
        special = rng.random() < 0.3
        expected = reference.encode(text, add_special_tokens=special).ids
        check(f"encode({text!r}, {special})", driver.ask({"encode": text, "special": special}).get("ids"), expected)
        ids = expected if rng.random() < 0.3 else random_ids(rng, reference, bytes_like)
        skip = rng.random() < 0.5
        whole = reference.decode(ids, skip_special_tokens=skip)
        check(f"decode({ids}, {skip})", driver.ask({"decode": ids, "skip": skip}).get("text"), whole)
        pieces = driver.ask({"stream": random_cuts(rng, ids), "skip": skip}).get("pieces")
        check(f"stream({ids}, {skip})", "".join(pieces), whole)
    driver.close()
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("tokenizers")
    parser.add_argument("families", nargs="*")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutate", type=int, default=0, help="number of random variants of each family; 0 compares the original files")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    families = args.families or sorted(f for f in os.listdir(args.tokenizers) if os.path.isdir(os.path.join(args.tokenizers, f)))
    total = 0
    for family in families:
        path = os.path.join(args.tokenizers, family, "tokenizer.json")
        if not args.mutate:
            found = compare(family, path, args.driver, args.rounds, rng)
            print(f"{family}: {args.rounds} rounds, {found} differences", flush=True)
            total += found
        for variant in range(args.mutate):
            spec = mutate(rng, json.load(open(path)))
            with tempfile.TemporaryDirectory() as folder:
                varied = os.path.join(folder, "tokenizer.json")
                json.dump(spec, open(varied, "w"))
                found = compare(f"{family}/{variant}", varied, args.driver, args.rounds, rng)
            print(f"{family}/{variant}: {args.rounds} rounds, {found} differences", flush=True)
            if found:
                print({key: value for key, value in spec.items() if key not in ("model", "added_tokens")}, spec["added_tokens"][-4:])
            total += found
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
