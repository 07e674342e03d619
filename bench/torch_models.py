"""GPT-2 and Llama as a good PyTorch user writes them, shared by torch_train.py and torch_generate.py.

Runs on PyTorch 1.13 and newer, and takes what is there: scaled_dot_product_attention and fused AdamW
from 2.x, nn.RMSNorm from 2.4; a masked softmax and the plain optimizer before.
"""
import math
import os
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

PRESETS = {
    "gpt2_124m": dict(kind="gpt2", layers=12, heads=12, kv_heads=12, width=768, context=1024, vocab=50304),
    "gpt2_1.5b": dict(kind="gpt2", layers=48, heads=25, kv_heads=25, width=1600, context=1024, vocab=50304),
    "llama_125m": dict(kind="llama", layers=12, heads=12, kv_heads=4, width=768, mlp_width=2048,
                       context=1024, vocab=32000, tied=False),
    "shakespeare_char": dict(kind="gpt2", layers=4, heads=4, kv_heads=4, width=128, context=64, vocab=65),
}
SIZES = ("layers", "heads", "kv_heads", "width", "mlp_width", "context", "vocab")


def add_model_arguments(parser):
    parser.add_argument("--preset", choices=PRESETS, default="gpt2_124m")
    parser.add_argument("--kind", choices=("gpt2", "llama"))
    for name in SIZES:
        parser.add_argument("--" + name.replace("_", "-"), type=int)
    parser.add_argument("--tied", type=int, choices=(0, 1), help="1: the output head is the embedding")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="bf16")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    # Debian's build would start with one thread on some machines, so the number is always set.
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def model_config(arguments):
    config = {"tied": True, **PRESETS[arguments.preset]}
    if arguments.tied is not None:
        config["tied"] = bool(arguments.tied)
    for name in ("kind",) + SIZES:
        value = getattr(arguments, name)
        if value is not None:
            config[name] = value
    if not config.get("mlp_width"):
        width = config["width"]
        config["mlp_width"] = 4 * width if config["kind"] == "gpt2" else -(-8 * width // (3 * 64)) * 64
    return config


def attend(q, k, v):
    """Causal attention of the last q.shape[-2] of k.shape[-2] positions: [B, H, T, D]."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    length, total = q.shape[-2], k.shape[-2]
    if hasattr(F, "scaled_dot_product_attention") and length in (1, total):
        return F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if length > 1:
        future = torch.ones(length, total, dtype=torch.bool).triu(total - length + 1)
        scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(-1) @ v


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


class Attention(nn.Module):
    def __init__(self, c, bias):
        super().__init__()
        self.heads, self.kv_heads, self.size = c["heads"], c["kv_heads"], c["width"] // c["heads"]
        self.split = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        self.qkv = nn.Linear(c["width"], sum(self.split), bias=bias)
        self.out = nn.Linear(c["width"], c["width"], bias=bias)

    def forward(self, x, rope, cache, start):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, -1, self.size).transpose(1, 2)
                   for t in self.qkv(x).split(self.split, dim=-1))
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        if cache is not None:
            keys, values = cache
            end = start + length
            keys[:, :, start:end], values[:, :, start:end] = k, v
            k, v = keys[:, :, :end], values[:, :, :end]
        return self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, width))


def rotate(x, rope):
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat((-b, a), -1) * sin.to(x.dtype)


class GatedMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c["width"], c["mlp_width"], bias=False)
        self.up = nn.Linear(c["width"], c["mlp_width"], bias=False)
        self.down = nn.Linear(c["mlp_width"], c["width"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        gpt2, width = c["kind"] == "gpt2", c["width"]
        rms = getattr(nn, "RMSNorm", RMSNorm)
        self.norm_1, self.norm_2 = ((nn.LayerNorm(width) if gpt2 else rms(width, 1e-5)) for _ in range(2))
        self.attention = Attention(c, bias=gpt2)
        self.mlp = nn.Sequential(nn.Linear(width, c["mlp_width"]), nn.GELU(approximate="tanh"),
                                 nn.Linear(c["mlp_width"], width)) if gpt2 else GatedMLP(c)

    def forward(self, x, rope, cache=None, start=0):
        x = x + self.attention(self.norm_1(x), rope, cache, start)
        return x + self.mlp(self.norm_2(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.gpt2 = c, c["kind"] == "gpt2"
        self.recompute = False  # of each block all but its input
        width = c["width"]
        self.embed = nn.Embedding(c["vocab"], width)
        if self.gpt2:
            self.position = nn.Embedding(c["context"], width)
        else:
            size = width // c["heads"]
            angle = torch.outer(torch.arange(c["context"]).float(),
                                10000.0 ** (-torch.arange(0, size, 2).float() / size))
            self.register_buffer("cos", torch.cat((angle, angle), -1).cos(), persistent=False)
            self.register_buffer("sin", torch.cat((angle, angle), -1).sin(), persistent=False)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(width) if self.gpt2 else getattr(nn, "RMSNorm", RMSNorm)(width, 1e-5)
        self.head = nn.Linear(width, c["vocab"], bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)
        if c["tied"]:
            self.head.weight = self.embed.weight

    def forward(self, tokens, targets=None, caches=None, start=0):
        """The loss with targets; without, the logits of the last position."""
        end = start + tokens.shape[1]
        x, rope = self.embed(tokens), None
        if self.gpt2:
            x = x + self.position.weight[start:end]
        else:
            rope = (self.cos[start:end], self.sin[start:end])
        for i, block in enumerate(self.blocks):
            if self.recompute:
                x = torch.utils.checkpoint.checkpoint(block, x, rope, use_reentrant=False)
            else:
                x = block(x, rope, caches[i] if caches else None, start)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, -1])
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def flops_per_token(model, attention):
    """6N + attention * L C T (attention 6: only the causal half; 12: all of it). N: all parameters but the
    position embedding and an untied input embedding, which are look-ups."""
    c = model.config
    n = sum(p.numel() for p in model.parameters())
    if model.gpt2:
        n -= model.position.weight.numel()
    if not c["tied"]:
        n -= model.embed.weight.numel()
    return 6 * n + attention * c["layers"] * c["width"] * c["context"]


def peak_gflops(dtype, device=torch.device("cpu")):
    """The best rate of PyTorch's own matrix product over a few shapes."""
    best = 0.0
    gpu = device.type == "cuda"
    shapes = [(1024, 1024, 1024), (2048, 2048, 2048), (1024, 3072, 768), (4096, 3072, 768)]
    with torch.no_grad():
        for m, n, k in [(8192, 8192, 8192)] if gpu else shapes:
            a, b = torch.randn(m, k).to(device, dtype), torch.randn(n, k).to(device, dtype)
            for _ in range(10):
                begin = time.perf_counter()
                F.linear(a, b)
                if gpu:
                    torch.cuda.synchronize(device)
                best = max(best, 2e-9 * m * n * k / (time.perf_counter() - begin))
    return best


def since_process_start_ms():
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    return 1e3 * (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / 100)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
