#!/usr/bin/env python3
"""A twin of nanochat's base model and training in PyTorch, on a text that banyan has packed: how many bits a byte of
held-out text it needs after a number of processor seconds of one thread. Prints one JSON line.

    torch_nanochat.py PACKED --seconds 300            # PACKED has train/ and valid/, as runs/.cache/HASH
    torch_nanochat.py PACKED --time --threads 2       # processor milliseconds a step alone
    torch_nanochat.py PACKED --steps 100 --batch 32 --context 128 --width 192

Written from nanochat's description of itself, of 2026: rotary positions of base 100000, norms without weights, also
behind the embedding and of queries and keys, which are then multiplied by 1.2; ReLU^2; untied head; logits within 15;
value embeddings in every second layer with gates; a factor for each layer on the sum and on the first embedding; a
part of the previous token's embedding; the middle of the model subtracted from its end. Muon (Polar Express, rows of
equal norms, NorMuon, cautious decay) for matrices, AdamW with rates of their own for the rest; rates grow with the
root of the batch, decay falls to 0, and momentum grows and falls. --rate multiplies all rates.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

REFERENCE_BATCH = 2 ** 19
REFERENCE_PARAMETERS = 110_100_480  # of twelve layers of width 768 and their head


def read_tokens(directory):
    with open(os.path.join(directory, "manifest.json")) as f:
        manifest = json.load(f)
    shards = [np.load(os.path.join(directory, name)) for name in sorted(os.listdir(directory)) if name.startswith("tokens-")]
    return torch.from_numpy(np.concatenate(shards).astype(np.int64)), manifest


def norm(x):
    return F.rms_norm(x, (x.shape[-1],))


class Model(nn.Module):
    def __init__(self, vocab, layers, width, head, context):
        super().__init__()
        self.layers, self.width, self.head, self.heads = layers, width, head, width // head
        std = width ** -0.5
        bound = 3 ** 0.5 * std

        def uniform(*shape, low=-bound, high=bound):
            return nn.Parameter(torch.empty(*shape).uniform_(low, high))

        self.embed = nn.Parameter(torch.randn(vocab, width) * 0.8)
        self.unembed = nn.Parameter(torch.randn(vocab, width) * 0.001)
        self.qkv = nn.ParameterList(uniform(width, width) for _ in range(3 * layers))
        self.out = nn.ParameterList(torch.zeros(width, width) for _ in range(layers))
        self.up = nn.ParameterList(uniform(4 * width, width, low=-0.4 * bound, high=0.4 * bound) for _ in range(layers))
        self.down = nn.ParameterList(torch.zeros(width, 4 * width) for _ in range(layers))
        self.valued = [i for i in range(layers) if i % 2 == (layers - 1) % 2]
        self.values = nn.ParameterList(uniform(vocab, width) for _ in self.valued)
        self.gates = nn.ParameterList(uniform(self.heads, 12, low=0.0, high=0.02) for _ in self.valued)
        depth = torch.arange(layers) / max(layers - 1, 1)
        self.own = nn.Parameter(1.15 - 0.10 * depth)
        self.first = nn.Parameter(0.20 - 0.15 * depth)
        self.smear_gate = uniform(1, 24, low=0.0, high=0.02)
        self.smear = nn.Parameter(torch.zeros(1))
        self.backout = nn.Parameter(torch.full((1,), 0.2))
        angle = torch.outer(torch.arange(context), 1e5 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[:x.shape[-2]], self.sin[:x.shape[-2]]
        return torch.cat((a * cos + b * sin, b * cos - a * sin), -1)

    def forward(self, tokens, targets):
        batch, length = tokens.shape
        x = norm(F.embedding(tokens, self.embed))
        gate = self.smear * torch.sigmoid(F.linear(x[:, 1:, :24], self.smear_gate))
        x = torch.cat((x[:, :1], x[:, 1:] + gate * x[:, :-1]), 1)
        x0, middle = x, None
        for i in range(self.layers):
            x = self.own[i] * x + self.first[i] * x0
            y = norm(x)
            q, k, v = (F.linear(y, self.qkv[3 * i + j]).view(batch, length, self.heads, self.head) for j in range(3))
            if i in self.valued:
                n = self.valued.index(i)
                gate = 3 * torch.sigmoid(F.linear(y[..., :12], self.gates[n]))
                v = v + gate[..., None] * F.embedding(tokens, self.values[n]).view_as(v)
            q, k = (1.2 * norm(self.rotate(t.transpose(1, 2))) for t in (q, k))
            y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, length, -1), self.out[i])
            x = x + F.linear(F.relu(F.linear(norm(x), self.up[i])).square(), self.down[i])
            middle = x if i == self.layers // 2 else middle
        x = norm(x - self.backout * middle)
        logits = 15 * torch.tanh(F.linear(x, self.unembed) / 15)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def matrices(self):
        return [*self.qkv, *self.out, *self.up, *self.down, *self.gates]


# Amsel et al. 2025, for singular values from 1/1000 on, with a margin of 1.02 in all but the last.
POLAR = ((8.156555, -22.48329, 15.87877), (4.041896, -2.808659, 0.5000538), (3.883935, -2.770702, 0.5064206),
         (3.245528, -2.33935, 0.4613565), (2.293776, -1.662728, 0.4181401))


class Muon:
    """One step for each group of matrices of one shape, stacked."""

    def __init__(self, parameters):
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.state = {}

    @torch.no_grad()
    def step(self, lr, momentum, decay):
        for shape, group in self.groups.items():
            g, p = torch.stack([x.grad for x in group]), torch.stack([x.data for x in group])
            rows, columns = shape
            along = -1 if rows >= columns else -2
            if shape not in self.state:
                self.state[shape] = torch.zeros_like(g), torch.zeros_like(g.mean(along, keepdim=True))
            mean, variance = self.state[shape]
            mean.lerp_(g, 1 - momentum)
            x = g.lerp(mean, momentum)
            x = x * (x.norm(dim=(-2, -1), keepdim=True) / rows ** 0.5 / x.norm(dim=-1, keepdim=True).clamp_min(1e-6))
            x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.01 + 1e-6)
            for a, b, c in POLAR:
                s = x.mT @ x if rows > columns else x @ x.mT
                s = b * s + c * (s @ s)
                x = a * x + (x @ s if rows > columns else s @ x)
            x = x * (min(rows, columns) ** 0.5 / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-6))
            squares = x.square().mean(along, keepdim=True)
            variance.lerp_(squares, 0.1)
            root = variance.clamp_min(1e-10).rsqrt()
            before, after = squares.sum((-2, -1), keepdim=True), (squares * root.square()).sum((-2, -1), keepdim=True)
            x = x * root * (before / after.clamp_min(1e-20)).sqrt()
            p -= lr * x + lr * decay * p * (x * p >= 0)
            for own, new in zip(group, p):
                own.data.copy_(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packed", metavar="PACKED")
    parser.add_argument("--seconds", type=float, default=300, help="processor time of the training (default 300)")
    parser.add_argument("--steps", type=int, help="steps instead, for schedules of a known length")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--head", type=int, default=32, help="width of a head")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32, help="sequences a step")
    parser.add_argument("--rate", type=float, default=1.0, help="factor on all learning rates")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="measure a step, and train no longer")
    parser.add_argument("--seed", type=int, default=1337)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    tokens, _ = read_tokens(os.path.join(a.packed, "train"))
    held_out, manifest = read_tokens(os.path.join(a.packed, "valid"))
    vocab = int(max(tokens.max(), held_out.max())) + 1
    model = Model(vocab, a.layers, a.width, a.head, a.context)
    run = torch.compile(model) if a.compile else model
    muon = Muon(model.matrices())
    batch_tokens = a.batch * a.context
    scale = a.rate * math.sqrt(batch_tokens / REFERENCE_BATCH)
    adam_scale = scale * (a.width / 768) ** -0.5
    groups = [dict(params=[model.unembed], lr=0.008 * adam_scale, betas=(0.8, 0.96), weight_decay=0.01),
              dict(params=[model.embed], lr=0.3 * adam_scale, betas=(0.8, 0.995), weight_decay=0.001),
              dict(params=list(model.values), lr=0.15 * adam_scale, betas=(0.8, 0.995), weight_decay=0.01),
              dict(params=[model.own], lr=0.005 * scale, betas=(0.8, 0.95), weight_decay=0.05),
              dict(params=[model.first], lr=0.5 * scale, betas=(0.96, 0.95), weight_decay=0.0),
              dict(params=[model.smear_gate, model.smear, model.backout], lr=0.2, betas=(0.8, 0.95), weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, eps=1e-10)
    rates = [g["lr"] for g in groups]
    windows = (len(tokens) - 1) // a.context
    order = torch.cat([torch.randperm(windows) for _ in range(64)])

    def batch_at(source, starts):
        rows = torch.stack([source[s:s + a.context + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    parameters = sum(p.numel() for p in model.matrices()) + model.unembed.numel()
    decay = 0.28 * math.sqrt(batch_tokens / REFERENCE_BATCH) * REFERENCE_PARAMETERS / parameters

    def run_steps(count, steps):
        """Trains for `count` steps of a schedule of `steps`; returns processor seconds of each."""
        times = []
        for step in range(count):
            begin = time.process_time()
            starts = order[step * a.batch:(step + 1) * a.batch] * a.context
            run(*batch_at(tokens, starts.tolist())).backward()
            down = round(0.65 * steps)
            rest = (steps - step) / down
            warm = min(1.0, (step + 1) / min(40, max(1, steps // 10)))
            factor = warm if rest >= 1 else rest + 0.05 * (1 - rest)
            momentum = (0.97 * rest + 0.90 * (1 - rest) if rest < 1 else 0.85 + 0.12 * min(1.0, step / min(400, steps)))
            for group, rate in zip(adam.param_groups, rates):
                group["lr"] = rate * factor
            adam.step()
            muon.step(0.02 * scale * factor, momentum, decay * 0.5 * (1 + math.cos(math.pi * step / steps)))
            model.zero_grad(set_to_none=True)
            times.append(time.process_time() - begin)
        return times

    if a.time:
        times = run_steps(12, 1000)[2:]
        print(json.dumps({"step_ms": round(1e3 * sum(times) / len(times)), "threads": a.threads, "batch": a.batch,
                          "context": a.context, "compile": a.compile}))
        return
    steps = a.steps
    if steps is None:  # of a first few steps, whose changes are undone
        kept = {n: t.clone() for n, t in model.state_dict().items()}
        times = run_steps(6, 1000)
        steps = max(1, round(a.seconds / (sum(times[2:]) / len(times[2:]))))
        model.load_state_dict(kept)
        muon.state.clear()
        adam.state.clear()
    times = run_steps(steps, steps)
    with torch.no_grad():
        starts = list(range(0, len(held_out) - a.context, a.context))
        parts = [starts[i:i + a.batch] for i in range(0, len(starts), a.batch)]
        nats = sum(len(part) * model(*batch_at(held_out, part)).item() for part in parts) / len(starts)
    print(json.dumps({"bits_per_byte": round(nats / math.log(2) * manifest["tokens"] / manifest["text_bytes"], 4),
                      "valid_loss": round(nats, 4), "steps": steps, "seconds": round(sum(times), 1),
                      "step_ms": round(1e3 * sum(times) / len(times), 1), "batch": a.batch, "context": a.context,
                      "layers": a.layers, "width": a.width, "rate": a.rate, "compile": a.compile,
                      "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
