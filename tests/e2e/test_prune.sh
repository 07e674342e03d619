#!/bin/sh
# Pruned models: each method makes 2:4 of every layer, the result does not depend on threads, and training with
# optimizer.keep_zeros keeps the zeros, on two ranks with the same bits. Models of which heads, channels and layers are
# taken out are as large as planned, and are trained on.
. "$(dirname "$0")/../support/shell.sh"
zeros() { python3 "$root/tests/e2e/count_zeros.py" "$@" || fail "the zeros of $*"; }

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=dense
for method in magnitude wanda sparsegpt; do
    say "$method"
    run 0 "$banyan" compress runs/dense --method $method --set pattern=2:4 --out $method --samples 8
    zeros $method/model.safetensors
done
for method in wanda sparsegpt; do
    OMP_NUM_THREADS=1 run 0 "$banyan" compress runs/dense --method $method --set pattern=2:4 --out again-$method --samples 8
    same $method/model.safetensors again-$method/model.safetensors
done
run 2 "$banyan" compress runs/dense --method wanda --set pattern=4:8 --out no
holds err "pattern is '4:8'; must be one of: any 2:4"

say "training keeps the zeros"
set -- train c.yaml --set model.from=sparsegpt --set optimizer.keep_zeros=true --set train.micro_batch=4
run 0 "$banyan" "$@" --set name=tuned
tuned=runs/tuned/checkpoints/step-00000020/model.safetensors
zeros "$tuned" sparsegpt/model.safetensors
run 0 "$banyan" train c.yaml --set model.from=sparsegpt --set name=woken
python3 "$root/tests/e2e/count_zeros.py" runs/woken/checkpoints/step-00000020/model.safetensors 2>/dev/null &&
    fail "without keep_zeros the zeros stay, so nothing was tested"
. "$root/tests/support/mpi.sh"
run 0 mpi_run 2 "$banyan" "$@" --set name=ranks --set parallel.shard=2 --set parallel.zero=3
for name in tuned ranks; do
    run 0 "$banyan" checkpoint digest runs/$name
    tail -n 1 out >$name.digest
done
same tuned.digest ranks.digest

say "heads, channels and layers"
run 0 "$banyan" train c.yaml --set model.kind=llama --set model.kv_heads=2 --set name=llama
# smaller RUN METHOD OUT SETTINGS...: compresses, with the bytes of the plan and a loss
smaller() {
    from=$1 method=$2 to=$3
    shift 3
    run 0 "$banyan" compress "$from" --method "$method" "$@" --plan --json
    planned=$(field bytes <out)
    run 0 "$banyan" compress "$from" --method "$method" "$@" --out "$to" --samples 8 --data text.txt --eval text.txt --json
    [ "$(field bytes_after <out)" = "$planned" ] || fail "$to has not the $planned bytes of the plan"
    near "$(field loss_after <out)" "$(field loss_before <out)" 1
}
smaller runs/llama width narrow --set mlp=0.5 --set heads=0.5
smaller narrow depth small --set layers=1
smaller small int8 small8
OMP_NUM_THREADS=1 run 0 "$banyan" compress runs/llama --method width --set mlp=0.5 --set heads=0.5 --out again --samples 8 --data text.txt
same narrow/model.safetensors again/model.safetensors
grep -v '^model:' c.yaml >sizes-of-small.yaml
run 0 "$banyan" train sizes-of-small.yaml --set model.from=small --set name=healed
run 0 "$banyan" eval runs/healed --json

say "sequences are as long as those of the directory, up to 1024 tokens, or as the config says"
# context_of DIRECTORY SETTINGS...
context_of() {
    from=$1
    shift
    rm -rf runs/length
    run 0 "$banyan" train sizes-of-small.yaml --set model.from="$from" --set name=length --set train.steps=1 \
        --set optimizer.warmup=0 --set train.batch=1 --set train.eval_every=0 "$@"
    sed -n 's/^  context: //p' runs/length/config.yaml
}
length=$(sed -n 's/^  context: //p' runs/llama/config.yaml)
[ "$(context_of small)" = "$length" ] || fail "the context is not that of the directory"
[ "$(context_of small --set model.context=7)" = 7 ] || fail "the context is not that of the config"
cp -r small long
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 4096/' long/config.json
[ "$(context_of long)" = 1024 ] || fail "the context is not 1024"

say "what the directory fixes is refused unless it is the same; a scaling of positions takes effect"
for key in kv_heads=7 tied=true qk_norm=true window=8 rope_theta=5 experts=2; do
    run 2 "$banyan" train sizes-of-small.yaml --set model.from=small --set name=no --set model.$key
    holds err "model.${key%=*} "
done
holds err "model.experts belongs to mixtral; the kind here is llama, that of model.from=small"
context_of small --set model.rope_scaling=yarn --set model.rope_factor=2 --set model.context=7 \
    --set model.kind=llama --set model.layers=1 >scaled
holds runs/length/checkpoints/step-00000001/config.json '"rope_type": "yarn"'
holds runs/length/checkpoints/step-00000001/config.json "\"original_max_position_embeddings\": $length"
run 2 "$banyan" train sizes-of-small.yaml --set model.from=runs/length --set name=no --set model.rope_scaling=ntk
holds err "model.rope_scaling is ntk, but the weights of model.from=runs/length/checkpoints/step-00000001 have yarn"
run 2 "$banyan" compress runs/dense --method width --set heads=0.5 --out no
holds err "heads cannot be pruned; MLP channels and layers can"
