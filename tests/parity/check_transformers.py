#!/usr/bin/env python3
"""Checkpoints of banyan and of Hugging Face transformers read each other.

    check_transformers.py check DIR LOGITS   loads the checkpoint directory DIR with transformers and compares
                                             its logits with those in LOGITS, which banyan wrote
    check_transformers.py make DIR           makes small random models with transformers: DIR/NAME/ as
                                             save_pretrained writes it, and the logits that transformers
                                             computes next to it, DIR/NAME.logits.safetensors
    check_transformers.py compare DIR        of each model that `make` made: compares DIR/NAME.banyan.safetensors
                                             with the logits of transformers, and loads DIR/NAME.saved, a
                                             checkpoint that banyan wrote of the model, as the same class
    check_transformers.py golden DIR         compares transformers with the golden files in DIR

LOGITS is what `banyan eval RUN --logits-out LOGITS` writes, a safetensors file with
    tokens  i32 [B, T]       logits  f32 [B, T, V], row t after the tokens 0..t
DIR holds config.json and model*.safetensors. From banyan to transformers:
    banyan eval RUN --logits-out l.safetensors; check_transformers.py check RUN/<checkpoint> l.safetensors
From transformers to banyan: make, then evaluate DIR/NAME with banyan and compare with
DIR/NAME.logits.safetensors (or hand what it wrote to `check`). scripts/python-env makes the environment.
"""
import argparse
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, AutoTokenizer, ConvNextConfig, ConvNextForImageClassification,
                          EfficientNetConfig, EfficientNetForImageClassification, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig,
                          MixtralForCausalLM, MobileNetV2Config, MobileNetV2ForImageClassification, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, ResNetConfig, ResNetForImageClassification,
                          SmolLM3Config, SmolLM3ForCausalLM, ViTConfig, ViTForImageClassification)

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-4

# What the descendants of Llama have in common here.
SMALL = dict(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=48, intermediate_size=100,
             max_position_embeddings=32, vocab_size=101, initializer_range=0.2, bos_token_id=0, eos_token_id=0,
             pad_token_id=0)


def rope(kind, theta=1e4, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        n_layer=2, n_head=4, n_embd=48, n_positions=32, vocab_size=101, initializer_range=0.2,
        bos_token_id=0, eos_token_id=0)),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, hidden_size=48,
        intermediate_size=100, max_position_embeddings=32, vocab_size=101, initializer_range=0.2,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)),
    "llama_gqa": (LlamaForCausalLM, LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=48,
        intermediate_size=100, max_position_embeddings=32, vocab_size=101, initializer_range=0.2,
        tie_word_embeddings=False, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0)),
    "mixtral": (MixtralForCausalLM, MixtralConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=48,
        intermediate_size=40, max_position_embeddings=32, vocab_size=101, initializer_range=0.2,
        num_local_experts=6, num_experts_per_tok=2, tie_word_embeddings=False, rms_norm_eps=1e-5,
        bos_token_id=0, eos_token_id=0)),
    "llama_biases": (LlamaForCausalLM, LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, head_dim=16)),
    "llama_linear": (LlamaForCausalLM, LlamaConfig(**SMALL, **rope("linear", factor=4.0))),
    "llama_dynamic": (LlamaForCausalLM, LlamaConfig(**SMALL, **rope("dynamic", factor=4.0))),
    "llama_llama3": (LlamaForCausalLM, LlamaConfig(**SMALL, tie_word_embeddings=True, **rope(
        "llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8))),
    "mistral": (MistralForCausalLM, MistralConfig(**SMALL, head_dim=20, sliding_window=None, **rope("default", 1e6))),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SMALL, tie_word_embeddings=True, **rope("default", 1e6))),
    "qwen2_yarn": (Qwen2ForCausalLM, Qwen2Config(**SMALL, **rope(
        "yarn", 1e6, factor=4.0, original_max_position_embeddings=8))),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True, **rope("default", 1e6))),
    "qwen3_yarn": (Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=24, attention_bias=True, **rope(
        "yarn", factor=2.5, original_max_position_embeddings=12, beta_fast=4.0, beta_slow=0.5, mscale=1.0,
        mscale_all_dim=0.5))),
    "mistral_window": (MistralForCausalLM, MistralConfig(**SMALL, sliding_window=7)),
    "mixtral_window": (MixtralForCausalLM, MixtralConfig(**SMALL, head_dim=12, sliding_window=12, num_local_experts=4, **rope(
        "yarn", 1e6, factor=4.0, original_max_position_embeddings=8))),
    "qwen2_windows": (Qwen2ForCausalLM, Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=9, max_window_layers=1)),
    "qwen3_windows": (Qwen3ForCausalLM, Qwen3Config(
        **SMALL, head_dim=16, use_sliding_window=True, sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "smollm3_windows": (SmolLM3ForCausalLM, SmolLM3Config(
        **SMALL, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=6)),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(**SMALL, no_rope_layers=[1, 0, 1])),
    "smollm3_biases": (SmolLM3ForCausalLM, SmolLM3Config(**SMALL, no_rope_layer_interval=2, attention_bias=True,
                                                         mlp_bias=True, tie_word_embeddings=False)),
}
# How models are saved that are not whole and in float32.
SAVED = {
    "llama_biases": dict(max_shard_size="40KB"),
    "mistral": dict(dtype=torch.float16),
    "qwen3": dict(dtype=torch.bfloat16),
    "smollm3": dict(dtype=torch.bfloat16, max_shard_size="20KB"),
}


