"""Compares random files of the other tokenizer formats with the libraries that define them: byte ranks as tekken.json and as rank files of the
published sizes with PyPI tiktoken, and SentencePiece models, trained here with random options, with PyPI sentencepiece.
NEREID_FUZZ_SEED changes them; NEREID_FUZZ_FILES is the number of files of each kind."""
import base64
import io
import json
import os
import pathlib
import random
import re
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_components import DRIVER, SEED, Driver, random_text  # noqa: E402

COUNT = int(os.environ.get("NEREID_FUZZ_FILES", "12"))
# Text that a pattern does not match is dropped by tiktoken.
PATTERNS = [
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"""
    r"""[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    r"\p{L}+|\p{N}|[^\p{L}\p{N}]+", r"\s?[\p{L}\p{N}_]+|\S", r".{1,4}", r"[a-m]+|\P{L}{2}|\p{Lu}\p{M}*|\s", r"(?<=a)b+|(?i:the)|\S+\s?",
    # Constructs that Rust's engines interpret differently from Oniguruma.
    r"\w+|\W", r"\w+(?!\S)|[^\w\s]+|\s", r"\b\w+\b|[\W]{2}", r"a{1,2}+a?|[b-e]{2,3}?|\S$|^\s|\w", r"(?m)^.|.$|\s+|\w{2}", r"(?s:.{3})|(?m:^\w$)|.", r"[\w--\d]+|\d{2}",
    r"[a-g~~c-z]+|[[:alpha:]]+|[[:^ascii:]]", r"\pL\PL|(?P<word>[\w&&[^aeiou]]+)|[\W\d]", r"\u{e9}|\x{4f60}+|[^\w\u{1f468}]+|a(?i)B|L+", r"[\W_]+|\B\w|\b.",
    r"[--/]|[^--a]{2}|a", r"[\w[--\d]]+|[---\s--\n]", r"\w\Z|\s+\Z|[a-e]+", r"(?m)\n^|^\w|\s", r"a{,}b|[b-e]{1,2}?{|\w{2}+|\s"]
# Some have the content of ordinary tokens; none is a prefix of another.
SPECIALS = ["ll", "12", "eh", "bb", "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<|a b|>", "h\u00e9llo!", "\u2581\u2581x", "<\u4f60>", "]]", "the end", "\U0001f468\u200d", "#12#", "  >"]
LETTERS = "abcdehlt '12\u00e9\u4f60\u0301\U0001f468\n\u200c\u200d"


def any_text(rng):
    """Returns words and spaces, then arbitrary code points, assigned or not."""
    parts = [random_text(rng)]
    if rng.random() < 0.5:
        parts += ["".join(rng.choice(LETTERS) for _ in range(rng.randrange(40)))]
    if rng.random() < 0.3:
        parts += [chr(rng.choice([rng.randrange(0xd800), rng.randrange(0xe000, 0x110000)])) for _ in range(rng.randrange(6))]
    if rng.random() < 0.1:
        parts += [rng.choice(LETTERS) * rng.randrange(300)]
    rng.shuffle(parts)
    return "".join(parts)


def broken(rng, text):
    """Returns the text's bytes with some removed, changed or inserted."""
    data = bytearray(text.encode())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        data[at:at + rng.randrange(3)] = bytes(rng.choice([0x80, 0xbf, 0xc3, 0xe4, 0xed, 0xf0, 0xf4, 0xff, rng.randrange(256)]) for _ in range(rng.randrange(3)))
    return bytes(data)


def ranks_of(rng, count):
    """Returns the 256 bytes in random order, then strings that are mostly concatenations of two others; a few cannot be reached by merges."""
    tokens = [bytes([b]) for b in range(256)]
    rng.shuffle(tokens)
    tokens += [name.encode() for name in SPECIALS[:rng.randrange(5)]][:count - 256]
    known = set(tokens)
    pool = [letter.encode()[i:i + 1] for letter in LETTERS for i in range(len(letter.encode()))] * 3 + tokens
    while len(tokens) < count:
        joined = rng.choice(pool) + rng.choice(pool) if rng.random() < 0.97 else bytes(rng.choice(b"abt \xc3\xa9") for _ in range(rng.randrange(2, 7)))
        if len(joined) < 14 and joined not in known:
            known.add(joined)
            tokens.append(joined)
            pool.append(joined)
    return tokens


def ask(path, requests):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    return iter(Driver(path).ask(requests))


def compare(path, encode, decode, texts, rows, rng, decode_all=None):
    """Compares the ids of texts and of invalid UTF-8, and the texts of ids, decoded at once and as a stream. `decode_all` includes special tokens."""
    damaged = [broken(rng, text) for text in texts[:60]]
    requests = [{"encode": text} for text in texts] + [{"encode": {"hex": data.hex()}} for data in damaged]
    requests += [{"decode": row, "skip": True} for row in rows] + [{"stream": [row[:1], row[1:3], row[3:]], "skip": True} for row in rows]
    requests += [{"decode": row} for row in rows if decode_all]
    answers = ask(path, requests)
    for text in texts:
        assert next(answers).get("ids") == encode(text), repr(text)
    for data in damaged:
        assert next(answers).get("ids") == encode(data.decode(errors="replace")), data
    for row in rows:
        assert next(answers)["text"] == decode(row), row
    for row in rows:
        assert "".join(next(answers)["pieces"]) == decode(row), row
    for row in rows if decode_all else []:
        assert next(answers)["text"] == decode_all(row), row


@pytest.mark.parametrize("number", range(2 * COUNT))
def test_random_tekken_agrees_with_tiktoken(number, tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    rng = random.Random(f"tekken {SEED} {number}")
    tokens, pattern = ranks_of(rng, rng.randrange(256, 1500)), rng.choice(PATTERNS)
    unused = rng.randrange(3) * 7  # more tokens than ids
    names = rng.sample(SPECIALS, rng.randrange(1, len(SPECIALS)))
    count = len(names) + rng.randrange(3)
    names += [f"<SPECIAL_{at}>" for at in range(len(names), count)]
    kept = tokens[:len(tokens) - unused] if len(tokens) - unused >= 256 else tokens
    reference = tiktoken.Encoding("made", pat_str=pattern, special_tokens={name: len(kept) + at for at, name in enumerate(names)},
                                  mergeable_ranks={token: rank for rank, token in enumerate(kept)})
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({
        "config": {"pattern": pattern, "default_vocab_size": count + len(kept), "default_num_special_tokens": count},
        "special_tokens": [{"rank": at, "token_str": name, "is_control": True} for at, name in enumerate(names)],
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)]}))

    def encode(text):  # tekken.json gives special tokens the first ids, tiktoken the last ones
        return [id - len(kept) if id >= len(kept) else id + count for id in reference.encode(text, allowed_special="all")]

    def decode(ids):
        return reference.decode([id - count for id in ids if id >= count])

    def decode_all(ids):
        return reference.decode([id - count if id >= count else id + len(kept) for id in ids])

    texts = [any_text(rng) for _ in range(200)] + ["".join(rng.choice([*names, " ", "a", "the"]) for _ in range(6)) for _ in range(60)]
    rows = [[rng.randrange(count + len(kept)) for _ in range(rng.randrange(12))] for _ in range(120)] + [encode(text) for text in texts[:60]]
    compare(path, encode, decode, texts, rows, rng, decode_all)


