#!/usr/bin/env python3
"""Losses of preferences, and the weights after steps on them, are those of the published formulas in float64.

    check_preferences.py BANYAN WORK     WORK: an empty directory for files

A tiny llama that banyan trains for some steps learns from pairs for 20 more, by plain gradient descent on all pairs at
once, so that their order does not matter. PyTorch computes the same in float64 from the packed tokens, with the formulas
of TRL's DPOTrainer (dpo, ipo), CPOTrainer (simpo) and ORPOTrainer (orpo, with the loss of the chosen answer alone as
published); rewards are compared with the loss of Bradley and Terry as TRL's RewardTrainer has it. The gradient of the
first step is read off a step with a large rate.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

STEPS, RATE, GRADIENT_RATE = 20, 0.5, 64.0
PAIRS = 6


def fail(message):
    print(f"check_preferences: {message}", file=sys.stderr)
    sys.exit(1)


def banyan(*arguments):
    done = subprocess.run([BANYAN, *arguments], capture_output=True, text=True, cwd=WORK)
    if done.returncode != 0:
        fail(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write(name, text):
    with open(f"{WORK}/{name}", "w") as file:
        file.write(text)


def make_data():
    """A base model, and pairs in several forms."""
    write("text.txt", "".join(chr(32 + i % 95) + "\n" * (i % 7 == 0) for i in range(2000)))
    write("base.yaml", "name: base\nmodel: {kind: llama, layers: 2, heads: 2, width: 32, context: 64, tied: false}\n"
          "data: {text: [text.txt], tokenizer: char, valid_fraction: 0, cache: cache}\n"
          "train: {steps: 30, batch: 4, threads: 1}\noptimizer: {lr: 1e-2, warmup: 2}\nprecision: {compute: f32}\n")
    banyan("train", "base.yaml", "--quiet")
    said = [{"prompt": "2 + 2?", "chosen": "4.", "rejected": "It is 5, I think."},
            {"question": "Sky?", "system": "Be brief", "chosen": "Blue", "rejected": "Green or so"},
            {"prompt": [{"role": "user", "content": "Hi"}], "chosen": [{"role": "assistant", "content": "Hello."}],
             "rejected": [{"role": "assistant", "content": "No"}]},
            {"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                        {"role": "user", "content": "c"}, {"role": "assistant", "content": "de"}],
             "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                          {"role": "user", "content": "c"}, {"role": "assistant", "content": "f gh"}]},
            {"chosen": "\n\nHuman: one?\n\nAssistant: two", "rejected": "\n\nHuman: one?\n\nAssistant: three!"},
            {"prompt": "x", "chosen": "yes yes", "rejected": "n"}]
    write("pairs.jsonl", "".join(json.dumps(one) + "\n" for one in said))
    banyan("pack", "--chat", "pairs.jsonl", "--form", "preference", "--tokenizer", "runs/base", "--chat-template",
           "plain", "--context", "64", "--out", "pairs")
    write("learn.yaml", "name: learn\ntask: {kind: preference}\nmodel: {from: start, context: 64}\n"
          "data: {train: pairs, cache: cache}\n"
          f"train: {{steps: {STEPS}, batch: {PAIRS}, micro_batch: 2, log_every: 1, threads: 1}}\n"
          "optimizer: {kind: sgd, momentum: 0, schedule: constant, warmup: 0, weight_decay: 0, clip: 0}\n"
          "precision: {compute: f32}\n")


def checkpoint(run, step):
    return f"{WORK}/runs/{run}/checkpoints/step-{step:08d}"


def load_weights(directory):
    """Of all files: frozen weights have one of their own."""
    weights = {}
    for file in sorted(glob.glob(f"{directory}/model*.safetensors")):
        weights.update(load_file(file))
    return weights


def read_texts():
    """Ids [2 pairs, T], chosen and rejected in turn, and which of them are learned."""
    tokens = numpy.load(f"{WORK}/pairs/tokens-00000.npy").astype("int64")
    offsets = numpy.load(f"{WORK}/pairs/documents.npy")
    mask = numpy.load(f"{WORK}/pairs/mask.npy")
    if len(offsets) != 2 * PAIRS + 1:
        fail(f"there are {len(offsets) - 1} texts of {PAIRS} pairs")
    ids = numpy.zeros((2 * PAIRS, (offsets[1:] - offsets[:-1]).max()), "int64")
    learned = numpy.zeros_like(ids)
    for i, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        ids[i, :end - begin] = tokens[begin:end]
        learned[i, :end - begin] = mask[begin:end]
    return torch.tensor(ids), torch.tensor(learned), torch.tensor(offsets[1:] - offsets[:-1]).long()


def log_probabilities(model, texts, mean):
    """[pairs, 2]; what pads a text is behind it, so that it changes nothing."""
    ids, learned, _ = texts
    logits = model(ids[:, :-1]).logits
    each = torch.gather(F.log_softmax(logits, -1), 2, ids[:, 1:, None])[..., 0] * learned[:, 1:]
    sums = each.sum(1)
    return (sums / learned[:, 1:].sum(1) if mean else sums).reshape(PAIRS, 2)


def loss_of(kind, s, chosen, rejected, reference):
    beta, gamma, smoothing = s.get("beta", 0.1), s.get("margin", 0.0), s.get("smoothing", 0.0)
    ratio = (chosen - rejected) - (reference[:, 0] - reference[:, 1])
    if kind == "dpo":
        return -F.logsigmoid(beta * ratio) * (1 - smoothing) - F.logsigmoid(-beta * ratio) * smoothing
    if kind == "ipo":
        return (ratio - 1 / (2 * beta)) ** 2
    if kind == "simpo":
        logits = (chosen - rejected) - gamma / beta
        return -F.logsigmoid(beta * logits) * (1 - smoothing) - F.logsigmoid(-beta * logits) * smoothing
    odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    return -chosen - beta * F.logsigmoid(odds)


def descend(parameters, steps, rate, loss_now):
    """The losses of the steps, and the gradients of the first."""
    losses = []
    first = None
    for _ in range(steps):
        for p in parameters.values():
            p.grad = None
        loss = loss_now()
        loss.backward()
        losses.append(loss.item())
        learned = {name: p for name, p in parameters.items() if p.grad is not None}
        first = first or {name: p.grad.clone() for name, p in learned.items()}
        with torch.no_grad():
            for p in learned.values():
                p -= rate * p.grad
    return losses, first


def torch_preference(kind, s, steps, rate, texts):
    model = LlamaForCausalLM.from_pretrained(f"{WORK}/start", dtype=torch.float64)
    mean = s.get("reduce", "auto") == "mean" or kind in ("simpo", "orpo")
    with torch.no_grad():
        reference = log_probabilities(model, texts, mean)

    def loss_now():
        chosen, rejected = log_probabilities(model, texts, mean).unbind(1)
        loss = loss_of(kind, s, chosen, rejected, reference)
        if "nll" in s:
            loss = loss - s["nll"] * log_probabilities(model, texts, True)[:, 0]
        return loss.mean()

    return descend(dict(model.named_parameters()), steps, rate, loss_now)


def torch_reward(s, steps, rate, texts):
    ids, _, lengths = texts
    model = LlamaForCausalLM.from_pretrained(f"{WORK}/rated", dtype=torch.float64)
    score = torch.nn.Parameter(load_file(f"{WORK}/rated/model.safetensors")["score.weight"].double())

    def loss_now():
        states = model.model(ids).last_hidden_state[torch.arange(len(ids)), lengths - 1]
        chosen, rejected = (states @ score[0]).reshape(PAIRS, 2).unbind(1)
        return (-F.logsigmoid(chosen - rejected) + s.get("center", 0.0) * (chosen + rejected) ** 2).mean()

    return descend({**dict(model.named_parameters()), "score.weight": score}, steps, rate, loss_now)


def make_rated():
    """The start with a head for rewards."""
    shutil.copytree(f"{WORK}/start", f"{WORK}/rated",
                    ignore=shutil.ignore_patterns("manifest*", "optimizer*", "state*", "model.safetensors"))
    weights = load_file(f"{WORK}/start/model.safetensors")
    weights["score.weight"] = 0.3 * torch.randn(1, 32, generator=torch.Generator().manual_seed(1))
    save_file(weights, f"{WORK}/rated/model.safetensors", metadata={"format": "pt"})


def banyan_run(name, kind, s, steps, rate):
    settings = [f"name={name}", f"train.steps={steps}", f"optimizer.lr={rate}"]
    settings += ["task.kind=reward", "model.from=rated"] if kind == "reward" else [f"task.loss={kind}"]
    settings += [f"task.{key}={value}" for key, value in s.items()]
    banyan("train", "learn.yaml", "--quiet", *[word for one in settings for word in ("--set", one)])
    losses = {}
    for line in open(f"{WORK}/runs/{name}/events.jsonl"):
        event = json.loads(line)
        if "loss" in event and "step" in event:
            losses[event["step"]] = event["loss"]
    return [losses[i] for i in range(1, steps + 1)], load_weights(checkpoint(name, steps))


def check(name, kind, rate=RATE, **s):
    texts = read_texts()
    start = load_file(f"{WORK}/{'rated' if kind == 'reward' else 'start'}/model.safetensors")
    if kind == "reward":
        want, gradients = torch_reward(s, STEPS, rate, texts)
    else:
        want, gradients = torch_preference(kind, s, STEPS, rate, texts)
    got, _ = banyan_run(name, kind, s, STEPS, rate)
    off = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, want))
    _, stepped = banyan_run(f"{name}-step", kind, s, 1, GRADIENT_RATE)
    worst = 0.0
    whole = torch.sqrt(sum(g.square().sum() for g in gradients.values())).item()
    for key, gradient in gradients.items():
        own = (start[key].double() - stepped[key].double()) / GRADIENT_RATE
        worst = max(worst, (own - gradient).norm().item() / whole)
    print(f"{name}: losses {want[0]:.5f} to {want[-1]:.5f}, off by {off:.1e}; gradient {whole:.2e}, off by {worst:.1e}")
    if not off < 1e-5:
        fail(f"{name}: the losses differ by {off:.1e}: {got} and {want}")
    if not worst < 1e-5:
        fail(f"{name}: the gradients differ by {worst:.1e} of their norm")
    if not want[-1] < want[0] - 1e-3:
        fail(f"{name}: nothing was learned, so nothing is compared")


def main():
    make_data()
    os.symlink(checkpoint("base", 30), f"{WORK}/start")
    check("dpo", "dpo")
    check("dpo-all", "dpo", rate=0.1, beta=0.3, smoothing=0.1, nll=0.2)
    check("ipo", "ipo", rate=0.002, beta=0.5)
    check("ipo-mean", "ipo", rate=0.02, reduce="mean", beta=0.5)
    check("simpo", "simpo", rate=0.05, beta=2.0, margin=1.0)
    check("orpo", "orpo", rate=0.05, beta=0.25)
    make_rated()
    check("reward", "reward", rate=0.05)
    check("reward-centred", "reward", rate=0.05, center=0.1)


BANYAN, WORK = sys.argv[1:3]
main()
