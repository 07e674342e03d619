#!/usr/bin/env python3
"""How near the checkpoint interval that `banyan plan cost` chooses for a trace of instances is to the best one.

    bench/spot_intervals.py TRACE.csv... [--points 300] [--json]

Each TRACE.csv has the columns seconds and instances. For several times of a save, a restart and a write in the
background, the program chooses the interval. This script replays the trace by events of its own with `points`
intervals, from a fifth of a save to the whole trace, and with that one; and with the one that the program chooses from
the first half of the trace, and with Young's, on the second half. Prints the goodputs in per cent, and by how many
points a choice is below the best. Exit code 1 if a choice for the whole trace is more than 1 point below, or its
goodput is not what the program says. BANYAN names the program; default: build/release/banyan."""
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
PROGRAM = os.environ.get("BANYAN", str(ROOT / "build/release/banyan"))
# Seconds of a save, of a restart, and until a save that was begun is on disk.
JOBS = [(2, 30, 0), (5, 60, 0), (10, 90, 40), (60, 120, 0)]


def replay(points, job, every):
    """The share of the seconds of all instances in which work was done that no loss undid."""
    save, restart, write = job
    every = max(every, write)
    done = fresh = behind = 0.0  # instance-seconds: on disk, since the last save, of the save that is being written
    phase, left, written_in, grows, now, held = "down", math.inf, math.inf, False, 0, 0.0
    for (begin, count), (end, _) in zip(points, points[1:]):
        if count < now:
            fresh = behind = 0.0
            written_in, grows = math.inf, False
            phase, left = ("restart", restart) if count else ("down", math.inf)
        elif count > now:
            if phase == "work":
                wait = written_in if behind else 0.0
                phase, left, grows = "save", wait + save + write, True
            elif phase == "save":
                left += 0.0 if grows else write
                grows = True
            else:
                phase, left = "restart", restart
        now, held, time = count, held + count * (end - begin), begin
        while time < end:
            writing = phase == "work" and behind > 0.0
            step = min(end - time, left, written_in if writing else math.inf)
            time, left = time + step, left - step
            fresh += step * now if phase == "work" else 0.0
            if writing:
                written_in -= step
                if written_in <= 0.0:
                    done, behind = done + behind, 0.0
                    continue
            if left > 0.0:
                continue
            if phase == "work":
                phase, left = "save", save + (written_in if behind else 0.0)
            elif phase == "save":
                done, behind, fresh = done + behind, fresh, 0.0
                if grows or not write:
                    done, behind = done + behind, 0.0
                written_in = write
                phase, left, grows = ("restart", restart, False) if grows else ("work", every, False)
            else:
                phase, left = "work", every
    return 100.0 * (done + fresh + behind) / held


def read_trace(path):
    with open(path, newline="") as file:
        points = [(float(r["seconds"]), int(r["instances"])) for r in csv.DictReader(file)]
    return points


def split(points):
    """Both halves of a trace; the second one begins with what is held then."""
    middle = 0.5 * (points[0][0] + points[-1][0])
    before = [p for p in points if p[0] < middle]
    return before + [(middle, before[-1][1])], [(middle, before[-1][1])] + [p for p in points if p[0] >= middle]


def choose(folder, points, job):
    (folder / "trace.csv").write_text("seconds,instances\n" + "".join(f"{t},{n}\n" for t, n in points))
    (folder / "prices.csv").write_text("device,price_per_hour\none,1\n")
    save, restart, write = job
    most = max(n for _, n in points)
    done = subprocess.run(
        [PROGRAM, "plan", "cost", "prices.csv", "--device", "one", "--devices", str(most), "--time", "1h", "--json", "--trace",
         "trace.csv", "--save", f"{save}s", "--restart", f"{restart}s", "--written", f"{write}s"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    spot = json.loads(done.stdout)["spot"]
    return spot["every_seconds"], 100.0 * spot["goodput"]


def young(points, save):
    losses = sum(b < a for (_, a), (_, b) in zip(points, points[1:-1]))
    seconds = sum(t - s for (s, n), (t, _) in zip(points, points[1:]) if n)
    return math.sqrt(2.0 * save * seconds / losses) if losses else points[-1][0] - points[0][0]


def grid(points, save, count):
    low, high = 0.2 * save, points[-1][0] - points[0][0]
    return [low * (high / low) ** (i / (count - 1)) for i in range(count)]


def judge(folder, points, job, count):
    every, told = choose(folder, points, job)
    goodputs = {e: replay(points, job, e) for e in grid(points, job[0], count)}
    best = max(goodputs, key=goodputs.get)
    chosen = replay(points, job, every)
    first, second = split(points)
    halves = {e: replay(second, job, e) for e in grid(second, job[0], count)}
    learned = replay(second, job, choose(folder, first, job)[0])
    return {"save": job[0], "restart": job[1], "written": job[2], "every": every, "goodput": chosen, "told": told,
            "best_every": best, "best": goodputs[best], "below": goodputs[best] - chosen,
            "half_below": max(halves.values()) - learned,
            "young_below": max(halves.values()) - replay(second, job, young(first, job[0]))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path, nargs="+")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wrong = False
    for trace in options.traces:
        points = read_trace(trace)
        for job in JOBS:
            with tempfile.TemporaryDirectory() as name:
                r = {"trace": trace.stem, **judge(pathlib.Path(name), points, job, options.points)}
            wrong = wrong or r["below"] > 1.0 or abs(r["told"] - r["goodput"]) > 0.01
            if options.json:
                print(json.dumps(r), flush=True)
                continue
            print(f"{r['trace']}: save {job[0]}, restart {job[1]}, written {job[2]} s: every {r['every']:.0f} s: {r['goodput']:.2f} "
                  f"(told {r['told']:.2f}), best {r['best']:.2f} with {r['best_every']:.0f} s: {r['below']:+.2f} points below; "
                  f"from the first half, on the second: {r['half_below']:.2f} below, Young's {r['young_below']:.2f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
