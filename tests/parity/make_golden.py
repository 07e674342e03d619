#!/usr/bin/python3
"""Golden files for the parity tests: small models in plain PyTorch, independent of banyan.

    make_golden.py DIR            writes DIR/NAME.safetensors for each of CASES, or with --only for one
    make_golden.py --check DIR    computes them anew and compares with the files in DIR

Runs with Debian's python3-torch (1.13) and anything newer. Everything is computed in float32; the
same in float64 gives the reference's own rounding error, which goes into the file's metadata.

Tensors (f32 unless said otherwise; NAME is the Hugging Face name, for gpt2 without "transformer."):
    weights.NAME            initial weights; gpt2's c_attn, c_proj and c_fc are [in, out] (Conv1D), those
                            of the others [out, in] (Linear); a tied head has no tensor
    inputs of the model     tokens i32 [B, T]; or images [B, C, H, W]; or numbers [B, F] and
                            categories i32 [B, K]
                            and, for dit and unet2d, timesteps i32 [B] and classes i32 [B]
    and what it is to say   targets i32 [B, T], -1 is ignored; or labels i32 [B]; or targets [B];
                            or, for those two, targets like the images with a weight [B] of each
                            models of nodes: ids i32 [B] and labels, and the graph in constants.NAME
    logits                  of these inputs with the initial weights: [B, T, V], [B, classes] or [B, 1];
                            batch norm uses its running statistics here, those of the batch elsewhere
    loss                    [] mean cross-entropy over the valid targets, or mean squared error
    grad.NAME               gradient of `loss`, for mixtral with the routers' loss added; not clipped
    steps.INPUT             [S, ...]: the batch of each of S = 20 optimizer steps
    losses, norms           [S]: loss and global gradient norm (before clipping) of each step, from
                            the initial weights on, each taken before that step's update
    final.NAME              weights after step S
A step: gradient of the mean loss; clipped by min(1, 1 / (norm + 1e-6)); AdamW, lr 1e-3 constant,
betas 0.9 and 0.99, eps 1e-8, decay 0.1 on tensors of two or more dimensions only. gpt2_sgd is gpt2
with SGD instead, lr 0.05 constant, Nesterov's momentum 0.9, and the same decoupled decay, before the
step; it holds weights, steps, losses, norms and final only. So are the steps of resnet_bottleneck: AdamW
would make full steps of gradients that are zero but for rounding. Of mobilenet_v2 and efficientnet, whose
layers are many, there are weights, inputs and logits only.

Metadata (all strings): the sizes of the case, batch, steps, torch; and error.NAME, the relative distance
|f32 - f64| / |f64| (Euclidean norms) of logits, loss, losses, norms, the worst gradient (grad) and the worst
final weight (final).

The key part of gpt2's attention bias, h.N.attn.c_attn.bias[C:2C], and of dit's, and vit's and bert's key.bias, and unet2d's to_k.bias have a
gradient of exactly zero (softmax does not change when a constant is added to a row), so what rounding leaves
there is noise that AdamW then scales to full steps: compare gpt2's gradient within the whole bias, theirs with
zero, and the final values not at all. `error.final` leaves them out, as --check does.
"""
import argparse
import json
import math
import os
import random
import struct
import sys

import torch
import torch.nn.functional as F

STEPS = 20
BATCH = 3
INPUTS = ("tokens", "images", "numbers", "categories", "series", "timesteps", "classes", "targets", "labels", "weight")
CASES = {
    "gpt2": dict(kind="gpt2", layers=2, heads=4, kv_heads=4, width=32, mlp_width=128, context=16,
                 vocab=67, tied=1, norm_eps=1e-5, rope_theta=0.0, seed=101),
    "llama_tied": dict(kind="llama", layers=2, heads=4, kv_heads=4, width=32, mlp_width=88,
                       context=16, vocab=67, tied=1, norm_eps=1e-5, rope_theta=10000.0, seed=102),
    "llama_gqa": dict(kind="llama", layers=2, heads=4, kv_heads=2, width=32, mlp_width=88,
                      context=16, vocab=67, tied=0, norm_eps=1e-6, rope_theta=500000.0, seed=103),
    "llama_window": dict(kind="llama", layers=2, heads=4, kv_heads=2, width=32, mlp_width=88,
                         context=16, vocab=67, tied=0, norm_eps=1e-5, rope_theta=10000.0, window=5,
                         seed=108),
    "mixtral": dict(kind="mixtral", layers=2, heads=4, kv_heads=2, width=32, mlp_width=24, context=16,
                    vocab=67, tied=0, norm_eps=1e-5, rope_theta=10000.0, experts=6, chosen=2,
                    aux_coef=0.5, seed=107),
    "bert": dict(kind="bert", layers=2, heads=4, width=32, mlp_width=64, context=16, vocab=67, segments=2,
                 norm_eps=1e-12, seed=113),
    "vit": dict(kind="vit", layers=2, heads=4, width=32, mlp_width=64, channels=3, image_size=12,
                patch_size=4, classes=7, norm_eps=1e-12, seed=104),
    "resnet_basic": dict(kind="resnet", block="basic", depths=[1, 2], widths=[8, 12], width=8, channels=1,
                         image_size=32, classes=7, convolutional=1, seed=201),
    "resnet_bottleneck": dict(kind="resnet", block="bottleneck", depths=[2, 1], widths=[16, 24], width=8,
                              channels=1, image_size=32, classes=7, convolutional=1, optimizer="sgd", seed=110),
    "convnext": dict(kind="convnext", depths=[1, 2], widths=[8, 16], patch_size=4, channels=1, image_size=32, classes=7,
                     norm_eps=1e-12, convolutional=1, seed=111),
    "mobilenet_v2": dict(kind="mobilenet_v2", multiplier=0.05, expand=1, output_stride=8, channels=1, image_size=35,
                         classes=7, convolutional=1, only="logits", seed=112),
    "efficientnet": dict(kind="efficientnet", width_factor=0.1, depths=[1, 2, 2], widths=[16, 80, 120], strides=[1, 2, 2],
                         sizes=[3, 5, 3], ratios=[1, 2, 3], square=[3], channels=1, image_size=34, classes=7,
                         convolutional=1, only="logits", seed=115),
    "unet": dict(kind="unet", depth=2, width=4, up="transposed", norm="batch", channels=1, image_size=16, classes=4,
                 convolutional=1, seed=117),
    "unet_group": dict(kind="unet", depth=1, width=4, up="bilinear", norm="group", groups=2, channels=1, image_size=16,
                       classes=3, convolutional=1, seed=121),
    "dit": dict(kind="dit", layers=2, heads=4, width=32, mlp_width=64, channels=2, image_size=8, image_width=12,
                patch_size=2, classes=3, norm_eps=1e-6, seed=123),
    "unet2d": dict(kind="unet2d", width=8, multipliers=[1, 2], attended=[2], depth=1, head_width=4, groups=2, channels=2,
                   image_size=8, image_width=12, classes=3, seed=125),
    "mlp_classes": dict(kind="mlp", numbers=5, categories=[4, 6], embedding=3, hidden=[24, 16],
                        activation="gelu", norm=1, classes=3, norm_eps=1e-5, seed=105),
    "mlp_value": dict(kind="mlp", numbers=5, categories=[], embedding=1, hidden=[24, 16],
                      activation="relu", norm=0, classes=0, norm_eps=1e-5, seed=106),
    "dlinear": dict(kind="dlinear", context=24, horizon=6, channels=3, kernel=5, classes=0, seed=301),
    "patchtst": dict(kind="patchtst", layers=2, heads=2, width=16, mlp_width=24, context=26, horizon=6, channels=3,
                     patch=8, stride=5, classes=0, norm_eps=1e-5, optimizer="sgd", seed=302),
    "tcn": dict(kind="tcn", layers=3, width=8, kernel=3, context=24, horizon=6, channels=3, classes=0, seed=303),
    "tcn_near": dict(kind="tcn", layers=2, width=8, kernel=2, context=24, horizon=6, channels=3, classes=0, seed=309),
    "nbeats": dict(kind="nbeats", blocks=2, layers=2, width=16, context=24, horizon=6, channels=3, classes=0, seed=304),
    "nbeats_affine": dict(kind="nbeats", blocks=2, layers=2, width=16, context=24, horizon=6, channels=3, affine=1, classes=0,
                          seed=314),
    "tide": dict(kind="tide", layers=2, decoder_layers=2, width=16, decoder_width=4, temporal_width=8, context=24,
                 horizon=6, channels=3, classes=0, norm_eps=1e-5, seed=306),
    "lstm": dict(kind="lstm", layers=2, width=8, context=24, horizon=6, channels=3, classes=0, seed=307),
    "gru": dict(kind="gru", layers=2, width=8, context=24, horizon=6, channels=3, classes=0, seed=308),
    "patchtst_whole": dict(kind="patchtst", layers=2, heads=2, width=16, mlp_width=24, context=26, horizon=0, channels=3,
                           patch=8, stride=5, classes=4, norm_eps=1e-5, optimizer="sgd", seed=310),
    "tcn_whole": dict(kind="tcn", layers=3, width=8, kernel=3, context=24, horizon=0, channels=3, classes=4, seed=311),
    "lstm_whole": dict(kind="lstm", layers=2, width=8, context=24, horizon=0, channels=3, classes=4, seed=312),
    "gcn": dict(kind="gcn", layers=2, width=8, nodes=9, channels=5, classes=3, loops=1, seed=401),
    "sage": dict(kind="sage", layers=3, width=4, nodes=9, channels=5, classes=6, loops=0, seed=402),
    "sage_max": dict(kind="sage", layers=2, width=8, nodes=9, channels=5, classes=3, loops=0, largest=1, seed=403),
    "gat": dict(kind="gat", layers=2, width=8, heads=4, output_heads=2, nodes=9, channels=5, classes=3, loops=1,
                optimizer="sgd", seed=492),
    "gcn_kinds": dict(kind="gcn", layers=3, width=8, nodes=9, channels=5, classes=3, loops=1, sparse=1, weights=1,
                      norm="layer", activation="silu", residual=1, seed=404),
    "sage_sparse": dict(kind="sage", layers=2, width=4, nodes=9, channels=5, classes=6, loops=0, sparse=1, norm="rms", seed=405),
    "gat_sparse": dict(kind="gat", layers=2, width=8, heads=2, output_heads=1, nodes=9, channels=5, classes=3, loops=1,
                       sparse=1, activation="silu", optimizer="sgd", seed=476),
    "gin": dict(kind="gin", layers=3, width=4, nodes=9, channels=5, classes=6, loops=0, train_eps=1, norm="layer", seed=407),
    "gin_sparse": dict(kind="gin", layers=2, width=4, nodes=9, channels=5, classes=3, loops=0, train_eps=1, sparse=1, seed=408),
    "rgcn": dict(kind="rgcn", layers=2, width=8, nodes=9, channels=5, classes=3, loops=0, relations=3, bases=2, seed=409),
    "rgcn_sparse": dict(kind="rgcn", layers=2, width=4, nodes=9, channels=5, classes=3, loops=0, relations=2, bases=0, sparse=1,
                        seed=410),
}
CASES["gpt2_sgd"] = dict(CASES["gpt2"], optimizer="sgd")
# Kinds of parts: "attention" has one for each layer, (kind, window).
SMALL = dict(layers=2, heads=4, kv_heads=4, width=16, mlp_width=24, context=16, vocab=67, norm_eps=1e-5)
CASES["gpt2_alibi"] = dict(SMALL, kind="gpt2", tied=1, attention=[("alibi", None)] * 2, position="none", norm="rms",
                           gated=1, activation="gelu", optimizer="sgd", seed=401)
