#!/bin/sh
# Faults of the data that a run trains on.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml

say "a shard that is cut short while the run trains: an error that names it, and what was learned is saved"
rm -f lines
mkfifo lines
"$banyan" train c.yaml --json --set name=cut --set train.steps=1000000 --set train.eval_every=0 \
    --set checkpoint.every=0 >lines 2>err &
background=$!
while read -r line; do
    case $line in
    *'"event":"train","step":5,'*) for shard in cache/*/train/tokens-*.npy; do truncate -s 1000 "$shard"; done ;;
    esac
done <lines
wait "$background"
code=$?
background=
[ "$code" -eq 1 ] || fail "exit code $code: $(cat err)"
holds err "tokens-00000.npy has no byte "
holds err "it became shorter while it was in use"
holds runs/cut/run.json '"failed"'
[ "$(ls runs/cut/checkpoints | grep -c '^step-')" -eq 1 ] || fail "what was learned was not saved"
