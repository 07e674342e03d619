#!/bin/sh
# A conversation on a pipe: an answer a line, the history in the caches, commands, templates, also of runs that were tuned.
. "$(dirname "$0")/../support/shell.sh"

make_text text.txt 200
tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set name=talk --set train.steps=6
printf '%s' '{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("late") }}{% endif %}{{ m.content + " " }}{% endfor %}' >talk.jinja
set -- chat runs/talk --template talk.jinja --temperature 0 --tokens 5

say "without a template: what to do"
echo apple >in
run 1 "$banyan" chat runs/talk <in
holds err "has no chat template: give one with --chat-template FILE"

say "a built-in one"
echo oak >in
run 1 "$banyan" chat runs/talk --chat-template plain --tokens 3 <in
holds err "character U+0055 'U' at offset 0" # of "User: oak": it has capitals, and the vocabulary has none
run 2 "$banyan" chat runs/talk --chat-template nowhere <in
holds err "there is no chat template 'nowhere'"
say "a template that is wrong: its line"
printf 'a\n{%% include "x" %%}' >wrong.jinja
run 1 "$banyan" chat runs/talk --template wrong.jinja
holds err "wrong.jinja:2: a block of this name is not supported"

say "two answers, the second one behind the first in the caches"
printf 'apple\n\nbay\n/save said.json\n' >in
"$banyan" "$@" <in >out 2>err || fail "$(cat err)"
[ "$(wc -l <out)" -eq 2 ] || fail "$(cat out)"
first=$(sed -n 1p out)
second=$(sed -n 2p out)
run 0 "$banyan" generate runs/talk --prompt "apple " --no-prompt --temperature 0 --tokens 5
[ "$(cat out)" = "$first" ] || fail "'$(cat out)' and '$first'"
run 0 "$banyan" generate runs/talk --prompt "apple $first bay " --no-prompt --temperature 0 --tokens 5
[ "$(cat out)" = "$second" ] || fail "'$(cat out)' and '$second'"
say "... and what was said as JSON"
holds said.json '[{"role": "user", "content": "apple"}, {"role": "assistant", "content": "'"$first"'"}, {"role": "user", "content": "bay"}, '

say "/reset, /system and /quit"
printf 'apple\n/reset\napple\n/system\napple\n/quit\napple\n' | "$banyan" "$@" >out 2>err || fail "$(cat err)"
[ "$(sort -u out)" = "$first" ] && [ "$(wc -l <out)" -eq 3 ] || fail "$(cat out)"
printf 'apple\n' | "$banyan" "$@" --system moss >out
printf '/system moss\napple\n' | "$banyan" "$@" >with
same out with
run 0 "$banyan" generate runs/talk --prompt "moss apple " --no-prompt --temperature 0 --tokens 5
same out with

say "a stop string ends an answer"
letter=$(printf '%s' "$first" | cut -c 3)
printf 'apple\n' | "$banyan" "$@" --stop "$letter" >out
case $first in "$(cat out)"*) ;; *) fail "$(cat out)" ;; esac
if grep -q -F -e "$letter" out; then fail "'$letter' is shown: $(cat out)"; fi

say "what cannot be is said"
echo /dance >in
run 2 "$banyan" "$@" <in
holds err "unknown command '/dance'"
awk 'BEGIN { for (i = 0; i < 500; i++) printf "apple "; print "" }' >in
run 1 "$banyan" "$@" <in
holds err "start a new one with /reset"
run 2 "$banyan" chat runs/talk --stop ""
run 2 "$banyan" chat

say "a context that does not fit into memory: what fits of it"
tiny llama >long.yaml
run 0 "$banyan" train long.yaml --quiet --set name=long --set model.layers=8 --set model.width=512 --set train.batch=1 --set train.steps=1 --set optimizer.warmup=0
run 0 "$banyan" checkpoint merge runs/long long
sed -i 's/"max_position_embeddings": *64/"max_position_embeddings": 16777216/' long/config.json
printf 'apple\n' >in
run 0 "$banyan" chat long --template talk.jinja --tokens 5 <in
grep -q -E "^The context is [0-9]+ of the model's 16777216 tokens" err || fail "$(cat err)"
run 1 "$banyan" chat long --template talk.jinja --tokens 5 --context 16777216 <in
holds err "not enough memory"

say "a model that is trained further keeps the template and the end tokens of its directory"
run 0 "$banyan" checkpoint merge runs/talk model
cp talk.jinja model/chat_template.jinja
echo '{"eos_token_id": [3, 5], "max_length": 1000000000000000019884624838656}' >model/generation_config.json
echo '{"eos_token": "<|endoftext|>", "model_max_length": 1000000000000000019884624838656, "x": [1, {"y": 2}]}' \
    >model/tokenizer_config.json
