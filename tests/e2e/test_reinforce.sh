#!/bin/sh
# Reinforcement learning: reward rises; the weights are the same on one and two ranks, and after a kill in the middle
# of a rollout and a resume.
. "$(dirname "$0")/../support/shell.sh"

awk 'BEGIN { for (i = 0; i < 1500; i++) { state = (state * 69069 + 12345) % 4294967296
                                           printf "%d>%s\n", i % 10, substr("abcd", 1 + int(state / 65536) % 4, 1) } }' >text.txt
awk 'BEGIN { for (i = 0; i < 10; i++) printf "{\"prompt\": \"%d>\", \"answer\": \"%s\"}\n", i, substr("abcd", 1 + i % 4, 1) }' >prompts.jsonl
cat >base.yaml <<'END'
name: base
model: {kind: llama, layers: 1, heads: 2, width: 32, context: 32}
data: {text: [text.txt], tokenizer: char, valid_fraction: 0, cache: cache}
train: {steps: 60, batch: 8, threads: 1}
optimizer: {lr: 3e-3, warmup: 5}
precision: {compute: f32}
END
cat >learn.yaml <<'END'
name: learn
task: {kind: reinforce, group: 4, max_tokens: 3, stop: ["\n"]}
model: {from: runs/base, context: 8}
data: {prompts: [prompts.jsonl]}
train: {steps: 40, batch: 64, micro_batch: 16, log_every: 10, threads: 1}
optimizer: {lr: 1e-2, warmup: 2}
precision: {compute: f32}
checkpoint: {every: 4}
END
run 0 "$banyan" train base.yaml --quiet

say "without model.context, that of the model is the room for prompts and completions"
run 2 "$banyan" train learn.yaml --quiet --set task.max_tokens=8
holds err "task.max_tokens 8 leaves no room for a prompt in model.context 8"
run 0 "$banyan" train base.yaml --quiet --set name=wide --set model.context=80 --set train.steps=1
sed 's/base, context: 8/wide/' learn.yaml >room.yaml
run 0 "$banyan" train room.yaml --quiet --set name=room --set task.max_tokens=70 --set train.steps=1
run 2 "$banyan" train room.yaml --quiet --set task.max_tokens=80
holds err "task.max_tokens 80 leaves no room for a prompt in model.context 80"

say "reward rises"
run 0 "$banyan" train learn.yaml --json
holds out '"reward":'
first=$(grep '"event":"train"' out | head -n 1 | field reward)
last=$(grep '"event":"train"' out | tail -n 1 | field reward)
awk "BEGIN { exit !($last > 0.7 && $last > 2 * $first) }" || fail "the reward went from $first to $last"
holds runs/learn/events.jsonl '"pass_at_k":'
exists runs/learn/checkpoints/step-00000040/tokenizer.json

# digest RUN: of weights and the optimizer's state.
digest() {
    run 0 "$banyan" checkpoint digest "runs/$1"
    tail -n 1 out
}
# The program that rates kills the run at the completion with this number, if its file is there.
cat >rate.sh <<'END'
n=0
while read -r line; do
    n=$((n + 1))
    if [ $n -eq 500 ] && rm kill-once 2>/dev/null; then kill -KILL $PPID; fi
    case $line in '{"completion":"a"'*) echo 1 ;; *) echo 0 ;; esac
done
END
set -- learn.yaml --set train.steps=12 --set task.reward=command --set "task.reward_command=[sh, rate.sh]" --set task.kl=0.05
say "a kill in a rollout, and a resume"
run 0 "$banyan" train "$@" --quiet --set name=whole
touch kill-once
run 137 "$banyan" train "$@" --quiet --set name=killed
run 0 "$banyan" train --resume runs/killed --quiet
whole=$(digest whole)
[ "$(digest killed)" = "$whole" ] || fail "the run that was killed has other weights"
if command -v mpirun >/dev/null && ldd "$banyan" | grep -q libmpi; then
    say "two ranks"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    run 0 mpirun --oversubscribe -n 2 "$banyan" train "$@" --quiet --set name=ranks
    [ "$(digest ranks)" = "$whole" ] || fail "two ranks have other weights than one"
fi

