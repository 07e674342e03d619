#!/usr/bin/env python3
"""Simulated against real serving of a trace at three loads.

    python3 bench/capacity.py TRACE.csv [CONFIG] [--set KEY=VALUE]... [--minutes 4] [--requests N] [--rounds N]

TRACE has the columns seconds, prompt_tokens and generated_tokens. Its requests are scaled to the context of the
model and sent to the engine (banyan bench engine --load) at rates that load it by about 40, 60 and 80 %; as many as
fit into the minutes, without --requests. The curve is measured before and after each replay (banyan plan serve
--curve), since the machine drifts; what is simulated is the mean of both. Prints the median and the 95th percentile
of the time to the first token and between tokens, and the seconds of all steps: where these differ, the formula of a
step does; where only the others do, waiting does.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile
import time

BANYAN = os.environ.get("BANYAN", "build/release/banyan")
LOADS = (0.4, 0.6, 0.8)
FIGURES = (("first_token_ms", "ttft_ms"), ("first_token_p95_ms", "ttft_p95_ms"), ("token_ms", "token_ms"),
           ("token_p95_ms", "token_p95_ms"))


def banyan(*arguments):
    return subprocess.run([BANYAN, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def plan(curve, load, speed):
    out = banyan("plan", "serve", "--curve", curve, "--load", load, "--speed", speed, "--replicas", 1, "--json")
    return json.loads(out)["always_on"]


def read_trace(trace):
    with open(trace) as file:
        return [(float(r["seconds"]), int(r["prompt_tokens"]), int(r["generated_tokens"])) for r in csv.DictReader(file)]


def write_load(path, rows, context):
    """Requests of the trace, the longest as long as the context. Returns the seconds between the first and the last."""
    share = context / max(p + g for _, p, g in rows)
    with open(path, "w") as file:
        file.write("seconds,prompt_tokens,generated_tokens\n")
        for seconds, prompt, generated in rows:
            prompt = max(1, int(prompt * share))
            file.write(f"{seconds},{prompt},{max(1, int(generated * share))}\n")
    return rows[-1][0] - rows[0][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("config", nargs="?", default="examples/gpt2_124m.yaml")
    parser.add_argument("--set", action="append", default=[], help="override a key of the config")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--requests", type=int, help="instead of minutes")
    parser.add_argument("--rounds", type=int, default=1)
    a = parser.parse_args()
    began = time.time()
    rows = read_trace(a.trace)
    model = [a.config, *(word for s in a.set for word in ("--set", s))]
    with tempfile.TemporaryDirectory() as folder:
        load = os.path.join(folder, "load.csv")
        curves = [os.path.join(folder, f"curve{i}.json") for i in range(len(LOADS) + 1)]
        banyan("plan", "serve", *model, "--curve", curves[0], "--rounds", a.rounds)
        measuring = time.time() - began
        with open(curves[0]) as file:
            context = json.load(file)["context"]
        count = a.requests or min(len(rows), 400)
        write_load(load, rows[:count], context)
        # All requests at once: the time of the work alone, with full batches.
        work = plan(curves[0], load, 1e9)["computing_seconds"]
        if not a.requests:
            left = 60 * a.minutes - (len(LOADS) + 2) * measuring
            count = max(50, min(len(rows), int(count * left / work / sum(1 / share for share in LOADS))))
        span = write_load(load, rows[:count], context)
        work = plan(curves[0], load, 1e9)["computing_seconds"]
        print(f"{count} requests\nload\tfigure\tsimulated, ms\treal, ms\tdifference")
        worst = 0.0
        for i, share in enumerate(LOADS):
            speed = share * span / work
            real = json.loads(banyan("bench", "engine", *model, "--load", load, "--speed", speed, "--json"))
            banyan("plan", "serve", *model, "--curve", curves[i + 1], "--rounds", a.rounds)
            both = [plan(c, load, speed) for c in curves[i:i + 2]]
            for ours, theirs in FIGURES:
                simulated = sum(b[ours] for b in both) / 2
                difference = simulated / real[theirs] - 1
                worst = max(worst, abs(difference))
                print(f"{share:.0%}\t{ours}\t{simulated:.2f}\t{real[theirs]:.2f}\t{difference:+.1%}", flush=True)
            steps = sum(b["computing_seconds"] for b in both) / 2
            print(f"{share:.0%}\tall {real['steps']} steps\t{1e3 * steps:.0f}\t{1e3 * real['computing_seconds']:.0f}\t"
                  f"{steps / real['computing_seconds'] - 1:+.1%}", flush=True)
        print(f"worst difference of a time {worst:.1%}; {time.time() - began:.0f} s")


main()
