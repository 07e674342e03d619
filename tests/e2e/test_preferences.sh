#!/bin/sh
# Preferences: the chosen answers become more probable than the rejected ones; weights are the same with a cached and a live
# reference, on one and two ranks, and after a stop and a resume; adapters and rewards learn, too; what is refused.
. "$(dirname "$0")/../support/shell.sh"

awk 'BEGIN { for (i = 0; i < 600; i++) printf "User: add %d?\nAssistant: it is %d, \"{}[]<>_.\n", i % 7, i % 9 }' >text.txt
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"prompt\": \"add %d?\", \"chosen\": \"it is %d\", \"rejected\": \"%d is it?\"}\n",
    i % 7, i % 9, i % 5 }' >pairs.jsonl
cat >base.yaml <<'END'
name: base
model: {kind: llama, layers: 1, heads: 2, width: 32, context: 64}
data: {text: [text.txt], tokenizer: char, valid_fraction: 0, cache: cache}
train: {steps: 40, batch: 4, threads: 1}
optimizer: {lr: 3e-3, warmup: 5}
precision: {compute: f32}
END
cat >prefer.yaml <<'END'
name: prefer
task: {kind: preference}
chat: {template: plain}
model: {from: runs/base}
data: {text: [pairs.jsonl], valid_fraction: 0.2, cache: cache}
train: {steps: 16, batch: 8, micro_batch: 2, eval_every: 8, log_every: 4, threads: 1}
optimizer: {lr: 3e-4, warmup: 0}
precision: {compute: f32}
checkpoint: {every: 8}
END
run 0 "$banyan" train base.yaml --quiet

# digest RUN: of weights and the optimizer's state.
digest() {
    run 0 "$banyan" checkpoint digest "runs/$1"
    tail -n 1 out
}

say "the chosen answers win"
run 0 "$banyan" train prefer.yaml --json
last=$(grep '"event":"eval"' out | tail -n 1)
awk "BEGIN { exit !($(echo "$last" | field accuracy) == 1 && $(echo "$last" | field margin) > 0.1) }" ||
    fail "the last evaluation is $last"
awk "BEGIN { exit !($(grep '"event":"train"' out | head -n 1 | field loss) > $(grep '"event":"train"' out | tail -n 1 | field loss)) }" ||
    fail "the loss has not fallen"
cached=$(digest prefer)
count=$(find cache -name 'reference-*.safetensors' | wc -l)
[ "$count" -eq 1 ] || fail "there are $count files of references"
run 0 "$banyan" eval runs/prefer --data pairs.jsonl --json
holds out '"accuracy":1'

say "a live reference has the bits of a cached one"
run 0 "$banyan" train prefer.yaml --quiet --set name=live --set task.reference=live
[ "$(digest live)" = "$cached" ] || fail "a live reference leads to other weights"
run 0 "$banyan" train prefer.yaml --quiet --set name=again
[ "$(digest again)" = "$cached" ] || fail "a reference that is read leads to other weights"
run 0 "$banyan" train prefer.yaml --json --set name=bf16 --set train.steps=2 --set precision.compute=bf16
awk "BEGIN { x = $(grep '"event":"train"' out | head -n 1 | field loss); exit !(x > 0.69314 && x < 0.69316) }" ||
    fail "the first loss in bf16 is not log(2)"
run 0 "$banyan" train prefer.yaml --quiet --set name=bf16-live --set train.steps=2 --set precision.compute=bf16 --set task.reference=live
[ "$(digest bf16-live)" = "$(digest bf16)" ] || fail "a live reference leads to other weights in bf16"
if command -v mpirun >/dev/null && ldd "$banyan" | grep -q libmpi; then
    say "two ranks"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    run 0 mpirun --oversubscribe -n 2 "$banyan" train prefer.yaml --quiet --set name=ranks --set data.cache=cache2
    [ "$(digest ranks)" = "$cached" ] || fail "two ranks have other weights than one"
fi

say "a stop and a resume without the file of references"
run 0 "$banyan" train prefer.yaml --quiet --set name=half --set data.cache=cache3
rm -r runs/half/checkpoints/step-00000016 cache3
run 0 "$banyan" train --resume runs/half --quiet
[ "$(digest half)" = "$cached" ] || fail "a run that was resumed has other weights"

say "other losses, adapters, rewards"
for loss in ipo simpo orpo; do
    run 0 "$banyan" train prefer.yaml --quiet --set name=$loss --set task.loss=$loss --set train.steps=4