sed -i 's/"bos_token_id": [^,]*/"bos_token_id": 4/; s/"eos_token_id": [^,]*/"eos_token_id": [3, 5]/' model/config.json
# kept RUN STEP: the checkpoint has what the directory has.
kept() {
    for name in chat_template.jinja generation_config.json; do
        same model/$name "runs/$1/checkpoints/step-0000000$2/$name"
    done
    sed 's/10000[0-9]*/64/' model/tokenizer_config.json >expected
    same expected "runs/$1/checkpoints/step-0000000$2/tokenizer_config.json"
    tr -d ' \n' <"runs/$1/checkpoints/step-0000000$2/config.json" >flat
    holds flat '"bos_token_id":4,'
    holds flat '"eos_token_id":[3,5],'
}
set -- --set model.from=model --set train.steps=1 --set optimizer.warmup=0 --quiet
run 0 "$banyan" train c.yaml "$@" --set name=tuned
kept tuned 1
mv model elsewhere
run 0 "$banyan" train --resume runs/tuned --set train.steps=2 --quiet
mv elsewhere model
kept tuned 2
run 0 "$banyan" train c.yaml "$@" --set name=adapted --set lora.rank=2
kept adapted 1
printf 'apple\n' | "$banyan" chat runs/tuned --temperature 0 --tokens 5 >out
[ "$(wc -l <out)" -eq 1 ] || fail "$(cat out)"

say "a run that was tuned on conversations renders them with its own template, whatever became of the file"
awk 'BEGIN { split("apple bay moss oak", w, " "); for (i = 0; i < 24; i++)
    printf "{\"question\": \"%s\", \"answer\": \"%s\"}\n", w[i % 4 + 1], w[(i + 1) % 4 + 1] }' >talks.jsonl
printf '%s' '{% for m in messages %}{{ m.content + " " }}{% endfor %}' >tune.jinja
cat >tune.yaml <<'END'
name: turns
task: {kind: chat}
chat: {template: tune.jinja}
model: {from: runs/talk}
data: {text: [talks.jsonl], valid_fraction: 0.3, tokenizer: char}
train: {steps: 1, batch: 2, threads: 1}
optimizer: {warmup: 0}
END
run 0 "$banyan" train tune.yaml --quiet
run 0 "$banyan" eval runs/turns --json
cp out first
run 0 "$banyan" data show runs/turns --count 1
cp out shown
sed -i 's/" "/"   "/' tune.jinja
run 0 "$banyan" eval runs/turns --json
same first out
run 0 "$banyan" data show runs/turns --count 1
same shown out
run 2 "$banyan" train --resume runs/turns --set train.steps=2 --quiet
holds err "chat.template: tune.jinja has changed"
rm tune.jinja
run 0 "$banyan" eval runs/turns --json
same first out
run 0 "$banyan" train --resume runs/turns --set train.steps=2 --quiet

say "a suite of questions: its items are never written over its data"
echo '{"q": "moss", "choices": ["bay", "oak"], "answer": 0}' >items.jsonl
cat >suite.yaml <<'END'
{task: words, output_type: multiple_choice, test_split: test, dataset_kwargs: {data_files: items.jsonl}, doc_to_text: q,
 doc_to_choice: choices, doc_to_target: answer}
END
cp items.jsonl kept.jsonl
run 2 "$banyan" eval runs/talk --suite suite.yaml --items-out items.jsonl
holds err "--items-out: items.jsonl exists, and has no items of banyan eval"
same items.jsonl kept.jsonl
run 0 "$banyan" eval runs/talk --suite suite.yaml --items-out scores.jsonl
cp scores.jsonl first
run 0 "$banyan" eval runs/talk --suite suite.yaml --items-out scores.jsonl
same first scores.jsonl

say "documents: two runs are compared by the values that they have, and bits and shares have no mean"
printf '{"text": ""}\n{"text": "moss"}\n{"text": "the bay and the oak"}\n' >documents.jsonl
cat >documents.yaml <<'END'
{task: documents, output_type: loglikelihood_rolling, test_split: test, dataset_kwargs: {data_files: documents.jsonl},
 doc_to_text: "", doc_to_target: text}
END
echo 'task: [suite, documents]' >mixed.yaml
value() {
    awk '$2 == "bits_per_byte" { print $3 }' out
}
run 0 "$banyan" eval runs/talk --suite mixed.yaml
holds out "documents	bits_per_byte"
! grep -q "^all\|nan" out || fail "$(cat out)"
run 0 "$banyan" eval runs/talk --suite mixed.yaml --json
! grep -q '"mean"\|null' out || fail "$(cat out)"
run 0 "$banyan" eval runs/talk --suite documents.yaml --items-out a.jsonl
first=$(value)
run 0 "$banyan" eval runs/tuned --suite documents.yaml --items-out b.jsonl
second=$(value)
run 0 "$banyan" eval --compare a.jsonl b.jsonl
awk -v a="$first" -v b="$second" 'NR == 2 { exit !($3 == a && $4 == b && (b > a ? $9 > 0 : b == a || $8 > 0)) }' out ||
    fail "$first $second $(cat out)"
