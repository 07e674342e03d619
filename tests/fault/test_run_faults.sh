#!/bin/sh
# What happens to a run from its surroundings: too little memory, signals, a second process, an index that
# vanishes, damaged checkpoints, a weights directory that is gone. Nothing that was learned is lost in silence.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 | sed "s|text.txt|$work/text.txt|; s|cache: cache|cache: $work/cache|" >c.yaml
# A run that is still going on when a signal comes, whatever the machine.
long="--set train.steps=100000 --set checkpoint.every=0 --set train.eval_every=0"

say "a plan that is larger than the memory: refused before anything is allocated, with what would fit"
run 1 "$banyan" train c.yaml --set model.layers=100 --set train.batch=131072 --set train.micro_batch=131072 --set name=large
holds out "activations"
holds err "the plan needs"
holds err "this would fit: "
[ ! -e runs/large ] || fail "a run directory was made"
fits=$(sed 's/.*this would fit: \([a-z_.]*=[0-9A-Za-z]*\).*/\1/' err)
run 0 "$banyan" info c.yaml --set model.vocab=60 --set model.layers=100 --set train.batch=131072 --set train.micro_batch=131072 --set "$fits"
run 1 "$banyan" bench train c.yaml --set model.layers=100 --set train.batch=131072 --set train.micro_batch=131072
holds err "the plan needs"

say "signals at the same moment, as timeout sends to a process and its group, are one request"
# shellcheck disable=SC2086
env --default-signal=HUP "$banyan" train c.yaml --json $long --set name=two >two.out 2>err &
background=$!
wait_for '"event":"train"' two.out
# Both come when it goes on.
kill -STOP "$background"
kill -TERM "$background"
kill -HUP "$background"
kill -CONT "$background"
wait "$background"
code=$?
background=
[ "$code" -eq 3 ] || fail "exit code $code after two signals: $(cat err)"
ls runs/two/checkpoints | grep -q step- || fail "nothing was saved"

say "an index of runs that another process locks all the time: the run is told, trains and saves"
mkdir locked
python3 -c '
import sqlite3, time
index = sqlite3.connect("locked/registry.sqlite", isolation_level=None)
index.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(600)' >holder &
background=$!
wait_for locked holder
run 0 "$banyan" train c.yaml --quiet --set run.dir=locked
holds err "locked/registry.sqlite: database is locked; the run continues without this index of runs"
[ "$(grep -c "without this index" err)" -eq 1 ] || fail "the message comes more than once: $(cat err)"
holds locked/tiny/run.json '"done"'
run 0 "$banyan" runs locked
holds out "tiny	done	20	20"
kill "$background"
wait "$background"
background=
run 0 "$banyan" train c.yaml --quiet --set run.dir=locked --set name=second
[ ! -s err ] || fail "$(cat err)"
run 0 "$banyan" runs locked
[ "$(grep -c "	done	20	20" out)" -eq 2 ] || fail "$(cat out)"

say "one process a run: a second one is told who holds it"
# shellcheck disable=SC2086
"$banyan" train c.yaml --json $long --set name=held >held.out 2>held.err &
background=$!
wait_for '"event":"train"' held.out
cp runs/held/config.yaml before.yaml
run 1 "$banyan" train --resume runs/held
holds err "runs/held is being trained by process $background on "
same before.yaml runs/held/config.yaml
run 0 "$banyan" runs --json --status running
holds out '"name":"held"'

say "the registry goes away in the middle of a run: the run goes on, and the index comes back"
rm runs/registry.sqlite
mkdir runs/registry.sqlite
kill -TERM "$background"
wait "$background"
[ $? -eq 3 ] || fail "$(cat held.err)"
background=
holds held.err "the run continues without this index"
rmdir runs/registry.sqlite
run 0 "$banyan" runs
grep -q "^held	stopped	" out || fail "held is not shown as stopped"
[ ! -e runs/registry.sqlite ] || fail "a reader made the registry"

say "a killed run is shown as killed"
# shellcheck disable=SC2086
train_until 3 KILL "$banyan" train c.yaml --json $long --set name=killed
run 0 "$banyan" runs
grep -q "^killed	killed	" out || fail "$(cat out)"
run 0 "$banyan" runs --status killed --json
holds out '"name":"killed"'

say "a name with a control character is none: it would leave its column"
run 2 "$banyan" train c.yaml --quiet --set "name=a	b"
holds err "name contains a control character (byte 0x09)"

say "a directory of runs that does not exist is not made"
run 2 "$banyan" runs nowhere
[ ! -e nowhere ] || fail "it was made"

