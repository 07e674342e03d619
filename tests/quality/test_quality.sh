#!/bin/sh
# A short training must come near what its text allows. The words of the text are independent and equally
# likely, so the best loss a character is known: ln(16) nats a word over its mean length with the blank. No
# model can be below it on held-out text, beyond what the draw of a finite text allows.
. "$(dirname "$0")/../support/shell.sh"

floor=$(awk 'BEGIN {
    count = split("apple bay cedar dune elm fern grove hill iris jade kelp lime moss nut oak pine", word, " ")
    for (i = 1; i <= count; i++) length_sum += length(word[i]) + 1
    print log(count) / (length_sum / count)
}')
# Blanks alone: where a line ends would have to be learned too.
tr '\n' ' ' <text.txt >words && mv words text.txt
for setting in "gpt2 f32" "gpt2 bf16" "gpt2 fp16" "gpt2 bf16 bf16" "llama f32" "llama bf16" "mixtral bf16"; do
    # shellcheck disable=SC2086
    set -- $setting
    tiny "$1" >c.yaml
    run 0 "$banyan" train c.yaml --quiet --set precision.compute="$2" --set precision.weights="${3:-f32}" \
        --set model.dropout=0 --set name="$1-$2${3:+-$3}" \
        --set train.steps=400 --set train.eval_every=0 --set train.eval_batches=all --set checkpoint.every=0
    run 0 "$banyan" eval "runs/$1-$2${3:+-$3}" --json
    loss=$(field valid_loss <out)
    say "$setting: $loss nats a character; the text allows $floor"
    awk -v loss="$loss" -v floor="$floor" 'BEGIN { exit !(loss > 0.97 * floor && loss < 1.12 * floor) }' ||
        fail "the loss is not within -3 % and +12 % of $floor"
done
