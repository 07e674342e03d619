#!/bin/sh
# Times llm.c's CPU trainer in a checkout that you have built as its README says (make train_gpt2):
#
#   bench/llmc.sh CHECKOUT [BATCH [CONTEXT [STEPS]]]
#
# Its batch and context are constants in its source (4 x 64 as published): BATCH and CONTEXT say what yours was
# built with. Weights and tokens are random files made here, in the formats it reads; the checkout is only
# run, never written to. Prints one JSON line; the first step is left out.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: bench/llmc.sh CHECKOUT [BATCH [CONTEXT [STEPS]]]" >&2
    exit 2
fi
program=$(cd "$1" && pwd)/train_gpt2
if [ ! -x "$program" ]; then
    echo "llmc.sh: $program is missing; build it there: make train_gpt2" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

exec 3>&1
cd "$work"
python3 - "$program" "${2:-4}" "${3:-64}" "${4:-5}" >&3 <<'PYTHON'
import array
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys

program, batch, context, steps = sys.argv[1], *map(int, sys.argv[2:])
rng = random.Random(1)

# gpt2_124M.bin: 256 i32 of header, then f32 weights, a tensor kind after the other over all layers.
length, vocab, layers, heads, width, padded = 1024, 50257, 12, 12, 768, 50304
noise = array.array("f", (rng.gauss(0, 0.02) for _ in range(1 << 16)))
ones, zeros = array.array("f", [1.0]), array.array("f", [0.0])
tensors = ((padded * width, noise), (length * width, noise), (layers * width, ones), (layers * width, zeros),
           (layers * 3 * width * width, noise), (layers * 3 * width, zeros), (layers * width * width, noise),
           (layers * width, zeros), (layers * width, ones), (layers * width, zeros),
           (layers * 4 * width * width, noise), (layers * 4 * width, zeros), (layers * 4 * width * width, noise),
           (layers * width, zeros), (width, ones), (width, zeros))
with open("gpt2_124M.bin", "wb") as f:
    header = [20240326, 3, length, vocab, layers, heads, width, padded]
    f.write(array.array("i", header + [0] * (256 - len(header))).tobytes())
    for count, values in tensors:
        block = values * -(-count // len(values))
        f.write(block[:count].tobytes())

os.makedirs("dev/data/tinyshakespeare")
for split in "train", "val":
    count = 8 * batch * context + 1
    with open(f"dev/data/tinyshakespeare/tiny_shakespeare_{split}.bin", "wb") as f:
        f.write(array.array("i", [20240520, 1, count] + [0] * 253).tobytes())
        f.write(array.array("H", (rng.randrange(vocab) for _ in range(count))).tobytes())

# Line-buffered, so that the run can be ended as soon as enough steps are seen.
run = subprocess.Popen(["stdbuf", "-oL", program], stdout=subprocess.PIPE, text=True, errors="replace")
times = []
for line in run.stdout:
    step = re.match(r"step (\d+): train loss \S+ \(took (\S+) ms\)", line)
    if step:
        times.append(float(step.group(2)))
        if len(times) > steps:
            break
run.kill()
run.wait()
if len(times) < 2:
    sys.exit("llmc.sh: the trainer printed no steps")
median = statistics.median(times[1:])
print(json.dumps({"tokens_per_s": round(1e3 * batch * context / median, 1), "step_ms": round(median, 1),
                  "peak_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
                  "batch": batch, "context": context, "dtype": "f32"}))
PYTHON
