#!/bin/sh
# What the broker does in Redis, by calls of its script alone: no process of a server is there.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
command -v redis-server >/dev/null || {
    echo "skipped: redis-server is not installed"
    exit 77
}
on_exit=end_redis
end_redis() { [ ! -s redis.pid ] || kill -9 "$(cat redis.pid)" 2>/dev/null; }
ask() { redis-cli -p "$script_port" -n 5 "$@" 2>/dev/null; }

broker_script >script.lua
script_port=$(free_port)
redis-server --port "$script_port" --bind 127.0.0.1 --daemonize yes --dir "$work" --pidfile "$work/redis.pid" --save '' >/dev/null
until ask ping >/dev/null; do sleep 0.05; done

say "the rules that the broker of one machine has, too (test_broker.sh)"
python3 "$root/tests/e2e/broker_cases.py" "$script_port" script.lua || fail "a rule"

say "what a lost worker had is found behind any number of requests that others are at work on"
for worker in w1 w2 w3; do
    answers "" hello $worker m v '{}'
    answers "" beat $worker m v '{"model":"m","version":"v"}'
done
i=1
while [ $i -le 30 ]; do
    answers "task t$i queued *" task_add t$i o "" m 2 5 1 60000000 0 1000 1000 999 wait 100000 1000000 '{}' '{"r":1}'
    i=$((i + 1))
done
answers "t1 1 *t29 1 *" take w1 m v 29 0 3 99
answers "t30 1 *" take w2 m v 1 0 3 99
answers "" bye w2
# Nothing has been silent for so long but what is released; Redis' clock goes on all the same.
ask hset banyan:pulse since 1 >/dev/null
answers "t30 2 *" take w3 m v 1 3000000 3 99

say "what waits for a version that gets no requests any more goes elsewhere, all of it"
route() { answers 1 route r s "{\"versions\":[$1]}" ''; }
route '{"version":"v","share":0},{"version":"w","share":1}'
i=1
while [ $i -le 300 ]; do
    answers "task r$i queued *" task_add r$i o "" r 2 5 1 60000000 0 1000 1000000 999 wait 100000 1000000 '{}' '{"r":1}'
    i=$((i + 1))
done
[ "$(ask xlen banyan:queue:r:normal@w)" = 300 ] || fail "they do not wait for w"
route '{"version":"v","share":1}'
[ "$(ask xlen banyan:queue:r:normal@w) $(ask xlen banyan:queue:r:normal)" = "0 300" ] || fail "some wait for w still"

say "what an owner stores is bounded in bytes, too: of tasks with their requests, of responses with their results"
# 2 bytes of a task and 7 of a request; then 2 and 7 of a result.
add() { answers "$2" task_add "$1" "$3" "" m 2 5 1 60000000 1 1000 1000000 999 wait 99 "$4" '{}' '{"r":1}'; }
add task_1 "task task_1 queued *" b 27
add task_2 "task task_2 queued *" b 27
add task_3 "task task_3 queued *" b 27
add task_4 stored b 27
add task_4 "task task_4 queued *" other 27
answers "task task_2 queued *" task_get task_2 b
answers "task task_2 cancelled *" task_drop task_2 b
add task_4 stored b 28
add task_4 "task task_4 queued *" b 29 # what has ended keeps no request
answers "task task_2 cancelled *" task_drop task_2 b
answers none task_get task_2 b
[ "$(ask hget banyan:sizes:task:b all)" = 27 ] || fail "three tasks of 9 bytes: $(ask hgetall banyan:sizes:task:b)"
keep() { answers "$2" task_keep "$1" b 60000 99 "$3" '{}' "$4"; }
keep resp_1 "task resp_1 completed *" 20 '{"a":1}'
keep resp_2 "task resp_2 completed *" 20 '{"a":2}'
keep resp_3 stored 20 '{"a":"a longer one than all of them"}'
answers "task resp_1 completed *" task_get resp_1 b
keep resp_3 "task resp_3 completed *" 20 '{"a":3}'
answers none task_get resp_1 b
answers "task resp_2 completed *" task_get resp_2 b
[ "$(ask hget banyan:sizes:resp:b all)" = 18 ] || fail "two responses of 9 bytes: $(ask hgetall banyan:sizes:resp:b)"
