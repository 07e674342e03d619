#!/usr/bin/env python3
"""Adapters of banyan and of Hugging Face's peft read each other.

    check_peft.py BANYAN WORK     WORK: an empty directory for files

For a tiny GPT-2 and a tiny Llama that transformers makes:
 1. peft makes an adapter; banyan's logits of the model with it (eval --adapter), and of what `banyan checkpoint
    merge --adapter` writes, are those of peft.
 2. banyan trains adapters on the model, new ones and those of peft; peft loads what the checkpoint has, and its
    logits are those of banyan; transformers' of the merged checkpoint are, too.
 3. adapters with features that banyan lacks are refused by their names.
"""
import json
import os
import shutil
import subprocess
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

TOLERANCE = 1e-4

MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        n_layer=2, n_head=4, n_embd=48, n_positions=32, vocab_size=61, initializer_range=0.2,
        bos_token_id=0, eos_token_id=0)),
    "llama": (LlamaForCausalLM, LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=48,
        intermediate_size=100, max_position_embeddings=32, vocab_size=61, initializer_range=0.2,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)),
}
# What peft is told, and what a run of banyan is told.
ADAPTERS = {
    "gpt2": [
        (dict(r=4, lora_alpha=10), ["lora.rank=4", "lora.alpha=10"]),
        (dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["c_attn", "c_proj"], modules_to_save=["ln_f"]),
         ["lora.rank=3", "lora.alpha=5", "lora.rslora=true", "lora.targets=[attn.c_proj, h.1.mlp.*]",
          "lora.train_also=[ln_f.*]", "lora.dropout=0.1"]),
    ],
    "llama": [
        (dict(r=4, lora_alpha=12), ["lora.rank=4", "lora.alpha=12"]),
        (dict(r=2, lora_alpha=8, target_modules="all-linear", modules_to_save=["lm_head"]),
         ["lora.rank=5", "lora.targets=all-linear", "lora.train_also=[lm_head.*, model.norm.*]"]),
    ],
}


def fail(message):
    print(f"check_peft: {message}", file=sys.stderr)
    sys.exit(1)


def banyan(*arguments, code=0):
    done = subprocess.run([BANYAN, *arguments], capture_output=True, text=True)
    if done.returncode != code:
        fail(f"banyan {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


@torch.no_grad()
def logits_of(model, tokens):
    return model.eval()(tokens.long(), use_cache=False).logits.float()


def compare(what, got, expected):
    distance = (got - expected).abs().max().item()
    print(f"{what}: largest difference {distance:.2e}")
    if not distance <= TOLERANCE:
        fail(f"{what}: differs by {distance:.2e}")


def our_logits(model, *more):
    out = f"{WORK}/logits.safetensors"
    banyan("eval", model, "--tokens", f"{WORK}/tokens.safetensors", "--logits-out", out, *more)
    return load_file(out)["logits"]


def load(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)


def check_theirs(name, i, base, options, tokens):
    """An adapter that peft has made, with values that training would give. Returns its directory."""
    place = f"{base}-peft{i}"
    torch.manual_seed(300 + i)
    model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(place)
    expected = logits_of(model, tokens)
    if (logits_of(load(base), tokens) - expected).abs().max() < 0.1:
        fail(f"{name}: the adapter changes nothing, so nothing is compared")
    compare(f"{name} {i}: peft's adapter in banyan", our_logits(base, "--adapter", place), expected)
    merged = f"{place}-merged"
    banyan("checkpoint", "merge", base, merged, "--adapter", place)
    compare(f"{name} {i}: merged by banyan, in transformers", logits_of(load(merged), tokens), expected)
    return place


def check_ours(name, i, base, settings, tokens):
    """An adapter that banyan has trained on top of `base`."""
    run = f"{name}-run{i}"
    arguments = [f"model.from={base}", f"run.dir={WORK}/runs", f"data.cache={WORK}/cache",
                 f"data.text=[{WORK}/text.txt]", "data.tokenizer=char", "train.steps=4", "train.batch=4",
                 "train.eval_batches=1", "optimizer.lr=0.02", "optimizer.warmup=0", "model.context=16",
                 "precision.compute=f32", *settings]
    if name == "gpt2":
        arguments.remove("model.context=16")
    with open(f"{WORK}/{run}.yaml", "w") as file:
        file.write(f"name: {run}\n")
    banyan("train", f"{WORK}/{run}.yaml", *[word for one in arguments for word in ("--set", one)])
    step = f"{WORK}/runs/{run}/checkpoints/step-00000004"
    expected = our_logits(f"{WORK}/runs/{run}")
    if (logits_of(load(base), tokens) - expected).abs().max() < 1e-2:
        fail(f"{run}: training changed nothing, so nothing is compared")
    compare(f"{run}: banyan's adapter in peft",
            logits_of(PeftModel.from_pretrained(load(base), step), tokens), expected)
    merged = f"{WORK}/{run}-merged"
    banyan("checkpoint", "merge", f"{WORK}/runs/{run}", merged)
    compare(f"{run}: merged by banyan, in transformers", logits_of(load(merged), tokens), expected)


def check_refused(base, adapter):
    with open(f"{adapter}/adapter_config.json") as file:
        said = json.load(file)
    for key, value in (("use_dora", True), ("bias", "all"), ("rank_pattern", {"c_attn": 2}), ("peft_type", "LOHA"),
                       ("init_lora_weights", "pissa"), ("layer_replication", [[0, 1]]), ("a_new_feature", 1)):
        place = f"{WORK}/refused"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(adapter, place)
        with open(f"{place}/adapter_config.json", "w") as file:
            json.dump({**said, key: value}, file)
        if f'"{key}"' not in banyan("eval", base, "--adapter", place, "--tokens", f"{WORK}/tokens.safetensors",
                                    "--logits-out", f"{WORK}/logits.safetensors", code=1):
            fail(f"{key} is not named where it is refused")


def main():
    text = "".join(chr(33 + i) for i in range(60)) + "".join(
        chr(33 + (i * i + i // 7) % 60) for i in range(4000)) + "\n"
    with open(f"{WORK}/text.txt", "w") as file:
        file.write(text)
    for k, (name, (model_class, config)) in enumerate(MODELS.items()):
        torch.manual_seed(200 + k)
        base = f"{WORK}/{name}"
        model_class(config).save_pretrained(base)
        tokens = torch.randint(config.vocab_size, (2, 16), dtype=torch.int32)
        save_file({"tokens": tokens}, f"{WORK}/tokens.safetensors")
        for i, (options, settings) in enumerate(ADAPTERS[name]):
            made = check_theirs(name, i, base, options, tokens)
            check_ours(name, i, base, settings, tokens)
            # From peft's adapter, with next to no learning rate: it ends as it starts.
            check_ours(name, i + 10, base, [f"lora.from={made}", "optimizer.lr=1e-9", "optimizer.min_lr=1e-9"], tokens)
            compare(f"{name}-run{i + 10}: a run from peft's adapter", our_logits(f"{WORK}/runs/{name}-run{i + 10}"),
                    our_logits(base, "--adapter", made))
        check_refused(base, made)


BANYAN, WORK = sys.argv[1:3]
main()
