"""Trains the U-Net of examples/shapes_unet.yaml with PyTorch from banyan's initial weights, on its batches, and compares.

usage: torch_segment.py BANYAN SHAPES [--seeds 1,2,3] [--steps 400] [--threads 1]

SHAPES is what examples/make_shapes.py has made. For each seed, banyan trains without augmentation (so that the batches are
the same bytes) with AdamW, and PyTorch trains tests/parity/make_golden.py's U-Net with torch.optim.AdamW; the learning
rate rises over WARMUP steps and falls along a cosine to 0 in both. Both are measured on the held-out pictures by the same
lines below: banyan's masks come from `banyan predict`. Prints a line of JSON for each seed, and one of the means. It has
the largest difference of the losses of the first EQUAL steps from those that PyTorch computes in float64, on both sides:
as long as these are alike, only rounding tells them apart.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/parity"))
from make_golden import unet_forward  # noqa: E402

SHAPE = dict(kind="unet", depth=3, width=16, up="transposed", norm="batch", channels=3, classes=4)
BATCH, RATE, WARMUP, IGNORED = 16, 2e-3, 20, 255
EQUAL = 20


def read(path):
    return np.asarray(Image.open(path))


def mean_iou(said, true):
    ious = []
    for c in range(SHAPE["classes"]):
        a, b = (said == c) & (true != IGNORED), true == c
        union = (a | b).sum()
        if union:
            ious.append((a & b).sum() / union)
    return float(np.mean(ious))


def config_of(seed, steps, work):
    path = os.path.join(work, "shapes.yaml")
    with open(path, "w") as out:
        out.write(f"""name: unet
seed: {seed}
task: {{kind: segment}}
model: {{kind: unet, width: {SHAPE['width']}, depth: {SHAPE['depth']}}}
precision: {{compute: f32}}
data: {{images: {work}/images.npy, labels: {work}/masks.npy, valid_fraction: 0.2, split: last}}
train: {{steps: {steps}, batch: {BATCH}, micro_batch: {BATCH}, eval_every: {steps}, log_every: 1}}
optimizer: {{kind: adamw, lr: {RATE}, schedule: cosine, warmup: {WARMUP}, min_lr: 0, weight_decay: 0, clip: 0,
  betas: [0.9, 0.999]}}
checkpoint: {{every: {steps}}}
run: {{dir: {work}/runs}}
""")
    return path


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def batches_of(banyan, config, steps, count, work):
    """Numbers of the examples of each step, as banyan draws them."""
    numbers, epoch = [], 0
    while len(numbers) < steps * BATCH:
        shown = run(banyan, "data", "show", config, "--json", "--epoch", str(epoch), "--count", str(count), "--out",
                    os.path.join(work, "shown.png"))
        numbers += [e["example"] for e in json.loads(shown)["examples"]]
        epoch += 1
    return np.array(numbers[:steps * BATCH]).reshape(steps, BATCH)


def rate(step, steps):
    """docs/optimizers.md's cosine, as a share of RATE."""
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP)))


def train(weights, scales, images, masks, batches, steps, dtype=torch.float32):
    """The losses of the steps of `batches`, the first of `steps`, and what predicts."""
    w = {k: v.clone().to(dtype) for k, v in weights.items()}
    trained = [v.requires_grad_() for k, v in w.items() if "running" not in k]
    optimizer = torch.optim.AdamW(trained, RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    losses = []
    mean, deviation = (torch.tensor(s, dtype=dtype).view(1, -1, 1, 1) for s in scales)

    def prepare(numbers):
        x = torch.from_numpy(images[numbers]).permute(0, 3, 1, 2).to(dtype) / 255
        return (x - mean) / deviation

    for numbers in batches:
        optimizer.zero_grad()
        logits = unet_forward(dict(SHAPE, training=True), w, prepare(numbers))
        target = torch.from_numpy(masks[numbers].astype(np.int64))
        loss = F.cross_entropy(logits.permute(0, 3, 1, 2), target, ignore_index=IGNORED)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses, lambda numbers: unet_forward(dict(SHAPE, training=False), w, prepare(numbers)).detach()


def compare(a, seed, files, images, masks):
    with tempfile.TemporaryDirectory() as work:
        # As arrays, whose examples are numbered by their rows; files of a folder have an order of their own.
        np.save(os.path.join(work, "images.npy"), images)
        np.save(os.path.join(work, "masks.npy"), masks)
        config = config_of(seed, a.steps, work)
        listed = [json.loads(x) for x in run(a.banyan, "data", "show", config, "--list", "--json").splitlines()]
        held_out = [e["example"] for e in listed if e["held_out"]]
        trained = sum(e["trained"] for e in listed)
        batches = batches_of(a.banyan, config, a.steps, trained, work)
        # One step with a rate that changes nothing keeps the initial weights.
        run(a.banyan, "train", config, "--quiet", "--set", "name=initial", "--set", "train.steps=1", "--set",
            "train.eval_every=0", "--set", "optimizer.lr=1e-30", "--set", "checkpoint.every=1")
        run(a.banyan, "train", config, "--quiet", "--set", f"train.threads={a.threads}")
        events = [json.loads(x) for x in open(f"{work}/runs/unet/events.jsonl")]
        own_losses = [e["loss"] for e in events if e["event"] == "train"]
        last = f"{work}/runs/unet/checkpoints/step-{a.steps:08}"
        weights = load_file(f"{work}/runs/initial/checkpoints/step-00000001/model.safetensors")
        for name, value in weights.items():
            if "running" in name:
                value.fill_(1.0 if name.endswith("var") else 0.0)
        learned = json.load(open(os.path.join(last, "preprocessor_config.json")))
        scales = learned["image_mean"], learned["image_std"]
        exact, _ = train(weights, scales, images, masks, batches[:EQUAL], a.steps, torch.float64)
        losses, predict = train(weights, scales, images, masks, batches, a.steps)
        theirs = mean_iou(predict(held_out).argmax(-1).numpy(), masks[held_out])
        held = os.path.join(work, "held")
        os.mkdir(held)
        for i in held_out:
            os.symlink(os.path.abspath(f"{a.shapes}/images/{files[i]}"), os.path.join(held, files[i]))
        run(a.banyan, "predict", f"{work}/runs/unet", held, "--masks", os.path.join(work, "found"))
        ours = np.stack([read(os.path.join(work, "found", files[i])) for i in held_out])
        apart = [max(abs(x - y) for x, y in zip(side[:EQUAL], exact, strict=True)) for side in (own_losses, losses)]
        result = {"seed": seed, "steps": a.steps, "banyan": mean_iou(ours, masks[held_out]), "torch": theirs,
                  "banyan_from_float64": apart[0], "torch_from_float64": apart[1]}
        print(json.dumps(result), flush=True)
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("banyan")
    parser.add_argument("shapes")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    files = sorted(os.listdir(os.path.join(a.shapes, "images")))
    images = np.stack([read(f"{a.shapes}/images/{f}") for f in files])
    masks = np.stack([read(f"{a.shapes}/masks/{f}") for f in files])
    results = [compare(a, int(seed), files, images, masks) for seed in a.seeds.split(",")]
    print(json.dumps({k: float(np.mean([r[k] for r in results])) for k in ("banyan", "torch")}))


if __name__ == "__main__":
    main()
