#!/bin/sh
# Exported models are what they were: directories in another type, GGUF files that are read back, run and
# converted.
. "$(dirname "$0")/../support/shell.sh"

make_text text.txt 60
# config NAME MODEL TOKENIZER
config() {
    cat >"$1.yaml" <<END
name: $1
model: {$2, layers: 2, heads: 4, width: 64, context: 32}
precision: {compute: f32}
data: {text: [text.txt], $3}
train: {steps: 3, batch: 2, eval_every: 0, eval_batches: 1}
END
}
config gpt2 "kind: gpt2" "tokenizer: bpe, tokenizer_vocab: 300"
config llama "kind: llama, kv_heads: 2" "tokenizer: char"
config mixtral "kind: mixtral, kv_heads: 2, experts: 3" "tokenizer: char"
# says MODEL NAME: its text, and its logits of the tokens in tokens.safetensors.
says() {
    run 0 "$banyan" generate "$1" --prompt "apple bay" --temperature 0 --tokens 24
    mv out "$2.text"
    run 0 "$banyan" eval "$1" --tokens tokens.safetensors --logits-out "$2.safetensors"
}

for name in gpt2 llama mixtral; do
    say "$name: a GGUF file in f32 is read back bit for bit, and so is the directory made of it"
    run 0 "$banyan" train "$name.yaml"
    run 0 "$banyan" eval "runs/$name" --logits-out tokens.safetensors
    says "runs/$name" "$name"
    run 0 "$banyan" export "runs/$name" --format gguf --dtype f32 --output "$name.gguf"
    says "$name.gguf" again
    same "$name.text" again.text
    same "$name.safetensors" again.safetensors
    run 0 "$banyan" export "$name.gguf" --format safetensors --output "$name-hf"
    says "$name-hf" again
    same "$name.text" again.text
    same "$name.safetensors" again.safetensors
    run 0 "$banyan" export "$name-hf" --format gguf --output "$name-2.gguf"
    run 0 "$banyan" info "$name-2.gguf" --json
    holds out '"parameters":'
    for dtype in bf16 f16 q8_0 q4_0 q4_k; do
        say "$name: $dtype is read, and written again as it was"
        run 0 "$banyan" export "runs/$name" --format gguf --dtype $dtype --output "$name-$dtype.gguf"
        run 0 "$banyan" export "$name-$dtype.gguf" --format gguf --dtype $dtype --output again.gguf
        run 0 "$banyan" export "$name-$dtype.gguf" --format safetensors --dtype f32 --output one
        run 0 "$banyan" export again.gguf --format safetensors --dtype f32 --output two
        case $dtype in
        bf16 | f16 | q8_0) same one/model.safetensors two/model.safetensors ;;
        esac
        rm -r one two again.gguf
    done
done

say "a directory in bf16, which says where it comes from"
run 0 "$banyan" export runs/llama --format safetensors --dtype bf16 --output half
holds half/config.json '"torch_dtype": "bfloat16"'
holds half/config.json '"run": "llama"'
exists half/tokenizer.json half/tokenizer_config.json
run 0 "$banyan" export half --format gguf --output half.gguf
says half direct
says half.gguf half
same direct.safetensors half.safetensors

say "a quantised model is written as values, and is no quantised one then"
run 0 "$banyan" compress runs/llama --method int8 --out codes
holds codes/config.json quantization_config
run 0 "$banyan" export codes --format safetensors --dtype f32 --output values
run 0 "$banyan" checkpoint merge codes merged
run 0 "$banyan" export merged --format safetensors --dtype f32 --output again
same values/model.safetensors again/model.safetensors
for name in values merged; do
    ! grep -q quantization_config $name/config.json || fail "$name/config.json names a quantisation"
done

say "a GGUF file is compressed as its run is, with the tokenizer that it holds"
run 0 "$banyan" compress llama.gguf --method int8 --out file-codes
exists file-codes/tokenizer.json file-codes/tokenizer_config.json
! grep -q 00000000000000000000000000000000 file-codes/state.json || fail "the file has no hash"
says codes direct
says file-codes codes
same direct.text codes.text
same direct.safetensors codes.safetensors

