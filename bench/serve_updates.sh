#!/bin/sh
# 20 deployments and 10 roll-backs in 5 minutes under load: no request may fail.
#
# usage: bench/serve_updates.sh RUN OTHER-RUN [CLIENTS]     the runs have one tokenizer; BANYAN: the program
#
# Clients ask for streams and whole answers without a pause. Every second deployment begins with shares of 20 %, 25 %
# and 50 %, a second each.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
banyan=${BANYAN:-$root/build/release/banyan}
work=$(mktemp -d)
trap 'kill -9 $load 2>/dev/null; kill $server 2>/dev/null; wait; rm -rf "$work"' EXIT
load= server=
"$banyan" serve "$1" --name served --listen 127.0.0.1:0 --dir "$work/sock" --workers 2 --threads 1 >"$work/url" 2>"$work/log" &
server=$!
until [ -s "$work/url" ] && curl -sf "$(cat "$work/url")/health/ready" >/dev/null; do sleep 0.1; done
url=$(cat "$work/url")
python3 "$root/bench/serve_clients.py" "$url" served "${3:-8}" "$work/enough" >"$work/result" &
load=$!
began=$(date +%s)
deploys=0 backs=0
deploy() { "$banyan" deploy --dir "$work/sock" "$@" >/dev/null 2>"$work/err" || { cat "$work/err"; return 1; }; }
for i in $(seq 10); do
    kill -0 "$load" || exit 1
    [ $((i % 2)) -eq 1 ] && run=$2 || run=$1
    deploy "$run" && deploys=$((deploys + 1))
    deploy --rollback && backs=$((backs + 1))
    deploy "$run" --canary 20% --hold 1 --slower 20 && deploys=$((deploys + 1))
    # A round takes 30 seconds.
    left=$((began + 30 * i - $(date +%s)))
    [ "$left" -gt 0 ] && sleep "$left"
done
: >"$work/enough"
wait $load
echo "deployments $deploys, roll-backs $backs, seconds $(($(date +%s) - began)): $(cat "$work/result")"