CASES["gpt2_rope"] = dict(SMALL, kind="gpt2", tied=1, attention=[("window", 5), ("none", None)], position="rope",
                          rope_theta=100.0, activation="relu2", optimizer="sgd", seed=402)
CASES["gpt2_sinusoidal"] = dict(SMALL, kind="gpt2", tied=1, attention=[("window", 6), ("full", None)],
                                position="sinusoidal", gated=1, activation="silu", optimizer="sgd", seed=403)
CASES["gpt2_linear"] = dict(SMALL, kind="gpt2", tied=1, attention=[("linear", None)] * 2, position="rope",
                            rope_theta=10000.0, optimizer="sgd", seed=406)
CASES["llama_kinds"] = dict(SMALL, kind="llama", kv_heads=2, tied=0, rope_theta=10000.0, position="learned",
                            norm="layer", gated=0, activation="tanh", attention=[("window", 4), ("full", None)],
                            optimizer="sgd", seed=404)
CASES["bert_kinds"] = dict(dict(SMALL, layers=3), kind="bert", segments=2, position="rope", rope_theta=10000.0,
                           attention=[("window", 4), ("alibi", None), ("linear", None)], gated=1,
                           activation="gelu", optimizer="sgd", seed=405)
CASES["llama_streams"] = dict(SMALL, kind="llama", layers=3, kv_heads=2, tied=0, rope_theta=10000.0, position="rope",
                              gated=0, activation="relu2", attention=[("window", 5), ("full", None), ("full", None)],
                              values_every=2, gate_inputs=5, optimizer="sgd", seed=418)


# ---- kinds of parts ----

def slopes(heads):
    """ALiBi's (Press et al. 2022), as its authors compute them."""
    power = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return own if power == heads else own + [2 ** (-4 * (i + 1) / power) for i in range(2 * power)][0::2][:heads - power]


def attend(c, layer, q, k, v, causal):
    """Attention [B, H, T, D] of a layer; the products and the softmax of the definition."""
    kind, window = c["attention"][layer]
    length = q.shape[-2]
    if kind == "linear":
        weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-2, -1)
        weights = weights.tril() if causal else weights
        return weights @ v / (weights.sum(-1, keepdim=True) + 1e-6)
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if kind == "alibi":
        scores = scores - torch.tensor(slopes(q.shape[1]), dtype=q.dtype)[:, None, None] * distance.abs()
    hidden = distance < 0 if causal else torch.zeros_like(distance, dtype=torch.bool)
    if kind == "window":
        hidden = hidden | (distance.abs() >= window)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def rotate_heads(c, t):
    """Rotary positions of [B, H, T, D]."""
    length, size = t.shape[-2:]
    frequency = c["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    cos, sin = (torch.cat((x, x), -1).to(t.dtype) for x in (angle.cos(), angle.sin()))
    a, b = t.chunk(2, -1)
    return t * cos + torch.cat((-b, a), -1) * sin


def sinusoids(c, like):
    frequency = 10000.0 ** (-torch.arange(0, c["width"], 2, dtype=torch.float64) / c["width"])
    angle = torch.outer(torch.arange(c["context"], dtype=torch.float64), frequency)
    return torch.cat((angle.cos(), angle.sin()), -1).to(like.dtype)


def activate(c, x, usual):
    kind = c.get("activation", usual)
    return {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh,
            "relu2": lambda x: F.relu(x) ** 2}[kind](x)


def norm_of(c, w, x, name, usual):
    if c.get("norm", usual) == "rms":
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["norm_eps"]) * w[name + ".weight"]
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], c["norm_eps"])


def gpt2_kinds_shapes(c):
    shapes = gpt2_shapes(c)
    width, mlp = c["width"], c["mlp_width"]
    if c["position"] != "learned":
        del shapes["wpe.weight"]
    for i in range(c["layers"]):
        if c["attention"][i][0] == "none":
            shapes = {n: s for n, s in shapes.items() if not n.startswith((f"h.{i}.attn.", f"h.{i}.ln_1."))}
        if c.get("gated"):
            shapes[f"h.{i}.mlp.c_gate.weight"], shapes[f"h.{i}.mlp.c_gate.bias"] = (width, mlp), (mlp,)
    if c.get("norm") == "rms":
        shapes = {n: s for n, s in shapes.items() if not (".ln_" in n or n.startswith("ln_")) or n.endswith(".weight")}
    return shapes


