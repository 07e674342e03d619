#!/bin/sh
# Flags that are out of range, output that cannot be written, numbers that JSON lacks, exit codes, and reads
# of directories in which nothing can be written.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set name=a --set train.steps=10

# refused TEXT ARGUMENTS...: exit code 2 and what the message says.
refused() {
    text=$1
    shift
    say "refused: $*"
    run 2 "$banyan" "$@"
    holds err "$text"
}
refused "--batches '-7' is not a whole number of at least 1" eval runs/a --batches -7
refused "--batches '0' is not a whole number of at least 1" eval runs/a --batches 0
for rate in nan -3 0 inf 1e999 x; do
    refused "--rate '$rate' is not a number above 0" bench serve http://127.0.0.1:1 --model a --requests 1 --rate $rate
done
refused "--threshold 'nan' is not a number above 0" drift report runs/a --data text.txt --threshold nan
refused "--alpha '1.5' is not a number above 0 and at most 1" drift report runs/a --data text.txt --alpha 1.5
refused "--steps '10001' is not a whole number from 1 to 10000" profile c.yaml --steps 10001
refused "--top-p 'nan' is not a number that is finite" generate runs/a --top-p nan
refused "--threads '1e3' is not a whole number from 0 to 4096" generate runs/a --threads 1e3
refused "--context '-1' is not a whole number of at least 1" chat runs/a --context -1
refused "--tokens needs --logits-out" eval runs/a --tokens c.yaml
refused "--batches cannot be used with --logits-out" eval runs/a --logits-out l.safetensors --batches 1
refused "--precision 'f16' is not a precision: must be f32, bf16, fp16" generate runs/a --precision f16
refused "--precision 'i32' is not a precision: must be f32, bf16, fp16" bench generate c.yaml --precision i32
refused "--seed '-1' is not a whole number from 0 to 18446744073709551615" generate runs/a --seed -1
refused "--seed '18446744073709551616' is not" generate runs/a --seed 18446744073709551616
refused "micro_batch 16777216 x context 16777216 is more than" info c.yaml --set model.vocab=60 \
    --set model.context=16777216 --set train.batch=16777216
for command in train info profile "bench train" "bench kernels" "bench generate"; do
    # shellcheck disable=SC2086
    refused "config file nowhere.yaml does not exist" $command nowhere.yaml
done

say "serve --check: what its flags, keys and models say"
mkdir payload empty
cat >serve.yaml <<END
worker: {model: runs/a, context: 64}
payload: {directory: payload/new/deep}
feedback: {directory: payload}
END
run 0 "$banyan" serve --config serve.yaml --check
[ -z "$(ls payload)" ] || fail "the check left files: $(ls payload)"
run 0 "$banyan" serve --check
run 0 "$banyan" serve b=runs/a runs/a --check --threads 2 --workers 0:4 --target-p95 200ms
checked() {
    text=$1
    shift
    refused "$text" serve --check "$@"
}
checked "runs/nope: there is no such run" runs/nope
checked "runs/nope: there is no such run" --config serve.yaml --set worker.model=runs/nope
checked "runs/nope: there is no such run" runs/a b=runs/nope
checked "context 999999: the model has only 64 learned positions" runs/a --context 999999
checked "context 65: the model has only 64 learned positions" --config serve.yaml --set worker.context=65
checked "--broker: broker.address http://x: must be redis://HOST[:PORT]" runs/a --broker http://x
checked "its port is not a number" runs/a --set broker.address=redis://h:x
checked "--traces: tracing.endpoint is foo: it must be a URL" runs/a --traces foo
checked "payload.directory /proc/nope: cannot create anything in /proc" --set payload.directory=/proc/nope
checked "feedback.directory text.txt/a: cannot create anything in text.txt: Not a directory" \
    --config serve.yaml --set feedback.directory=text.txt/a
checked '--keys: gateway.keys: no value' runs/a --keys ''
for flag in queue sessions context drift-window threads calm wait max-rate deadline; do
    checked "--$flag: " runs/a --$flag -1
    holds err "\"-1\" is not a "
done
checked '--calm: scaling.calm: "nan" is not a time such as 500ms, 30s, 10m or 1h, or a number of seconds above 0' runs/a --calm nan
checked "scaling.total is 3, but all models together start with 4 workers" runs/a b=runs/a --workers 2:4 --set scaling.total=3
checked "--batch '-1' is not a whole number from 1 to 4096" runs/a --batch -1
checked "--delay 'nan' is not a time above 0s to 60s" runs/a --delay nan
checked '--target-p95: scaling.target_p95: "inf" is not a time such as 500ms'  runs/a --target-p95 inf
run 1 "$banyan" serve runs/a+empty --check
holds err "empty"

say "a run that has no loss of held-out data"
run 0 "$banyan" train c.yaml --quiet --set name=none --set train.steps=1 --set optimizer.warmup=1 --set data.valid_fraction=0
run 0 "$banyan" runs ls --name none
[ "$(sed -n 2p out | cut -f 5)" = - ] || fail "$(cat out)"
run 0 "$banyan" runs ls --name none --json
holds out '"best_loss":null}'