done
run 0 "$banyan" train prefer.yaml --json --set name=adapters --set lora.rank=4 --set optimizer.lr=1e-2
awk "BEGIN { exit !($(grep '"event":"eval"' out | tail -n 1 | field accuracy) == 1) }" || fail "adapters have not learned"
run 0 "$banyan" train prefer.yaml --json --set name=reward --set task.kind=reward --set optimizer.lr=1e-2
awk "BEGIN { exit !($(grep '"event":"eval"' out | tail -n 1 | field accuracy) == 1) }" || fail "rewards have not been learned"
run 0 "$banyan" eval runs/reward --data pairs.jsonl --json
holds out '"accuracy":1'

say "weights in codes, for preferences, whose reference has the codes, too, and for conversations"
run 0 "$banyan" train prefer.yaml --json --set name=coded --set lora.rank=4 --set lora.base=int8 --set optimizer.lr=1e-2
awk "BEGIN { exit !($(grep '"event":"eval"' out | tail -n 1 | field accuracy) == 1) }" || fail "adapters have not learned"
run 0 "$banyan" train prefer.yaml --json --set name=coded-start --set train.steps=2 --set lora.rank=4 --set lora.base=int4
awk "BEGIN { x = $(grep '"event":"train"' out | head -n 1 | field loss); exit !(x > 0.69314 && x < 0.69316) }" ||
    fail "the first loss with weights in codes is not log(2)"
sed 's/"chosen"/"completion"/; s/, "rejected": "[^"]*"//' pairs.jsonl >talks.jsonl
run 0 "$banyan" train prefer.yaml --json --set name=talks --set task.kind=chat --set 'data.text=[talks.jsonl]' --set lora.rank=4 \
    --set lora.base=int4 --set lora.base_group=32 --set optimizer.lr=1e-2
awk "BEGIN { exit !($(grep '"event":"train"' out | head -n 1 | field loss) > $(grep '"event":"train"' out | tail -n 1 | field loss)) }" ||
    fail "the loss of conversations has not fallen"

say "an evaluation compares with what training began on: weights in codes, adapters; what it says when they are gone"
# still NAME ARGS: a run that does not move, so that nothing differs from the reference but the order of sums: an evaluation
# adds adapters to the decoded weights.
still() {
    name=$1
    shift
    run 0 "$banyan" train prefer.yaml --quiet --set name="$name" --set train.steps=1 --set optimizer.lr=1e-12 "$@"
    run 0 "$banyan" eval "runs/$name" --json
    awk "BEGIN { x = $(field valid_loss <out); m = $(field margin <out); exit !(x > 0.6931 && x < 0.6932 && m * m < 1e-8) }" ||
        fail "the evaluation of $name is $(cat out)"
}
still still --set lora.rank=4 --set lora.base=int4 --set lora.base_group=32
still further --set lora.from=runs/adapters/checkpoints/step-00000016
mv runs/base elsewhere
run 2 "$banyan" eval runs/still
holds err "set task.reference_from to a copy of it"
copy=$(find elsewhere/checkpoints -name 'step-*')
run 0 "$banyan" train --resume runs/still --set task.reference_from="$copy" --quiet
run 0 "$banyan" eval runs/still
mv elsewhere runs/base

say "what is refused"
run 2 "$banyan" train prefer.yaml --set task.reference=live --set lora.rank=4 --set lora.base=int8
holds err "set task.reference to cached"
run 2 "$banyan" train prefer.yaml --set model.from= --set data.tokenizer=char
holds err "set model.from, or task.loss to simpo or orpo"
run 2 "$banyan" train prefer.yaml --set parallel.sequence=2
holds err "set parallel.sequence to 1"
run 2 "$banyan" train prefer.yaml --set task.kind=reward --set lora.rank=4
holds err "adapters have no place for score.weight"
echo '{"prompt": "a", "chosen": "b"}' >bad.jsonl
run 1 "$banyan" train prefer.yaml --set 'data.text=[bad.jsonl]'
holds err 'bad.jsonl:1: the field "rejected" is missing'
echo '{"question": "add", "answer": "is"}' >bad.jsonl
run 0 "$banyan" pack --chat bad.jsonl --tokenizer runs/base --chat-template plain --out talks --context 64
run 2 "$banyan" train prefer.yaml --set 'data.text=[]' --set data.valid_fraction=0 --set data.train=talks
holds err "talks holds no preferences"