say "the origin of the weights goes along, whatever is written of them"
sed -n 's/.*"\(config\|train\)_hash": {"string": "\(.*\)"}.*/\1 \2/p' runs/llama/checkpoints/step-*3/state.json >hashes
config=$(sed -n 's/config //p' hashes)
train=$(sed -n 's/train //p' hashes)
# origin DIRECTORY RUN: the directory, and a GGUF file that is made of it, name the run and its hashes.
origin() {
    holds "$1/config.json" "\"config_hash\": \"$config\""
    holds "$1/config.json" "\"data_hash\": \"$train\""
    run 0 "$banyan" export "$1" --format gguf --output "$1-origin.gguf"
    run 0 "$banyan" info "$1-origin.gguf" --json
    holds out "\"run\":\"$2\",\"config_hash\":\"$config\",\"data_hash\":\"$train\""
}
[ ${#config} = 32 ] && [ ${#train} = 32 ] || fail "$(cat hashes)"
for name in codes merged values llama-hf file-codes; do
    origin $name llama
done
run 0 "$banyan" export runs/llama/checkpoints/step-*3 --format safetensors --output step
origin step llama
run 0 "$banyan" checkpoint merge runs/llama whole
origin whole llama
cp -r runs/llama/checkpoints/step-*3 moved
run 0 "$banyan" export moved --format safetensors --output of-moved
holds of-moved/config.json "$config"
! grep -q '"run"' of-moved/config.json || fail "a copy of a checkpoint names a run"
run 0 "$banyan" export codes --format onnx --output codes.onnx
grep -aq "$train" codes.onnx || fail "codes.onnx lacks its origin"

say "a model with a chat template: what ends an answer is told to every runtime"
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"question\": \"%d?\", \"answer\": \"%d\"}\n", i, i + 1 }' >talks.jsonl
cat >talk.yaml <<'END'
name: talk
task: {kind: chat}
model: {from: runs/gpt2}
chat: {template: chatml, long: cut}
data: {text: [talks.jsonl], valid_fraction: 0.2}
train: {steps: 1, batch: 2}
optimizer: {warmup: 0}
precision: {compute: f32}
END
run 0 "$banyan" train talk.yaml --quiet
# ends DIRECTORY: the end of text and that of a turn, and nothing else.
ends() {
    tr -d ' \n' <"$1/generation_config.json" >flat
    holds flat "\"eos_token_id\":[$text,$turn]"
}
# The ids of <|endoftext|> and of <|im_end|>.
id() { tr '{' '\n' <"$1/tokenizer.json" | sed -n "s/.*\"id\": \([0-9]*\), \"content\": \"<|$2|>\".*/\1/p"; }
run 0 "$banyan" export runs/talk --format safetensors --output talk-hf
text=$(id talk-hf endoftext)
turn=$(id talk-hf im_end)
[ -n "$text" ] && [ -n "$turn" ] || fail "$(head -c 2000 talk-hf/tokenizer.json)"
ends talk-hf
run 0 "$banyan" export runs/talk --format gguf --output talk.gguf
grep -aq tokenizer.ggml.eot_token_id talk.gguf || fail "talk.gguf names no end of a turn"
run 0 "$banyan" export talk.gguf --format safetensors --output talk-back
ends talk-back
run 0 "$banyan" export talk.gguf --format gguf --output talk-again.gguf
same talk.gguf talk-again.gguf
echo '{"eos_token_id": 0, "top_k": 5}' >talk-hf/generation_config.json
run 0 "$banyan" export talk-hf --format safetensors --output talk-added
ends talk-added
holds flat '"top_k":5'
echo '{"eos_token_id": ['"$turn, 0, $text"']}' >talk-hf/generation_config.json
run 0 "$banyan" export talk-hf --format safetensors --output talk-kept
same talk-hf/generation_config.json talk-kept/generation_config.json
[ ! -e llama-hf/generation_config.json ] || fail "a model without a template has generation_config.json"

say "a reward model ends no answers; what reads it is named"
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"prompt\": \"%d?\", \"chosen\": \"%d\", \"rejected\": \"no\"}\n", i, i + 1 }' \
    >pairs.jsonl
sed 's/^name.*/name: rates/; s/kind: chat/kind: reward/; s/talks/pairs/; s/, long: cut//; s/gpt2/talk/' talk.yaml >rates.yaml
run 0 "$banyan" train rates.yaml --quiet
run 0 "$banyan" export runs/rates --format safetensors --output rates-hf
exists rates-hf/chat_template.jinja
[ ! -e rates-hf/generation_config.json ] || fail "$(cat rates-hf/generation_config.json)"
run 2 "$banyan" export runs/rates --format gguf --output rates.gguf
holds err "ends in outputs of texts"
for command in chat "generate --prompt x"; do
    # shellcheck disable=SC2086
    run 2 "$banyan" $command runs/rates </dev/null
    holds err "\`banyan classify runs/rates/checkpoints/step-00000001 --batch FILE\`"
done
echo apple >lines.txt
run 0 "$banyan" classify runs/rates/checkpoints/step-00000001 --batch lines.txt
cp out rewards
run 0 "$banyan" classify rates-hf --batch lines.txt
same rewards out

say "info says what a file holds"
run 0 "$banyan" info llama-q8_0.gguf
holds out "architecture     llama"
holds out "in_q8_0"
holds out "run              llama"

say "what cannot be is an error, and leaves nothing behind"
run 2 "$banyan" export runs/llama --format gguf
run 2 "$banyan" export runs/llama --format onion --output x
holds err "one of safetensors, gguf"
run 2 "$banyan" export runs/llama --format safetensors --dtype q8_0 --output x
holds err "one of f32 bf16 f16"
run 2 "$banyan" export runs/llama --format safetensors --output half
holds err "half already exists"
sed 's/llama\.expert_count\(....\)\x03/llama.expert_count\1\x02/' mixtral.gguf >experts.gguf
run 1 "$banyan" generate experts.gguf --prompt x
holds err "tensor 'blk.0.ffn_gate_exps.weight' is not one matrix for each expert"
echo mine >mine
cp mine mine.onnx_data
run 2 "$banyan" export runs/llama --format gguf --output mine
holds err "mine already exists; name a new file"
for name in mine mine.onnx; do
    run 2 "$banyan" export runs/llama --format onnx --output $name
done
holds err "mine.onnx_data already exists"
same mine mine.onnx_data
[ "$(cat mine)" = mine ] && [ ! -e mine.onnx ] || fail "an export replaced a file"
head -c 3000 llama.gguf >cut.gguf
run 1 "$banyan" generate cut.gguf --prompt x
holds err "cut.gguf: tensor"
holds err "truncated"
[ -z "$(find . -name '*.tmp*' -o -name x)" ] || fail "temporary files are left: $(find . -name '*.tmp*')"
