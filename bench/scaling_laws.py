#!/usr/bin/env python3
"""Scaling laws fitted by `banyan plan fit`, against published fits of the same runs, and against larger runs.

    bench/scaling_laws.py DIR [--json]

DIR has tables of published runs (columns parameters, tokens, loss): loss_gemstones_*.csv, which are refitted at the
deltas of loss_published.json, and loss_gadre.csv, whose larger runs by 6 N D are predicted from the smaller ones of each
training set. Prints a line for each case; exit code 1 if an objective is above the published one by more than 1e-6 of
it, or a fit takes a second. BANYAN names the program; default: build/release/banyan."""
import argparse
import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def fit(table, *arguments):
    program = os.environ.get("BANYAN", str(ROOT / "build/release/banyan"))
    done = subprocess.run([program, "plan", "fit", str(table), "--json", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{table}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def gemstones(directory):
    published = json.loads((directory / "loss_published.json").read_text())["gemstones"]
    for table in sorted(directory.glob("loss_gemstones_*.csv")):
        name = table.stem.removeprefix("loss_gemstones_")
        for key, theirs in published.get(name, {}).items():
            if not key.startswith("huber_"):
                continue
            ours = fit(table, "--delta", key.removeprefix("huber_"), "--draws", "20")
            logs = {"lnA": math.log(ours["a"]), "lnB": math.log(ours["b"]), "lnE": math.log(ours["e"])}
            logs.update(alpha=ours["alpha"], beta=ours["beta"])
            yield {
                "case": f"{name} {key}",
                "seconds": ours["seconds"],
                "objective": ours["objective"],
                "published": theirs["objective"],
                "excess": ours["objective"] / theirs["objective"] - 1,
                "worst_parameter": max(abs(logs[k] / theirs[k] - 1) for k in logs),
                "fit": logs,
            }


def gadre(directory, loss, larger):
    """Predicts the runs of most 6 N D, a share `larger` of each training set."""
    rows = list(csv.DictReader((directory / "loss_gadre.csv").open()))
    for data in sorted({row["train_set"] for row in rows}):
        runs = [(float(r["parameters"]), float(r["tokens"]), float(r[loss])) for r in rows if r["train_set"] == data]
        runs.sort(key=lambda run: run[0] * run[1])
        kept = len(runs) - round(larger * len(runs))
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
            table.write("parameters,tokens,loss\n" + "".join(f"{n},{d},{l}\n" for n, d, l in runs[:kept]))
            table.flush()
            law = fit(table.name, "--draws", "20")
        errors = [
            abs((law["e"] + law["a"] * n ** -law["alpha"] + law["b"] * d ** -law["beta"]) / l - 1)
            for n, d, l in runs[kept:]
        ]
        yield {"case": f"gadre {data}, {loss}", "runs": kept, "mean_error": sum(errors) / len(errors), "worst": max(errors)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bad = False
    for record in [*gemstones(options.directory), *gadre(options.directory, "loss_c4", 1 / 3)]:
        bad = bad or record.get("excess", 0) > 1e-6 or record.get("seconds", 0) >= 1
        if options.json:
            print(json.dumps(record))
        elif "excess" in record:
            print(
                f"{record['case']:24} {record['seconds']:.3f} s, objective {record['objective']:.10g}, published "
                f"{record['published']:.10g} ({record['excess']:+.1e}), parameters within {100 * record['worst_parameter']:.2f} %"
            )
        else:
            print(f"{record['case']:24} from {record['runs']} runs: mean {100 * record['mean_error']:.2f} %, worst {100 * record['worst']:.2f} %")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
