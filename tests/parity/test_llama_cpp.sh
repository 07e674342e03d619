#!/bin/sh
# The real llama.cpp runs the GGUF files that banyan writes: equal logits, text, blocks, perplexity.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/export-env" >/dev/null || {
    echo "skipped: scripts/export-env could not install llama.cpp"
    exit 77
}
python=$root/build/venv-export/bin/python
checker=$root/tests/parity/check_llama_cpp.py

make_text text.txt 1500
# config NAME MODEL TOKENIZER
config() {
    cat >"$1.yaml" <<END
name: $1
model: {$2, layers: 2, heads: 4, width: 64, context: 256, dropout: 0.0}
precision: {compute: f32}
data: {text: [text.txt], $3}
train: {steps: 60, batch: 4, eval_every: 0}
optimizer: {lr: 1e-3, warmup: 5}
END
}
config gpt2 "kind: gpt2" "tokenizer: bpe, tokenizer_vocab: 320"
config llama "kind: llama, kv_heads: 2" "tokenizer: char"
config mixtral "kind: mixtral, kv_heads: 2, experts: 4" "tokenizer: char"

# llama.cpp rounds what goes through GPT-2's activation, and what comes out, to f16.
for pair in gpt2:2e-3 llama:1e-5 mixtral:1e-5; do
    name=${pair%:*}
    bound=${pair#*:}
    say "$name: logits, text and perplexity in llama.cpp"
    run 0 "$banyan" train "$name.yaml"
    run 0 "$banyan" eval "runs/$name" --logits-out "$name.logits.safetensors"
    run 0 "$banyan" generate "runs/$name" --prompt "apple bay" --temperature 0 --tokens 200
    tail -c +10 out >"$name.text"
    for dtype in f32 bf16 f16 q8_0 q4_0 q4_k; do
        run 0 "$banyan" export "runs/$name" --format gguf --dtype $dtype --output "$name-$dtype.gguf"
    done
    run 0 "$python" "$checker" logits "$name-f32.gguf" "$name.logits.safetensors" "$bound"
    run 0 "$python" "$checker" greedy "$name-f32.gguf" "apple bay" 200 "$name.text"
    for share in bf16:0.001 f16:0.0005 q8_0:0.001 q4_k:0.01 q4_0:0.05; do
        run 0 "$python" "$checker" perplexity "$name-${share%:*}.gguf" "$name.logits.safetensors" "${share#*:}"
    done
    run 0 "$python" "$checker" blocks "$name-f32.gguf" "$name-q8_0.gguf"
    run 0 "$python" "$checker" blocks "$name-f32.gguf" "$name-q4_0.gguf"
done

say "the file says where it comes from, and other readers read it"
hash=$(sed -n 's/.*"train_hash": {"string": "\(.*\)"}.*/\1/p' runs/llama/checkpoints/step-00000060/state.json)
run 0 "$python" "$checker" metadata llama-f32.gguf general.architecture=llama banyan.run=llama "banyan.data_hash=$hash"
