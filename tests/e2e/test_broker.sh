#!/bin/sh
# The broker alone: peers that are played by a script decide what comes when, which real ones cannot.
. "$(dirname "$0")/../support/shell.sh"
broker=
on_exit=end_broker
end_broker() { [ -z "$broker" ] || kill -9 "$broker" 2>/dev/null; }

say "versions, shares, copies, and requests that kill their workers"
"$banyan" broker --dir "$work/sock" --supervised --silence 60 2>log &
broker=$!
while [ ! -S sock/broker.socket ]; do
    kill -0 "$broker" 2>/dev/null || { cat log >&2; fail "the broker has ended"; }
    sleep 0.05
done
python3 "$root/tests/e2e/broker_peers.py" "$work/sock/broker.socket" || { tail -n 20 log >&2; fail "peers"; }
kill -TERM "$broker"
wait "$broker" || fail "the broker ended with $?"
broker=
