#!/bin/sh
# `banyan embed`: a vector for each text of a file, the same in batches and alone; `banyan classify`: what a head
# for classes makes of it.
. "$(dirname "$0")/../support/shell.sh"

awk 'BEGIN { for (i = 0; i < 2000; i++) print "the number", i, "follows", i - 1 }' >text.txt
cat >c.yaml <<'EOF'
model: {kind: llama, layers: 2, heads: 2, width: 32, context: 64}
precision: {compute: f32}
train: {batch: 4, steps: 5, threads: 1}
data: {text: [text.txt], tokenizer: char}
run: {dir: runs}
EOF
run 0 "$banyan" train c.yaml --quiet
lines() {
    python3 -c "import json, sys; d = [json.loads(x) for x in open('out')]; a = [json.loads(x) for x in open('alone')]
near = lambda x, y: max(abs(p - q) for p, q in zip(x['embedding'], y['embedding'])) < 1e-5
norm = lambda x: sum(p * p for p in x['embedding'])
sys.exit(0 if ($1) else 1)" || fail "not so: $1, of $(cut -c1-200 out)"
}

say "a JSON line for each text, in their order, in batches as alone"
cat >texts.txt <<'EOF'
the number
{"text": "the number 7 follows 6"}
e
EOF
run 0 "$banyan" embed runs --batch texts.txt --batch-size 1
cp out alone
lines "[x['index'] for x in d] == [0, 1, 2] and [x['tokens'] for x in d] == [10, 22, 1]"
lines "all(len(x['embedding']) == 32 for x in d)"
run 0 sh -c "{ printf '\\357\\273\\277'; cat texts.txt; } | '$banyan' embed runs --batch -"
lines "len(d) == 3 and all(near(x, y) for x, y in zip(d, a))"

say "the last token alone, and vectors of length 1"
run 0 "$banyan" embed runs --batch texts.txt --pool last --normalize
lines "all(abs(norm(x) - 1) < 1e-5 for x in d) and not near(d[0], a[0])"
run 0 "$banyan" embed runs --batch texts.txt --pool last
lines "near(d[2], a[2]) and not near(d[0], a[0])"

say "a text that has no vector has an error in its line, and the others go on"
{ awk 'BEGIN { for (i = 0; i < 30; i++) printf "number "; print "" }'; cat texts.txt; echo '@'; } >more.txt
run 1 "$banyan" embed runs --batch more.txt
lines "len(d) == 5 and 'from 1 to 64' in d[0]['error'] and near(d[1], a[0]) and 'error' in d[4]"
holds err 'banyan embed: 2 of 5 texts failed: "error" in their lines says why'

say "a blank line is the empty text, which keeps its number"
printf 'the number\n\ne\n' >blank.txt
run 1 "$banyan" embed runs --batch blank.txt
lines "[x['index'] for x in d] == [0, 1, 2] and 'error' in d[1] and near(d[2], a[2])"

say "what is refused"
run 2 "$banyan" embed runs
run 2 "$banyan" embed runs --batch texts.txt --pool max
holds err "mean, last or first"
echo '{"text": 3}' >wrong.txt
run 1 "$banyan" embed runs --batch wrong.txt
holds err 'wrong.txt:1: not a JSON object with a string "text"'
echo '{"text": "a", "text": "b"}' >wrong.txt
run 1 "$banyan" embed runs --batch wrong.txt
holds err 'wrong.txt:1: not a JSON object with a string "text": duplicate object key "text"'

say "a head for classes, of one's first number and of its opposite"
mkdir classes
cp runs/*/checkpoints/step-*/config.json runs/*/checkpoints/step-*/tokenizer.json classes 2>/dev/null ||
    fail "no checkpoint"
python3 - runs/*/checkpoints/step-*/model.safetensors classes <<'EOF'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
score = struct.pack("<64f", 1, *[0] * 31, -1, *[0] * 31)
header["score.weight"] = {"dtype": "F32", "shape": [2, 32], "data_offsets": [len(body), len(body) + len(score)]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body + score)
EOF
run 0 "$banyan" embed classes --batch texts.txt --pool last
cp out alone
run 0 "$banyan" classify classes --batch texts.txt
lines "[x['index'] for x in d] == [0, 1, 2] and [x['tokens'] for x in d] == [10, 22, 1]"
lines "all(abs(x['probability'] - 1 / (1 + 2.718281828 ** (-2 * abs(y['embedding'][0])))) < 1e-5 for x, y in zip(d, a))"
lines "all(x['label'] == ('LABEL_0' if y['embedding'][0] > 0 else 'LABEL_1') for x, y in zip(d, a))"
lines "all(x['probabilities'][x['label']] == x['probability'] for x in d)"
run 1 "$banyan" classify classes --batch more.txt
lines "len(d) == 5 and 'from 1 to 64' in d[0]['error'] and 'label' in d[1] and 'error' in d[4]"
run 1 "$banyan" classify runs --batch texts.txt
holds err "has no tensor 'score.weight'"
run 2 "$banyan" classify classes

# rewrite FROM TO STATEMENT: copies a directory; the Python statement changes w, the tensors as [dtype, shape, bytes].
rewrite() {
    rm -rf "$2"
    cp -r "$1" "$2"
    python3 - "$2/model.safetensors" "$3" <<'EOF'
import json, struct, sys
path, data = sys.argv[1], open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
header.pop("__metadata__", None)
w = {k: [v["dtype"], v["shape"], bytearray(body[slice(*v["data_offsets"])])] for k, v in header.items()}
exec(sys.argv[2])
header, body = {}, b""
for name, (dtype, shape, values) in w.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
    body += values
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
EOF
}

say "a vector that is no number is refused"
rewrite classes broken "w['model.norm.weight'][2][:4] = struct.pack('<f', float('nan'))"
for command in embed classify; do
    run 1 "$banyan" $command broken --batch texts.txt
    holds err "element 0 of the vector of a text of"
done
rewrite classes broken "w['score.weight'][2][:4] = struct.pack('<f', float('inf'))"
run 1 "$banyan" classify broken --batch texts.txt
holds err "the output for label 'LABEL_0' is"

say "a model without its head has tensors without a prefix"
rewrite classes base "w.pop('lm_head.weight'); w.pop('score.weight'); w = {k.removeprefix('model.'): v for k, v in w.items()}"
run 0 "$banyan" embed base --batch texts.txt --pool last
same out alone
run 1 "$banyan" generate base --prompt e --tokens 2
holds err "lm_head.weight"

say "a head that is said to be the embedding must be it"
rewrite classes tied "w.pop('score.weight')"
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tied/config.json
run 1 "$banyan" generate tied --prompt e --tokens 2
holds err "'lm_head.weight' differs from 'model.embed_tokens.weight'"
run 0 "$banyan" embed tied --batch texts.txt --pool last
same out alone
rewrite tied equal "w['lm_head.weight'] = w['model.embed_tokens.weight']"
run 0 "$banyan" generate equal --prompt e --tokens 2
run 1 "$banyan" generate classes --prompt e --tokens 2
holds err "use \`banyan classify\`"
