#!/bin/sh
# An assistant in one command: its parts are ordinary runs, which go on after a kill and after Ctrl-C with equal bits,
# are done once, and are done again when what they are made of has changed.
. "$(dirname "$0")/../support/shell.sh"

awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"question\": \"After %d?\", \"answer\": \"It is %d.\"}\n", i % 9, i % 9 + 1 }' >talks.jsonl
awk 'BEGIN { for (i = 0; i < 9; i++) printf "{\"question\": \"After %d?\", \"answer\": \"It is %d.\"}\n", i, i + 1 }' >prompts.jsonl
cat >items.jsonl <<'END'
{"question": "apple", "choices": ["bay", "cedar"], "answer": 0}
{"question": "dune", "choices": ["elm", "fern"], "answer": 1}
END
cat >task.yaml <<'END'
task: words
output_type: multiple_choice
test_split: test
dataset_kwargs: {data_files: items.jsonl}
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: answer
END
cat >base.yaml <<'END'
model: {kind: llama, layers: 1, heads: 2, width: 32, context: 64, tied: true}
data: {tokenizer: bpe, tokenizer_vocab: 300, cache: cache}
train: {steps: 40, batch: 8, micro_batch: 4, log_every: 1, eval_every: 20, eval_batches: 2, threads: 1}
optimizer: {lr: 3e-3, warmup: 5}
precision: {compute: f32}
checkpoint: {every: 8}
END
cat >tune.yaml <<'END'
data: {cache: cache}
train: {steps: 24, batch: 4, log_every: 1, threads: 1}
precision: {compute: f32}
checkpoint: {every: 6}
END
# new DIR: an assistant that is not trained yet.
new() {
    mkdir "$1"
    cat >"$1/assistant.yaml" <<'END'
text: text.txt
conversations: talks.jsonl
minutes: 1
watts: 30
pretrain: {config: base.yaml}
chat: {config: tune.yaml}
END
}
digest() {
    run 0 "$banyan" checkpoint digest "$1"
    tail -n 1 out
}

say "a plan trains nothing"
new whole
run 0 "$banyan" assistant whole --plan --json
[ "$(grep -c '"state":"waits"' out)" -eq 2 ] || fail "$(cat out)"
[ "$(ls whole)" = assistant.yaml ] || fail "the plan made $(ls whole)"
run 0 "$banyan" assistant made/deep --text text.txt --conversations talks.jsonl --minutes 3 --plan
holds out "pretrain	2.1	waits"
[ ! -e made ] || fail "the plan made $(ls made)"

say "what is known to be wrong is refused before anything is trained"
echo 'reward: exakt' >>whole/assistant.yaml
run 2 "$banyan" assistant whole --plan
holds err 'whole/assistant.yaml:7: reward: "exakt" is not one of'
sed -i '/^reward/d' whole/assistant.yaml
printf 'prompts: prompts.jsonl\nreward: regex\n' >>whole/assistant.yaml
run 2 "$banyan" assistant whole
holds err "reward: regex needs task.reward_pattern"
sed -i '/^prompts/d; /^reward/d' whole/assistant.yaml
sed 's/^doc_to_text.*/&\nfilter_list: [{name: most, filter: [{function: majority}]}]/; s/multiple_choice/generate_until/' \
    task.yaml >odd.yaml
run 1 "$banyan" assistant made --text text.txt --conversations talks.jsonl --suite odd.yaml
holds err "the filter 'majority' is not supported"
[ ! -e made ] || fail "an assistant that cannot begin left $(ls made)"
run 2 "$banyan" assistant short --text text.txt --conversations talks.jsonl --minutes 0.0001
holds err "short/assistant.yaml gives part pretrain 7e-05 minutes, a share of all: "
holds err "give it at least "
[ "$(ls whole)" = assistant.yaml ] || fail "something was trained: $(ls whole)"

say "all parts, and the report"
run 0 "$banyan" assistant whole
holds out "banyan chat whole/chat"
exists whole/report.md whole/report.html whole/pretrain.yaml whole/chat.yaml
holds whole/report.md "> After 5?"
holds whole/report.md "Wh at 30 W"
if "$banyan" doctor | grep -q "plots.*no"; then :; else
    exists whole/pretrain.svg whole/chat.svg
    holds whole/report.html "<svg"
