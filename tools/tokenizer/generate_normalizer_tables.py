#!/usr/bin/env python3
"""Writes backends/tokenizer/lib/text/normalizer_tables.inc.

Needs `pip install tokenizers==0.23.3 regex`:

    generate_normalizer_tables.py > backends/tokenizer/lib/text/normalizer_tables.inc

The normalizers and pre-tokenizers of tokenizer.json use different Unicode versions, so the script queries the reference for every code point.
Grapheme properties come from `regex`, whose Unicode version is that of the reference.
"""
import regex
from array_text import emit
from tokenizers import normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

# Bits of one code point, in the order of CharTrait in char_traits.h.
ACCENT, NONSPACING, BERT_CONTROL, BERT_PUNCTUATION = 1, 2, 4, 8
GRAPHEME = {"Control": 1, "CR": 1, "LF": 1, "Extend": 2, "ZWJ": 3, "SpacingMark": 4, "Prepend": 5, "Regional_Indicator": 6}
PICTOGRAPHIC = 7


def runs(value_of):
    previous = 0
    for code in range(0x110000):
        value = value_of(code)
        if value != previous:
            yield code, value
            previous = value


def traits():
    bits = [0] * 0x110000
    accents = normalizers.StripAccents()
    nonspacing = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    punctuation = pre_tokenizers.Punctuation()
    for code in CODES:
        char = chr(code)
        bits[code] |= ACCENT * (accents.normalize_str(char) == "")
        bits[code] |= NONSPACING * (nonspacing.normalize_str(char) == "")
        bits[code] |= BERT_CONTROL * (clean.normalize_str(char) == "")
        bits[code] |= BERT_PUNCTUATION * (len(punctuation.pre_tokenize_str("a" + char)) == 2)
    for name, value in GRAPHEME.items():
        for char in regex.findall(rf"\p{{GCB={name}}}", "".join(map(chr, CODES))):
            bits[ord(char)] |= value << 4
    for char in regex.findall(r"\p{Extended_Pictographic}", "".join(map(chr, CODES))):
        if bits[ord(char)] >> 4 == 0:
            bits[ord(char)] |= PICTOGRAPHIC << 4
    return bits


def lowercase_rows():
    lower = normalizers.Lowercase()
    for code in CODES:
        text = lower.normalize_str(chr(code))
        if text != chr(code):
            parts = [ord(char) for char in text] + [0]
            assert len(parts) <= 3
            yield f"{{0x{code:x},0x{parts[0]:x},0x{parts[1]:x}}}"


def compatibility():
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    return [(code, nfkd.normalize_str(chr(code))) for code in CODES if nfkd.normalize_str(chr(code)) != nfd.normalize_str(chr(code))]


def same_script(split, head, codes):
    """Returns those of `codes` that UnicodeScripts does not separate from a preceding `head`."""
    starts = {span[0] for _, span in split.pre_tokenize_str("".join(head + chr(code) for code in codes))}
    return [code for index, code in enumerate(codes) if 2 * index + 1 not in starts]


def script_classes():
    """Returns a script number for each code point as the reference distinguishes scripts; 0 joins any script."""
    split = pre_tokenizers.UnicodeScripts()
    classes, left = {}, CODES
    number = 0
    while left:
        number += 1
        for code in same_script(split, chr(left[0]), left):
            classes[code] = number
        left = [code for code in left if code not in classes]
    first = [code for code in CODES if classes[code] == 1]
    other = next(code for code in CODES if classes[code] == 2)
    for code in same_script(split, chr(other), first):
        classes[code] = 0
    return classes


def main():
    print("// Made by tools/tokenizer/generate_normalizer_tables.py; do not edit. Data: Unicode, Inc. (Unicode License V3).")
    print("// clang-format off")
    bits = traits()
    print("#if defined(UNICODE_TRAIT_RUNS)")
    emit("Starts of runs of equal traits: first code point << 8 | CharTrait bits.", (f"0x{c << 8 | v:x}" for c, v in runs(lambda c: bits[c])))
    print("#elif defined(UNICODE_LOWERCASE)")
    emit("Code point, its lower case, a second character of the lower case or 0.", lowercase_rows())
    table = compatibility()
    print("#elif defined(UNICODE_COMPATIBILITY)")
    offset, rows = 0, []
    for code, text in table:
        rows.append(f"{{0x{code:x},{offset},{len(text)}}}")
        offset += len(text)
    emit("Compatibility decompositions: code point, offset and length in the list below.", rows)
    print("#elif defined(UNICODE_COMPATIBILITY_TEXT)")
    emit("Characters of the compatibility decompositions.", (f"0x{ord(char):x}" for _, text in table for char in text))
    scripts = script_classes()
    print("#elif defined(UNICODE_SCRIPT_RUNS)")
    emit("Starts of runs of one script: first code point << 8 | number of the script.", (f"0x{c << 8 | v:x}" for c, v in runs(lambda c: scripts.get(c, scripts[0x378]))))
    print("#endif")
    print("// clang-format on")


if __name__ == "__main__":
    main()
