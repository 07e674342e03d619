#!/usr/bin/env python3
"""What the dial promises, on an idle machine: bench/dial.py TEXT [--minutes 2 5 10 20] [--by-hand].

For each time: how long the run took, the loss that was predicted and that of all held-out text. --by-hand also trains
12 configs that a person might set (four sizes, three learning rates, gpt2 on the same tokens) for the same time, which
takes twelve times as long, and prints the best of them.
"""
import argparse, glob, json, os, subprocess, time

BANYAN = os.path.abspath(os.environ.get("BANYAN", "build/release/banyan"))
RUNS = "runs/dial_bench"
SHAPES = [(2, 128), (4, 128), (4, 256), (6, 384)]
RATES = [3e-4, 1e-3, 3e-3]


def lines_of(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def bits_of(run):
    return lines_of([BANYAN, "eval", run, "--json"])[-1]["bits_per_byte"]


def newest():
    return max((d for d in glob.glob(RUNS + "/*/") if os.path.exists(d + "run.json")), key=os.path.getmtime)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--minutes", type=float, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--by-hand", action="store_true")
    args = parser.parse_args()
    text = os.path.abspath(args.text)
    os.makedirs(RUNS, exist_ok=True)
    open(RUNS + "/empty.yaml", "w").close()
    for minutes in args.minutes:
        began = time.time()
        budget = ["--minutes", str(minutes), "--json", "--set", "run.dir=" + RUNS]
        events = lines_of([BANYAN, "train", "--data", text, *budget])
        taken = time.time() - began
        dial = next(e for e in events if e.get("event") == "dial")
        bits = bits_of(newest())
        predicted = dial["bits_per_byte"]
        late = taken / 60 / minutes - 1
        print(f"{minutes:g} minutes: took {taken / 60:.2f} ({late:+.1%}); predicted {predicted:.4f} ({dial['low']:.4f} to "
              f"{dial['high']:.4f}), held out {bits:.4f} ({predicted / bits - 1:+.2%})", flush=True)
        best = None
        for layers, width in SHAPES if args.by_hand else []:
            for rate in RATES:
                settings = {"run.dir": RUNS, "name": "by-hand", "model.layers": layers, "model.width": width,
                            "model.heads": width // 32, "model.context": 128, "data.text": text,
                            "data.tokenizer_vocab": 4096, "train.batch": 16, "optimizer.lr": rate,
                            "optimizer.warmup": 0.05}
                sets = [word for pair in settings.items() for word in ("--set", "%s=%s" % pair)]
                lines_of([BANYAN, "train", RUNS + "/empty.yaml", "--minutes", str(minutes), "--json", *sets])
                row = (bits_of(newest()), layers, width, rate)
                print("  by hand: %.4f with %d layers of %d, rate %g" % row, flush=True)
                best = min(best or row, row)
        if best:
            print(f"  the dial against the best by hand: {bits / best[0] - 1:+.2%}", flush=True)


main()
