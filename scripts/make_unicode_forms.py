#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_forms.c: normal forms, and the case of letters.

Both are asked of the `tokenizers` library itself (pip install tokenizers), so that they are those of
the Unicode versions that it was built with: decompositions and compositions are what its normalizers
make of each code point, cases what its regular expressions match. Combining classes are those of
Python for the marks that the library moves.

Usage: scripts/make_unicode_forms.py [OUTPUT]
"""
import os
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers

NFC, NFD, NFKD = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
HANGUL = range(0xAC00, 0xD7A4)
UPPER, LOWER, EITHER, MARK = 1, 2, 3, 4
OVERLAY, IOTA = "\u0334", "\u0345"  # of classes 1 and 240


def combining_class(c):
    """0 where the library does not know the mark."""
    kind = unicodedata.combining(c)
    if kind == 0 or NFD.normalize_str(c) != c:
        return 0
    if kind > 1:
        return kind if NFD.normalize_str(c + OVERLAY) == OVERLAY + c else 0
    return kind if NFD.normalize_str(IOTA + c) == c + IOTA else 0


def matched(points, pattern):
    """The characters of which a regular expression leaves nothing."""
    left = set(normalizers.Replace(Regex(pattern), "").normalize_str("".join(points)))
    return {c for c in points if c not in left}


def ranges(values):
    """[(first, last, value)] of a {code: value}."""
    out = []
    for code in sorted(values):
        if out and out[-1][1] == code - 1 and out[-1][2] == values[code]:
            out[-1][1] = code
        else:
            out.append([code, code, values[code]])
    return out


def rows(out, items):
    line = "   "
    for item in items:
        text = f" {item},"
        if len(line) + len(text) > 96:
            out.write(line + "\n")
            line = "   "
        line += text
    out.write(line + "\n};\n\n")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    output = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        root, "src", "text", "unicode", "unicode_forms.c")
    codes = [i for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    points = [chr(i) for i in codes]

    pool, places, decompositions, pairs, suspects = [], {}, [], [], {}
    classes = {ord(c): k for c in points if (k := combining_class(c))}

    def place(text):
        if text not in places:
            places[text] = len(pool)
            pool.extend(ord(c) for c in text)
        return places[text]

    for code, c in zip(codes, points):
        if code in HANGUL:
            continue
        canonical, compatible = NFD.normalize_str(c), NFKD.normalize_str(c)
        if compatible != c:
            first = (place(canonical), len(canonical)) if canonical != c else (0, 0)
            decompositions.append((code, *first, place(compatible), len(compatible)))
        if canonical != c and NFC.normalize_str(c) == c:
            head = NFC.normalize_str(canonical[:-1])
            assert len(head) == 1, hex(code)
            pairs.append((ord(head), ord(canonical[-1]), code))
            suspects[ord(canonical[-1])] = 0
        if NFC.normalize_str(c) != c or code in classes:
            suspects[code] = 0
    for code in [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]:
        suspects[code] = 0
    assert len(pool) < 65536

    cases = {}
    for kind, pattern in ((UPPER, r"[\p{Lu}\p{Lt}]"), (LOWER, r"\p{Ll}"), (EITHER, r"[\p{Lm}\p{Lo}]"),
                          (MARK, r"\p{M}")):
        for c in matched(points, pattern):
            assert ord(c) not in cases
            cases[ord(c)] = kind

    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by scripts/make_unicode_forms.py from tokenizers "
                  f"{tokenizers.__version__}. Do not edit. */\n"
                  '#include "text/unicode/unicode_forms.h"\n\n/* clang-format off */\n')
        out.write("const uint32_t by__text_form_pool[] = {\n")
        rows(out, pool)
        out.write("const by__text_decomposition by__text_decompositions[] = {\n")
        rows(out, ("{%d,%d,%d,%d,%d}" % (d[0], d[1], d[3], d[2], d[4]) for d in decompositions))
        out.write("const by__text_composition by__text_compositions[] = {\n")
        rows(out, ("{%d,%d,%d}" % p for p in sorted(pairs)))
        for name, values in (("combining", classes), ("suspects", suspects), ("cases", cases)):
            out.write(f"const by__text_tokenizer_code_range by__{name}[] = {{\n")
            rows(out, ("{%d,%d,%d}" % tuple(r) for r in ranges(values)))
        for count, name in (("decomposition", "decompositions"), ("composition", "compositions"),
                            ("combining", "combining"), ("suspect", "suspects"), ("case", "cases")):
            line = f"const size_t by__{count}_count = sizeof by__{name} / sizeof by__{name}[0];\n"
            out.write(line if len(line) <= 100 else line.replace(" = ", " =\n    "))


if __name__ == "__main__":
    main()
