#!/bin/sh
# Webhooks of tasks, with the embedded broker and with Redis: receivers that fail, that are not listed, that redirect,
# whose certificate or address is not allowed; and a gateway that is killed before the receiver has answered.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

train_tiny
python3 -c 'import socket
all = [socket.create_server(("", 0)) for _ in range(5)]
print(*[s.getsockname()[1] for s in all])' >ports
read -r own plain tls other_tls redis <ports
echo "whsec_$(head -c 32 /dev/urandom | base64)" >secret
for name in trusted other; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=receiver -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$name.pem" -out "$name.crt" 2>err || fail "openssl: $(cat err)"
    cat "$name.crt" >>"$name.pem"
done
cat >serve.yaml <<END
webhooks:
  origins:
    - http://127.0.0.1:$plain
    - http://127.0.0.2:$plain
    - https://127.0.0.1:$tls
    - https://127.0.0.1:$other_tls
  networks: [127.0.0.1/32]
  secret: secret
  certificates: trusted.crt
  attempts: 4
  pause: 0.1
  timeout: 10
END
listen=127.0.0.1:$own
# check_webhooks FLAG...: of a server with the flags, whose gateway has the same address when it is started again.
check_webhooks() {
    serve_ready --config serve.yaml "$@"
    timeout 6800 python3 "$root/tests/e2e/webhook_client.py" "$url" "$plain" "$tls" "$other_tls" "$work" "$server" || {
        grep '"event":"webhook"' log | tail -n 40 >&2
        fail "webhooks $*"
    }
    stop
}

say "the embedded broker"
check_webhooks
run 2 "$banyan" serve runs/tiny --config serve.yaml --set webhooks.secret= --check
holds err "webhooks.origins needs webhooks.secret"
run 2 "$banyan" serve runs/tiny --config serve.yaml --set webhooks.secret=none --check
holds err "there is no file none"

command -v redis-server >/dev/null || {
    echo "not tested: Redis, since redis-server is not installed"
    exit 0
}
say "Redis"
redis-server --port "$redis" --bind 127.0.0.1 --dir "$work" --save '' >redis.log &
aside=$!
check_webhooks --broker "redis://127.0.0.1:$redis"

say "the script: a message is due at the end of its task, and again when who took it is gone"
broker_script >script.lua
script_port=$redis
answers "" hello w m v '{}'
answers "" beat w m v '{"model":"m","version":"v"}'
answers "" task_hooks 60000 9
answers "task t queued * pending 0" task_add t o "" m 2 5 1 60000 0 2 1000 99 wait 99 1000000 '{"webhook":1}' '{"r":5}' 1
answers 't 1 * 1 {"r":5}' take w m v 4 0 3 99
answers "" task_hooks 60000 9
answers "" task_end t 1 completed end '{"a":1}' ''
answers 't completed * 1 {"webhook":1} * 1' task_hooks 0 9
answers 't completed * 1 {"webhook":1} * 2' task_hooks 60000 9
answers "" task_hooks 60000 9
# Of an attempt that is not the last one, nothing counts.
answers "" task_hook t 1 delivered 0
answers "task t completed * pending 2" task_get t o
answers "" task_hook t 2 pending 0
answers 't completed * 1 {"webhook":1} * 3' task_hooks 60000 9
answers "" task_hook t 3 delivered 0
answers "" task_hook t 3 pending 0
answers "" task_hooks 60000 9
answers "task t completed * delivered 3" task_get t o
