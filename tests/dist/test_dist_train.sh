#!/bin/sh
# A run under mpirun: 2 and 3 ranks end as one, bit for bit, also one that goes on with another number of ranks;
# rank 0 alone prints; what ranks cannot do is one line.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

# compare RUN STEP: weights, optimizer and state are those of one rank.
compare() {
    for name in one "$1"; do
        run 0 "$banyan" checkpoint digest "runs/$name/checkpoints/step-$2"
        mv out "$name.digest"
    done
    same one.digest "$1.digest"
    same "runs/one/checkpoints/step-$2/state.json" "runs/$1/checkpoints/step-$2/state.json"
}

tiny gpt2 >c.yaml
set -- train c.yaml --set train.steps=24 --set checkpoint.every=12 --set train.eval_every=12 \
    --set train.batch=10 --set train.micro_batch=2 --set model.dropout=0.1 --set train.threads=1

say "one rank without mpirun"
run 0 "$banyan" "$@" --set name=one
for n in 2 3; do
    say "$n ranks: the same checkpoints and losses"
    run 0 mpi_run "$n" "$banyan" "$@" --set name="ranks$n"
    [ "$(grep -c '^done' out)" = 1 ] || fail "more than one rank prints"
    compare "ranks$n" 00000012
    compare "ranks$n" 00000024
    without_time runs/one/events.jsonl >one.events
    without_time "runs/ranks$n/events.jsonl" >n.events
    same one.events n.events
done

say "ranks agree on the steps that fit into a time"
run 0 mpi_run 2 "$banyan" train c.yaml --minutes 0.002 --set name=timed --set optimizer.warmup=0.1 --set train.threads=1 \
    --set train.micro_batch=2
steps=$(sed -n 's/^  steps: //p' runs/timed/config.yaml)
holds out "step $steps/$steps "

say "4 ranks, 2 of which divide the state, and 2 that go on"
run 0 mpi_run 4 "$banyan" "$@" --set name=shard --set parallel.shard=2
compare shard 00000012
compare shard 00000024
rm -rf runs/shard/checkpoints/step-00000024
run 0 mpi_run 2 "$banyan" train --resume runs/shard
compare shard 00000024

say "4 ranks, 2 of which divide gradients, and 3 that go on and divide state alone"
run 0 mpi_run 4 "$banyan" "$@" --set name=zero2 --set parallel.shard=2 --set parallel.zero=2
compare zero2 00000012
compare zero2 00000024
rm -rf runs/zero2/checkpoints/step-00000024
run 0 mpi_run 3 "$banyan" train --resume runs/zero2 --set parallel.shard=3 --set parallel.zero=1
compare zero2 00000024

say "3 ranks divide parameters, 4 in two groups go on, and 2 that divide nothing"
run 0 mpi_run 3 "$banyan" "$@" --set name=zero3 --set parallel.shard=3 --set parallel.zero=3
compare zero3 00000012
compare zero3 00000024
without_time runs/zero3/events.jsonl >n.events
same one.events n.events
rm -rf runs/zero3/checkpoints/step-00000024
run 0 mpi_run 4 "$banyan" train --resume runs/zero3 --set parallel.shard=2
compare zero3 00000024
rm -rf runs/zero3/checkpoints/step-00000024
run 0 mpi_run 2 "$banyan" train --resume runs/zero3 --set parallel.shard=1
compare zero3 00000024

say "an optimizer of whole tensors: 4 ranks divide parameters, 3 go on that divide gradients"
mv runs/one runs/adamw
run 0 "$banyan" "$@" --set name=one --set optimizer.kind=lamb
run 0 mpi_run 4 "$banyan" "$@" --set name=lamb --set optimizer.kind=lamb --set parallel.shard=2 --set parallel.zero=3
compare lamb 00000012
compare lamb 00000024
rm -rf runs/lamb/checkpoints/step-00000024
run 0 mpi_run 3 "$banyan" train --resume runs/lamb --set parallel.shard=3 --set parallel.zero=2
compare lamb 00000024
rm -rf runs/one
mv runs/adamw runs/one

