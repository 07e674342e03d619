#!/usr/bin/env python3
"""The twin of `banyan bench pack`: speed of tiktoken and of Hugging Face tokenizers on given text files, and the time
that the latter takes to train a byte-level BPE. Prints one JSON line.

    tokenize_peers.py tiktoken   --vocabulary DIR FILE...     DIR: GPT-2's encoder.json and vocab.bpe
    tokenize_peers.py tokenizers --vocabulary DIR FILE...
    tokenize_peers.py train      --size 8192 FILE...

A file is cut at line ends into pieces of about 256 KiB, which both encode as a batch on --threads threads. MB
are 10^6 bytes of UTF-8. What is timed is the encoding, from text in memory to ids.
"""
import argparse
import json
import os
import statistics
import time

PIECE = 1 << 18


def read_pieces(paths):
    pieces, total = [], 0
    for path in paths:
        with open(path, "rb") as f:
            data = f.read()
        total += len(data)
        begin = 0
        while begin < len(data):
            end = data.find(b"\n", begin + PIECE) + 1 or len(data)
            pieces.append(data[begin:end].decode("utf-8"))
            begin = end
    return pieces, total


def tiktoken_encoder(directory, threads):
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    from tiktoken_ext.openai_public import r50k_pat_str
    ranks = data_gym_to_mergeable_bpe_ranks(os.path.join(directory, "vocab.bpe"),
                                            os.path.join(directory, "encoder.json"))
    encoding = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": 50256})
    return lambda pieces: encoding.encode_ordinary_batch(pieces, num_threads=threads), tiktoken.__version__


def tokenizers_encoder(directory, threads):
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(
        os.path.join(directory, "encoder.json"), os.path.join(directory, "vocab.bpe")))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    # encode_batch_fast leaves out the offsets, which packing does not need.
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    return lambda pieces: [e.ids for e in encode(pieces)], tokenizers.__version__


def train(paths, size, threads):
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    begin = time.perf_counter()
    tokenizer.train(paths, trainer)
    seconds = time.perf_counter() - begin
    return {"train_s": round(seconds, 3), "vocab": tokenizer.get_vocab_size(), "version": tokenizers.__version__}


def main():
    parser = argparse.ArgumentParser(description="speed of tiktoken and tokenizers")
    parser.add_argument("what", choices=("tiktoken", "tokenizers", "train"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--vocabulary", help="directory with encoder.json and vocab.bpe")
    parser.add_argument("--size", type=int, default=8192, help="train: size of the vocabulary")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    if a.what == "train":
        result = train(a.files, a.size, a.threads)
        result["bytes"] = sum(os.path.getsize(f) for f in a.files)
    else:
        if not a.vocabulary:
            parser.error(f"{a.what} needs --vocabulary DIR")
        encoder = tiktoken_encoder if a.what == "tiktoken" else tokenizers_encoder
        encode, version = encoder(a.vocabulary, a.threads)
        pieces, total = read_pieces(a.files)
        times = []
        for _ in range(a.repeats):
            begin = time.perf_counter()
            ids = encode(pieces)
            times.append(time.perf_counter() - begin)
        result = {"mb_per_s": round(total / 1e6 / statistics.median(times), 2),
                  "tokens": sum(map(len, ids)), "bytes": total, "version": version}
    result["threads"] = a.threads
    print(json.dumps(result))


if __name__ == "__main__":
    main()
