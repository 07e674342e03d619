#!/bin/sh
# A Redis server as the broker: a gateway and workers that only meet there, behind a password; answers, tasks and
# clients that go away as with the embedded broker, and a worker that goes in order leaves nothing behind.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
client="$root/tests/e2e/serve_client.py"
command -v redis-server >/dev/null || {
    echo "skipped: redis-server is not installed"
    exit 77
}
gateway= first= second= third=
on_exit=end_all
end_all() {
    end_server
    kill -9 $gateway $first $second $third 2>/dev/null
    [ ! -s redis.pid ] || kill -9 "$(cat redis.pid)" 2>/dev/null
}
check() { python3 "$client" "$@" || { tail -n 20 gateway.log first.log >&2; fail "$*"; }; }
ask() { redis-cli -p "$port" "$@" 2>/dev/null; }

make_text text.txt 400
echo "0123456789" >>text.txt
train_tiny

say "an address that is wrong, and a server that is not there"
run 2 "$banyan" gateway --broker redis://h:x --listen 127.0.0.1:0
holds err "its port is not a number"
run 2 "$banyan" gateway --broker rediss://h --listen 127.0.0.1:0
holds err "run stunnel on this host"
run 2 "$banyan" gateway --broker 10.0.0.1:6379 --listen 127.0.0.1:0
holds err "must be redis://HOST"
port=$(free_port)
export REDISCLI_AUTH=secret
broker="redis://127.0.0.1:$port/2?queue=64"
traces=$(free_port)
"$banyan" gateway --broker "$broker" --listen 127.0.0.1:0 --traces "http://127.0.0.1:$traces/v1/traces" \
    >url 2>gateway.log &
gateway=$!
background=$gateway
wait_for http url
url=$(cat url)
curl -s "$url/health/ready" >answer && holds answer "not ready"
wait_for "\"reason\":\"redis://127.0.0.1:$port/2: cannot reach Redis: Connection refused\"" gateway.log

say "it comes, with a password"
redis-server --port "$port" --bind 127.0.0.1 --daemonize yes --dir "$work" --pidfile "$work/redis.pid" --save '' \
    --requirepass secret >/dev/null
env -u REDISCLI_AUTH "$banyan" worker runs/tiny --broker "redis://:secret@${broker#redis://}" --threads 1 2>first.log &
first=$!
echo secret >password
env -u REDISCLI_AUTH "$banyan" worker runs/tiny --broker "$broker&password_file=password" --threads 1 2>second.log &
second=$!
check ready "$url"
until [ "$(ask -n 2 zcard banyan:alive)" = 2 ]; do sleep 0.1; done
! grep -q secret "/proc/$first/cmdline" || fail "a list of processes shows the password"
# The first of all: spans of other requests would find no collector.
python3 "$root/tests/e2e/trace_client.py" "$url" "$traces" || fail "traces"
# Whose trace it is travels by Redis; a worker's log tells it of what is sampled.
cat first.log second.log >workers.log
! grep sandbox_violation workers.log || fail "a worker asks for what it gave up"
[ "$(grep '"event":"traced_request"' workers.log | grep -c '"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"')" = 1 ] ||
    fail "a trace is not in the log: $(cat workers.log)"
! grep -q 5bf92f3577b35da6a3ce929d0e0e5736 workers.log || fail "a trace that is not sampled is in the log"
holds gateway.log "\"event\":\"broker_back\",\"broker\":\"redis://127.0.0.1:$port/2\""
for what in answers errors connection cancel tasks; do check "$what" "$url"; done
REDISCLI_AUTH=other "$banyan" worker runs/tiny --broker "$broker" --threads 1 2>third.log &
background=$!
wait_for WRONGPASS third.log
kill -TERM $background && wait $background
background=

say "a load, and a worker that goes in the middle of it"
"$banyan" bench serve "$url" --model tiny --requests 60 --concurrency 8 --prompt-tokens 5 --tokens 300 \
    --vocab 20 --json >out 2>err &
