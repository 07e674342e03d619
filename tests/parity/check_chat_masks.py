#!/usr/bin/env python3
"""Compares the masks of `banyan pack --chat` with transformers, and with prefixes rendered by Jinja.

Conversations are generated: several turns, systems, tools and calls, text of several scripts, empty
answers. For a template with {% generation %} the ids and the mask must be those of
apply_chat_template(return_assistant_tokens_mask=True). For the templates in tests/parity/templates, which
have none, the mask must cover what the rendering of the messages up to each answer adds to the rendering of
those before it with the header of an answer, without an empty <think></think>; what a template refuses,
banyan must leave out.

Usage: check_chat_masks.py BANYAN [COUNT]      needs numpy, jinja2, tokenizers, transformers
Exit code 0: all equal.
"""
import datetime
import functools
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy
import tokenizers
import transformers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_chat_templates as jinja  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
STOCK = ["chatml", "gemma", "llama3", "mistral", "phi3", "qwen2", "qwen3", "zephyr"]
SPANS = {
    "spans": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
             "{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
             "<|im_end|>{% endgeneration %}\n{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "loose": "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} A: {% generation %}"
             "{{ m.content | trim }}{{ eos_token }}{% endgeneration %}{% else %} U: {{ m.content }}{% endif %}"
             "{% endfor %}",
}
WORDS = ["the", "a", "Hello", "world", "42", "\u4f60\u597d", "\U0001f600", "e\u0301", "na\u00efve", "\n", "\n\n", "  ",
         "<b>", "'\"", "{{ x }}", "\u05e9\u05dc\u05d5\u05dd", "x = 1;", "<|im", "think", "\t-", "...", "\u0928\u092e"]


def text(r, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(0, most)))


def conversation(r):
    messages, tools = [], None
    if r.random() < 0.3:
        messages.append({"role": "system", "content": text(r, 6) + "."})
    calls = r.random() < 0.2
    if calls:
        tools = [jinja.WEATHER, jinja.CLOCK][: r.randint(1, 2)]
    for _ in range(r.randint(1, 4)):
        messages.append({"role": "user", "content": text(r, 8) or "?"})
        if calls and r.random() < 0.5:
            messages.append({"role": "assistant", "content": text(r, 2), "tool_calls": [
                {"id": "abcdefghi", "type": "function",
                 "function": {"name": "weather", "arguments": {"city": text(r, 2), "days": r.randint(0, 9)}}}]})
            messages.append({"role": "tool", "content": text(r, 3), "tool_call_id": "abcdefghi"})
        answer = {"role": "assistant", "content": "" if r.random() < 0.05 else text(r, 10)}
        if r.random() < 0.05:
            answer["reasoning_content"] = text(r, 4)
        messages.append(answer)
    if r.random() < 0.1:
        messages.append({"role": "user", "content": text(r, 3) or "!"})
    return {"messages": messages, **({"tools": tools} if tools else {})}


def make_tokenizer(directory, conversations):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<s>", "</s>", "<unk>"]
    for name in STOCK + list(SPANS):
        special += re.findall(r"<\|[A-Za-z0-9_]+\|>", template_of(name))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(dict.fromkeys(special)),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((m["content"] or "" for c in conversations[:500] for m in c["messages"]), trainer)
    tokenizer.save(f"{directory}/tokenizer.json")
    with open(f"{directory}/tokenizer_config.json", "w") as out:
        json.dump(jinja.VARIABLES, out)
    return tokenizer


def template_of(name):
    if name in SPANS:
        return SPANS[name]
    with open(f"{HERE}/templates/{name}.jinja") as file:
        return file.read()


@functools.lru_cache(None)
def compiled(template):
    jinja.ENVIRONMENT.globals["strftime_now"] = datetime.datetime(2024, 7, 26).strftime
    return jinja.ENVIRONMENT.from_string(template)


def render(template, c, count, prompt):
    return compiled(template).render(messages=c["messages"][:count], tools=c.get("tools"), documents=None,
                                     add_generation_prompt=prompt, **jinja.VARIABLES)


EMPTY = re.compile(r"<think>\s*</think>\s*")


def begin_of(template, c, i, whole):
    """Where answer i begins in a text, or None."""
    header = render(template, c, i, True)
    if not whole.startswith(header):
        bare = re.sub(r"<think>\s*(</think>\s*)?\Z", "", header)
        same = os.path.commonprefix([header, whole])
        if whole.startswith(bare):
            header = bare
        elif not header[len(same):].strip():
            header = same  # alone it ends with more blanks
        else:
            return None
    empty = EMPTY.match(whole, len(header))
    return empty.end() if empty else len(header)


def end_of(template, c, i, alone):
    """Where what is written behind a whole conversation begins, not inside of a special token."""
    try:
        same = len(os.path.commonprefix([alone, render(template, c, i + 1, True)]))
    except Exception:  # what a template refuses
        return len(alone)
    if same == len(alone):
        return same
    at = max(alone.rfind("<", 0, same), alone.rfind(">", 0, same))
    return at if at >= 0 and alone[at] == "<" else same


