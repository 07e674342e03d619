#!/bin/sh
# What a checkpoint costs the steps of GPT-2 124M with AdamW:
#
#   bench/checkpoint.sh [DIR [KEY=VALUE...]]
#
# DIR is where checkpoints (1.5 GB each) are written; default: build. Trains ten steps of 1 x 1024 tokens twice, with
# a checkpoint after every fifth: one run waits for each, the other goes on. Prints one JSON line: seconds of a
# checkpoint that is waited for, seconds that the steps of the other run stood still for one, and their ratio.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
banyan=${BANYAN:-$root/build/release/banyan}
dir=${1:-$root/build}
[ $# -eq 0 ] || shift
work=$(mktemp -d "$dir/checkpoint-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

awk 'BEGIN { srand(1); for (i = 0; i < 40000; i++) printf "%c%s", 97 + int(26 * rand()), i % 60 == 59 ? "\n" : "" }' >text.txt
cat >c.yaml <<END
model: {kind: gpt2, layers: 12, heads: 12, width: 768, context: 1024, vocab: 50257}
data: {text: [text.txt], tokenizer: char}
train: {steps: 10, batch: 1, eval_every: 0, log_every: 1}
precision: {compute: bf16}
checkpoint: {every: 5, keep: 1}
END
for setting in "$@"; do set -- "$@" --set "$setting" && shift; done
for async in false true; do
    "$banyan" train c.yaml --json --set "checkpoint.async=$async" --set "name=$async" "$@" >"$async.out"
done
# The mean over all checkpoints of KEY in FILE.
mean() { sed -n "/\"checkpoint\"/s/.*\"$2\":\([^,}]*\).*/\1/p" "$1" | awk '{ sum += $1 } END { print sum / NR }'; }
waited=$(mean false.out seconds)
stalled=$(mean true.out stalled_seconds)
behind=$(mean true.out seconds)
awk -v w="$waited" -v s="$stalled" -v b="$behind" \
    'BEGIN { printf "{\"waited_seconds\":%.4g,\"stalled_seconds\":%.4g,\"background_seconds\":%.4g,\"ratio\":%.4g}\n", w, s, b, s / w }'