background=$!
until [ "$(ask -n 2 hget banyan:model:tiny ended)" -gt 20 ]; do sleep 0.02; done
kill -TERM $second
wait $second || fail "the worker ended with an error: $(cat second.log)"
second=
wait $background || fail "the load: $(cat err)"
background=
holds out '"requests":60,"ok":60,"refused":0,"failed":0,'
[ "$(ask -n 2 zcard banyan:alive)" = 1 ] || fail "the worker is still known"
[ "$(ask -n 2 xpending banyan:queue:tiny:normal workers | head -n 1)" = 0 ] || fail "something is pending"

say "a server with the password in its address shows it to nobody"
own=$url
unset REDISCLI_AUTH
serve --set "broker.address=redis://:secret@${broker#redis://}"
check ready "$url"
for process in "$server" $(ps -o pid= --ppid "$server"); do
    ! grep -q secret "/proc/$process/cmdline" || fail "a list of processes shows the password: $process"
done
stop
url=$own
export REDISCLI_AUTH=secret

say "the script: one result of many deliveries, and the end of a request that kills workers"
broker_script >script.lua
script_port=$port
# claims WANTED WORKER: what the worker takes of what another has left.
claims() { answers "$1" take "$2" m v 4 1 3 99; }
# counts MODEL VERSION WANTED: requests that wait, their cost, sequences that wait at each level, those at workers, and so far
# requests that came and that were refused, and sequences that have ended.
counts() {
    got=$({
        ask -n 5 hmget "banyan:model:$1" n cost w1 w2 w3
        ask -n 5 hmget "banyan:version:$2:$1" b
        ask -n 5 hmget "banyan:model:$1" arrived refused ended
    } | sed 's/^$/0/' | paste -s -d ' ')
    [ "$got" = "$3" ] || fail "the counts of $1 are '$got', not '$3'"
}
again() { answers "*" bye "$1" && sleep 0.02; }
answers "starting" submit a m 2 5 1 60000 g 0 0 1 1000 99 wait '' 0 '{}'
answers "" hello w1 m v '{}'
answers "" beat w1 m v '{"model":"m","version":"v"}'
answers "unknown" submit a other 2 5 1 60000 g 0 0 1 1000 99 wait '' 0 '{}'
answers "task t1 queued *" task_add t1 o1 key m 2 5 1 60000 0 1 1000 99 wait 99 1000000 '{}' '{"r":1}'
answers "task t1 queued *" task_add t2 o1 key m 2 5 1 60000 0 1 1000 99 wait 99 1000000 '{}' '{"r":1}'
answers "full 1" task_add t3 o1 "" m 2 5 1 60000 0 1 1000 99 wait 99 1000000 '{}' '{"r":1}'
counts m v "1 5 0 1 0 0 2 1 0"
answers "full 1" submit a m 2 5 1 60000 g 0 0 1 1000 99 wait '' 0 '{}'
answers 't1 1 * 1 {"r":1}' take w1 m v 4 0 3 99
answers "" beat w1 m v '{"model":"m","version":"v"}' t1 1
counts m v "0 0 0 0 0 1 3 2 0"
# In front of a request: what is at workers (t1, of 1 sequence), and what waits at its level and above.
answers "wait 1" submit a m 2 5 1 60000 g 0 0 9 1000 1 wait '' 0 '{}'
answers "task low queued *" task_add low o1 "" m 3 5 7 60000 0 9 1000 9 late 99 1000000 '{}' '{"r":2}'
answers "late 8" task_add t3 o1 "" m 3 5 1 60000 0 9 1000 8 late 99 1000000 '{}' '{"r":1}'
answers "wait 1" submit a m 2 5 1 60000 g 0 0 9 1000 1 wait '' 0 '{}'
counts m v "1 5 0 0 7 1 7 5 0"
# Of a request that was refused no part is let in, also where one has come to an end meanwhile.
answers "wait 1" submit parts-0 m 2 5 1 60000 g 0 0 9 1000 1 wait '' 0 '{}'
answers "wait 1" submit parts-1 m 2 5 1 60000 g 0 0 9 1000 99 wait '' 0 '{}'
counts m v "1 5 0 0 7 1 9 7 0"
# Of the lowest level a worker takes what it has sessions for.
answers "" take w1 m v 4 0 3 0
answers "task low cancelled *" task_cancel low o1
counts m v "0 0 0 0 0 1 9 7 0"
again w1
answers "" take w2 m v 4 0 3 99
claims 't1 2 * 1 {"r":1}' w2
answers "t1 1" beat w1 m v '{"model":"m","version":"v"}' t1 1
answers "t1 1" events t1 1 more '' '{}'
answers "t1 1" task_end t1 1 completed end '{"a":1}' ''
answers "" task_end t1 2 completed end '{"a":2}' ''
answers "t1 2" task_end t1 2 completed end '{"a":3}' ''
answers 'task t1 completed * 2 {} {"a":2}*' task_get t1 o1
answers "none" task_get t1 o2
# An owner's responses replace the oldest of them that have ended; its tasks are refused.
answers "task task_a queued *" task_add task_a o3 "" s 2 5 1 60000 1 9 1000 99 wait 1 1000000 '{}' '{"r":1}'
answers "stored" task_add task_b o3 "" s 2 5 1 60000 1 9 1000 99 wait 1 1000000 '{}' '{"r":1}'
answers "task task_b queued *" task_add task_b o4 "" s 2 5 1 60000 1 9 1000 99 wait 1 1000000 '{}' '{"r":1}'
answers "task task_a cancelled *" task_drop task_a o3
answers "task task_a cancelled *" task_get task_a o3
answers "task task_a cancelled *" task_drop task_a o3
answers "none" task_get task_a o3
answers "task task_c queued *" task_add task_c o3 "" s 2 5 1 60000 1 9 1000 99 wait 1 1000000 '{}' '{"r":1}'
answers "task resp_a queued *" task_add resp_a o3 "" s 2 5 1 60000 1 9 1000 99 wait 2 1000000 '{}' '{"r":1}'
answers "task resp_b completed *" task_keep resp_b o3 60000 2 1000000 '{}' '{"a":1}'
answers "task resp_c completed *" task_keep resp_c o3 60000 2 1000000 '{}' '{"a":1}'
answers "none" task_get resp_b o3
answers "task resp_a queued *" task_get resp_a o3
answers "stored" task_keep resp_d o3 60000 1 1000000 '{}' '{"a":1}'
# What has expired does not count.
sleep 0.01
answers "task resp_e completed *" task_keep resp_e o5 1 1 1000000 '{}' '{"a":1}'
sleep 0.01
answers "task resp_f completed *" task_keep resp_f o5 60000 1 1000000 '{}' '{"a":1}'
for id in task_b task_c resp_a; do answers "task $id cancelled *" task_delete "$id" "$([ "$id" = task_b ] && echo o4 || echo o3)"; done
# A gateway that nobody listens for has gone: its request is not begun.
answers "ok" submit a m 2 5 1 60000 g 0 0 1 1000 99 wait '' 0 '{}'
answers "" take w1 m v 4 0 3 99
answers "task t4 queued *" task_add t4 o1 "" m 1 5 1 60000 0 1 1000 99 wait 99 1000000 '{}' '{"r":4}'
answers 't4 1 * 1 {"r":4}' take w1 m v 4 0 3 99
for lost in 2 3; do
    again w1
    claims "t4 $lost * 1 {\"r\":4}" w1
