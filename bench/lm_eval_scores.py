#!/usr/bin/env python3
"""lm-evaluation-harness scores one small model with transformers and through `banyan serve`, and `banyan eval --suite` its
task files: all agree.

    lm_eval_scores.py BANYAN [--items N]

Needs the packages lm_eval[api], torch and transformers; nothing is downloaded. The model is a random GPT-2 with a
tokenizer trained on random words; the tasks are of the four kinds that the harness has. Prints, for each task, the
largest difference of log-probabilities and whether all answers are equal; ends with code 1 if one differs by 1e-4 or
an answer does.
"""
import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import lm_eval
import torch
import yaml
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

CONTEXT = 256
BOUND = 1e-4
WORDS = ("the a cat dog red house runs Paris 12 3.5 don't it's naïve 東京 über [title] (A) x=1, end. \"quoted\" {b} "
         "tab\tbed new\nline two").split(" ")


def text(rng, most=8):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def make_model(folder):
    rng = random.Random(1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text(rng, 40) for _ in range(200)], trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=tokenizer.get_vocab_size(), n_positions=CONTEXT, n_embd=48, n_layer=3,
                                       n_head=4, initializer_range=0.3, bos_token_id=0, eos_token_id=0)).eval()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
                            pad_token="<|endoftext|>", model_max_length=CONTEXT).save_pretrained(folder)
    return model, tokenizer


def likeliest(model, tokenizer, before):
    """The two tokens that the model takes for the likeliest ones behind a text, as a text."""
    ids = tokenizer.encode(before).ids
    with torch.no_grad():
        for _ in range(2):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tokenizer.decode(ids[-2:])


def make_tasks(folder, items, model, tokenizer):
    """Choices with examples, continuations, documents, generated answers. All texts fit into the context: what the
    harness leaves out of longer ones is not the same for models and for servers."""
    rng = random.Random(2)
    rows = []
    for i in range(items):
        row = {"q": text(rng, 12), "list": [text(rng, 4) for _ in range(4)], "gold": rng.randrange(4),
               "document": text(rng, 40)}
        row["target"] = likeliest(model, tokenizer, row["q"]) if i % 2 else " " + text(rng, 3)
        rows.append(row)
    with open(f"{folder}/test.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{folder}/test.jsonl"}}, "test_split": "test"}
    tasks = {
        "choices": {"output_type": "multiple_choice", "num_fewshot": 2, "fewshot_split": "test", "doc_to_text": "{{q}}",
                    "doc_to_choice": "list", "doc_to_target": "gold",
                    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
        "continuations": {"output_type": "loglikelihood", "doc_to_text": "{{q}}", "doc_to_target": "{{target}}",
                          "target_delimiter": "",
                          "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}]},
        "documents": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{document}}",
                      "metric_list": [{"metric": "bits_per_byte"}]},
        "answers": {"output_type": "generate_until", "doc_to_text": "{{q}}", "doc_to_target": "{{target}}",
                    "generation_kwargs": {"until": ["\n", "cat"], "do_sample": False, "max_gen_toks": 16},
                    "metric_list": [{"metric": "exact_match"}]},
    }
    for name, task in tasks.items():
        with open(f"{folder}/{name}.yaml", "w", encoding="utf-8") as out:
            yaml.safe_dump({"task": name, **common, **task}, out)
    return list(tasks)


def harness(folder, tasks, model, arguments, **more):
    results = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=tasks, log_samples=True, bootstrap_iters=0,
                                      task_manager=TaskManager(include_path=folder, include_defaults=False), **more)
    return {name: [sample["resps"] for sample in sorted(samples, key=lambda s: s["doc_id"])]
            for name, samples in results["samples"].items()}


def serve(banyan, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([banyan, "serve", model, "--listen", f"127.0.0.1:{port}", "--precision", "f32"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models").read()
            return server, port
        except OSError:
            time.sleep(0.1)
    sys.exit("banyan serve does not answer")


def own(banyan, folder, task):
    """The items of `banyan eval --suite`, in the form of the harness."""
    subprocess.run([banyan, "eval", f"{folder}/model", "--suite", f"{folder}/{task}.yaml", "--precision", "f32",
                    "--items-out", f"{folder}/{task}.items"], check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/{task}.items", encoding="utf-8") as lines:
        items = [json.loads(line) for line in lines]
    if task == "answers":
        return [[[item["text"]]] for item in items]
    if task == "documents":
        return [[[sum(item["log_probabilities"])]] for item in items]
    greedy = (lambda item: item["score"] == 1) if task == "continuations" else lambda item: None
    return [[[(p, greedy(item))] for p in item["log_probabilities"]] for item in items]


def difference(name, way, want, have):
    """The largest difference of log-probabilities, and the number of other answers."""
    worst, other = 0.0, 0
    assert len(want) == len(have), (name, way, len(want), len(have))
    for a, b in zip(want, have):
        a, b = [r[0] for r in a], [r[0] for r in b]
        if isinstance(a[0], str):
            other += [x.replace("\0", "\ufffd") for x in a] != b  # as banyan answers U+0000
            continue
        if isinstance(a[0], tuple):
            other += max(range(len(a)), key=lambda k: a[k][0]) != max(range(len(b)), key=lambda k: b[k][0])
            other += sum(x[1] != y[1] for x, y in zip(a, b) if y[1] is not None)
            a, b = [x[0] for x in a], [x[0] for x in b]
        worst = max([worst] + [abs(x - y) for x, y in zip(a, b)])
    print(f"{name:14} {way:34} {len(want)} items, log-probabilities within {worst:.1e}, {other} other answers")
    return worst < BOUND and other == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("banyan")
    parser.add_argument("--items", type=int, default=60)
    asked = parser.parse_args()
    banyan = os.path.abspath(asked.banyan)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        tasks = make_tasks(folder, asked.items, *make_model(f"{folder}/model"))
        want = harness(folder, tasks, "hf", f"pretrained={folder}/model,dtype=float32,max_length={CONTEXT}", batch_size=8,
                       device="cpu")
        server, port = serve(banyan, f"{folder}/model")
        base = (f"model=model,base_url=http://127.0.0.1:{port}/v1/completions,tokenizer={folder}/model,"
                f"tokenizer_backend=huggingface,max_length={CONTEXT},max_retries=1")
        ways = {"through the server, one by one": (",num_concurrent=1", 1),
                "through the server, 8 in a request": (",num_concurrent=1", 8),
                "through the server, 4 at a time": (",num_concurrent=4", 1)}
        try:
            for way, (more, batch) in ways.items():
                have = harness(folder, tasks, "local-completions", base + more, batch_size=batch)
                good &= all([difference(name, way, want[name], have[name]) for name in tasks])
        finally:
            server.terminate()
            server.wait()
        good &= all([difference(name, "banyan eval --suite", want[name], own(banyan, folder, name)) for name in tasks])
    sys.exit(0 if good else 1)


main()
