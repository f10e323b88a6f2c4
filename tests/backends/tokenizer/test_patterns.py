"""Compares regular expressions of tokenizer.json with PyPI `tokenizers`, which runs them on Oniguruma. Covers the constructs of published patterns
and similar ones, on random strings and on all code points. NEREID_FUZZ_SEED changes the random strings."""
import json
import pathlib
import random
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_components import DRIVER, Driver, SEED, random_text  # noqa: E402

# Patterns of published tokenizers without a hand-written matcher, and older versions of patterns that have one.
PUBLISHED = [
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"(?=(\d{3})+(?!\d))",
    r"[0-9][0-9][0-9]",
    r"\p{N}{3}(?=\p{N})|[\u0e00-\u0e7f]+",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"(?:\r?\n)+(?!\r?\n)|[^\S\r\n]+|(?:[^\r\n]+?)(?=\r?\n|$)",
    r"[^\p{L}\p{N}\p{M}\s]|[\p{Hiragana}\p{Katakana}\u30fc]+|[\p{Han}]{1,2}",
    r"(?:[a-z]+)|(?:[A-Z]+(?![a-z]))",
]
FORMS = [
    r"a{2}+", r"(?:ab){1,2}+", r"[a-c]{1,2}*", r"a{2}?", r"a{1,2}?b", r"a{,2}b", r"b{1,}?", r"x{a", r"a{,}", r"[ab]{2}{2}", r"\p{L}{2}+.",
    r"\b\w", r"\w\b", r"\B.", r"\bthe\b", r"\h+", r"\H", r"[\h&&\d]", r"[^\h]+", r"\R", r"\N+", r"\O", r"\Z", r"\z", r"\Aa", r"^.", r".$",
    r"[a[bc]]+", r"[^a[bc]]+", r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[\w&&[^\d_]]+", r"[a-h&&c-z&&[^e]]+", r"[[a-c][l-o]&&[b-m]]+",
    r"[\S&&[^,.]]+", r"[\S]", r"[\W\d]+", r"[\D\s]+", r"[^\S\n]+", r"[^\W_]+", r"[\P{L}a]+", r"[\p{^L}a]+", r"[\P{L}&&\P{N}&&\S]+", r"[a^]+",
    r"[a&&^]+", r"[b\]\[&-]+", r"[\b]", r"[[:alpha:]]+", r"[[:^alpha:]\d]+", r"[^[:space:]]+", r"[[:punct:]]+", r"[[:alnum:]_]+",
    r"(?<=a)b", r"(?<!a)b", r"(?<=th|l)e", r"(?<=\s)\S+", r"(?<!\p{L})\p{L}+", r"(?>a|ab)c", r"(?<word>the|he)", r"(?#note)he", r"he(?=l)",
    r"(?i)the|HE", r"(?i:the|he)l*", r"(?i:[a-c]+)x", r"(?i:[^a-z]+)", r"(?i:[a-d&&[^b]]+)", r"(?i-m:a)b", r"(?m:.+)", r"(?i)\u00e9+",
    r"(?i:\p{Lu})", r"a++b", r"[a-c]*+d", r"a?+b", r"a*?b", r"(a|b)+?l", r"\x{e9}", r"\u00e9|\u4f60", r"\t|\n|\r|\f|\a|\e|\v", r"a|b|", r"x*",
]
# The properties in EXACT agree for characters of Unicode 15 and 16, too; PCRE2's data is Unicode 14.
EXACT = ["L", "Lu", "Lm", "Lo", "M", "N", "Nd", "No", "P", "S", "Zs", "Letter", "uppercase_letter", "Any", "Digit", "Upper", "Space", "Blank",
         "Cntrl", "XDigit", "Punct", "ASCII", "Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai",
         "Devanagari", "Lao"]
OLD = ["Lt", "Mn", "Mc", "Nl", "Pc", "Pd", "Po", "Sm", "Sc", "So", "Cc", "Word", "Tibetan"]
NEWER = [(0x870, 0x8a0), (0xc00, 0xc80), (0xc80, 0xd00), (0xec0, 0xed0), (0x1b40, 0x1b80), (0x1c80, 0x1c90), (0x2420, 0x2440), (0x2ff0, 0x3000),
           (0x31d0, 0x31f0), (0xa7c0, 0xa7e0), (0x10500, 0x20000), (0x2b730, 0x2b740), (0x2ebf0, 0x2f000), (0x31350, 0x32400)]


def split(pattern, behavior="Isolated", invert=False):
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None, "truncation": None, "padding": None,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert},
            "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}}


def spans_of(pattern, texts, tmp_path):
    """Returns, for each text, the spans of the reference and of the driver."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(split(pattern)), encoding="utf-8")
    reference = tokenizers.Tokenizer.from_file(str(path))
    answers = Driver(path).ask([{"batch": [text]} for text in texts])
    return [([list(span) for span in reference.encode(text).offsets], answer["encodings"][0]["offsets"]) for text, answer in zip(texts, answers)]


@pytest.mark.parametrize("pattern", PUBLISHED + FORMS)
def test_pattern_splits_like_oniguruma(pattern, tmp_path):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    rng = random.Random(f"{SEED}{pattern}")
    texts = [random_text(rng) for _ in range(120)]
    texts += ["".join(rng.choice("aabbccdxl eHT12345\n\r_-'s,.\u00e9\u4f60\u3042") for _ in range(rng.randrange(30))) for _ in range(120)]
    texts += ["a \n  ", "1234567", "THE the tHe", "it's IT'S we'LL", "hello\r\n\r\n\r\nhello ", "\u4f60\u597dabc\u4e2d\u6587", "aaaa", "aabb"]
    for text, (expected, got) in zip(texts, spans_of(pattern, texts, tmp_path)):
        assert got == expected, repr(text)


@pytest.mark.parametrize("name", EXACT + OLD)
def test_property_has_the_same_code_points(name, tmp_path):
    if not DRIVER.exists():
        pytest.skip("tokenizer_driver is not built")
    codes = [code for first, last in ((1, 0x3400), (0xa000, 0xac80), (0xd780, 0xd800), (0xf900, 0x17000), (0x1b000, 0x20000), (0x2a600, 0x32500))
             for code in range(first, last) if name in EXACT or not any(a <= code < b for a, b in NEWER)]
    texts = ["".join(map(chr, codes[at:at + 512])) for at in range(0, len(codes), 512)]
    for text, (expected, got) in zip(texts, spans_of(rf"\p{{{name}}}+", texts, tmp_path)):
        assert got == expected, (hex(ord(text[0])), [span for span in expected if span not in got][:4], [span for span in got if span not in expected][:4])
