#!/bin/sh
# A student of half the size, trained alone and from a teacher: held-out losses over some seeds, and the share of the gap
# to its teacher that distillation closes.
#
#   bench/distill.sh DIR [BANYAN]     DIR: for runs, and the text in DIR/input.txt (tiny Shakespeare)
#
# STEPS (1500; the teacher takes three times as many), SEEDS ("1 2 3"), TEMPERATURE (2), WEIGHT (0.7), SETTINGS (more
# --set arguments for all runs).
set -eu
dir=$1
banyan=${2:-$(dirname "$0")/../build/release/banyan}
steps=${STEPS:-1500}
mkdir -p "$dir"

cat >"$dir/distill.yaml" <<END
name: distill
model: {kind: gpt2, layers: 6, heads: 6, width: 192, context: 128}
data: {text: [$dir/input.txt], tokenizer: char, valid_fraction: 0.1, cache: $dir/cache}
train: {steps: $steps, batch: 24, eval_every: 250, eval_batches: 40}
optimizer: {lr: 2e-3, warmup: 100, clip: 1.0}
checkpoint: {every: 0}
run: {dir: $dir/runs}
END

# train NAME SETTINGS...: the loss on all that is held out.
train() {
    name=$1
    shift
    # shellcheck disable=SC2086
    [ -d "$dir/runs/$name" ] || "$banyan" train "$dir/distill.yaml" --quiet --set "name=$name" "$@" ${SETTINGS:-} >&2
    "$banyan" eval "$dir/runs/$name" --json | sed -n 's/.*"valid_loss": *\([^,}]*\).*/\1/p'
}

teacher=$(train teacher --set "train.steps=$((3 * steps))")
echo "teacher  $teacher"
for seed in ${SEEDS:-1 2 3}; do
    set -- --set "seed=$seed" --set model.layers=3
    alone=$(train "alone-$seed" "$@")
    distilled=$(train "distilled-$seed" "$@" --set "distill.teacher=$dir/runs/teacher" \
        --set "distill.temperature=${TEMPERATURE:-2}" --set "distill.weight=${WEIGHT:-0.7}")
    awk -v s="$seed" -v t="$teacher" -v a="$alone" -v d="$distilled" 'BEGIN {
        printf "seed %s  alone %.4f  distilled %.4f  of the gap to the teacher %.0f %%\n", s, a, d, 100 * (a - d) / (a - t) }'
done
