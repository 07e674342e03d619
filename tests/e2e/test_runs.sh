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

say "a list in the order of a metric, in columns on a terminal"
names() { sed 1d out | cut -f 1 | paste -s -d ' '; }
# Seven significant digits: the zeros after the point of a number below one do not count.
readable() { ! grep -q '[0-9]\.0*[1-9][0-9]\{7\}' out || fail "more digits than people read: $(cat out)"; }
run 0 "$banyan" runs ls --sort model.width --reverse
[ "$(names)" = "large small" ] || fail "$(cat out)"
run 0 "$banyan" runs ls --sort valid_loss
sorted=$(sed 1d out | cut -f 7 | sort -n)
[ "$(sed 1d out | cut -f 7)" = "$sorted" ] || fail "not in order of valid_loss: $(cat out)"
readable
run 0 "$banyan" runs compare runs/small runs/large
readable
run 0 "$banyan" runs ls --sort config.model.width --json
[ "$(field name <out | paste -s -d ' ')" = "small large" ] || fail "$(cat out)"
holds out '"config.model.width":64'
run 2 "$banyan" runs ls --sort sharpness
holds err "no run has 'sharpness'"
python3 - "$banyan" runs ls >out <<'END' || fail "no terminal"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b""
try:
    while block := os.read(fd, 4096):
        text += block
except OSError:  # the end of a terminal
    pass
sys.stdout.write(text.decode().replace("\r", ""))
END
grep -q '^name   status  step  steps  best_loss  updated$' out || fail "no columns: $(cat out)"
grep -q '^small  done    6     6 ' out || fail "no columns: $(cat out)"

say "what an action lacks is said"
run 2 "$banyan" runs compare runs/small
holds err "compare RUN RUN..., two runs or more"
run 2 "$banyan" runs show
holds err "banyan runs show RUN"

say "exports have a row for each run, and each number of the events"
run 0 "$banyan" runs export --out runs.csv
holds err "wrote runs.csv"
[ "$(wc -l <runs.csv)" -eq 3 ] || fail "runs.csv: $(cat runs.csv)"
head -n 1 runs.csv | grep -q '^run.name,run.path,.*config.model.width' || fail "runs.csv has no head"
run 0 "$banyan" runs export --out runs.jsonl
[ "$(grep -c '"config.model.width":' runs.jsonl)" -eq 2 ] || fail "runs.jsonl: $(cat runs.jsonl)"
run 2 "$banyan" runs export --out runs.xlsx
holds err "FILE.csv, or FILE.jsonl"
[ ! -e runs.xlsx ] || fail "an unknown format is written"
run 2 "$banyan" runs export --series runs/small --out numbers
run 0 "$banyan" runs export --series runs/small --out numbers.jsonl
[ "$(grep -c '"event":"train","step":[1-6],"key":"loss","value":' numbers.jsonl)" -eq 6 ] || fail "$(cat numbers.jsonl)"
run 0 "$banyan" runs export --series runs/small
[ "$(grep -c '^runs/small,train,[1-6],loss,' out)" -eq 6 ] || fail "series: $(cat out)"

