#!/bin/sh
# Held-out losses of a run, of what each method of pruning makes of it (2:4), and of that after fine-tuning that keeps
# the zeros.
#
#   bench/prune.sh RUN TEXT DIR [BANYAN]     RUN: of a language model; TEXT: what it was trained on; DIR: for results
#
# STEPS (300) and LR (3e-4) of the fine-tuning; METHODS ("magnitude wanda sparsegpt"); SETTINGS (more --set arguments).
set -eu
run=$1
text=$2
dir=$3
banyan=${4:-$(dirname "$0")/../build/release/banyan}
mkdir -p "$dir"
loss() { "$banyan" eval "$@" --json | sed -n 's/.*"valid_loss": *\([^,}]*\).*/\1/p'; }

dense=$(loss "$run")
echo "dense  $dense"
printf 'name: tuned\n' >"$dir/tuned.yaml"
for method in ${METHODS:-magnitude wanda sparsegpt}; do
    [ -d "$dir/$method" ] || "$banyan" compress "$run" --method "$method" --set pattern=2:4 --out "$dir/$method" >&2
    # shellcheck disable=SC2086
    "$banyan" train "$dir/tuned.yaml" --quiet --set "name=$method-tuned" --set "run.dir=$dir/runs" \
        --set "model.from=$dir/$method" --set "data.text=[$text]" --set "data.tokenizer=$dir/$method" \
        --set "data.cache=$dir/cache" --set optimizer.keep_zeros=true --set "optimizer.lr=${LR:-3e-4}" \
        --set optimizer.warmup=20 --set "train.steps=${STEPS:-300}" --set checkpoint.every=0 ${SETTINGS:-} >&2
    tuned=$(loss "$dir/runs/$method-tuned")
    awk -v m="$method" -v d="$dense" -v t="$tuned" \
        'BEGIN { printf "%s 2:4, fine-tuned  %.4f  %+.2f %%\n", m, t, 100 * (t - d) / d }'
done