done
again w1
claims "" w1
answers 'task t4 failed * 3 {}*its worker was lost 3 times*' task_get t4 o1
ask -n 5 xrange banyan:dead - + | paste -s >dead
holds dead "its worker was lost 3 times"
# t1 has ended; t4 was at three workers, and at none when it ended; nobody began a.
counts m v "0 0 0 0 0 0 11 7 1"
# A time in which nobody has called, here each, is no silence of workers.
answers "task t5 queued *" task_add t5 o1 "" m 1 5 2 60000 0 1 1000 99 wait 99 1000000 '{}' '{"r":5}'
answers 't5 1 *' take w1 m v 4 0 3 99
broker_script -1 >pausing.lua
[ -z "$(redis-cli -p "$port" -n 5 --eval pausing.lua , take w2 m v 4 1 3 99)" ] || fail "a pause is a silence"
claims 't5 2 *' w2
counts m v "0 0 0 0 0 2 12 7 1"
answers "task t5 cancelled *" task_cancel t5 o1
counts m v "0 0 0 0 0 0 12 7 3"
# What a client gives up, what comes again, and what is late.
redis-cli -p "$port" subscribe banyan:to:g >told 2>/dev/null &
background=$!
wait_for subscribe told
answers "ok" submit given m 1 5 3 60000 g 0 0 9 1000 99 wait '' 0 '{}'
answers "" cancel given g
counts m v "0 0 0 0 0 0 13 7 3"
answers "ok" submit given m 1 5 3 60000 g 0 0 9 1000 99 wait '' 0 '{}'
answers "given 1 *" take w1 m v 4 0 3 99
answers "ok" submit given m 1 5 3 60000 g 0 1 9 1000 0 wait '' 0 '{}'
counts m v "1 5 3 0 0 0 14 7 3"
answers "given 3 *" take w1 m v 4 0 3 99
answers "" events given 3 end '' 'a text'
counts m v "0 0 0 0 0 0 14 7 6"
answers "ok" submit late m 2 5 3 1 g 0 0 9 1000 99 wait '' 0 '{}'
answers "" take w1 m v 4 1 3 99
counts m v "0 0 0 0 0 0 15 7 6"
kill $background
background=

