#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_properties.c: what normalizers and pre-tokenizers of BERT and of SentencePiece ask
of a character, and lower case.

All is asked of the `tokenizers` library itself (pip install tokenizers), so that it is that of the Unicode versions
that it was built with. It shows borders of grapheme clusters only through its normalizer Precompiled, which replaces a
cluster of up to five bytes as a whole: with a map from each byte to "b", a text becomes as many "b" as it has such
clusters and characters in longer ones.

Usage: scripts/make_unicode_properties.py [OUTPUT]
"""
import os
import struct
import sys

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from make_unicode_forms import ranges, rows

CONTROL, NONSPACING, PUNCTUATION, MARK = 1, 2, 4, 8
BREAK, EXTEND, SPACING, PREPEND, PICTURE, CONSONANT, LINKER = (i << 4 for i in range(1, 8))


def clusters():
    """Counts the clusters of a text, as above."""
    units = [0] * 1024
    units[0] = 256 << 10  # a double array: the root's children are at 256 ^ byte
    for byte in range(1, 256):
        units[256 ^ byte] = 1 << 8 | byte | (512 ^ 256 ^ byte) << 10  # has a leaf, at 512
    units[512] = 1 << 31
    data = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"b\0"
    normalizer = normalizers.Precompiled(data)
    return lambda text: len(normalizer.normalize_str(text))


def grapheme_class(c, count):
    size = len(c.encode())
    if ord(c) == 0:
        return BREAK
    if count("a" + c) == 1 if size < 5 else False:
        if c == "\u200d":
            return EXTEND
        if size == 3 and count("\u0915" + c + "\u0915\u0301") == 4:
            return LINKER
        return EXTEND if count("\u00a9" + c + "\u200d\u00a9\u0301") == 5 else SPACING
    if count(c + "a") == (1 if size < 5 else 0):
        return PREPEND
    if size < 4 and count(c + "\u0301") == 2 and size + 2 < 6:
        return BREAK
    joined = count(c + "\u200d\u00a9\u0301")
    if joined == 4:
        return PICTURE
    if size == 3 and count("\u0915\u094d" + c + "\u0301") == 4:
        return CONSONANT
    return 0


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    output = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        root, "src", "text", "unicode", "unicode_properties.c")
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    marks, lower = normalizers.StripAccents(), normalizers.Lowercase()
    pre, count = pre_tokenizers.BertPreTokenizer(), clusters()
    spaces = pre_tokenizers.WhitespaceSplit()
    properties, cases = {}, {}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        c, value = chr(code), 0
        value |= CONTROL if clean.normalize_str(c) == "" else 0
        value |= NONSPACING if strip.normalize_str(c) == "" else 0
        value |= MARK if marks.normalize_str(c) == "" else 0
        if not c.isalnum():
            pieces = [p for p, _ in pre.pre_tokenize_str("a" + c + "a")]
            value |= PUNCTUATION if pieces == ["a", c, "a"] else 0
            assert (pieces == ["a", "a"]) == ([p for p, _ in spaces.pre_tokenize_str("a" + c + "a")] == ["a", "a"])
        value |= grapheme_class(c, count)
        if value:
            properties[code] = value
        small = lower.normalize_str(c)
        if small != c:
            assert len(small) == 1 or code == 0x130, hex(code)
            cases[code] = ord(small[0])

    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by scripts/make_unicode_properties.py from tokenizers "
                  f"{tokenizers.__version__}. Do not edit. */\n"
                  '#include "text/unicode/unicode_properties.h"\n\n/* clang-format off */\n')
        out.write("const by__text_tokenizer_code_range by__text_properties[] = {\n")
        rows(out, ("{%d,%d,%d}" % tuple(r) for r in ranges(properties)))
        out.write("const by__text_case by__text_lower_cases[] = {\n")
        rows(out, ("{%d,%d}" % pair for pair in sorted(cases.items())))
        out.write("const size_t by__text_property_count = sizeof by__text_properties / sizeof by__text_properties[0];\n"
                  "const size_t by__text_lower_case_count =\n"
                  "    sizeof by__text_lower_cases / sizeof by__text_lower_cases[0];\n")


main()
