#!/bin/sh
# Documents that are kept apart, and samples of whole documents: stopped and resumed, or on more ranks, a run
# has the bits of one go on one.
. "$(dirname "$0")/../support/shell.sh"

digest() { "$banyan" checkpoint digest "$1" | tail -n 1 | cut -f 1; }

awk 'BEGIN {
    for (i = 0; i < 300; i++) {
        text = ""
        for (k = 0; k < 1 + i * i % 37; k++) text = text (k > 0 ? " " : "") "w" (i * 7 + k * k) % 23
        printf "{\"text\": \"%s\"}\n", text
    }
}' >documents.jsonl
run 0 "$banyan" pack documents.jsonl --vocab 300 --output packed --valid-fraction 0.1
cat >c.yaml <<'END2'
name: apart
model: {kind: llama, layers: 2, heads: 2, width: 32, context: 32}
precision: {compute: f32}
data: {train: packed/train, valid: packed/valid, documents: mask, packing: best_fit}
train: {steps: 8, batch: 8, micro_batch: 2, eval_every: 4}
checkpoint: {every: 4}
END2

# other NAME WHAT ARGUMENTS...: a run has other weights than runs/apart.
other() {
    say "$2"
    name=$1
    shift 2
    run 0 "$banyan" train c.yaml --quiet --set "name=$name" "$@"
    digest "runs/$name/checkpoints/step-00000008" >other.digest
    ! cmp -s apart.digest other.digest || fail "the weights are the same"
}
run 0 "$banyan" train c.yaml --quiet
digest runs/apart/checkpoints/step-00000008 >apart.digest
other joined "documents that are joined give other weights" --set data.documents=join
other stream "so do windows of a stream" --set data.packing=stream
other window "so does a window" --set model.window=4

say "the same weights after a resume, and no resume with other samples"
rm -r runs/apart/checkpoints/step-00000008
run 0 "$banyan" train --resume runs/apart --quiet
digest runs/apart/checkpoints/step-00000008 | same - apart.digest
run 2 "$banyan" train --resume runs/apart --set train.steps=9 --set data.packing=stream
holds err "start a new run with model.from="

say "ranks that would divide sequences are refused"
run 2 "$banyan" train c.yaml --set parallel.sequence=2
holds err "does not support data.documents=mask"
run 2 "$banyan" train c.yaml --set parallel.sequence=2 --set data.documents=join --set model.window=4
holds err "does not support sliding windows"

# losses FILE: the losses of the last evaluation.
losses() { grep '"event":"eval"' "$1" | tail -n 1 | sed 's/,"time".*//'; }
say "what is held out by name has a loss each, and valid_loss is the mean over their targets"
sets='data.valid_sets=[seen=packed/train, new=packed/valid]'
run 2 "$banyan" train c.yaml --set "$sets"
holds err "data.valid_sets and data.valid both give held-out data"
run 2 "$banyan" train c.yaml --set data.valid= --set 'data.valid_sets=[packed/valid]'
holds err "is not NAME=DIR"
run 0 "$banyan" train c.yaml --json --set name=sets --set data.valid= --set "$sets"
losses out >sets.eval
grep '"valid_loss_new"' runs/sets/events.jsonl | tail -n 1 >event
run 0 "$banyan" eval runs/sets --data packed/valid --json
near "$(field valid_loss_new <sets.eval)" "$(field valid_loss <out)" 1e-6
near "$(field valid_loss_new <event)" "$(field valid_loss <out)" 1e-6
new_tokens=$(field tokens <out)
run 0 "$banyan" eval runs/sets --data packed/train --json
near "$(field valid_loss_seen <sets.eval)" "$(field valid_loss <out)" 1e-6
awk -v a="$(field valid_loss <out)" -v n="$(field tokens <out)" -v b="$(field valid_loss_new <sets.eval)" -v m="$new_tokens" \
    'BEGIN { printf "%.9f\n", (a * n + b * m) / (n + m) }' >mean
near "$(field valid_loss <sets.eval)" "$(cat mean)" 1e-6
run 0 "$banyan" eval runs/sets --batches 1
holds out "  new "

