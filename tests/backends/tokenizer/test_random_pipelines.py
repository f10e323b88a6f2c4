"""Compares random tokenizers with PyPI `tokenizers`. Normalizers, pre-tokenizers, model, post-processors, decoders, added tokens with any flags,
truncation and padding are combined at random and saved by the reference itself. NEREID_FUZZ_SEED changes them; NEREID_FUZZ_PIPELINES is their
number."""
import base64
import functools
import importlib.util
import io
import json
import os
import pathlib
import random
import re
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_components as parts  # noqa: E402
from test_components import DRIVER, SEED, WORDS, Driver, random_text  # noqa: E402

COUNT = int(os.environ.get("NEREID_FUZZ_PIPELINES", "60"))
HAS_CHARSMAPS = importlib.util.find_spec("sentencepiece") is not None  # without sentencepiece, no character maps are drawn
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
# None of them matches the empty string, because the reference then computes wrong offsets.
REGEXES = [r"\s+", r"\p{L}+", r"[^a-f]", r"\d{1,3}", r"(?i:the)", r"[\w&&[^_]]+", r"(?<=a)b", r".$", r"\S+\s?"]
STRINGS = [" ", "a", "the", "\u2581", "l", "\u0301", "ab"]


def one_pattern(rng):
    return {"Regex": rng.choice(REGEXES)} if rng.random() < 0.6 else {"String": rng.choice(STRINGS)}


# Returns the base64 of sentencepiece's character map of this name, extracted from a trained model: field 3 (normalizer_spec), then field 2 (the map).
@functools.cache
def charsmap(rule):
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 9), model_writer=model, model_type="char", vocab_size=12,
                                             hard_vocab_limit=False, num_threads=1, minloglevel=2, normalization_rule_name=rule)

    def number(data, at):
        value, shift = 0, 0
        while True:
            value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
            if data[at - 1] < 128:
                return value, at

    def field(data, expected):
        at = 0
        while at < len(data):
            key, at = number(data, at)
            if key & 7 == 5:
                at += 4
                continue
            size, at = number(data, at)
            if key & 7 == 2:
                if key >> 3 == expected:
                    return data[at:at + size]
                at += size
        return b""

    return base64.b64encode(field(field(model.getvalue(), 3), 2)).decode()


def normalizer(rng):
    if rng.random() < 0.1 and HAS_CHARSMAPS:
        return {"type": "Precompiled", "precompiled_charsmap": charsmap(rng.choice(["nfkc", "nmt_nfkc_cf"]))}
    if rng.random() < 0.3:
        return {"type": "Replace", "pattern": one_pattern(rng), "content": rng.choice(["", "_", "xy", "\u2581", "e\u0301"])}
    return rng.choice(parts.NORMALIZERS[:-1])


def pre_tokenizer(rng):
    if rng.random() < 0.4:
        return {"type": "Split", "pattern": one_pattern(rng), "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.5}
    if rng.random() < 0.2:
        return {"type": "Metaspace", "replacement": rng.choice(["\u2581", "_"]), "prepend_scheme": rng.choice(["always", "never", "first"]),
                "split": rng.random() < 0.7}
    if rng.random() < 0.2:
        return {"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": rng.random() < 0.7}
    if rng.random() < 0.1:
        return {"type": "FixedLength", "length": rng.randrange(1, 6)}
    if rng.random() < 0.1:
        return {"type": "CharDelimiterSplit", "delimiter": rng.choice(["-", " ", "\u2581", "\u4f60"])}
    return rng.choice(parts.PRE_TOKENIZERS[:-1])


def model(rng):
    flip = rng.random
    kind = rng.randrange(7)
    if kind < 2:
        unknown = {"unk_token": None} if flip() < 0.2 else {}
        return parts.bpe(fuse_unk=flip() < 0.5, byte_fallback=flip() < 0.3, ignore_merges=flip() < 0.3, **unknown)
    if kind == 2:
        return parts.affixed_bpe(rng.choice(["", "##"]), rng.choice(["", "</w>"]))
    if kind == 3:
        return {**parts.word_piece(), "max_input_chars_per_word": rng.choice([1, 3, 12, 100])}
    if kind == 4:
        return {**parts.word_level(), "unk_token": rng.choice(["<unk>", "<unk>", "a", "<none>"])}
    return {**parts.unigram(byte_fallback=flip() < 0.5), "unk_id": rng.choice([0, 0, 5, None])}


def decoder(rng):
    if rng.random() < 0.2:
        return {"type": "Strip", "content": rng.choice("a \u2581"), "start": rng.randrange(3), "stop": rng.randrange(3)}
    if rng.random() < 0.2:
        return {"type": "Replace", "pattern": one_pattern(rng), "content": rng.choice(["", "_", " ", "\ufffd"])}
    if rng.random() < 0.2:
        return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["always", "never", "first"]), "split": True}
    if rng.random() < 0.2:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return rng.choice(parts.DECODERS[1:-1])


