#!/usr/bin/env python3
"""Losses of a recipe compared with those of PyTorch by its own means, step by step: the same weights (a model that
transformers makes), the same data, autocast to bf16, each block checkpointed, the same optimizer.

    torch_losses.py build/release/banyan                          # examples/gpt2_1.5b.yaml at a small size: adafactor
    torch_losses.py build/release/banyan --optimizer muon --steps 50
    torch_losses.py build/release/banyan --optimizer adamw8bit    # with bitsandbytes

Every step has all samples of the data (one document, cut into pieces of context + 1), so that their order
does not matter. Prints a
table of some steps, and one JSON line with the largest relative difference of each run from PyTorch's. Needs
PyTorch, transformers and NumPy (scripts/python-env).
"""
import argparse
import json
import os
import random
import subprocess
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch

torch.set_num_threads(1)
import transformers

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "examples", "gpt2_1.5b.yaml")
LAYERS, HEADS, WIDTH, CONTEXT, BATCH, MICRO_BATCH = 4, 4, 64, 64, 16, 4
DECAY, CLIP, BETAS = 0.1, 1.0, (0.9, 0.99)


def make_text(path):
    """Words of a small vocabulary: samples share a token with the next one."""
    source = random.Random(1337)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(300)]
    weights = [1 / (i + 1) for i in range(len(words))]
    text = " ".join(source.choices(words, weights, k=CONTEXT * BATCH))
    with open(path, "w") as file:
        file.write(text[:CONTEXT * BATCH + 1])


def run_banyan(banyan, name, settings, directory, steps):
    common = {
        "name": name, "run.dir": directory, "data.train": directory + "/packed", "data.packing": "best_fit", "data.valid_fraction": 0,
        "data.tokenizer": directory + "/packed", "model.from": directory + "/model", "model.layers": LAYERS,
        "model.vocab": json.load(open(directory + "/model/config.json"))["vocab_size"], "model.heads": HEADS, "model.width": WIDTH, "model.context": CONTEXT, "train.batch": BATCH,
        "train.micro_batch": MICRO_BATCH, "train.steps": steps, "train.log_every": 1, "train.eval_every": 0,
        "checkpoint.every": 0, "optimizer.weight_decay": DECAY, "optimizer.clip": CLIP,
        "optimizer.schedule": "constant", "optimizer.warmup": 0}
    command = [banyan, "train", EXAMPLE, "--json"]
    for key, value in {**common, **settings}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    lines = done.stdout.splitlines()
    events = [json.loads(line) for line in lines]
    return [event["loss"] for event in events if "loss" in event and "step" in event][:steps]


def make_optimizers(model, kind, lr):
    """PyTorch's optimizers for the groups that banyan makes: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    tables = [model.transformer.wte.weight, model.transformer.wpe.weight]
    hidden = [p for p in matrices if not any(p is table for table in tables)]

    def groups(some):
        return [{"params": some, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]

    if kind == "adafactor":
        return [torch.optim.Adafactor(groups(matrices), lr=lr, eps=(1e-15, 1e-3))]
    if kind == "muon":
        return [torch.optim.Muon(hidden, lr=lr, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW(groups(tables), lr=lr, betas=BETAS)]
    if kind == "adamw8bit":
        import bitsandbytes
        return [bitsandbytes.optim.AdamW8bit(groups(matrices), lr=lr, betas=BETAS)]
    return [torch.optim.AdamW(groups(matrices), lr=lr, betas=BETAS)]


def run_torch(directory, windows, kind, lr, steps, dtype):
    model = transformers.GPT2LMHeadModel.from_pretrained(directory + "/model", dtype=dtype)
    model.gradient_checkpointing_enable()
    model.train()
    optimizers = make_optimizers(model, kind, lr)
    losses = []
    for _ in range(steps):
        total = 0.0
        for part in windows.split(MICRO_BATCH):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(part[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), part[:, 1:].flatten())
            loss = loss * len(part) / len(windows)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(total)
    return losses


def planned(banyan, settings):
    command = [banyan, "info", EXAMPLE, "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description="losses compared with PyTorch's")
    parser.add_argument("banyan")
    parser.add_argument("--optimizer", choices=("adafactor", "adamw", "adamw8bit", "muon"), default="adafactor")
    parser.add_argument("--lr", type=float, help="default: 1e-2 of adafactor, 1e-3 of the others")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    banyan, kind, steps = os.path.abspath(arguments.banyan), arguments.optimizer, arguments.steps
    lr = arguments.lr or (1e-2 if kind == "adafactor" else 1e-3)
    with tempfile.TemporaryDirectory() as directory:
        make_text(directory + "/text.txt")
        subprocess.run([banyan, "pack", directory + "/text.txt", "--tokenizer", "char", "--valid-fraction", "0", "--output",
                        directory + "/packed"], check=True, capture_output=True)
        manifest = json.load(open(directory + "/packed/manifest.json"))
        vocab = manifest["vocab"] if "vocab" in manifest else manifest["vocab_size"]
        files = sorted(f for f in os.listdir(directory + "/packed") if f.startswith("tokens") and f.endswith(".npy"))
        tokens = numpy.concatenate([numpy.load(f"{directory}/packed/{f}") for f in files]).astype(numpy.int64)
        windows = torch.stack([torch.from_numpy(tokens[i * CONTEXT:(i + 1) * CONTEXT + 1]) for i in range(BATCH)])
        torch.manual_seed(1337)
        transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=CONTEXT, vocab_size=vocab, attn_pdrop=0.0,
            resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=0, eos_token_id=0)).save_pretrained(directory + "/model")
        own = {"optimizer.kind": kind, "optimizer.lr": lr, "optimizer.min_lr": lr, "precision.compute": "bf16"}
        if kind != "adafactor":
            own["optimizer.betas"] = list(BETAS)
        runs = {"torch": run_torch(directory, windows, kind, lr, steps, torch.float32)}
        budget = {"memory.budget": "40MiB"}
        runs["banyan"] = run_banyan(banyan, "f32", {**own, **budget}, directory, steps)
        if kind in ("adafactor", "adamw"):
            runs["torch, bf16 weights"] = run_torch(directory, windows, kind, lr, steps, torch.bfloat16)
            narrow = {"precision.weights": "bf16", "precision.rounding": "stochastic"}
            runs["banyan, bf16 weights, stochastic"] = run_banyan(banyan, "bf16", {**own, **narrow, **budget}, directory,
                                                                  steps)
    print("step  " + "  ".join(f"{name:>12}" for name in runs))
    for i in sorted({0, 1, 2, 4, 9, 19, 29, 39, steps - 1} & set(range(steps))):
        print(f"{i + 1:4}  " + "  ".join(f"{losses[i]:>{max(12, len(name))}.5f}" for name, losses in runs.items()))
    print(json.dumps({
        "optimizer": kind, "lr": lr, "steps": steps, "torch": torch.__version__, "last": {n: l[-1] for n, l in runs.items()},
        "largest_relative_difference": {n: max(abs(a / b - 1) for a, b in zip(l, runs["torch"]))
                                        for n, l in runs.items() if n != "torch"}}))


if __name__ == "__main__":
    main()