def fail(message):
    print(f"check_transformers: {message}", file=sys.stderr)
    sys.exit(1)


def load(directory, model_class=AutoModelForCausalLM):
    """The model of a directory, in float32. A parameter that the files lack, or have beyond what the model
    has, or in another shape, is a failure: transformers itself would fill it with noise and warn."""
    model, info = model_class.from_pretrained(
        directory, dtype=torch.float32, local_files_only=True, output_loading_info=True)
    for kind, names in info.items():
        if names:
            fail(f"{directory}: {kind}: {names}")
    return model.eval()


@torch.no_grad()
def logits_of(model, tokens):
    return model(tokens.long(), use_cache=False).logits.float()


def compare(what, got, expected):
    if got.shape != expected.shape:
        fail(f"{what}: shape {tuple(got.shape)}, transformers has {tuple(expected.shape)}")
    distance = (got - expected).abs().max().item()
    print(f"{what}: largest difference {distance:.2e} (logits up to {expected.abs().max().item():.1f}), "
          f"limit {TOLERANCE:.0e}")
    if not distance <= TOLERANCE:
        fail(f"{what}: differs by {distance:.2e}")


def check(directory, path):
    model = load(directory)
    file = load_file(path)
    for name, dtype in (("tokens", torch.int32), ("logits", torch.float32)):
        if name not in file or file[name].dtype != dtype:
            fail(f"{path}: no tensor '{name}' of {dtype}")
    if os.path.exists(os.path.join(directory, "tokenizer.json")):
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        if len(tokenizer) > model.config.vocab_size:
            fail(f"{directory}: tokenizer.json has {len(tokenizer)} tokens, the model {model.config.vocab_size}")
    compare(directory, file["logits"], logits_of(model, file["tokens"]))


