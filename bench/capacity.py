#!/usr/bin/env python3
"""Simulated against real serving of a trace at three loads.

    python3 bench/capacity.py TRACE.csv [CONFIG] [--requests N] [--rounds N]

TRACE has the columns seconds, prompt_tokens and generated_tokens. Its requests are scaled to the context of the
model and sent to the engine (banyan bench engine --load) at rates that load it by about 40, 60 and 80 %. The curve
is measured before and after each replay (banyan plan serve --curve), since the machine drifts; what is simulated
is the mean of both. Prints the median and the 95th percentile of the time to the first token and between tokens.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile

BANYAN = os.environ.get("BANYAN", "build/release/banyan")
FIGURES = (("first_token_ms", "ttft_ms"), ("first_token_p95_ms", "ttft_p95_ms"), ("token_ms", "token_ms"),
           ("token_p95_ms", "token_p95_ms"))


def banyan(*arguments):
    return subprocess.run([BANYAN, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def plan(curve, load, speed):
    out = banyan("plan", "serve", "--curve", curve, "--load", load, "--speed", speed, "--replicas", 1, "--json")
    return json.loads(out)


def write_load(path, trace, count, context):
    """The first requests of the trace, the longest as long as the context."""
    with open(trace) as file:
        rows = [(float(r["seconds"]), int(r["prompt_tokens"]), int(r["generated_tokens"]))
                for r in csv.DictReader(file)][:count]
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
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load = os.path.join(folder, "load.csv")
        curves = [os.path.join(folder, f"curve{i}.json") for i in range(4)]
        banyan("plan", "serve", a.config, "--curve", curves[0], "--rounds", a.rounds)
        with open(curves[0]) as file:
            context = json.load(file)["context"]
        span = write_load(load, a.trace, a.requests, context)
        # All requests at once: the time of the work alone, with full batches.
        work = plan(curves[0], load, 1e9)["always_on"]["computing_seconds"]
        print("load\tfigure\tsimulated, ms\treal, ms\tdifference")
        worst = 0.0
        for i, share in enumerate((0.4, 0.6, 0.8)):
            speed = share * span / work
            real = json.loads(banyan("bench", "engine", a.config, "--load", load, "--speed", speed, "--json"))
            banyan("plan", "serve", a.config, "--curve", curves[i + 1], "--rounds", a.rounds)
            both = [plan(c, load, speed)["always_on"] for c in curves[i:i + 2]]
            for ours, theirs in FIGURES:
                simulated = sum(b[ours] for b in both) / 2
                difference = simulated / real[theirs] - 1
                worst = max(worst, abs(difference))
                print(f"{share:.0%}\t{ours}\t{simulated:.2f}\t{real[theirs]:.2f}\t{difference:+.1%}", flush=True)
        print(f"worst difference {worst:.1%}")


main()
