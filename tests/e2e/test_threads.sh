#!/bin/sh
# The number of threads does not change a bit of the weights, and they are not all bound to one processor.
. "$(dirname "$0")/../support/shell.sh"

for setting in "gpt2 f32" "gpt2 bf16" "llama f32" "llama bf16"; do
    # shellcheck disable=SC2086
    set -- $setting
    rm -rf runs
    tiny "$1" >c.yaml
    for threads in 1 2 3; do
        say "$setting with $threads threads"
        run 0 "$banyan" train c.yaml --quiet --set precision.compute="$2" --set name="t$threads" \
            --set train.threads=$threads --set train.steps=10 --set model.width=96 --set model.context=128
        for file in model.safetensors optimizer.safetensors; do
            same "runs/t1/checkpoints/step-00000010/$file" "runs/t$threads/checkpoints/step-00000010/$file"
        done
    done
done

say "threads that OpenMP is to bind have all processors, in a program that executes itself again too"
run 0 "$banyan" doctor
grep '^cores' out >free
for setting in OMP_PROC_BIND=close OMP_PLACES=cores; do
    run 0 env -u OMP_WAIT_POLICY "$setting" "$banyan" doctor
    grep '^cores' out >bound
    same free bound
done
