#!/bin/sh
# An encoder: trained on hidden tokens, resumed, evaluated; vectors of texts, also served; adapters; a head for classes of
# texts; what it refuses.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

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

say "the head computes the hidden tokens alone"
# planned SHARE: FLOPs of a token and MiB in all, with a large vocabulary.
planned() {
    run 0 "$banyan" info bert.yaml --set "task.mask_share=$1" --set model.vocab=30000 --set train.micro_batch=8
    awk '/^FLOPs/ { flops = $2 } $1 == "total" { print flops, $2 }' out
}
planned 0.15 >few
planned 1 >all
paste few all | awk '{ exit !($1 < $3 / 3 && $2 < $4) }' || fail "$(cat few all)"

say "the vector of a text does not depend on those beside it"
printf 'a\nthe quick brown fox\n' >two.txt
head -n 1 two.txt >one.txt
run 0 "$banyan" embed runs/bert --batch two.txt
head -n 1 out >first
run 0 "$banyan" embed runs/bert --batch one.txt
same out first

say "a text that is given, also to a directory of weights"
head -n 40 text.txt >given.txt
run 0 "$banyan" eval runs/bert --data given.txt
cp out of_run
mkdir alone
cp runs/bert/checkpoints/step-00000012/*.json runs/bert/checkpoints/step-00000012/*.safetensors alone
run 0 "$banyan" eval alone --data given.txt
grep valid_loss out >of_weights
grep valid_loss of_run | same - of_weights
run 0 "$banyan" info alone

say "a server gives the same vectors, and no text"
run 0 "$banyan" embed runs/bert --batch two.txt --normalize
mv out vectors
serve_models runs/bert
await_ready
# ask ROUTE BODY CODE: the answer is in the file answer.
ask() {
    curl -sS -o answer -w '%{http_code}\n' -H 'Content-Type: application/json' "$url$1" -d "$2" >code
    [ "$(cat code)" = "$3" ] || fail "$(cat code answer): $*"
}
ask /v1/embeddings '{"model": "bert", "input": ["a", "the quick brown fox"], "encoding_format": "float"}' 200
cp answer floats
ask /v1/embeddings '{"model": "bert", "input": "the quick brown fox", "encoding_format": "base64"}' 200
python3 - <<'END' || fail "other vectors: $(cut -c 1-300 floats answer vectors)"
import array, base64, json, sys
want = [json.loads(line) for line in open("vectors")]
floats, packed = json.load(open("floats")), json.load(open("answer"))
single = lambda v: array.array("f", v).tolist()
assert [single(d["embedding"]) for d in floats["data"]] == [single(w["embedding"]) for w in want]
assert floats["usage"]["prompt_tokens"] == sum(w["tokens"] for w in want)
assert array.array("f", base64.b64decode(packed["data"][0]["embedding"])).tolist() == single(want[1]["embedding"])
END
ask /v1/completions '{"model": "bert", "prompt": "a", "max_tokens": 2}' 400
holds answer "/v1/embeddings"
stop

say "a blank line keeps its number"
printf 'a\n\nthe quick brown fox\n\r\n' >blank.txt
run 1 "$banyan" embed runs/bert --batch blank.txt
cp out blanks
run 1 "$banyan" embed runs/bert --batch - <blank.txt
same out blanks
[ "$(sed 's/,.*//' out | tr -d '\n')" = '{"index":0{"index":1{"index":2{"index":3' ] || fail "$(cut -c 1-60 out)"
sed -n '2p;4p' out | grep -c '"error":"a text of 0 tokens' >count
[ "$(cat count)" = 2 ] || fail "$(cut -c 1-60 out)"

say "adapters of queries and values alone"
run 0 "$banyan" train bert.yaml --quiet --set name=adapted --set model.from=runs/bert --set lora.rank=2 \
    --set lora.alpha=4 --set 'lora.targets=[query, value]' --set 'data.tokenizer=bpe'
run 0 "$banyan" eval runs/adapted
holds runs/adapted/checkpoints/step-00000012/adapter_config.json '"query"'
for part in query value; do
    grep -q "base_model.model.bert.encoder.layer.1.attention.self.$part.lora_B.weight" \
        runs/adapted/checkpoints/step-00000012/adapter_model.safetensors || fail "no adapter of $part"
done
! grep -q "self.key.lora" runs/adapted/checkpoints/step-00000012/adapter_model.safetensors || fail "an adapter of keys"

say "classes of the texts of a table, from the weights of the encoder"
awk 'BEGIN { print "id,review,kind"; split("apple bay cedar dune elm fern", w, " ")
    for (i = 0; i < 120; i++) print i ",\"" w[1 + i % 6] " " w[1 + int(i / 6) % 5] " grove\"," (i % 6 < 3 ? "low" : "high") }' >reviews.csv
cat >classes.yaml <<'END'
name: classes
model: {kind: bert, from: runs/bert, new: [classifier.*, bert.pooler.*]}
task: {kind: classify}
data: {table: reviews.csv, text_column: review, target: kind, valid_fraction: 0.2, split: random}
train: {batch: 12, micro_batch: 6, steps: 30, eval_every: 15}
optimizer: {lr: 3e-3, warmup: 5}
checkpoint: {every: 15}
precision: {compute: f32}
END
run 0 "$banyan" info classes.yaml --json
run 0 "$banyan" train classes.yaml --quiet
run 0 "$banyan" train classes.yaml --quiet --set name=two --set train.threads=2
last=checkpoints/step-00000030
same runs/classes/$last/model.safetensors runs/two/$last/model.safetensors
rm -r runs/two/$last
run 0 "$banyan" train --resume runs/two --quiet
same runs/classes/$last/model.safetensors runs/two/$last/model.safetensors
holds runs/classes/$last/config.json BertForSequenceClassification
holds runs/classes/$last/config.json '"0": "high"'
exists runs/classes/$last/tokenizer.json runs/classes/$last/tokenizer_config.json
run 0 "$banyan" eval runs/classes --json
accuracy=$(field accuracy <out)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "accuracy $accuracy"
run 0 "$banyan" predict runs/classes reviews.csv
head -n 1 out >first
holds first '"label":"low"'
serve_models runs/classes
await_ready
ask /v1/predict '{"model": "classes", "rows": [{"review": "apple apple grove"}, ["fern bay grove"]]}' 200
holds answer '"label":"low"'
holds answer '"label":"high"'
stop
run 2 "$banyan" train classes.yaml --set name=other --set data.max_tokens=64
holds err "max_tokens"
run 2 "$banyan" train classes.yaml --set name=other --set data.text_column=missing
holds err "missing"

say "tags of the words of texts, whose entities are measured"
awk 'BEGIN { print "words,tags"; split("apple bay cedar dune elm fern", w, " "); split("B-TREE O B-TREE O O O", t, " ")
    for (i = 0; i < 120; i++) { a = 1 + i % 6; b = 1 + int(i / 6) % 5; print w[a] " " w[b] " grove," t[a] " " t[b] " " (t[b] == "O" ? "O" : "I-TREE") } }' >tags.csv
sed 's/^name: .*/name: tags/; s/kind: classify/kind: tag/; s/^data: .*/data: {table: tags.csv, text_column: words, target: tags, valid_fraction: 0.2, split: random}/
    s/new: .*\]/new: [classifier.*]/' classes.yaml >tags.yaml
run 0 "$banyan" train tags.yaml --quiet
holds runs/tags/$last/config.json BertForTokenClassification
run 0 "$banyan" eval runs/tags --json
awk -v f="$(field f1 <out)" 'BEGIN { exit !(f > 0.9) }' || fail "$(cat out)"
run 0 "$banyan" predict runs/tags tags.csv
[ "$(sed -n 's/.*"tags":"\([^"]*\)".*/\1/p' out | head -n 1)" = "B-TREE B-TREE I-TREE" ] || fail "$(head -n 1 out)"
printf 'words,tags\napple bay,O\n' >wrong.csv
run 1 "$banyan" eval runs/tags --data wrong.csv
holds err "row 1: there are fewer tags than words"

say "embeddings from pairs and triplets, on any number of ranks"
awk 'BEGIN { print "text,positive,other"; split("apple bay cedar dune elm fern grove hill iris jade kelp lime", w, " ")
    for (i = 0; i < 96; i++) { a = 1 + i % 12; print w[a] " moss nut," w[a] " oak," w[1 + (i + 5) % 12] " pine" } }' >pairs.csv
cat >pairs.yaml <<'END'
name: pairs
model: {kind: bert, from: runs/bert}
task: {kind: contrast}
data: {table: pairs.csv, text_column: text, negative_column: other, valid_fraction: 0.25}
train: {batch: 16, micro_batch: 4, steps: 12, eval_every: 6}
optimizer: {lr: 1e-3, warmup: 2}
checkpoint: {every: 12}
precision: {compute: f32}
END
run 0 "$banyan" train pairs.yaml --quiet
for ranks in 2 4; do
    run 0 "$banyan" launch -n $ranks train pairs.yaml --quiet --set name=pairs$ranks --set train.threads=1
    same runs/pairs/checkpoints/step-00000012/model.safetensors runs/pairs$ranks/checkpoints/step-00000012/model.safetensors
done
holds runs/pairs/checkpoints/step-00000012/config.json BertModel
run 0 "$banyan" eval runs/pairs --json
holds out accuracy
run 0 "$banyan" embed runs/pairs --batch two.txt --normalize --pool first
run 0 "$banyan" train pairs.yaml --quiet --set name=first --set task.pooling=first --set 'data.negative_column=""'
run 2 "$banyan" train pairs.yaml --set name=other --set data.text_column=
holds err "data.positive_column"

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
holds err "no predictions to print; \`banyan embed RUN --batch FILE\` makes vectors of texts"
run 2 "$banyan" chat runs/bert
holds err "is an encoder and continues no text"

say "texts that are cut are counted, and commands that are not of a task say which one is"
awk 'BEGIN { print "words,tags"; for (i = 0; i < 40; i++) { n = i % 8 == 0 ? 40 : 3; w = t = "";
    for (k = 0; k < n; k++) { w = w (k ? " " : "") "fox"; t = t (k ? " " : "") (k ? "O" : "B-X") } print w "," t } }' >long.csv
sed 's/^name: .*/name: long/; s/tags.csv/long.csv/' tags.yaml >long.yaml
run 0 "$banyan" train long.yaml
cat out err >told
holds told "5 of 40 texts have more than 32 tokens, and are cut there: words behind that have no tag"
run 2 "$banyan" classify runs/long --batch one.txt
holds err "task.kind tag, and classify is of models with the head ...ForSequenceClassification of transformers: \`banyan predict runs/long FILE\`"
run 2 "$banyan" classify runs/bert --batch one.txt
holds err "\`banyan embed runs/bert --batch FILE\`"
