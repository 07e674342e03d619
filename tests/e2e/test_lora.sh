#!/bin/sh
# A run that trains adapters: it resumes bit for bit, on several ranks too, writes the frozen weights once, and
# the adapters that it writes give the same model wherever they are added to it.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=base
run 0 "$banyan" checkpoint merge runs/base model
run 2 "$banyan" train c.yaml --set name=new --set lora.rank=4
holds err "lora.rank is 4, and adapters change weights that are trained already: set model.from"
run 2 "$banyan" train c.yaml --set name=new --set lora.from=adapters
holds err "lora.from is adapters, and its adapters change weights that are trained already: set model.from"

say "text for weights to start from has their tokenizer, if the config names none"
sed 's/tokenizer: char, //' c.yaml >plain.yaml
for from in model runs/base; do
    run 0 "$banyan" train plain.yaml --quiet --set model.from=$from --set train.steps=1 --set optimizer.warmup=0 --set name=plain
    same model/tokenizer.json runs/plain/checkpoints/step-00000001/tokenizer.json
    holds runs/plain/config.yaml "  tokenizer: $from/"
    rm -r runs/plain
done
run 0 "$banyan" train plain.yaml --quiet --set distill.teacher=model --set train.steps=1 --set optimizer.warmup=0 --set name=plain
same model/tokenizer.json runs/plain/checkpoints/step-00000001/tokenizer.json
rm -r runs/plain
{ cat text.txt && echo "Other letters."; } >other.txt
run 0 "$banyan" pack other.txt --tokenizer char --out other-letters
run 2 "$banyan" train plain.yaml --quiet --set model.from=model --set data.tokenizer=other-letters/tokenizer.json --set name=plain
holds err "set data.tokenizer=model"
cp -r model bare && rm bare/tokenizer.json
run 0 "$banyan" train c.yaml --quiet --set model.from=bare --set train.steps=1 --set optimizer.warmup=0 --set name=plain
holds err "model.from=bare has no tokenizer.json"
run 2 "$banyan" train c.yaml --quiet --set model.from=bare --set data.tokenizer=bpe \
    --set data.tokenizer_vocab=300 --set name=plain
holds err "model.from=bare: \"vocab_size\" of its config.json is "
holds err "set data.tokenizer to the model's, or copy its tokenizer.json to it"
rm -r runs/plain

set -- train c.yaml --json --set model.from=model --set lora.rank=4 --set lora.alpha=8 --set lora.dropout=0.1 \
    --set "lora.targets=[c_attn, mlp.c_proj]" --set "lora.train_also=[ln_f.*]" --set train.micro_batch=4 --set checkpoint.every=4
