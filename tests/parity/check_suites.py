#!/usr/bin/env python3
"""Suites make the prompts of the programs whose formats they have, and score them as transformers does.

    check_suites.py BANYAN

Prompts: those of `banyan eval --suite --show` against what Python's random and jinja2 make by the rules of CORE and of
lm-evaluation-harness, over generated rows. Regular expressions: against re. Scores: log-probabilities of choices and
continuations by a small random GPT-2 of transformers, within 1e-4.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import jinja2
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

WORDS = ("the a cat dog red house runs Paris 12 3.5 don't it's naïve 東京 über [title] (A) x=1, end. \"quoted\" {b} "
         "tab\tbed new\nline two").split(" ")


def text(rng, most=8):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def run(banyan, *arguments):
    done = subprocess.run([banyan, "eval", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"banyan eval {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def shown(banyan, *arguments):
    return [json.loads(line) for line in run(banyan, *arguments, "--show").splitlines()]


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=random.random() < 0.5) + "\n" for row in rows)


# ---- CORE ----


def core_row(rng):
    count = rng.randint(2, 5)
    return {"query": text(rng), "choices": [text(rng, 3) for _ in range(count)], "gold": rng.randrange(count),
            "context_options": [text(rng, 3) for _ in range(count)], "continuation": text(rng, 3),
            "context": rng.choice(["", " ", "\n"]) + text(rng) + rng.choice(["", " ", "\t"])}


def core_example(kind, row, delimiter, which):
    """The text before the continuation, and the continuation."""
    if kind == "multiple_choice":
        return row["query"] + delimiter, row["choices"][which]
    if kind == "schema":
        return row["context_options"][which] + delimiter, row["continuation"]
    return row["context"].strip() + delimiter, row["continuation"]


def core_prompts(kind, rows, delimiter, shots, limit):
    rows = list(rows)
    random.Random(1337).shuffle(rows)
    rows = rows[:limit] if limit else rows
    for i, row in enumerate(rows):
        others = [k for k in range(len(rows)) if k != i]
        picks = random.Random(1234 + i).sample(others, min(shots, len(others)))
        before = "".join("".join(core_example(kind, rows[k], delimiter, rows[k]["gold"])) + "\n\n" for k in picks)
        count = 1 if kind == "language_modeling" else len(row["choices"])
        yield [[before + c, d] for c, d in (core_example(kind, row, delimiter, w) for w in range(count))]


def check_core(banyan, folder):
    rng = random.Random(7)
    os.makedirs(f"{folder}/eval_data/sets")
    tasks = []
    wanted = []
    for i in range(22):
        kind = ("multiple_choice", "schema", "language_modeling")[i % 3]
        rows = [core_row(rng) for _ in range(rng.choice([4, 25, 60]))]
        delimiter = rng.choice([" ", "\nAnswer: ", " A: ", "\n"])
        shots = rng.choice([0, 1, 3, 5, 10])
        write_rows(f"{folder}/eval_data/sets/{i}.jsonl", rows)
        tasks.append({"label": f"task {i}", "dataset_uri": f"sets/{i}.jsonl", "num_fewshot": [shots],
                      "icl_task_type": kind, "continuation_delimiter": delimiter})
        wanted.append((kind, rows, delimiter, shots))
    with open(f"{folder}/core.yaml", "w", encoding="utf-8") as out:
        yaml.safe_dump({"icl_tasks": tasks}, out)
    for limit in (0, 17):
        lines = iter(shown(banyan, "--suite", f"{folder}/core.yaml", *(["--limit", str(limit)] if limit else [])))
        count = 0
        for kind, rows, delimiter, shots in wanted:
            for want in core_prompts(kind, rows, delimiter, shots, limit):
                line = next(lines)
                have = [list(pair) for pair in zip(line["contexts"], line["continuations"])]
                assert have == want, (kind, have, want)
                count += 1
        assert next(lines, None) is None
        print(f"CORE: {count} items, limit {limit}: equal")


# ---- lm-evaluation-harness ----

TEMPLATES = [
    "Q: {{a}}\nA:",
    "{% if n > 3 %}\n  many\n{% else %}\n  few {{n}}\n{% endif %}\n{{ b.strip() }} ",
    "{{ (a ~ ': ' ~ b.replace('ü', 'u').capitalize()) | trim | replace(' [title]', '. ') | regex_replace('\\\\[.*?\\\\]', '') }}",
    "{% for c in list -%}\n {{ loop.index }}. {{ c }}\n{% endfor %}",
    "{{ list[n % list|length] }} {{ nested.x }} {{ 'abc'[:2] }}\n",
]


def environment():
    env = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    env.filters["regex_replace"] = lambda s, pattern, value="", count=0: re.sub(pattern, value, s)
    return env


def harness_text(env, template, row):
    return env.from_string(template).render(**row)


def check_harness(banyan, folder):
    rng = random.Random(11)
    env = environment()
    for number, template in enumerate(TEMPLATES):
        rows = [{"a": text(rng), "b": text(rng), "n": rng.randrange(9), "list": [text(rng, 3) for _ in range(4)],
                 "nested": {"x": text(rng, 2)}, "gold": rng.randrange(4)} for _ in range(40)]
        shots = rng.randint(0, 5)
        write_rows(f"{folder}/test.jsonl", rows)
        with open(f"{folder}/t.yaml", "w", encoding="utf-8") as out:
            yaml.safe_dump({"task": f"t{number}", "output_type": "multiple_choice", "test_split": "test",
                            "fewshot_split": "test", "num_fewshot": shots, "doc_to_text": template,
                            "doc_to_choice": rng.choice(["list", "{{list}}", "{{ list | map('trim') | list }}"]),
                            "doc_to_target": rng.choice(["gold", "{{gold}}"])}, out)
        draws = random.Random(1234)
        for line, row in zip(shown(banyan, "--suite", f"{folder}/t.yaml"), rows, strict=True):
            before = ""
            examples = [x for x in draws.sample(rows, shots + 1) if x != row][:shots] if shots else []
            for x in examples:
                before += harness_text(env, template, x) + " " + x["list"][x["gold"]] + "\n\n"
            trimmed = line["continuations"]
            assert [c.strip() for c in trimmed] == [c.strip() for c in row["list"]], (trimmed, row["list"])
            assert line["contexts"] == [before + harness_text(env, template, row)] * 4, (line["contexts"][0], before)
            assert line["gold"] == row["gold"]
    print(f"lm-evaluation-harness: {len(TEMPLATES)} templates, 40 items each: equal")


# ---- regular expressions ----

PATTERNS = [
    r"#### (\-?[0-9\.\,]+)", r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"(?s).*#### ", r"\$", r",", r"\.$", r"\[.*?\]", r"\s+",
    r"(?i)the answer is \(?([A-D])\)?", r"(?<=answer is )(.*)(?=.)", r"\b[A-Z]\b", r"(\w+) \1", r"^x|y$", r"(?m)^\w",
    r"a{2,3}b{,2}c{1}", r"(a|ab)(c|bcd)(d*)", r"(?:x*)*y", r"(a*)+", r"x*", r"[^\W\d_]+", r"[]a-]", r"\D+", r"(?!a)\w",
    r"(?<!\d)\d{2}(?!\d)", r"(?P<q>['\"]).*?(?P=q)", r"é|[à-ü]+", r"東.", r"(?i)ÜBER", r"\Aa|b\Z", r"(?=(a))\w",
    r"((a)|b)+", r"(?:(?:a|b){2}){2}", r"{", r"a{,b}", r"\x41\u0042\n?",
]


def check_patterns(banyan, folder):
    rng = random.Random(3)
    pieces = ["a", "b", "c", "d", "x", "y", "ab", "The answer is (B).", "#### -1,234.5", " ", "\n", "12", "7", "$", "$3.50",
              "é", "über", "東京", "'q'", '"', "the the", "[n]", "AB", "{", "a{,b}", "."]
    texts = ["", "a"] + ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 12))) for _ in range(150)]
    write_rows(f"{folder}/test.jsonl", [{"text": t} for t in texts])
    for pattern in PATTERNS:
        template = "{{ text | regex_replace(%s, %s) }}" % (json.dumps(pattern, ensure_ascii=False), r"'<\\g<0>>'")
        with open(f"{folder}/r.yaml", "w", encoding="utf-8") as out:
            yaml.safe_dump({"task": "r", "output_type": "generate_until", "test_split": "test", "doc_to_text": "",
                            "doc_to_target": template}, out)
        for line, t in zip(shown(banyan, "--suite", f"{folder}/r.yaml"), texts, strict=True):
            want = re.sub(pattern, r"<\g<0>>", t)
            have = line["targets"][0]
            assert have == want, (pattern, t, have, want)
    print(f"regular expressions: {len(PATTERNS)} patterns on {len(texts)} texts: equal")


# ---- scores ----


def make_model(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    tokenizer.train_from_iterator([text(rng, 40) for _ in range(200)], trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=tokenizer.get_vocab_size(), n_positions=96, n_embd=48, n_layer=3,
                                       n_head=4, initializer_range=0.3, bos_token_id=0, eos_token_id=0)).eval()
    model.save_pretrained(folder)
    tokenizer.save(f"{folder}/tokenizer.json")
    return model, tokenizer


def score(model, ids, start):
    ids = ids[-96:] if len(ids) > 96 else ids
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logits[i - 1, ids[i]].item() for i in range(start, len(ids))), len(ids) - start


def check_scores(banyan, folder):
    model, tokenizer = make_model(f"{folder}/model")
    rng = random.Random(2)
    rows = [{"q": rng.choice(["", text(rng, 12), text(rng) + " "]), "list": [text(rng, 4) for _ in range(4)],
             "gold": rng.randrange(4)} for _ in range(60)]
    write_rows(f"{folder}/test.jsonl", rows)
    with open(f"{folder}/s.yaml", "w", encoding="utf-8") as out:
        yaml.safe_dump({"task": "s", "output_type": "multiple_choice", "test_split": "test", "num_fewshot": 2,
                        "fewshot_split": "test", "doc_to_text": "{{q}}", "doc_to_choice": "list",
                        "doc_to_target": "gold"}, out)
    run(banyan, f"{folder}/model", "--suite", f"{folder}/s.yaml", "--items-out", f"{folder}/items.jsonl", "--precision", "f32")
    with open(f"{folder}/items.jsonl", encoding="utf-8") as lines:
        items = [json.loads(line) for line in lines]
    worst = 0.0
    for item, line in zip(items, shown(banyan, "--suite", f"{folder}/s.yaml"), strict=True):
        for k, (context, continuation) in enumerate(zip(line["contexts"], line["continuations"])):
            blanks = len(context) - len(context.rstrip())
            whole = tokenizer.encode(context + continuation, add_special_tokens=False).ids
            start = len(tokenizer.encode(context[:len(context) - blanks], add_special_tokens=False).ids)
            if not context:
                whole, start = [0] + whole, 1
            cut = max(0, len(whole) - 96)
            want, count = score(model, whole, start - cut)
            assert item["tokens"][k] == count
            worst = max(worst, abs(want - item["log_probabilities"][k]))
    print(f"scores: {4 * len(items)} choices, largest difference of log-probabilities {worst:.1e}")
    assert worst < 1e-4


def main():
    banyan = os.path.abspath(sys.argv[1])
    for check in (check_core, check_harness, check_patterns, check_scores):
        with tempfile.TemporaryDirectory() as folder:
            check(banyan, folder)


main()