say "the script: versions by their shares, and who decides"
# route BY SHARE-OF-A SHARE-OF-B: version a takes from the queue of all.
route() { echo "{\"versions\":[{\"version\":\"a\",\"share\":$1,\"shadow\":false},{\"version\":\"b\",\"share\":$2,\"shadow\":false}],\"elastic\":false}"; }
only() { echo "{\"versions\":[{\"version\":\"$1\",\"share\":1,\"shadow\":false}],\"elastic\":true}"; }
for v in a b; do
    answers "" hello w$v two $v '{}'
    answers "" beat w$v two $v "{\"model\":\"two\",\"version\":\"$v\"}"
done
answers "1" route two s1 "$(only a)" ''
answers "task v1 queued *" task_add v1 o "" two 2 5 1 60000 0 9 1000 99 wait 99 1000000 '{}' '{}'
answers "" take wb two b 4 0 3 99
answers "v1 1 *" take wa two a 4 0 3 99
# Two versions: s1 alone decides, for a while.
answers "1" route two s1 "$(route 0 1)" ''
answers "0" route two s2 "$(only a)" ''
answers "task v2 queued *" task_add v2 o "" two 2 5 1 60000 0 9 1000 99 wait 99 1000000 '{}' '{}'
answers "" take wa two a 4 0 3 99
answers "v2 1 *" take wb two b 4 0 3 99
answers "" task_end v2 1 failed fail '' '{"status":500}'
# What ends at a version without a share says nothing of those that new requests go to.
answers "" task_end v1 1 completed end '{}' ''
counts two a "0 0 0 0 0 0 2 0 1"
# What waits for a version that gets nothing any more is taken by the one that serves.
answers "task v3 queued *" task_add v3 o "" two 2 5 1 60000 0 9 1000 99 wait 99 1000000 '{}' '{}'
answers "1" route two s1 "$(route 1 0)" ''
answers "" take wb two b 4 0 3 99
answers "v3 1 *" take wa two a 4 0 3 99
answers "" task_end v3 1 completed end '{}' ''
answers "1" route two s1 "$(route 0.25 0.75)" ''
for i in $(seq 40); do answers "task s$i-0 queued *" task_add s$i-0 o "" two 2 5 1 60000 0 99 1000 99 wait 99 1000000 '{}' '{}'; done
answers '*"errors":1,*' state g 5000
count=$(redis-cli -p "$port" -n 5 --eval script.lua , take wb two b 99 0 3 99 2>/dev/null | grep -c '^s[0-9]')
[ "$count" -eq 34 ] || fail "$count of 40 requests went to a share of 75 %, not the 34 that their names say"
answers "1" route two s1 "$(only a)" ''
answers "" beat wa two a '{"model":"two","version":"a"}'
answers "0" route two s2 "$(only b)" ''
answers "1" route two s2 "$(only a)" ''
# An answer that has begun waits for its own version, whoever takes from the queue of all by then.
redis-cli -p "$port" subscribe banyan:to:g >told 2>/dev/null &
background=$!
wait_for subscribe told
answers "ok" submit begun two 1 5 1 60000 g 1 0 99 1000 99 wait '' 0 '{}'
answers "begun 1 *" take wa two a 1 0 3 99
answers "" events begun 1 text '' 'a text'
answers "" bye wa
answers "1" route two s2 "$(only b)" ''
for _ in 1 2 3; do answers "*" take wb two b 99 1 3 99 && [ "${got#*begun}" = "$got" ] || fail "another version goes on: $got"; done
answers "" hello wa two a '{}'
answers "begun 2 *" take wa two a 1 0 3 99
kill $background
background=

