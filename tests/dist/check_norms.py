"""Norms that a run has recorded are those of its checkpoints, and those of other runs.

usage: check_norms.py RUN OTHER...     RUN: of one rank, with a checkpoint after every step
"""

import array
import json
import math
import os
import struct
import sys


def norms(run):
    found = {}
    with open(os.path.join(run, "events.jsonl")) as lines:
        for line in lines:
            event = json.loads(line)
            kind, step = event.pop("event"), event.pop("step")
            event.pop("time")
            if kind.endswith("_norm") or kind.startswith("activation_"):
                found[kind, step] = event
            elif kind == "train":
                found["all", step] = {"norm": event["norm"]}
    return found


def tensors(run, step):
    with open(os.path.join(run, "checkpoints", "step-%08d" % step, "model.safetensors"), "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__", None)
    body = data[8 + length :]
    assert all(t["dtype"] == "F32" for t in head.values())
    return {k: array.array("f", body[slice(*t["data_offsets"])]) for k, t in head.items()}


def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def near(a, b, bound, what):
    if not abs(a - b) <= bound * max(abs(b), 1e-9):
        sys.exit("%s: %.9g, not %.9g" % (what, a, b))


def main(run, *others):
    recorded = norms(run)
    steps = sorted(step for kind, step in recorded if kind == "weight_norm")
    assert len(steps) >= 2, steps
    for step in steps:
        now, before = tensors(run, step), tensors(run, step - 1)
        assert set(recorded["weight_norm", step]) == set(now), recorded["weight_norm", step].keys() ^ now.keys()
        for name, values in now.items():
            near(recorded["weight_norm", step][name], norm(values), 1e-6, "weight " + name)
            apart = norm(a - b for a, b in zip(values, before[name]))
            near(recorded["update_norm", step][name], apart, 1e-5, "update " + name)
        whole = norm(recorded["gradient_norm", step].values())
        near(whole, recorded["all", step]["norm"], 1e-6, "gradient of step %d" % step)
    assert {"activation_rms", "activation_max"} <= {kind for kind, step in recorded}
    for other in others:
        theirs = norms(other)
        assert theirs.keys() == recorded.keys(), theirs.keys() ^ recorded.keys()
        for key, values in recorded.items():
            assert theirs[key].keys() == values.keys(), (other, key)
            for name, value in values.items():
                # A tensor axis adds up in another order.
                if key[0] == "activation_mean":  # near 0: its error is a share of what is averaged
                    value += recorded["activation_rms", key[1]][name]
                    theirs[key][name] += recorded["activation_rms", key[1]][name]
                near(theirs[key][name], value, 2e-4 if "tensor" in other else 1e-6, "%s %s %s" % (other, key, name))
    print("%d steps of %d tensors, %d other runs" % (len(steps), len(now), len(others)))


main(*sys.argv[1:])
