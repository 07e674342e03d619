#!/bin/sh
# Pipelines under mpirun: whatever the schedule, a run ends in the weights of one rank, and goes on from the
# checkpoints of any other layout.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

tiny gpt2 >c.yaml

# digest RUN: of its newest checkpoint.
digest() {
    run 0 "$banyan" checkpoint digest "$1"
    sed -n 's/\tall$//p' out
}
# losses RUN: what its events say of every step and evaluation, without times.
losses() { grep -e '"event":"train"' -e '"event":"eval"' "$1/events.jsonl" | sed 's/,"tokens_per_s.*//; s/,"time.*//'; }

run 0 "$banyan" train c.yaml --quiet --set train.micro_batch=1
weights=$(digest runs/tiny)
losses runs/tiny >losses.wanted

# layout NAME RANKS KEY=VALUE...: trains on so many ranks.
layout() {
    name=$1
    ranks=$2
    shift 2
    say "$name: $ranks ranks, $*"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    run 0 mpi_run "$ranks" "$banyan" train c.yaml --quiet --set train.micro_batch=1 --set "name=$name" "$@"
    [ "$(digest "runs/$name")" = "$weights" ] || fail "other weights than one rank"
    losses "runs/$name" >losses
    same losses.wanted losses
}
layout gpipe 2 pipeline=2 schedule=gpipe
layout interleaved 2 pipeline=2 schedule=interleaved chunks=2
layout both 4 pipeline=2 schedule=zero_bubble writers=2
exists runs/both/checkpoints/step-00000020/model-00002-of-00002.safetensors

say "what 2 x 2 ranks saved goes on with 3 stages, and with one rank"
rm -r runs/both/checkpoints/step-00000020 runs/gpipe/checkpoints/step-00000020
run 0 mpi_run 3 "$banyan" train --resume runs/both --quiet --set parallel.pipeline=3
[ "$(digest runs/both)" = "$weights" ] || fail "other weights than one rank"
run 0 "$banyan" train --resume runs/gpipe --quiet --set parallel.pipeline=1
[ "$(digest runs/gpipe)" = "$weights" ] || fail "other weights than one rank"
layout zero2 4 pipeline=2 shard=2 zero=2
layout zero3 4 pipeline=2 shard=2 zero=3 schedule=zero_bubble overlap=false
say "ranks that divide stages go on from each other's checkpoints"
rm -r runs/zero2/checkpoints/step-00000020 runs/zero3/checkpoints/step-00000020
run 0 mpi_run 4 "$banyan" train --resume runs/zero2 --quiet --set parallel.zero=3 --set parallel.schedule=gpipe
[ "$(digest runs/zero2)" = "$weights" ] || fail "other weights than one rank"
run 0 mpi_run 3 "$banyan" train --resume runs/zero3 --quiet --set parallel.pipeline=1 --set parallel.shard=3 \
    --set parallel.zero=2 --set parallel.schedule=1f1b
[ "$(digest runs/zero3)" = "$weights" ] || fail "other weights than one rank"

say "stages that the model does not have are refused in one line"
run 2 mpi_run 5 "$banyan" train c.yaml --quiet --set parallel.pipeline=5
holds err "a pipeline of 5 stages: the model has 2 blocks"
[ "$(grep -c 'a pipeline of 5' err)" = 1 ] || fail "more than one rank prints"
echo "passed"
