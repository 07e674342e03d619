#!/usr/bin/env python3
"""Twenty steps of distillation, and of quantisation-aware training, give the weights and losses that PyTorch gives.

    check_distill.py BANYAN WORK     WORK: an empty directory for files

Students and teachers are tiny models that transformers makes, of both families. The data has one window, so that
every sample of a batch is the same and their order does not matter. PyTorch's loss is (1 - a) CE + a T^2 KL, with
torch.nn.functional.kl_div, and optionally the squared error of projected hidden states. Quantisation-aware training
has the weights of blocks rounded in PyTorch's forward pass, and gradients that go straight through; weights that are at
a border of two codes may fall on either side, so that its losses agree to less than those of distillation.
"""
import json
import os
import subprocess
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

STEPS, CONTEXT, VOCAB = 20, 64, 61
QAT_LR = 3e-4


def fail(message):
    print(f"check_distill: {message}", file=sys.stderr)
    sys.exit(1)


def gpt2(width, layers):
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_head=4, n_embd=width, n_positions=CONTEXT, vocab_size=VOCAB,
                                      initializer_range=0.2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                      bos_token_id=0, eos_token_id=0))


def llama(width, layers):
    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, hidden_size=width,
        intermediate_size=2 * width, max_position_embeddings=CONTEXT, vocab_size=VOCAB, initializer_range=0.2,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0))