# What workers report describes the model once their version serves, and before that the version alone.
for v in a b; do
    answers "" hello w$v told $v "{\"of\":\"$v\"}"
    answers "" beat w$v told $v "{\"model\":\"told\",\"version\":\"$v\"}"
    answers "1" route told s1 "$(only a)" ''
    answers '*told {"of":"a"} *"info":{"of":"a"}*' state g 5000
done
answers "1" route told s1 "$(route 1 0)" ''
answers '*told {"of":"a"} *"info":{"of":"b"}*' state g 5000
answers "1" route told s1 "$(only b)" '{"of":"a"}'
answers '*told {"of":"b"} *' state g 5000

# Copies count nowhere: they neither came from clients nor are in front of them. What is at a version without a share is not
# in front of new requests either.
answers "" hello wa copied a '{}'
answers "" hello wb copied b '{}'
answers "1" route copied s1 "$(only a | sed 's/}]/},{"version":"b","share":0,"shadow":true}]/')" ''
redis-cli -p "$port" subscribe banyan:to:g >told 2>/dev/null &
background=$!
wait_for subscribe told
answers "ok" submit own copied 2 5 2 60000 g 1 0 9 1000 99 wait '' 0 '{}'
counts copied a "2 10 0 2 0 0 1 0 0"
answers "own 1 *" take wa copied a 4 0 3 99
answers "shadow_* 1 *" take wb copied b 4 0 3 99
copy=${got%% *}
counts copied a "0 0 0 0 0 2 1 0 0"
counts copied b "0 0 0 0 0 0 1 0 0"
answers "wait 2" submit other copied 2 5 1 60000 g 1 0 9 1000 2 wait '' 0 '{}'
answers "" events own 1 end h 'a text'
redis-cli -p "$port" -n 5 --eval script.lua , events "$copy" 1 end h 'a text' >/dev/null
counts copied a "0 0 0 0 0 0 2 1 2"
counts copied b "0 0 0 0 0 0 2 1 2"
kill $background
background=

