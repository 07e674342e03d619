#!/bin/sh
# onnxruntime runs the ONNX graphs that banyan writes: equal logits with and without past keys and values, for
# any batch and sequence, and equal greedy text.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/export-env" >/dev/null || {
    echo "skipped: scripts/export-env could not install onnxruntime"
    exit 77
}
python=$root/build/venv-export/bin/python
checker=$root/tests/parity/check_onnx.py

make_text text.txt 100
# check NAME MODEL: exports a model in both forms.
check() {
    say "$1"
    cat >"$1.yaml" <<END
name: $1
model: {$2, layers: 2, heads: 4, width: 64, context: 256}
data: {text: [text.txt], tokenizer: char}
train: {steps: 6, batch: 4, eval_every: 0}
optimizer: {lr: 3e-3, warmup: 2}
END
    run 0 "$banyan" train "$1.yaml"
    run 0 "$banyan" eval "runs/$1" --logits-out "$1.logits.safetensors"
    run 0 "$banyan" export "runs/$1" --format onnx --output "$1.onnx"
    run 0 "$python" "$checker" logits "$1.onnx" "$1.logits.safetensors"
    run 0 "$banyan" export "runs/$1" --format onnx --no-cache --output "$1-whole.onnx"
    run 0 "$python" "$checker" logits "$1-whole.onnx" "$1.logits.safetensors"
}
check gpt2 "kind: gpt2"
check llama "kind: llama, kv_heads: 2"
check qwen3 "kind: llama, kv_heads: 1, qk_norm: true, head_dim: 24, tied: true"
check mistral "kind: llama, window: 20, tied: true"
check yarn "kind: llama, qkv_bias: true, rope_scaling: yarn, rope_factor: 4, rope_original_context: 64"

for name in gpt2 llama; do
    say "$name: 200 greedy tokens"
    run 0 "$python" "$checker" greedy "$name.onnx" "$name.logits.safetensors" 200 tokens.safetensors
    run 0 "$banyan" eval "runs/$name" --tokens tokens.safetensors --logits-out back.safetensors
    run 0 "$python" "$checker" follows back.safetensors
done

say "what has no form in ONNX is an error"
run 2 "$banyan" export runs/llama --format onnx --dtype bf16 --output x.onnx
holds err "one of f32"
