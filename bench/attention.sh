#!/bin/sh
# The cost of the kinds of attention: time and memory of a training step at two contexts, as a table of Markdown.
#
#   BANYAN=build/release/banyan bench/attention.sh [STEPS]
#
# A Llama of four layers of 256, eight heads, one sequence a step, in f32. The kinds take turns three times; of each, the
# fastest median counts, because other programs can only make a step slower.
set -eu

banyan=${BANYAN:-build/release/banyan}
steps=${1:-3}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat >"$directory/attention.yaml" <<'YAML'
model: {kind: llama, layers: 4, heads: 8, width: 256, vocab: 512}
data: {tokenizer: char}
train: {batch: 1, threads: 2}
precision: {compute: f32}
YAML

# run KIND CONTEXT: appends "KIND CONTEXT MS BYTES" to the file of figures.
run() {
    "$banyan" bench train "$directory/attention.yaml" --steps "$steps" --json --set "model.context=$2" \
        --set "attention.kind=$1" | sed 's/.*"step_ms":\([0-9.e+]*\).*"planned_bytes":\([0-9]*\).*/\1 \2/' |
        sed "s/^/$1 $2 /" >>"$directory/figures"
}
for turn in 1 2 3; do
    for context in 1024 4096; do
        for kind in full window local_global alibi linear none; do
            run $kind $context
        done
    done
done
awk '{ key = $1 " " $2; if (!(key in ms) || $3 < ms[key]) ms[key] = $3; bytes[key] = $4 }
    END {
        print "| kind | step at 1024 | step at 4096 | memory at 1024 | memory at 4096 |"
        print "|---|---|---|---|---|"
        n = split("full window local_global alibi linear none", kinds, " ")
        for (i = 1; i <= n; i++) {
            a = kinds[i] " 1024"; b = kinds[i] " 4096"
            printf "| `%s` | %.0f ms | %.0f ms | %.0f MiB | %.0f MiB |\n", kinds[i], ms[a], ms[b],
                bytes[a] / 1048576, bytes[b] / 1048576
        }
    }' "$directory/figures"
