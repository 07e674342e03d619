#!/bin/sh
# Accumulation: a batch cut into micro-batches, a last odd one among the tree's leaves included, has the loss
# and the gradient of the whole batch up to rounding, and trains to the same weights up to rounding.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
for micro in 12 6 4 3 1; do
    say "batch 12 in micro-batches of $micro"
    run 0 "$banyan" train c.yaml --json --set model.dropout=0 --set train.batch=12 --set name="m$micro" \
        --set train.micro_batch=$micro --set train.eval_batches=all
    grep '"step":1,' out >first
    grep '"event":"eval"' out | tail -n 1 >last
    if [ "$micro" -eq 12 ]; then
        loss=$(field loss <first) norm=$(field norm <first) valid=$(field valid_loss <last)
    fi
    near "$(field loss <first)" "$loss" 2e-6
    near "$(field norm <first)" "$norm" 2e-5
    near "$(field valid_loss <last)" "$valid" 2e-3
done

say "more micro-batches need more gradient sets: the plan says so"
run 0 "$banyan" info c.yaml --json --set train.batch=8 --set train.micro_batch=8
one=$(field gradient_bytes <out)
run 0 "$banyan" info c.yaml --json --set train.batch=8 --set train.micro_batch=1
eight=$(field gradient_bytes <out)
[ "$eight" -eq $((4 * one)) ] || fail "$eight bytes for eight leaves, $one for one"
