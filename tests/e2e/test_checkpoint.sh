#!/bin/sh
# banyan checkpoint: the digest of a run is that of its newest checkpoint and of what is merged from it; what is
# merged is a model like any other.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set train.micro_batch=2 --quiet
newest=runs/tiny/checkpoints/step-00000020

say "a run's digest is its newest checkpoint's"
run 0 "$banyan" checkpoint digest runs/tiny
cp out run.digest
run 0 "$banyan" checkpoint digest "$newest"
same run.digest out
run 0 "$banyan" checkpoint digest runs/tiny/checkpoints/step-00000010
! cmp -s run.digest out || fail "ten steps changed nothing"
run 0 "$banyan" checkpoint digest runs/tiny --json
[ "$(field all <out)" = "$(sed -n 's/\tall$//p' run.digest)" ] || fail "$(tail -n 1 run.digest)"
[ "$(field path <out)" = "$newest" ] || fail "$(field path <out)"

say "the hash of a tensor is that of the text in the header and its bytes"
# A norm that was trained: its weights are no longer ones.
name=ln_f.weight
header=$(od -A n -t u8 -N 8 "$newest/model.safetensors" | tr -d ' ')
offset=$(head -c $((8 + header)) "$newest/model.safetensors" | tail -c "$header" |
    sed "s/.*\"$name\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
{
    printf '%s\0F32\00064\0' "$name"
    tail -c +$((8 + header + offset + 1)) "$newest/model.safetensors" | head -c 256
} | sha256sum | cut -d ' ' -f 1 >expected
sed -n "s/\tF32\t\[64\]\t$name\$//p" run.digest >got
same expected got

say "merged, it is the same model"
run 0 "$banyan" checkpoint merge runs/tiny merged
exists merged/config.json merged/model.safetensors merged/tokenizer.json
grep -q '^merged: [0-9]* tensors, ' out || fail "$(cat out)"
run 0 "$banyan" checkpoint merge runs/tiny again --json
[ "$(field output <out)" = again ] && [ "$(field tensors <out)" -gt 0 ] || fail "$(cat out)"
run 0 "$banyan" checkpoint digest merged
[ "$(sed -n 's/\tmodel$//p' out)" = "$(sed -n 's/\tmodel$//p' run.digest)" ] || fail "$(cat out)"
run 0 "$banyan" eval runs/tiny --data text.txt --json
loss=$(field valid_loss <out)
run 0 "$banyan" eval merged --data text.txt --json
near "$(field valid_loss <out)" "$loss" 1e-6

say "a config.json that disagrees with the tensors is refused, wherever it is read"
sed 's/"vocab_size": [0-9]*/"vocab_size": 1000/' merged/config.json >again/config.json
for command in "generate again --prompt a" "info again" "eval again --data text.txt" \
    "export again --format gguf --out again.gguf" "export again --format safetensors --out again2" \
    "train c.yaml --set model.from=again" "train c.yaml --set distill.teacher=again --set model.vocab=1000"; do
    "$banyan" $command >out 2>err && fail "$command: taken"
    grep -q "tensor 'wte.weight' is .*; the model needs \[1000, 64\]; in config.json 1000 is \"vocab_size\"" err ||
        fail "$command: $(cat err)"
done

if command -v mpirun >/dev/null && ldd "$banyan" | grep -q libmpi; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    ranks() {
        count=$1
        shift
        run 0 mpirun --oversubscribe -n "$count" "$banyan" train "$@" --quiet
    }
    say "three MPI ranks save what one does, each its part; two go on from it"
    set -- --set train.micro_batch=2 --set parallel.writers=3 --set parallel.replica_hash_every=10
    ranks 3 c.yaml --set name=three "$@"
    exists runs/three/checkpoints/step-00000010/model-00003-of-00003.safetensors
    run 0 "$banyan" checkpoint digest runs/three
    same run.digest out
    rm -r runs/three/checkpoints/step-00000020 runs/three/checkpoints/best.json
    ranks 2 --resume runs/three
    run 0 "$banyan" checkpoint digest runs/three
    same run.digest out
    say "tensors that are cut over ranks: one rank reads them, and merges them"
    ranks 2 c.yaml --set name=cut --set parallel.tensor=2 "$@"
    exists runs/cut/checkpoints/step-00000020/model.slices.json
    run 0 "$banyan" checkpoint merge runs/cut whole
    run 0 "$banyan" checkpoint digest runs/cut
    sed -n 's/\tmodel$//p' out >expected
    run 0 "$banyan" checkpoint digest whole
    sed -n 's/\tmodel$//p' out >got
    same expected got
    run 0 "$banyan" eval whole --data text.txt --json
    near "$(field valid_loss <out)" "$loss" 1e-3
fi

say "checkpoints are listed, compared and pruned"
run 0 "$banyan" train c.yaml --set train.micro_batch=2 --quiet --set name=kept --set train.steps=60 \
    --set train.eval_every=10 --set checkpoint.keep=1 --set checkpoint.keep_best=2 --set checkpoint.keep_every=20
run 0 "$banyan" checkpoint ls runs/kept --json
for step in 20 40 60; do holds out "\"step\":$step,\"valid\":true"; done
[ "$(grep -c '"valid_loss":[0-9]' out)" -ge 3 ] || fail "no validation loss: $(cat out)"
[ "$(wc -l <out)" -le 5 ] || fail "too many are left: $(cat out)"
run 0 "$banyan" checkpoint ls runs/kept
holds out "valid, best"
run 0 "$banyan" checkpoint verify runs/kept
run 0 "$banyan" checkpoint diff runs/kept/checkpoints/step-00000060 runs/kept
holds out "84 of 84 tensors are equal"
run 1 "$banyan" checkpoint diff runs/kept/checkpoints/step-00000020 runs/kept --json
holds out '"name":"m.wte.weight","part":"optimizer","state":"different"'
run 0 "$banyan" checkpoint diff runs/tiny merged
run 0 "$banyan" checkpoint prune runs/kept --keep 1 --keep-every 40 --dry-run
holds out "would remove	20"
exists runs/kept/checkpoints/step-00000020
run 0 "$banyan" checkpoint prune runs/kept --keep 1 --keep-every 40 --json
holds out '{"dry_run":false,"removed":[20'
[ ! -e runs/kept/checkpoints/step-00000020 ] || fail "it was not removed"
exists runs/kept/checkpoints/step-00000040 runs/kept/checkpoints/step-00000060
run 2 "$banyan" checkpoint prune runs/kept --keep 0
run 1 "$banyan" checkpoint ls merged

say "frozen tensors are written once: later checkpoints link their file, and are the same without it"
set -- --set train.micro_batch=2 --quiet --set 'optimizer.groups=[{match: "wte.*", frozen: true}]'
run 0 "$banyan" train c.yaml "$@" --set name=frozen
for step in 10 20; do exists runs/frozen/checkpoints/step-000000$step/model-frozen-00001-of-00001.safetensors; done
rm -r runs/frozen/checkpoints/step-00000010
run 0 "$banyan" checkpoint verify runs/frozen
run 0 "$banyan" checkpoint digest runs/frozen
cp out frozen.digest
rm -r runs/frozen/checkpoints
run 0 "$banyan" train c.yaml "$@" --set name=waits --set checkpoint.async=false
run 0 "$banyan" checkpoint digest runs/waits
same frozen.digest out

say "the average of the weights is evaluated, resumed, and merged into a model"
set -- --set train.micro_batch=2 --quiet --set optimizer.ema=0.8 --set train.eval_ema=true
run 0 "$banyan" train c.yaml "$@" --set name=averaged
run 0 "$banyan" checkpoint digest runs/averaged
cp out averaged.digest
# The weights are those of a run without it.
[ "$(sed -n 's/\tmodel$//p' out)" = "$(sed -n 's/\tmodel$//p' run.digest)" ] || fail "$(cat out)"
best=$(grep '"valid_loss"' runs/averaged/events.jsonl | tail -n 1 | field valid_loss)
run 0 "$banyan" eval runs/averaged --ema --batches 4 --json
near "$(field valid_loss <out)" "$best" 1e-6
run 0 "$banyan" eval runs/averaged --batches 4 --json
[ "$(field valid_loss <out)" != "$best" ] || fail "the average is the weights"
rm -r runs/averaged/checkpoints/step-00000020 runs/averaged/checkpoints/best.json
run 0 "$banyan" train --resume runs/averaged --quiet
run 0 "$banyan" checkpoint digest runs/averaged
same averaged.digest out
run 0 "$banyan" checkpoint merge runs/averaged averaged --ema
run 0 "$banyan" eval averaged --data text.txt --json
cp out merged.out
run 0 "$banyan" eval runs/averaged --ema --data text.txt --json
near "$(field valid_loss <merged.out)" "$(field valid_loss <out)" 1e-6
run 0 "$banyan" generate runs/averaged --ema --tokens 5
run 1 "$banyan" checkpoint merge runs/tiny nothing --ema
holds err "without optimizer.ema"
run 2 "$banyan" eval merged --ema
holds err "is not a run"

say "batches grow: two ranks go on within a stage and end as one does"
grows='train.batch_warmup=[{batch: 2, steps: 6}, {batch: 4, steps: 7}]'
set -- --set train.micro_batch=1 --set "$grows" --quiet
run 0 "$banyan" train c.yaml "$@" --set name=grows
holds runs/grows/checkpoints/step-00000010/state.json '"28"' # 6 x 2 + 4 x 4
holds runs/grows/checkpoints/step-00000020/state.json '"96"' # 6 x 2 + 7 x 4 + 7 x 8
run 0 "$banyan" checkpoint digest runs/grows
cp out grows.digest
rm -r runs/grows/checkpoints/step-00000020 runs/grows/checkpoints/best.json
if command -v mpirun >/dev/null && ldd "$banyan" | grep -q libmpi; then
    ranks 2 --resume runs/grows
else
    run 0 "$banyan" train --resume runs/grows --quiet
fi
run 0 "$banyan" checkpoint digest runs/grows
same grows.digest out

say "nothing is overwritten, and what is wrong is said"
run 2 "$banyan" checkpoint merge runs/tiny merged
holds err "merged already exists"
run 2 "$banyan" checkpoint merge text.txt other
holds err "text.txt is a file; give a run"
run 2 "$banyan" checkpoint
run 2 "$banyan" checkpoint digest
run 2 "$banyan" checkpoint digest nowhere
printf x | dd of="$newest/model.safetensors" bs=1 seek=1000 conv=notrunc 2>dd.err
run 1 "$banyan" checkpoint digest "$newest"
holds err "model.safetensors is corrupt"
run 0 "$banyan" checkpoint ls runs/tiny
run 1 "$banyan" checkpoint verify runs/tiny
holds out "model.safetensors is corrupt"
run 1 "$banyan" checkpoint verify "$newest" --json
holds out '"valid":false,"reason":'
run 1 "$banyan" checkpoint merge "$newest" other
[ ! -e other ] || fail "other is there"
