#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_classes.c: the class of every code point.

The classes are asked of the `tokenizers` library itself (pip install tokenizers tiktoken), so that
they are those of the Unicode version that it was built with: whether a character joins a run of
letters, of numbers or of symbols under GPT-2's pattern, else it is a space; and whether it is \\w
to the matching of added tokens. tiktoken is asked as well and must agree.

Usage: scripts/make_unicode_classes.py [OUTPUT]
"""
import os
import sys

import tiktoken
import tokenizers
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel

OTHER, LETTER, NUMBER, SPACE, WORD = 0, 1, 2, 3, 4
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
PROBES = (("a", LETTER), ("1", NUMBER), ("!", OTHER))


def classes_of_tokenizers(points):
    split = ByteLevel(add_prefix_space=False)

    def classify(c):
        for probe, kind in PROBES:
            if len(split.pre_tokenize_str(probe + c)) == 1:
                return kind
        return SPACE

    return [classify(c) for c in points]


def classes_of_tiktoken(points):
    """Each character, and each behind each probe, is a token: one piece encodes to one id."""
    ranks = {bytes([i]): i for i in range(256)}
    for c in points:
        data = c.encode()
        for i in range(2, len(data) + 1):
            ranks.setdefault(data[:i], len(ranks))
    for c in points:
        for probe, _ in PROBES:
            ranks.setdefault(probe.encode() + c.encode(), len(ranks))
    encoding = tiktoken.Encoding("probe", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})

    def classify(c):
        for probe, kind in PROBES:
            if len(encoding.encode_ordinary(probe + c)) == 1:
                return kind
        return SPACE

    return [classify(c) for c in points]


def words(points):
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("<X>", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("<X>")
    return [token not in tokenizer.encode("<X>" + c).ids for c in points]


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    output = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        root, "src", "text", "unicode", "unicode_classes.c")
    codes = [i for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    points = [chr(i) for i in codes]
    kinds = classes_of_tokenizers(points)
    differ = sum(a != b for a, b in zip(kinds, classes_of_tiktoken(points)))
    if differ:
        sys.exit(f"tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__} differ "
                 f"in {differ} characters: the Unicode versions differ; follow tokenizers and say so")
    table = [OTHER] * 0x110000
    for code, kind, word in zip(codes, kinds, words(points)):
        table[code] = kind | (WORD if word else 0)

    blocks, index = {}, []
    for start in range(0, len(table), 256):
        block = tuple(table[start + i] | table[start + i + 1] << 4 for i in range(0, 256, 2))
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by scripts/make_unicode_classes.py from tokenizers "
                  f"{tokenizers.__version__} (Unicode 16.0),\n * with which tiktoken "
                  f"{tiktoken.__version__} agrees. Do not edit. */\n"
                  '#include "text/unicode/unicode.h"\n\n/* clang-format off */\n')
        out.write("const uint8_t by__unicode_index[BY__UNICODE_BLOCKS] = {\n")
        for i in range(0, len(index), 24):
            out.write("    " + ",".join(map(str, index[i:i + 24])) + ",\n")
        out.write("};\n\nconst uint8_t by__unicode_nibbles[][128] = {\n")
        for block in blocks:
            out.write("    {\n")
            for i in range(0, 128, 32):
                out.write("        " + ",".join(map(str, block[i:i + 32])) + ",\n")
            out.write("    },\n")
        out.write("};\n")


main()