def make(directory):
    for i, (name, (model_class, config)) in enumerate(MODELS.items()):
        torch.manual_seed(200 + i)
        model = model_class(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # Norms and biases start as ones and zeros, which would hide one that is not loaded.
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
        path = os.path.join(directory, name)
        how = SAVED.get(name, {})
        tokens = torch.randint(config.vocab_size, (2, positions_of(config)), dtype=torch.int32)
        before = logits_of(model, tokens)
        model.to(how.get("dtype", torch.float32)).save_pretrained(
            path, max_shard_size=how.get("max_shard_size", "1GB"))
        logits = logits_of(load(path), tokens)
        save_file({"tokens": tokens, "logits": logits.contiguous()}, path + ".logits.safetensors")
        if "dtype" not in how:
            compare(path, logits, before)


def positions_of(config):
    return getattr(config, "n_positions", None) or config.max_position_embeddings


def compare_all(directory):
    for name, (model_class, _) in MODELS.items():
        path = os.path.join(directory, name)
        expected = load_file(path + ".logits.safetensors")
        got = load_file(path + ".banyan.safetensors")
        compare(f"{name}, read by banyan", got["logits"], expected["logits"])
        saved = load(path + ".saved")
        if type(saved) is not model_class:
            fail(f"{path}.saved is a {type(saved).__name__}, not a {model_class.__name__}")
        compare(f"{name}, written by banyan", logits_of(saved, expected["tokens"]), expected["logits"])


def golden(directory):
    for name in ("gpt2", "llama_tied", "llama_gqa"):
        path = os.path.join(directory, name + ".safetensors")
        with safe_open(path, "pt") as f:
            said = f.metadata()
            tensors = {key: f.get_tensor(key) for key in f.keys()}
        sizes = {key: int(said[key]) for key in
                 ("layers", "heads", "kv_heads", "width", "mlp_width", "context", "vocab", "tied")}
        if said["kind"] == "gpt2":
            model = GPT2LMHeadModel(GPT2Config(
                n_layer=sizes["layers"], n_head=sizes["heads"], n_embd=sizes["width"],
                n_positions=sizes["context"], vocab_size=sizes["vocab"], resid_pdrop=0, embd_pdrop=0,
                attn_pdrop=0, layer_norm_epsilon=float(said["norm_eps"]), bos_token_id=0, eos_token_id=0))
            prefix = "transformer."
        else:
            model = LlamaForCausalLM(LlamaConfig(
                num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"],
                num_key_value_heads=sizes["kv_heads"], hidden_size=sizes["width"],
                intermediate_size=sizes["mlp_width"], max_position_embeddings=sizes["context"],
                vocab_size=sizes["vocab"], tie_word_embeddings=bool(sizes["tied"]),
                rms_norm_eps=float(said["norm_eps"]), bos_token_id=0, eos_token_id=0,
                rope_parameters={"rope_type": "default", "rope_theta": float(said["rope_theta"])}))
            prefix = ""
        weights = {prefix + key[len("weights."):]: tensor for key, tensor in tensors.items()
                   if key.startswith("weights.")}
        parameters = dict(model.named_parameters())
        if set(parameters) != set(weights):
            fail(f"{path}: other parameters than transformers: {sorted(set(parameters) ^ set(weights))}")
        with torch.no_grad():
            for key, parameter in parameters.items():
                parameter.copy_(weights[key])
        logits = model(tensors["tokens"].long(), use_cache=False).logits
        compare(path, tensors["logits"], logits.detach())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tensors["targets"].flatten().long(),
                                                 ignore_index=-1)
        loss.backward()
        for key, parameter in parameters.items():
            expected = tensors["grad." + key[len(prefix):]]
            distance = ((parameter.grad - expected).norm() / expected.norm()).item()
            if not distance <= TOLERANCE:
                fail(f"{path}: gradient of {key} differs by {distance:.2e}")


def golden_by_checkpoint(path, config, model_class, run):
    """Through a checkpoint, whose names of parameters are those of the golden file; a model in memory has
    others. `run` gives logits and what is differentiated."""
    with safe_open(path, "pt") as f:
        tensors = {key: f.get_tensor(key) for key in f.keys()}
    with tempfile.TemporaryDirectory() as place:
        def saved(group):
            config.architectures = [model_class.__name__]
            config.save_pretrained(place)
            save_file({key[len(group):]: tensor for key, tensor in tensors.items() if key.startswith(group)},
                      os.path.join(place, "model.safetensors"), {"format": "pt"})
            return load(place, model_class)

        model = saved("weights.")
        logits, loss = run(model, tensors)
        compare(path, tensors["logits"], logits.detach())
        loss.backward()
        gradients = dict(saved("grad.").named_parameters())
        for key, parameter in model.named_parameters():
            expected = gradients[key].detach()
            distance = (parameter.grad - expected).norm() / max(expected.norm().item(), 1e-2)
            if not distance <= TOLERANCE:
                fail(f"{path}: gradient of {key} differs by {distance:.2e}")


def said_of(path):
    with safe_open(path, "pt") as f:
        return f.metadata()


def golden_vit(directory):
    path = os.path.join(directory, "vit.safetensors")
    said = said_of(path)

    def run(model, tensors):
        output = model(tensors["images"], labels=tensors["labels"].long())
        return output.logits, output.loss

    golden_by_checkpoint(path, ViTConfig(
        num_hidden_layers=int(said["layers"]), num_attention_heads=int(said["heads"]),
        hidden_size=int(said["width"]), intermediate_size=int(said["mlp_width"]),
        image_size=int(said["image_size"]), patch_size=int(said["patch_size"]),
        num_channels=int(said["channels"]), num_labels=int(said["classes"]),
        layer_norm_eps=float(said["norm_eps"])), ViTForImageClassification, run)


