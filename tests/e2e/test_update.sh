#!/bin/sh
# Versions of a served model: deployed, checked, given a share of the requests or copies of them, rolled back, by hand and by
# themselves, while clients ask; not one of their requests fails. Workers that follow the load, down to none.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
client="$root/tests/e2e/update_client.py"
# begin_load [MODEL]
begin_load() {
    rm -f enough
    python3 "$client" load "$url" enough 300 "${1:-tiny}" >load.out 2>load.err &
    aside=$!
}
# end_load VERSIONS: every request was answered, by so many versions.
end_load() {
    : >enough
    wait "$aside" || { cat load.err load.out >&2; tail -n 20 log >&2; fail "requests have failed"; }
    aside=
    holds load.out '"failed": 0'
    [ "$(field versions <load.out)" = "$1" ] || fail "answers of other versions: $(cat load.out)"
}
deploy() { "$banyan" deploy --dir "$work/sock" "$@"; }
# is KEY VALUE FLAG...: what the status of a model says.
is() {
    key=$1
    value=$2
    shift 2
    deploy --status --json "$@" >status && [ "$(field "$key" <status)" = "$value" ]
}
until_is() {
    for _ in $(seq 3000); do
        is "$@" && return
        sleep 0.1
    done
    cat status >&2
    tail -n 20 log >&2
    fail "$1 is not $2"
}

make_text text.txt 400
tiny gpt2 >c.yaml
for run in tiny other; do
    run 0 "$banyan" train c.yaml --quiet --set name=$run --set model.context=128 --set train.batch=1 --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1 \
        --set seed=$([ $run = tiny ] && echo 1 || echo 2)
done
newest() { ls -d "$1"/checkpoints/step-* | tail -n 1; }
# break_weights RUN DIRECTORY: weights that are no numbers: every checksum is right, and the model is useless.
break_weights() {
    cp -r "$(newest "$1")" "$2"
    rm "$2/manifest.json"
    python3 - "$2/model.safetensors" <<'END'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
head = 8 + struct.unpack("<Q", data[:8])[0]
data[head:] = b"\xff\xff\xff\x7f" * ((len(data) - head) // 4)
open(sys.argv[1], "wb").write(data)
END
}
break_weights runs/other broken
# Two tables of other columns.
awk 'BEGIN { print "size,age,kind,price"; for (i = 0; i < 60; i++) print i % 7 "," i % 5 "," (i % 2 ? "flat" : "house") "," 3 * (i % 7) - i % 5 }' >houses.csv
sed '1s/age/rooms/' houses.csv >towns.csv
for table in houses towns; do
    cat >table.yaml <<END
name: $table
task: {kind: regress}
model: {kind: mlp, hidden: [16], activation: relu}
precision: {compute: f32}
data: {table: $table.csv, target: price, valid_fraction: 0.2}
train: {steps: 10, batch: 8}
run: {dir: runs}
END
    run 0 "$banyan" train table.yaml --quiet --set train.threads=1 --set optimizer.warmup=1
done

say "a version that serves, is replaced and comes back, under load"
serve_ready --workers 2
first=$(python3 "$client" answer "$url")
begin_load
run 0 deploy runs/other
holds out "is live, from $work/runs/other"
is previous_path runs/tiny && is path "$work/runs/other" || fail "the status does not name the runs: $(cat status)"
second=$(python3 "$client" answer "$url")
[ "$first" != "$second" ] || fail "both versions have the same answer"
run 1 deploy runs/other
holds err "is already live"
run 0 deploy --rollback
live=$(sed -n 's/ is live.*//p' out)
curl -sS "$url/metrics" >shares
grep "^banyan_version_share{.*version=\"$live\"} 1" shares >share || fail "the metrics lag behind: $(grep version_share shares)"
[ "$(python3 "$client" answer "$url")" = "$first" ] || fail "the former version has another answer"
# Nothing is older: a second roll-back does not go forward again.
run 1 deploy --rollback
holds err "has served no version before step-00000002-"
is path runs/tiny || fail "a second roll-back has changed the version: $(cat status)"
say "what fails is rolled back: weights, a path, an order"
run 1 deploy broken
holds err "golden request"
run 1 deploy runs/houses --canary 30%
holds err "it answers other requests: it reads rows of a table, not text"
run 1 deploy "$work/none"
holds err "there is no such run"
say "values out of range, and 0 that means 0"
run 2 deploy runs/other --hold -5
holds err "--hold '-5' is not a time from 0s to 10000000s"
for wrong in "errors 7" "slower 0.1"; do
    # shellcheck disable=SC2086
    run 2 deploy runs/other --$wrong
    holds err "$wrong: give"
done
run 1 deploy --detach
holds err "is already live"
say "copies, then a share"
deploy runs/other --shadow --canary 30% --hold 2 --slower 1000000 >deployed 2>phases || { cat phases >&2; tail log >&2; fail "it was not deployed"; }
for phase in "checking" "shadow 0 %" "canary 30 %" "canary 50 %"; do holds phases "$phase"; done
grep -q '"process_ended","role":"worker"' log || fail "no worker of a former version has ended"
say "a worker of each version is killed in the middle of a canary"
# Its first texts wait for a worker that starts again: that is no reason here.
canaries() { grep -c '"event":"deploy_phase".*"canary"' log; }
former=$(canaries)
deploy runs/tiny --canary 50% --hold 4 --slower 1000000 --detach >status
until [ "$(canaries)" -gt "$former" ]; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 log >&2; fail "the server has ended"; }
    sleep 0.1