say "a run without disturbance"
run 0 "$banyan" "$@" --set name=whole
whole=runs/whole/checkpoints/step-00000020
holds "$whole/adapter_config.json" '"transformer.ln_f"'
for name in runs/whole/checkpoints/*/model-frozen-*; do
    [ "$name" -ef "$(echo "$whole"/model-frozen-*)" ] || fail "$name was written twice"
done
[ "$(wc -c <"$whole/adapter_model.safetensors")" -lt 40000 ] || fail "the adapters are not alone"

# digest RUN: of weights, adapters and the optimizer's state.
digest() {
    run 0 "$banyan" checkpoint digest "runs/$1"
    tail -n 1 out
}
whole_digest=$(digest whole)
# agrees RUN
agrees() {
    [ "$(digest "$1")" = "$whole_digest" ] || fail "$1 has other weights than the run that was whole"
    same "$whole/adapter_model.safetensors" "runs/$1/checkpoints/step-00000020/adapter_model.safetensors"
}

say "kill -9 after step 17, resume"
train_until 17 KILL "$banyan" "$@" --set name=killed
run 2 "$banyan" train --resume runs/killed --set lora.rank=8
holds err "was trained with lora.rank 4, not 8; leave it as it was, or start a new run"
run 0 "$banyan" train --resume runs/killed
agrees killed

say "eval, generate and merge add the same"
run 0 "$banyan" eval runs/whole --json
loss=$(field valid_loss <out)
cp -r "$whole" adapter
rm adapter/model* adapter/optimizer* adapter/manifest.json
run 0 "$banyan" checkpoint merge runs/whole merged
run 0 "$banyan" checkpoint merge model apart --adapter adapter
same merged/model.safetensors apart/model.safetensors
[ ! -e merged/adapter_config.json ] || fail "what is merged has an adapter still"
for model in "model --adapter adapter" merged; do
    # shellcheck disable=SC2086
    run 0 "$banyan" eval $model --data text.txt --json
    field valid_loss <out >>losses
    # shellcheck disable=SC2086
    run 0 "$banyan" generate $model --prompt oak --tokens 20 --temperature 0 --threads 1
    cat out >>texts
done
run 0 "$banyan" generate runs/whole --prompt oak --tokens 20 --temperature 0 --threads 1
cat out >>texts
[ "$(sort -u losses | wc -l)" -eq 1 ] || fail "losses differ: $(cat losses)"
[ "$(sort -u texts | wc -l)" -eq "$(wc -l <out)" ] || fail "texts differ: $(cat texts)"
run 0 "$banyan" eval runs/base --json
[ "$(field valid_loss <out)" != "$loss" ] || fail "the adapters change nothing"

say "the plan tells what is trained"
run 0 "$banyan" info runs/whole
holds out "trained       4736 parameters"

. "$root/tests/support/mpi.sh"
say "two ranks that divide state, gradients and parameters"
run 0 mpi_run 2 "$banyan" "$@" --set name=ranks --set parallel.shard=2 --set parallel.zero=3 --set parallel.writers=2
agrees ranks

say "weights in codes: resumed, on two ranks that divide state, and written once"
set -- train c.yaml --json --set model.from=model --set lora.rank=4 --set lora.base=int4 --set lora.base_group=32 \
    --set "lora.targets=[all-linear]" --set train.micro_batch=4 --set optimizer.lr=1e-2 --set train.eval_batches=all
run 0 "$banyan" info c.yaml --set model.from=model --set lora.rank=4 --json
full=$(field parameter_bytes <out)
run 0 "$banyan" info c.yaml --set model.from=model --set lora.rank=4 --set lora.base=int4
holds out "codes         frozen weights of layers in int4, which saves "
run 0 "$banyan" info c.yaml --set model.from=model --set lora.rank=4 --set lora.base=int4 --json
[ "$(field parameter_bytes <out)" -lt $((full / 3)) ] || fail "codes take no less: $full and $(field parameter_bytes <out)"
run 0 "$banyan" "$@" --set name=coded
trained_loss=$(grep '"event":"eval"' out | tail -n 1 | field valid_loss)
whole=runs/coded/checkpoints/step-00000020
whole_digest=$(digest coded)
same runs/coded/checkpoints/step-00000010/model-frozen-* "$whole"/model-frozen-*
holds $whole/config.json '"format": "pack-quantized"'
run 0 "$banyan" "$@" --set name=half
rm -r runs/half/checkpoints/step-00000020
run 2 "$banyan" train --resume runs/half --set lora.base=int8
run 0 "$banyan" train --resume runs/half
agrees half
run 0 mpi_run 2 "$banyan" "$@" --set name=coded-ranks --set parallel.shard=2 --set parallel.zero=3 --set parallel.writers=2
agrees coded-ranks

say "what the checkpoint has is what was trained"
run 0 "$banyan" eval runs/coded --json
near "$(field valid_loss <out)" "$trained_loss" 1e-3
run 0 "$banyan" eval runs/base --json
awk -v a="$(field valid_loss <out)" -v b="$trained_loss" 'BEGIN { exit !(b < a) }' || fail "nothing is learned beside codes: $trained_loss"
run 0 "$banyan" eval runs/coded --data text.txt --json
loss=$(field valid_loss <out)
run 0 "$banyan" checkpoint merge runs/coded coded-merged
! grep -q quantization_config coded-merged/config.json || fail "what is merged says that it has codes"
run 0 "$banyan" eval coded-merged --data text.txt --json
near "$(field valid_loss <out)" "$loss" 1e-5

say "from a directory that is compressed, whose codes are kept"
run 0 "$banyan" compress model --method int4 --set group=32 --out compressed
run 0 "$banyan" "$@" --set name=kept --set model.from=compressed --set train.steps=10
run 2 "$banyan" "$@" --set name=other --set model.from=compressed --set lora.base=int8
holds err "is held in codes of int4"
