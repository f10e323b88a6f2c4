#!/usr/bin/env python3
"""Writes backends/tokenizer/lib/text/unicode_tables.inc.

Needs `pip install unicodedata2==16.0.0` and DerivedAge.txt of the Unicode character database (Debian's package
unicode-data has it):

    generate_unicode_tables.py DerivedAge.txt > backends/tokenizer/lib/text/unicode_tables.inc

The Unicode versions are those of the reference (PyPI tokenizers 0.23): general categories of Unicode 16 in patterns,
numbers of Unicode 17 in the Digits pre-tokenizer, normalization data of Unicode 9. Code points assigned after Unicode 14
have a separate table, for patterns that run on PCRE2.
"""
import sys

import unicodedata2 as ucd
from array_text import emit

NORMALIZATION_AGE = (9, 0)
NUMERIC_SINCE_17 = [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)]
SPACES_IN_CC = {*range(0x09, 0x0E), 0x85}

# Two-letter categories that patterns distinguish; the others are folded into the one-letter classes.
CLASSES = ["Other", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "Nl", "No", "Pc", "P", "S", "Space", "Numeric17"]


def class_of(code):
    if code in SPACES_IN_CC:
        return "Space"
    if code in NUMERIC_SINCE_17:
        return "Numeric17"
    category = ucd.category(chr(code))
    if category in CLASSES:
        return category
    if category[0] == "Z":
        return "Space"
    return category[0] if category[0] in "MPS" else "Other"


def read_ages(path):
    ages = {}
    for line in open(path):
        line = line.split("#")[0].strip()
        if not line:
            continue
        span, age = (part.strip() for part in line.split(";"))
        low, _, high = span.partition("..")
        for code in range(int(low, 16), int(high or low, 16) + 1):
            ages[code] = tuple(int(n) for n in age.split("."))
    return ages


def class_rows():
    previous = None
    for code in range(0x110000):
        index = CLASSES.index(class_of(code))
        if index != previous:
            yield f"0x{code << 4 | index:x}"
            previous = index


def combining_rows(known):
    previous = 0
    for code in range(0x110000):
        value = ucd.combining(chr(code)) if known(code) else 0
        if value != previous:
            yield f"0x{code << 8 | value:x}"
            previous = value


def decomposition_rows(known):
    for code in range(0x110000):
        text = ucd.decomposition(chr(code))
        if not text or text[0] == "<" or not known(code):
            continue
        parts = [int(part, 16) for part in text.split()] + [0]
        composes = parts[1] != 0 and ucd.normalize("NFC", chr(code)) == chr(code)
        yield f"{{0x{code:x},0x{parts[0]:x},0x{parts[1]:x},{int(composes)}}}"


def since_14_rows(ages):
    start = None
    for code in range(0x110001):
        is_new = code < 0x110000 and ucd.category(chr(code)) != "Cn" and ages.get(code, (99, 0)) > (14, 0)
        if is_new and start is None:
            start = code
        if not is_new and start is not None:
            yield f"{{0x{start:x},0x{code - 1:x}}}"
            start = None


def main():
    assert ucd.unidata_version == "16.0.0", ucd.unidata_version
    ages = read_ages(sys.argv[1])

    def known(code):
        return ages.get(code, (99, 0)) <= NORMALIZATION_AGE

    print("// Made by tools/tokenizer/generate_unicode_tables.py; do not edit. Data: Unicode, Inc. (Unicode License V3).")
    print("// clang-format off")
    print("#if defined(UNICODE_CLASS_RUNS)")
    emit("Starts of runs of one CharClass: first code point << 4 | class.", class_rows())
    print("#elif defined(UNICODE_COMBINING_RUNS)")
    emit("Starts of runs of one canonical combining class: first code point << 8 | class.", combining_rows(known))
    print("#elif defined(UNICODE_DECOMPOSITIONS)")
    emit("Canonical decompositions: code point, first, second or 0, whether the pair composes to the code point.",
         decomposition_rows(known))
    print("#elif defined(UNICODE_SINCE_14)")
    emit("Ranges assigned after Unicode 14, unknown to PCRE2 10.42: first and last code point.", since_14_rows(ages))
    print("#endif")
    print("// clang-format on")


if __name__ == "__main__":
    main()
