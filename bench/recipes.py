#!/usr/bin/env python3
"""Which settings of examples/demo.yaml learn more in the same processor time of one thread: a line of JSON a variant, which
bench/results/recipes.jsonl keeps and docs/recipes.md tells of.

    bench/recipes.py build/release/banyan TEXT --seconds 120 [--only NAME]     # TEXT: scripts/corpus writes one

A variant is the config with settings changed. A first run of a few steps says how long a step takes, and the second one has
as many steps as fit. Where other programs load the machine, --time prints processor milliseconds a step alone, to be taken
of several configs in turn, and --steps trains for a number of steps: what a run learns depends on its config alone.

    bench/recipes.py OLD/banyan TEXT --config OLD/examples/demo.yaml --only recipe --threads 2 --time
    bench/recipes.py OLD/banyan TEXT --config OLD/examples/demo.yaml --only recipe --steps 600
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FIRST = ["train.batch=32", "mlp.kind=auto", "activation.kind=auto", "model.mlp_width=-1", "values.kind=projected",
         "residual.kind=plain", "optimizer.variance=0", "optimizer.cautious=false",
         "optimizer.schedule=cosine", "optimizer.min_lr=0.002"]
VARIANTS = {
    "recipe": [],
    "before": FIRST,
    "batch of 32": ["train.batch=32"],
    "swiglu": ["mlp.kind=auto", "activation.kind=auto", "model.mlp_width=-1"],
    "projected values": ["values.kind=projected"],
    "plain residual": ["residual.kind=plain"],
    "no variance": ["optimizer.variance=0"],
    "all decay": ["optimizer.cautious=false"],
    "cosine": ["optimizer.schedule=cosine", "optimizer.min_lr=0.002"],
}


def train(a, directory, settings, steps):
    """Processor seconds of a run, and its last evaluation."""
    command = [a.banyan, "train", a.config]
    for setting in [f"data.text={a.text}", f"data.cache={a.cache}", f"run.dir={directory}", "name=run",
                    f"train.threads={a.threads}", f"seed={a.seed}", "train.eval_every=0", "checkpoint.every=0",
                    f"train.steps={steps}", *settings]:
        command += ["--set", setting]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.path.join(directory, "run", "events.jsonl")) as f:
        events = [json.loads(line) for line in f]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, next(e for e in reversed(events) if e["event"] == "eval")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("banyan")
    parser.add_argument("text")
    parser.add_argument("--seconds", type=float, default=120, help="processor time of a run (default 120)")
    parser.add_argument("--steps", type=int, help="steps of a run instead")
    parser.add_argument("--time", action="store_true", help="measure a step, and train no longer")
    parser.add_argument("--config", default=os.path.join(ROOT, "examples/demo.yaml"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--only", action="append", choices=sorted(VARIANTS), help="of these variants alone")
    parser.add_argument("--cache", default="build/recipes")
    a = parser.parse_args()
    for name, settings in VARIANTS.items():
        if a.only and name not in a.only:
            continue
        times = []
        for steps in () if a.steps else (2, 12):
            with tempfile.TemporaryDirectory() as directory:
                times.append(train(a, directory, [*settings, "train.eval_batches=1"], steps)[0])
        result = {"variant": name, "config": os.path.relpath(a.config, ROOT), "settings": settings, "threads": a.threads, "seed": a.seed}
        step = None if a.steps else (times[1] - times[0]) / 10
        result["step_ms"] = None if a.steps else round(1e3 * step)
        if not a.time:
            steps = a.steps or max(1, round((a.seconds - times[0]) / step))
            with tempfile.TemporaryDirectory() as directory:
                seconds, last = train(a, directory, settings, steps)
            result |= {"steps": steps, "seconds": round(seconds, 1), "bits_per_byte": round(last["bits_per_byte"], 4),
                       "valid_loss": round(last["valid_loss"], 4)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
