#!/usr/bin/env python3
"""Tuning on conversations: learned tokens a second by banyan and by PyTorch, on the same model, conversations and masks.

    torch_tuning.py BANYAN FILE... [--conversations N] [--steps N] [--rounds N] [--threads N]

FILE has conversations in any form of docs/chat_tuning.md, as JSON lines or a list. banyan learns a tokenizer from them,
makes a small decoder of random weights and packs the conversations. PyTorch reads that model with transformers, and
those tokens and masks, and trains as TRL's SFTTrainer does: batches of shuffled conversations, padded on the right to
the longest, with an attention mask and labels of -100 where nothing is learned; AdamW, gradients clipped to a norm of 1,
f32. banyan trains with best-fit packing and, to compare, with padding to the context. Losses before training must agree.
A figure is the processor time of some steps, without the start, in the median over rounds that alternate. Prints one
JSON line.
"""
import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
import transformers

transformers.utils.logging.disable_progress_bar()
RATE, FIRST = 5e-4, 3


def read_records(paths, count):
    records = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            records += json.load(file) if path.endswith(".json") else [json.loads(line) for line in file]
    random.Random(1).shuffle(records)
    return records[:count]


def banyan(o, *arguments):
    done = subprocess.run([o.banyan, *map(str, arguments)], capture_output=True, text=True, cwd=o.folder,
                          env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
    if done.returncode:
        sys.exit(f"banyan {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def read_packed(o, name):
    """Packs a file of conversations: their ids and masks."""
    directory = f"{o.folder}/{name}"
    banyan(o, "pack", "--chat", f"{name}.jsonl", "--tokenizer", "runs/start", "--context", o.context, "--out", name)
    tokens = numpy.concatenate([numpy.load(f"{directory}/{file}") for file in sorted(os.listdir(directory))
                                if file.startswith("tokens-")]).astype("int64")
    offsets = numpy.load(f"{directory}/documents.npy")
    mask = numpy.load(f"{directory}/mask.npy")
    return [(tokens[a:b], mask[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]


def prepare(o):
    """Makes the start; returns the packed conversations, and what is said of them."""
    records = read_records(o.files, o.conversations)
    for name, some in (("talks", records), ("few", records[:16])):
        with open(f"{o.folder}/{name}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(record) + "\n" for record in some)
    with open(f"{o.folder}/text.txt", "w", encoding="utf-8") as out:
        out.writelines(value + "\n" for record in records for value in record.values() if isinstance(value, str))
    common = f"train: {{steps: 1, threads: {o.threads}, eval_every: 0, log_every: 1}}\nprecision: {{compute: f32}}\n"
    with open(f"{o.folder}/base.yaml", "w", encoding="utf-8") as out:
        out.write(f"name: base\nmodel: {{kind: llama, layers: {o.layers}, heads: 4, width: {o.width}, tied: true, context: "
                  f"{o.context}}}\ndata: {{text: text.txt, tokenizer: bpe, tokenizer_vocab: 4096, valid_fraction: 0}}\n"
                  + common)
    with open(f"{o.folder}/tune.yaml", "w", encoding="utf-8") as out:
        out.write("task: {kind: chat}\nmodel: {from: runs/base}\nchat: {template: chatml}\n"
                  f"data: {{text: talks.jsonl, valid_fraction: 0}}\noptimizer: {{kind: adamw, lr: {RATE}, warmup: 0}}\n"
                  "checkpoint: {every: 0}\n" + common)
    banyan(o, "train", "base.yaml", "--quiet")
    banyan(o, "train", "tune.yaml", "--quiet", "--set", "name=start", "--set", "optimizer.lr=1e-12")
    pairs = read_packed(o, "talks")
    return pairs, json.loads(banyan(o, "data", "stats", "talks", "--context", o.context, "--top", 0, "--json"))


def batch_of(pairs):
    """As TRL's DataCollatorForLanguageModeling makes it."""
    longest = max(len(ids) for ids, _ in pairs)
    ids = torch.zeros(len(pairs), longest, dtype=torch.long)
    attention = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for i, (text, mask) in enumerate(pairs):
        n = len(text)
        ids[i, :n] = torch.from_numpy(text)
        attention[i, :n] = 1
        labels[i, :n] = torch.from_numpy(numpy.where(mask > 0, text, -100))
    return {"input_ids": ids, "attention_mask": attention, "labels": labels}


def load(o):
    torch.set_num_threads(o.threads)
    runs = f"{o.folder}/runs/start/checkpoints"
    newest = sorted(name for name in os.listdir(runs) if name.startswith("step-"))[-1]
    return transformers.AutoModelForCausalLM.from_pretrained(f"{runs}/{newest}", dtype=torch.float32)


def targets_of(pairs):
    return sum(int((mask[1:] > 0).sum()) for _, mask in pairs)


def check_losses(o):
    """The mean loss of the learned tokens of some conversations, by both."""
    few = read_packed(o, "few")
    own = json.loads(banyan(o, "eval", "runs/start", "--data", "few.jsonl", "--json"))
    with torch.inference_mode():
        loss = load(o).eval()(**batch_of(few)).loss.item()
    if abs(own["valid_loss"] - loss) > 1e-5:
        sys.exit(f"the start has other losses: {own['valid_loss']} and {loss}")
    return loss


def torch_rate(o, pairs, seed):
    """Learned tokens and tokens in a second of processor time."""
    model = load(o).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    order = random.Random(seed).sample(pairs, (FIRST + o.steps) * o.batch)
    targets = tokens = 0
    for step in range(FIRST + o.steps):
        if step == FIRST:
            began = time.process_time()
        some = order[step * o.batch:(step + 1) * o.batch]
        loss = model(**batch_of(some)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step >= FIRST:
            targets += targets_of(some)
            tokens += sum(len(ids) for ids, _ in some)
    seconds = time.process_time() - began
    return targets / seconds, tokens / seconds


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def banyan_rate(o, packing, samples, stats):
    """The same, of the difference between a long run and a short one. A sample has so many of them in the mean."""
    seconds = []
    for steps in (FIRST, FIRST + o.steps):
        before = used()
        banyan(o, "train", "tune.yaml", "--quiet", "--set", f"name={packing}", "--set", f"data.packing={packing}",
               "--set", f"train.steps={steps}", "--set", f"train.batch={o.bins}")
        seconds.append(used() - before)
    each = o.steps * o.bins / samples / (seconds[1] - seconds[0])
    return stats["chat"]["targets"] * each, stats["tokens"] * each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("banyan", type=os.path.abspath)
    parser.add_argument("files", nargs="+", type=os.path.abspath)
    parser.add_argument("--conversations", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--bins", type=int, default=4, help="samples in a batch of banyan (default 4)")
    parser.add_argument("--batch", type=int, default=16, help="conversations in a batch of PyTorch (default 16)")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as o.folder:
        pairs, stats = prepare(o)
        loss = check_losses(o)
        rounds = []
        for seed in range(o.rounds):
            best = banyan_rate(o, "best_fit", stats["best_fit"]["samples"], stats)
            padded = banyan_rate(o, "padded", stats["chat"]["samples"], stats)
            rounds.append((best, padded, torch_rate(o, pairs, seed)))

    def median(of):
        return round(statistics.median(map(of, rounds)), 3)

    print(json.dumps({"conversations": len(pairs), "tokens": stats["tokens"], "targets": stats["chat"]["targets"],
                      "filled": stats["best_fit"]["filled"], "loss": loss, "torch": torch.__version__,
                      "threads": o.threads, "targets_per_s": median(lambda r: r[0][0]),
                      "padded_targets_per_s": median(lambda r: r[1][0]), "torch_targets_per_s": median(lambda r: r[2][0]),
                      "ratio": median(lambda r: r[0][0] / r[2][0]), "padded_ratio": median(lambda r: r[0][1] / r[1][1])}))


main()
