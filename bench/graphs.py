#!/usr/bin/env python3
"""Compares models of the nodes of a graph with PyTorch Geometric: accuracies on random splits, the same for both, and the
time of an epoch. Prints a table, and appends a JSON record a model to bench/results/graphs.jsonl.

    bench/graphs.py cora.npz --python build/venv-pyg/bin/python
    bench/graphs.py cora.npz --python build/venv-pyg/bin/python --models gcn,sage --speed
    bench/graphs.py PACKED --models gcn,sage --speed --epochs 4 --peer-epochs 6     a graph of graph_data.py, packed with
                                                                                    --self-loops add

A split has 20 nodes of each class to train on, 500 to validate and 1000 to test. Both sides train for 200 epochs with the
recipes of torch_graphs.py and evaluate after each; the test is of the best epoch. With --speed, runs of both alternate
instead, first of steps alone and then with evaluations, and the time of a banyan epoch is the difference of two runs of
different length. The peer needs torch_geometric:

    scripts/python-env build/venv-pyg && build/venv-uv/bin/uv pip install --python build/venv-pyg torch_geometric
"""
import argparse
import datetime
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EXAMPLES = {kind: os.path.join(ROOT, "examples", f"cora_{kind}.yaml") for kind in ("gcn", "sage", "gat")}
SPLIT = """
import sys, numpy as np
graph, seed = sys.argv[1], int(sys.argv[2])
y = np.load(graph)["labels"]
order = np.random.default_rng(seed).permutation(len(y))
train = np.concatenate([order[y[order] == c][:20] for c in range(y.max() + 1)])
rest = order[~np.isin(order, train)]
for name, nodes in (("train", train), ("valid", rest[:500]), ("test", rest[500:1500])):
    np.savetxt(name + ".txt", nodes, "%d")
"""


def run(command, directory):
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"graphs.py: exit status {done.returncode} of {command}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def banyan_flags(a, kind, name, epochs, evaluations, seed):
    values = {"name": name, "seed": seed, "data.graph": a.graph, "train.steps": epochs, "train.threads": a.threads,
              "train.eval_every": 1 if evaluations else epochs, "data.train_list": "train.txt",
              "data.valid_list": "valid.txt" if evaluations else "", "data.test_list": "test.txt"}
    if os.path.isdir(a.graph):  # which has its own lists; a step is of all nodes to train on, as the peer's is
        with open(os.path.join(a.graph, "train.npy"), "rb") as f:
            count = int(re.search(rb"'shape': \((\d+)", f.read(128)).group(1))
        values.update({"data.train_list": "", "data.valid_list": "", "data.test_list": "", "data.normalize": "false",
                       "train.batch": count, "train.micro_batch": count})
    return [a.banyan, "train", EXAMPLES[kind]] + [w for k, v in values.items() for w in ("--set", f"{k}={v}")]


def banyan_accuracy(a, kind, directory, seed):
    name = f"{kind}-{seed}"
    run(banyan_flags(a, kind, name, 200, True, seed), directory)
    out = run([a.banyan, "eval", f"runs/{name}", "--test", "--best", "--json"], directory)
    return json.loads(out)["accuracy"]


def peer(a, kind, directory, epochs, evaluations, seed):
    lists = [] if os.path.isdir(a.graph) else ["--train", "train.txt", "--valid", "valid.txt", "--test", "test.txt"]
    flags = lists + ["--epochs", str(epochs), "--seed", str(seed), "--threads", str(a.threads)]
    out = run([a.python, os.path.join(HERE, "torch_graphs.py"), a.graph, kind] + flags +
              ([] if evaluations else ["--no-evaluation"]), directory)
    return json.loads(out.splitlines()[-1])


def banyan_epoch(a, kind, directory, evaluations):
    """Milliseconds of an epoch, by the clock and of processors."""
    figures = []
    warm = min(50, a.epochs)
    for epochs in (warm, warm + a.epochs):
        name = f"{kind}-{time.time_ns()}"
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        run(banyan_flags(a, kind, name, epochs, evaluations, 1), directory)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return [(long - short) / a.epochs * 1e3 for short, long in zip(*figures)]


def compare_accuracy(a, kind, directory):
    ours, theirs = [], []
    for seed in range(a.splits):
        run([a.python, "-c", SPLIT, a.graph, str(seed)], directory)
        ours.append(100 * banyan_accuracy(a, kind, directory, seed))
        theirs.append(100 * peer(a, kind, directory, 200, True, seed)["accuracy"])
        print(f"{kind} split {seed}: banyan {ours[-1]:.1f}, PyG {theirs[-1]:.1f}", flush=True)
    difference = [b - t for b, t in zip(ours, theirs)]
    print(f"{kind}: banyan {statistics.mean(ours):.2f}, PyG {statistics.mean(theirs):.2f}, difference "
          f"{statistics.mean(difference):+.2f} +- {statistics.stdev(difference) / len(difference) ** 0.5:.2f}", flush=True)
    return dict(banyan=ours, peer=theirs, difference=statistics.mean(difference))


def compare_speed(a, kind, directory):
    packed = os.path.isdir(a.graph)
    if not packed:
        run([a.python, "-c", SPLIT, a.graph, "0"], directory)
    record = {}
    for evaluations in (False,) if packed else (False, True):
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(banyan_epoch(a, kind, directory, evaluations))
            p = peer(a, kind, directory, a.peer_epochs, evaluations, 0)
            theirs.append([p["epoch_ms"], p["epoch_cpu_ms"]])
        medians = [[statistics.median(column) for column in zip(*side)] for side in (ours, theirs)]
        ratios = [t / b for b, t in zip(*medians)]
        what = "with evaluations" if evaluations else "steps"
        print(f"{kind} {what}: banyan {medians[0][0]:.2f} ms (processors {medians[0][1]:.2f}), PyG {medians[1][0]:.2f} "
              f"({medians[1][1]:.2f}): {ratios[0]:.1f} times as fast ({ratios[1]:.1f})", flush=True)
        record[what] = dict(banyan=ours, peer=theirs, ratio=ratios[0], cpu_ratio=ratios[1])
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--banyan", default=os.path.join(ROOT, "build", "release", "banyan"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "venv-pyg", "bin", "python"))
    parser.add_argument("--models", default="gcn,sage,gat")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=400, help="of banyan, whose time is measured")
    parser.add_argument("--peer-epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    a = parser.parse_args()
    a.graph, a.banyan = os.path.abspath(a.graph), os.path.abspath(a.banyan)
    with tempfile.TemporaryDirectory() as directory:
        for kind in a.models.split(","):
            load = os.getloadavg()[0]
            result = (compare_speed if a.speed else compare_accuracy)(a, kind, directory)
            record = dict(date=datetime.datetime.now().isoformat(timespec="seconds"), kind=kind,
                          graph=os.path.basename(a.graph), measured="speed" if a.speed else "accuracy", threads=a.threads,
                          machine=dict(processor=platform.processor() or platform.machine(), cores=os.cpu_count(),
                                       load_before=load), **result)
            with open(os.path.join(HERE, "results", "graphs.jsonl"), "a") as out:
                out.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
