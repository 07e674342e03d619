#!/bin/sh
# Training on a mix of packed directories: stopped and resumed it has the bits of one go; the mix is in the
# checkpoint, and another one is refused.
. "$(dirname "$0")/../support/shell.sh"

digest() { "$banyan" checkpoint digest "$1" | tail -n 1 | cut -f 1; }

head -c 6000 text.txt >a.txt
tail -c 3000 text.txt >b.txt
run 0 "$banyan" pack a.txt --vocab 300 --output a --valid-fraction 0.1
run 0 "$banyan" pack b.txt --tokenizer a/train/tokenizer.json --output b
cat >c.yaml <<'END'
name: mixed
model: {kind: gpt2, layers: 1, heads: 2, width: 32, context: 16}
precision: {compute: f32}
data:
  mix: [a/train=0.7, b=0.3]
  curriculum: [5=0.5:0.5, 8=0:1]
  valid: a/valid
train: {steps: 12, batch: 8, micro_batch: 4, eval_every: 0, eval_batches: 1}
checkpoint: {every: 6}
END

for order in exact random; do
    say "$order: the same weights after a resume"
    run 0 "$banyan" train c.yaml --quiet --set "name=$order" --set "data.mix_order=$order"
    digest "runs/$order/checkpoints/step-00000012" >"$order.digest"
    rm -r "runs/$order/checkpoints/step-00000012"
    run 0 "$banyan" train --resume "runs/$order" --quiet
    digest "runs/$order/checkpoints/step-00000012" | same - "$order.digest"
done
! cmp -s exact.digest random.digest || fail "the order changes nothing"

say "the checkpoint names the mix, and goes on with no other"
holds runs/exact/checkpoints/step-00000012/state.json "exact a/train=0.7 b=0.3; from step 5=0.5:0.5, 8=0:1"
run 2 "$banyan" train --resume runs/exact --set train.steps=14 --set data.curriculum=[5=0.5:0.5]
holds err "the text or data.mix was edited"

# refused ASSIGNMENT WHAT: the config ends in an error that says WHAT.
refused() {
    run 2 "$banyan" train c.yaml --set "$1"
    holds err "$2"
}
say "what is not a mix is refused with the way out"
refused "data.mix=[a/train, b=1]" "'a/train' is not DIR=WEIGHT"
refused "data.mix=[a/train=0, b=0]" "the weights add up to 0"
refused "data.curriculum=[5=1]" "a weight for each of the 2 directories"
refused "data.curriculum=[5=1:0, 5=1:1]" "not behind the step before it"
refused "data.curriculum=[50=1:0]" "must begin with a step from 2 to train.steps, 12"
refused "data.text=[a.txt]" "data.mix and data.text are both set"
refused "data.mix=[]" "there is no data.mix"
run 0 "$banyan" pack b.txt --vocab 280 --output c
run 2 "$banyan" train c.yaml --set "data.mix=[a/train=1, c=1]" --set data.curriculum=[]
holds err "c (data.mix) was packed with another tokenizer"
