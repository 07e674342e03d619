#!/usr/bin/env python3
"""The cost of the kinds of attention: CPU time of a training step and memory at two contexts, as a table of Markdown.

    bench/attention.py [BANYAN]
    bench/attention.py --generate [BANYAN]    of generation instead: the prompt, a token behind it, and memory

A Llama of two layers of 256, eight heads, one sequence a step, in f32, on one thread. What a step takes is the CPU time
of a run of several steps less that of a run of one, so that other programs disturb it little; memory is the largest that
the longer run had. Of generation, figures are the least of several runs of `banyan bench generate`.
"""
import argparse
import json
import os
import subprocess
import tempfile

KINDS = ("full", "window", "local_global", "alibi", "linear", "none")
CONTEXTS = {1024: 8, 4096: 2}  # steps that are measured
ROUNDS = 3
CONFIG = """
model: {kind: llama, layers: 2, heads: 8, width: 256}
data: {text: [text.txt], tokenizer: char, cache: cache}
train: {batch: 1, eval_batches: 1, eval_every: 0, threads: 1}
precision: {compute: f32}
optimizer: {warmup: 0}
checkpoint: {every: 0}
run: {dir: runs}
"""


def train(banyan, directory, steps, context, kind):
    """CPU seconds and bytes of a run."""
    settings = (f"train.steps={steps}", f"model.context={context}", f"attention.kind={kind}", f"name={kind}-{context}-{steps}")
    command = [banyan, "train", "attention.yaml", "--quiet", *(a for s in settings for a in ("--set", s))]
    child = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {status}")
    return usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss


def generate(banyan, directory, prompt, kind):
    """Seconds of the prompt, milliseconds of a token behind it, and bytes of the session and its weights."""
    with open(os.path.join(directory, "generate.yaml"), "w") as f:
        f.write("model: {kind: llama, layers: 2, heads: 8, width: 256, context: 8192, vocab: 256}\n")
    command = [banyan, "bench", "generate", "generate.yaml", "--json", "--threads", "1", "--precision", "f32", "--prompt-tokens",
               str(prompt), "--tokens", "128", "--set", f"attention.kind={kind}"]
    runs = [json.loads(subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE).stdout) for _ in range(ROUNDS)]
    return (min(prompt / r["prefill_tokens_per_s"] for r in runs), min(r["token_ms"] for r in runs),
            runs[0]["memory_bytes"])


def print_generation(banyan):
    print("| kind | prompt of 1024 | of 7936 | a token behind 1024 | behind 7936 | memory |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for kind in KINDS:
            short, long = (generate(banyan, directory, prompt, kind) for prompt in (1024, 7936))
            print(f"| `{kind}` | {short[0]:.2f} s | {long[0]:.2f} s | {short[1]:.2f} ms | {long[1]:.2f} ms | "
                  f"{long[2] / 2**20:.0f} MiB |", flush=True)


def main():
    parser = argparse.ArgumentParser(description="the cost of the kinds of attention")
    parser.add_argument("banyan", nargs="?", default="build/release/banyan")
    parser.add_argument("--generate", action="store_true", help="of generation, not of training")
    arguments = parser.parse_args()
    banyan = os.path.abspath(arguments.banyan)
    if arguments.generate:
        print_generation(banyan)
        return
    print("| kind | step at 1024 | at 4096 | memory at 1024 | at 4096 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "attention.yaml"), "w") as f:
            f.write(CONFIG)
        with open(os.path.join(directory, "text.txt"), "w") as f:
            f.write("".join(chr(97 + (i * i + i // 7) % 26) for i in range(100000)))
        for kind in KINDS:
            figures = []
            for context, steps in CONTEXTS.items():
                short, _ = train(banyan, directory, 1, context, kind)
                whole, most = train(banyan, directory, 1 + steps, context, kind)
                figures.append(((whole - short) / steps, most))
            times = " | ".join(f"{seconds:.2f} s" for seconds, _ in figures)
            memory = " | ".join(f"{most / 2**20:.0f} MiB" for _, most in figures)
            print(f"| `{kind}` | {times} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
