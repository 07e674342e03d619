#!/bin/sh
# Twenty kill -9 at random instants of a run that saves every five steps while it goes on. After each, every checkpoint that
# counts as one is byte for byte that of a run that was left alone, and so is the end.
#   SEED=N repeats the instants of an earlier run; KILLS=50 kills as often.
. "$(dirname "$0")/../support/shell.sh"

wanted_kills=${KILLS:-20}
seed=${SEED:-$$}
say "instants from SEED=$seed"
tiny gpt2 >c.yaml
set -- train c.yaml --quiet --set train.steps=300 --set checkpoint.every=5 --set checkpoint.keep=1000 \
    --set train.eval_every=20
# It waits for each checkpoint.
run 0 "$banyan" "$@" --set name=whole --set checkpoint.async=false

# Checkpoints that a reader takes: the newest valid one must be good, and all that have their manifest.
check_checkpoints() {
    for directory in runs/killed/checkpoints/step-????????; do
        [ -e "$directory/manifest.json" ] || continue
        for file in model.safetensors optimizer.safetensors state.json config.json tokenizer.json; do
            same "runs/whole/checkpoints/${directory##*/}/$file" "$directory/$file"
        done
    done
}

"$banyan" "$@" --set name=killed >out 2>err &
background=$!
kills=0
draws=0
while [ "$kills" -lt "$wanted_kills" ]; do
    # Another instant after a run that was done before: it would be done before the same one again.
    draws=$((draws + 1))
    delay=$(awk -v seed="$seed$draws" 'BEGIN { srand(seed); printf "%.3f", 0.02 + 0.6 * rand() }')
    sleep "$delay"
    kill -9 "$background" 2>/dev/null
    wait "$background"
    code=$?
    case $code in
    137)
        kills=$((kills + 1))
        check_checkpoints
        ;;
    0)
        # It was done before: from the middle again, for as many kills as are left.
        rm -rf runs/killed/checkpoints/step-00000[1-3]* runs/killed/checkpoints/best.json
        ;;
    *)
        cat err >&2
        fail "a run ended by itself, with code $code"
        ;;
    esac
    if [ -e runs/killed/config.yaml ]; then
        "$banyan" train --resume runs/killed --from-start --quiet >out 2>err &
    else
        rm -rf runs/killed
        "$banyan" "$@" --set name=killed >out 2>err &
    fi
    background=$!
done
wait "$background" || { cat err >&2; fail "the last resume failed"; }
background=
say "$kills kills; checkpoints, weights and events equal those of the run that was left alone"
check_checkpoints
exists runs/killed/checkpoints/step-00000300/manifest.json
without_time runs/whole/events.jsonl >whole.events
without_time runs/killed/events.jsonl >killed.events
same whole.events killed.events
run 0 "$banyan" eval runs/killed --json
say "nothing of a save that was cut short is left"
if ls -A runs/killed/checkpoints | grep -E 'tmp|trash'; then fail "leftovers"; fi
