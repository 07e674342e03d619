#!/bin/sh
# `banyan generate --batch`: many prompts, one JSON line each in their order, the same text alone and together.
. "$(dirname "$0")/../support/shell.sh"

awk 'BEGIN { for (i = 0; i < 2000; i++) print "the number", i, "follows", i - 1 }' >text.txt
cat >c.yaml <<'EOF'
model: {kind: llama, layers: 2, heads: 2, width: 32, context: 64}
precision: {compute: f32}
train: {batch: 4, steps: 20, threads: 1}
data: {text: [text.txt], tokenizer: char}
run: {dir: runs}
EOF
run 0 "$banyan" train c.yaml --quiet

# lines EXPRESSION: each line of `out` is JSON, and the Python expression is true of the list d.
lines() {
    python3 -c "import json, sys; d = [json.loads(x) for x in open('out')]; sys.exit(0 if ($1) else 1)" ||
        fail "not so: $1, of $(cat out)"
}

say "one line a prompt, in their order"
cat >prompts.txt <<'EOF'
the number
{"prompt": "the number 7 follows", "tokens": 5, "seed": 3}

follows the number follows the number
{"prompt": "e\nt"}
EOF
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --sessions 3
lines "[x['index'] for x in d] == [0, 1, 2, 3]"
lines "[x['tokens'] for x in d] == [12, 5, 12, 12] and all(len(x['text']) == x['tokens'] for x in d)"
lines "[x['prompt_tokens'] for x in d] == [10, 20, 37, 3]"
lines "all(x['stop'] == 'length' and x['log_probability'] < 0 for x in d)"
cp out together

say "from standard input, one at a time, behind a byte-order mark: the same lines"
run 0 sh -c "{ printf '\\357\\273\\277'; cat prompts.txt; } | '$banyan' generate runs --batch - --tokens 12 --sessions 3 --threads 2"
cmp out together || fail "another text"

say "drafts change nothing"
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --sessions 3 --speculate ngram
cmp out together || fail "another text"
run 0 "$banyan" bench engine runs --requests 2 --sessions 1 --prompt-tokens 30 --pattern-tokens 6 --tokens 20 \
    --speculate ngram --json
lines "d[0]['drafted'] >= d[0]['accepted'] >= 0"
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --sessions 3 --speculate runs
cmp out together || fail "another text"
run 0 "$banyan" bench engine c.yaml --requests 2 --sessions 1 --prompt-tokens 30 --tokens 20 --speculate c.yaml --json
lines "d[0]['accepted'] <= d[0]['drafted']"
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --sessions 3 --kv int8
run 2 "$banyan" generate runs --batch prompts.txt --kv int9
holds err "int9"
run 2 "$banyan" generate runs --prompt t --kv int9
holds err "--kv 'int9': only int8 is supported"
run 2 "$banyan" generate runs --prompt t --temperature=-1
holds err "temperature -1"
run 2 "$banyan" generate runs --batch prompts.txt --speculate trigram
holds err "--speculate trigram: it is neither ngram nor a model directory"
newest=
for checkpoint in runs/*/checkpoints/step-*; do newest=$checkpoint; done
run 2 "$banyan" eval "$newest"
holds err "$newest is not a run and has no held-out data: give data with --data"
sed 's/number/digit/' text.txt >digits.txt
run 0 "$banyan" train c.yaml --quiet --set 'data.text=[digits.txt]' --set run.dir=others --set train.steps=1
run 2 "$banyan" generate runs --batch prompts.txt --speculate others
holds err "its tokenizer differs from the model's"

run 0 "$banyan" generate runs --prompt 'the number' --tokens 12 --speculate ngram --no-prompt
python3 -c "
import json; print(json.loads(open('together').readline())['text'])" | cmp - out || fail "another text of one prompt"

say "the best of four texts has the likeliest tokens"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 --best-of 4 --seed 5 --json
mv out best
for seed in 5 6 7 8; do echo "{\"prompt\": \"the number\", \"seed\": $seed}"; done >four.txt
run 0 "$banyan" generate runs --batch four.txt --tokens 9
lines "max(d, key=lambda x: x['log_probability'] / x['tokens']) | {'index': 0} == json.load(open('best'))"
mv out four

say "all of four texts, and the log-probabilities of their tokens"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 -n 4 --seed 5 --json --logprobs 3
lines "[x['text'] for x in d[0]['texts']] == [json.loads(x)['text'] for x in open('four')] and d[0]['prompt_tokens'] == 10"
lines "all(''.join(t['token'] for t in x['logprobs']) == x['text'] for x in d[0]['texts'])"
lines "all(abs(sum(t['log_probability'] for t in x['logprobs']) - x['log_probability']) < 1e-3 for x in d[0]['texts'])"
lines "all(len(t['top']) == 3 and t['top'][0]['log_probability'] >= t['top'][2]['log_probability']
    for x in d[0]['texts'] for t in x['logprobs'])"
lines "all(y['log_probability'] == t['log_probability']
    for x in d[0]['texts'] for t in x['logprobs'] for y in t['top'] if y['id'] == t['id'])"
mv out texts
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 -n4 --seed 5
python3 -c "
import json
print('\n---\n'.join('the number' + x['text'] for x in json.load(open('texts'))['texts']))" | cmp - out || fail "$(cat out)"
run 0 "$banyan" generate runs --batch four.txt --tokens 9 -n 2 --logprobs 0
lines "[x['texts'][0]['text'] for x in d] == [json.loads(x)['text'] for x in open('four')]"
lines "all(t['top'] == [] for x in d for y in x['texts'] for t in y['logprobs'])"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 3 --temperature 0 --logprobs 1 --json
lines "[t['id'] for t in d[0]['logprobs']] == [t['top'][0]['id'] for t in d[0]['logprobs']]"
run 0 "$banyan" generate --help
holds out "  -n N "

say "a search finds a text that is at least as probable as the greedy one"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 --beams 1 --json
mv out one
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 --beams 6 --json
lines "len(d[0]['hypotheses']) == 6 and all(x['tokens'] == len(x['text']) for x in d[0]['hypotheses'])"
lines "d[0]['hypotheses'][0]['log_probability'] >= json.load(open('one'))['hypotheses'][0]['log_probability']"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 9 --temperature 0 --json
lines "d[0]['text'] == json.load(open('one'))['hypotheses'][0]['text']"
for refused in '--stop x' '--kv int8'; do
    # shellcheck disable=SC2086
    run 2 "$banyan" generate runs --beams 4 $refused
    holds err "--beams cannot be combined with"
done

say "tokens that generation_config.json names end a text"
cp -r "$(ls -d runs/*/checkpoints/step-*)" model
for id in 0 1 2 3 4; do
    echo '{"eos_token_id": ['$id', '$id']}' >model/generation_config.json
    run 0 "$banyan" generate model --prompt 'the number' --tokens 60 --temperature 0 --json
    stop=$(python3 -c "import json; print(json.load(open('out'))['stop'])")
    [ "$stop" = end_of_text ] && break
