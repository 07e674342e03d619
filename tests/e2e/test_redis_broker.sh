#!/bin/sh
# A Redis server as the broker: a gateway and workers that only meet there, behind a password; answers, tasks and
# clients that go away as with the embedded broker, and a worker that goes in order leaves nothing behind.
. "$(dirname "$0")/../support/shell.sh"
client="$root/tests/e2e/serve_client.py"
command -v redis-server >/dev/null || {
    echo "skipped: redis-server is not installed"
    exit 77
}
gateway= first= second=
on_exit=end_all
end_all() {
    kill -9 $gateway $first $second 2>/dev/null
    [ ! -s redis.pid ] || kill -9 "$(cat redis.pid)" 2>/dev/null
}
check() { python3 "$client" "$@" || { tail -n 20 gateway.log first.log >&2; fail "$*"; }; }
ask() { redis-cli -p "$port" "$@" 2>/dev/null; }

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set model.context=1024 --set train.batch=1 --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1

say "an address that is wrong, and a server that is not there"
run 2 "$banyan" gateway --broker redis://h:x --listen 127.0.0.1:0
holds err "its port is no number"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export REDISCLI_AUTH=secret
broker="redis://127.0.0.1:$port/2?queue=64"
"$banyan" gateway --broker "$broker" --listen 127.0.0.1:0 >url 2>gateway.log &
gateway=$!
background=$gateway
wait_for http url
url=$(cat url)
curl -s "$url/health/ready" >answer && holds answer "not ready"

say "it comes, with a password"
redis-server --port "$port" --bind 127.0.0.1 --daemonize yes --dir "$work" --pidfile "$work/redis.pid" --save '' --requirepass secret >/dev/null
"$banyan" worker runs/tiny --broker "$broker" --threads 1 2>first.log &
first=$!
"$banyan" worker runs/tiny --broker "$broker" --threads 1 2>second.log &
second=$!
for what in ready answers errors connection cancel tasks; do check "$what" "$url"; done
REDISCLI_AUTH=other "$banyan" worker runs/tiny --broker "$broker" --threads 1 2>third.log &
background=$!
wait_for WRONGPASS third.log
kill -TERM $background && wait $background
background=

say "a load, and a worker that goes in the middle of it"
"$banyan" bench serve "$url" --model tiny --requests 60 --concurrency 8 --prompt-tokens 5 --tokens 300 --vocab 20 --json >out 2>err &
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
