#!/usr/bin/env python3
"""Planned against measured memory for every recompute choice, optimizer and precision.

    bench/plan_memory.py [--recompute none,block,...] [--optimizers adamw,...] [--precisions f32,...]
                         [--set KEY=VALUE]... [--json]

Each combination is a process of its own, `banyan bench train`, which takes two steps of a GPT-2 of 34 million parameters
on 2 x 512 tokens; what it had at its peak (VmHWM) is compared with what it had planned before it began. `budget` is a
memory.budget that leaves half of the activations that can be computed again. Prints a table in Markdown, or one JSON line a combination. Exit code 1
when one is off by more than 3 % (--bound). BANYAN names the program; default: build/release/banyan."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """\
model: {kind: gpt2, layers: 8, heads: 8, width: 512, context: 512, vocab: 16384}
train: {batch: 2, micro_batch: 2}
"""
RECOMPUTE = {
    "none": ["memory.recompute=none"],
    "block": ["memory.recompute=block"],
    "every": ["memory.recompute=every"],
    "full": ["memory.recompute=full"],
    "budget": ["memory.recompute=none"],
}
PRECISIONS = {
    "f32": ["precision.compute=f32"],
    "f32 bf16": ["precision.compute=f32", "memory.activations=bf16"],
    "f32 int8": ["precision.compute=f32", "memory.activations=int8"],
    "bf16": ["precision.compute=bf16"],
    "bf16 int8": ["precision.compute=bf16", "memory.activations=int8"],
    "fp16": ["precision.compute=fp16"],
    "pure bf16": ["precision.compute=bf16", "precision.weights=bf16"],
}
REFUSED = 2  # exit code: a configuration that is not possible, such as adamw8bit with weights in bf16
OPTIMIZERS = ["adamw", "adamw8bit", "adafactor", "lamb", "lion", "muon", "sgd"]


def banyan(*arguments):
    program = os.environ.get("BANYAN", str(ROOT / "build/release/banyan"))
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode == REFUSED:
        return None
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


def measure(config, settings, recompute, steps):
    """The record of a combination; None where the program refuses it."""
    if recompute == "budget":
        plan = banyan("info", config, *sets(settings))
        least = banyan("info", config, *sets([*settings, "memory.recompute=full"]))
        if plan is None or least is None:
            return None
        half = (plan["planned_bytes"] + least["planned_bytes"]) // 2
        # A trainer alone, as `bench train` is, has neither loaders nor buffers for checkpoints.
        settings = settings + [f"memory.budget={half - plan['data_bytes'] - plan['staging_bytes']}"]
    return banyan("bench", "train", config, "--steps", str(steps), *sets(settings))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recompute", default=",".join(RECOMPUTE))
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--bound", type=float, default=3.0, help="per cent that a plan may be off by")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    worst = 0.0
    count = 0
    with tempfile.TemporaryDirectory() as work:
        config = os.path.join(work, "c.yaml")
        pathlib.Path(config).write_text(CONFIG)
        if not args.json:
            print("| optimizer | precision | recompute | planned MiB | measured MiB | off by |")
            print("|---|---|---|---|---|---|")
        for optimizer in args.optimizers.split(","):
            for precision in args.precisions.split(","):
                for recompute in args.recompute.split(","):
                    settings = [f"optimizer.kind={optimizer}", *PRECISIONS[precision], *RECOMPUTE[recompute], *args.set]
                    record = measure(config, settings, recompute, args.steps)
                    if record is None:
                        continue
                    planned, measured = record["planned_bytes"], record["measured_bytes"]
                    off = 100.0 * (measured - planned) / planned
                    worst = max(worst, abs(off))
                    count += 1
                    if args.json:
                        names = {"optimizer": optimizer, "precision": precision, "recompute": recompute}
                        print(json.dumps({**names, "planned_bytes": planned, "measured_bytes": measured,
                                          "off_percent": round(off, 3), "step_ms": record["step_ms"]}), flush=True)
                    else:
                        print(f"| {optimizer} | {precision} | {recompute} | {planned / 2**20:.1f} |"
                              f" {measured / 2**20:.1f} | {off:+.2f} % |", flush=True)
    print(f"{count} plans, the worst off by {worst:.2f} %", file=sys.stderr)
    return 1 if worst > args.bound else 0


if __name__ == "__main__":
    sys.exit(main())
