#!/bin/sh
# kill -9 of one of two ranks that divide the optimizer's state, at random instants, while they save behind the steps'
# back. After each, whichever checkpoint counts as one holds what that of a run that was left alone does, and so does
# the end.
#   SEED=N repeats the instants of an earlier run; KILLS=50 kills as often.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"
ldd "$banyan" | grep -q libmpi || { echo "skipped: built without MPI"; exit 0; }

wanted_kills=${KILLS:-4}
seed=${SEED:-$$}
say "instants from SEED=$seed"
tiny gpt2 >c.yaml
set -- --quiet --set train.threads=1
run 0 mpi_run 2 "$banyan" train c.yaml "$@" --set train.micro_batch=2 --set parallel.shard=2 --set parallel.writers=2 \
    --set train.steps=200 --set checkpoint.every=10 --set checkpoint.keep=1000 --set name=whole \
    --set checkpoint.async=false
for directory in runs/whole/checkpoints/step-????????; do
    run 0 "$banyan" checkpoint digest "$directory"
    cp out "digest-${directory##*/}"
done

# Starts in the background: mpirun's process is in $background.
start() {
    mpirun --bind-to none -n 2 "$banyan" train "$@" >out 2>err &
    background=$!
}
check_checkpoints() {
    for directory in runs/killed/checkpoints/step-????????; do
        [ -e "$directory/manifest.json" ] || continue
        run 0 "$banyan" checkpoint digest "$directory"
        same "digest-${directory##*/}" out
    done
}

start c.yaml "$@" --set train.micro_batch=2 --set parallel.shard=2 --set parallel.writers=2 --set train.steps=200 \
    --set checkpoint.every=10 --set checkpoint.keep=1000 --set name=killed
kills=0
while [ "$kills" -lt "$wanted_kills" ]; do
    sleep "$(awk -v seed="$seed$kills" 'BEGIN { srand(seed); printf "%.3f", 0.3 + 1.5 * rand() }')"
    # The ranks are mpirun's children; the second one is killed every other time.
    rank=$(ps -o pid= --ppid "$background" | sed -n "$((1 + kills % 2))p")
    if [ -n "$rank" ] && kill -9 $rank 2>/dev/null; then
        wait "$background" && fail "mpirun says that all went well"
        kills=$((kills + 1))
        check_checkpoints
    else
        wait "$background" || { cat err >&2; fail "a resumed run failed"; }
        rm -rf runs/killed/checkpoints/step-000000[1-9]* runs/killed/checkpoints/step-000001* \
            runs/killed/checkpoints/step-00000200 runs/killed/checkpoints/best.json
    fi
    if [ -e runs/killed/config.yaml ]; then
        start --resume runs/killed --from-start --quiet
    else
        rm -rf runs/killed
        start c.yaml "$@" --set train.micro_batch=2 --set parallel.shard=2 --set parallel.writers=2 \
            --set train.steps=200 --set checkpoint.every=10 --set checkpoint.keep=1000 --set name=killed
    fi
done
wait "$background" || { cat err >&2; fail "the last resume failed"; }
background=
say "$kills kills; checkpoints equal those of the run that was left alone"
check_checkpoints
exists runs/killed/checkpoints/step-00000200/manifest.json
say "nothing of a save that was cut short is left"
if ls -A runs/killed/checkpoints | grep -E 'tmp|trash'; then fail "leftovers"; fi
