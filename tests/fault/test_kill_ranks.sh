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
tiny gpt2 | sed 's/layers: 2, heads: 4, width: 64/layers: 1, heads: 2, width: 32/' >c.yaml
set -- c.yaml --quiet --set train.threads=1 --set train.micro_batch=2 --set parallel.shard=2 --set parallel.writers=2 \
    --set train.steps=100 --set train.eval_every=0 --set checkpoint.every=5 --set checkpoint.keep=1000
run 0 mpi_run 2 "$banyan" train "$@" --set name=whole --set checkpoint.async=false
for directory in runs/whole/checkpoints/step-????????; do
    run 0 "$banyan" checkpoint digest "$directory"
    cp out "digest-${directory##*/}"
done

# Starts in the background, from the newest checkpoint where there is one.
start() {
    if [ -e runs/killed/config.yaml ]; then
        set -- --resume runs/killed --from-start --quiet
    else
        rm -rf runs/killed
        set -- "$@" --set name=killed
    fi
    timeout -k 10 1700 mpirun --bind-to none -n 2 "$banyan" train "$@" >out 2>err &
    background=$!
}
check_checkpoints() {
    for directory in runs/killed/checkpoints/step-????????; do
        [ -e "$directory/manifest.json" ] || continue
        run 0 "$banyan" checkpoint digest "$directory"
        same "digest-${directory##*/}" out
    done
}
count() { ls -d runs/killed/checkpoints/step-???????? 2>/dev/null | wc -l; }
# The process of a rank, 1 or 2, once both are there: mpirun, a child of what runs in the background, started them.
rank() {
    # shellcheck disable=SC2046
    set -- "$1" $(ps -o pid= --ppid "$(ps -o pid= --ppid "$background" | tr -d ' ')" 2>/dev/null)
    [ $# -eq 3 ] && eval "echo \${$(($1 + 1))}"
}
draws=0
# draw BOUND: a random number below it, to the millisecond, another one at each call.
draw() {
    draws=$((draws + 1))
    drawn=$(awk -v seed="$seed" -v n="$draws" -v bound="$1" \
        'BEGIN { srand(seed * 1000 + n); rand(); printf "%.3f", bound * rand() }')
}

start "$@"
kills=0
while [ "$kills" -lt "$wanted_kills" ]; do
    # The instant follows what the run has done, so a slow machine has as many kills as a fast one.
    draw 3
    wanted=$(($(count) + ${drawn%.*}))
    while kill -0 "$background" 2>/dev/null && { [ "$(count)" -lt "$wanted" ] || ! rank 1 >/dev/null; }; do
        sleep 0.01
    done
    draw 0.1
    sleep "$drawn"
    # The second one is killed every other time.
    victim=$(rank $((1 + kills % 2)))
    if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
        wait "$background"
        code=$?
        [ "$code" -ne 0 ] || fail "mpirun says that all went well"
        [ "$code" -ne 124 ] || fail "the other rank went on"
        kills=$((kills + 1))
        say "kill $kills: of process $victim, mpirun ends with $code"
        check_checkpoints
    else
        wait "$background" || { cat err >&2; fail "a resumed run failed"; }
        # It was done before: from the start again, for as many kills as are left.
        say "done before kill $((kills + 1))"
        rm -rf runs/killed
    fi
    start "$@"
done
wait "$background" || { cat err >&2; fail "the last resume failed"; }
background=
say "$kills kills; checkpoints equal those of the run that was left alone"
check_checkpoints
exists runs/killed/checkpoints/step-00000100/manifest.json
say "nothing of a save that was cut short is left"
if ls -A runs/killed/checkpoints | grep -E 'tmp|trash'; then fail "leftovers"; fi
