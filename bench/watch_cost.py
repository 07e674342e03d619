#!/usr/bin/env python3
"""What guards and tracking cost a step: the same training with and without each, in turn.

    bench/watch_cost.py [--config examples/gpt2_124m.yaml] [--steps 6] [--rounds 3] [--set KEY=VALUE]... [--json]

Trains on random text without checkpoints or evaluations, and takes the median time of a step but for the first two. A
round runs every setting once, so that what disturbs the machine disturbs all; the ratio is the median over rounds of a
setting's step to the plain one's in the same round. BANYAN names the program; default: build/release/banyan."""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTINGS = [
    "",
    "guard.abft=true",
    "guard.replay_every=1",
    "guard.replay_every=10",
    "guard.spike=skip",
    "track.norms_every=1",
    "track.activations_every=1",
]


def step_seconds(args, config, text, work, setting):
    program = os.environ.get("BANYAN", str(ROOT / "build/release/banyan"))
    base = [f"data.text={text}", f"data.cache={work}/cache", f"run.dir={work}/runs", f"train.steps={args.steps}",
            "train.log_every=1", "train.eval_every=0", "train.eval_batches=1", "checkpoint.every=0", "optimizer.warmup=1",
            "data.tokenizer=char", *args.set]
    if setting:
        base.append(setting)
    command = [program, "train", config, "--json", *[word for item in base for word in ("--set", item)]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rates = [event["tokens_per_s"] for event in events if event.get("event") == "train"]
    return 1.0 / statistics.median(rates[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "examples/gpt2_124m.yaml"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.steps < 3:
        parser.error("--steps: two are left out, so 3 at least")
    seconds = {setting: [] for setting in SETTINGS}
    with tempfile.TemporaryDirectory() as work:
        text = os.path.join(work, "text.txt")
        letters = random.Random(1)
        pathlib.Path(text).write_text("".join(letters.choice("abcdefghijklmnopqrstuvwxyz \n") for _ in range(200000)))
        for _ in range(args.rounds):
            for setting in SETTINGS:
                seconds[setting].append(step_seconds(args, args.config, text, work, setting))
    if not args.json:
        print("| setting | time of a step | spread |")
        print("|---|---|---|")
    for setting in SETTINGS[1:]:
        ratios = [mine / plain for mine, plain in zip(seconds[setting], seconds[""])]
        ratio, spread = statistics.median(ratios), max(ratios) - min(ratios)
        if args.json:
            print(json.dumps({"setting": setting, "ratio": round(ratio, 4), "ratios": [round(r, 4) for r in ratios]}))
        else:
            print(f"| `{setting}` | {100 * (ratio - 1):+.1f} % | {100 * spread:.1f} |")


if __name__ == "__main__":
    main()
