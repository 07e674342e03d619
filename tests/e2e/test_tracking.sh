#!/bin/sh
# What a run records is read back by the programs that it is recorded for, and equals events.jsonl.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" || {
    echo "skipped: scripts/tracking-env could not install tensorboard, wandb and mlflow"
    exit 77
}
python=$root/build/venv-tracking/bin/python

say "a sink that there is not is refused before anything is made"
tiny gpt2 >c.yaml
run 2 "$banyan" train c.yaml --set track.sinks=tensorbord
holds err "there is no sink 'tensorbord'; nearest: tensorboard"
[ ! -e runs ] || fail "a run was made"

say "a run that is killed, goes on, and steps over what it had recorded"
set -- train c.yaml --json --set "track.sinks=[tensorboard, wandb]" --set train.steps=200 --set name=killed \
    --set track.norms_every=25 --set track.histograms_every=100 --set track.activations_every=25 \
    --set track.sample_every=50 --set "track.sample_prompt=a " --set track.sample_tokens=20
train_until 117 KILL "$banyan" "$@"
[ "$code" -eq 137 ] || fail "exit code $code"
run 0 "$banyan" train --resume runs/killed
run 0 "$banyan" train c.yaml --set train.steps=200 --set name=whole --set track.norms_every=25 \
    --set track.activations_every=25 --set track.sample_every=50 --set "track.sample_prompt=a " --set track.sample_tokens=20
holds out 'step 50  sample'
say "... its weights are those of a run without sinks"
same runs/whole/checkpoints/step-00000200/model.safetensors runs/killed/checkpoints/step-00000200/model.safetensors
without_time runs/whole/events.jsonl >whole.events
without_time runs/killed/events.jsonl >killed.events
same whole.events killed.events

say "... and what is recorded of activations is drawn, shown and watched"
run 0 "$banyan" plot runs/whole --show activation_rms.block.1,activation_max.hidden --out activations.svg
holds activations.svg "</svg>"
run 0 "$banyan" runs show runs/whole
holds out "last.activation_zeros.block.0"
run 0 "$banyan" watch runs/whole --once
holds out "ivation_mean"
holds out "block.1"

for reader in tensorboard wandb; do
    say "... read by $reader"
    run 0 "$python" "$root/tests/e2e/read_tracking.py" "$reader" runs/killed
    cat out
done

say "prometheus: numbers of the run that goes on, on a port of this machine alone"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$banyan" train c.yaml --set track.sinks=prometheus --set track.prometheus="127.0.0.1:$port" --set name=served \
    --set train.steps=1000000 --set optimizer.warmup=1 --set train.eval_every=0 --set checkpoint.every=0 >log 2>&1 &
background=$!
wait_for '"event":"train","step":20,' runs/served/events.jsonl
"$python" - "$port" >page <<END
import sys, urllib.error, urllib.request
base = "http://127.0.0.1:%s" % sys.argv[1]
try:
    urllib.request.urlopen(base + "/secret")
except urllib.error.HTTPError as refused:
    assert refused.code == 404, refused.code
sys.stdout.write(urllib.request.urlopen(base + "/metrics").read().decode())
END
say "... a second run cannot have the port, and trains without it"
run 0 "$banyan" train c.yaml --set track.sinks=prometheus --set track.prometheus="127.0.0.1:$port" --set name=second
holds err "cannot listen on 127.0.0.1:$port"
holds err "training continues without this sink"
kill -TERM "$background"
wait "$background"
background=
run 0 "$python" "$root/tests/e2e/read_tracking.py" prometheus runs/served page
cat out
