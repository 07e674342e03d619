#!/bin/sh
# The memory that a run takes at its peak (VmHWM) is the memory that was planned before it began, within 3 %
# or 64 MiB, whichever is more.
. "$(dirname "$0")/../support/shell.sh"

cat >c.yaml <<END
model: {kind: gpt2, layers: 6, heads: 8, width: 512, context: 256, vocab: 8192}
train: {batch: 4}
END
for setting in "precision.compute=f32" "precision.compute=bf16" "memory.recompute=block" "train.micro_batch=1" \
    "model.kind=llama" "offload.optimizer=disk"; do
    run 0 "$banyan" bench train c.yaml --steps 1 --json --set "$setting"
    planned=$(field planned_bytes <out)
    measured=$(field measured_bytes <out)
    [ "$setting" != offload.optimizer=disk ] || holds out '"disk_ms":'
    say "$setting: planned $planned, measured $measured bytes"
    [ "$planned" -gt 300000000 ] || fail "the model is too small to tell"
    near "$measured" "$planned" "$(awk -v p="$planned" 'BEGIN { print (0.03 * p > 67108864) ? 0.03 * p : 67108864 }')"
done