done
kill -9 $(ps -o pid=,args= --ppid "$server" | awk '/ worker / { print $1 }' | sed -n '1p;$p')
until_is phase ""
until_is outcome deployed
end_load 2
curl -sf "$url/metrics" >metrics
grep -q 'banyan_version_requests_total{model="tiny",version="step-00000002-' metrics || fail "no counters of versions"

say "SIGHUP brings a new checkpoint of the run, and training leaves the one that serves"
before=$(field version <status)
# The best one would stay anyway.
rm -f runs/tiny/checkpoints/best.json
run 0 "$banyan" train --resume runs/tiny --quiet --set train.steps=3 --set checkpoint.keep=1
[ -d runs/tiny/checkpoints/step-00000002 ] || fail "the checkpoint that serves was removed"
kill -9 $(ps -o pid=,args= --ppid "$server" | awk '/ worker / { print $1 }')
python3 "$client" answer "$url" >/dev/null || fail "no worker has come again"
kill -HUP "$server"
for _ in $(seq 3000); do
    is version "$before" || break
    sleep 0.1
done
case $(field version <status) in step-00000003-*) ;; *) fail "$(cat status)" ;; esac
# A checkpoint that is damaged is not passed over in silence.
cp -r runs/tiny/checkpoints/step-00000003 runs/tiny/checkpoints/step-00000004
run 1 deploy
holds err "is already live; a newer checkpoint was skipped: "
holds err "step-00000004: its manifest is that of step 3"
grep '"event":"not_deployed"' log | tail -n 1 | grep -q "step-00000004: its manifest" || fail "$(grep not_deployed log)"
rm -r runs/tiny/checkpoints/step-00000004
run 0 deploy --rollback
is version "$before" || fail "$(cat status)"
run 0 deploy --rollback
is path "$work/runs/other" || fail "a second roll-back is not one further back: $(cat status)"
stop
run 0 "$banyan" checkpoint prune runs/tiny --keep 1
[ ! -d runs/tiny/checkpoints/step-00000002 ] || fail "a server that has ended keeps a checkpoint"

say "an adapter that was trained again is another version, and a deployment names its adapter"
for name in adapted again; do
    run 0 "$banyan" train c.yaml --quiet --set name=$name --set model.from="$(newest runs/other)" --set model.context=128 --set lora.rank=2 \
        --set optimizer.lr=1 --set train.batch=1 --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1 --set seed=$([ $name = again ] && echo 5 || echo 6)