fi
echo "After 3?" | "$banyan" chat whole/chat --tokens 8 --best >out || fail "no chat"
run 0 "$banyan" assistant whole --plan
holds out "	done	whole/chat.yaml"

say "killed while it pretrains, interrupted while it is tuned: equal weights"
new cut
train_until 20 KILL "$banyan" assistant cut --json
[ "$code" -eq 137 ] || fail "exit code $code"
run 0 "$banyan" assistant cut --plan --json
holds out '"part":"pretrain","state":"began"'
train_chat_until() { # those steps are in the part behind
    rm -f lines
    mkfifo lines
    "$banyan" assistant cut --json >lines 2>err &
    background=$!
    part=
    while read -r line; do
        case $line in
        '{"event":"trains","part":"chat"'*) part=chat ;;
        '{"event":"train","step":14,'*) [ "$part" != chat ] || kill -INT "$background" ;;
        esac
    done <lines
    wait "$background"
    code=$?
    background=
}
train_chat_until
[ "$code" -eq 3 ] || fail "exit code $code"
holds err "go on with: banyan assistant cut"
run 0 "$banyan" assistant cut
holds out "pretrain: done already, in cut/pretrain"
holds out "chat: goes on"
[ "$(digest cut/pretrain)" = "$(digest whole/pretrain)" ] || fail "the base model differs"
[ "$(digest cut/chat)" = "$(digest whole/chat)" ] || fail "the tuned model differs"

say "what is done stays"
run 0 "$banyan" assistant cut --json
[ "$(grep -c '"event":"kept"' out)" -eq 2 ] || fail "$(cat out)"
holds out '"event":"reported"'

say "the same flags go on; others are refused, and named"
cp cut/assistant.yaml kept.yaml
sed -i '/^watts/d' cut/assistant.yaml
run 0 "$banyan" assistant cut --text text.txt --conversations talks.jsonl --minutes 1 --plan --json
[ "$(grep -c '"state":"done"' out)" -eq 2 ] || fail "$(cat out)"
run 1 "$banyan" assistant cut --text text.txt --conversations prompts.jsonl
holds err "cut/assistant.yaml is there already, and the flags say otherwise (conversations, minutes): to go on with it"
mv kept.yaml cut/assistant.yaml

say "a part whose directory is gone is trained again, with equal bits"
rm -r cut/chat
run 0 "$banyan" assistant cut --plan
holds out "chat	0.3	waits"
run 0 "$banyan" assistant cut
holds out "pretrain: done already"
holds out "chat: cut/chat/config.yaml is gone: the part is trained again"
[ "$(digest cut/chat)" = "$(digest whole/chat)" ] || fail "the tuned model differs"

say "a part is repeated by its config"
run 0 "$banyan" train whole/chat.yaml --quiet
[ "$(digest whole/chat-2)" = "$(digest whole/chat)" ] || fail "its config trains another model"

say "suites are run without training, once"
echo 'suites: task.yaml' >>cut/assistant.yaml
run 0 "$banyan" assistant cut
holds out "chat: done already"
holds out "chat: task.yaml, 2 items"
holds cut/report.md "| words | acc | 2 |"
run 0 "$banyan" assistant cut
! grep -q "task.yaml, 2 items" out || fail "a suite was run again"

say "a config that was edited is trained as it is; what follows is done again"
sed -i 's/steps: 40/steps: 42/' base.yaml
run 0 "$banyan" assistant cut --plan --json
[ "$(grep -c '"state":"waits"' out)" -eq 2 ] || fail "$(cat out)"
run 0 "$banyan" assistant cut
holds out "chat: done in"
exists cut/pretrain-2 cut/chat-2
sed -i 's/^optimizer: {/&lr: 5e-3, /; s/lr: 1e-3, //' cut/chat.yaml
cp cut/chat.yaml edited.yaml
run 0 "$banyan" assistant cut
holds out "pretrain: done already, in cut/pretrain-2"
same edited.yaml cut/chat.yaml
holds cut/chat-3/config.yaml "lr: 0.005"