def chain(rng, make, key, most=3):
    """Returns no component, one component, or a sequence of several."""
    count = rng.randrange(most + 1)
    if count < 2:
        return make(rng) if count else None
    return {"type": "Sequence", key: [make(rng) for _ in range(count)]}


def added_tokens(rng, vocabulary):
    contents = rng.sample(["hello", "the", "<s>", "<x y>", "\u00c9COLE", "new token", "a", "b b", "\u2581the", "12", "\u4f60", "-", "ab", " lead"], rng.randrange(5))
    tokens = [parts.added(content, **{flag: rng.random() < 0.5 for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")})
              for content in contents]
    unknown = len(vocabulary)
    for token in tokens:
        token["id"] = vocabulary.get(token["content"], unknown)
        unknown += token["id"] == unknown
    return tokens


def pipeline(rng):
    made = model(rng)
    vocabulary = made["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {token: id for id, (token, _) in enumerate(vocabulary)}
    spec = parts.spec(made, chain(rng, normalizer, "normalizers"), chain(rng, pre_tokenizer, "pretokenizers"), chain(rng, decoder, "decoders"),
                      rng.choice([None, None, *parts.POST]), added_tokens(rng, vocabulary))
    if rng.random() < 0.2:
        spec["truncation"] = parts.cut(rng.randrange(4, 12), rng.randrange(2), rng.choice(["Left", "Right"]))
    if rng.random() < 0.2:
        spec["padding"] = parts.fill(rng.choice(["BatchLongest", {"Fixed": 7}]), rng.choice(["Left", "Right"]), rng.choice([None, 4]))
    return spec


def loaded(path, spec):
    """Returns the reference tokenizer, or None if the specification is not comparable: the reference panics; two added tokens are equal, so that
    its hash table decides which one counts; or an added token is empty after normalization. The reference finds an empty token between all bytes
    and panics inside a character, while this library never finds it."""
    path.write_text(json.dumps(spec), encoding="utf-8")
    try:
        reference = tokenizers.Tokenizer.from_file(str(path))
        reference.save(str(path))
        forms = [reference.normalizer.normalize_str(token["content"]) if reference.normalizer and token["normalized"] else token["content"]
                 for token in spec["added_tokens"]]
    except BaseException:
        return None
    return reference if len(set(forms)) == len(forms) and all(forms) else None


@pytest.mark.skipif(not HAS_CHARSMAPS, reason="sentencepiece, which provides the character maps, is not installed")
def test_charsmap_replaces_whole_graphemes(tmp_path):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    path = tmp_path / "tokenizer.json"
    chars = ["\u00a0", " ", "\u200d", "\U0001f484", "\U0001f468", "\u2122", "\u0301", "\u0340", "\ufe0f", "\U0001f3fd", "a", "\ufb01", "\u0600", "\u1100",
             "\u1161", "\U0001f1e6", "\r", "\n"]
    made = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(["<unk>", "i", "f", "t", "m", "T", "M", "\u0300", *chars])}}
    path.write_text(json.dumps(parts.spec(made, {"type": "Precompiled", "precompiled_charsmap": charsmap("nfkc")},
                                          {"type": "FixedLength", "length": 1})))
    reference = tokenizers.Tokenizer.from_file(str(path))
    rng = random.Random(6)
    texts = ["\u00a0\u200d\U0001f484", "\u2122\u200d\u2122"] + ["".join(rng.choice(chars) for _ in range(rng.randrange(1, 9))) for _ in range(2000)]
    answers, refusal = Driver(path).ask_or_refusal([{"encode": text} for text in texts] + [{"batch": [text]} for text in texts])
    assert not refusal
    for text, answer in zip(texts * 2, answers, strict=True):
        got = answer["encodings"][0] if "encodings" in answer else answer
        expected = reference.encode(text)
        assert got["ids"] == expected.ids, repr(text)
        assert "offsets" not in got or got["offsets"] == [list(span) for span in expected.offsets], repr(text)


FIRST = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
STRIPS = [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Replace", "pattern": {"Regex": "^[ a]+"}, "content": ""},
          {"type": "Replace", "pattern": {"String": " "}, "content": ""}, {"type": "Replace", "pattern": {"String": "a"}, "content": "_"},
          {"type": "Prepend", "prepend": "_"}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Nmt"},
          {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}]


def test_prefix_of_the_first_word_follows_the_original_text(tmp_path):
    """With prepend_scheme "first", a word gets the prefix if its first character came from the start of the text that the client sent."""
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    rng = random.Random(f"{SEED} first")
    splits = {"type": "Split", "pattern": {"Regex": "[a-c]"}, "behavior": "Isolated", "invert": False}
    for number in range(40):
        steps = [rng.choice(STRIPS) for _ in range(rng.randrange(1, 3))]
        before = rng.choice([[], [splits], [{**FIRST, "prepend_scheme": "always"}], [{**FIRST, "replacement": "_"}], [{"type": "Digits", "individual_digits": True}]])
        tokens = [{**parts.added(rng.choice(["_", "a", "b"]), normalized=rng.random() < 0.7), "id": 500}] if rng.random() < 0.4 else []
        spec = parts.spec(parts.bpe(), {"type": "Sequence", "normalizers": steps}, {"type": "Sequence", "pretokenizers": [*before, FIRST]}, None, None, tokens)
        reference = loaded(tmp_path / "tokenizer.json", spec)
        if reference is None:
            continue
        texts = ["".join(rng.choice([" ", "  ", "a", "ab", "the", "\u0301", "\ufb01", "_", "1", "\u4f60", "\x00", "\t"]) for _ in range(rng.randrange(1, 6)))
                 for _ in range(60)]
        answers, refusal = Driver(tmp_path / "tokenizer.json").ask_or_refusal(
            [{"encode": text} for text in texts] + [{"batch": [text]} for text in texts])
        assert not refusal, (refusal, steps, before)
        for text, answer in zip(texts * 2, answers, strict=True):
            expected = reference.encode(text, add_special_tokens=False)
            got = answer["encodings"][0] if "encodings" in answer else answer
            assert got.get("ids") == expected.ids, (number, repr(text), steps, before, tokens)
            assert "offsets" not in got or got["offsets"] == [list(span) for span in expected.offsets], (number, repr(text), steps, before)


@pytest.mark.parametrize("number", range(COUNT))
def test_random_tokenizer_agrees(number, tmp_path):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    rng = random.Random(f"{SEED} {number}")
    path = tmp_path / "tokenizer.json"
    reference = None
    while reference is None:
        spec = pipeline(rng)
        reference = loaded(path, spec)
    texts = [random_text(rng) for _ in range(60)] + rng.sample(WORDS, 10)
    texts += ["".join(rng.choice(["hello", "the", "<s>", " ", "<x y>", "new token", "a", "12", "-", "b b", "\u00c9COLE"]) for _ in range(6)) for _ in range(20)]
    size = reference.get_vocab_size()
    rows = [[rng.randrange(size + 2) for _ in range(rng.randrange(12))] for _ in range(60)] + [[rng.randrange(60)] * 3 for _ in range(20)]
    described = json.dumps({**spec, "model": {**spec["model"], "vocab": 0, "merges": 0}})
    expected_texts = []
    for text in texts:
        for special in (True, False):
            try:
                expected = parts.without_overflow_of_overflow(parts.members(reference.encode(text, add_special_tokens=special)))
            except BaseException:  # the reference panics on some combinations
                continue
            expected_texts.append((text, special, expected))
    expected_rows = []
    for row in rows:
        for skip in (False, True):
            try:
                expected_rows.append((row, skip, reference.decode(row, skip_special_tokens=skip)))
            except BaseException:
                continue
    pairs = [(*rng.sample(texts, 2), special) for _ in range(15) for special in (True, False)]
    requests = [{"batch": [[first, second]], "special": special} for first, second, special in pairs]
    requests += [{"batch": [text], "special": special} for text, special, _ in expected_texts]
    requests += [{"encode": text, "special": special, "truncate": True} for text, special, _ in expected_texts]
    requests += [{"decode": row, "skip": skip} for row, skip, _ in expected_rows]
    requests += [{"stream": [row[:2], row[2:3], row[3:]], "skip": skip} for row, skip, _ in expected_rows]
    answers, refusal = Driver(path).ask_or_refusal(requests)
    if refusal:
        stride_error = re.search(r"a stride of (\d+) with a max_length of (\d+), of which (\d+) are special tokens", refusal)
        stride, length, specials = map(int, stride_error.groups()) if stride_error else (0, 1, 0)
        assert "is not supported" in refusal or stride >= length - specials, (refusal, described)
        return
    answers = iter(answers)
    for first, second, special in pairs:
        expected = parts.answer_of(reference, [(first, second)], special)
        assert next(answers).get("encodings") == expected, (repr(first), repr(second), special, described)
    for text, special, expected in expected_texts:
        assert next(answers).get("encodings") == [expected], (repr(text), special, described)
    for text, special, expected in expected_texts:
        unpadded = [token for token, kept in zip(expected["ids"], expected["attention"]) if kept]
        assert next(answers).get("ids") == unpadded, (repr(text), special, described)
    for row, skip, expected in expected_rows:
        assert next(answers)["text"] == expected, (row, skip, described)
    for row, skip, expected in expected_rows:
        assert "".join(next(answers)["pieces"]) == expected, (row, skip, described)
