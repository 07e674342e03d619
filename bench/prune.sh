#!/bin/sh
# Held-out losses of a run, of the run after as many steps more, and of what each method of pruning makes of it after
# them: 2:4, which fine-tuning keeps, half of the channels (width) or one layer less (depth).
#
#   bench/prune.sh RUN TEXT DIR [BANYAN]     RUN: of a language model; TEXT: what it was trained on; DIR: for results
#
# STEPS (300) and LR (3e-4) of the fine-tuning; METHODS ("magnitude wanda sparsegpt width depth"); SETTINGS (more --set arguments).
set -eu
run=$1
text=$2
dir=$3
banyan=${4:-$(dirname "$0")/../build/release/banyan}
mkdir -p "$dir"
# Losses of windows of other lengths do not compare.
context=$(sed -n 's/^  context: //p' "$run/config.yaml")
loss() { "$banyan" eval "$@" --json | sed -n 's/.*"valid_loss": *\([^,}]*\).*/\1/p'; }

# tuned NAME FROM SETTINGS...: the loss after fine-tuning, against that of the run.
tuned() {
    name=$1
    from=$2
    shift 2
    # shellcheck disable=SC2086
    "$banyan" train "$dir/tuned.yaml" --quiet --set "name=$name-tuned" --set "run.dir=$dir/runs" \
        --set "model.from=$from" --set "model.context=$context" --set "data.text=[$text]" --set "data.tokenizer=$from" \
        --set "data.cache=$dir/cache" --set "optimizer.lr=${LR:-3e-4}" --set optimizer.warmup=20 \
        --set "train.steps=${STEPS:-300}" --set checkpoint.every=0 "$@" ${SETTINGS:-} >&2
    awk -v m="$name" -v d="$dense" -v t="$(loss "$dir/runs/$name-tuned")" \
        'BEGIN { printf "%s, fine-tuned  %.4f  %+.2f %%\n", m, t, 100 * (t - d) / d }'
}

dense=$(loss "$run")
echo "dense  $dense"
printf 'name: tuned\n' >"$dir/tuned.yaml"
newest=
for checkpoint in "$run"/checkpoints/step-*; do newest=$checkpoint; done
tuned dense "$newest"
for method in ${METHODS:-magnitude wanda sparsegpt width depth}; do
    case $method in
    width) set -- --set mlp=0.5 ;;
    depth) set -- --set layers=1 ;;
    *) set -- --set pattern=2:4 ;;
    esac
    [ -d "$dir/$method" ] || "$banyan" compress "$run" --method "$method" "$@" --out "$dir/$method" >&2
    case $method in
    width | depth) tuned "$method" "$dir/$method" ;;
    *) tuned "$method" "$dir/$method" --set optimizer.keep_zeros=true ;;
    esac
done