say "charts of both runs in one file"
run 0 "$banyan" plot runs/small runs/large --show loss,norm,throughput,train.lr --out curves.svg
grep -q '<svg' curves.svg || fail "not an SVG"
holds err "wrote curves.svg"
[ "$(sed -n 's/.*<svg.* width="\([0-9]*\).*/\1/p' curves.svg)" -ge 2400 ] || fail "four charts are not in rows of two"
holds runs/small/environment.json '"loss": "cross-entropy (nats per token)"'
run 2 "$banyan" plot runs/small --show nothing
holds err "--show: 'nothing' is not loss"

say "watch shows a run that is over, and follows one to its end"
run 0 "$banyan" watch runs/small --once
holds out "runs/small  done  step 6 of 6 (100 %)"
"$banyan" train c.yaml --quiet --set name=live --set train.steps=400 --set train.eval_every=0 &
background=$!
until [ -s runs/live/events.jsonl ]; do
    kill -0 "$background" 2>/dev/null || fail "the run ended before its first event"
    sleep 0.1
done
run 0 timeout 6800 "$banyan" watch runs/live --every 0.1s
wait "$background"
background=
holds out "runs/live  running  step"
holds out "runs/live  done  step 400 of 400"

say "a run that is resumed with another config tells both, and where the change was"
run 0 "$banyan" train c.yaml --quiet --set name=changed --set train.steps=6
cp runs/changed/config.yaml first.yaml
run 0 "$banyan" train --resume runs/changed --set train.steps=8 --set optimizer.lr=1e-3
holds err "optimizer.lr: 0.001, was 0.003"
same first.yaml runs/changed/config.yaml
holds runs/changed/config-00000006.yaml "  lr: 0.001"
holds runs/changed/events.jsonl '{"event":"config","step":6,"changes":"train.steps: 8, was 6; optimizer.lr: 0.001, was 0.003"'
run 0 "$banyan" train --resume runs/changed --set train.steps=8
[ "$(grep -c '"event":"config"' runs/changed/events.jsonl)" -eq 1 ] || fail "a change is recorded twice"
run 0 "$banyan" train --resume runs/changed --quiet --set train.steps=9
run 0 "$banyan" runs show runs/changed
grep -q '^config.optimizer.lr	0.003; from step 6: 0.001$' out || fail "$(grep lr out)"
grep -q '^config.train.steps	6; from step 6: 8; from step 8: 9$' out || fail "$(grep steps out)"
run 0 "$banyan" runs compare runs/small runs/changed
grep -q '^config.optimizer.lr	0.003	0.003; from step 6: 0.001$' out || fail "$(cat out)"
run 0 "$banyan" train --resume runs/changed --quiet --set train.steps=10
holds runs/changed/config-00000009.yaml "  lr: 0.001"

say "deletion is confirmed, and spares what is used"
run 2 "$banyan" runs delete runs/changed
holds err "add --yes"
exists runs/changed/config.yaml
run 2 "$banyan" runs delete runs --yes
holds err "not a run directory"
run 0 "$banyan" train c.yaml --quiet --set name=tuned --set model.from=runs/small/checkpoints/step-00000006 --set train.steps=6
run 1 "$banyan" runs delete runs/small --yes
holds err "runs/tuned, whose config names it"
ln -s changed runs/link
run 2 "$banyan" runs delete runs/link --yes
holds err "is a link"
rm runs/link
"$banyan" train c.yaml --quiet --set name=busy --set train.steps=100000 --set train.eval_every=0 &
background=$!
until [ -s runs/busy/events.jsonl ]; do
    kill -0 "$background" || fail "the run has ended"
    sleep 0.05
done
run 1 "$banyan" runs delete runs/busy --yes
holds err "is being trained"
kill -9 "$background"
wait "$background" 2>/dev/null
background=
run 0 "$banyan" runs delete runs/tuned runs/changed runs/busy --yes
[ "$(ls -A runs | paste -s -d ' ')" = "large live registry.sqlite small" ] || fail "left: $(ls -A runs)"
run 0 "$banyan" runs ls
if grep -q changed out; then fail "the index has a run that is gone"; fi

say "an MLflow server whose first answer is lost has the run once, and ended"
for fault in lost late; do
    python3 "$root/tests/e2e/slow_mlflow.py" "server.$fault" $fault >port &
    background=$!
    until [ -s port ]; do
        kill -0 "$background" || fail "no server"
        sleep 0.05
    done
    rm -f runs/small/mlflow.json
    run 1 "$banyan" runs sync runs/small --server "http://127.0.0.1:$(cat port)"
    run 0 "$banyan" runs sync runs/small --server "http://127.0.0.1:$(cat port)"
    kill "$background"
    wait "$background" 2>/dev/null
    background=
    [ "$(grep -c active "server.$fault")" -eq 1 ] || fail "$fault: $(cat "server.$fault")"
    grep -q 'FINISHED active' "server.$fault" || fail "$fault: $(cat "server.$fault")"
    rm port
done
