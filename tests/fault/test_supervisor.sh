#!/bin/sh
# The supervisor with one rank, where every failure can be made at will: what it does is the same for many
# (tests/dist). The end of a run that was killed, stopped or hung on its way is that of a run left alone.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
quick="--set train.steps=200 --set checkpoint.every=20"

# start ARGUMENT...: `banyan launch` in the background; its first rank is in $rank once it trains.
start() {
    rm -rf runs/job
    "$banyan" launch "$@" >out 2>err &
    background=$!
    until grep -q -s '"step":12,' runs/job/events.jsonl; do
        kill -0 "$background" 2>/dev/null || { cat err >&2; fail "the job ended early"; }
        sleep 0.02
    done
    rank=$(pgrep -P "$background" -x banyan) || fail "there is no rank"
}
ends_with() {
    wait "$background"
    code=$?
    background=
    [ "$code" -eq "$1" ] || { cat err >&2; fail "the supervisor ended with $code, not $1"; }
}
same_end() {
    for file in model.safetensors optimizer.safetensors state.json; do
        same "runs/whole/checkpoints/step-00000200/$file" "runs/job/checkpoints/step-00000200/$file"
    done
}

# shellcheck disable=SC2086
run 0 "$banyan" launch train c.yaml --quiet $quick --set name=whole
holds err "banyan launch: OMP_NUM_THREADS="

say "a rank that is killed: the run goes on from its newest checkpoint"
# shellcheck disable=SC2086
start train c.yaml --quiet $quick --set name=job
kill -9 "$rank" || fail "the run was over"
ends_with 0
holds err "crash: rank 0 (host "
holds err "signal 9"
holds err "--resume runs/job --from-start"
same_end

say "a rank that is stopped: found by its silence"
# shellcheck disable=SC2086
start --silence 10s train c.yaml --quiet $quick --set name=job
kill -STOP "$rank" || fail "the run was over"
ends_with 0
holds err "hang: rank 0 (host "
grep -q "was not heard of for [0-9]* s: step " err || { cat err >&2; fail "the silence is not named"; }
if kill -0 "$rank" 2>/dev/null; then fail "the rank that hung is still there"; fi
same_end

for victim in background rank; do
    say "SIGTERM at the $victim: saved, code 3, and a later launch goes on bit for bit"
    # shellcheck disable=SC2086
    start train c.yaml --quiet $quick --set name=job
    eval "kill -TERM \$$victim" || fail "the run was over"
    ends_with 3
    holds err "all ranks save and exit"
    run 0 "$banyan" launch train --resume runs/job --quiet
    same_end
done

say "a supervisor that is killed leaves no rank behind, and the rank saves"
# shellcheck disable=SC2086
start --grace 20s train c.yaml --quiet $quick --set train.steps=100000 --set name=job
kill -9 "$background"
wait "$background" 2>/dev/null
background=
# A rank that outlived it would never end.
while kill -0 "$rank" 2>/dev/null; do sleep 0.02; done
holds runs/job/run.json '"status": "stopped"'

say "wrong configuration or data is found before a rank starts, or ends the job; it is never tried again"
run 2 "$banyan" launch train c.yaml --set train.steps=0
if grep -q OMP_NUM_THREADS err; then fail "a rank was started"; fi
run 2 "$banyan" launch train c.yaml --set model.heads=7 --set name=job
[ "$(grep -c OMP_NUM_THREADS err)" -le 1 ] || fail "a configuration error was tried again"
echo '{"a": 1}' >bad.jsonl
run 1 "$banyan" launch train c.yaml --set data.text=bad.jsonl --set name=bad
holds err 'bad.jsonl:1: the field "text" is missing'
holds err "not tried again"
[ "$(grep -c OMP_NUM_THREADS err)" -eq 1 ] || fail "malformed data was tried again"
run 2 "$banyan" launch train no-such.yaml
run 2 "$banyan" launch --silence 0 train c.yaml
run 2 "$banyan" launch --hostfile no-such-file train c.yaml
run 2 "$banyan" launch

say "a job that fails again and again: an older checkpoint after three times, and an end"
run 0 cp -r runs/whole runs/looping
run 0 rm -r runs/looping/checkpoints/step-00000200 runs/looping/checkpoints/best.json
# Files may not grow over 64 KiB, so no checkpoint can be written.
run 1 sh -c 'ulimit -f 128 && exec "$0" launch --max-restarts 3 train --resume runs/looping --quiet' "$banyan"
holds err "restart 3 of 3"
holds err "gave up after 3 restarts"
holds err "renamed to runs/looping/checkpoints/step-00000190.aside"
exists runs/looping/checkpoints/step-00000190.aside/manifest.json

say "what is malformed for a resumed run may be its checkpoint: tried again"
for shard in cache/*/train/tokens-*.npy; do truncate -s 1000 "$shard"; done
run 1 "$banyan" launch --max-restarts 1 train --resume runs/looping --quiet
holds err "restart 1 of 1"
