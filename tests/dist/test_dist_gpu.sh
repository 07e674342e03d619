#!/bin/sh
# Ranks on GPUs, on stand-ins for NVIDIA's libraries: 2 and 4 ranks end as one, bit for bit, whatever they divide, and a
# run goes on with another number of ranks.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

standins=$(dirname "$banyan")/tests/standins/all
if [ ! -e "$standins/libcuda.so.1" ]; then
    echo "skipped: there are no stand-ins for NVIDIA's libraries (they need clang++)"
    exit 77
fi
export BANYAN_CUDA_PATH=$standins BANYAN_STANDIN_DEVICES=2

# compare RUN: weights, optimizer and state are those of one rank.
compare() {
    for name in one "$1"; do
        run 0 "$banyan" checkpoint digest "runs/$name/checkpoints/step-00000006"
        mv out "$name.digest"
    done
    same one.digest "$1.digest"
}

tiny gpt2 >c.yaml
set -- train c.yaml --set device=cuda --set model.layers=1 --set model.width=16 --set model.context=8 \
    --set train.batch=4 --set train.micro_batch=1 --set train.steps=6 --set checkpoint.every=3 --set train.eval_every=6 \
    --set train.eval_batches=1 --set train.threads=1

say "one rank"
run 0 "$banyan" "$@" --set name=one

say "2 ranks, and one that goes on"
run 0 mpi_run 2 "$banyan" "$@" --set name=two
holds out "device     cuda: stand-in 0, sm_90"
compare two
rm -rf runs/two/checkpoints/step-00000006
run 0 "$banyan" train --resume runs/two
compare two

say "4 ranks, 2 of which divide parameters, and 2 that go on and divide state alone"
run 0 mpi_run 4 "$banyan" "$@" --set name=zero --set parallel.shard=2 --set parallel.zero=3
compare zero
rm -rf runs/zero/checkpoints/step-00000006
run 0 mpi_run 2 "$banyan" train --resume runs/zero --set parallel.shard=2 --set parallel.zero=1
compare zero