done
[ "$stop" = end_of_text ] || fail "no token of five ended a text"
python3 -c "import json; print(json.dumps(json.load(open('out'))['text']))" >alone
cp model/generation_config.json settings.json
echo '{"eos_token_id": ['$id', 99999]}' >model/generation_config.json
run 0 "$banyan" generate model --prompt 'the number' --tokens 60 --temperature 0 --json
[ "$(python3 -c "import json; print(json.dumps(json.load(open('out'))['text']))")" = "$(cat alone)" ] || fail "another end"
echo '{"eos_token_id": ['$id', -2]}' >model/generation_config.json
run 1 "$banyan" generate model --prompt 'the number'
holds err 'model/generation_config.json: "eos_token_id" is ['$id', -2]: give the number of a token, which is at least 0'
mv settings.json model/generation_config.json
run 0 "$banyan" generate model --batch prompts.txt --tokens 50 --temperature 0
lines "d[0]['stop'] == 'end_of_text' and d[0]['text'] == json.load(open('alone'))"
run 0 "$banyan" generate model --prompt 'the number' --tokens 60 --temperature 0 --ignore-eos --json
lines "d[0]['stop'] == 'length'"

say "greedy text is that of one prompt"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 12 --temperature 0 --json
want=$(python3 -c "import json; print(json.load(open('out'))['text'])")
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --temperature 0
lines "d[0]['text'] == '$want'"

say "a stop string ends a text in front of it"
run 0 "$banyan" generate runs --batch prompts.txt --tokens 12 --sessions 3 --stop "$(python3 -c "
import json; print(json.loads(open('together').readline())['text'][4:6])")"
lines "d[0]['stop'] == 'stop_string' and len(d[0]['text']) <= 4 and len(d) == 4"

say "a prompt that cannot be taken in has an error in its line, and the others go on"
{ cat prompts.txt; awk 'BEGIN { for (i = 0; i < 30; i++) printf "number "; print "" }'; echo "the"; echo "@"; } >more.txt
run 1 "$banyan" generate runs --batch more.txt --tokens 12
lines "len(d) == 7 and 'context' in d[4]['error'] and d[5]['tokens'] == 12 and 'error' in d[6]"

