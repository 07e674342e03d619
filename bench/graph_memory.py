#!/usr/bin/env python3
"""What a large graph costs to pack and to train on: processor time, and the most memory of the process without the pages
of the maps of files, which the kernel may drop (RssAnon). Prints a JSON line for each.

    bench/graph_memory.py DIR [--nodes N] [--edges N] [--features N] [--steps N] [--memory SIZE]

DIR gets the graph of graph_data.py, unless it is there, and the packed one. Training is `sage` of two layers on samples of
512 nodes with fan-outs of 10 and 5. BANYAN names the program; default: build/release/banyan.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """\
name: large
task: {{kind: nodes}}
model: {{kind: sage, layers: 2, width: 64}}
data: {{graph: packed, fan_outs: [10, 5], sample_targets: 512}}
train: {{steps: {steps}, batch: 2, eval_every: 0, threads: 1}}
precision: {{compute: f32}}
"""


def memory_of(pid):
    """Bytes of a process: its own, and of files that it maps."""
    found = {"RssAnon": 0, "RssFile": 0}
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) << 10
    return found["RssAnon"], found["RssFile"]


def run(command, directory):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    with open(directory / "log", "w") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        most = [0, 0]
        while process.poll() is None:
            try:
                most = [max(pair) for pair in zip(most, memory_of(process.pid))]
            except OSError:
                pass
            time.sleep(0.02)
    if process.returncode:
        sys.exit(f"graph_memory.py: exit status {process.returncode} of {command}: {(directory / 'log').read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": round(cpu, 1), "seconds": round(time.monotonic() - begin, 1), "memory_mib": most[0] >> 20,
            "mapped_mib": most[1] >> 20}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--memory", default="1GiB", help="of `banyan pack`")
    a = parser.parse_args()
    banyan = os.path.abspath(os.environ.get("BANYAN", ROOT / "build/release/banyan"))
    if not (a.directory / "valid.npy").exists():
        sizes = [f"--{name}={getattr(a, name)}" for name in ("nodes", "edges", "features")]
        subprocess.run([sys.executable, ROOT / "bench/graph_data.py", a.directory, *sizes], check=True)
    shutil.rmtree(a.directory / "packed", ignore_errors=True)
    shutil.rmtree(a.directory / "runs", ignore_errors=True)
    (a.directory / "large.yaml").write_text(CONFIG.format(steps=a.steps))
    files = ["--features", "features.npy", "--labels", "labels.npy", "--train-list", "train.npy", "--valid-list", "valid.npy"]
    pack = run([banyan, "pack", "--graph", "edges.csv", *files, "--store", "f16", "--memory", a.memory, "--out", "packed"],
               a.directory)
    size = sum(f.stat().st_size for f in (a.directory / "packed").iterdir())
    print(json.dumps({"work": "pack", **pack, "packed_mib": size >> 20}), flush=True)
    for name in ("train", "train again, verified"):
        shutil.rmtree(a.directory / "runs", ignore_errors=True)
        print(json.dumps({"work": name, **run([banyan, "train", "large.yaml"], a.directory)}), flush=True)


if __name__ == "__main__":
    main()