def config_of_images(said):
    """The class and the config of a convolutional network."""
    common = dict(num_channels=int(said["channels"]), image_size=int(said["image_size"]),
                  num_labels=int(said["classes"]))
    if said["kind"] == "mobilenet_v2":
        return MobileNetV2ForImageClassification, MobileNetV2Config(
            depth_multiplier=float(said["multiplier"]), expand_ratio=float(said["expand"]),
            output_stride=int(said["output_stride"]), finegrained_output=False, **common)
    if said["kind"] == "efficientnet":
        widths = json.loads(said["widths"])
        return EfficientNetForImageClassification, EfficientNetConfig(
            width_coefficient=float(said["width_factor"]), depth_coefficient=1.0, hidden_dim=128,
            num_block_repeats=json.loads(said["depths"]), out_channels=widths, in_channels=[32] + widths[:-1],
            strides=json.loads(said["strides"]), kernel_sizes=json.loads(said["sizes"]),
            expand_ratios=json.loads(said["ratios"]), depthwise_padding=json.loads(said["square"]), **common)
    common.update(hidden_sizes=json.loads(said["widths"]), depths=json.loads(said["depths"]))
    if said["kind"] == "convnext":
        return ConvNextForImageClassification, ConvNextConfig(
            patch_size=int(said["patch_size"]), num_stages=len(common["depths"]), **common)
    return ResNetForImageClassification, ResNetConfig(
        embedding_size=int(said["width"]), layer_type=said["block"], **common)


def golden_images(directory, name):
    """Logits with the running statistics of batch norm; the gradient, if there is one, with those of the batch."""
    path = os.path.join(directory, name + ".safetensors")
    with safe_open(path, "pt") as f:
        tensors = {key: f.get_tensor(key) for key in f.keys()}
    model_class, config = config_of_images(said_of(path))
    config.architectures = [model_class.__name__]
    with tempfile.TemporaryDirectory() as place:
        config.save_pretrained(place)
        save_file({key[len("weights."):]: tensor for key, tensor in tensors.items() if key.startswith("weights.")},
                  os.path.join(place, "model.safetensors"), {"format": "pt"})
        model, info = model_class.from_pretrained(place, local_files_only=True, output_loading_info=True)
    for kind, names in info.items():
        if any(not key.endswith(".num_batches_tracked") for key in names):  # which counts, and computes nothing
            fail(f"{path}: {kind}: {names}")
    model.eval()
    compare(path, tensors["logits"], model(tensors["images"]).logits.detach())
    if "loss" not in tensors:
        return
    model.train()
    model(tensors["images"], labels=tensors["labels"].long()).loss.backward()
    for key, parameter in model.named_parameters():
        expected = tensors["grad." + key]
        distance = (parameter.grad - expected).norm() / expected.norm()
        if not distance <= TOLERANCE:
            fail(f"{path}: gradient of {key} differs by {distance:.2e}")


def golden_mixtral(directory):
    """With the loss of the routers."""
    path = os.path.join(directory, "mixtral.safetensors")
    said = said_of(path)

    def run(model, tensors):
        output = model(tensors["tokens"].long(), use_cache=False, output_router_logits=True)
        loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1),
                                                 tensors["targets"].flatten().long(), ignore_index=-1)
        return output.logits, loss + float(said["aux_coef"]) * output.aux_loss

    golden_by_checkpoint(path, MixtralConfig(
        num_hidden_layers=int(said["layers"]), num_attention_heads=int(said["heads"]),
        num_key_value_heads=int(said["kv_heads"]), hidden_size=int(said["width"]),
        intermediate_size=int(said["mlp_width"]), max_position_embeddings=int(said["context"]),
        vocab_size=int(said["vocab"]), num_local_experts=int(said["experts"]),
        num_experts_per_tok=int(said["chosen"]), tie_word_embeddings=False,
        rms_norm_eps=float(said["norm_eps"]), bos_token_id=0, eos_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": float(said["rope_theta"])}),
        MixtralForCausalLM, run)


def main():
    parser = argparse.ArgumentParser(description="checkpoints of banyan and transformers read each other")
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("check")
    sub.add_argument("directory", metavar="DIR")
    sub.add_argument("logits", metavar="LOGITS")
    for command in ("make", "compare", "golden"):
        commands.add_parser(command).add_argument("directory", metavar="DIR")
    arguments = parser.parse_args()
    if arguments.command == "check":
        check(arguments.directory, arguments.logits)
    elif arguments.command == "make":
        make(arguments.directory)
    elif arguments.command == "compare":
        compare_all(arguments.directory)
    else:
        golden(arguments.directory)
        golden_vit(arguments.directory)
        for name in ("resnet_basic", "resnet_bottleneck", "convnext", "mobilenet_v2", "efficientnet"):
            golden_images(arguments.directory, name)
        golden_mixtral(arguments.directory)


if __name__ == "__main__":
    main()
