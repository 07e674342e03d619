#!/usr/bin/env python3
"""Items of multiple choice in the form of HellaSwag: `banyan eval --suite` against PyTorch's plain loop.

    torch_suite.py BANYAN --tokenizer DIR --text FILE [--items N] [--model DIR] [--rounds N] [--threads N]

Contexts and endings are passages of FILE, as long as HellaSwag's. The plain loop is that of nanochat and of other
small programs: one batch per item, with its four sequences padded to the longest, and the log-probabilities of the
endings from the logits of all tokens. DIR of the tokenizer has GPT-2's encoder.json and vocab.bpe, or tokenizer.json.
Without --model, GPT-2 124M with random weights. Both run alternately on the same weights in f32; the times include
tokenization but not the loading of weights. Prints one JSON line.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import yaml
from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast


def make_items(path, count, rng):
    with open(path, encoding="utf-8") as text:
        words = text.read().split()

    def passage(least, most):
        n = rng.randint(least, most)
        at = rng.randrange(len(words) - n)
        return " ".join(words[at:at + n])

    return [{"ctx": passage(25, 80), "endings": [passage(8, 28) for _ in range(4)], "label": rng.randrange(4)}
            for _ in range(count)]


def plain_loop(model, tokenizer, items):
    """The accuracy by log-probability, and the log-probabilities."""
    right = 0
    sums = []
    with torch.inference_mode():
        for item in items:
            context = tokenizer(item["ctx"])["input_ids"]
            rows = [tokenizer(item["ctx"] + " " + ending)["input_ids"] for ending in item["endings"]]
            longest = max(map(len, rows))
            ids = torch.zeros(4, longest, dtype=torch.long)
            for i, row in enumerate(rows):
                ids[i, :len(row)] = torch.tensor(row)
            logits = model(ids).logits
            losses = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
            scores = [-losses[i, len(context) - 1:len(row) - 1].sum().item() for i, row in enumerate(rows)]
            right += scores.index(max(scores)) == item["label"]
            sums.append(scores)
    return right / len(items), sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("banyan")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    items = make_items(o.text, o.items, random.Random(1))
    with tempfile.TemporaryDirectory() as folder:
        directory = o.model
        if directory is None:
            directory = f"{folder}/model"
            torch.manual_seed(0)
            GPT2LMHeadModel(GPT2Config()).save_pretrained(directory)
            for name in os.listdir(o.tokenizer):
                shutil.copy(f"{o.tokenizer}/{name}", directory)
        model = GPT2LMHeadModel.from_pretrained(directory, dtype=torch.float32).eval()
        if os.path.exists(f"{o.tokenizer}/tokenizer.json"):
            tokenizer = GPT2TokenizerFast(tokenizer_file=f"{o.tokenizer}/tokenizer.json")
        else:
            tokenizer = GPT2TokenizerFast(vocab=f"{o.tokenizer}/encoder.json", merges=f"{o.tokenizer}/vocab.bpe")
        with open(f"{folder}/items.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(item) + "\n" for item in items)
        with open(f"{folder}/suite.yaml", "w", encoding="utf-8") as out:
            yaml.safe_dump({"task": "form", "output_type": "multiple_choice", "test_split": "test",
                            "dataset_kwargs": {"data_files": "items.jsonl"}, "doc_to_text": "ctx",
                            "doc_to_choice": "endings", "doc_to_target": "label"}, out)
        plain_loop(model, tokenizer, items[:4])
        torch_seconds = []
        banyan_seconds = []
        for _ in range(o.rounds):
            began = time.perf_counter()
            accuracy, sums = plain_loop(model, tokenizer, items)
            torch_seconds.append(time.perf_counter() - began)
            done = subprocess.run([o.banyan, "eval", directory, "--suite", f"{folder}/suite.yaml", "--json", "--items-out",
                                   f"{folder}/out.jsonl", "--precision", "f32"], capture_output=True, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": str(o.threads)}, check=True)
            result = json.loads(done.stdout)
            banyan_seconds.append(result["seconds"])
        with open(f"{folder}/out.jsonl", encoding="utf-8") as lines:
            have = [json.loads(line)["log_probabilities"] for line in lines]
        worst = max(abs(a - b) for x, y in zip(have, sums, strict=True) for a, b in zip(x, y, strict=True))
        peer, own = statistics.median(torch_seconds), statistics.median(banyan_seconds)
        print(json.dumps({"items": o.items, "torch": torch.__version__, "torch_seconds": torch_seconds,
                          "banyan_seconds": banyan_seconds, "ratio": round(peer / own, 3),
                          "accuracy": [accuracy, result["tasks"][0]["acc"]["value"]], "tokens": result["tokens"],
                          "computed": result["computed"], "largest_difference": worst}))


main()
