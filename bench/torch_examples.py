#!/usr/bin/env python3
"""The twin of `banyan bench train` for models of images, tables and series: full steps (forward, loss, backward, clipping,
AdamW) on random examples, the models as a good PyTorch user writes them. Prints one JSON line.

    torch_examples.py mnist_vit --batch 100 --dtype f32 --steps 20
    torch_examples.py mnist_vit --digits DIR --epochs 25     trains on real digits instead, and says how well
"""
import argparse
import gzip
import inspect
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_convolutions
import torch_models
import torch_series

CASES = {
    "mnist_vit": dict(kind="vit", layers=4, heads=4, width=64, mlp_width=256, patch=4, channels=1, side=28,
                      outputs=10),
    "resnet18": dict(kind="resnet", depths=(2, 2, 2, 2), channels=3, side=224, outputs=1000),
    "mobilenet_v2": dict(kind="mobilenet_v2", channels=3, side=224, outputs=1000),
    "convnext_tiny": dict(kind="convnext", depths=(3, 3, 9, 3), channels=3, side=224, outputs=1000),
    "housing_mlp": dict(kind="mlp", hidden=(128, 128), numbers=8, categories=(6,), embedding=3, outputs=1),
    **torch_series.CASES,
}
KINDS = {"vit": lambda c: ViT(c), "mlp": lambda c: MLP(c), **torch_convolutions.KINDS, **torch_series.KINDS}


class ViTBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["width"]
        self.heads, self.size = c["heads"], width // c["heads"]
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, c["mlp_width"]), nn.GELU(), nn.Linear(c["mlp_width"], width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-2, -1) * self.size ** -0.5).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class ViT(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, patch = c["width"], c["patch"]
        self.projection = nn.Conv2d(c["channels"], width, patch, stride=patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (c["side"] // patch) ** 2, width))
        self.blocks = nn.Sequential(*(ViTBlock(c) for _ in range(c["layers"])))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, c["outputs"])

    def forward(self, images):
        x = self.projection(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.blocks(x)[:, 0]))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, c["embedding"]) for n in c["categories"])
        width, layers = c["numbers"] + c["embedding"] * len(c["categories"]), []
        for hidden in c["hidden"]:
            layers += [nn.Linear(width, hidden), nn.ReLU()]
            width = hidden
        self.layers = nn.Sequential(*layers, nn.Linear(width, c["outputs"]))

    def forward(self, numbers, categories):
        return self.layers(torch.cat([numbers] + [e(categories[:, i]) for i, e in enumerate(self.embeddings)], 1))


def random_batch(c, batch):
    """Inputs and targets."""
    if "context" in c:
        return (torch.randn(batch, c["context"], c["channels"]),), torch.randn(batch, c["outputs"], c["channels"])
    if c["kind"] != "mlp":
        return (torch.randn(batch, c["channels"], c["side"], c["side"]),), torch.randint(c["outputs"], (batch,))
    columns = [torch.randint(n, (batch, 1)) for n in c["categories"]]
    return (torch.randn(batch, c["numbers"]), torch.cat(columns, 1)), torch.randn(batch)


def loss_of(c, output, targets):
    if "context" in c:
        return F.mse_loss(output.float(), targets)
    return F.cross_entropy(output.float(), targets) if c["kind"] != "mlp" else F.mse_loss(output.float()[:, 0], targets)


def make_optimizer(model, lr, weight_decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    options = dict(lr=lr, betas=(0.9, 0.99), eps=1e-8)
    if "fused" in inspect.signature(torch.optim.AdamW).parameters:
        try:
            return torch.optim.AdamW(groups, fused=True, **options)
        except RuntimeError:  # before 2.4, fused is for GPUs only
            pass
    return torch.optim.AdamW(groups, **options)


def step(a, c, model, optimizer, inputs, targets):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
        loss = loss_of(c, model(*inputs), targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def measure(a, c, model, optimizer):
    times, start_ms, loss = [], None, None
    for i in range(a.warmup + a.steps):
        begin = time.perf_counter()
        loss = step(a, c, model, optimizer, *random_batch(c, a.batch))
        if start_ms is None:
            start_ms = torch_models.since_process_start_ms()
        if i >= a.warmup:
            times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    examples = "rows" if c["kind"] == "mlp" else "windows" if "context" in c else "samples"  # as banyan calls them
    return {f"{examples}_per_s": round(a.batch / median, 1), "step_ms": round(1e3 * median, 2),
            "step_ms_min": round(1e3 * min(times), 2), "step_ms_max": round(1e3 * max(times), 2),
            "start_ms": round(start_ms), "loss": round(loss, 4)}


def read_digits(directory):
    def idx(name):
        with gzip.open(os.path.join(directory, name)) as f:
            data = f.read()
        axes = data[3]
        shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(axes)]
        return torch.frombuffer(bytearray(data[4 + 4 * axes:]), dtype=torch.uint8).view(shape)

    images = idx("t10k-images-idx3-ubyte.gz").float().div(255).sub(0.1307).div(0.3081)
    return images[:, None], idx("t10k-labels-idx1-ubyte.gz").long()


def train(a, c, model, optimizer):
    """The first 8,000 digits with random shifts of up to 2 pixels; accuracy on the last 2,000."""
    images, labels = read_digits(a.digits)
    steps = a.epochs * (8000 // a.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, a.lr, total_steps=steps, pct_start=0.1)
    begin = time.perf_counter()
    for _ in range(a.epochs):
        order = torch.randperm(8000)
        for i in range(0, 8000 - a.batch + 1, a.batch):
            batch = images[order[i:i + a.batch]]
            batch = torch.stack([torch.roll(x, torch.randint(-2, 3, (2,)).tolist(), (1, 2)) for x in batch])
            step(a, c, model, optimizer, (batch,), labels[order[i:i + a.batch]])
            schedule.step()
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        hits = (model(images[8000:]).argmax(1) == labels[8000:]).float().mean().item()
    return {"accuracy": round(hits, 4), "seconds": round(seconds, 1),
            "samples_per_s": round(steps * a.batch / seconds, 1)}


def main():
    parser = argparse.ArgumentParser(description="training speed of PyTorch on images, tables and series")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them")
    parser.add_argument("--digits", metavar="DIR", help="of MNIST's test files, IDX, gzip: train on them")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--lr", type=float, default=1e-3)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1337)
    c = CASES[a.case]
    model = KINDS[c["kind"]](c)
    optimizer = make_optimizer(model, a.lr, 0.05)
    run = torch.compile(model) if a.compile else model
    result = train(a, c, run, optimizer) if a.digits else measure(a, c, run, optimizer)
    result.update(parameters=sum(p.numel() for p in model.parameters()), batch=a.batch, dtype=a.dtype,
                  compile=a.compile, threads=torch.get_num_threads(), torch=torch.__version__,
                  peak_rss_bytes=torch_models.peak_rss_bytes())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