say "the script: a task has its turn, however many requests come"
TASK_WAIT=0 broker_script >turns.lua
script=turns.lua
redis-cli -p "$port" subscribe banyan:to:g >told 2>/dev/null &
background=$!
wait_for subscribe told
answers "" hello wt turns v '{}'
answers "task last queued *" task_add last o "" turns 3 5 1 60000 1 99 1000 99 wait 99 1000000 '{}' '{}'
for i in $(seq 30); do answers "ok" submit "r$i" turns 2 5 1 60000 g 1 0 99 1000 99 wait '' 0 '{}'; done
answers "task next queued *" task_add next o "" turns 2 5 1 60000 1 99 1000 99 wait 99 1000000 '{}' '{}'
# given TAKES: the ids that as many takes of up to four give, without room for the lowest level.
given() {
    for _ in $(seq "$1"); do
        redis-cli -p "$port" -n 5 --eval "$script" , take wt turns v 4 0 3 0 2>/dev/null | grep -E '^(r[0-9]+|last|next)$'
    done | paste -s -d ' '
}
ids=$(given 5)
[ "$ids" = "r1 r2 r3 r4 r5 r6 r7 last r8 r9 r10 r11 r12 r13 r14 next r15 r16 r17 r18" ] || fail "the order is $ids"
# Where it waited nothing is left of it, by which autoscalers go; who takes it from a lost worker finds it.
[ "$(ask -n 5 xinfo groups banyan:queue:turns:low | sed -n '/^lag/{n;p;}')" = 0 ] || fail "an entry of a task is left"
answers "*" bye wt && sleep 0.02
answers "last 2 *" take w2 turns v 1 1 3 0
answers "" task_end last 2 completed end '{}' ''
# One that has not waited for long has no turn.
script=script.lua
answers "task next2 queued *" task_add next2 o "" turns 3 5 1 60000 1 99 1000 99 wait 99 1000000 '{}' '{}'
ids=$(given 3)
[ "$ids" = "r19 r20 r21 r22 r23 r24 r25 r26 r27 r28 r29 r30" ] || fail "the order is $ids"
kill $background
background=

say "processes of two protocols: those that come later are refused, and say why"
redis-cli -p "$port" subscribe banyan:protocol:2:7 >told 2>/dev/null &
background=$!
wait_for subscribe told
for process in "worker runs/tiny --threads 1" "gateway --listen 127.0.0.1:0" "deploy v2 --name tiny" \
    "serve runs/tiny --listen 127.0.0.1:0 --dir $work/refused --threads 1"; do
    # shellcheck disable=SC2086
    run 1 timeout 6800 "$banyan" $process --broker "$broker"
    holds err "they speak protocol 7, this one 1; drain and end them all"
done
# Those that run go on; in another database of this Redis nobody is refused.
check answers "$url"
answers "" enter 5
kill $background
background=
# Tasks that have not ended are not left to another protocol; those that have are.
PROTOCOL=7 broker_script >other.lua
other() { redis-cli -p "$port" -n 5 --eval other.lua , enter 5 2>/dev/null; }
answers "task left queued *" task_add left o "" m 2 5 1 60000 0 99 1000 99 wait 99 1000000 '{}' '{}'
case $(other) in
"PROTOCOL "*" tasks are open in this Redis, of protocol 1; this program speaks 7: "*) ;;
*) fail "another protocol is let in, to tasks that are open: $(other)" ;;
esac
for id in $(ask -n 5 zrange banyan:deadlines 0 -1); do answers "*" task_cancel "$id" o; done
[ "$(ask -n 5 get banyan:protocol)" = 1 ] || fail "the protocol of what is stored has changed"
[ -z "$(other)" ] && [ "$(ask -n 5 get banyan:protocol)" = 7 ] || fail "another protocol is not let in: $(other)"

say "a served model whose versions meet at Redis: golden request, copies, shares, a worker that dies, and back"
run 0 "$banyan" train c.yaml --quiet --set name=other --set model.context=1024 --set train.batch=1 --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1 --set seed=2
kill -TERM $gateway $first
wait $gateway $first
"$banyan" serve runs/tiny --broker "redis://127.0.0.1:$port/6" --listen 127.0.0.1:0 --dir "$work/sock" --threads 1 --workers 2 >served 2>gateway.log &
gateway=$!
background=$gateway
wait_for http served
url=$(cat served)
await_ready
update="$root/tests/e2e/update_client.py"
answer=$(python3 "$update" answer "$url")
python3 "$update" load "$url" enough 300 >load.out 2>load.err &
background=$!
deploy() { "$banyan" deploy --dir "$work/sock" "$@"; }
deploy runs/other --shadow --canary 30% --hold 2 --slower 1000 --detach >status
until grep -q '"event":"deploy_phase".*"canary"' gateway.log; do
    kill -0 "$gateway" 2>/dev/null || { tail -n 20 gateway.log >&2; fail "the server has ended"; }
    sleep 0.1
