#!/usr/bin/env python3
"""Goodput of a supervised run while instances come and go as in a trace, against what `banyan plan cost` says.

    bench/spot_replay.py TRACE.csv [--factor 200] [--seconds 240] [--every STEPS] [--json]

TRACE.csv has the columns seconds and instances. It is replayed `factor` times faster, its first `seconds` seconds of
that, on a job of one rank under `banyan launch`: a loss kills the job, which is started again from its newest
checkpoint; a gain asks it to save and end (SIGTERM), and starts it again; without instances nothing runs. A second
counts as often as the trace has instances. The time between two steps is useful if no later process takes the second of
them again. Then the trace is replayed by the simulation with the save, restart and interval that were measured.
BANYAN names the program; default: build/release/banyan."""
import argparse
import csv
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("BANYAN", str(ROOT / "build/release/banyan"))
CONFIG = """\
name: job
model: {kind: gpt2, layers: 2, heads: 4, width: 64, context: 64}
data: {text: [text.txt], tokenizer: char, cache: cache}
train: {steps: 100000000, batch: 8, eval_every: 0, log_every: 1, threads: 1}
run: {dir: runs}
"""


class Job:
    """The job: its processes one after another, and when each step of theirs ended."""

    def __init__(self, folder, every):
        self.folder, self.every = folder, every
        self.lives = []  # lists of (time, step), one for each process of the rank
        self.saves, self.stalls, self.written = [], [], []
        self.supervisor = None
        self.begun = []  # when a process was asked for

    def start(self, asked=None):
        """Starts the job, which was asked for at a time: now, or before it was stopped for that."""
        # The trainer reads its config again where there is nothing to resume.
        known = list(self.folder.glob("runs/job*/checkpoints/step-*"))
        command = ["train", "--resume", "runs/job"] if known else ["train", "c.yaml", "--set", f"checkpoint.every={self.every}"]
        if not known and (self.folder / "runs").exists():
            subprocess.run(["rm", "-r", str(self.folder / "runs")], check=True)
        self.begun.append(asked or time.time())
        self.supervisor = subprocess.Popen(
            [PROGRAM, "launch", "-n", "1", *command, "--json"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self.read, args=(self.supervisor.stdout,), daemon=True).start()

    def read(self, lines):
        for line in lines:
            now = time.time()
            if line.startswith('{"event":"start"'):
                self.lives.append([])
            elif line.startswith('{"event":"train"'):
                self.lives[-1].append((now, json.loads(line)["step"]))
            elif line.startswith('{"event":"checkpoint"'):
                record = json.loads(line)
                self.stalls.append(record["stalled_seconds"])
                self.written.append(record["seconds"])
                self.saves.append(now)

    def rank(self):
        """The process of the rank, the child of the supervisor; None between two."""
        children = pathlib.Path(f"/proc/{self.supervisor.pid}/task/{self.supervisor.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def stop(self):
        """Saves and ends. Returns when that is done."""
        if self.supervisor is not None:
            self.supervisor.send_signal(signal.SIGTERM)
            self.supervisor.wait()
            self.supervisor = None

    def vanish(self):
        """All that the job runs on is taken away."""
        if self.supervisor is not None:
            pid = self.rank()
            self.supervisor.kill()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            self.supervisor.wait()
            self.supervisor = None


def read_trace(path, factor, seconds):
    points = [(float(r["seconds"]) / factor, int(r["instances"])) for r in csv.DictReader(open(path))]
    # The replay begins with the first instances.
    first = next(i for i, p in enumerate(points) if p[1] > 0)
    points = [(t - points[first][0], n) for t, n in points[first:]]
    kept = [p for p in points if p[0] < seconds]
    return kept + [(min(seconds, points[-1][0]), kept[-1][1])]


def replay(job, points):
    begin = time.time()
    job.start()
    for (_, before), (at, instances) in zip(points, points[1:-1]):
        time.sleep(max(0.0, begin + at - time.time()))
        if instances == 0:
            job.vanish()
        elif before == 0:
            job.start()
        elif instances < before:
            job.vanish()
            job.start()
        else:
            asked = time.time()
            job.stop()
            job.start(asked)
    time.sleep(max(0.0, begin + points[-1][0] - time.time()))
    end = time.time()
    job.stop()
    return begin, end


def weight(points, begin, a, b):
    """Seconds of one instance between two times."""
    total = 0.0
    for (t, n), (u, _) in zip(points, points[1:]):
        total += n * max(0.0, min(b, begin + u) - max(a, begin + t))
    return total


def account(job, points, begin, end):
    """The goodput, and what save, restart and interval were."""
    useful, steps = 0.0, []
    last = None  # the first step that a later process takes again
    for life in reversed(job.lives):
        for (t, _), (u, step) in zip(life, life[1:]):
            steps.append(u - t)
            if u <= end and (last is None or step < last):
                useful += weight(points, begin, t, u)
        last = life[0][1] if life and last is None else min(last, life[0][1]) if life else last
    step = statistics.median(steps)
    firsts = [life[0][0] - step for life in job.lives if life]
    restarts = [min(f - b for b in job.begun if b < f) for f in firsts]
    stall = statistics.mean(job.stalls)
    # Saving is a part of the time between two steps.
    saves = [(t, stall) for t in job.saves if t <= end]
    useful -= sum(weight(points, begin, t - s, t) for t, s in saves)
    mean_step = statistics.mean(steps)
    return {
        "goodput": useful / weight(points, begin, begin, end),
        "save": stall,
        "written": statistics.mean(job.written),
        "restart": statistics.mean(restarts),
        "every": job.every * mean_step - stall,
        "processes": len(job.lives),
        "step": mean_step,
    }


def simulate(folder, points, measured, every):
    (folder / "trace.csv").write_text("seconds,instances\n" + "".join(f"{t},{n}\n" for t, n in points))
    (folder / "prices.csv").write_text("device,price_per_hour\none,1\n")
    most = max(n for _, n in points)
    command = [PROGRAM, "plan", "cost", "prices.csv", "--device", "one", "--devices", str(most), "--time", "1h", "--json",
               "--trace", "trace.csv", "--save", f"{measured['save']}s", "--written", f"{measured['written']}s",
               "--restart", f"{measured['restart']}s"]
    if every:
        command += ["--every", f"{measured['every']}s"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--factor", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    points = read_trace(options.trace, options.factor, options.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.yaml").write_text(CONFIG)
        (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 4000)
        job = Job(folder, options.every)
        try:
            begin, end = replay(job, points)
        finally:
            job.vanish()
        measured = account(job, points, begin, end)
        simulated = simulate(folder, points, measured, True)
        best = simulate(folder, points, measured, False)
    record = {**measured, "simulated": simulated["spot"]["goodput"], "best": best["spot"]["goodput"],
              "best_every": best["spot"]["every_seconds"], "trace": simulated["trace"]}
    if options.json:
        print(json.dumps(record))
    else:
        print(f"measured {100 * record['goodput']:.1f} %, simulated {100 * record['simulated']:.1f} % (save {record['save']:.3f} s, "
              f"on disk after {record['written']:.3f} s, "
              f"restart {record['restart']:.2f} s, every {record['every']:.2f} s); best {100 * record['best']:.1f} % with "
              f"{record['best_every']:.2f} s; {record['processes']} processes")
    return 0 if abs(record["goodput"] - record["simulated"]) <= 0.03 else 1


if __name__ == "__main__":
    sys.exit(main())
