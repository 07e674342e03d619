#!/bin/sh
# Feedback that a gateway is given on an answer of another one: with Redis, and with a broker on this host, it is counted
# once, by the gateway that has answered.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
broker= first= second= worker=
on_exit=end_all
end_all() { kill -9 $broker $first $second $worker 2>/dev/null; }
# post URL KEY ROUTE BODY: the answer, which must be a 200, is in the file answer.
post() {
    curl -sS -o answer -w '%{http_code}\n' -H "Authorization: Bearer $2" -H 'Content-Type: application/json' \
        "$1$3" -d "$4" >code || fail "no answer: $*"
    [ "$(cat code)" = 200 ] || fail "$(cat code answer): $*"
}
# say_of URL KEY ID FIELDS: feedback, to which the answer is the same whichever gateway has answered.
say_of() {
    post "$1" "$2" /v1/feedback "{\"id\":\"$3\",$4}"
    [ "$(cat answer)" = "{\"id\":\"$3\",\"object\":\"feedback\"}" ] || fail "$(cat answer)"
}
# value URL NAME: of a metric whose sample has this in its name and labels, summed; "-": there is none.
value() {
    curl -sf -H "Authorization: Bearer watch" "$1/metrics" | awk -v name="banyan_feedback_$2" '
        index($0, name) == 1 { sum += $NF; found = 1 } END { print found ? sum : "-" }'
}
# counts NAME FIRST SECOND: what both gateways have counted, at last.
counts() {
    tries=0
    until got="$(value "$one" "$1") $(value "$two" "$1")" && [ "$got" = "$2 $3" ]; do
        tries=$((tries + 1))
        [ $tries -lt 3000 ] || fail "$1 is $got at the two gateways, not $2 $3"
        sleep 0.1
    done
}
unmatched() { counts "unmatched_total{reason=\"$1\"}" "$2" "$3"; }
errors() { counts 'errors_total{model="houses"' "$1" "$2"; }

awk 'BEGIN { print "rooms,age,price"; for (i = 0; i < 60; i++) print i % 7 "," i % 11 "," i % 7 + i % 11 }' >table.csv
cat >table.yaml <<END
name: houses
task: {kind: regress}
model: {kind: mlp, hidden: [8], activation: relu}
precision: {compute: f32}
data: {table: table.csv, target: price, valid_fraction: 0.2}
train: {steps: 5, batch: 8, threads: 1}
optimizer: {lr: 1e-2, warmup: 1}
run: {dir: runs}
END
run 0 "$banyan" train table.yaml --quiet
for client in app other watch; do
    echo "$(printf '%s' $client | sha256sum | cut -d ' ' -f 1) $client $([ $client = watch ] && echo metrics || echo inference)"
done >keys.txt
houses='{"model":"houses","rows":[{"rooms":1,"age":2},{"rooms":3,"age":4}]}'
none=00000000000000000000000000000000

# gateway NAME: with its address in the file NAME.
gateway() {
    # shellcheck disable=SC2086
    "$banyan" gateway $at --listen 127.0.0.1:0 --keys keys.txt --set "feedback.directory=$1.kept" >"$1" 2>"$1.log" &
}
# check_both: of a broker that $at names and start_broker starts.
check_both() {
    rm -rf one two one.kept two.kept
    start_broker
    gateway one
    first=$!
    gateway two
    second=$!
    # shellcheck disable=SC2086
    "$banyan" worker runs/houses $at --threads 1 2>worker.log &
    worker=$!
    background=$first
    wait_for http one
    background=$second
    wait_for http two
    background=
    one=$(cat one) two=$(cat two)
    for url in "$one" "$two"; do await_ready; done

    post "$one" app /v1/predict "$houses"
    id=$(field id <answer)
    say_of "$two" app "$id" '"index":0,"label":3'
    errors 1 -
    say_of "$two" app "$id" '"index":0,"label":4'
    unmatched repeated 1 0
    say_of "$one" app "$id" '"index":0,"label":3'
    unmatched repeated 2 0
    errors 1 -
    say_of "$two" app "$id" '"rating":0.5'
    counts 'version_rating_mean{model="houses"' 0.5 -
    # Whoever has another key has not been given this answer: where it is known so, and where it is not.
    curl -s -o answer -w '%{http_code}' -H "Authorization: Bearer other" -H 'Content-Type: application/json' \
        "$one/v1/feedback" -d "{\"id\":\"$id\",\"index\":1,\"label\":9}" >code
    [ "$(cat code)" = 404 ] || fail "$(cat code answer)"
    say_of "$two" other "$id" '"index":1,"label":9,"rating":-9'
    unmatched other_key 1 0
    # What was received is counted, and kept, where it was.
    counts 'version_rating_mean{model="houses"' 0.5 -
    counts 'total{kind="label"}' 1 3
    [ "$(wc -l <two.kept/feedback-000001.jsonl)" = 4 ] || fail "$(cat two.kept/*)"
    # An answer of a gateway that is gone, and one that its gateway does not know.
    say_of "$two" app "pred-$none" '"label":1'
    unmatched unknown_id 0 1
    say_of "$two" app "$(printf '%.13s%.24s' "$id" $none)" '"label":1'
    unmatched unknown_id 1 1

    # The client is answered while the broker is not.
    kill -STOP "$broker"
    say_of "$two" app "$id" '"index":1,"label":3'
    kill -9 "$broker"
    unmatched no_broker 0 1
    say_of "$two" app "$id" '"index":1,"label":3'
    unmatched no_broker 0 2
    errors 1 -
    start_broker
    for url in "$one" "$two"; do await_ready; done
    say_of "$two" app "$id" '"index":1,"label":3'
    errors 2 -
    kill -9 $broker $first $second $worker
    wait 2>/dev/null
}

say "a broker on this host"
at="--dir $work/sock"
start_broker() {
    "$banyan" broker --dir "$work/sock" 2>broker.log &
    broker=$!
}
check_both

command -v redis-server >/dev/null || {
    echo "the rest is skipped: redis-server is not installed"
    exit 0
}
say "Redis"
port=$(free_port)
at="--broker redis://127.0.0.1:$port"
start_broker() {
    redis-server --port "$port" --bind 127.0.0.1 --dir "$work" --save '' >/dev/null &
    broker=$!
}
check_both