say "a run without a checkpoint begins again only when told to"
cp runs/killed/config.yaml before.yaml
run 1 "$banyan" train --resume runs/killed --set train.steps=20
holds err "runs/killed ended before its first checkpoint; start again at step 0 with --from-start"
same before.yaml runs/killed/config.yaml
run 0 "$banyan" train --resume runs/killed --from-start --quiet --set train.steps=20
holds err "starting again at step 0"

say "a damaged newest checkpoint: which, why, and what is trained again"
run 0 "$banyan" train c.yaml --quiet --set name=whole
truncate -s 1000 runs/whole/checkpoints/step-00000020/model.safetensors
run 0 "$banyan" train --resume runs/whole --quiet
holds err "step-00000020/model.safetensors"
holds err "resuming from step 10; the 10 steps after it are trained again"

say "a path with a slash behind it, and the directory itself"
run 0 "$banyan" train --resume runs/whole/ --set train.steps=22 --json
(cd runs/whole && "$banyan" train --resume . --set train.steps=24 --quiet) || fail "--resume ."
holds runs/whole/run.json '"name": "whole"'
holds runs/whole/run.json '"step": 24'
run 2 "$banyan" train --resume runs/whole --set train.steps=10
holds err "runs/whole is at step 24, past train.steps 10; to continue, give more: --set train.steps=48"

say "another model is a wrong configuration, and nothing is rewritten"
cp runs/whole/config.yaml before.yaml
run 2 "$banyan" train --resume runs/whole --set model.layers=3
holds err "was trained with model.layers 2, not 3"
run 2 "$banyan" train --resume runs/whole --set model.norm_eps=1e-3
holds err "was trained with model.norm_eps 1e-05, not 0.001"
run 2 "$banyan" train --resume runs/whole --set attention.kind=window
holds err "was trained with attention.kind full, not window"
run 2 "$banyan" train --resume runs/whole --set model.kind=llama
holds err "model.kind"
same before.yaml runs/whole/config.yaml

say "a resumed run does not need the weights that it began with; info and bench train read their sizes"
cp -r runs/whole/checkpoints/step-00000024 weights
run 0 "$banyan" train c.yaml --quiet --set name=tuned --set model.from=weights --set model.layers=2
run 0 "$banyan" info runs/whole --json
layers=$(field parameters <out)
sed 's/layers: 2, heads: 4, width: 64, //' c.yaml >one.yaml
run 0 "$banyan" info one.yaml --json --set model.from=weights
[ "$(field parameters <out)" = "$layers" ] || fail "info: $(cat out)"
run 0 "$banyan" bench train one.yaml --json --steps 1 --set model.from=weights --set train.batch=1
rm -r weights
run 0 "$banyan" train --resume runs/tuned --quiet --set train.steps=22

say "the plan that info prints is that of the run"
run 0 "$banyan" info c.yaml --json
data=$(field data_bytes <out)
run 0 "$banyan" train c.yaml --set name=planned
sed -n 's/.*, data \([0-9.]* KiB\).*/\1/p' out >shown
[ "$(cat shown)" = "$(awk -v b="$data" 'BEGIN { printf "%.1f KiB", b / 1024 }')" ] || fail "$data, $(cat shown)"

say "an interrupt while packing: nothing to save, and nothing said of saving"
awk 'BEGIN { s = 1; for (i = 0; i < 3000000; i++) { s = (s * 1103515245 + 12345) % 2147483648; print s } }' >big.txt
"$banyan" train c.yaml --set data.text=big.txt --set data.tokenizer=bpe --set name=packing >out 2>err &
background=$!
wait_for_handlers
kill -TERM "$background"
wait "$background"
code=$?
background=
[ "$code" -eq 130 ] || fail "exit code $code: $(cat err)"
if grep -q saved out err; then fail "it says that something was saved"; fi

say "a run directory that is moved, or replaced, while it is trained: an error at the next save, and nothing is touched"
for case in gone replaced; do
    rm -f lines
    mkfifo lines
    "$banyan" train c.yaml --json --set name=moved --set train.steps=100000 --set checkpoint.every=50 \
        --set train.eval_every=0 >lines 2>err &
    background=$!
    while read -r line; do
        case $line in
        *'"event":"checkpoint"'*)
            [ ! -e runs/moved ] || [ -e "$case" ] || mv runs/moved "$case"
            [ "$case" = gone ] || [ -e runs/moved ] || cp -r runs/whole runs/moved
            ;;
        esac
    done <lines
    wait "$background"
    code=$?
    background=
    [ "$code" -eq 1 ] || fail "$case: exit code $code: $(cat err)"
    holds err "the run directory runs/moved was moved or removed while it was trained"
    exists "$case/config.yaml" "$case/checkpoints/step-00000050"
    if [ "$case" = gone ]; then
        [ ! -e runs/moved ] || fail "the directory was made again: $(ls -R runs/moved)"
    else
        diff -r runs/whole runs/moved || fail "another run was changed"
    fi
done
