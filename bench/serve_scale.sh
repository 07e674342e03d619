#!/bin/sh
# A load that steps from 1 to 20 times, and back: when p95 is under the target again, and how the workers follow.
#
# usage: bench/serve_scale.sh RUN [RATE [SECONDS]]     BANYAN: the program
#
# Each worker begins RATE requests a second at most (default 4), so that 20 a second need 6 of them: what is measured is the
# autoscaler, not the machine. For SECONDS (default 60) there is 1 request a second, then 20, then 1 for three times as long.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
banyan=${BANYAN:-$root/build/release/banyan}
work=$(mktemp -d)
seconds=${3:-60}
trap 'kill $server 2>/dev/null; wait; rm -rf "$work"' EXIT
"$banyan" serve "$1" --name served --listen 127.0.0.1:0 --dir "$work/sock" --workers 1:8 --target-p95 200ms --max-rate "${2:-4}" --threads 1 >"$work/url" 2>"$work/log" &
server=$!
until [ -s "$work/url" ] && curl -sf "$(cat "$work/url")/health/ready" >/dev/null; do sleep 0.1; done
python3 "$root/bench/serve_step.py" "$(cat "$work/url")" served "$seconds" 1 20 1
grep '"event":"scale"' "$work/log" | sed 's/"event":"scale",//'
