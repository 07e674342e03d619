#!/bin/sh
# Runs are listed, shown, compared, tagged, exported, drawn together and followed while they train.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set name=small --set train.steps=6
run 0 "$banyan" train c.yaml --quiet --set name=large --set train.steps=6 --set model.width=96

say "show prints every fact, compare what differs"
run 0 "$banyan" runs show runs/small
for fact in run.status last.train.loss last.eval.valid_loss config.model.width environment.cpu; do
    grep -q "^$fact	." out || fail "show has no $fact"
done
run 0 "$banyan" runs show runs/small --json
[ "$(field config.model.width <out)" = 64 ] || fail "the width is not in the JSON"
run 0 "$banyan" runs compare runs/small runs/large
grep -q '^config.model.width	64	96$' out || fail "compare does not show the widths"
! grep -q '^config.model.layers' out || fail "compare shows what is equal"
run 0 "$banyan" runs compare runs/small runs/large --all --json
holds out '{"key":"config.model.layers","values":[2,2]}'

say "tags are set, removed and asked for"
run 0 "$banyan" runs tag runs/small base=yes note="a b"
run 0 "$banyan" runs tag runs/small note=
printf 'base\tyes\n' | same - out
run 0 "$banyan" runs ls --tag base=yes
[ "$(sed 1d out | cut -f 1)" = small ] || fail "ls --tag lists $(cat out)"
run 2 "$banyan" runs tag runs/small word
holds err "'word' is neither KEY=VALUE"

say "exports have a row for each run, and each number of the events"
run 0 "$banyan" runs export --out runs.csv
[ "$(wc -l <runs.csv)" -eq 3 ] || fail "runs.csv: $(cat runs.csv)"
head -n 1 runs.csv | grep -q '^run.name,run.path,.*config.model.width' || fail "runs.csv has no head"
run 0 "$banyan" runs export --out runs.jsonl
[ "$(grep -c '"config.model.width":' runs.jsonl)" -eq 2 ] || fail "runs.jsonl: $(cat runs.jsonl)"
run 0 "$banyan" runs export --series runs/small
[ "$(grep -c '^runs/small,train,[1-6],loss,' out)" -eq 6 ] || fail "series: $(cat out)"

say "charts of both runs in one file"
run 0 "$banyan" plot runs/small runs/large --show loss,norm,throughput,train.lr --out curves.svg
grep -q '<svg' curves.svg || fail "not an SVG"
[ "$(sed -n 's/.*<svg.* width="\([0-9]*\).*/\1/p' curves.svg)" -ge 2400 ] || fail "four charts are not in rows of two"
run 2 "$banyan" plot runs/small --show nothing
holds err "--show: 'nothing' is not loss"

say "watch shows a run that is over, and follows one to its end"
run 0 "$banyan" watch runs/small --once
holds out "runs/small  done  step 6 of 6 (100 %)"
"$banyan" train c.yaml --quiet --set name=live --set train.steps=400 --set train.eval_every=0 &
background=$!
for _ in $(seq 100); do
    [ ! -s runs/live/events.jsonl ] || break
    sleep 0.1
done
run 0 timeout 1700 "$banyan" watch runs/live --every 0.1s
wait "$background"
background=
holds out "runs/live  running  step"
holds out "runs/live  done  step 400 of 400"