done
kill -9 $(ps -o pid=,args= --ppid "$gateway" | awk '/ worker / { print $1 }' | sed -n '1p;$p')
until deploy --status --json >status && [ -z "$(field coming <status)" ]; do sleep 0.1; done
[ "$(field outcome <status)" = deployed ] || { grep deploy gateway.log >&2; fail "$(cat status)"; }
[ "$(python3 "$update" answer "$url")" != "$answer" ] || fail "the former version answers"
grep -q '"event":"deploy_phase".*"checking"' gateway.log || fail "there was no golden request"
curl -sf "$url/metrics" >metrics
grep 'banyan_shadow_different_total{' metrics | grep -qv ' 0$' || fail "no copy was compared: $(grep shadow metrics)"
grep 'banyan_worker_restarts_total{model="tiny",reason="crash"' metrics | grep -q ' [12]$' ||
    fail "restarts are not counted: $(grep restarts metrics)"
for name in banyan_version_requests_total banyan_version_generated_tokens_total banyan_model_queue_time_seconds_count \
    banyan_engine_step_sequences_sum; do
    grep "$name{" metrics | grep -qv ' 0$' || fail "$name: nothing was counted"
done
run 0 deploy --rollback
[ "$(python3 "$update" answer "$url")" = "$answer" ] || fail "the former version has another answer"
# By Redis, from any host: the server does it.
run 1 "$banyan" deploy --rollback --broker "redis://127.0.0.1:$port/6" --name tiny
holds err "no version before"
run 0 deploy runs/other
run 0 deploy runs/tiny
run 0 "$banyan" deploy --rollback --broker "redis://127.0.0.1:$port/6" --name tiny
[ "$(python3 "$update" answer "$url")" != "$answer" ] || fail "the version before does not answer"
deploy --status --json >status
run 0 "$banyan" deploy --status --json --broker "redis://127.0.0.1:$port/6" --name tiny
for name in model version previous coming last outcome reason; do
    [ "$(field $name <out)" = "$(field $name <status)" ] || fail "Redis and the server differ in $name: $(cat out status)"
done
: >enough
wait $background || { cat load.err load.out >&2; tail -n 20 gateway.log >&2; fail "requests have failed"; }
background=
holds load.out '"failed": 0'
[ "$(field versions <load.out)" = 2 ] || fail "answers of other versions: $(cat load.out)"
kill -TERM $gateway && wait $gateway || fail "the server ended with an error: $(tail gateway.log)"
gateway= first=

say "workers that nobody supervises: requests are shifted between them"
worker() { "$banyan" worker "runs/$2" --name tiny --version "$1" --broker "redis://127.0.0.1:$port/7" --threads 1 2>"$1.log" & }
"$banyan" gateway --broker "redis://127.0.0.1:$port/7" --listen 127.0.0.1:0 >shared 2>gateway.log &
gateway=$!
worker one tiny
first=$!
background=$gateway
wait_for http shared
background=
url=$(cat shared)
await_ready
shift_to() { "$banyan" deploy "$@" --broker "redis://127.0.0.1:$port/7" --name tiny --slower 1000000; }
run 0 shift_to one
run 1 shift_to one
holds err "is already live"
worker two other
second=$!
until curl -sf "$url/metrics" | grep -q 'banyan_version_workers{model="tiny",version="two"} 1'; do sleep 0.1; done
[ "$(python3 "$update" answer "$url")" = "$answer" ] || fail "a version that nobody has deployed answers"
rm enough
python3 "$update" load "$url" enough 300 >load.out 2>load.err &
background=$!
run 0 shift_to two --canary 40% --hold 1
for phase in "checking 0 %" "canary 40 %" "canary 50 %" "done 100 %"; do holds err "$phase"; done
[ "$(python3 "$update" answer "$url")" != "$answer" ] || fail "the former version answers"
# One that is stopped takes its requests back.
: >phases
"$banyan" deploy one --broker "redis://127.0.0.1:$port/7" --name tiny --canary 5% --hold 60 >out 2>phases &
aside=$!
until grep -q canary phases; do sleep 0.1; done
kill -TERM "$aside"
wait "$aside" && fail "a deployment that was stopped has succeeded"
aside=
holds phases "rolled back: it was stopped"
until curl -sf "$url/metrics" | grep -q 'banyan_version_share{model="tiny",version="two"} 1'; do sleep 0.1; done
: >enough
wait $background || { cat load.err load.out >&2; tail -n 20 gateway.log >&2; fail "requests have failed"; }
background=

