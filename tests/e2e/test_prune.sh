#!/bin/sh
# Pruned models: each method makes 2:4 of every layer, the result does not depend on threads, and training with
# optimizer.keep_zeros keeps the zeros, on two ranks with the same bits.
. "$(dirname "$0")/../support/shell.sh"
zeros() { python3 "$root/tests/e2e/count_zeros.py" "$@" || fail "the zeros of $*"; }

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=dense
for method in magnitude wanda sparsegpt; do
    say "$method"
    run 0 "$banyan" compress runs/dense --method $method --set pattern=2:4 --out $method --samples 8
    zeros $method/model.safetensors
done
for method in wanda sparsegpt; do
    OMP_NUM_THREADS=1 run 0 "$banyan" compress runs/dense --method $method --set pattern=2:4 --out again-$method --samples 8
    same $method/model.safetensors again-$method/model.safetensors
done
run 2 "$banyan" compress runs/dense --method wanda --set pattern=4:8 --out no
holds err "pattern is '4:8', none of: any 2:4"

say "training keeps the zeros"
set -- train c.yaml --set model.from=sparsegpt --set optimizer.keep_zeros=true --set train.micro_batch=4
run 0 "$banyan" "$@" --set name=tuned
tuned=runs/tuned/checkpoints/step-00000020/model.safetensors
zeros "$tuned" sparsegpt/model.safetensors
run 0 "$banyan" train c.yaml --set model.from=sparsegpt --set name=woken
python3 "$root/tests/e2e/count_zeros.py" runs/woken/checkpoints/step-00000020/model.safetensors 2>/dev/null &&
    fail "without keep_zeros the zeros stay, so nothing was tested"
. "$root/tests/support/mpi.sh"
run 0 mpi_run 2 "$banyan" "$@" --set name=ranks --set parallel.shard=2 --set parallel.zero=3
for name in tuned ranks; do
    run 0 "$banyan" checkpoint digest runs/$name
    tail -n 1 out >$name.digest
done
same tuned.digest ranks.digest