def samples_by_prefix(template, c):
    """[(text, [(begin, end), ...])]: each answer as it is written where it is last."""
    wanted = [i for i, m in enumerate(c["messages"]) if m["role"] == "assistant"]
    samples = []
    while wanted:
        last = wanted[-1]
        whole, spans, left = render(template, c, last + 1, False), [], []
        for i in wanted:
            alone = render(template, c, i + 1, False)
            here, own = begin_of(template, c, i, whole), begin_of(template, c, i, alone)
            if own is None or own >= len(alone):
                if i == last:
                    raise ValueError("nothing is written of an answer")
                left.append(i)
            elif here is not None and whole.startswith(alone[own:], here):
                spans.append((here, here + len(alone) - own))
            else:
                end = end_of(template, c, i, alone)
                if here is not None and own < end and whole.startswith(alone[own:end], here):
                    spans.append((here, here + end - own))
                else:
                    left.append(i)
        samples.insert(0, (whole, spans))
        wanted = left
    return samples


def by_prefix(tokenizer, template, c):
    out = []
    for whole, spans in samples_by_prefix(template, c):
        encoded = tokenizer.encode(whole, add_special_tokens=False)
        # Offsets of a byte-level tokenizer are in characters, and tokens may share one.
        ends, at = [], 0
        data = whole.encode()
        borders = [0]
        for character in whole:
            borders.append(borders[-1] + len(character.encode()))
        for id_ in encoded.ids:
            at += BYTES[id_]
            ends.append(at)
        assert at == len(data)
        begins = [0] + ends[:-1]
        inside = [(borders[a], borders[b]) for a, b in spans]
        out.append((encoded.ids, [int(any(b < y and e > x for x, y in inside)) for b, e in zip(begins, ends)]))
    return out


def by_transformers(hf, template, c):
    out = hf.apply_chat_template(c["messages"], tools=c.get("tools"), chat_template=template, tokenize=True,
                                 return_dict=True, return_assistant_tokens_mask=True)
    return [(out["input_ids"], out["assistant_masks"])]


def by_banyan(banyan, directory, template, conversations):
    name = f"{directory}/template.jinja"
    with open(name, "w") as out:
        out.write(template)
    with open(f"{directory}/c.jsonl", "w") as out:
        for c in conversations:
            out.write(json.dumps(c, ensure_ascii=False) + "\n")
    packed = f"{directory}/packed"
    subprocess.run(["rm", "-rf", packed], check=True)
    done = subprocess.run([banyan, "pack", "--chat", f"{directory}/c.jsonl", "--tokenizer", directory,
                           "--chat-template", name, "--corrupt", "skip", "--corrupt-budget", "1e9", "--out", packed],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{banyan}: {done.stderr}")
    offsets = numpy.load(f"{packed}/documents.npy")
    tokens = numpy.load(f"{packed}/tokens-00000.npy")
    mask = numpy.load(f"{packed}/mask.npy")
    out = [(tokens[a:b].tolist(), mask[a:b].tolist()) for a, b in zip(offsets, offsets[1:])]
    return out, {int(n) for n in re.findall(r"c\.jsonl:(\d+): left out", done.stderr)}, done.stderr


def check(name, expected, found, skipped, notes):
    """expected: for each conversation its samples, or None if it is refused or nothing of it is learned."""
    at = 0
    for i, samples in enumerate(expected):
        if samples is None or not any(any(mask[1:]) for _, mask in samples):
            if i + 1 not in skipped:
                sys.exit(f"{name}: conversation {i + 1} is not left out")
            continue
        if i + 1 in skipped:
            why = [x for x in notes.splitlines() if f"c.jsonl:{i + 1}:" in x]
            sys.exit(f"{name}: conversation {i + 1} is left out: {why}")
        for sample in samples:
            if found[at] != (list(sample[0]), list(sample[1])):
                sys.exit(f"{name}: conversation {i + 1} differs:\n{str(found[at])[-400:]}\n{str(sample)[-400:]}")
            at += 1
    if at != len(found):
        sys.exit(f"{name}: {len(found)} samples instead of {at}")
    learned = sum(map(sum, (m for _, m in found)))
    print(f"{name}: {len(expected)} conversations, {at} samples, {len(skipped)} left out, {learned} tokens learned")


def attempt(function, source, template, c):
    if "tool_calls" not in template and any("tool_calls" in m for m in c["messages"]):
        return None  # calls that would be lost
    try:
        return function(source, template, c)
    except Exception:  # whatever a template refuses
        return None


def main():
    banyan = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
    r = random.Random(7)
    conversations = [conversation(r) for _ in range(count)]
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = make_tokenizer(directory, conversations)
        alphabet = {c: 1 for c in tokenizers.pre_tokenizers.ByteLevel.alphabet()}
        added = {t.content for t in tokenizer.get_added_tokens_decoder().values()}
        BYTES.update((i, len(t.encode()) if t in added else sum(alphabet[c] for c in t))
                     for t, i in tokenizer.get_vocab().items())
        hf = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{directory}/tokenizer.json", **jinja.VARIABLES)
        for name in SPANS:
            template = template_of(name)
            check(name, [attempt(by_transformers, hf, template, c) for c in conversations],
                  *by_banyan(banyan, directory, template, conversations))
        for name in STOCK:
            template = template_of(name)
            check(name, [attempt(by_prefix, tokenizer, template, c) for c in conversations],
                  *by_banyan(banyan, directory, template, conversations))


BYTES = {}
if __name__ == "__main__":
    main()