say "prompts as a list and as a table are those of lines: a record is one line for the program"
awk 'BEGIN { print "["; for (i = 0; i < 10; i++)
    printf "%s{\"prompt\": \"%d>\",\n \"answer\": \"%s\"}\n", i ? ", " : "", i, substr("abcd", 1 + i % 4, 1)
    print "]" }' >prompts.json
{ echo prompt,answer && awk 'BEGIN { for (i = 0; i < 10; i++) printf "%d>,%s\n", i, substr("abcd", 1 + i % 4, 1) }'; } >prompts.csv
python3 "$root/tests/support/write_parquet.py" prompts.csv prompts.parquet
for form in jsonl json parquet; do
    run 0 "$banyan" train "$@" --quiet --set name="of-$form" --set train.steps=2 --set data.prompts="prompts.$form"
    [ "$(digest "of-$form")" = "$(digest of-jsonl)" ] || fail "prompts.$form give other weights"
done

say "a number too many shifts all rewards: refused, of a slow program at its end"
cat >banner.sh <<'END'
echo 7
while read -r line; do
    [ -z "$1" ] || sleep "$1"
    echo 1
done
END
run 1 "$banyan" train "$@" --quiet --set name=banner --set "task.reward_command=[sh, banner.sh]"
grep -q -e 'printed "7" before it was asked anything' -e 'printed "1" behind its last answer' \
    -e 'printed more than the 64 lines' err || fail "$(cat err)"
run 1 "$banyan" train "$@" --quiet --set name=slow --set "task.reward_command=[sh, banner.sh, '0.02']"
grep -q -e 'printed "7" before' -e 'printed "1" behind its last answer' err || fail "$(cat err)"

say "what is refused"
run 2 "$banyan" eval runs/learn
holds err "task reinforce holds out no data"
run 2 "$banyan" train learn.yaml --set train.batch=30 --set train.micro_batch=15
holds err "train.batch 30 counts completions, 4 of each prompt (task.group)"
run 2 "$banyan" train learn.yaml --set "task.stop=[ab]"
holds err 'task.stop: "ab" is not one token'
run 2 "$banyan" train learn.yaml --set task.reward=command
holds err "task.reward command needs task.reward_command"
run 2 "$banyan" train learn.yaml --set model.from= --set model.vocab=20
holds err "set model.from to a model that has one"
echo '{"question": "1>"}' >other.jsonl
run 1 "$banyan" train learn.yaml --set data.prompts=other.jsonl
holds err 'other.jsonl:1: "prompt" is missing'
run 1 "$banyan" train learn.yaml --set task.reward=command --set "task.reward_command=[sh, -c, 'echo no >&2']" --quiet
holds err "sh ended with code 0 after 0 of 64 answers: no"
echo '{"prompt": "1>"}' >other.jsonl
run 1 "$banyan" train learn.yaml --set data.prompts=other.jsonl
holds err 'other.jsonl:1: "answer" is missing, which task.reward compares with'
run 1 "$banyan" train learn.yaml --set data.prompts=other.jsonl --set task.reward=number
holds err 'other.jsonl:1: "answer" is missing, which task.reward compares with'
run 1 "$banyan" train learn.yaml --set data.prompts=other.jsonl --set task.reward=regex --set 'task.reward_pattern=(a)'
holds err 'other.jsonl:1: "answer" is missing, which task.reward compares with'
run 0 "$banyan" train learn.yaml --quiet --set name=pattern --set train.steps=1 --set data.prompts=other.jsonl \
    --set task.reward=regex --set task.reward_pattern=a
run 1 "$banyan" train learn.yaml --set task.reward=number
holds err 'prompts.jsonl:1: "answer" is "a", which has no number'
echo '[{"prompt": "1>", "answer": "a"}, {"prompt": "2>"}' >other.json
run 1 "$banyan" train learn.yaml --set data.prompts=other.json
holds err 'other.json:1: "answer" is missing'
run 1 "$banyan" train learn.yaml --set data.prompts=other.json --set task.reward=length
holds err 'other.json:2: the list has no end'
echo '1>' >other.txt
run 1 "$banyan" train learn.yaml --set data.prompts=other.txt
holds err 'other.txt:1: a line of text has no answer'
run 2 "$banyan" train learn.yaml --set data.prompts=nowhere.jsonl
holds err 'data.prompts: there is no file or directory nowhere.jsonl'
run 2 "$banyan" train learn.yaml --set data.prompts=
holds err 'data.prompts: a path in the list is empty'
run 2 "$banyan" train learn.yaml --set data.prompt_form=Say
holds err 'data.prompt_form "Say" has no {prompt}'
run 2 "$banyan" train learn.yaml --set lora.rank=2
holds err "adapters are not supported"
