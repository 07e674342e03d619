#!/bin/sh
# Tensors, sequences and experts divided by ranks under mpirun: the losses are those of one rank but for rounding, and
# what one layout saves another goes on with.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

set -- --quiet --set train.steps=40 --set train.eval_every=20 --set train.threads=1 --set optimizer.lr=1e-3 \
    --set checkpoint.every=20
tiny gpt2 >gpt2.yaml
tiny mixtral | sed "s/context: 64/context: 64, experts: 4, experts_per_token: 2/; s/dropout: 0.1/dropout: 0.0/" >mixtral.yaml

# values RUN: the losses of steps 1 to 40 and of evaluations.
values() { sed -n '/"event":"train"/s/.*"loss":\([^,}]*\).*/\1/p; /"event":"eval"/s/.*"valid_loss":\([^,}]*\).*/\1/p' "$1/events.jsonl"; }
# near_losses ONE OTHER: each differs by at most 1e-4.
near_losses() {
    values "runs/$1" >one.losses
    values "runs/$2" >other.losses
    [ "$(wc -l <one.losses)" -ge 42 ] || fail "too few losses"
    [ "$(wc -l <one.losses)" -eq "$(wc -l <other.losses)" ] || fail "another number of losses"
    ! grep -n -v -E -e '^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$' one.losses other.losses || fail "a loss is no number"
    worst=$(paste one.losses other.losses | awk '{ d = $1 - $2; d = d < 0 ? -d : d; w = d > w ? d : w } END { print w + 0 }')
    echo "       furthest apart: $worst"
    near "$worst" 0 1e-4
}
# layout KIND NAME RANKS KEY=VALUE...: trains, compares with one rank.
layout() {
    kind=$1
    name=$2
    ranks=$3
    shift 3
    say "$kind: $ranks ranks, $*"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    run 0 mpi_run "$ranks" "$banyan" train "$kind.yaml" $common --set "name=$name" "$@"
    near_losses "$kind" "$name"
}
common=$*
# shellcheck disable=SC2086
for kind in gpt2 mixtral; do
    run 0 "$banyan" train $kind.yaml $common --set name=$kind
done
layout gpt2 tensor 2 tensor=2 sequence_parallel=true writers=2
layout gpt2 sequence 2 sequence=2
layout mixtral expert 2 expert=2 writers=2
exists runs/expert/checkpoints/step-00000040/model-00002-of-00002.safetensors

# bits NAME KIND RANKS KEY=VALUE...: trains a few steps; the weights must be $weights, where that is not empty.
bits() {
    name=$1
    kind=$2
    ranks=$3
    shift 3
    say "$kind: the bits of $ranks ranks, $*"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    # shellcheck disable=SC2086
    run 0 mpi_run "$ranks" "$banyan" train "$kind.yaml" $common --set "name=$name" --set train.micro_batch=2 \
        --set train.steps=8 --set train.eval_every=8 --set checkpoint.every=4 --set optimizer.clip=0.5 "$@"
    run 0 "$banyan" checkpoint digest "runs/$name"
    digest=$(sed -n 's/\tall$//p' out)
    [ "${weights:-$digest}" = "$digest" ] || fail "other weights"
    weights=$digest
}
weights=
bits t gpt2 2 tensor=2
bits ts gpt2 4 tensor=2 shard=2 writers=4
bits tp gpt2 4 tensor=2 pipeline=2 schedule=zero_bubble
say "what ranks of tensor and shard have saved, ranks of tensor and pipeline go on with"
rm -r runs/ts/checkpoints/step-00000008
run 0 mpi_run 4 "$banyan" train --resume runs/ts --quiet --set parallel.shard=1 --set parallel.pipeline=2
run 0 "$banyan" checkpoint digest runs/ts
[ "$weights" = "$(sed -n 's/\tall$//p' out)" ] || fail "other weights"
weights=
bits et mixtral 4 expert=2 tensor=2
bits etp mixtral 8 expert=2 tensor=2 pipeline=2

# goes_on RUN KIND RANKS KEY=VALUE...: the second half of a run, with another layout.
goes_on() {
    name=$1
    kind=$2
    ranks=$3
    shift 3
    say "$name goes on with $ranks ranks, $*"
    rm -r "runs/$name/checkpoints/step-00000040"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    run 0 mpi_run "$ranks" "$banyan" train --resume "runs/$name" --quiet "$@"
    near_losses "$kind" "$name"
}
goes_on tensor gpt2 2 tensor=1 sequence_parallel=false sequence=2
goes_on sequence gpt2 3 sequence=1 tensor=1 data=1 pipeline=3
goes_on expert mixtral 1 expert=1
echo "passed"
