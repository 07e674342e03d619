#!/usr/bin/env python3
"""Compares banyan's tokenizers with `tokenizers` and tiktoken as installed (from PyPI), live.

200 random strings over all of Unicode and the texts given go through the committed small tokenizer
and, where --gpt2 names a directory with encoder.json and vocab.bpe, through GPT-2's: the ids must be
equal. A vocabulary learned from the texts must equal that of BpeTrainer, merge for merge, and a
character vocabulary must give the same ids when `tokenizers` loads it. Bytes that are generated one
by one must become the text that Python decodes with errors="replace": all strings of up to two bytes,
and all of up to four in which each byte stands for those that UTF-8 treats alike.

Usage: check_tokenizers.py TOOL [--gpt2 DIR] [--vocab N] [--seed N] [TEXT...]
TOOL is build/release/tests/tokenizer_tool. Exit code 0: all equal.
"""
import argparse
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
END = "<|endoftext|>"
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
failures = 0


def check(what, good):
    global failures
    print(("equal    " if good else "DIFFERENT ") + what)
    failures += not good


def run(tool, *arguments, data=b""):
    done = subprocess.run([tool, *map(str, arguments)], input=data, capture_output=True)
    if done.returncode:
        sys.exit(f"{tool} {arguments[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def encode(tool, tokenizer, texts, special=False):
    data = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    out = run(tool, "encode", tokenizer, int(special), data=data)
    ids, at = [], 0
    while at < len(out):
        (count,) = struct.unpack_from("<I", out, at)
        ids.append(list(struct.unpack_from(f"<{count}I", out, at + 4)))
        at += 4 + 4 * count
    return ids


def random_strings(rng, count):
    strings = []
    for _ in range(count):
        kind, chars = rng.choice(["all", "low", "mixed"]), []
        while len(chars) < rng.randint(1, 120):
            top = {"all": 0x110000, "low": 0x3000}.get(kind) or rng.choice([0x80, 0x80, 0x800, 0x110000])
            code = rng.randrange(top)
            if not 0xD800 <= code < 0xE000:
                chars.append(chr(code))
            if kind == "mixed" and rng.random() < 0.2:
                chars.append(rng.choice([" ", "  ", "\n", "'s", "'re", END, "\u00a0", "e\u0301"]))
        strings.append("".join(chars))
    return strings


def bytes_of_token():
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(b): b for b in own}
    for n, b in enumerate(b for b in range(256) if b not in own):
        table[chr(256 + n)] = b
    return lambda token: bytes(table[c] for c in token)


def compare(tool, name, path, json_path, texts):
    """`path` is what banyan opens, `json_path` the same for `tokenizers`."""
    other = Tokenizer.from_file(json_path)
    vocab = other.get_vocab()
    token_bytes = bytes_of_token()
    tik = tiktoken.Encoding("check", pat_str=GPT2, special_tokens={END: vocab[END]},
                            mergeable_ranks={token_bytes(t): i for t, i in vocab.items() if t != END})
    for special in (False, True):
        ours = encode(tool, path, texts, special)
        other.encode_special_tokens = not special
        check(f"{name}, special={special}, tokenizers", ours == [other.encode(t).ids for t in texts])
        allowed = "all" if special else set()
        check(f"{name}, special={special}, tiktoken",
              ours == [tik.encode(t, allowed_special=allowed, disallowed_special=()) for t in texts])


def compare_learning(tool, folder, files, texts, vocab):
    path = os.path.join(folder, "learned.json")
    run(tool, "bpe", vocab, 2, 2, path, *files)
    other = Tokenizer(models.BPE())
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    other.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, show_progress=False, special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs = json.loads(other.to_str())["model"]
    with open(path, encoding="utf-8") as file:
        ours = json.load(file)["model"]
    check(f"learned vocabulary of {vocab}", ours["vocab"] == theirs["vocab"])
    check(f"{len(theirs['merges'])} learned merges", ours["merges"] == theirs["merges"])


def compare_characters(tool, folder, file, text):
    path = os.path.join(folder, "characters.json")
    run(tool, "char", path, file)
    other = Tokenizer.from_file(path)
    ours = encode(tool, path, [text])[0]
    letters = {c: i for i, c in enumerate(sorted(set(text)))}
    check("character ids, by definition", ours == [letters[c] for c in text])
    check("character ids, tokenizers", ours == other.encode(text).ids)
    check("characters decoded by tokenizers", other.decode(ours) == text)


# The first and the last of each range of bytes that the table of well-formed UTF-8 (Unicode, 3.9) tells apart.
KINDS = bytes.fromhex("01 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


def compare_broken(tool, tokenizer):
    """NUL is left out: texts of banyan have U+FFFD for it."""
    texts = [bytes(t) for n in (1, 2) for t in itertools.product(range(1, 256), repeat=n)]
    texts += [bytes(t) for n in (3, 4) for t in itertools.product(KINDS, repeat=n)]
    out = run(tool, "stream", tokenizer, data=b"".join(struct.pack("<I", len(t)) + t for t in texts))
    wanted = (t.decode("utf-8", "replace").encode() for t in texts)
    check(f"{len(texts)} texts of bytes, as Python decodes them",
          out == b"".join(struct.pack("<I", len(t)) + t for t in wanted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--gpt2")
    parser.add_argument("--vocab", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_intermixed_args()
    strings = random_strings(random.Random(options.seed), 200)
    files = options.texts or [os.path.join(GOLDEN, "tokenizer_corpus.txt")]
    texts = []
    for file in files:
        with open(file, encoding="utf-8", newline="") as content:
            texts.append(content.read())
    small = os.path.join(GOLDEN, "tokenizer_small.json")
    with tempfile.TemporaryDirectory() as folder:
        compare(options.tool, "small", small, small, strings + texts)
        compare_broken(options.tool, small)
        if options.gpt2:
            saved = os.path.join(folder, "gpt2.json")
            run(options.tool, "resave", options.gpt2, saved)
            compare(options.tool, "gpt2", options.gpt2, saved, strings + texts)
        compare_learning(options.tool, folder, files, texts, options.vocab)
        compare_characters(options.tool, folder, files[0], texts[0])
    sys.exit(1 if failures else 0)


main()
