#!/usr/bin/env python3
"""Makes the runs that the law of the dial is fitted to, and fits it: bench/dial_laws.py TEXT [--fit-only].

Runs go to runs/dial_laws; those that are done are not made again, so it can be stopped at any time. It prints a table
of the runs and the law, whose numbers are constants of src/plan/dial/dial_laws.c.
"""
import argparse, json, math, os, subprocess, sys

BANYAN = os.environ.get("BANYAN", "build/release/banyan")
RUNS = "runs/dial_laws"
CONTEXT = 128
# Layers, and millions of tokens.
GRID = [(2, 0.25), (2, 0.5), (2, 1), (2, 2), (2, 4), (3, 0.25), (3, 0.5), (3, 1), (3, 2), (3, 4), (4, 0.25), (4, 1),
        (4, 4), (4, 8), (6, 2), (6, 8)]


def name_of(layers, millions):
    return f"l{layers}-{millions:g}m"


def batch_of(tokens):
    """As by_dial_choose has it."""
    return max(4, round(1024 * (tokens / 1e6) ** 0.4 / (4 * CONTEXT)) * 4)


def train(text, layers, millions):
    tokens = millions * 1e6
    batch = batch_of(tokens)
    settings = {
        "name": name_of(layers, millions), "run.dir": RUNS, "model.kind": "llama", "model.layers": layers,
        "model.heads": layers, "model.width": 32 * layers, "model.context": CONTEXT, "model.tied": "true",
        "model.parameterisation": "mup", "model.mup_base_width": 128, "data.text": text, "data.tokenizer": "bpe",
        "data.tokenizer_vocab": 4096, "train.batch": batch, "train.steps": round(tokens / batch / CONTEXT),
        "train.eval_every": 0, "train.log_every": 1000, "checkpoint.every": 0, "optimizer.kind": "adamw",
        "optimizer.lr": 4e-3, "optimizer.min_lr": 0, "optimizer.schedule": "linear", "optimizer.warmup": 0.02,
        "optimizer.betas": "[0.9, 0.98]",
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([BANYAN, "train", RUNS + "/empty.yaml", "--quiet", *sets], check=True, stdout=subprocess.DEVNULL)


def result(layers, millions):
    """Bits per byte of a run that is done, else None."""
    path = f"{RUNS}/{name_of(layers, millions)}"
    try:
        if json.load(open(f"{path}/run.json"))["status"] != "done":
            return None
        lines = [json.loads(line) for line in open(f"{path}/events.jsonl")]
    except (OSError, KeyError, ValueError):
        return None
    evals = [line for line in lines if line.get("event") == "eval"]
    return (evals[-1]["valid_loss"], evals[-1]["bits_per_byte"]) if evals else None


def blocks(layers):
    width = 32 * layers
    mlp = ((8 * width + 2) // 3 + 63) // 64 * 64
    return layers * (4 * width**2 + 3 * width * mlp + 2 * width) + width


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--fit-only", action="store_true", help="of the runs that there are")
    args = parser.parse_args()
    rows = []
    os.makedirs(RUNS, exist_ok=True)
    open(RUNS + "/empty.yaml", "w").close()
    for layers, millions in GRID:
        if result(layers, millions) is None and not args.fit_only:
            train(args.text, layers, millions)
        done = result(layers, millions)
        if done:
            per_token = done[0] / math.log(2) / done[1]
            rows.append((layers, blocks(layers), millions, millions * 1e6 * per_token, done[1]))
    with open(f"{RUNS}/runs.csv", "w") as table:
        table.write("parameters,tokens,loss\n")
        for _, n, _, d, bits in rows:
            table.write(f"{n},{d:.0f},{bits}\n")
    print("| layers | parameters of blocks | million tokens | MB of text | bits per byte |\n|---|---|---|---|---|")
    for layers, n, millions, d, bits in rows:
        print(f"| {layers} | {n:,} | {millions:g} | {d / 1e6:.2f} | {bits:.3f} |")
    sys.stdout.flush()
    subprocess.run([BANYAN, "plan", "fit", f"{RUNS}/runs.csv"], check=True)


main()
