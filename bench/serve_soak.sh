#!/bin/sh
# A long mixed load: streams and whole answers, long prompts and short ones, tasks that expire, clients that go away.
# Prints the resident memory of every part once a minute; its growth is counted from the end of the first fifth, when
# caches are full. A part that was started again, or a wrong answer, ends it with an error.
#
#   bench/serve_soak.sh RUN DIR [MINUTES] [BANYAN]      MINUTES: 30; RUN: named `tiny`, as tests/e2e/test_serve.sh makes it
#
# BROKER=embedded|redis (embedded), WORKERS (1)
set -eu
run=$(cd "$1" && pwd)
mkdir -p "$2"
dir=$(cd "$2" && pwd)
minutes=${3:-30}
root=$(cd "$(dirname "$0")/.." && pwd)
banyan=${4:-$root/build/release/banyan}
server= redis=
trap '[ -z "$server" ] || kill "$server"; [ -z "$redis" ] || kill "$redis"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

address=
if [ "${BROKER:-embedded}" = redis ]; then
    port=$(free_port)
    redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --appendonly yes --save '' >/dev/null &
    redis=$!
    address=redis://127.0.0.1:$port
fi
url=http://127.0.0.1:$(free_port)
"$banyan" serve "$run" --listen "${url#http://}" --dir "$dir" --threads 1 --workers "${WORKERS:-1}" ${address:+--broker "$address"} >/dev/null 2>"$dir/log" &
server=$!
until curl -sf "$url/health/ready" >/dev/null; do sleep 0.1; done

python3 "$root/tests/fault/serve_faults.py" "$url" soak "$server" seconds="$((minutes * 60))" redis_pid="$redis" clients=12
