#!/bin/sh
# Parts of a model that its config chooses: training with any number of threads, a resumed run, generation, and files
# for other programs.
. "$(dirname "$0")/../support/shell.sh"

make_text text.txt 200
tiny gpt2 >c.yaml
sed -i 's/steps: 20, batch: 8, eval_every: 10/steps: 4, batch: 4, eval_every: 0/; s/every: 10, keep: 3/every: 2, keep: 3/; s/warmup: 5/warmup: 1/' c.yaml

# train NAME SETTINGS...: one after another "section.key=value".
train() {
    name=$1
    shift
    settings=
    for setting in "$@"; do settings="$settings --set $setting"; done
    # shellcheck disable=SC2086
    run 0 "$banyan" train c.yaml --quiet --set name="$name" $settings
}
weights() { echo "runs/$1/checkpoints/step-00000004/model.safetensors"; }

say "the same weights for any number of threads, in micro-batches, and with what is recomputed"
parts="attention.kind=mixed attention.window=9 attention.pattern=[window,alibi,linear] model.layers=3 position.kind=rope"
parts="$parts norm.kind=rms mlp.kind=gated activation.kind=silu"
# shellcheck disable=SC2086
train one $parts train.threads=1
# shellcheck disable=SC2086
train two $parts train.threads=2 memory.recompute=block
same "$(weights one)" "$(weights two)"
holds "$(dirname "$(weights one)")/config.json" '"model_type": "custom_gpt2"'

say "a run continues with its parts, and with no others"
run 0 "$banyan" train --resume runs/one --quiet --set train.steps=6
run 2 "$banyan" train --resume runs/one --set train.steps=8 --set norm.kind=layer
holds err "was trained with norm.kind rms, not layer"

say "generation: the engine and a whole pass agree"
train local attention.kind=local_global attention.window=9 position.kind=sinusoidal
train alibi attention.kind=alibi model.context=32
train linear attention.kind=linear
train streams model.kind=llama model.layers=3 values.kind=embedded residual.kind=mixed \
    model.tied=false mlp.kind=plain activation.kind=relu2
for name in local alibi linear streams; do
    run 0 "$banyan" generate runs/$name --prompt "apple bay " --tokens 30 --temperature 0
    cp out plain
    run 0 "$banyan" generate runs/$name --prompt "apple bay " --tokens 30 --temperature 0 --threads 2
    same out plain
done
run 0 "$banyan" eval runs/linear

say "other programs: windows as ONNX has them, slopes not; a Llama with windows is a Mistral"
run 0 "$banyan" export runs/local --format onnx --output local.onnx
run 0 "$banyan" export runs/streams --format onnx --output streams.onnx
holds "$(dirname "$(weights streams)")/config.json" '"model_type": "custom_llama"'
run 1 "$banyan" export runs/streams --format gguf --output streams.gguf
holds err "model_type 'custom_llama' is not exported to GGUF"
run 2 "$banyan" export runs/alibi --format onnx --output alibi.onnx
holds err "slopes (ALiBi) have no form in ONNX"
train llama model.kind=llama attention.kind=window attention.window=9
holds "$(dirname "$(weights llama)")/config.json" '"model_type": "mistral"'
run 0 "$banyan" generate runs/llama --prompt "apple bay " --tokens 5
