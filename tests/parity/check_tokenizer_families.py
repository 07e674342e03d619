#!/usr/bin/env python3
"""Compares banyan's tokenizers of published families with `tokenizers` as installed, live.

Each family's tokenizer is made here: trained on a small text with that family's normalizer, split
pattern, post-processor and decoder, so that nothing is downloaded. Thousands of random strings must
give equal ids and equal text back.

Usage: check_tokenizer_families.py TOOL [--count N] [--seed N] [--golden DIR]
TOOL is build/debug/tests/tokenizer_tool. --golden also writes the files of the unit test to DIR. Exit
code 0: all equal.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = CL100K.replace("{1,3}", "")
QWEN_MARKS = QWEN.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
FIRST, SECOND = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
CASED_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = FIRST + ENDING + "|" + SECOND + ENDING + r"|\p{N}{1,3}" + CASED_REST
TEKKEN = FIRST + "|" + SECOND + r"|\p{N}" + CASED_REST
BAR = "\u2581"
GOLDEN = ("llama3", "gpt4o", "qwen", "smollm", "llama2", "mistral", "gemma", "unknown", "bert", "bert-cased", "t5",
          "albert", "xlm-r", "unigram-bytes")

WORDS = ("the of and to in is it's don't we'll I'm they've you're he'd THE And iPhone XMLHttpRequest "
         "HTMLElement caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m Stra\u00dfe \u0130stanbul \u4f60\u597d"
         "\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab "
         "\u041f\u0440\u0438\u0432\u0435\u0442 \u03ba\u03cc\u03c3\u03bc\u03b5 \u0645\u0631\u062d\u0628\u0627 "
         "\u0939\u093f\u0928\u094d\u0926\u0940 12 2026 3.14159 1,000,000 0x7f \u0663\u0664 \u00bd \u2167 "
         "foo_bar(x, y) == != -> :: // ... --- ;) \U0001f600 \U0001f468\u200d\U0001f469 #!/bin/sh a/b/c").split(" ")
PIECES = WORDS + [" ", "  ", "   ", "\n", "\n\n", "\r\n", " \n", "\n ", "\t", "\u00a0", "\u3000", "\u2028",
                  "'", "'S", "'LL", "'\u017f", "\u017f", "\u212a", "'t", "\u02b0", "\u01c5", "\u0301", "\u0323",
                  "\u0345", "\u0334", "\u0915\u093c", "\u1100\u1161\u11a8", "\uac00\u11a8", "\ufb01", "\u2460",
                  "\uff21", "\u00b5", "\u2126", "A\u030a", "/", "//\n", "!\n/", BAR, BAR + BAR, "<|end|>", "<s>",
                  "</s>", "<tool>", "wordy", "caf\u00e9s", "\x00", "\u0085", "\u200b", "\ufeff", "<0x41>", "<0xE2>",
                  "<unk>", "\ue000", "\U0010ffff", "Aa", "aA", "AAa", "\u01c5a", "\u4e16A", "a\u4e16"]


def corpus(rng):
    lines = []
    for _ in range(1500):
        lines.append("".join(rng.choice(WORDS) + rng.choice([" ", " ", " ", "  ", ", ", ".\n", "\n", ""])
                             for _ in range(rng.randint(3, 20))))
    return lines


def strings(rng, count):
    out = ["", " ", "  ", "a", " a", "a ", "\n", BAR, "<s>", "<s>a", "a<s> b", "x" * 200, " " * 200, "ab" * 300,
           "\u0301" * 60, "a" + "\u0323\u0301" * 40]
    while len(out) < count:
        chars = []
        for _ in range(rng.randint(1, 20)):
            if rng.random() < 0.75:
                chars.append(rng.choice(PIECES))
            else:
                code = rng.choice([rng.randrange(0x80), rng.randrange(0x80), rng.randrange(0x3000),
                                   rng.randrange(0x110000)])
                chars.append(chr(code) if not 0xD800 <= code < 0xE000 else "?")
        out.append("".join(chars))
    return out


def train(tokenizer, lines, special, vocab=700, alphabet=(), **options):
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocab, show_progress=False, special_tokens=special, initial_alphabet=list(alphabet), **options))
    return tokenizer


def byte_level(lines, pre, normalizer=None, ignore_merges=False, around=False, special=("<|end|>",)):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    train(t, lines, list(special), alphabet=pre_tokenizers.ByteLevel.alphabet())
    if ignore_merges:
        data = json.loads(t.to_str())
        data["model"]["ignore_merges"] = True
        vocab = data["model"]["vocab"]  # tokens that no merge makes, as Llama 3 has
        for word in ("\u0120the", "wordy", "\u0120XMLHttpRequest", "2026"):
            vocab.setdefault(word, len(vocab))
        t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if around:
        t.add_special_tokens([AddedToken("<s>", normalized=False)])
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                          special_tokens=[("<s>", t.token_to_id("<s>"))])])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("wordy", single_word=True),
                  AddedToken("caf\u00e9s", normalized=True), AddedToken("//\n", lstrip=True, rstrip=True)])
    return t


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert=invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(lines, normalizer, pre, decoder, fallback=True, fuse=True, template=True, drop=()):
    special = ["<unk>", "<s>", "</s>"]
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Replace(" ", BAR)
    t.pre_tokenizer = pre_tokenizers.Split(BAR, "merged_with_next")
    train(t, lines, special, vocab=500, limit_alphabet=60)
    model = json.loads(t.to_str())["model"]
    order = special + [f"<0x{b:02X}>" for b in range(256) if b not in drop] if fallback else special
    order += [token for token, _ in sorted(model["vocab"].items(), key=lambda x: x[1]) if token not in special]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(order))}
    merges = [tuple(m) for m in model["merges"]]
    # Every way to make a token of two is a merge, as files converted from SentencePiece have it.
    ranked = []
    for left, right in merges:
        token = left + right
        ranked += [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
    t = Tokenizer(models.BPE(vocab=vocab, merges=list(dict.fromkeys(ranked)), unk_token="<unk>", fuse_unk=fuse,
                             byte_fallback=fallback))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    t.add_special_tokens([AddedToken(s, normalized=False) for s in special])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("wordy", normalized=True),
                  AddedToken(BAR + BAR, normalized=False)])
    if template:
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def wordpiece(lines, **options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=options.pop("longest", 100)))
    t.normalizer = normalizers.BertNormalizer(**options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=600, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("wordy", single_word=True)])
    return t


def charsmap(pairs):
    """A map of characters as SentencePiece compiles it: a double array of keys, each with the offset of its text."""
    keys, texts, units, used = {}, b"", {0: 0}, {0}
    for key, text in pairs:
        keys[key.encode()] = len(texts)
        texts += text.encode() + b"\0"

    def expand(at, prefix):
        below = sorted({k[len(prefix)] for k in keys if k.startswith(prefix) and len(k) > len(prefix)})
        below = ([0] if prefix in keys else []) + below
        base = 256
        while any(base ^ c in used for c in below) or base ^ at >= 1 << 21:
            base += 1
        used.update(base ^ c for c in below)
        units[at] = units[at] | (base ^ at) << 10 | (1 << 8 if prefix in keys else 0)
        for c in below:
            units[base ^ c] = 1 << 31 | keys[prefix] if c == 0 else c
        for c in below:
            if c:
                expand(base ^ c, prefix + bytes([c]))

    expand(0, b"")
    count = (max(units) // 256 + 1) * 256
    return struct.pack(f"<I{count}I", 4 * count, *(units.get(i, 0) for i in range(count))) + texts


CHARSMAP = charsmap([
    ("\n", " "), ("\r", " "), ("\t", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", " "), ("\x01", ""), ("\ufb01", "fi"),
    ("\uff21", "A"), ("\u2460", "1"), ("\u00bd", "1/2"), ("e\u0301", "\u00e9"), ("A\u030a", "\u00c5"), ("\u00b5", "\u03bc"),
    ("\u2122", "TM"), ("\u00a9", "(c)"), ("\u0301", "'"), ("\u1161", "\u314f"), ("\u0958", "\u0915\u093c")])


def unigram(lines, normalizer, pre, decoder=None, fallback=False, template="$A </s>"):
    special = ["<pad>", "</s>", "<unk>", "[CLS]", "[SEP]"]
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=500, show_progress=False, special_tokens=special,
                                                         unk_token="<unk>"))
    vocab = json.loads(t.to_str())["model"]["vocab"]
    if fallback:
        vocab += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    else:
        vocab = [v for v in vocab if v[0] not in ("x", "y", "\u4f60")]
    t = Tokenizer(models.Unigram([tuple(v) for v in vocab], 2, fallback))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer, t.decoder = pre, decoder or decoders.Metaspace()
    t.add_special_tokens([AddedToken(s, normalized=False) for s in special])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("wordy", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single=template, special_tokens=[
        ("</s>", 1), ("[CLS]", 3), ("[SEP]", 4)])
    return t


def families(lines):
    precompiled = normalizers.Precompiled(CHARSMAP)
    spaces, words = normalizers.Replace(Regex(" {2,}"), " "), pre_tokenizers.WhitespaceSplit()
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
              normalizers.StripAccents(), normalizers.Lowercase()]
    legacy = normalizers.Sequence([normalizers.Prepend(BAR), normalizers.Replace(" ", BAR)])
    llama_decoder = decoders.Sequence([decoders.Replace(BAR, " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    gemma_decoder = decoders.Sequence([decoders.Replace(BAR, " "), decoders.ByteFallback(), decoders.Fuse()])
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])
    nfkc = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    return {
        "gpt2": byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "gpt2-prefix": byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "llama3": byte_level(lines, split(CL100K), ignore_merges=True, around=True),
        "gpt4": byte_level(lines, split(CL100K, "removed", True)),
        "gpt4o": byte_level(lines, split(O200K, "removed", True)),
        "tekken": byte_level(lines, split(TEKKEN), around=True),
        "qwen": byte_level(lines, split(QWEN), normalizers.NFC()),
        "qwen-marks": byte_level(lines, split(QWEN_MARKS), normalizers.NFC()),
        "smollm": byte_level(lines, digits),
        "number-groups": byte_level(lines, pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Digits(),
             pre_tokenizers.ByteLevel(add_prefix_space=False)]), normalizers.NFD()),
        "nfkc": byte_level(lines, split(CL100K), nfkc),
        "nfkd": byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFKD()),
        "llama2": sentencepiece(lines, legacy, None, llama_decoder),
        "mistral": sentencepiece(lines, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                                 llama_decoder),
        "metaspace": sentencepiece(lines, None, pre_tokenizers.Metaspace(), decoders.Metaspace(), fallback=False,
                                   fuse=False),
        "gemma": sentencepiece(lines, normalizers.Replace(" ", BAR), pre_tokenizers.Split(" ", "merged_with_previous"),
                               gemma_decoder),
        "unknown": sentencepiece(lines, legacy, None, llama_decoder, drop=range(0xC0, 0xD0)),
        "unfused": sentencepiece(lines, legacy, pre_tokenizers.Split(BAR, "isolated"), llama_decoder, fallback=False,
                                 fuse=False, template=False),
        "bert": wordpiece(lines),
        "bert-cased": wordpiece(lines, lowercase=False, longest=6),
        "bert-accents": wordpiece(lines, strip_accents=False, handle_chinese_chars=False),
        "bert-raw": wordpiece(lines, clean_text=False, lowercase=False, strip_accents=True),
        "t5": unigram(lines, normalizers.Sequence([precompiled, normalizers.Strip(left=False, right=True),
                                                   normalizers.Replace(Regex(" {2,}"), BAR)]),
                      pre_tokenizers.Metaspace()),
        "albert": unigram(lines, normalizers.Sequence(quotes + [precompiled, spaces]), pre_tokenizers.Metaspace(),
                          template="[CLS] $A [SEP]"),
        "xlm-r": unigram(lines, precompiled, pre_tokenizers.Sequence([words, pre_tokenizers.Metaspace()])),
        "unigram-bytes": unigram(lines, normalizers.Sequence([normalizers.NFKC(), spaces]),
                                 pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                                 decoders.Sequence([decoders.Replace(BAR, " "), decoders.ByteFallback(),
                                                    decoders.Fuse(), decoders.Strip(" ", 1, 0)]), fallback=True),
    }


def ask(tool, tokenizer, flags, texts):
    """[(ids, text)] of banyan."""
    data = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    done = subprocess.run([tool, "both", tokenizer, str(flags)], input=data, capture_output=True)
    if done.returncode:
        sys.exit(f"{tokenizer}: {done.stderr.decode(errors='replace')}")
    out, answers, at = done.stdout, [], 0
    while at < len(out):
        count, length = struct.unpack_from("<II", out, at)
        ids = list(struct.unpack_from(f"<{count}I", out, at + 8))
        at += 8 + 4 * count
        answers.append((ids, out[at:at + length]))
        at += length
    return answers


def check(tool, name, tokenizer, path, texts):
    failures = 0
    for flags in (0, 1, 3):
        tokenizer.encode_special_tokens = flags & 1 == 0
        for text, (ids, back) in zip(texts, ask(tool, path, flags, texts)):
            expected = tokenizer.encode(text, add_special_tokens=flags & 2 != 0).ids
            decoded = tokenizer.decode(expected, skip_special_tokens=False)
            # Where bytes are no UTF-8, Hugging Face puts U+FFFD and banyan leaves the bytes.
            same = "\ufffd" in decoded or back.decode(errors="replace") == decoded
            if ids != expected or not same:
                failures += 1
                if failures <= 3:
                    print(f"  {name}, flags {flags}: {text!r}\n    {expected}\n    {ids}\n    {decoded!r}\n    {back!r}")
    print(("equal    " if not failures else "DIFFERENT ") + f"{name}: {len(texts)} texts")
    return failures


def golden(folder, tokenizers, texts):
    """A small file a family: the tokenizer, and [text, ids, ids with special and around, text back]."""
    for name in GOLDEN:
        tokenizer, cases = tokenizers[name], []
        for text in texts:
            if "\x00" in text:
                continue
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            decoded = tokenizer.decode(plain, skip_special_tokens=False)
            cases.append([text, plain, tokenizer.encode(text).ids, None if "\ufffd" in decoded else decoded])
        with open(os.path.join(folder, f"family_{name}.json"), "w", encoding="ascii") as out:
            json.dump({"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}, out, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--golden")
    options = parser.parse_args()
    made = families(corpus(random.Random(5)))
    texts = strings(random.Random(options.seed), options.count)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in made.items():
            if options.only and options.only != name:
                continue
            path = os.path.join(folder, name + ".json")
            tokenizer.save(path)
            failures += check(options.tool, name, tokenizer, path, texts)
    if options.golden:
        golden(options.golden, made, strings(random.Random(2), 60))
    sys.exit(1 if failures else 0)


main()
