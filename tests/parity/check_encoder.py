#!/usr/bin/env python3
"""Encoders of banyan against transformers.

    check_encoder.py expect DIR OUT.npz              texts of several lengths and with two segments, padded, and one alone,
                                                     and what transformers' model of DIR says of them
    check_encoder.py head FILE.onnx IN.npz           the ONNX graph, run by onnxruntime, says the same of them
    check_encoder.py pairs DIR VOCAB CSV LINES MOST  what `banyan predict` says in LINES of the columns "first" and "second"
                                                     of CSV is what transformers' model of DIR says of them, as its own
                                                     BertTokenizer with the vocabulary VOCAB pairs and cuts them at MOST
                                                     tokens
"""
import csv
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

BOUND = 1e-4


def fail(message):
    sys.exit(f"check_encoder: {message}")


def load(directory):
    import transformers
    with open(os.path.join(directory, "config.json")) as file:
        name = json.load(file)["architectures"][0]
    return getattr(transformers, name).from_pretrained(directory).eval()


def expect(directory, out):
    import torch
    random = np.random.default_rng(3)
    model = load(directory)
    arrays = {}
    for i, (batch, time) in enumerate(((3, 11), (1, 7), (2, 1))):
        lengths = np.maximum(1, time - np.arange(batch) * 3)
        mask = (np.arange(time)[None] < lengths[:, None]).astype(np.int64)
        types = (np.arange(time)[None] >= lengths[:, None] // 2).astype(np.int64) * mask
        feeds = {"input_ids": random.integers(0, model.config.vocab_size, (batch, time)), "attention_mask": mask,
                 "token_type_ids": types}
        with torch.no_grad():
            feeds["expected"] = model(**{k: torch.from_numpy(v) for k, v in feeds.items()})[0].numpy()
        arrays.update({f"{k}.{i}": v for k, v in feeds.items()})
    np.savez(out, **arrays)


def check_head(path, file):
    import onnx
    import onnxruntime
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    arrays = np.load(file)
    farthest = 0.0
    for i in range(3):
        feeds = {k: arrays[f"{k}.{i}"] for k in ("input_ids", "attention_mask", "token_type_ids")}
        got, want = session.run(None, feeds)[0], arrays[f"expected.{i}"]
        if got.shape != want.shape:
            fail(f"shape {got.shape}, not {want.shape}")
        if got.ndim == 3:  # what is padding means nothing
            got, want = got[feeds["attention_mask"] > 0], want[feeds["attention_mask"] > 0]
        farthest = max(farthest, float(np.abs(got - want).max()))
    if not farthest <= BOUND:
        fail(f"the outputs differ by {farthest:.2e}")
    print(f"outputs within {farthest:.1e}")


def check_pairs(directory, vocabulary, table, lines, most):
    import torch
    import transformers
    tokenizer = transformers.BertTokenizer(vocabulary)
    model = load(directory)
    with open(table) as file:
        rows = list(csv.DictReader(file))
    with open(lines) as file:
        said = [json.loads(line) for line in file]
    if len(said) != len(rows):
        fail(f"{len(said)} lines for {len(rows)} rows")
    farthest, cut = 0.0, 0
    for row, line in zip(rows, said):
        one = tokenizer(row["first"], row["second"], truncation="longest_first", max_length=int(most), return_tensors="pt")
        cut += len(tokenizer(row["first"], row["second"])["input_ids"]) > int(most)
        with torch.no_grad():
            shares = torch.softmax(model(**one).logits[0], -1)
        if int(shares.argmax()) != line["class"]:
            fail(f"row {row}: class {line['class']}, not {int(shares.argmax())}")
        farthest = max(farthest, abs(float(shares.max()) - line["probability"]))
    if cut == 0 or cut == len(rows):
        fail(f"{cut} of {len(rows)} pairs are cut: the test needs both")
    if not farthest <= BOUND:
        fail(f"probabilities differ by {farthest:.2e}")
    print(f"{len(rows)} pairs within {farthest:.1e}, {cut} of them cut")


if __name__ == "__main__":
    {"expect": expect, "head": check_head, "pairs": check_pairs}[sys.argv[1]](*sys.argv[2:])