def gpt2_kinds_forward(c, w, tokens):
    heads, width = c["heads"], c["width"]

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][tokens.long()]
    x = x + sinusoids(c, x) if c["position"] == "sinusoidal" else x
    for i in range(c["layers"]):
        block = f"h.{i}."
        if c["attention"][i][0] != "none":
            y = linear(norm_of(c, w, x, block + "ln_1", "layer"), block + "attn.c_attn")
            q, k, v = (t.unflatten(-1, (heads, width // heads)).transpose(1, 2) for t in y.split(width, dim=-1))
            if c["position"] == "rope":
                q, k = rotate_heads(c, q), rotate_heads(c, k)
            x = x + linear(attend(c, i, q, k, v, True).transpose(1, 2).flatten(2), block + "attn.c_proj")
        y = norm_of(c, w, x, block + "ln_2", "layer")
        up = linear(y, block + "mlp.c_fc")
        y = (activate(c, linear(y, block + "mlp.c_gate"), "gelu_tanh") * up if c.get("gated")
             else activate(c, up, "gelu_tanh"))
        x = x + linear(y, block + "mlp.c_proj")
    return norm_of(c, w, x, "ln_f", "layer") @ w["wte.weight"].t()


def has_value_embedding(c, layer):
    return (c["layers"] - 1 - layer) % c["values_every"] == 0


def llama_streams_shapes(c):
    """With values that are also embedded, and blocks that read a mix of the sum and the embedding."""
    shapes = {n: s for n, s in llama_shapes(c).items() if not n.endswith("gate_proj.weight")}
    shapes["model.embed_norm.weight"] = (c["width"],)
    for i in range(c["layers"]):
        block = f"model.layers.{i}."
        shapes[block + "residual.x"], shapes[block + "residual.x0"] = (1,), (1,)
        if has_value_embedding(c, i):
            shapes[block + "self_attn.v_embed.weight"] = (c["vocab"], c["width"] // c["heads"] * c["kv_heads"])
            shapes[block + "self_attn.v_gate.weight"] = (c["kv_heads"], c["gate_inputs"])
    return shapes


def llama_streams_forward(c, w, tokens):
    size = c["width"] // c["heads"]
    x0 = x = norm_of(c, w, w["model.embed_tokens.weight"][tokens.long()], "model.embed_norm", "rms")
    for i in range(c["layers"]):
        block = f"model.layers.{i}."
        x = w[block + "residual.x"] * x + w[block + "residual.x0"] * x0
        y = norm_of(c, w, x, block + "input_layernorm", "rms")
        q, k, v = (F.linear(y, w[f"{block}self_attn.{n}_proj.weight"]).unflatten(-1, (-1, size)).transpose(1, 2)
                   for n in "qkv")
        if has_value_embedding(c, i):
            own = w[block + "self_attn.v_embed.weight"][tokens.long()].unflatten(-1, (-1, size)).transpose(1, 2)
            gate = 2 * torch.sigmoid(F.linear(y[..., :c["gate_inputs"]], w[block + "self_attn.v_gate.weight"]))
            v = v + gate.transpose(1, 2)[..., None] * own
        q, k = rotate_heads(c, q), rotate_heads(c, k)
        k, v = (t.repeat_interleave(c["heads"] // c["kv_heads"], dim=1) for t in (k, v))
        x = x + F.linear(attend(c, i, q, k, v, True).transpose(1, 2).flatten(2), w[block + "self_attn.o_proj.weight"])
        y = norm_of(c, w, x, block + "post_attention_layernorm", "rms")
        y = activate(c, F.linear(y, w[block + "mlp.up_proj.weight"]), "silu")
        x = x + F.linear(y, w[block + "mlp.down_proj.weight"])
    return F.linear(norm_of(c, w, x, "model.norm", "rms"), w["lm_head.weight"])


def llama_kinds_shapes(c):
    shapes = {n: s for n, s in llama_shapes(c).items() if not n.endswith("gate_proj.weight")}
    shapes["model.embed_positions.weight"] = (c["context"], c["width"])
    shapes.update({n[:-6] + "bias": s for n, s in list(shapes.items()) if len(s) == 1})
    return shapes


def llama_kinds_forward(c, w, tokens):
    size = c["width"] // c["heads"]
    x = w["model.embed_tokens.weight"][tokens.long()] + w["model.embed_positions.weight"]
    for i in range(c["layers"]):
        block = f"model.layers.{i}."
        y = norm_of(c, w, x, block + "input_layernorm", "rms")
        q, k, v = (F.linear(y, w[f"{block}self_attn.{n}_proj.weight"]).unflatten(-1, (-1, size)).transpose(1, 2)
                   for n in "qkv")
        k, v = (t.repeat_interleave(c["heads"] // c["kv_heads"], dim=1) for t in (k, v))
        y = attend(c, i, q, k, v, True).transpose(1, 2).flatten(2)
        x = x + F.linear(y, w[block + "self_attn.o_proj.weight"])
        y = norm_of(c, w, x, block + "post_attention_layernorm", "rms")
        y = activate(c, F.linear(y, w[block + "mlp.up_proj.weight"]), "silu")
        x = x + F.linear(y, w[block + "mlp.down_proj.weight"])
    return F.linear(norm_of(c, w, x, "model.norm", "rms"), w["lm_head.weight"])


def bert_kinds_shapes(c):
    shapes = bert_shapes(c)
    del shapes["bert.embeddings.position_embeddings.weight"]
    for i in range(c["layers"]):
        gate = f"bert.encoder.layer.{i}.intermediate.gate"
        shapes[gate + ".weight"], shapes[gate + ".bias"] = (c["mlp_width"], c["width"]), (c["mlp_width"],)
    return shapes


def bert_kinds_forward(c, w, tokens):
    width, heads = c["width"], c["heads"]

    def norm(x, name):
        return norm_of(c, w, x, name, "layer")

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    words = w["bert.embeddings.word_embeddings.weight"]
    x = norm(words[tokens.long()] + w["bert.embeddings.token_type_embeddings.weight"][0], "bert.embeddings.LayerNorm")
    for i in range(c["layers"]):
        layer = f"bert.encoder.layer.{i}."
        q, k, v = (linear(x, f"{layer}attention.self.{n}").unflatten(-1, (heads, width // heads)).transpose(1, 2)
                   for n in ("query", "key", "value"))
        y = attend(c, i, rotate_heads(c, q), rotate_heads(c, k), v, False).transpose(1, 2).flatten(2)
        x = norm(x + linear(y, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        y = activate(c, linear(x, layer + "intermediate.gate"), "gelu") * linear(x, layer + "intermediate.dense")
        x = norm(x + linear(y, layer + "output.dense"), layer + "output.LayerNorm")
    x = activate(c, linear(x, "cls.predictions.transform.dense"), "gelu")
    return norm(x, "cls.predictions.transform.LayerNorm") @ words.T + w["cls.predictions.bias"]


# ---- the models, as functions of a dictionary of weights ----

def gpt2_shapes(c):
    width, mlp = c["width"], c["mlp_width"]
    shapes = {"wte.weight": (c["vocab"], width), "wpe.weight": (c["context"], width)}
    for i in range(c["layers"]):
        for name, shape in (("ln_1", None), ("attn.c_attn", (width, 3 * width)),
                            ("attn.c_proj", (width, width)), ("ln_2", None),
                            ("mlp.c_fc", (width, mlp)), ("mlp.c_proj", (mlp, width))):
            shapes[f"h.{i}.{name}.weight"] = shape or (width,)
            shapes[f"h.{i}.{name}.bias"] = (shape or (width, width))[1:]
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (width,)
    return shapes


def gpt2_forward(c, w, tokens):
    tokens = tokens.long()
    batch, length = tokens.shape
    width, heads = c["width"], c["heads"]

    def norm(x, name):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + c["norm_eps"]) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    for i in range(c["layers"]):
        block = f"h.{i}."
        q, k, v = linear(norm(x, block + "ln_1"), block + "attn.c_attn").split(width, dim=-1)
        q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2) for t in (q, k, v))
        y = causal_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + linear(y, block + "attn.c_proj")
        x = x + linear(gelu(linear(norm(x, block + "ln_2"), block + "mlp.c_fc")), block + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].t()


def llama_shapes(c):
    width, mlp = c["width"], c["mlp_width"]
    kv = width // c["heads"] * c["kv_heads"]
    shapes = {"model.embed_tokens.weight": (c["vocab"], width)}
    for i in range(c["layers"]):
        for name, shape in (("input_layernorm", (width,)), ("self_attn.q_proj", (width, width)),
                            ("self_attn.k_proj", (kv, width)), ("self_attn.v_proj", (kv, width)),
                            ("self_attn.o_proj", (width, width)),
                            ("post_attention_layernorm", (width,)), ("mlp.gate_proj", (mlp, width)),
                            ("mlp.up_proj", (mlp, width)), ("mlp.down_proj", (width, mlp))):
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (width,)
    if not c["tied"]:
        shapes["lm_head.weight"] = (c["vocab"], width)
    return shapes


def llama_mlp(c, w, y, block):
    gate, up = (y @ w[f"{block}mlp.{n}_proj.weight"].t() for n in ("gate", "up"))
    return (gate * torch.sigmoid(gate) * up) @ w[block + "mlp.down_proj.weight"].t()


def llama_forward(c, w, tokens, mlp=llama_mlp):
    tokens = tokens.long()
    batch, length = tokens.shape
    width, heads, kv_heads = c["width"], c["heads"], c["kv_heads"]
    size = width // heads

    def norm(x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["norm_eps"]) * w[name + ".weight"]

    x = w["model.embed_tokens.weight"][tokens]
    # Rotary position embedding in Hugging Face's pairing: i with i + size / 2. The angles are made
    # in double precision, since what is under test is the model, not the rounding of cos.
    frequency = c["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    cos, sin = (torch.cat((t, t), -1).to(x.dtype) for t in (angle.cos(), angle.sin()))

    def rotate(t):
        a, b = t[..., :size // 2], t[..., size // 2:]
        return t * cos + torch.cat((-b, a), -1) * sin

    for i in range(c["layers"]):
        block = f"model.layers.{i}."
        y = norm(x, block + "input_layernorm")
        q, k, v = ((y @ w[f"{block}self_attn.{n}_proj.weight"].t()).view(batch, length, -1, size)
                   .transpose(1, 2) for n in "qkv")
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (rotate(k), v))
        y = causal_attention(rotate(q), k, v, c.get("window")).transpose(1, 2).reshape(batch, length, width)
        x = x + y @ w[block + "self_attn.o_proj.weight"].t()
        y = norm(x, block + "post_attention_layernorm")
        x = x + mlp(c, w, y, block)
    head = "model.embed_tokens.weight" if c["tied"] else "lm_head.weight"
    return norm(x, "model.norm") @ w[head].t()


def mixtral_shapes(c):
    shapes = {n: s for n, s in llama_shapes(c).items() if ".mlp." not in n}
    for i in range(c["layers"]):
        block = f"model.layers.{i}.block_sparse_moe."
        shapes[block + "gate.weight"] = (c["experts"], c["width"])
        for e in range(c["experts"]):
            for name in ("w1", "w2", "w3"):
                shape = (c["mlp_width"], c["width"])
                shapes[f"{block}experts.{e}.{name}.weight"] = shape[::-1] if name == "w2" else shape
    return shapes


def mixtral_forward(c, w, tokens):
    """Logits, and the routers' loss: of the choices of all layers together, E sum_e f_e P_e, where f_e
    is the share of tokens that chose expert e and P_e the mean of its probability (Mixtral's
    load_balancing_loss_func in transformers)."""
    probabilities, choices = [], []

    def mlp(c, w, y, block):
        block += "block_sparse_moe."
        p = (y @ w[block + "gate.weight"].t()).flatten(0, 1).softmax(-1)
        weight, choice = p.topk(c["chosen"], -1)
        weight = weight / weight.sum(-1, keepdim=True)
        probabilities.append(p)
        choices.append(choice)
        rows = y.flatten(0, 1)
        out = torch.zeros_like(rows)
        for e in range(c["experts"]):  # every expert on every token; what was not chosen weighs 0
            w1, w2, w3 = (w[f"{block}experts.{e}.w{n}.weight"] for n in (1, 2, 3))
            gate = rows @ w1.t()
            one = (gate * torch.sigmoid(gate) * (rows @ w3.t())) @ w2.t()
            out = out + one * (weight * (choice == e)).sum(-1, keepdim=True)
        return out.view_as(y)

    logits = llama_forward(c, w, tokens, mlp)
    p, choice = torch.cat(probabilities), torch.cat(choices)
    shares = F.one_hot(choice, c["experts"]).to(p.dtype).sum(1).mean(0)
    return logits, c["aux_coef"] * c["experts"] * (shares * p.mean(0)).sum()


def bert_shapes(c):
    width, mlp = c["width"], c["mlp_width"]
    shapes = {"bert.embeddings.word_embeddings.weight": (c["vocab"], width),
              "bert.embeddings.position_embeddings.weight": (c["context"], width),
              "bert.embeddings.token_type_embeddings.weight": (c["segments"], width)}

    def linear(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    linear("bert.embeddings.LayerNorm", width)
    for i in range(c["layers"]):
        layer = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            linear(f"{layer}attention.self.{name}", width, width)
        linear(layer + "attention.output.dense", width, width)
        linear(layer + "attention.output.LayerNorm", width)
        linear(layer + "intermediate.dense", mlp, width)
        linear(layer + "output.dense", width, mlp)
        linear(layer + "output.LayerNorm", width)
    linear("cls.predictions.transform.dense", width, width)
    linear("cls.predictions.transform.LayerNorm", width)
    shapes["cls.predictions.bias"] = (c["vocab"],)
    return shapes


def bert_forward(c, w, tokens):
    width, heads = c["width"], c["heads"]

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], c["norm_eps"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    words = w["bert.embeddings.word_embeddings.weight"]
    x = words[tokens.long()] + w["bert.embeddings.position_embeddings.weight"]
    x = norm(x + w["bert.embeddings.token_type_embeddings.weight"][0], "bert.embeddings.LayerNorm")
    for i in range(c["layers"]):
        layer = f"bert.encoder.layer.{i}."
        q, k, v = (linear(x, f"{layer}attention.self.{n}").unflatten(-1, (heads, width // heads)).transpose(1, 2)
                   for n in ("query", "key", "value"))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = norm(x + linear(y, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        y = linear(F.gelu(linear(x, layer + "intermediate.dense")), layer + "output.dense")
        x = norm(x + y, layer + "output.LayerNorm")
    x = F.gelu(linear(x, "cls.predictions.transform.dense"))
    return norm(x, "cls.predictions.transform.LayerNorm") @ words.T + w["cls.predictions.bias"]


def vit_shapes(c):
    width, mlp, patch = c["width"], c["mlp_width"], c["patch_size"]
    length = (c["image_size"] // patch) ** 2 + 1
    shapes = {"vit.embeddings.cls_token": (1, 1, width),
              "vit.embeddings.position_embeddings": (1, length, width)}

    def linear(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    linear("vit.embeddings.patch_embeddings.projection", width, c["channels"], patch, patch)
    for i in range(c["layers"]):
        layer = f"vit.encoder.layer.{i}."
        linear(layer + "layernorm_before", width)
        for name in ("query", "key", "value"):
            linear(f"{layer}attention.attention.{name}", width, width)
        linear(layer + "attention.output.dense", width, width)
        linear(layer + "layernorm_after", width)
        linear(layer + "intermediate.dense", mlp, width)
        linear(layer + "output.dense", width, mlp)
    linear("vit.layernorm", width)
    linear("classifier", c["classes"], width)
    return shapes


def vit_forward(c, w, images):
    width, heads = c["width"], c["heads"]

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], c["norm_eps"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    projection = "vit.embeddings.patch_embeddings.projection"
    x = F.conv2d(images.to(w[projection + ".weight"].dtype), w[projection + ".weight"], w[projection + ".bias"],
                 stride=c["patch_size"])
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat((w["vit.embeddings.cls_token"].expand(len(x), 1, width), x), 1)
    x = x + w["vit.embeddings.position_embeddings"]
    for i in range(c["layers"]):
        layer = f"vit.encoder.layer.{i}."
        y = norm(x, layer + "layernorm_before")
        q, k, v = (linear(y, f"{layer}attention.attention.{n}").unflatten(-1, (heads, width // heads))
                   .transpose(1, 2) for n in ("query", "key", "value"))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + linear(y, layer + "attention.output.dense")
        y = F.gelu(linear(norm(x, layer + "layernorm_after"), layer + "intermediate.dense"))
        x = x + linear(y, layer + "output.dense")
    return linear(norm(x, "vit.layernorm")[:, 0], "classifier")


def batch_norm_shapes(shapes, name, width):
    for part in ("weight", "bias", "running_mean", "running_var"):
        shapes[f"{name}.{part}"] = (width,)


def batch_norm(c, w, x, name):
    """With the statistics of the batch, which move the running ones, or with the running ones."""
    return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"],
                        w[name + ".bias"], c["training"], 0.1, 1e-5)


def resnet_layers(c):
    """For each residual block: its name, the channels in and out, its stride, and its convolutions."""
    width = c["width"]
    for s, (depth, out) in enumerate(zip(c["depths"], c["widths"])):
        for i in range(depth):
            stride = 2 if i == 0 and s > 0 else 1
            inner = out // 4
            convolutions = ([(width, out, 3, stride), (out, out, 3, 1)] if c["block"] == "basic" else
                            [(width, inner, 1, 1), (inner, inner, 3, stride), (inner, out, 1, 1)])
            yield f"resnet.encoder.stages.{s}.layers.{i}", width, out, stride, convolutions
            width = out


def resnet_shapes(c):
    shapes = {}

    def layer(name, width, out, size):
        shapes[name + ".convolution.weight"] = (out, width, size, size)
        batch_norm_shapes(shapes, name + ".normalization", out)

    layer("resnet.embedder.embedder", c["channels"], c["width"], 7)
    for name, width, out, stride, convolutions in resnet_layers(c):
        if width != out or stride != 1:
            layer(name + ".shortcut", width, out, 1)
        for i, (a, b, size, _) in enumerate(convolutions):
            layer(f"{name}.layer.{i}", a, b, size)
    shapes["classifier.1.weight"], shapes["classifier.1.bias"] = (c["classes"], c["widths"][-1]), (c["classes"],)
    return shapes


def resnet_forward(c, w, images):
    def layer(x, name, size, stride):
        x = F.conv2d(x, w[name + ".convolution.weight"], stride=stride, padding=size // 2)
        return batch_norm(c, w, x, name + ".normalization")

    x = images.to(w["classifier.1.weight"].dtype)
    x = F.max_pool2d(F.relu(layer(x, "resnet.embedder.embedder", 7, 2)), 3, 2, 1)
    for name, width, out, stride, convolutions in resnet_layers(c):
        y = x
        for i, (_, _, size, step) in enumerate(convolutions):
            y = layer(y if i == 0 else F.relu(y), f"{name}.layer.{i}", size, step)
        if width != out or stride != 1:
            x = layer(x, name + ".shortcut", 1, stride)
        x = F.relu(y + x)
    return F.linear(x.mean((2, 3)), w["classifier.1.weight"], w["classifier.1.bias"])


def convnext_shapes(c):
    shapes = {}

    def layer(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    widths = c["widths"]
    layer("convnext.embeddings.patch_embeddings", widths[0], c["channels"], c["patch_size"], c["patch_size"])
    layer("convnext.embeddings.layernorm", widths[0])
    for s, (depth, width) in enumerate(zip(c["depths"], widths)):
        stage = f"convnext.encoder.stages.{s}."
        if s > 0:
            layer(stage + "downsampling_layer.0", widths[s - 1])
            layer(stage + "downsampling_layer.1", width, widths[s - 1], 2, 2)
        for i in range(depth):
            block = f"{stage}layers.{i}."
            layer(block + "dwconv", width, 1, 7, 7)
            layer(block + "layernorm", width)
            layer(block + "pwconv1", 4 * width, width)
            layer(block + "pwconv2", width, 4 * width)
            shapes[block + "layer_scale_parameter"] = (width,)
    layer("convnext.layernorm", widths[-1])
    layer("classifier", c["classes"], widths[-1])
    return shapes


def convnext_forward(c, w, images):
    def layer(name):
        return w[name + ".weight"], w[name + ".bias"]

    def norm(x, name, eps=1e-6):
        x = x.movedim(1, -1)
        return F.layer_norm(x, x.shape[-1:], *layer(name), eps).movedim(-1, 1)

    def linear(x, name):
        return F.linear(x.movedim(1, -1), *layer(name)).movedim(-1, 1)

    x = images.to(w["classifier.weight"].dtype)
    x = F.conv2d(x, *layer("convnext.embeddings.patch_embeddings"), stride=c["patch_size"])
    x = norm(x, "convnext.embeddings.layernorm")
    for s, depth in enumerate(c["depths"]):
        stage = f"convnext.encoder.stages.{s}."
        if s > 0:
            x = norm(x, stage + "downsampling_layer.0")
            x = F.conv2d(x, *layer(stage + "downsampling_layer.1"), stride=2)
        for i in range(depth):
            block = f"{stage}layers.{i}."
            y = F.conv2d(x, *layer(block + "dwconv"), padding=3, groups=x.shape[1])
            y = linear(F.gelu(linear(norm(y, block + "layernorm"), block + "pwconv1")), block + "pwconv2")
            x = x + y * w[block + "layer_scale_parameter"][:, None, None]
    x = norm(x.mean((2, 3)), "convnext.layernorm", c["norm_eps"])
    return F.linear(x, *layer("classifier"))


def mobilenet_layers(c):
    """For each layer: its name, channels in and out, size, stride, dilation, whether it is depthwise and rectified,
    and what is done with what goes in: "keep" it for a sum, "sum" what was kept with the result."""
    def divisible(x):
        most = max(8, int(x + 4) // 8 * 8)
        return most + 8 if most < 0.9 * x else most

    def scaled(x):
        return divisible(int(round(x * c["multiplier"])))

    widths = [scaled(x) for x in [16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320]]
    stem = scaled(32)
    yield "conv_stem.first_conv", c["channels"], stem, 3, 2, 1, False, True, ""
    yield "conv_stem.conv_3x3", stem, stem, 3, 1, 1, True, True, ""
    yield "conv_stem.reduce_1x1", stem, widths[0], 1, 1, 1, False, False, ""
    so_far, dilation = 2, 1
    for i, stride in enumerate([2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]):
        a, b = widths[i:i + 2]
        inner, here = divisible(int(round(a * c["expand"]))), 1
        if so_far == c["output_stride"]:
            here, dilation, stride = dilation, dilation * stride, 1
        so_far *= stride
        sums = stride == 1 and a == b
        yield f"layer.{i}.expand_1x1", a, inner, 1, 1, 1, False, True, "keep" if sums else ""
        yield f"layer.{i}.conv_3x3", inner, inner, 3, stride, here, True, True, ""
        yield f"layer.{i}.reduce_1x1", inner, b, 1, 1, 1, False, False, "sum" if sums else ""
    yield "conv_1x1", widths[-1], scaled(1280), 1, 1, 1, False, True, ""


def mobilenet_shapes(c):
    shapes = {}
    for name, a, b, size, _, _, depthwise, _, _ in mobilenet_layers(c):
        shapes[f"mobilenet_v2.{name}.convolution.weight"] = (b, 1 if depthwise else a, size, size)
        batch_norm_shapes(shapes, f"mobilenet_v2.{name}.normalization", b)
        last = b
    shapes["classifier.weight"], shapes["classifier.bias"] = (c["classes"], last), (c["classes"],)
    return shapes


def mobilenet_forward(c, w, images):
    x = images.to(w["classifier.weight"].dtype)
    kept = None
    for name, a, _, size, stride, dilation, depthwise, rectified, what in mobilenet_layers(c):
        kept = x if what == "keep" else kept
        pads = []
        for extent in (x.shape[-1], x.shape[-2]):  # as TensorFlow pads
            lacks = max(size - (extent % stride or stride), 0)
            pads += [lacks // 2 * dilation, (lacks - lacks // 2) * dilation]
        x = F.conv2d(F.pad(x, pads), w[f"mobilenet_v2.{name}.convolution.weight"], stride=stride, dilation=dilation,
                     groups=a if depthwise else 1)
        x = F.batch_norm(x, *(w[f"mobilenet_v2.{name}.normalization.{part}"]
                              for part in ("running_mean", "running_var", "weight", "bias")), c["training"], 0.1, 1e-3)
        x = F.relu6(x) if rectified else x
        x = x + kept if what == "sum" else x
    return F.linear(x.mean((2, 3)), w["classifier.weight"], w["classifier.bias"])


def efficientnet_scaled(c, x):
    x *= c["width_factor"]
    most = max(8, int(x + 4) // 8 * 8)
    return most + 8 if most < 0.9 * x else most


def efficientnet_blocks(c):
    """For each block: its number, channels in, inside and out, the size and stride of its filter, whether it adds."""
    number, width = 0, efficientnet_scaled(c, 32)
    for stage, depth in enumerate(c["depths"]):
        for i in range(depth):
            out = efficientnet_scaled(c, c["widths"][stage])
            yield (number, width, width * c["ratios"][stage], out, c["sizes"][stage],
                   c["strides"][stage] if i == 0 else 1, i > 0)
            number, width = number + 1, out


def efficientnet_shapes(c):
    shapes = {}

    def conv(name, norm, shape):
        shapes[f"efficientnet.{name}.weight"] = shape
        batch_norm_shapes(shapes, f"efficientnet.{norm}", shape[0])

    conv("embeddings.convolution", "embeddings.batchnorm", (efficientnet_scaled(c, 32), c["channels"], 3, 3))
    for number, a, inner, b, size, _, _ in efficientnet_blocks(c):
        name, narrow = f"encoder.blocks.{number}", max(1, int(a * 0.25))
        if inner != a:
            conv(name + ".expansion.expand_conv", name + ".expansion.expand_bn", (inner, a, 1, 1))
        conv(name + ".depthwise_conv.depthwise_conv", name + ".depthwise_conv.depthwise_norm", (inner, 1, size, size))
        for part, shape in (("reduce", (narrow, inner, 1, 1)), ("expand", (inner, narrow, 1, 1))):
            shapes[f"efficientnet.{name}.squeeze_excite.{part}.weight"] = shape
            shapes[f"efficientnet.{name}.squeeze_excite.{part}.bias"] = shape[:1]
        conv(name + ".projection.project_conv", name + ".projection.project_bn", (b, inner, 1, 1))
        last = b
    top = efficientnet_scaled(c, 1280)
    conv("encoder.top_conv", "encoder.top_bn", (top, last, 1, 1))
    shapes["classifier.weight"], shapes["classifier.bias"] = (c["classes"], top), (c["classes"],)
    return shapes


def efficientnet_forward(c, w, images):
    x = images.to(w["classifier.weight"].dtype)

    def conv(x, name, norm, **how):
        x = F.conv2d(x, w[f"efficientnet.{name}.weight"], **how)
        return F.batch_norm(x, *(w[f"efficientnet.{norm}.{part}"]
                                 for part in ("running_mean", "running_var", "weight", "bias")), c["training"], 0.1, 1e-3)

    x = F.silu(conv(F.pad(x, (0, 1, 0, 1)), "embeddings.convolution", "embeddings.batchnorm", stride=2))
    for number, a, inner, _, size, stride, adds in efficientnet_blocks(c):
        name, kept, half = f"encoder.blocks.{number}", x, size // 2
        if inner != a:
            x = F.silu(conv(x, name + ".expansion.expand_conv", name + ".expansion.expand_bn"))
        before = half - 1 if stride == 2 and number not in c["square"] else half
        x = F.silu(conv(F.pad(x, (before, half, before, half)), name + ".depthwise_conv.depthwise_conv",
                        name + ".depthwise_conv.depthwise_norm", stride=stride, groups=inner))
        gate = x.mean((2, 3), keepdim=True)
        for part, function in (("reduce", F.silu), ("expand", torch.sigmoid)):
            layer = f"efficientnet.{name}.squeeze_excite.{part}"
            gate = function(F.conv2d(gate, w[layer + ".weight"], w[layer + ".bias"]))
        x = conv(x * gate, name + ".projection.project_conv", name + ".projection.project_bn")
        x = x + kept if adds else x
    x = F.silu(conv(x, "encoder.top_conv", "encoder.top_bn"))
    return F.linear(x.mean((2, 3)), w["classifier.weight"], w["classifier.bias"])


def unet_levels(c):
    """For each pair of convolutions: its name and channels in and out, in their order."""
    widths = [c["width"] << i for i in range(c["depth"] + 1)]
    for i in range(c["depth"]):
        yield f"encoder.{i}", c["channels"] if i == 0 else widths[i - 1], widths[i]
    yield "middle", widths[-2], widths[-1]
    for i in reversed(range(c["depth"])):
        yield f"decoder.{i}", widths[i + 1], widths[i]


def unet_shapes(c):
    shapes = {}
    for name, a, b in unet_levels(c):
        if name.startswith("decoder"):
            shapes[name + ".up.weight"] = (a, b, 2, 2) if c["up"] == "transposed" else (b, a, 1, 1)
            shapes[name + ".up.bias"] = (b,)
        for i in range(2):
            shapes[f"{name}.{i}.convolution.weight"] = (b, b if i else a, 3, 3)
            if c["norm"] == "batch":
                batch_norm_shapes(shapes, f"{name}.{i}.normalization", b)
            else:
                shapes[f"{name}.{i}.normalization.weight"] = shapes[f"{name}.{i}.normalization.bias"] = (b,)
    shapes["classifier.weight"], shapes["classifier.bias"] = (c["classes"], c["width"], 1, 1), (c["classes"],)
    return shapes


def unet_forward(c, w, images):
    """Logits [B, H, W, classes]."""
    x, kept = images.to(w["classifier.weight"].dtype), {}
    for name, _, _ in unet_levels(c):
        level = name.split(".")[-1]
        if name.startswith("decoder"):
            weight, bias = w[name + ".up.weight"], w[name + ".up.bias"]
            if c["up"] == "transposed":
                x = F.conv_transpose2d(x, weight, bias, stride=2)
            else:  # the other order is the same
                x = F.conv2d(F.interpolate(x, scale_factor=2, mode="bilinear"), weight, bias)
            x = torch.cat((kept[level], x), 1)
        for i in range(2):
            norm = f"{name}.{i}.normalization"
            x = F.conv2d(x, w[f"{name}.{i}.convolution.weight"], padding=1)
            if c["norm"] == "batch":
                x = F.batch_norm(x, *(w[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")),
                                 c["training"], 0.1, 1e-5)
            else:
                x = F.group_norm(x, c["groups"], w[norm + ".weight"], w[norm + ".bias"], 1e-5)
            x = F.relu(x)
        if name.startswith("encoder"):
            kept[level] = x
            x = F.max_pool2d(x, 2)
    return F.conv2d(x, w["classifier.weight"], w["classifier.bias"]).permute(0, 2, 3, 1)


def dit_shapes(c):
    width, patch, mlp = c["width"], c["patch_size"], c["mlp_width"]
    layers = {"x_embedder.proj": (width, c["channels"], patch, patch), "t_embedder.mlp.0": (width, 256),
              "t_embedder.mlp.2": (width, width)}
    for i in range(c["layers"]):
        block = f"blocks.{i}."
        layers.update({block + "attn.qkv": (3 * width, width), block + "attn.proj": (width, width),
                       block + "mlp.fc1": (mlp, width), block + "mlp.fc2": (width, mlp),
                       block + "adaLN_modulation.1": (6 * width, width)})
    layers["final_layer.linear"] = (patch * patch * c["channels"], width)
    layers["final_layer.adaLN_modulation.1"] = (2 * width, width)
    shapes = {"y_embedder.embedding_table.weight": (c["classes"] + 1, width)}
    for name, shape in layers.items():
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]
    return shapes


def sines(width, positions):
    """[positions, width]: sines, then cosines."""
    angles = torch.outer(positions.double(), 1 / 10000 ** (torch.arange(width // 2, dtype=torch.float64) / (width // 2)))
    return torch.cat((angles.sin(), angles.cos()), 1)


def dit_forward(c, w, images, timesteps, classes):
    """What is predicted, like the images."""
    dtype, width, patch, heads = w["final_layer.linear.weight"].dtype, c["width"], c["patch_size"], c["heads"]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def modulated(x, shift, scale):
        x = F.layer_norm(x, (width,), eps=c["norm_eps"])
        return x * (1 + scale[:, None]) + shift[:, None]

    x = F.conv2d(images.to(dtype), w["x_embedder.proj.weight"], w["x_embedder.proj.bias"], stride=patch)
    batch, _, rows, columns = x.shape
    across = sines(width // 2, torch.arange(columns)).repeat(rows, 1)
    down = sines(width // 2, torch.arange(rows)).repeat_interleave(columns, 0)
    x = x.flatten(2).transpose(1, 2) + torch.cat((across, down), 1).to(dtype)
    # Products of a time and a frequency in float32, where those of large times have few digits left.
    angles = timesteps.float()[:, None] / 10000 ** (torch.arange(0, 256, 2).float() / 256)
    t = torch.cat((angles.to(dtype).cos(), angles.to(dtype).sin()), 1)
    t = linear(F.silu(linear(t, "t_embedder.mlp.0")), "t_embedder.mlp.2")
    condition = F.silu(t + w["y_embedder.embedding_table.weight"][classes.long()])
    for i in range(c["layers"]):
        block = f"blocks.{i}."
        parts = linear(condition, block + "adaLN_modulation.1").chunk(6, 1)
        q, k, v = linear(modulated(x, parts[0], parts[1]), block + "attn.qkv").view(
            batch, rows * columns, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        a = ((q @ k.transpose(2, 3)) / math.sqrt(width // heads)).softmax(3) @ v
        x = x + parts[2][:, None] * linear(a.transpose(1, 2).flatten(2), block + "attn.proj")
        y = F.gelu(linear(modulated(x, parts[3], parts[4]), block + "mlp.fc1"), approximate="tanh")
        x = x + parts[5][:, None] * linear(y, block + "mlp.fc2")
    shift, scale = linear(condition, "final_layer.adaLN_modulation.1").chunk(2, 1)
    x = linear(modulated(x, shift, scale), "final_layer.linear")
    x = x.view(batch, rows, columns, patch, patch, c["channels"]).permute(0, 5, 1, 3, 2, 4)
    return x.reshape(images.shape)


def unet2d_levels(c):
    """What each block of the levels is called, with the channels that it reads and makes: down, and then up."""
    widths, kept = [c["width"] * m for m in c["multipliers"]], [c["width"]]
    now, down, up = c["width"], [], []
    for i, width in enumerate(widths):
        blocks = []
        for k in range(c["depth"]):
            blocks.append((f"down_blocks.{i}.resnets.{k}", now, width))
            now = width
            kept.append(now)
        down.append(blocks)
        if i + 1 < len(widths):
            kept.append(now)
    for i, width in enumerate(reversed(widths)):
        blocks = []
        for k in range(c["depth"] + 1):
            blocks.append((f"up_blocks.{i}.resnets.{k}", now + kept.pop(), width))
            now = width
        up.append(blocks)
    return down, up


def unet2d_shapes(c):
    width, shapes = c["width"], {}

    def layer(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    def block(name, inputs, outputs):
        layer(name + ".norm1", inputs)
        layer(name + ".conv1", outputs, inputs, 3, 3)
        layer(name + ".time_emb_proj", outputs, 4 * width)
        layer(name + ".norm2", outputs)
        layer(name + ".conv2", outputs, outputs, 3, 3)
        if inputs != outputs:
            layer(name + ".conv_shortcut", outputs, inputs, 1, 1)

    def attention(name, channels):
        layer(name + ".group_norm", channels)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            layer(f"{name}.{part}", channels, channels)

    down, up = unet2d_levels(c)
    last = c["width"] * c["multipliers"][-1]
    shapes["class_embedding.weight"] = (c["classes"] + 1, 4 * width)
    layer("time_embedding.linear_1", 4 * width, width)
    layer("time_embedding.linear_2", 4 * width, 4 * width)
    layer("conv_in", width, c["channels"], 3, 3)
    for levels, way in ((down, "down"), (up, "up")):
        for i, blocks in enumerate(levels):
            for name, inputs, outputs in blocks:
                block(name, inputs, outputs)
                if (i if way == "down" else len(up) - 1 - i) + 1 in c["attended"]:
                    attention(name.replace("resnets", "attentions"), outputs)
            if i + 1 < len(levels):
                layer(f"{way}_blocks.{i}.{way}samplers.0.conv", outputs, outputs, 3, 3)
    block("mid_block.resnets.0", last, last)
    attention("mid_block.attentions.0", last)
    block("mid_block.resnets.1", last, last)
    layer("conv_norm_out", width * c["multipliers"][0])
    layer("conv_out", c["channels"], width * c["multipliers"][0], 3, 3)
    return shapes


def unet2d_forward(c, w, images, timesteps, classes):
    """What is predicted, like the images."""
    dtype, width = w["conv_in.weight"].dtype, c["width"]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def conv(x, name, stride=1):
        return F.conv2d(x, w[name + ".weight"], w[name + ".bias"], stride, w[name + ".weight"].shape[-1] // 2)

    def norm(x, name):
        return F.group_norm(x, c["groups"], w[name + ".weight"], w[name + ".bias"], 1e-5)

    # Products of a time and a frequency in float32, where those of large times have few digits left.
    angles = timesteps.float()[:, None] / 10000 ** (torch.arange(0, width, 2).float() / width)
    t = torch.cat((angles.to(dtype).cos(), angles.to(dtype).sin()), 1)
    t = linear(F.silu(linear(t, "time_embedding.linear_1")), "time_embedding.linear_2")
    told = F.silu(t + w["class_embedding.weight"][classes.long()])

    def block(x, name):
        y = conv(F.silu(norm(x, name + ".norm1")), name + ".conv1") + linear(told, name + ".time_emb_proj")[:, :, None, None]
        y = conv(F.silu(norm(y, name + ".norm2")), name + ".conv2")
        return (conv(x, name + ".conv_shortcut") if name + ".conv_shortcut.weight" in w else x) + y

    def attention(x, name):
        batch, channels, rows, columns = x.shape
        if name + ".to_q.weight" not in w:
            return x
        y = norm(x, name + ".group_norm").flatten(2).transpose(1, 2)
        q, k, v = (linear(y, f"{name}.to_{part}").view(batch, rows * columns, -1, c["head_width"]).transpose(1, 2)
                   for part in "qkv")
        y = ((q @ k.transpose(2, 3)) / math.sqrt(c["head_width"])).softmax(3) @ v
        y = linear(y.transpose(1, 2).flatten(2), name + ".to_out.0")
        return x + y.transpose(1, 2).view_as(x)

    down, up = unet2d_levels(c)
    x = conv(images.to(dtype), "conv_in")
    kept = [x]
    for i, blocks in enumerate(down):
        for name, _, _ in blocks:
            x = attention(block(x, name), name.replace("resnets", "attentions"))
            kept.append(x)
        if i + 1 < len(down):
            x = conv(x, f"down_blocks.{i}.downsamplers.0.conv", 2)
            kept.append(x)
    x = block(attention(block(x, "mid_block.resnets.0"), "mid_block.attentions.0"), "mid_block.resnets.1")
    for i, blocks in enumerate(up):
        for name, _, _ in blocks:
            x = attention(block(torch.cat((x, kept.pop()), 1), name), name.replace("resnets", "attentions"))
        if i + 1 < len(up):
            x = conv(F.interpolate(x, scale_factor=2, mode="nearest"), f"up_blocks.{i}.upsamplers.0.conv")
    return conv(F.silu(norm(x, "conv_norm_out")), "conv_out")


def mlp_shapes(c):
    shapes = {f"embeddings.{i}.weight": (n, c["embedding"]) for i, n in enumerate(c["categories"])}
    width = c["numbers"] + c["embedding"] * len(c["categories"])
    for i, hidden in enumerate(c["hidden"]):
        shapes[f"layers.{i}.weight"], shapes[f"layers.{i}.bias"] = (hidden, width), (hidden,)
        if c["norm"]:
            shapes[f"norms.{i}.weight"] = shapes[f"norms.{i}.bias"] = (hidden,)
        width = hidden
    outputs = c["classes"] or 1
    shapes["output.weight"], shapes["output.bias"] = (outputs, width), (outputs,)
    return shapes


def mlp_forward(c, w, numbers, categories=None):
    parts = [numbers.to(w["output.weight"].dtype)]
    for i in range(len(c["categories"])):
        parts.append(w[f"embeddings.{i}.weight"][categories[:, i].long()])
    x = torch.cat(parts, 1)
    for i, hidden in enumerate(c["hidden"]):
        x = F.linear(x, w[f"layers.{i}.weight"], w[f"layers.{i}.bias"])
        if c["norm"]:
            x = F.layer_norm(x, (hidden,), w[f"norms.{i}.weight"], w[f"norms.{i}.bias"], c["norm_eps"])
        x = getattr(F, c["activation"])(x)
    return F.linear(x, w["output.weight"], w["output.bias"])


def dlinear_shapes(c):
    shapes = {}
    for name in ("Linear_Seasonal", "Linear_Trend"):
        shapes[name + ".weight"], shapes[name + ".bias"] = (c["horizon"], c["context"]), (c["horizon"],)
    return shapes


def dlinear_forward(c, w, series):
    x = series.to(w["Linear_Trend.weight"].dtype).transpose(1, 2)
    trend = F.avg_pool1d(F.pad(x, (c["kernel"] // 2,) * 2, mode="replicate"), c["kernel"], 1)
    return sum(F.linear(part, w[name + ".weight"], w[name + ".bias"])
               for part, name in ((x - trend, "Linear_Seasonal"), (trend, "Linear_Trend"))).transpose(1, 2)


def patch_count(c):
    return (c["context"] - c["patch"]) // c["stride"] + 1


def patchtst_shapes(c):
    width, mlp = c["width"], c["mlp_width"]
    shapes = {"model.encoder.positional_encoder.position_enc": (patch_count(c), width)}

    def linear(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    linear("model.encoder.embedder.input_embedding", width, c["patch"])
    for i in range(c["layers"]):
        layer = f"model.encoder.layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{layer}self_attn.{name}", width, width)
        batch_norm_shapes(shapes, layer + "norm_sublayer1.batchnorm", width)
        batch_norm_shapes(shapes, layer + "norm_sublayer3.batchnorm", width)
        linear(layer + "ff.0", mlp, width)
        linear(layer + "ff.3", width, mlp)
    if c["classes"]:
        linear("head.linear", c["classes"], c["channels"] * width)
    else:
        linear("head.projection", c["horizon"], patch_count(c) * width)
    return shapes


def patchtst_forward(c, w, series):
    width, heads, count = c["width"], c["heads"], patch_count(c)
    x = series.to(next(iter(w.values())).dtype)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.batch_norm(x.transpose(1, 2), *(w[f"{name}.batchnorm.{part}"] for part in
                                                 ("running_mean", "running_var", "weight", "bias")),
                            c["training"], 0.1, c["norm_eps"]).transpose(1, 2)

    mean = x.mean(1, keepdim=True)
    deviation = torch.sqrt(((x - mean) ** 2).mean(1, keepdim=True) + 1e-5)
    x = ((x - mean) / deviation)[:, c["context"] - c["patch"] - c["stride"] * (count - 1):]
    x = x.unfold(1, c["patch"], c["stride"]).transpose(1, 2).flatten(0, 1)
    x = linear(x, "model.encoder.embedder.input_embedding") + w["model.encoder.positional_encoder.position_enc"]
    for i in range(c["layers"]):
        layer = f"model.encoder.layers.{i}."
        y = norm(x, layer + "norm_sublayer1")
        q, k, v = (linear(y, f"{layer}self_attn.{n}_proj").unflatten(-1, (heads, width // heads)).transpose(1, 2)
                   for n in "qkv")
        y = ((q @ k.transpose(-2, -1) / math.sqrt(width // heads)).softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + linear(y, layer + "self_attn.out_proj")
        x = x + linear(F.gelu(linear(norm(x, layer + "norm_sublayer3"), layer + "ff.0")), layer + "ff.3")
    x = x.unflatten(0, (BATCH, c["channels"]))
    if c["classes"]:
        return linear(x.mean(2).flatten(1), "head.linear")
    return linear(x.flatten(2), "head.projection").transpose(1, 2) * deviation + mean


def linear_shapes(shapes, name, *shape):
    shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]


def standardized(forward, w, series, whole=False):
    """What `forward` makes of windows [B, T, C] with each channel standardized, in their own scale unless it tells
    something of them as a whole."""
    x = series.to(next(iter(w.values())).dtype)
    mean = x.mean(1, keepdim=True)
    deviation = torch.sqrt(x.var(1, correction=0, keepdim=True) + 1e-5)
    gain, shift = (w.get(f"revin_layer.affine_{part}") for part in ("weight", "bias"))
    x = (x - mean) / deviation
    y = forward(x if gain is None else x * gain + shift)
    if whole:
        return y
    return (y if gain is None else (y - shift) / (gain + 1e-10)) * deviation + mean


def told_of_all(c, features, w, name):
    """[B, width] to [B, horizon, channels], or to [B, classes]."""
    y = F.linear(features, w[name + ".weight"], w[name + ".bias"])
    return y if c["classes"] else y.view(BATCH, c["channels"], -1).transpose(1, 2)


def tcn_shapes(c):
    shapes, width = {}, c["width"]
    for i in range(c["layers"]):
        channels = width if i else c["channels"]
        linear_shapes(shapes, f"network.{i}.conv1", width, channels, c["kernel"])
        linear_shapes(shapes, f"network.{i}.conv2", width, width, c["kernel"])
        if channels != width:
            linear_shapes(shapes, f"network.{i}.downsample", width, channels, 1)
    linear_shapes(shapes, "linear", c["classes"] or c["channels"] * c["horizon"], width)
    return shapes


def tcn_forward(c, w, series):
    def convolve(x, name, dilation):
        return F.conv1d(F.pad(x, ((c["kernel"] - 1) * dilation, 0)), w[name + ".weight"], w[name + ".bias"], dilation=dilation)

    def network(x):
        x = x.transpose(1, 2)
        for i in range(c["layers"]):
            block, y = f"network.{i}.", x
            for name in ("conv1", "conv2"):
                y = F.relu(convolve(y, block + name, 2 ** i))
            if block + "downsample.weight" in w:
                x = F.conv1d(x, w[block + "downsample.weight"], w[block + "downsample.bias"])
            x = F.relu(y + x)
        return told_of_all(c, x[:, :, -1], w, "linear")

    return standardized(network, w, series, c["classes"] > 0)


def nbeats_shapes(c):
    shapes = {}
    for block in range(c["blocks"]):
        for layer in range(c["layers"]):
            linear_shapes(shapes, f"blocks.{block}.layers.{layer}", c["width"], c["width"] if layer else c["context"])
        linear_shapes(shapes, f"blocks.{block}.basis_parameters", c["context"] + c["horizon"], c["width"])
    if "affine" in c:
        shapes["revin_layer.affine_weight"] = shapes["revin_layer.affine_bias"] = (c["channels"],)
    return shapes


def nbeats_forward(c, w, series):
    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def network(x):
        x = x.transpose(1, 2)
        forecast = 0
        for block in range(c["blocks"]):
            y = x
            for layer in range(c["layers"]):
                y = F.relu(linear(y, f"blocks.{block}.layers.{layer}"))
            back, ahead = linear(y, f"blocks.{block}.basis_parameters").split((c["context"], c["horizon"]), -1)
            x, forecast = x - back, forecast + ahead
        return forecast.transpose(1, 2)

    return standardized(network, w, series)


def tide_blocks(c):
    """Name, inputs, hidden width and outputs of each residual block."""
    count = c["layers"] + c["decoder_layers"]
    for i in range(count):
        name = f"encoders.{i}" if i < c["layers"] else f"decoders.{i - c['layers']}"
        yield (name, c["width"] if i else c["context"], c["width"],
               c["width"] if i + 1 < count else c["decoder_width"] * c["horizon"])
    yield "temporalDecoder", c["decoder_width"], c["temporal_width"], 1


def tide_shapes(c):
    shapes = {}
    for name, inputs, hidden, outputs in tide_blocks(c):
        linear_shapes(shapes, name + ".fc1", hidden, inputs)
        linear_shapes(shapes, name + ".fc2", outputs, hidden)
        linear_shapes(shapes, name + ".fc3", outputs, inputs)
        if name != "temporalDecoder":
            shapes[name + ".ln.weight"] = shapes[name + ".ln.bias"] = (outputs,)
    linear_shapes(shapes, "residual_proj", c["horizon"], c["context"])
    return shapes


def tide_forward(c, w, series):
    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def network(x):
        x = window = x.transpose(1, 2)
        for name, _, _, outputs in tide_blocks(c):
            if name == "temporalDecoder":
                x = x.unflatten(-1, (c["horizon"], c["decoder_width"]))
            x = linear(F.relu(linear(x, name + ".fc1")), name + ".fc2") + linear(x, name + ".fc3")
            if name != "temporalDecoder":
                x = F.layer_norm(x, (outputs,), w[name + ".ln.weight"], w[name + ".ln.bias"], c["norm_eps"])
        return (x.squeeze(-1) + linear(window, "residual_proj")).transpose(1, 2)

    return standardized(network, w, series)


def recurrent_shapes(c):
    shapes, sums = {}, (4 if c["kind"] == "lstm" else 3) * c["width"]
    for i in range(c["layers"]):
        shapes[f"{c['kind']}.weight_ih_l{i}"] = (sums, c["width"] if i else c["channels"])
        shapes[f"{c['kind']}.weight_hh_l{i}"] = (sums, c["width"])
        shapes[f"{c['kind']}.bias_ih_l{i}"] = shapes[f"{c['kind']}.bias_hh_l{i}"] = (sums,)
    linear_shapes(shapes, "head", c["classes"] or c["channels"] * c["horizon"], c["width"])
    return shapes


def recurrent_forward(c, w, series):
    def network(x):
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        flat = [w[f"{c['kind']}.{part}_l{i}"] for i in range(c["layers"]) for part in parts]
        state = x.new_zeros(c["layers"], x.shape[0], c["width"])
        options = (flat, True, c["layers"], 0.0, False, False, True)  # biases, dropout, training, both ways, batch first
        x = torch.lstm(x, (state, state), *options)[0] if c["kind"] == "lstm" else torch.gru(x, state, *options)[0]
        return told_of_all(c, x.mean(1) if c["classes"] else x[:, -1], w, "head")

    return standardized(network, w, series, c["classes"] > 0)


def edges_of(c):
    """Edges (source, target) of a graph in which node 8 has none, sorted by target and source."""
    pairs = {(a, b) for a in range(8) for b in range(8) if a != b and (a * 5 + b * 3) % 7 < 3}
    return sorted(pairs | ({(a, a) for a in range(9)} if c["loops"] else set()), key=lambda p: (p[1], p[0]))


def node_constants(c):
    """What a model of nodes reads beside its batches, as banyan stores it."""
    rng = random.Random(c["seed"] + 1000)
    edges, nodes = edges_of(c), range(c["nodes"])
    back = sorted(range(len(edges)), key=lambda k: edges[k])
    weight = weights_of(c)
    degree = torch.tensor([sum(w for w, e in zip(weight, edges) if e[1] == n) for n in nodes], dtype=torch.float64).view(1, -1, 1)
    x = [rng.getrandbits(16) / 16384 - 2 for _ in range(c["nodes"] * c["channels"])]
    if "sparse" in c:
        x = [0.0 if rng.getrandbits(2) else v for v in x]

    def integers(values):
        return torch.tensor([values], dtype=torch.int32)

    constants = {"nodes.x": torch.tensor(x).view(1, c["nodes"], c["channels"]),
            "nodes.inverse_root": torch.where(degree > 0, degree ** -0.5, 0.0).float(),
            "nodes.inverse_degree": torch.where(degree > 0, 1 / degree, 0.0).float(),
            "edges.offsets": integers([sum(e[1] < n for e in edges) for n in range(c["nodes"] + 1)]),
            "edges.sources": integers([e[0] for e in edges]),
            "edges.back_offsets": integers([sum(e[0] < n for e in edges) for n in range(c["nodes"] + 1)]),
            "edges.back_sources": integers([edges[k][1] for k in back]),
            "edges.back_edges": integers(back)}
    if "weights" in c:
        constants["edges.weights"] = torch.tensor(weight, dtype=torch.float32).view(1, -1, 1)
    if "sparse" in c:
        places = [i for i, v in enumerate(x) if v]
        rows, columns = [i // c["channels"] for i in places], [i % c["channels"] for i in places]
        by_column = sorted(range(len(places)), key=lambda k: (columns[k], rows[k]))
        constants.update({"features.values": torch.tensor([x[i] for i in places]).view(1, -1, 1),
                          "features.offsets": integers([sum(r < n for r in rows) for n in range(c["nodes"] + 1)]),
                          "features.columns": integers(columns),
                          "features.back_offsets": integers([sum(k < n for k in columns) for n in range(c["channels"] + 1)]),
                          "features.back_rows": integers([rows[k] for k in by_column]),
                          "features.back_entries": integers(by_column)})
    if "relations" in c:
        many = c["relations"]
        typed = sorted((target, source * many + relation) for source, target, relation in typed_edges_of(c))
        back = sorted(range(len(typed)), key=lambda k: (typed[k][1], k))
        alike = [(target, pair % many) for target, pair in typed]
        constants.update({"relations.offsets": integers([sum(e[0] < n for e in typed) for n in range(c["nodes"] + 1)]),
                          "relations.sources": integers([e[1] for e in typed]),
                          "relations.weights": torch.tensor([1 / alike.count(a) for a in alike]).view(1, -1, 1),
                          "relations.back_offsets": integers([sum(e[1] < n for e in typed) for n in range(c["nodes"] * many + 1)]),
                          "relations.back_sources": integers([typed[k][0] for k in back]),
                          "relations.back_edges": integers(back)})
    return constants


def typed_edges_of(c):
    """Some edges have two relations."""
    return [(a, b, r) for a, b in edges_of(c) for r in range(c["relations"]) if (a + 2 * b + r) % 3 or r == (a + b) % c["relations"]]


def weights_of(c):
    return [0.5 + (3 * a + 5 * b) % 8 / 4 if "weights" in c else 1.0 for a, b in edges_of(c)]


def node_widths(c, i):
    return c["channels"] if i == 0 else c["width"], c["classes"] if i == c["layers"] - 1 else c["width"]


def node_shapes(c):
    shapes = {}
    for i in range(c["layers"]):
        wide, out = node_widths(c, i)
        layer = f"convs.{i}."
        if c["kind"] == "sage":
            shapes.update({layer + "lin_l.weight": (out, wide), layer + "lin_l.bias": (out,),
                           layer + "lin_r.weight": (out, wide)})
            continue
        if c["kind"] == "gin":
            shapes.update({layer + "nn.lins.0.weight": (out, wide), layer + "nn.lins.0.bias": (out,),
                           layer + "nn.lins.1.weight": (out, out), layer + "nn.lins.1.bias": (out,), layer + "eps": (1,)})
            if "norm" in c:
                shapes.update({layer + "nn.norms.0.weight": (out,), layer + "nn.norms.0.bias": (out,)})
            continue
        shapes[layer + "bias"] = (out,)
        if c["kind"] == "rgcn":
            shapes[layer + "root"] = (wide, out)
            shapes[layer + "weight"] = (c["bases"] or c["relations"], wide, out)
            if c["bases"]:
                shapes[layer + "comp"] = (c["relations"], c["bases"])
            continue
        heads = 1 if c["kind"] == "gcn" else c["output_heads"] if i == c["layers"] - 1 else c["heads"]
        each = out if i == c["layers"] - 1 else out // heads
        shapes[layer + "lin.weight"] = (heads * each, wide)
        if c["kind"] == "gat":
            shapes[layer + "att_src"] = shapes[layer + "att_dst"] = (1, heads, each)
    for i in range(c["layers"] - 1 if "norm" in c else 0):
        shapes[f"norms.{i}.weight"] = (c["width"],)
        if c["norm"] == "layer":
            shapes[f"norms.{i}.bias"] = (c["width"],)
    return shapes


def node_forward(c, w, ids):
    """With a dense matrix a[target, source] of edges."""
    dtype = next(iter(w.values())).dtype
    x = node_constants(c)["nodes.x"][0].to(dtype)
    a = torch.zeros(c["nodes"], c["nodes"], dtype=dtype)
    for (source, target), weight in zip(edges_of(c), weights_of(c)):
        a[target, source] = weight
    activation = getattr(F, c.get("activation", "elu" if c["kind"] == "gat" else "relu"))
    degree = a.sum(1, keepdim=True)
    for i in range(c["layers"]):
        layer = f"convs.{i}."
        if c["kind"] == "gcn":
            root = degree.pow(-0.5)
            y = (a * root * root.t()) @ x @ w[layer + "lin.weight"].t() + w[layer + "bias"]
        elif c["kind"] == "sage":
            if "largest" in c:
                near = torch.where(a[:, :, None] > 0, x[None], torch.tensor(-math.inf, dtype=dtype)).amax(1)
                near = torch.where(degree > 0, near, torch.zeros((), dtype=dtype))
            else:
                near = a @ x / degree.clamp_min(1)
            y = near @ w[layer + "lin_l.weight"].t() + w[layer + "lin_l.bias"] + x @ w[layer + "lin_r.weight"].t()
        elif c["kind"] == "gin":
            y = ((1 + w[layer + "eps"]) * x + a @ x) @ w[layer + "nn.lins.0.weight"].t() + w[layer + "nn.lins.0.bias"]
            if "norm" in c:
                y = F.layer_norm(y, y.shape[1:], w[layer + "nn.norms.0.weight"], w[layer + "nn.norms.0.bias"], 1e-5)
            y = activation(y) @ w[layer + "nn.lins.1.weight"].t() + w[layer + "nn.lins.1.bias"]
        elif c["kind"] == "rgcn":
            matrices = w[layer + "weight"]
            if c["bases"]:
                matrices = torch.einsum("rb,bio->rio", w[layer + "comp"], matrices)
            y = x @ w[layer + "root"] + w[layer + "bias"]
            for relation in range(c["relations"]):
                of = torch.zeros_like(a)
                for source, target, kind in typed_edges_of(c):
                    of[target, source] += kind == relation
                y = y + of @ x / of.sum(1, keepdim=True).clamp_min(1) @ matrices[relation]
        else:
            heads, each = w[layer + "att_src"].shape[1:]
            h = (x @ w[layer + "lin.weight"].t()).view(-1, heads, each)
            scores = (h * w[layer + "att_dst"]).sum(-1)[:, None] + (h * w[layer + "att_src"]).sum(-1)[None]
            scores = F.leaky_relu(scores, 0.2).masked_fill(a[:, :, None] == 0, -math.inf)
            y = torch.einsum("tsh,shd->thd", scores.softmax(1), h)
            y = (y.mean(1) if i == c["layers"] - 1 else y.flatten(1)) + w[layer + "bias"]
        if i < c["layers"] - 1:
            if "norm" in c:
                scale, shift = w[f"norms.{i}.weight"], w.get(f"norms.{i}.bias")
                y = F.layer_norm(y, y.shape[1:], scale, shift, 1e-5) if c["norm"] == "layer" else \
                    y * (y.square().mean(1, keepdim=True) + 1e-5).rsqrt() * scale
            y = activation(y)
        x = y + x if "residual" in c and x.shape == y.shape else y
    return x[ids.long()]


def causal_attention(q, k, v, window=None):
    """Of `window` keys at most, its own among them."""
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    place = torch.arange(length)
    hidden = place[None, :] > place[:, None]
    if window is not None:
        hidden = hidden | (place[None, :] <= place[:, None] - window)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def tokens_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten().long(), ignore_index=-1)


def labels_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten().long(), ignore_index=-1)


def targets_loss(values, targets):
    return F.mse_loss(values.view(targets.shape), targets.to(values.dtype))


MODELS = {"gpt2": (gpt2_shapes, gpt2_forward), "llama": (llama_shapes, llama_forward),
          "mixtral": (mixtral_shapes, mixtral_forward), "vit": (vit_shapes, vit_forward),
          "bert": (bert_shapes, bert_forward),
          "resnet": (resnet_shapes, resnet_forward), "convnext": (convnext_shapes, convnext_forward),
          "mobilenet_v2": (mobilenet_shapes, mobilenet_forward),
          "efficientnet": (efficientnet_shapes, efficientnet_forward), "unet": (unet_shapes, unet_forward),
          "dit": (dit_shapes, dit_forward), "unet2d": (unet2d_shapes, unet2d_forward),
          "mlp": (mlp_shapes, mlp_forward),
          "dlinear": (dlinear_shapes, dlinear_forward), "patchtst": (patchtst_shapes, patchtst_forward),
          "tcn": (tcn_shapes, tcn_forward), "nbeats": (nbeats_shapes, nbeats_forward),
          "tide": (tide_shapes, tide_forward),
          "lstm": (recurrent_shapes, recurrent_forward), "gru": (recurrent_shapes, recurrent_forward),
          "gcn": (node_shapes, node_forward), "sage": (node_shapes, node_forward), "gat": (node_shapes, node_forward),
          "gin": (node_shapes, node_forward), "rgcn": (node_shapes, node_forward)}


KINDS = {"gpt2": (gpt2_kinds_shapes, gpt2_kinds_forward), "llama": (llama_kinds_shapes, llama_kinds_forward),
         "bert": (bert_kinds_shapes, bert_kinds_forward)}


def model_of(c):
    """The functions that make the shapes of the weights, and the outputs."""
    if "values_every" in c:
        return llama_streams_shapes, llama_streams_forward
    return (KINDS if "attention" in c else MODELS)[c["kind"]]


def loss_of(c, logits, wanted, weight=None):
    """`wanted` is the last array of a batch but its weights."""
    if weight is not None:
        return (((logits - wanted.to(logits.dtype)) ** 2).flatten(1).mean(1) * weight).sum() / BATCH
    if "vocab" in c:
        return tokens_loss(logits, wanted)
    return labels_loss(logits, wanted) if c["classes"] else targets_loss(logits, wanted)


# ---- inputs: short binary fractions from Mersenne Twister integers, exact on every machine ----

def make_inputs(c):
    rng = random.Random(c["seed"])

    def uniform(shape, low, high):
        values = [low + (high - low) * (rng.getrandbits(16) / 65536) for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.float64).to(torch.float32).view(shape)

    weights = {}
    for name, shape in model_of(c)[0](c).items():
        if len(shape) > 2 and "convolutional" in c:
            # Uniform with the variance of He et al., so that what is normalized by given statistics stays small.
            most = round(64 * math.sqrt(6 / math.prod(shape[1:]))) / 64
            weights[name] = uniform(shape, -most, most)
        elif len(shape) > 1 and c["kind"] in ("dit", "unet2d"):  # whose modulations multiply each other
            weights[name] = uniform(shape, -0.1875, 0.1875)
        elif len(shape) > 1:
            # Standard deviation 0.25, about 1.4 / sqrt(width): attention, gates and GELU leave their
            # linear range, and no gradient is tiny.
            weights[name] = uniform(shape, -0.4375, 0.4375)
        elif name.endswith((".weight", ".affine_weight", ".running_var")):
            weights[name] = uniform(shape, 0.5, 1.5)
        else:
            weights[name] = uniform(shape, -0.25, 0.25)

    def integers(shape, limit):
        values = [rng.randrange(limit) for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.int32).view(shape)

    def language_batch():
        tokens = [rng.randrange(c["vocab"]) for _ in range(BATCH * c["context"])]
        targets = [rng.randrange(c["vocab"]) if rng.randrange(8) else -1 for _ in tokens]
        return {n: torch.tensor(t, dtype=torch.int32).view(BATCH, c["context"])
                for n, t in (("tokens", tokens), ("targets", targets))}

    def example_batch():
        batch = {}
        if "image_size" in c:
            shape = (BATCH, c["channels"], c["image_size"], c.get("image_width", c["image_size"]))
            batch["images"] = uniform(shape, -2, 2)
        else:
            batch["numbers"] = uniform((BATCH, c["numbers"]), -2, 2)
        if c.get("categories"):
            columns = [integers((BATCH, 1), n) for n in c["categories"]]
            batch["categories"] = torch.cat(columns, 1)
        if c["kind"] in ("dit", "unet2d"):  # the last class is none
            batch["timesteps"], batch["classes"] = integers((BATCH,), 1000), integers((BATCH,), c["classes"] + 1)
            batch["targets"], batch["weight"] = uniform(shape, -2, 2), uniform((BATCH,), 0.5, 1.5)
        elif c["kind"] == "unet":  # one at each pixel, -1 for none
            batch["labels"] = integers((BATCH, c["image_size"], c["image_size"]), c["classes"] + 1) - 1
        elif c["classes"]:
            batch["labels"] = integers((BATCH,), c["classes"])
        else:
            batch["targets"] = uniform((BATCH,), -2, 2)
        return batch

    def series_batch():
        series = uniform((BATCH, c["context"], c["channels"]), -2, 2)
        if c["classes"]:
            return {"series": series, "labels": integers((BATCH,), c["classes"])}
        return {"series": series, "targets": uniform((BATCH, c["horizon"], c["channels"]), -2, 2)}

    def node_batch():
        return {"ids": integers((BATCH,), c["nodes"]), "labels": integers((BATCH,), c["classes"])}

    batches = [(node_batch if "nodes" in c else series_batch if "horizon" in c else language_batch if "vocab" in c else example_batch)() for _ in range(STEPS + 1)]
    return weights, batches[0], batches[1:]


# ---- one case ----

def run_case(c, dtype):
    """The outputs of the head comment, as a dictionary."""
    forward = model_of(c)[1]
    initial, first, steps = make_inputs(c)
    weights = {n: t.to(dtype).requires_grad_() for n, t in initial.items() if ".running_" not in n}
    statistics = {n: t.to(dtype) for n, t in initial.items() if ".running_" in n}

    def run(batch, statistics, training=True):
        *inputs, wanted = (batch[n] for n in batch if n != "weight")
        logits = forward(dict(c, training=training), {**weights, **statistics}, *inputs)
        logits, auxiliary = logits if isinstance(logits, tuple) else (logits, 0)
        loss = loss_of(c, logits, wanted, batch.get("weight"))
        return logits, loss, loss + auxiliary

    logits = run(first, statistics, False)[0]
    _, loss, objective = run(first, {n: t.clone() for n, t in statistics.items()})
    objective.backward()
    out = {"logits": logits.detach(), "loss": loss.detach()}
    out.update({"grad." + n: t.grad.clone() for n, t in weights.items()})

    matrices = [t for t in weights.values() if t.dim() >= 2]
    if "optimizer" in c:
        optimizer = torch.optim.SGD(list(weights.values()), lr=0.05, momentum=0.9, nesterov=True)
    else:
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1},
             {"params": [t for t in weights.values() if t.dim() < 2], "weight_decay": 0.0}],
            lr=1e-3, betas=(0.9, 0.99), eps=1e-8)
    losses, norms = [], []
    for batch in steps:
        optimizer.zero_grad()
        _, loss, objective = run(batch, statistics)
        objective.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0))
        if "optimizer" in c:  # whose own decay is not decoupled
            with torch.no_grad():
                for tensor in matrices:
                    tensor.mul_(1 - 0.05 * 0.1)
        optimizer.step()
        losses.append(loss.detach())
    out["losses"], out["norms"] = torch.stack(losses), torch.stack(norms).to(dtype)
    out.update({"final." + n: t.detach() for n, t in {**weights, **statistics}.items()})
    return out


def relative(a, b):
    """|a - b| / |b|, Euclidean, in double precision."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-300)).item()


def comparable(c, name, tensor):
    """What of a tensor is determined: final.*.c_attn.bias without its key part, nothing of *.key.bias and the like."""
    if name.endswith(("attention.key.bias", "attention.self.key.bias", "self_attn.k_proj.bias", ".to_k.bias")) and not name.startswith("weights."):
        return tensor[:0]
    if name.startswith("final.") and name.endswith(("attn.c_attn.bias", "attn.qkv.bias")):
        return torch.cat((tensor[:c["width"]], tensor[2 * c["width"]:]))
    return tensor


def make_case(c):
    weights, first, steps = make_inputs(c)
    single, double = run_case(c, torch.float32), run_case(c, torch.float64)
    errors = {}
    for name, value in single.items():
        group = name.split(".")[0]
        error = relative(comparable(c, name, value), comparable(c, name, double[name]))
        errors[group] = max(errors.get(group, 0.0), error)
    tensors = {"weights." + n: t for n, t in weights.items()}
    tensors.update(first)
    if "nodes" in c:
        tensors.update({"constants." + n: t for n, t in node_constants(c).items()})
    tensors.update({"steps." + n: torch.stack([s[n] for s in steps]) for n in first})
    tensors.update(single)
    if "only" in c:
        kept = ("weights", "images", "labels", "logits")
        tensors = {n: t for n, t in tensors.items() if n.split(".")[0] in kept}
    elif c["kind"] == "gpt2" and "optimizer" in c and "attention" not in c:
        kept = ("weights", "steps", "losses", "norms", "final")
        tensors = {n: t for n, t in tensors.items() if n.split(".")[0] in kept}
    metadata = {k: str(v) for k, v in c.items() if k != "seed"}
    metadata.update(batch=str(BATCH), steps=str(STEPS), torch=torch.__version__)
    metadata.update({"error." + k: f"{v:.2e}" for k, v in errors.items()})
    return tensors, metadata


# ---- safetensors: u64 header length, JSON header padded to 8 bytes, raw data ----

DTYPES = {"F32": torch.float32, "I32": torch.int32}


def write_safetensors(path, tensors, metadata):
    header, offset, blobs = {"__metadata__": metadata}, 0, []
    names = {v: k for k, v in DTYPES.items()}
    for name, tensor in sorted(tensors.items()):
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        blob = bytearray(data[8 + length + begin:8 + length + end])
        tensors[name] = torch.frombuffer(blob, dtype=DTYPES[info["dtype"]]).view(info["shape"])
    return tensors, metadata


# ---- check ----

def check_case(path, name, tensors, metadata):
    """Compares a fresh computation with a committed file; returns the number of differences.

    Inputs must be equal bit for bit. Outputs may differ by what another BLAS, instruction set or
    PyTorch rounds differently: of the size of the reference's own error against float64, so 8 times
    that error (two computations, and rounding that varies by case), and never less than 1e-6 relative,
    about 8 float32 epsilons.
    """
    committed, said = read_safetensors(path)
    failures = 0
    if set(committed) != set(tensors):
        print(f"{path}: other tensors: {sorted(set(committed) ^ set(tensors))}")
        failures += 1
    for key, value in metadata.items():
        if key != "torch" and not key.startswith("error.") and said.get(key) != value:
            print(f"{path}: metadata {key}: {said.get(key)!r}, expected {value!r}")
            failures += 1
    worst = {}
    for key in sorted(set(committed) & set(tensors)):
        old, new, group = committed[key], tensors[key], key.split(".")[0]
        if old.dtype != new.dtype or old.shape != new.shape:
            print(f"{path}: {key}: {old.dtype} {tuple(old.shape)}, expected {new.dtype} {tuple(new.shape)}")
            failures += 1
            continue
        if group in ("weights", "steps") + INPUTS or "error." + group not in metadata:
            limit, distance = 0.0, float((old != new).sum())
        else:
            # Either run may be the one whose rounding an optimizer has amplified.
            error = max(float(metadata["error." + group]), float(said.get("error." + group, 0)))
            limit = max(1e-6, 8 * error)
            distance = relative(comparable(CASES[name], key, old), comparable(CASES[name], key, new))
        worst[group] = max(worst.get(group, 0.0), distance)
        if not distance <= limit:
            print(f"{path}: {key}: differs by {distance:.2e}, limit {limit:.2e}")
            failures += 1
    print(f"{path}: " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
    return failures


def main():
    parser = argparse.ArgumentParser(description="golden files for the parity tests")
    parser.add_argument("--check", action="store_true", help="compare with DIR instead of writing it")
    parser.add_argument("--only", action="append", metavar="NAME", help="of this case alone")
    parser.add_argument("directory", metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0
    for name, c in CASES.items():
        if arguments.only and name not in arguments.only:
            continue
        path = os.path.join(arguments.directory, name + ".safetensors")
        tensors, metadata = make_case(c)
        if arguments.check:
            failures += check_case(path, name, tensors, metadata)
        else:
            os.makedirs(arguments.directory, exist_ok=True)
            write_safetensors(path, tensors, metadata)
            print(f"{path}: {os.path.getsize(path)} bytes, "
                  f"losses {tensors['losses'][0].item():.4f} .. {tensors['losses'][-1].item():.4f}, "
                  f"norms {tensors['norms'].min().item():.2f} .. {tensors['norms'].max().item():.2f}, "
                  + ", ".join(f"{k} {v}" for k, v in metadata.items() if k.startswith("error.")))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
