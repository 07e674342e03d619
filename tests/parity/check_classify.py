#!/usr/bin/env python3
"""Small random models of transformers' ...ForSequenceClassification: what `BANYAN classify` prints is what
transformers computes of the same texts in a padded batch.

    check_classify.py BANYAN DIR     the models are made in DIR

And what transformers computes with models that BANYAN has trained from some of them, with adapters too, is what `classify`
prints.
"""
import json
import os
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoModelForSequenceClassification, GPT2Config, LlamaConfig, MistralConfig,
                          PreTrainedTokenizerFast, Qwen2Config, Qwen3Config, SmolLM3Config)

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-4
PAD = "<pad>"
TEXTS = ["A fine film.", "no", "The second half is longer than the first one, and better.", "ends padded" + PAD + PAD, PAD]
SMALL = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=48, intermediate_size=100,
             max_position_embeddings=96, vocab_size=257, initializer_range=0.2, pad_token_id=256, bos_token_id=0,
             eos_token_id=0)
SINGLE = dict(id2label={0: "bad", 1: "so so", 2: "good"}, label2id={"bad": 0, "so so": 1, "good": 2})
MULTI = dict(num_labels=4, problem_type="multi_label_classification")
MODELS = {
    "gpt2": GPT2Config(n_layer=2, n_head=4, n_embd=48, n_positions=96, vocab_size=257, initializer_range=0.2,
                       pad_token_id=256, bos_token_id=0, eos_token_id=0, **SINGLE),
    "llama": LlamaConfig(**SMALL, **SINGLE),
    "llama_two": LlamaConfig(**SMALL),
    "mistral": MistralConfig(**SMALL, sliding_window=8, **MULTI),
    "qwen2": Qwen2Config(**SMALL, tie_word_embeddings=True, num_labels=1),
    "qwen3": Qwen3Config(**SMALL, head_dim=16, num_labels=3, problem_type="regression"),
    "smollm3": SmolLM3Config(**SMALL, problem_type="single_label_classification", num_labels=5),
}


def make_tokenizer():
    """Bytes, and a token for padding."""
    tokens = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, padding_side="right")


def make(directory, config, tokenizer):
    torch.manual_seed(7)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms and biases start as ones and zeros, which would hide one that is not loaded.
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model


@torch.no_grad()
def expected_of(model, tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    logits = model(**batch).logits
    kind = model.config.problem_type or ("regression" if model.config.num_labels == 1 else "single")
    if kind == "regression":
        return "values", logits
    if kind.startswith("multi"):
        return "probabilities", torch.sigmoid(logits)
    return "probabilities", torch.softmax(logits, -1)


def check(name, banyan, directory, model, tokenizer):
    key, expected = expected_of(model, tokenizer)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    out = subprocess.run([banyan, "classify", directory, "--batch", "-", "--batch-size", "3"], input=lines, text=True,
                         check=True, stdout=subprocess.PIPE).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    names = [model.config.id2label[i] for i in range(model.config.num_labels)]
    if [row["index"] for row in rows] != list(range(len(TEXTS))) or any(list(row[key]) != names for row in rows):
        sys.exit(f"check_classify: {name}: other labels or lines than {names}: {out}")
    got = torch.tensor([[row[key][label] for label in names] for row in rows])
    distance = (got - expected).abs().max().item()
    print(f"{name}: largest difference {distance:.2e} ({key} up to {expected.abs().max().item():.1f}), limit {TOLERANCE:.0e}")
    if not distance <= TOLERANCE:
        sys.exit(f"check_classify: {name}: differs by {distance:.2e}")
    for row, values in zip(rows, expected):
        if "label" in row and row["label"] != names[values.argmax()]:
            sys.exit(f"check_classify: {name}: label {row['label']}")
        if "labels" in row and row["labels"] != [n for n, v in zip(names, values) if v > 0.5]:
            sys.exit(f"check_classify: {name}: labels {row['labels']}")
    if {"label", "labels"} & set(rows[0]) != {"values": set(), "probabilities": {
            "labels" if model.config.problem_type == "multi_label_classification" else "label"}}[key]:
        sys.exit(f"check_classify: {name}: {rows[0]}")


def train(banyan, place, name, tokenizer, settings):
    """A model with a new head, as BANYAN writes it."""
    table = os.path.join(place, "labels.csv")
    with open(table, "w") as out:
        out.write("text,label\n" + "".join(f"a {'fine' if i % 2 else 'dull'} film of {i % 5} acts,{'bright' if i % 2 else 'dim'}\n"
                                           for i in range(40)))
    runs = os.path.join(place, "runs")
    settings = [f"name={name}", f"run.dir={runs}", "task.kind=classify", f"data.table={table}", "data.text_column=text",
                "data.target=label", "data.valid_fraction=0.2", "train.steps=6", "train.batch=8", "optimizer.lr=3e-3",
                "optimizer.warmup=0", "precision.compute=f32", *settings]
    config = os.path.join(place, "empty.yaml")
    open(config, "w").close()
    subprocess.run([banyan, "train", config, "--quiet", *(word for s in settings for word in ("--set", s))], check=True)
    merged = os.path.join(place, name)
    subprocess.run([banyan, "checkpoint", "merge", os.path.join(runs, name), merged], check=True, stdout=subprocess.DEVNULL)
    model, info = AutoModelForSequenceClassification.from_pretrained(merged, output_loading_info=True)
    if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        sys.exit(f"check_classify: {name}: {info}")
    if model.config.id2label != {0: "bright", 1: "dim"}:
        sys.exit(f"check_classify: {name}: {model.config.id2label}")
    check(name, banyan, merged, model.eval(), tokenizer)


def main():
    banyan, place = sys.argv[1:]
    tokenizer = make_tokenizer()
    for name, config in MODELS.items():
        directory = os.path.join(place, name)
        check(name, banyan, directory, make(directory, config, tokenizer), tokenizer)
    for name, settings in (("gpt2", []), ("llama", []), ("gpt2", ["lora.rank=4"])):
        settings = [f"model.from={os.path.join(place, name)}", "model.new=[score.weight]", *settings]
        train(banyan, place, f"{name}_{'trained' if len(settings) == 2 else 'adapted'}", tokenizer, settings)


if __name__ == "__main__":
    main()