done
cp -r "$(newest runs/adapted)" adapter
serve_models tiny=runs/other+adapter
await_ready
adapted=$(python3 "$client" answer "$url")
run 1 deploy
holds err "is already live"
cp "$(newest runs/again)"/adapter_* adapter/
run 0 deploy
again=$(python3 "$client" answer "$url")
run 0 deploy runs/other
plain=$(python3 "$client" answer "$url")
[ "$plain" = "$second" ] || fail "without the adapter: $plain, not $second"
[ "$adapted" != "$again" ] && [ "$plain" != "$again" ] && [ "$plain" != "$adapted" ] || fail "answers: $adapted, $again, $plain"
run 0 deploy runs/other+adapter
[ "$(python3 "$client" answer "$url")" = "$again" ] || fail "the adapter is not the one that was named"
run 1 deploy runs/other+nothing
holds err "/nothing: there is no such directory of an adapter"
stop

say "a table: a golden row, and columns that stay what they are unless that is intended"
break_weights runs/houses broken-houses
cp -r "$(newest runs/houses)" same
serve_models m=runs/houses
await_ready
predicts() { curl -sf "$url/v1/predict" -H "Content-Type: application/json" -d "{\"model\": \"m\", \"rows\": [{\"size\": 3, \"$1\": 2, \"kind\": \"flat\"}]}" >out; }
run 1 deploy broken-houses
holds err "the predictions of the golden request are not finite"
run 1 deploy runs/towns
holds err "it answers other requests: it reads no column 'age'"
predicts age || fail "the live version does not answer"
run 0 deploy same
run 0 deploy runs/towns --force
predicts rooms || fail "the forced version does not answer: $(tail log)"
run 0 deploy --rollback
predicts age || fail "the former version does not answer"
stop

say "each of several models is deployed by its name"
serve_models first=runs/houses m=runs/towns
await_ready
run 1 deploy same
holds err "several models are served: name one of first, m"
run 1 deploy same --name other
holds err "no model other is served"
run 1 deploy same --name m
holds err "it answers other requests"
run 0 deploy same --name m --force
holds log '"event":"deployed","model":"m","version":"same-'
predicts age || fail "the second model is not the one that was deployed"
deploy --status --json --name first >status
case $(field version <status) in step-*) ;; *) fail "the first model has changed: $(cat status)" ;; esac
run 0 deploy --rollback --name m
predicts rooms || fail "the second model is not the former one"
stop

say "none while nothing comes, more than one under load, then fewer"
cat >serve.yaml <<END
worker: {count: 0, max_rate: 6, sessions: 4}
scaling: {most: 3, calm: 1, idle: 100}
END
run 0 "$banyan" serve --config serve.yaml --check
serve_ready --config serve.yaml --idle 1
until_is workers 0
curl -sf "$url/health/ready" >/dev/null || fail "a server that starts workers for requests is ready"
python3 "$client" answer "$url" >/dev/null || fail "a request does not start a worker"
begin_load
until grep -q '"event":"scale","model":"tiny","from":[12],"to":[23]' log; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 log >&2; fail "the server has ended"; }
    kill -0 "$aside" 2>/dev/null || { cat load.err load.out >&2; fail "no worker was added: $(grep '"scale"' log)"; }
    sleep 0.1
done
end_load 1
until_is workers 0
stop

say "of several models, each follows its own load, and all together stay below their total"
sed -i 's/most: 3/most: 3, total: 2/' serve.yaml
serve_models first=runs/tiny second=runs/other --config serve.yaml --idle 1
await_ready
begin_load second
until_is workers 0 --name first
until_is workers 2 --name second
until_is needed 3 --name second
curl -sf "$url/v1/completions" -H "Content-Type: application/json" -d '{"model": "first", "prompt": "apple", "max_tokens": 1}' >out ||
    fail "a model that was stopped does not answer while another one needs all workers"
end_load 1
until_is workers 0 --name second
grep '"event":"scale"' log >scaled
for change in '"first","from":1,"to":0' '"second","from":1,"to":2' '"first","from":0,"to":1' '"second","from":2,"to":1'; do
    holds scaled "\"model\":$change"
done
# Not even while one ends and another one starts.
awk '/"event":"process","role":"worker"/ && ++count > 2 { exit 1 } /"event":"process_ended","role":"worker"/ { count-- }' log ||
    fail "more than 2 workers at a time: $(grep -e '"role":"worker"' -e '"scale"' log)"
stop
run 1 "$banyan" deploy --status --dir "$work/sock"
holds err "no \`banyan serve\` answers"
