#!/bin/sh
# n + n steps with a kill or an interruption between equal 2 n steps that were not disturbed, bit for bit:
# weights, optimizer and events.
. "$(dirname "$0")/../support/shell.sh"

# compare RUN: the end of a run equals that of runs/whole. Some optimizers keep no state.
compare() {
    for file in model.safetensors optimizer.safetensors state.json; do
        [ -e "runs/whole/checkpoints/step-00000060/$file" ] || [ -e "$1/checkpoints/step-00000060/$file" ] || continue
        same "runs/whole/checkpoints/step-00000060/$file" "$1/checkpoints/step-00000060/$file"
    done
    without_time runs/whole/events.jsonl >whole.events
    without_time "$1/events.jsonl" >other.events
    same whole.events other.events
}

for setting in "gpt2 f32" "llama bf16" "mixtral f32"; do
    # shellcheck disable=SC2086
    set -- $setting
    rm -rf runs
    tiny "$1" >c.yaml
    set -- train c.yaml --json --set precision.compute="$2" --set train.steps=60 --set checkpoint.every=12 \
        --set train.eval_every=20 --set train.micro_batch=4
    say "$setting: a run of 60 steps without disturbance"
    run 0 "$banyan" "$@" --set name=whole

    say "$setting: kill -9 after step 30, resume"
    train_until 30 KILL "$banyan" "$@" --set name=killed
    [ "$code" -eq 137 ] || fail "exit code $code"
    run 0 "$banyan" train --resume runs/killed
    holds out resumed
    compare runs/killed

    if [ "$setting" = "gpt2 f32" ]; then
        say "$setting: checkpoints as often as measured, killed after step 30 and resumed: no bit changes"
        train_until 30 KILL "$banyan" "$@" --set name=measured --set checkpoint.every=auto \
            --set checkpoint.mean_time_between_failures=1s
        run 0 "$banyan" train --resume runs/measured
        holds runs/measured/events.jsonl interval_steps
        for file in model.safetensors optimizer.safetensors; do
            same "runs/whole/checkpoints/step-00000060/$file" "runs/measured/checkpoints/step-00000060/$file"
        done
    fi

    say "$setting: kill -9 before the first checkpoint, resume"
    train_until 5 KILL "$banyan" "$@" --set name=early --set train.eval_every=0
    # Runs of earlier versions name every key of every kind.
    grep -q rope_theta runs/early/config.yaml || sed -i '/^model:/a\  rope_theta: 10000' runs/early/config.yaml
    run 0 "$banyan" train --resume runs/early --from-start --set train.eval_every=20
    compare runs/early

    say "$setting: SIGINT saves, exits with 3, resumes"
    train_until 17 INT "$banyan" "$@" --set name=interrupted
    [ "$code" -eq 3 ] || fail "exit code $code"
    holds err "banyan train --resume runs/interrupted"
    holds runs/interrupted/run.json '"stopped"'
    ls runs/interrupted/checkpoints | grep -q 'step-000000[1-6][0-9]' || fail "nothing was saved"
    run 0 "$banyan" train --resume runs/interrupted
    compare runs/interrupted

    say "$setting: SIGTERM, likewise"
    train_until 25 TERM "$banyan" "$@" --set name=terminated
    [ "$code" -eq 3 ] || fail "exit code $code"
    run 0 "$banyan" train --resume runs/terminated
    compare runs/terminated
done

groups='groups=[{"match":"w?e.*","frozen":true},{"match":"*.bias","lr_scale":2}]'
for setting in "adafactor beta1=0.9" "sgd momentum=0" "adamw $groups" "adamw8bit eps=1e-8" "muon momentum=0.9"; do
    # shellcheck disable=SC2086
    set -- $setting
    rm -rf runs
    tiny gpt2 >c.yaml
    say "$setting: kill -9 after step 30, resume"
    set -- train c.yaml --json --set optimizer.kind="$1" --set optimizer."$2" --set precision.compute=bf16 \
        --set train.steps=60 --set checkpoint.every=12 --set train.eval_every=20
    run 0 "$banyan" "$@" --set name=whole
    train_until 30 KILL "$banyan" "$@" --set name=killed
    run 0 "$banyan" train --resume runs/killed
    holds out resumed
    compare runs/killed
done

say "a resumed run refuses another optimizer, though its states have the same names and shapes"
rm -rf runs
tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set train.steps=10 --set optimizer.warmup=0 --set name=killed
run 2 "$banyan" train --resume runs/killed --set model.from=runs/early
holds err "--resume goes on with the run's own weights, so model.from has no effect"
run 2 "$banyan" train --resume runs/killed --set optimizer.kind=lamb
holds err "trained with optimizer.kind adamw, not lamb"

say "a resumed run refuses another seed and other data"
run 2 "$banyan" train --resume runs/killed --set seed=7
holds err "seed"
make_text other.txt 2000
run 2 "$banyan" train --resume runs/killed --set data.text=other.txt
holds err "was trained on other data"
