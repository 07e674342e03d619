#!/bin/sh
# What a run records is read back by the programs that it is recorded for, and equals events.jsonl.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" || {
    echo "skipped: scripts/tracking-env could not install tensorboard, wandb and mlflow"
    exit 77
}
python=$root/build/venv-tracking/bin/python

say "a sink that there is not is refused before anything is made"
tiny gpt2 >c.yaml
run 2 "$banyan" train c.yaml --set track.sinks=tensorbord
holds err "there is no sink 'tensorbord'; nearest: tensorboard"
[ ! -e runs ] || fail "a run was made"

say "a run that is killed, goes on, and steps over what it had recorded"
set -- train c.yaml --json --set "track.sinks=[tensorboard, wandb]" --set train.steps=40 --set name=killed
train_until 17 KILL "$banyan" "$@"
[ "$code" -eq 137 ] || fail "exit code $code"
sleep 1 # TensorBoard reads files in the order of the seconds in their names
run 0 "$banyan" train --resume runs/killed
run 0 "$banyan" train c.yaml --set train.steps=40 --set name=whole
say "... its weights are those of a run without sinks"
same runs/whole/checkpoints/step-00000040/model.safetensors runs/killed/checkpoints/step-00000040/model.safetensors
without_time runs/whole/events.jsonl >whole.events
without_time runs/killed/events.jsonl >killed.events
same whole.events killed.events

for reader in tensorboard wandb; do
    say "... read by $reader"
    run 0 "$python" "$root/tests/e2e/read_tracking.py" "$reader" runs/killed
    cat out
done