say "the plan of a directory in Hugging Face form"
run 0 "$banyan" info runs/a --json
parameters=$(field parameters <out)
run 0 "$banyan" info runs/a/checkpoints/step-00000010 --json --set train.batch=2
[ "$(field parameters <out)" = "$parameters" ] || fail "$(cat out)"
run 0 "$banyan" info runs/a/checkpoints/step-00000010 --set train.batch=2
holds out "batch         2 sequences of 64 tokens"
refused "leave model.width out" info runs/a/checkpoints/step-00000010 --set model.width=32

say "a run that is complete says so when it is resumed, and how to go on"
run 0 "$banyan" train --resume runs/a
holds err "runs/a: step 10 of train.steps 10 is done"
holds err "--set train.steps=20"
run 0 "$banyan" train --resume runs/a --quiet --set train.steps=11
! grep -q "nothing left" err || fail "$(cat err)"
run 0 "$banyan" train --resume runs/a --quiet --set train.steps=11

say "a seed of 64 bits"
run 0 "$banyan" generate runs/a --seed 18446744073709551615 --tokens 2 --json
holds out '"seed":18446744073709551615'

say "a config.json that is a list"
mkdir list
echo '[1, 2]' >list/config.json
cp runs/a/checkpoints/step-00000010/model.safetensors list
run 1 "$banyan" eval list --data text.txt
holds err "list/config.json: it holds JSON, but not an object"

say "standard output that is full: a message and a failure"
cat >commands <<END
--help
--version
train --help
bench
info c.yaml
info c.yaml --graph
eval runs/a
runs
generate runs/a --tokens 5
pack text.txt --output packed --tokenizer char
train c.yaml --set name=full --set train.steps=10
train c.yaml --json --set name=full --set train.steps=10
bench train c.yaml --steps 1
bench generate c.yaml --tokens 2
bench kernels c.yaml --steps 1
bench pack text.txt --tokenizer packed/tokenizer.json
profile c.yaml --steps 1
END
while read -r line; do
    # shellcheck disable=SC2086
    "$banyan" $line >/dev/full 2>err </dev/null && fail "exit code 0 of: $line"
    holds err "standard output"
done <commands
exists runs/full/checkpoints/step-00000010/manifest.json

say "standard streams that are closed: nothing else gets their numbers"
"$banyan" train c.yaml --set name=closed --set train.steps=10 >&- 2>err || fail "exit code $?"
if grep -v '^{"event":' runs/closed/events.jsonl; then fail "the events hold something else"; fi
"$banyan" train c.yaml --set name=dark --set train.steps=10 >&- <&- 2>&- || fail "exit code $?"
run 0 "$banyan" eval runs/dark --json

say "a reader that goes away does not end a run"
"$banyan" train c.yaml --json --set name=head --set train.steps=60 --set optimizer.warmup=5 2>err | head -n 1 >out
exists runs/head/checkpoints/step-00000060/manifest.json
holds err "Broken pipe"
holds runs/head/run.json '"done"'

say "a loss that is not finite is null in JSON and never the best"
# A character that only the held-out part has, whose row of the embedding (the last: ~ is the last of the
# vocabulary) is NaN: the training loss stays finite.
awk '{ print $0 (NR > 2750 ? " ~" : "") }' text.txt >tilde.txt
tiny llama | sed 's/text.txt/tilde.txt/' >tilde.yaml
run 0 "$banyan" train tilde.yaml --quiet --set name=seed --set train.steps=10
cp -r runs/seed/checkpoints/step-00000010 nan
end=$(LC_ALL=C sed -n '1s/.*"model.embed_tokens.weight":{[^}]*"data_offsets":\[[0-9]*,\([0-9]*\)\].*/\1/p' nan/model.safetensors)
head_bytes=$(od -A n -t u8 -N 8 nan/model.safetensors)
printf '\377\377\377\377' |
    dd of=nan/model.safetensors bs=1 seek=$((8 + head_bytes + end - 4)) conv=notrunc 2>/dev/null
run 7 "$banyan" train tilde.yaml --json --set name=wild --set model.from=nan
holds out '"event":"eval","step":10,"valid_loss":null'
holds err "is not finite after step 10: no checkpoint is written"
for checkpoint in runs/wild/checkpoints/*; do
    [ ! -e "$checkpoint" ] || fail "$checkpoint holds weights that are not finite"
done
run 7 "$banyan" train tilde.yaml --set name=wild --set model.from=nan
holds out "valid_loss is not finite"
run 0 "$banyan" eval nan --data tilde.txt --json
holds out '"valid_loss":null,"perplexity":null'
holds err "not finite"

say "the memory of a log line is what the run takes now, not what measuring the machine took"
for name in measuring known; do
    XDG_CACHE_HOME=$work/cache-home run 0 "$banyan" train c.yaml --set name=$name --set train.steps=10
    sed -n 's|^step 10/10 .*% of peak  *\([.0-9]*\) MiB.*|\1|p' out >$name
done
near "$(cat measuring)" "$(cat known)" 30

say "an interrupt: 130 where there is nothing to save"
"$banyan" bench train c.yaml --steps 10000 --json >out 2>err &
background=$!
wait_for_handlers
kill -TERM "$background"
wait "$background"
[ $? -eq 130 ] || fail "exit code $? of bench train"
background=
[ ! -s out ] || fail "figures of a measurement that was interrupted"
