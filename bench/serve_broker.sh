#!/bin/sh
# What stands between clients and an engine, and what it does under too much load, with the embedded broker and with
# Redis, in turn:
#   path      requests a second through gateway, broker and worker, of one token each
#   engine    the engine in process (`bench engine`, as nice as a worker) and behind the server: tokens a second and their
#             ratio; microseconds of a processor for each token, of the engine and of each process of the server, and their
#             ratio for engine and worker; rows a step and rows of padding, which say whether steps are as full
#   overload  at 0.8, 3 and, right behind it, 0.8 times the capacity for 8 s each: answers, refusals (429), 95th
#             percentiles in milliseconds, resident memory in MiB before and after, and the slowest refusal
#
#   bench/serve_broker.sh RUN DIR [BANYAN]      RUN: of a language model of characters or a small vocabulary
#
# PARTS ("path engine overload"), BROKERS ("embedded redis"), ROUNDS (3), THREADS (2), SESSIONS (16), TOKENS (64),
# PROMPT (64), VOCAB (20). The machine should do nothing else: the load average is printed with every figure.
set -eu
run=$(cd "$1" && pwd)
mkdir -p "$2"
dir=$(cd "$2" && pwd)
banyan=${3:-$(dirname "$0")/../build/release/banyan}
model=$(basename "$run")
threads=${THREADS:-2} sessions=${SESSIONS:-16} tokens=${TOKENS:-64} prompt=${PROMPT:-64} vocab=${VOCAB:-20}
server= redis=
trap '[ -z "$server" ] || kill "$server"; [ -z "$redis" ] || kill "$redis"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
load() { cut -d ' ' -f 1 /proc/loadavg; }
# get NAME: a number of the JSON on standard input, "ttft.p95" inside an object.
get() { python3 -c 'import functools, json, sys; print(functools.reduce(lambda o, k: o[k], sys.argv[1].split("."), json.load(sys.stdin)))' "$1"; }

# serve BROKER: the server's address in $url, its processes' in $server and $redis.
serve() {
    url=http://127.0.0.1:$(free_port)
    address=
    if [ "$1" = redis ]; then
        port=$(free_port)
        redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --appendonly yes --save '' >/dev/null &
        redis=$!
        address=redis://127.0.0.1:$port
    fi
    "$banyan" serve "$run" ${address:+--broker "$address"} --listen "${url#http://}" --dir "$dir" --threads "$threads" \
        --sessions "$sessions" >/dev/null 2>"$dir/log" &
    server=$!
    until curl -sf "$url/health/ready" >/dev/null; do sleep 0.1; done
}
end() {
    kill "$server" && wait "$server"
    server=
    [ -z "$redis" ] || { kill "$redis" && wait "$redis" || true; }
    redis=
    rm -rf "$dir/appendonlydir"
}
bench() { "$banyan" bench serve "$url" --model "$model" --vocab "$vocab" --json "$@"; }
# answered FIELD FLAG...: a number of a load whose requests are all answered.
answered() {
    field=$1
    shift
    bench "$@" >"$dir/report"
    [ "$(get failed <"$dir/report")" = 0 ] || { cat "$dir/report" >&2; exit 1; }
    get "$field" <"$dir/report"
}
memory() {
    ps -o rss=,args= --ppid "$server" ${redis:+-p "$redis"} | awk '/ gateway |redis-server| broker /{ sum += $1 } END { printf "%.1f", sum / 1024 }'
}

# Seconds of processor time, by part.
cpu() {
    for pid in $(ps -o pid= --ppid "$server") $redis; do
        role=$(tr '\0' ' ' <"/proc/$pid/cmdline" | grep -o -w -E 'gateway|worker|broker |redis-server' | head -n 1)
        awk -v role="$role" -v hertz="$(getconf CLK_TCK)" '{ print role, ($14 + $15) / hertz }' "/proc/$pid/stat"
    done
}

