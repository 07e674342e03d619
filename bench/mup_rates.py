#!/usr/bin/env python3
"""How far the best learning rate moves with the width under muP: bench/mup_rates.py TEXT [--in 'COMMAND...'].

Trains a model of two layers on the characters of a text at four widths, with rates in steps of 2 and three seeds, one
thread each, and prints the mean loss of the held-out text by width and rate. Runs go to runs/mup_rates; those that are
done are not made again, so it can be stopped at any time. --widths and --seeds make fewer runs. --in puts a command
such as `nice -n 10` before each run.
Exit code 1 if the best rates of two widths are more than a factor of 2 apart. BANYAN names the program."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

BANYAN = os.environ.get("BANYAN", "build/release/banyan")
RUNS = "runs/mup_rates"
WIDTHS = [64, 128, 256, 512]
SEEDS = [1, 2, 3]


def loss_of(name):
    """The last loss of held-out text; None: the run is not done. A run that diverged has no finite one."""
    try:
        if json.load(open(f"{RUNS}/{name}/run.json"))["status"] != "done":
            return None
        events = [json.loads(line) for line in open(f"{RUNS}/{name}/events.jsonl")]
    except (OSError, KeyError, ValueError):
        return None
    losses = [e["valid_loss"] for e in events if e.get("event") == "eval"]
    return losses[-1] if losses else None


def train(args, width, rate, seed, name):
    settings = {
        "name": name, "run.dir": RUNS, "model.kind": "gpt2", "model.layers": 2, "model.heads": width // 32,
        "model.width": width, "model.context": 64, "model.dropout": 0, "model.parameterisation": args.parameterisation,
        "data.text": args.text, "data.tokenizer": "char", "train.batch": 8, "train.steps": args.steps,
        "train.eval_every": 0, "train.log_every": 1000, "train.threads": 1, "seed": seed, "checkpoint.every": 0,
        "optimizer.kind": "adamw", "optimizer.lr": rate, "optimizer.schedule": "linear", "optimizer.min_lr": 0,
        "optimizer.warmup": 0.05, "precision.compute": "f32",
    }
    if args.parameterisation == "mup":
        settings["model.mup_base_width"] = 64
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([*shlex.split(args.within), BANYAN, "train", RUNS + "/empty.yaml", "--quiet", *sets],
                   stdout=subprocess.DEVNULL, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--parameterisation", default="mup", choices=["mup", "standard"])
    parser.add_argument("--rates", type=float, nargs="+", default=[2.0**k for k in range(-10, -4)])
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--in", dest="within", default="")
    args = parser.parse_args()
    args.text = os.path.abspath(args.text)
    os.makedirs(RUNS, exist_ok=True)
    open(RUNS + "/empty.yaml", "w").close()
    print("width\t" + "\t".join(f"{rate:.3g}" for rate in args.rates) + "\tbest")
    best = []
    for width in args.widths:
        losses = []
        for rate in args.rates:
            each = []
            for seed in args.seeds:
                name = f"{args.parameterisation}-{width}-{rate:.4g}-{args.steps}-{seed}"
                if loss_of(name) is None:
                    train(args, width, rate, seed, name)
                each.append(loss_of(name))
            losses.append(statistics.mean(float("nan") if loss is None else loss for loss in each))
        order = [k for k in range(len(losses)) if losses[k] == losses[k]]
        best.append(min(order, key=lambda k: losses[k]))
        print(f"{width}\t" + "\t".join(f"{loss:.4f}" for loss in losses) + f"\t{args.rates[best[-1]]:.3g}", flush=True)
    moved = max(best) - min(best)
    print(f"the best rate moves by at most {moved} step{'' if moved == 1 else 's'} of 2")
    return 0 if moved <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