say "the same without a load: its status, and back to the version before"
shared() { "$banyan" deploy --broker "redis://127.0.0.1:$port/7" --name tiny "$@"; }
# is NAME VALUE: of the status.
is() { shared --status --json >status && [ "$(field "$1" <status)" = "$2" ] || fail "$1 is not '$2': $(cat status)"; }
is version two
is previous one
is last one
is outcome rolled_back
is reason "it was stopped"
is coming ""
is ready 1
run 0 shared --rollback
holds out "one is live"
holds err "one	checking 0 %"
[ "$(python3 "$update" answer "$url")" = "$answer" ] || fail "the former version does not answer"
run 0 shared --status
holds out "last	one: deployed"
run 1 shared --rollback
holds err "no version before"
run 0 shared two
run 0 shared one
run 0 shared --rollback
holds out "two is live"
is previous one
# begin_shift: a deployment of the other version, whose process is $background, that holds a share.
begin_shift() {
    : >phases # what an earlier one has written there must not count
    "$banyan" deploy one --broker "redis://127.0.0.1:$port/7" --name tiny --canary 5% --hold 60 >out 2>phases &
    background=$!
    wait_for canary phases
}
begin_shift
is coming one
is phase canary
is share 0.0500
run 1 shared --rollback
holds err "one was rolled back: it was asked for"
wait $background && fail "a deployment that was rolled back has succeeded"
holds phases "one was rolled back: it was asked for"
is coming ""
is version two
# One whose process was killed: who asks does it.
begin_shift
kill -9 $background
wait $background
background=
until shared --status --json >status && [ "$(field phase <status)" = abandoned ]; do sleep 0.1; done
run 0 shared --rollback
holds out "two is live"
is coming ""
run 1 "$banyan" deploy --status --broker "redis://127.0.0.1:$port/7" --name none
holds err "the broker knows no model none"
run 2 shared
run 2 shared --status --rollback

say "a version whose requests fail is rolled back by itself"
# Its vocabulary lacks a letter that the clients' pattern asks for; the golden request does without.
sed 's/v/w/g' text.txt >other.txt
run 0 "$banyan" train c.yaml --quiet --set name=vless --set 'data.text=[other.txt]' --set model.context=1024 --set train.batch=1 --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1
worker three vless
third=$!
rm enough
python3 "$update" constrained "$url" enough 300 >load.out 2>load.err &
background=$!
until curl -sf "$url/metrics" | grep -q 'banyan_version_workers{model="tiny",version="three"} 1'; do sleep 0.1; done
run 1 shared three --canary 50% --hold 30 --slower 50
holds err "three	canary 50 %"
holds err "of its requests failed, 0.0 % of the former version's"
: >enough
wait $background || { cat load.err load.out >&2; fail "requests have failed in another way"; }
background=
[ "$(field failed <load.out)" -ge 20 ] || fail "it was judged by too few requests: $(cat load.out)"
is version two
is last three
is outcome rolled_back
rm enough
python3 "$update" constrained "$url" enough 2 >load.out 2>load.err || fail "$(cat load.err)"
holds load.out '"failed": 0'
