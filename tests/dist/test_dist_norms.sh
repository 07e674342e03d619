#!/bin/sh
# Norms of single tensors, and statistics of activations, are right, whichever rank measures what, and recording them changes no bit.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

tiny gpt2 >c.yaml
set -- train c.yaml --set train.steps=4 --set optimizer.warmup=1 --set train.eval_every=0 --set train.micro_batch=2 \
    --set checkpoint.every=1 --set checkpoint.keep=5
say "one rank: against its checkpoints"
run 0 "$banyan" "$@" --set name=plain
set -- "$@" --set track.norms_every=2 --set track.histograms_every=4 --set track.activations_every=2
run 0 "$banyan" "$@" --set name=one
same runs/plain/checkpoints/step-00000004/model.safetensors runs/one/checkpoints/step-00000004/model.safetensors
run 0 python3 "$root/tests/dist/check_norms.py" runs/one

say "two ranks: data, ZeRO 1 and 3, a pipeline, axes of tensors and sequences"
run 0 mpi_run 2 "$banyan" "$@" --set name=data
run 0 mpi_run 2 "$banyan" "$@" --set parallel.shard=2 --set name=zero1
run 0 mpi_run 2 "$banyan" "$@" --set parallel.shard=2 --set parallel.zero=3 --set name=zero3
run 0 mpi_run 2 "$banyan" "$@" --set parallel.pipeline=2 --set name=pipeline
run 0 mpi_run 2 "$banyan" "$@" --set parallel.tensor=2 --set parallel.sequence_parallel=true --set name=tensor
run 0 mpi_run 2 "$banyan" "$@" --set parallel.sequence=2 --set name=tensor-sequence
run 0 python3 "$root/tests/dist/check_norms.py" runs/one runs/data runs/zero1 runs/zero3 runs/pipeline runs/tensor \
    runs/tensor-sequence
cat out

say "an optimizer that needs whole tensors, with ZeRO 2"
run 0 "$banyan" "$@" --set optimizer.kind=lamb --set name=lamb
run 0 mpi_run 2 "$banyan" "$@" --set optimizer.kind=lamb --set parallel.shard=2 --set parallel.zero=2 --set name=lamb2
run 0 python3 "$root/tests/dist/check_norms.py" runs/lamb runs/lamb2

say "weights on disk are refused"
run 2 "$banyan" "$@" --set offload.optimizer=disk --set name=disk
holds err "offload.optimizer: none"
[ ! -e runs/disk ] || fail "a run was made"
