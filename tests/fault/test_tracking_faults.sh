#!/bin/sh
# An MLflow server that is away, silent, killed and started again neither slows a run nor ends it nor changes
# its weights; what it did not get is sent later, once.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" || {
    echo "skipped: scripts/tracking-env could not install tensorboard, wandb and mlflow"
    exit 77
}
python=$root/build/venv-tracking/bin/python
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
server=

# A process group of its own: the server starts workers.
start_server() {
    setsid "$root/build/venv-tracking/bin/mlflow" server --host 127.0.0.1 --port "$port" --workers 1 \
        --backend-store-uri "sqlite:///$work/mlflow.db" --artifacts-destination "$work/artifacts" >>server.log 2>&1 &
    server=$!
    until curl -s -f -o health "$url/health"; do
        kill -0 "$server" 2>/dev/null || { tail -n 20 server.log >&2; fail "the server did not start"; }
        sleep 0.2
    done
}
stop_server() {
    [ -z "$server" ] || kill -9 "-$server" 2>/dev/null
    server=
}
on_exit=stop_server
# read_back RUN=STATUS...: in one process, which takes longer to load mlflow than to read.
read_back() {
    run 0 "$python" "$root/tests/e2e/read_tracking.py" mlflow "$url" "$@"
    cat out
}

tiny gpt2 >c.yaml
set -- train c.yaml --json --set track.sinks=mlflow --set track.mlflow="$url" --set train.eval_every=50

say "without a server: told once, trained to the end with the same weights"
run 0 "$banyan" train c.yaml --set name=alone --set train.steps=60 --set train.eval_every=50
run 0 "$banyan" "$@" --set train.steps=60 --set name=away
[ "$(grep -c "training continues; what the server did not receive is sent later" err)" -le 1 ] || fail "told more than once"
holds err "send them with: banyan runs sync runs/away"
same runs/alone/checkpoints/step-00000060/model.safetensors runs/away/checkpoints/step-00000060/model.safetensors
run 1 "$banyan" runs sync runs/away
holds err "mlflow server $url"

say "a server that takes connections and never answers: a run ends without it"
"$python" -c "
import socket
listener = socket.create_server(('127.0.0.1', $port))
held = []
while True:
    held.append(listener.accept())" &
server=$!
run 0 "$banyan" "$@" --set train.steps=60 --set name=silent
holds err "send them with: banyan runs sync runs/silent"
kill -9 "$server"
wait "$server" 2>/dev/null
server=

say "a server that is killed while a run goes on"
start_server
"$banyan" "$@" --set train.steps=1000000 --set optimizer.warmup=1 --set name=cut >log 2>err &
background=$!
until grep -q -s '"offset": [1-9]' runs/cut/mlflow.json; do
    kill -0 "$background" || fail "the run ended"
    sleep 0.1
done
stop_server
wait_for "training continues; what the server did not receive is sent later" err
kill -TERM "$background"
wait "$background"
code=$?
background=
[ "$code" -eq 3 ] || fail "exit code $code"
holds err "send them with: banyan runs sync runs/cut"

say "... and started again: what it did not get is sent, once"
start_server
for name in cut away silent; do
    run 0 "$banyan" runs sync "runs/$name"
    holds out "is complete on $url"
done
run 0 "$banyan" runs sync runs/cut
# What they have there is read back with the last run, below.

say "a server that is there gets all of a run by its end, unless it needs longer than the run may wait for it"
run 0 "$banyan" "$@" --set train.steps=60 --set checkpoint.every=60 --set name=live
if [ -s err ]; then
    holds err "send them with: banyan runs sync runs/live"
    run 0 "$banyan" runs sync runs/live
fi
read_back runs/cut=KILLED runs/away=FINISHED runs/silent=FINISHED runs/live=FINISHED
