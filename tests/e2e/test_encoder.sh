#!/bin/sh
# An encoder: trained on hidden tokens, resumed, evaluated; vectors of texts; what it refuses.
. "$(dirname "$0")/../support/shell.sh"

make_text text.txt 400
cat >bert.yaml <<'END'
name: bert
model: {kind: bert, layers: 2, width: 32, heads: 2, context: 32}
task: {kind: masked}
data: {text: [text.txt], tokenizer: bpe, tokenizer_vocab: 300, valid_fraction: 0.1}
train: {batch: 8, micro_batch: 4, steps: 12, eval_every: 6}
checkpoint: {every: 6}
precision: {compute: f32}
END

say "training, resumed, on two threads"
run 0 "$banyan" train bert.yaml --quiet
run 0 "$banyan" train bert.yaml --quiet --set name=threads --set train.threads=2
same runs/bert/checkpoints/step-00000012/model.safetensors runs/threads/checkpoints/step-00000012/model.safetensors
rm -r runs/threads/checkpoints/step-00000012
run 0 "$banyan" train --resume runs/threads --quiet
same runs/bert/checkpoints/step-00000012/model.safetensors runs/threads/checkpoints/step-00000012/model.safetensors
run 0 "$banyan" eval runs/bert
holds out "perplexity"

say "the vector of a text does not depend on those beside it"
printf 'a\nthe quick brown fox\n' >two.txt
head -n 1 two.txt >one.txt
run 0 "$banyan" embed runs/bert --batch two.txt
head -n 1 out >first
run 0 "$banyan" embed runs/bert --batch one.txt
same out first

say "what does not fit"
run 2 "$banyan" generate runs/bert --prompt a
holds err "is an encoder"
run 2 "$banyan" train bert.yaml --set task.kind=language --set name=other
holds err "set task.kind to masked"
run 2 "$banyan" train bert.yaml --set model.kind=gpt2 --set name=other
holds err "needs an encoder"
run 2 "$banyan" train bert.yaml --set data.documents=mask --set name=other
holds err "data.documents"
run 2 "$banyan" predict runs/bert text.txt
holds err "no predictions"