def data():
    """The text that banyan packs and the samples that it trains on: the tokens of `char` are in the order of
    their bytes, and the first of the text has all of them."""
    text = "".join(chr(40 + i) for i in range(VOCAB))
    text += "".join(chr(40 + (i * i + i // 7) % VOCAB) for i in range(CONTEXT + 1 - VOCAB))
    with open(f"{WORK}/text.txt", "w") as file:
        file.write(text)
    ids = torch.tensor([ord(c) - 40 for c in text])
    return ids[:-1].reshape(1, CONTEXT), ids[1:].reshape(1, CONTEXT)


def body(model):
    return model.transformer if hasattr(model, "transformer") else model.model


def torch_run(student, teacher, projection, temperature, weight, hidden):
    tokens, targets = data()
    parameters = [p for p in student.parameters()] + ([projection] if hidden > 0 else [])
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    student.train()
    teacher.eval()
    for _ in range(STEPS):
        optimizer.zero_grad()
        h = body(student)(tokens, use_cache=False).last_hidden_state
        z = student.lm_head(h).flatten(0, 1)
        with torch.no_grad():
            g = body(teacher)(tokens, use_cache=False).last_hidden_state
            y = teacher.lm_head(g).flatten(0, 1)
        hard = F.cross_entropy(z, targets.flatten())
        soft = F.kl_div(F.log_softmax(z / temperature, -1), F.log_softmax(y / temperature, -1), log_target=True,
                        reduction="batchmean")
        loss = (1 - weight) * hard + weight * temperature ** 2 * soft
        if hidden > 0:
            loss = loss + hidden * F.mse_loss(F.linear(h, projection), g)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def rounded(weight, bits, group):
    """What codes stand for: a scale for each `group` inputs (bits 4) or all (8) of an output; weight [inputs,
    outputs]."""
    inputs, outputs = weight.shape
    w = weight.reshape(inputs // group if bits == 4 else 1, -1, outputs)
    at = w.abs().argmax(1, keepdim=True)
    extreme = w.gather(1, at)
    if bits == 4:
        scale = (extreme / -8).half().float()
        q = torch.clamp(torch.round(w / scale), -8, 7) * scale
    else:
        scale = extreme.abs() / 127
        q = torch.clamp(torch.round(w / scale), -127, 127) * scale
    return q.reshape(inputs, outputs)


def quantise(model, bits, group):
    """Lets the products of blocks compute with rounded weights; the gradient is that of the weights."""
    for name, module in model.named_modules():
        if ".h." not in name and ".layers." not in name or not hasattr(module, "weight") or module.weight.dim() != 2:
            continue
        linear = isinstance(module, torch.nn.Linear)

        def forward(x, module=module, linear=linear):
            w = module.weight.T if linear else module.weight
            w = w + (rounded(w, bits, group) - w).detach()
            return x @ w + (0 if module.bias is None else module.bias)

        module.forward = forward


def torch_qat(model):
    tokens, targets = data()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=QAT_LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        z = model.lm_head(body(model)(tokens, use_cache=False).last_hidden_state).flatten(0, 1)
        loss = F.cross_entropy(z, targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_qat(name, model, bits):
    model.save_pretrained(f"{WORK}/{name}-student")
    plain = torch_qat(type(model).from_pretrained(f"{WORK}/{name}-student"))
    quantise(model, bits, 32)
    want = torch_qat(model)
    got, _ = banyan_run(name, "distill.teacher=", f"precision.qat=int{bits}", "precision.qat_group=32",
                        f"optimizer.lr={QAT_LR}")
    off = [abs(a - b) / abs(b) for a, b in zip(got, want)]
    print(f"{name}: losses {want[0]:.4f} to {want[-1]:.4f} ({plain[0]:.4f} to {plain[-1]:.4f} without), off by "
          f"{max(off[:2]):.1e}, later {max(off):.1e}")
    if not (max(off[:2]) < 2e-5 and max(off) < 2e-3):
        fail(f"{name}: the losses differ: {got} and {want}")
    if not abs(want[0] - plain[0]) > 1e-3 * abs(plain[0]) / 16 ** (bits // 8):
        fail(f"{name}: rounding changed nothing, so nothing is compared")


def banyan_run(name, *settings):
    with open(f"{WORK}/{name}.yaml", "w") as file:
        file.write(f"name: {name}\n")
    arguments = [f"model.from={WORK}/{name}-student", f"distill.teacher={WORK}/{name}-teacher", f"run.dir={WORK}/runs",
                 f"data.cache={WORK}/cache", f"data.text=[{WORK}/text.txt]", "data.tokenizer=char",
                 "data.valid_fraction=0", f"train.steps={STEPS}", "train.batch=4", "train.micro_batch=2",
                 "train.log_every=1", "optimizer.lr=1e-2", "optimizer.schedule=constant", "optimizer.warmup=0",
                 "optimizer.betas=[0.9, 0.95]", "optimizer.weight_decay=0.1", "optimizer.clip=1.0", "precision.compute=f32", *settings]
    done = subprocess.run([BANYAN, "train", f"{WORK}/{name}.yaml", "--json",
                           *[word for one in arguments for word in ("--set", one)]], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    losses = {}
    for line in open(f"{WORK}/runs/{name}/events.jsonl"):
        event = json.loads(line)
        if "loss" in event and "step" in event:
            losses[event["step"]] = event["loss"]
    return [losses[i] for i in range(1, STEPS + 1)], f"{WORK}/runs/{name}/checkpoints/step-{STEPS:08d}"


def check(name, student, teacher, temperature, weight, hidden):
    student.save_pretrained(f"{WORK}/{name}-student")
    teacher.save_pretrained(f"{WORK}/{name}-teacher")
    settings = [f"distill.temperature={temperature}", f"distill.weight={weight}", f"distill.hidden={hidden}"]
    # The projection is drawn by banyan: a run of one step with no learning rate writes it.
    projection = None
    if hidden > 0:
        os.makedirs(f"{WORK}/first", exist_ok=True)
        for kind in ("student", "teacher"):
            os.symlink(f"{WORK}/{name}-{kind}", f"{WORK}/{name}0-{kind}")
        _, path = banyan_run(f"{name}0", *settings, "optimizer.lr=1e-30", "optimizer.min_lr=1e-30",
                             "optimizer.weight_decay=0")
        projection = torch.nn.Parameter(load_file(f"{path}/model.safetensors")["distill.projection.weight"])
    want = torch_run(student, teacher, projection, temperature, weight, hidden)
    got, path = banyan_run(name, *settings)
    worst = max(abs(a - b) / abs(b) for a, b in zip(got, want))
    print(f"{name}: losses {want[0]:.4f} to {want[-1]:.4f}, off by {worst:.1e}")
    if not worst < 2e-5:
        fail(f"{name}: the losses differ by {worst:.1e}: {got} and {want}")
    if not want[-1] < 0.9 * want[0]:
        fail(f"{name}: nothing was learned, so nothing is compared")
    weights = load_file(f"{path}/model.safetensors")
    for key, value in student.state_dict().items():
        key = key if key in weights else key.removeprefix("transformer.")
        if key not in weights or key.endswith("c_attn.bias"):  # the gradient of a bias of keys is 0
            continue
        distance = ((weights[key] - value).norm() / value.norm()).item()
        if not distance < 2e-3:
            fail(f"{name}: {key} is off by {distance:.1e}")


def main():
    torch.manual_seed(11)
    data()
    check("llama-gpt2", llama(32, 1), gpt2(48, 2), 2.0, 0.5, 0.0)
    check("gpt2-llama", gpt2(32, 1), llama(48, 2), 1.5, 0.75, 0.5)
    check_qat("qat-gpt2", gpt2(64, 2), 4)
    check_qat("qat-llama", llama(64, 1), 4)
    check_qat("qat-gpt2-int8", gpt2(64, 1), 8)


BANYAN, WORK = sys.argv[1:3]
main()