@pytest.mark.parametrize("number", range(max(1, COUNT // 4)))
@pytest.mark.parametrize("name, size", [("r50k_base", 50256), ("p50k_base", 50280), ("cl100k_base", 100256), ("o200k_base", 199998)])
def test_random_rank_file_of_a_published_size_agrees_with_tiktoken(name, size, number, tmp_path, monkeypatch):
    """Pattern and special tokens are those of tiktoken itself for the vocabulary."""
    tiktoken = pytest.importorskip("tiktoken")
    published = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(published, "load_tiktoken_bpe", lambda *names, **options: {})
    known = getattr(published, name)()
    rng = random.Random(f"{name} {SEED} {number}")
    tokens, hole = ranks_of(rng, size), known["special_tokens"]["<|endoftext|>"]
    if rng.random() < 0.5:
        tokens[-1] = b"<|endoftext|>"  # a content with two ids
    ranks = {token: rank + (rank >= hole) for rank, token in enumerate(tokens)}  # in p50k, this id is a gap in the ranks
    reference = tiktoken.Encoding("made", pat_str=known["pat_str"], mergeable_ranks=ranks, special_tokens=known["special_tokens"])
    path = tmp_path / "made.tiktoken"
    lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]
    rng.shuffle(lines)
    path.write_text("\n".join(lines) + rng.choice(["", "\n"]))
    specials = set(known["special_tokens"].values())

    def encode(text):
        return reference.encode(text, allowed_special="all")

    texts = [any_text(rng) for _ in range(200)] + ["".join(rng.choice([*known["special_tokens"], " ", "a", "<|"]) for _ in range(6)) for _ in range(30)]
    rows = [[rng.choice(list(ranks.values())) for _ in range(rng.randrange(12))] for _ in range(120)] + [encode(text) for text in texts[:60]]
    compare(path, encode, lambda ids: reference.decode([id for id in ids if id not in specials]), texts, rows, rng, reference.decode)


USER = ["<sep>", "user", "use", "\u2581the", "\u2581\u2581", "a\u2581b", "b  a", " x", "\ufb01", "\u212bb", "ab\u2581", "\u4f60\u597d", "e\u0301", "12", "."]


def options_of(rng, folder):
    flip = rng.random
    options = {"model_type": rng.choice(["unigram", "bpe"]), "vocab_size": rng.randrange(120, 700),
               "normalization_rule_name": rng.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]),
               "add_dummy_prefix": flip() < 0.7, "remove_extra_whitespaces": flip() < 0.5, "byte_fallback": flip() < 0.5,
               "split_by_whitespace": flip() < 0.7, "split_by_unicode_script": flip() < 0.7, "split_by_number": flip() < 0.7, "split_digits": flip() < 0.4,
               "allow_whitespace_only_pieces": flip() < 0.4, "max_sentencepiece_length": rng.choice([4, 16]), "character_coverage": rng.choice([1.0, 0.98]),
               "user_defined_symbols": rng.sample(USER, rng.randrange(5) * rng.randrange(2))}
    if flip() < 0.3:
        ids = rng.sample(range(4), 4)
        options |= {"unk_id": ids[0], "bos_id": rng.choice([ids[1], -1]), "eos_id": ids[2], "pad_id": rng.choice([ids[3], -1])}
        options |= {"unk_piece": "[UNK]", "control_symbols": ["<ctl>"]} if flip() < 0.5 else {}
    if flip() < 0.25:
        rules = rng.sample(["61 62\t63", "61 62 63\t7A 7A", "E9\t65", "2E\t20", "41\t61", "4F60\t6E 69", "7468 65\t", "20 78\t58", "65 301\tE9", "A0\t20", "74\t54 74"],
                           rng.randrange(1, 7))
        (folder / "rules.tsv").write_text("".join(rule + "\n" for rule in rules))
        options |= {"normalization_rule_tsv": str(folder / "rules.tsv")}
    return options


