"""Compares the other tokenizer file formats with the libraries that define them: SentencePiece models, trained here on generated text, with
sentencepiece, and byte ranks in a tekken.json with tiktoken. The seed is fixed."""
import base64
import io
import json
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_components import DRIVER, Driver, random_text  # noqa: E402

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def sentences(count):
    rng = random.Random(7)
    words = ["".join(rng.choice("abcdefghilmnoprstu\u00e9\u4f60") for _ in range(rng.randrange(1, 8))) for _ in range(300)]
    return [" ".join(rng.choice(words) for _ in range(12)) for _ in range(count)]


def texts():
    rng = random.Random(1)
    return [random_text(rng) for _ in range(300)] + sentences(20) + ["", " ", "   ", "a", " a ", "\u2581", "x" * 700, "ab " * 500]


def ask(path, requests):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    return Driver(path).ask(requests)


# User-defined pieces, written as in the original text (with spaces and characters that a normalizer would change) or as in normalized text (U+2581).
USER = ["<sep>", "user", "use", "\u2581the", "\u2581\u2581", "a\u2581b", "b  a", " x", "\ufb01", "\u212bb", "ab\u2581"]


def user_texts():
    rng = random.Random(4)
    parts = USER + [" ", "  ", "the", "a", "b", "x", "\u2581", "\u00e9", "fi", "\u3000", "\x07", "user the"]
    return ["".join(rng.choice(parts) for _ in range(rng.randrange(1, 9))) for _ in range(400)]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("options", [
    {"normalization_rule_name": "nmt_nfkc"},
    {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True},
    {"normalization_rule_name": "nfkc_cf", "add_dummy_prefix": False, "user_defined_symbols": USER},
    {"normalization_rule_name": "nmt_nfkc", "user_defined_symbols": USER},
    {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "user_defined_symbols": USER},
    {"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": False, "byte_fallback": True, "user_defined_symbols": USER},
], ids=["nmt_nfkc", "identity with bytes", "nfkc_cf with user symbols", "nmt_nfkc with user symbols", "identity with user symbols", "all spaces with user symbols"])
def test_trained_model_agrees_with_sentencepiece(kind, options, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences(400)), model_writer=model, model_type=kind, vocab_size=420,
                                             hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model.getvalue())
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    # Unlike sentencepiece, this library recognises control pieces that are written in the text, so such texts are excluded.
    cases = [text for text in texts() + user_texts() if not any(mark in text for mark in ("<s>", "</s>", "<unk>", "\x00"))]
    answers = ask(path, [{"encode": text} for text in cases])
    for text, answer in zip(cases, answers):
        assert answer.get("ids") == reference.encode(text), repr(text)
    rng = random.Random(2)
    # Runs of byte pieces that are not UTF-8 are decoded as tokenizer.json defines, not as one U+FFFD per byte, so byte pieces are excluded.
    pieces = [id for id in range(reference.get_piece_size()) if not (reference.is_byte(id) or reference.is_control(id) or reference.is_unknown(id))]
    rows = [reference.encode(text) for text in sentences(40)] + [rng.choices(pieces, k=9) for _ in range(100)]
    # The first piece loses one or more U+2581, but no literal space.
    marked = [id for id in pieces if reference.id_to_piece(id).startswith(("\u2581\u2581", " ")) or reference.id_to_piece(id) in ("\u2581", "\u2581the", "<sep>")]
    rows += [rng.choices(marked, k=rng.randrange(1, 4)) + rng.choices(pieces, k=2) for _ in range(100)]
    answers = ask(path, [{"decode": row} for row in rows])
    for row, answer in zip(rows, answers):
        assert answer["text"] == reference.decode(row), row
    answers = ask(path, [{"stream": [row[:1], row[1:2], row[2:]]} for row in rows])
    for row, answer in zip(rows, answers):
        assert "".join(answer["pieces"]) == reference.decode(row), row


# The first U+2581, or all leading ones, would be dropped here.
def test_space_from_byte_piece_is_kept(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences(100)), model_writer=model, model_type="bpe", vocab_size=340, hard_vocab_limit=False,
                                             num_threads=1, minloglevel=2, byte_fallback=True)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model.getvalue())
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    space, mark, letter = (reference.piece_to_id(piece) for piece in ("<0x20>", "\u2581", "a"))
    rows = [[space], [space] * 3, [space, mark, letter], [mark, space, letter], [mark, mark, space, space, mark], [letter, space, mark, letter]]
    assert reference.decode(rows[1]) == "   "
    answers = iter(ask(path, [{"decode": row} for row in rows] + [{"stream": [row[:1], row[1:2], row[2:]]} for row in rows]))
    for row in rows:
        assert next(answers)["text"] == reference.decode(row), row
    for row in rows:
        assert "".join(next(answers)["pieces"]) == reference.decode(row), row


def ranks_of(rng):
    tokens = [bytes([b]) for b in range(256)]
    known = set(tokens)
    while len(tokens) < 900:
        joined = rng.choice(tokens[:600]) + rng.choice(tokens)
        if len(joined) < 9 and joined not in known:
            known.add(joined)
            tokens.append(joined)
    for text in ("the", "th", "he", " the", "ll", "hello", "hel", "12", "\u00e9", "\u4f60", "ab", "abc", " a"):
        if text.encode() not in known:
            known.add(text.encode())
            tokens.append(text.encode())
    return tokens


def test_ranks_agree_with_tiktoken(tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    tokens = ranks_of(random.Random(5))
    reference = tiktoken.Encoding("made", pat_str=PATTERN, mergeable_ranks={token: rank for rank, token in enumerate(tokens)}, special_tokens={})
    specials = 20
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({
        "config": {"pattern": PATTERN, "default_vocab_size": specials + len(tokens), "default_num_special_tokens": specials},
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)]}))
    cases = [text for text in texts() if "<" not in text]
    ids = [[specials + rank for rank in reference.encode_ordinary(text)] for text in cases]
    answers = ask(path, [{"encode": text} for text in cases])
    for text, row, answer in zip(cases, ids, answers):
        assert answer.get("ids") == row, repr(text)
    rng = random.Random(3)
    rows = ids + [[rng.randrange(specials, specials + len(tokens)) for _ in range(9)] for _ in range(200)]
    answers = ask(path, [{"decode": row} for row in rows])
    for row, answer in zip(rows, answers):
        assert answer["text"] == reference.decode([rank - specials for rank in row]), row
