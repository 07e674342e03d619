#!/bin/sh
# Predictions of a language model: a document's loss is what evaluation of it alone gives.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
make_text text.txt 400
run 0 "$banyan" train c.yaml --quiet
head -n 3 text.txt | awk '{ printf "{\"text\":\"%s %s %s\"}\n", $0, $0, $0 }' >documents.jsonl
printf '{"text":"a"}\n' >>documents.jsonl

say "one line a document"
run 0 "$banyan" predict runs/tiny documents.jsonl
[ "$(wc -l <out)" = 4 ] || fail "$(cat out)"
cp out lines
[ "$(tail -n 1 lines)" = '{"index":3,"loss":null,"perplexity":null,"tokens":0}' ] || fail "$(tail -n 1 lines)"

say "the loss is that of evaluation"
for i in 1 2 3; do
    sed -n "${i}p" documents.jsonl >one.jsonl
    run 0 "$banyan" eval runs/tiny --data one.jsonl --json
    near "$(field valid_loss <out)" "$(sed -n "${i}p" lines | field loss)" 1e-5
    [ "$(field tokens <out)" = "$(sed -n "${i}p" lines | field tokens)" ] || fail "other tokens: $(cat out)"
done

say "CSV, standard input, and what is wrong"
run 0 "$banyan" predict runs/tiny - --csv <text.txt
[ "$(head -n 1 out)" = index,loss,perplexity,tokens ] || fail "$(head -n 1 out)"
run 0 "$banyan" predict --help
holds out "read in windows"
tr '\n' ' ' <text.txt >long.txt
run 0 "$banyan" predict runs/tiny long.txt
[ "$(field tokens <out)" = $(($(wc -c <long.txt) - 1)) ] || fail "a text of many windows: $(cat out)"
cp out plain

say "on a terminal, how much of a long text was read"
python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$banyan" predict runs/tiny long.txt >out </dev/null
holds out "read  17 windows of 64 tokens"
sed 's/.*K{/{/' out | tr -d '\r' | same - plain
run 2 "$banyan" predict runs/tiny
run 2 "$banyan" predict runs/tiny nosuchfile
