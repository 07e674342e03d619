#!/bin/sh
# The quality of compressed models: trains a model of 14 million parameters on texts and prints held-out losses and
# speeds of each method that quantises (compress.sh), and losses of 2:4 pruning after fine-tuning, compared with the
# dense model fine-tuned for as many steps (prune.sh).
#
#   bench/quality.sh DIR FILE...     DIR: for the run and the results
#
# STEPS (of bench/books.yaml), PRUNE ("wanda sparsegpt"), TUNE (300) steps of fine-tuning, BANYAN.
set -eu
here=$(dirname "$0")
dir=$1
shift
banyan=${BANYAN:-$here/../build/release/banyan}
mkdir -p "$dir"
[ -s "$dir/text.txt" ] || cat "$@" >"$dir/text.txt"
if [ ! -d "$dir/runs/books" ]; then
    "$banyan" train "$here/books.yaml" --quiet --set "data.text=[$dir/text.txt]" --set "data.cache=$dir/cache" \
        --set "run.dir=$dir/runs" ${STEPS:+--set train.steps="$STEPS"}
fi
GROUP=${GROUP:-64} "$here/compress.sh" "$dir/runs/books" "$dir/codes" "$banyan"
METHODS=${PRUNE:-wanda sparsegpt} STEPS=${TUNE:-300} \
    SETTINGS="--set data.valid_fraction=0.02 --set precision.compute=bf16 --set train.batch=16" \
    "$here/prune.sh" "$dir/runs/books" "$dir/text.txt" "$dir/pruned" "$banyan"
