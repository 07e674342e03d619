#!/bin/sh
# precision.compute fp16: it says that it is slow, learns, resumes to the same weights, and generates.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml

say "fp16 learns"
run 0 "$banyan" train c.yaml --set precision.compute=fp16 --set name=half
holds err "fp16 is slow on this device"
run 0 "$banyan" train c.yaml --set name=single --quiet
half=$(grep '"eval"' runs/half/events.jsonl | tail -n 1 | field valid_loss)
single=$(grep '"eval"' runs/single/events.jsonl | tail -n 1 | field valid_loss)
near "$half" "$single" 0.01
if cmp -s runs/half/checkpoints/step-00000020/model.safetensors \
    runs/single/checkpoints/step-00000020/model.safetensors; then fail "the weights of f32"; fi

say "and goes on to the same weights"
cp -r runs/half runs/cut
rm -r runs/cut/checkpoints/step-00000020
run 0 "$banyan" train --resume runs/cut
same runs/cut/checkpoints/step-00000020/model.safetensors \
    runs/half/checkpoints/step-00000020/model.safetensors

say "generate in any precision"
for precision in f32 bf16 fp16; do
    run 0 "$banyan" generate runs/half --prompt a --tokens 8 --precision $precision
done