say "3 ranks go on where 2 were stopped"
run 0 mpi_run 2 "$banyan" "$@" --set name=half
rm -rf runs/half/checkpoints/step-00000024
run 0 mpi_run 3 "$banyan" train --resume runs/half
compare half 00000024

say "2 ranks that divide sequences: the same bits with 2 replicas, and when one replica goes on as 2"
run 0 mpi_run 2 "$banyan" "$@" --set name=one --set parallel.sequence=2 --set run.dir=sequences
run 0 mpi_run 4 "$banyan" "$@" --set name=two --set parallel.sequence=2 --set run.dir=sequences
for run in one two; do
    run 0 "$banyan" checkpoint digest "sequences/$run/checkpoints/step-00000024"
    mv out "sequences.$run"
done
same sequences.one sequences.two
rm -rf sequences/one/checkpoints/step-00000024
run 0 mpi_run 4 "$banyan" train --resume sequences/one
run 0 "$banyan" checkpoint digest "sequences/one/checkpoints/step-00000024"
mv out sequences.resumed
same sequences.resumed sequences.two

# newest RUN: the digest of its last checkpoint.
newest() {
    run 0 "$banyan" checkpoint digest "$1/checkpoints/step-00000024"
    tail -n 1 out
}

say "compressed gradients, local steps and late exchanges: written by two ranks, what codes have lost too, and gone on with"
for sync in "1 0" "4 0" "4 3"; do
    every=${sync% *}
    late=${sync#* }
    name=sync$every-$late
    run 0 mpi_run 2 "$banyan" "$@" --set name="$name" --set sync.every="$every" --set sync.staleness="$late" \
        --set sync.compress=int8 --set parallel.writers=2
    newest "runs/$name" >sync.whole
    rm -rf "runs/$name/checkpoints/step-00000024"
    run 0 mpi_run 2 "$banyan" train --resume "runs/$name"
    newest "runs/$name" >sync.resumed
    same sync.whole sync.resumed
    rm -rf "runs/$name/checkpoints/step-00000024"
    run 0 mpi_run 3 "$banyan" train --resume "runs/$name"
done

say "replicas that two ranks divide, with steps of their own: as whole ones, written and gone on with"
run 0 mpi_run 2 "$banyan" "$@" --set name=whole --set sync.every=4
newest runs/whole >sync.whole
run 0 mpi_run 4 "$banyan" "$@" --set name=divided --set sync.every=4 --set parallel.shard=2 --set parallel.zero=3
newest runs/divided >sync.divided
same sync.whole sync.divided
rm -rf runs/divided/checkpoints/step-00000024
run 0 mpi_run 4 "$banyan" train --resume runs/divided --set parallel.zero=2
newest runs/divided >sync.resumed
same sync.whole sync.resumed

say "a signal to one rank stops and saves all, also where ranks hear of each other only when they exchange"
for late in 0 3; do
    : >out # what is waited for below is of this run
    mpi_run 2 "$banyan" "$@" --json --set name="stopped$late" --set train.steps=100000 --set checkpoint.every=0 \
        --set train.eval_every=0 --set optimizer.schedule=constant --set sync.staleness="$late" \
        --set sync.every=$((late + 1)) >out 2>err &
    background=$!
    wait_for '"event":"train","step":20,' out
    for process in /proc/[0-9]*; do
        if [ "$process/exe" -ef "$banyan" ] && tr '\0' '\n' <"$process/environ" 2>/dev/null |
            grep -q '^OMPI_COMM_WORLD_RANK=1$' && [ "$(readlink "$process/cwd")" = "$work" ]; then
            kill -TERM "${process#/proc/}"
        fi
    done
    wait "$background"
    background=
    [ "$(grep -c 'everything is saved' err)" = 1 ] || { cat err; fail "not said once"; }
    exists "runs/stopped$late"/checkpoints/step-*
done

say "errors are one line"
run 2 mpi_run 6 "$banyan" "$@" --set name=many
holds err "fewer than the 6 ranks"
[ "$(grep -c 'fewer than' err)" = 1 ] || fail "more than one rank prints"
run 2 mpi_run 2 "$banyan" "$@" --set parallel.data=3
holds err "data 3 make 3 ranks, and the job has 2"
echo "passed"