def trained(sentencepiece, rng, folder):
    """Returns a trained model's bytes and its options. Invalid combinations of options are drawn again."""
    words = ["".join(rng.choice("abcdefghilmnoprstuABT.12\u00e9\u4f60\u597d\u0301\ufb01") for _ in range(rng.randrange(1, 8))) for _ in range(200)]
    words += ["the", "then", "hello", "ab", "12", "user"] * 5
    sentences = [rng.choice([" ", "  "]).join(rng.choice(words) for _ in range(10)) for _ in range(250)]
    while True:
        options, model = options_of(rng, folder), io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, hard_vocab_limit=False, num_threads=1, minloglevel=4, **options)
        except (RuntimeError, OSError):
            continue
        return model.getvalue(), options


def with_other_scores(model, rng):
    """Replaces the scores of all normal pieces by scores many of which are equal. A piece is a message of a text (field 1), a score (field 2, a float)
    and, unless it is normal, a type."""
    data = bytearray(model)

    def size_at(at):
        size = shift = 0
        while data[at] > 127:
            size, shift, at = size | (data[at] & 127) << shift, shift + 7, at + 1
        return size | data[at] << shift, at + 1

    at = 0
    while data[at] == 0x0a:
        size, begin = size_at(at + 1)
        length, text = size_at(begin + 1)
        at, score = begin + size, text + length
        assert data[begin] == 0x0a and data[score] == 0x15
        if score + 5 == at:
            data[score + 1:at] = struct.pack("<f", -float(rng.randrange(1, 12)))
    return bytes(data)


@pytest.mark.parametrize("number", range(2 * COUNT))
def test_random_model_agrees_with_sentencepiece(number, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    rng = random.Random(f"sentencepiece {SEED} {number}")
    model, options = trained(sentencepiece, rng, tmp_path)
    if rng.random() < 0.4:
        model = with_other_scores(model, rng)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    size = reference.get_piece_size()
    # Unlike sentencepiece, this library recognises control and unknown pieces that are written in the text, so such texts are excluded.
    marks = [reference.id_to_piece(id) for id in range(size) if reference.is_control(id) or reference.is_unknown(id)] + ["\x00"]
    texts = [any_text(rng) for _ in range(250)] + ["".join(rng.choice([*USER, " ", "  ", "ab", "the", "\u2581"]) for _ in range(rng.randrange(9))) for _ in range(60)]
    texts = [text for text in texts if not any(mark in text for mark in marks)]
    # Runs of byte pieces that are not UTF-8 are decoded as tokenizer.json defines, not as one U+FFFD per byte, so byte pieces are excluded.
    pieces = [id for id in range(size) if not (reference.is_byte(id) or reference.is_control(id) or reference.is_unknown(id))]
    rows = [[rng.choice(pieces) for _ in range(rng.randrange(10))] for _ in range(150)]
    rows += [row for row in map(reference.encode, texts[:100]) if not any(map(reference.is_unknown, row))]
    try:
        compare(path, reference.encode, reference.decode, texts, rows, rng)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{re.sub(str(tmp_path), '', json.dumps(options))}") from None