path_of() {
    serve "$1"
    cpu >"$dir/before"
    rate=$(answered requests_per_s --requests 10000 --concurrency 64 --prompt-tokens 1 --tokens 1 --whole)
    cost=$(cpu | paste -d ' ' "$dir/before" - | awk '{ printf "%s %.0f, ", $1, ($4 - $2) * 1e6 / 10000; sum += $4 - $2 } END { printf "sum %.0f", sum * 1e6 / 10000 }')
    echo "path      $1: $rate requests/s; microseconds of a processor for each: $cost (load $(load))"
    end
}

engine_of() {
    all=$((4 * sessions * tokens))
    nice -n 5 "$banyan" bench engine "$run" --sessions "$sessions" --requests $((4 * sessions)) --prompt-tokens "$prompt" --tokens "$tokens" --threads "$threads" --json >"$dir/inside"
    inside=$(get tokens_per_s <"$dir/inside")
    own=$(get processor_seconds <"$dir/inside" | awk -v all="$all" '{ printf "%.1f", $1 * 1e6 / all }')
    serve "$1"
    cpu >"$dir/before"
    behind=$(answered tokens_per_s --requests $((4 * sessions)) --concurrency "$sessions" --prompt-tokens "$prompt" --tokens "$tokens")
    cost=$(cpu | paste -d ' ' "$dir/before" - | awk -v all="$all" -v own="$own" '
        { spent = ($4 - $2) * 1e6 / all; printf "%s %.1f, ", $1, spent; worker += $1 == "worker" ? spent : 0 }
        END { printf "worker/engine %.3f", worker / own }')
    end
    steps=$(sed -n 's/.*"event": *"worker_stopped"/&/p' "$dir/log" | tail -n 1)
    echo "engine    $1: $inside tokens/s in process, $behind behind the server, ratio $(echo "$behind $inside" | awk '{ printf "%.3f", $1 / $2 }'); microseconds of a processor for each token: in process $own, $cost; $(get rows_per_step <"$dir/inside") and $(echo "$steps" | get rows | awk -v steps="$(echo "$steps" | get steps)" '{ printf "%.1f", $1 / steps }') rows a step, $(get padding <"$dir/inside") and $(echo "$steps" | get padding) rows of padding (load $(load))"
}

overload_of() {
    serve "$1"
    capacity=$(answered requests_per_s --requests $((20 * sessions)) --concurrency $((sessions + sessions / 4)) --prompt-tokens "$prompt" --tokens "$tokens")
    for times in 0.8 3 0.8; do
        before=$(memory)
        rate=$(echo "$capacity $times" | awk '{ printf "%.3f", $1 * $2 }')
        if [ "$times" = 3 ]; then
            # Refusals come at once.
            (for i in 1 2 3 4 5 6 7 8 9 10; do
                sleep 0.5
                curl -s -o /dev/null -w '%{http_code} %{time_total}\n' "$url/v1/completions" -H 'Content-Type: application/json' -d "{\"model\": \"$model\", \"prompt\": [1], \"max_tokens\": 1}"
            done) >"$dir/refusals" &
            asking=$!
        fi
        bench --requests "$(echo "$rate" | awk '{ printf "%d", $1 * 8 }')" --rate "$rate" --concurrency 512 --prompt-tokens "$prompt" --tokens "$tokens" >"$dir/report"
        echo "overload  $1: $times x $capacity requests/s: $(get ok <"$dir/report") answered, $(get refused <"$dir/report") refused, $(get failed <"$dir/report") failed; p95 of the first text $(get ttft.p95 <"$dir/report" | awk '{ printf "%.0f", 1000 * $1 }'), of the whole answer $(get e2e.p95 <"$dir/report" | awk '{ printf "%.0f", 1000 * $1 }'); $before to $(memory) MiB (load $(load))"
        if [ "$times" = 3 ]; then
            wait $asking
            awk '$1 == 429 && $2 > most { most = $2 } $1 == 429 { n++ } END { printf "overload  %d of 10 more were refused, the slowest in %.1f ms\n", n, 1000 * most }' "$dir/refusals"
        fi
    done
    end
}

for part in ${PARTS:-path engine overload}; do
    for round in $(seq "${ROUNDS:-3}"); do
        for broker in ${BROKERS:-embedded redis}; do
            "${part}_of" "$broker"
        done
    done
done