say "texts that ended at a stop string do not go on when their prompt is done"
echo '{"eos_token_id": [14, 16, 20]}' >model/generation_config.json
for i in 1 2 3 4 5 6; do printf 'the number\nfollows\nthe\nb\n'; done >many.txt
set --
for c in ' ' - 0 1 2 3 4 5 6 7 8 9 b f l m n r s t u w "
"; do
    set -- "$@" --stop "$c"
done
run 0 "$banyan" generate model --batch many.txt --tokens 26 --sessions 4 --best-of 4 --temperature 9 --top-p 1 "$@" --verbose
lines "len(d) == 24 and {x['stop'] for x in d} <= {'stop_string', 'end_of_text'}"
generated=$(sed -n 's/.* prompts, \([0-9]*\) tokens,.*/\1/p' err)
[ "$generated" -le 144 ] || fail "$generated tokens were generated for 96 texts of one"

say "options of a line"
printf '%s\n' '{"prompt": "the number", "temperature": 0}' '{"prompt": "the number", "top_k": 1}' \
    '{"prompt": "the number", "seed": "18446744073709551615"}' >own.txt
run 0 "$banyan" generate runs --batch own.txt --tokens 12
lines "d[0]['text'] == d[1]['text'] == '$want'"
python3 -c "import json; print(json.loads(open('out').read().split('\n')[2])['text'])" >seeded
run 0 "$banyan" generate runs --prompt 'the number' --tokens 12 --no-prompt --seed 18446744073709551615
same out seeded

say "an interrupted run prints what is finished"
printf '%s\n' '{"prompt": "the", "tokens": 40}' '{"prompt": "the"}' '{"prompt": "the", "tokens": 2}' >long.txt
"$banyan" generate runs --batch long.txt --tokens 60000 --context 60010 >out 2>err &
background=$!
wait_for '"index":0' out
kill -TERM "$background"
wait "$background"
background=
lines "[x['index'] for x in d] == [0, 2] and d[1]['tokens'] == 2"

say "memory is that of the longest prompt and its text, not of the whole context"
run 0 "$banyan" generate runs --prompt 'the number' --tokens 12 --json
small=$(field memory_bytes <out)
run 0 "$banyan" generate runs --prompt 'the number' --tokens 12 --json --context 6400
[ "$small" -lt "$(field memory_bytes <out)" ] || fail "$small bytes"

say "what is refused"
echo '{"prompt": 3}' >wrong.txt
run 1 "$banyan" generate runs --batch wrong.txt
holds err "wrong.txt:1: not a JSON object with a string \"prompt\""
echo '{"prompt": "t", "tokens": 0}' >wrong.txt
run 1 "$banyan" generate runs --batch wrong.txt
holds err "\"tokens\" must be an integer of at least 1"
for key in tokns max_tokens; do
    printf 'the\n{"prompt": "t", "%s": 2}\n' $key >wrong.txt
    run 1 "$banyan" generate runs --batch wrong.txt
    holds err "wrong.txt:2: unknown key \"$key\"; keys are prompt, tokens, seed, temperature"
done
echo '{"prompt": "t", "seed": 18446744073709551615}' >wrong.txt
run 1 "$banyan" generate runs --batch wrong.txt
holds err "or a string of digits up to 2^64 - 1"
echo '{"prompt": "t", "temperature": -1}' >wrong.txt
run 1 "$banyan" generate runs --batch wrong.txt
holds err "wrong.txt:1: temperature -1"
: >empty.txt
run 2 "$banyan" generate runs --batch empty.txt
holds err "contains no prompt"
run 2 "$banyan" generate runs --batch nowhere.txt
holds err "nowhere.txt"
run 2 "$banyan" generate runs --batch prompts.txt --prompt a
holds err "--batch cannot be combined with --prompt"
for with in '--speculate ngram' '--kv int8' '--best-of 2' '--beams 2' '-n 2'; do
    # shellcheck disable=SC2086
    run 2 "$banyan" generate runs --prompt t --tokens 0 $with
    holds err "--tokens must be at least 1"
done
run 2 "$banyan" generate runs --prompt t --best-of 2 --sessions 9223372036854775807
holds err "--sessions '9223372036854775807' is not a whole number from 1 to 4096"
run 2 "$banyan" generate runs --prompt t -n 0
holds err "-n '0' is not a whole number of at least 1"
run 2 "$banyan" generate runs --prompt t -n 65
holds err "-n must be at most four times --sessions"
run 2 "$banyan" generate runs --prompt t -n x
holds err "-n 'x' is not a whole number"
run 2 "$banyan" generate runs --prompt t -n 2 --best-of 3
holds err "-n and --best-of cannot be combined"
run 2 "$banyan" generate runs --prompt t --logprobs 2
holds err "needs --json or --batch"
run 2 "$banyan" generate runs --prompt t --logprobs 21 --json
holds err "--logprobs '21' is not a whole number from 0 to 20"