say "tokens that weigh 1 change nothing, others do, and those of 0 are left out"
cat >weights.py <<'END2'
import struct, sys
name, shard, rule = sys.argv[1:]
tokens = (len(open(shard, "rb").read()) - 128) // 2
header = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % tokens).ljust(117) + "\n"
weigh = {"ones": lambda i: 1.0, "some": lambda i: i % 3 / 2, "zeros": lambda i: 0.0}[rule]
body = struct.pack("<%df" % tokens, *[weigh(i) for i in range(tokens)])
open(name, "wb").write(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + body)
END2
python3 weights.py ones.npy packed/train/tokens-00000.npy ones
python3 weights.py some.npy packed/train/tokens-00000.npy some
python3 weights.py valid.npy packed/valid/tokens-00000.npy some
python3 weights.py zeros.npy packed/valid/tokens-00000.npy zeros
run 0 "$banyan" train c.yaml --quiet --set name=ones --set data.token_weights=ones.npy
digest runs/ones/checkpoints/step-00000008 | same - apart.digest
other some "some weigh more" --set data.token_weights=some.npy
mv other.digest some.digest
run 0 "$banyan" train c.yaml --json --set name=both --set data.documents=join --set data.packing=stream \
    --set data.token_weights=some.npy --set data.valid_token_weights=valid.npy
losses out >both.eval
run 0 "$banyan" eval runs/both --json
near "$(field valid_loss <both.eval)" "$(field valid_loss <out)" 1e-6
run 0 "$banyan" eval runs/both --json --precision f32
near "$(field valid_loss <both.eval)" "$(field valid_loss <out)" 1e-5
run 0 "$banyan" eval runs/both --json --kv int8
near "$(field valid_loss <both.eval)" "$(field valid_loss <out)" 3e-3
run 0 "$banyan" eval runs/both --data packed/valid --json
awk -v a="$(field valid_loss <both.eval)" -v b="$(field valid_loss <out)" 'BEGIN { exit a == b }' || fail "the loss is not weighted"
run 0 "$banyan" predict runs/both documents.jsonl --json
[ "$(wc -l <out)" -eq 300 ] || fail "there are not 300 predictions"
run 2 "$banyan" train --resume runs/both --set train.steps=9 --set data.token_weights=ones.npy
holds err "start a new run with model.from="
run 2 "$banyan" train c.yaml --set data.train= --set data.text=documents.jsonl --set data.token_weights=ones.npy
holds err "data.token_weights has a number for each token of data.train, which is not set"
run 2 "$banyan" train c.yaml --set data.token_weights=ones.npy --set distill.teacher=runs/apart
holds err "the loss of a student has no weights of tokens: leave data.token_weights out"
run 2 "$banyan" train c.yaml --set name=zeros --set data.valid_token_weights=zeros.npy
holds err "the weights of all examples are 0"

say "statistics tell how full samples are"
run 0 "$banyan" data stats packed/train --context 32 --json
filled=$(field filled <out)
awk -v f="$filled" 'BEGIN { exit !(f > 0.95 && f <= 1) }' || fail "filled $filled"

if command -v mpirun >/dev/null && ldd "$banyan" | grep -q libmpi; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for axis in data pipeline; do
        say "two ranks along $axis have the weights of one"
        run 0 mpirun --oversubscribe -n 2 "$banyan" train c.yaml --quiet --set "name=$axis" --set "parallel.$axis=2"
        digest "runs/$axis/checkpoints/step-00000008" | same - apart.digest
        run 0 mpirun --oversubscribe -n 2 "$banyan" train c.yaml --quiet --set "name=w$axis" --set "parallel.$axis=2" --set data.token_weights=some.npy
        digest "runs/w$axis/checkpoints/step-00000008" | same - some.digest
    done
    say "and the same losses of what is held out by name"
    run 0 mpirun --oversubscribe -n 2 "$banyan" train c.yaml --json --set name=sets2 --set data.valid= --set "$sets" --set parallel.data=2
    losses out | same - sets.eval
fi
