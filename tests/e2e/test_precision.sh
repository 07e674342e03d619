#!/bin/sh
# fp16 with a scale of the loss, and weights in bf16: they learn, resume to the same files, generate; what does not go
# together is refused.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=single --quiet
single=$(grep '"eval"' runs/single/events.jsonl | tail -n 1 | field valid_loss)

# learns NAME BOUND SETTINGS...: 20 steps, and 10 of them again from the checkpoint of step 10. BOUND: of the
# difference to f32.
learns() {
    name=$1
    bound=$2
    shift 2
    say "$name learns"
    run 0 "$banyan" train c.yaml --set name="$name" "$@"
    loss=$(grep '"eval"' "runs/$name/events.jsonl" | tail -n 1 | field valid_loss)
    near "$loss" "$single" "$bound"
    if cmp -s "runs/$name/checkpoints/step-00000020/model.safetensors" \
        runs/single/checkpoints/step-00000020/model.safetensors; then fail "the weights of f32"; fi
    cp err "$name.err"

    say "$name goes on to the same files"
    cp -r "runs/$name" runs/cut
    rm -r runs/cut/checkpoints/step-00000020
    run 0 "$banyan" train --resume runs/cut --quiet
    for file in model.safetensors optimizer.safetensors; do
        same "runs/cut/checkpoints/step-00000020/$file" "runs/$name/checkpoints/step-00000020/$file"
    done
    for key in loss_scale loss_scale_steps skipped; do
        [ "$(field $key <runs/cut/checkpoints/step-00000020/state.json)" = \
            "$(field $key <"runs/$name/checkpoints/step-00000020/state.json")" ] || fail "$key"
    done
    rm -r runs/cut

    say "$name generates"
    for precision in f32 bf16 fp16; do
        run 0 "$banyan" generate "runs/$name" --prompt a --tokens 8 --precision $precision
    done
}

learns half 0.2 --set precision.compute=fp16 --set precision.loss_scale=16777216 --set precision.growth_interval=6
holds half.err "fp16 is slow on this device"
holds half.err "times a scale of 1.67772e+07"
holds half.err "; the scale of the loss becomes 8.38861e+06"
holds runs/half/events.jsonl '"reason":"overflow"'
holds runs/half/events.jsonl '"loss_scale":'

learns narrow 0.03 --set precision.compute=bf16 --set precision.weights=bf16
for file in model optimizer; do
    grep -aq '"BF16"' "runs/narrow/checkpoints/step-00000020/$file.safetensors" || fail "no BF16 in $file"
done
run 0 "$banyan" train c.yaml --set name=nearest --quiet --set precision.compute=bf16 --set precision.weights=bf16 \
    --set precision.rounding=nearest
if cmp -s runs/narrow/checkpoints/step-00000020/model.safetensors \
    runs/nearest/checkpoints/step-00000020/model.safetensors; then fail "rounding shows in no bit"; fi

say "auto is what the machine multiplies fastest, and stays what it was"
BANYAN_ISA=avx2 run 0 "$banyan" train c.yaml --quiet --set precision.compute=auto --set name=chosen
holds runs/chosen/config.yaml "compute: f32"
BANYAN_ISA=avx2 run 0 "$banyan" train c.yaml --quiet --set name=given
same runs/chosen/checkpoints/step-00000020/model.safetensors runs/given/checkpoints/step-00000020/model.safetensors
rm -r runs/chosen/checkpoints/step-00000020
run 0 "$banyan" train --resume runs/chosen --quiet
holds runs/chosen/config.yaml "compute: f32"
run 0 "$banyan" info c.yaml --config --set precision.compute=auto --set precision.weights=bf16
holds out "compute: bf16"

say "what does not go together"
run 2 "$banyan" train c.yaml --set precision.weights=bf16
holds err "precision.weights bf16 needs precision.compute bf16, not f32"
run 2 "$banyan" train c.yaml --set precision.compute=bf16 --set precision.weights=bf16 --set offload.optimizer=disk
holds err "does not support state on disk"
run 2 "$banyan" train c.yaml --set precision.compute=fp16 --set precision.loss_scale=0.5
holds err "is not within min_loss_scale 1"
run 2 "$banyan" train c.yaml --set precision.compute=fp16 --set sync.compress=int8
holds err "loss scaling needs an uncompressed exchange"

say "training with rounded weights: the run's loss is that of its codes"
run 0 "$banyan" train c.yaml --set precision.qat=int4 --set precision.qat_group=32 --set train.eval_batches=all --set name=qat
loss=$(grep '"eval"' runs/qat/events.jsonl | tail -n 1 | field valid_loss)
run 0 "$banyan" compress runs/qat --method int4 --set group=32 --set head=16 --out qat4 --eval held-out --json
near "$(field loss_after <out)" "$loss" 2e-3
[ "$(field loss_before <out)" != "$(field loss_after <out)" ] || fail "no weight was rounded"
run 0 "$banyan" train c.yaml --set model.from=runs/qat --set name=more --set train.steps=6
newest=$(find runs/qat/checkpoints -name 'step-*' | sort | tail -n 1)
holds runs/more/config.yaml "from: $newest"
first=$(grep '"loss"' runs/more/events.jsonl | head -n 1 | field loss)
awk -v a="$first" -v b="$loss" 'BEGIN { exit !(a < b + 0.3) }' || fail "the weights are not those of the run: $first"
run 2 "$banyan" train c.yaml --set precision.qat=int4 --set precision.qat_group=48 --set name=no
holds err "precision.qat_group is 48; must be 32, 64 or 128"
