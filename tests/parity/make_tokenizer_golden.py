#!/usr/bin/env python3
"""Makes the golden files of the tokenizer tests with `tokenizers` and tiktoken (from PyPI).

tokenizer_corpus.txt   a small text in many scripts, with many equal counts of pairs
tokenizer_small.json   what BpeTrainer learns from it (600 tokens)
tokenizer_added.json   the same with added tokens of every kind
tokenizer_cases.json   [text, ids of small, ids of small with special tokens, ids of added] ...

Usage: make_tokenizer_golden.py [DIRECTORY]
"""
import json
import os
import random
import sys

import tiktoken
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
END = "<|endoftext|>"
SCRIPTS = [(0x61, 0x7A)] * 12 + [(0x41, 0x5A), (0x430, 0x44F), (0x3B1, 0x3C9), (0x4E00, 0x4E40),
                                 (0x3042, 0x3060), (0x905, 0x939), (0x5D0, 0x5EA), (0x627, 0x64A)]
PIECES = ["a", "b", " ", "  ", "\n", "\n\n", "\t", "\r\n", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d",
          "'S", "'", " '", "''s", "1", "42", " 7", "!", "...", " - ", "\u2014", "\u00e9", "e\u0301",
          "\u00df", "\u0130", "\u4e16\u754c", "\u3042", "\u0905\u092e", "\u0639\u0631\u0628", "\ud55c",
          "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u00a0",
          "\u3000", "\u2028", "\u2009", "\u0085", "\u200b", "\ufeff", "\x00", "\x1c", "\x7f", "\u0663",
          "\u00bd", "\u2167", "\u00b2", "\U0001d7d8", "\U0001d400", "\ue000", "\U000e0100", "\U0010ffff",
          "<|endoftext|>", "<|endof", "<tool>", "<pad>", "word", "<mask>", " <mask> "]


def corpus(rng):
    words = []
    for _ in range(400):
        low, high = rng.choice(SCRIPTS)
        letters = [chr(rng.randint(low, high)) for _ in range(6)]
        words.append("".join(rng.choice(letters) for _ in range(rng.randint(1, 9))))
    words += ["aaaa", "aaaaaaa", "abababab", "aabaab", "don't", "we'll", "2026", "...", "----", "==="]
    lines = []
    for _ in range(220):
        line = " ".join(rng.choice(words) for _ in range(rng.randint(1, 12)))
        lines.append(line + rng.choice(["", ".", "!", "  ", "\t", " 12"]))
    return "\n".join(lines) + "\n\n  \n"


def texts(rng):
    out = ["", " ", "\n", "a", END, END + END, "a" * 47, "a" * 48, "a" * 49, "ab" * 300, "a" * 1000,
           " " * 100, "\n" * 50 + "a", " a", "  a", "   ", "a  ", "a \n b", "'s", "x's y'll z'd"]
    out += PIECES
    for _ in range(150):
        out.append("".join(rng.choice(PIECES) for _ in range(rng.randint(1, 25))))
    for _ in range(100):
        chars = []
        while len(chars) < rng.randint(1, 30):
            code = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x110000)])
            if not 0xD800 <= code < 0xE000:
                chars.append(chr(code))
        out.append("".join(chars))
    return out


def byte_of_letters():
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(b): b for b in own}
    for n, b in enumerate(b for b in range(256) if b not in own):
        table[chr(256 + n)] = b
    return table


def learn(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=[END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "golden")
    rng = random.Random(7)
    text = corpus(rng)
    with open(os.path.join(folder, "tokenizer_corpus.txt"), "w", encoding="utf-8", newline="") as out:
        out.write(text)
    small = learn(text)
    small.save(os.path.join(folder, "tokenizer_small.json"), pretty=False)

    added = Tokenizer.from_str(small.to_str())
    added.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>>", normalized=True),
                      AddedToken("word", single_word=True, normalized=False),
                      AddedToken("!!", normalized=True), AddedToken(" - ", normalized=True)])
    added.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                              AddedToken("<pad>", rstrip=True, normalized=False)])
    added.save(os.path.join(folder, "tokenizer_added.json"), pretty=False)

    letters = byte_of_letters()
    ranks = {bytes(letters[c] for c in token): i for token, i in small.get_vocab().items() if token != END}
    tik = tiktoken.Encoding("small", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={END: 0})
    cases = []
    for case in texts(rng):
        small.encode_special_tokens = True
        ordinary = small.encode(case).ids
        small.encode_special_tokens = False
        special = small.encode(case).ids
        assert tik.encode_ordinary(case) == ordinary, case
        assert tik.encode(case, allowed_special="all") == special, case
        cases.append([case, ordinary, special, added.encode(case).ids])
    with open(os.path.join(folder, "tokenizer_cases.json"), "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


main()