say "preferences and rewards come on top of what is done"
sed -i 's/steps: 42/steps: 40/' base.yaml
cat >learn.yaml <<'END'
task: {group: 4, max_tokens: 12, reward: length, reward_tokens: 4}
model: {context: 48}
train: {steps: 3, batch: 16, micro_batch: 16, threads: 1}
precision: {compute: f32}
END
awk 'BEGIN { for (i = 0; i < 24; i++) printf "{\"prompt\": \"After %d?\", \"chosen\": \"It is %d.\", \"rejected\": \"No %d\"}\n",
    i % 9, i % 9 + 1, i % 5 }' >pairs.jsonl
cat >prefer.yaml <<'END'
data: {cache: cache}
train: {micro_batch: 4, log_every: 1, threads: 1}
optimizer: {lr: 3e-4}
precision: {compute: f32}
END
cat >>whole/assistant.yaml <<'END'
preferences: pairs.jsonl
prefer: {config: prefer.yaml}
prompts: prompts.jsonl
reinforce: {config: learn.yaml}
END
run 0 "$banyan" assistant whole --plan --json
holds out '"part":"prefer","state":"waits","minutes":0.15'
holds out '"part":"reinforce","state":"waits","minutes":0.3'
[ "$(grep -c '"state":"done"' out)" -eq 2 ] || fail "$(cat out)"
run 0 "$banyan" assistant whole
holds whole/prefer.yaml 'from: "whole/chat"'
holds whole/prefer.yaml "steps: 5" # two passes over 22 pairs, eight a step
holds whole/report.md "| held-out pairs right |"
grep '^| prefer |' whole/report.md | grep -q ' to 1.000 |$' || fail "$(cat whole/report.md)"
holds whole/reinforce.yaml 'from: "whole/prefer"'
holds whole/reinforce.yaml 'prompt_form: "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"'
holds whole/reinforce.yaml "prompt_field: question"
holds out "banyan chat whole/reinforce"
echo "After 3?" | "$banyan" chat whole/reinforce --tokens 8 >out || fail "no chat"

say "preferences and rewards without files of settings"
sed -i '/^prefer: /d; s/^reinforce: .*/prefer: {minutes: 0.01}\nreinforce: {minutes: 0.01}/' whole/assistant.yaml
run 0 "$banyan" assistant whole
exists whole/prefer-2 whole/reinforce-2
holds whole/reinforce.yaml "reward: exact, max_tokens: 32" # half of the model's context

say "few conversations: the last one is held out; one alone is not enough"
head -n 2 talks.jsonl >few.jsonl
run 0 cp -r whole few
sed '/^pre[fp]/d; /^prompts/d; /^reinforce/d; s/talks/few/' whole/assistant.yaml >few/assistant.yaml
run 0 "$banyan" assistant few
holds err "would hold out none of 2 conversations: the last one is held out"
holds few/report.md "> After 1?"
head -n 1 talks.jsonl >few.jsonl
run 1 "$banyan" assistant few
holds err "there is one conversation, and evaluation needs another"
sed -i 's/{cache: cache}/{cache: cache, valid_fraction: 0}/' tune.yaml
run 0 "$banyan" assistant few

say "what is refused"
run 2 "$banyan" assistant fresh --text gone.txt --conversations talks.jsonl
holds err "there is no file or directory gone.txt"
run 1 "$banyan" assistant whole --text text.txt --conversations talks.jsonl
holds err "whole/assistant.yaml is there already"
run 2 "$banyan" assistant fresh --text text.txt
holds err "conversations is missing"
[ ! -e fresh ] || fail "fresh was made"
echo 'minuets: 3' >>whole/assistant.yaml
run 2 "$banyan" assistant whole --plan
holds err 'did you mean "minutes"'
sed -i '/minuets/d; s/talks.jsonl/gone.jsonl/' whole/assistant.yaml
run 1 "$banyan" assistant whole --plan
holds err "gone.jsonl"
