#!/bin/sh
# The optimizer's state on disk: the checkpoints are those of a run that has it in memory, and each goes on
# from the other's; a disk without room is found before the first step, one that fails later ends the run,
# and no checkpoint is harmed.
. "$(dirname "$0")/../support/shell.sh"

# A constant rate: the first ten steps are the same whether the run is to end there or at twenty.
tiny gpt2 | sed 's/warmup: 5/warmup: 5, schedule: constant/' >c.yaml
disk="--set offload.optimizer=disk --set offload.buffer_mib=0.1"

# compare NAME STEP: the files of a run are those of the run in memory.
compare() {
    for file in model.safetensors optimizer.safetensors config.json; do
        same "runs/memory/checkpoints/step-000000$2/$file" "runs/$1/checkpoints/step-000000$2/$file"
    done
}

for compute in f32 bf16; do
    say "$compute: in memory, on disk, and one after the other"
    rm -rf runs
    set -- --quiet --set "precision.compute=$compute" --set checkpoint.every=10
    run 0 "$banyan" train c.yaml "$@" --set name=memory --set train.steps=20
    # shellcheck disable=SC2086
    run 0 "$banyan" train c.yaml "$@" $disk --set name=disk --set train.steps=20
    compare disk 10
    compare disk 20
    run 0 "$banyan" train c.yaml "$@" --set name=first --set train.steps=10
    # shellcheck disable=SC2086
    run 0 "$banyan" train --resume runs/first $disk --set train.steps=20
    compare first 20
    # shellcheck disable=SC2086
    run 0 "$banyan" train c.yaml "$@" $disk --set name=second --set train.steps=10
    run 0 "$banyan" train --resume runs/second --set offload.optimizer=none --set train.steps=20
    compare second 20
done
[ -z "$(find runs -name '.scratch*')" ] || fail "a scratch file was left"

say "a limit of file sizes that the scratch file does not fit"
run 0 "$banyan" train c.yaml --quiet --set precision.compute=bf16 --set name=limited --set train.steps=10
(
    ulimit -f 8
    # shellcheck disable=SC2086
    "$banyan" train --resume runs/limited $disk --set train.steps=20 >out 2>err
)
code=$?
[ "$code" -eq 1 ] || fail "exit code $code: $(cat err)"
holds err "cannot reserve"
holds err "name a directory on a disk with room in offload.path"

say "a write that fails while it trains"
: >out # what is waited for below is of this run
# shellcheck disable=SC2086
"$banyan" train --resume runs/limited $disk --json --set train.steps=100000 --set checkpoint.every=0 \
    --set train.eval_every=0 >out 2>err &
background=$!
wait_for '"step":20,' out
prlimit --pid "$background" --fsize=16384
wait "$background" && fail "it ended as if nothing had been"
background=
holds err "cannot write the scratch file"
if ls -A runs/limited/checkpoints | grep -vE '^(step-00000010|best.json|.lock)$'; then fail "a checkpoint of a torn step"; fi

say "it goes on from the checkpoint before"
# shellcheck disable=SC2086
run 0 "$banyan" train --resume runs/limited $disk --set train.steps=20 --set checkpoint.every=10
compare limited 20
