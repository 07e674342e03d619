#!/usr/bin/env python3
"""The cost of the kinds of attention: CPU time of a training step and memory at two contexts, as a table of Markdown.

    bench/attention.py [BANYAN]

A Llama of two layers of 256, eight heads, one sequence a step, in f32, on one thread. What a step takes is the CPU time
of a run of several steps less that of a run of one, so that other programs disturb it little; memory is the largest that
the longer run had.
"""
import argparse
import os
import subprocess
import tempfile

KINDS = ("full", "window", "local_global", "alibi", "linear", "none")
CONTEXTS = {1024: 8, 4096: 2}  # steps that are measured
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


def main():
    parser = argparse.ArgumentParser(description="the cost of the kinds of attention")
    parser.add_argument("banyan", nargs="?", default="build/release/banyan")
    arguments = parser.parse_args()
    banyan = os.path.abspath(arguments.banyan)
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
