"""Planned steps of this machine against measured ones: 12 layouts of 2 models on 1 and 2 ranks.

    python3 bench/plan_layouts.py [--banyan build/release/banyan] [--rounds 3] [--seconds 3] [--launch "mpirun -n 2"]
                                  [--models small,large] [--layouts 12] [--out FILE.csv]

Each round goes through all cases in turn. A case is calibrated by a run of a few steps, planned, then run for --seconds,
so that calibration and measured run are next to each other. Three plans are judged by the median of the measured steps:
`plain` without corrections, `own` corrected by the case's short runs, and `others` by those of all other cases alone.
Prints the median and the largest error of each, and Kendall's tau of the order of layouts of a model; --seconds is of
wall-clock time, so nothing else may run. --launch goes before banyan where a layout has 2 ranks: for a slow link, a
command that runs it there (bench/slow_link).
"""
import argparse
import csv
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

MODELS = {
    "tiny": ["model.layers=2", "model.heads=2", "model.width=32", "model.context=32", "train.batch=8"],
    "small": ["model.layers=4", "model.heads=4", "model.width=128", "model.context=128", "train.batch=16"],
    "large": ["model.layers=4", "model.heads=8", "model.width=256", "model.context=128", "train.batch=8"],
}
# Ranks, settings.
LAYOUTS = [
    (1, ["train.micro_batch=4"]),
    (1, ["train.micro_batch=1"]),
    (1, ["train.micro_batch=4", "memory.recompute=block"]),
    (1, ["train.micro_batch=4", "precision.compute=bf16"]),
    (2, ["train.micro_batch=4", "parallel.data=2"]),
    (2, ["train.micro_batch=1", "parallel.data=2"]),
    (2, ["train.micro_batch=4", "parallel.shard=2", "parallel.zero=1"]),
    (2, ["train.micro_batch=4", "parallel.shard=2", "parallel.zero=3"]),
    (2, ["train.micro_batch=4", "parallel.tensor=2"]),
    (2, ["train.micro_batch=4", "parallel.sequence=2"]),
    (2, ["train.micro_batch=2", "parallel.pipeline=2"]),
    (2, ["train.micro_batch=2", "parallel.pipeline=2", "parallel.schedule=zero_bubble"]),
]


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.banyan = str(pathlib.Path(args.banyan).resolve())
        text = "".join(chr(97 + (i * i + i // 7) % 26) + ("\n" if i % 61 == 60 else "") for i in range(200000))
        (folder / "input.txt").write_text(text)
        (folder / "c.yaml").write_text(
            "name: case\nmodel: {kind: gpt2, dropout: 0.0}\ndata: {tokenizer: char, text: input.txt, valid_fraction: 0}\n"
            "train: {eval_every: 0, log_every: 1000000, threads: 1}\ncheckpoint: {every: 0}\n")

    def call(self, words, cache, launch=()):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.folder / cache), OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run([*launch, self.banyan, *words], cwd=self.folder, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def start(self):
        self.call(["bench", "machine", "--threads", "1"], "plain")
        figures = self.folder / "plain" / "banyan" / "machine.json"
        data = json.loads(figures.read_text())
        for machine in data["machines"]:
            machine["busy"] = 0  # or each run would measure again, and plans would differ
        figures.write_text(json.dumps(data))
        for cache in ("own", "others", "aside"):
            shutil.copytree(self.folder / "plain", self.folder / cache)

    def settings(self, case):
        words = []
        for s in MODELS[case["model"]] + LAYOUTS[case["layout"]][1]:
            words += ["--set", s]
        return words

    def train(self, case, steps, cache):
        """Seconds of a step: the median that the program prints beside its plan."""
        ranks = LAYOUTS[case["layout"]][0]
        launch = shlex.split(self.args.launch) if ranks > 1 else ()
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        out = self.call(["train", "c.yaml", "--json", "--set", f"train.steps={steps}", *self.settings(case)], cache,
                        launch)
        for line in out.splitlines():
            if line.startswith("{") and json.loads(line).get("event") == "compared":
                return json.loads(line)["step_s"]
        raise SystemExit(f"no step was compared: {out}")

    def plan(self, case, cache):
        ranks = LAYOUTS[case["layout"]][0]
        out = self.call(["plan", "c.yaml", "--json", "--ranks", str(ranks), *self.settings(case)], cache)
        return json.loads(out)["step_s"]

    def leave_out(self, case):
        """Corrections of all other cases: entries that came with this one are taken away."""
        source = self.folder / "own" / "banyan" / "steps.json"
        data = json.loads(source.read_text())
        data["steps"] = [s for s in data["steps"]
                         if not any(abs(s["planned_s"] / p - 1) < 1e-3 for p in case["plain_raw"])]
        (self.folder / "others" / "banyan" / "steps.json").write_text(json.dumps(data))

    def run(self, case):
        plain = self.plan(case, "plain")
        case["plain_raw"].append(plain)
        case["plain"].append(plain)
        short = self.train(case, 5, "own")
        case["own"].append(self.plan(case, "own"))
        steps = int(min(2000, max(8, self.args.seconds / short)))
        case["measured"].append(self.train(case, steps, "aside"))


def kendall(a, b):
    pairs = [(a[i] - a[j]) * (b[i] - b[j]) for i in range(len(a)) for j in range(i)]
    return (sum(p > 0 for p in pairs) - sum(p < 0 for p in pairs)) / len(pairs)


def report(cases, models):
    for way in ("plain", "own", "others"):
        errors = sorted(abs(c[way + "_s"] / c["measured_s"] - 1) for c in cases)
        taus = []
        for model in models:
            mine = [c for c in cases if c["model"] == model]
            taus.append(kendall([c[way + "_s"] for c in mine], [c["measured_s"] for c in mine]))
        print(f"{way:7} median error {100 * statistics.median(errors):6.2f} %, worst {100 * errors[-1]:6.2f} %, "
              f"Kendall tau {' '.join(f'{t:.2f}' for t in taus)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banyan", default="build/release/banyan")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--launch", default="mpirun -n 2")
    parser.add_argument("--models", default="small,large")
    parser.add_argument("--layouts", type=int, default=len(LAYOUTS))
    parser.add_argument("--out")
    args = parser.parse_args()
    models = args.models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, pathlib.Path(folder))
        bench.start()
        cases = [{"model": m, "layout": k, "plain": [], "plain_raw": [], "own": [], "measured": []}
                 for m in models for k in range(args.layouts)]
        for round in range(args.rounds):
            print(f"round {round + 1} of {args.rounds}", file=sys.stderr)
            for case in cases:
                bench.run(case)
        for case in cases:
            bench.leave_out(case)
            case["others"] = [bench.plan(case, "others")]
            for way in ("plain", "own", "others", "measured"):
                case[way + "_s"] = statistics.median(case[way])
            spread = max(case["measured"]) / min(case["measured"]) - 1
            print(f"{case['model']:6} {LAYOUTS[case['layout']][0]} ranks {' '.join(LAYOUTS[case['layout']][1]):64} "
                  f"measured {1e3 * case['measured_s']:9.3f} ms (spread {100 * spread:4.1f} %), "
                  f"plain {1e3 * case['plain_s']:9.3f}, own {1e3 * case['own_s']:9.3f}, "
                  f"others {1e3 * case['others_s']:9.3f}")
    report(cases, models)
    if args.out:
        with open(args.out, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "ranks", "settings", "measured_s", "plain_s", "own_s", "others_s"])
            for c in cases:
                ranks, settings = LAYOUTS[c["layout"]]
                writer.writerow([c["model"], ranks, " ".join(settings), *(f"{c[w + '_s']:.6g}" for w in
                                                                          ("measured", "plain", "own", "others"))])


if __name__ == "__main__":
    main()
