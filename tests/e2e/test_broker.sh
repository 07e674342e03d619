#!/bin/sh
# The broker, and a gateway, alone: peers that are played by scripts decide what comes when, which real ones cannot.
. "$(dirname "$0")/../support/shell.sh"
broker=
gateway=
on_exit=end_both
end_both() { [ -z "$broker$gateway" ] || kill -9 $broker $gateway 2>/dev/null; }
# The scripts send no beats; the last one of equal flags counts.
start_broker() {
    "$banyan" broker --dir "$work/sock" --silence 3600 --hang 3600 "$@" 2>log &
    broker=$!
    while [ ! -S sock/broker.socket ]; do
        kill -0 "$broker" 2>/dev/null || { cat log >&2; fail "the broker has ended"; }
        sleep 0.05
    done
}

say "versions, shares, copies, requests that kill their workers, and tasks among requests that never end"
start_broker --supervised --tasks "$work/tasks.sqlite"
python3 "$root/tests/e2e/broker_peers.py" "$work/sock/broker.socket" || { tail -n 20 log >&2; fail "peers"; }
kill -TERM "$broker"
wait "$broker" || fail "the broker ended with $?"
broker=

say "the rules that the script in Redis has, too (test_redis_script.sh)"
start_broker --queue 4 --wait 86400 --tasks "$work/cases.sqlite"
python3 "$root/tests/e2e/broker_cases.py" "$work/sock/broker.socket" || { tail -n 20 log >&2; fail "a rule"; }
kill -TERM "$broker" && wait "$broker" || fail "the broker ended with $?"
broker=

say "a worker that makes no step"
start_broker --hang 3
python3 "$root/tests/e2e/worker_hangs.py" "$work/sock/broker.socket" || { tail -n 20 log >&2; fail "a worker that hangs"; }
kill -TERM "$broker" && wait "$broker" || fail "the broker ended with $?"
broker=

say "answers that are too large for the gateway's loop"
start_broker
"$banyan" gateway --dir "$work/sock" --listen 127.0.0.1:0 >url 2>log &
gateway=$!
while [ ! -s url ]; do
    kill -0 "$gateway" 2>/dev/null || { cat log >&2; fail "the gateway has ended"; }
    sleep 0.05
done
python3 "$root/tests/e2e/gateway_large.py" "$work/sock/broker.socket" "$(cat url)" || {
    tail -n 20 log >&2
    fail "large"
}
kill -TERM "$gateway" && wait "$gateway" || fail "the gateway ended with $?"
gateway=
kill -TERM "$broker" && wait "$broker" || fail "the broker ended with $?"
broker=

say "a socket that a proxy of the same group can connect to"
rm -f url
(umask 077 && exec "$banyan" gateway --dir "$work/sock" --listen "unix:$work/http.socket" >url 2>log) &
gateway=$!
while [ ! -s url ]; do kill -0 "$gateway" 2>/dev/null || { cat log >&2; fail "the gateway has ended"; } && sleep 0.05; done
[ "$(stat -c %a http.socket)" = 660 ] || fail "the socket's mode is $(stat -c %a http.socket)"
run 0 curl -sf --unix-socket http.socket http://localhost/health/live
say "and that one server has: a second is refused, and the next replaces what a killed one leaves"
run 2 timeout 6800 "$banyan" gateway --dir "$work/sock" --listen "unix:$work/http.socket"
holds err "cannot listen on unix:$work/http.socket: "
holds err "end the program that listens there (\`ss -lxp\` names it), or choose another path (--listen)"
run 0 curl -sf --unix-socket http.socket http://localhost/health/live
kill -9 "$gateway"
wait "$gateway"
[ -S http.socket ] || fail "a gateway that was killed has removed its socket"
rm -f url
"$banyan" gateway --dir "$work/sock" --listen "unix:$work/http.socket" >url 2>log &
gateway=$!
while [ ! -s url ]; do kill -0 "$gateway" 2>/dev/null || { cat log >&2; fail "the gateway has ended"; } && sleep 0.05; done
run 0 curl -sf --unix-socket http.socket http://localhost/health/live
kill -TERM "$gateway" && wait "$gateway" || fail "the gateway ended with $?"
gateway=
[ ! -e http.socket ] || fail "the socket is left"

say "quotas and tasks of clients"
mkdir tasks
python3 "$root/tests/e2e/gateway_tasks.py" "$work/tasks/broker.socket" "$banyan" || { tail -n 20 log >&2; fail "tasks"; }

say "clients that leave a gateway no file"
mkdir files
python3 "$root/tests/e2e/gateway_files.py" "$work/files/broker.socket" "$banyan" || { tail -n 20 log >&2; fail "files"; }

say "a link to the broker that breaks"
python3 "$root/tests/e2e/gateway_relink.py" "$work/sock/broker.socket" "$banyan" 2>log || { cat log >&2; fail "relink"; }
# Once for each of the two times, then every ten seconds.
[ "$(grep '"event":"broker_lost"' log | grep -c '"seconds":[0-9]\.')" = 2 ] || fail "$(cat log)"
[ "$(grep -c '"event":"broker_back"' log)" = 2 ] || fail "$(cat log)"
holds log "\"reason\":\"$work/sock/broker.socket: "
