#!/bin/sh
# Decoders that classify texts and predict numbers of them: trained on labelled texts, resumed, on two ranks, with adapters;
# evaluated, used and served; what is refused.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

make_text text.txt 300
tiny gpt2 >base.yaml
tiny llama >llama.yaml
run 0 "$banyan" train base.yaml --quiet --set name=base --set model.layers=1 --set model.dropout=0
run 0 "$banyan" train llama.yaml --quiet --set name=llama --set model.layers=1 --set model.dropout=0
awk 'BEGIN { print "review,kind,size"; split("apple bay cedar dune elm fern", w, " ")
    for (i = 0; i < 120; i++) { n = i % 3; a = w[1 + i % 6]; t = a; for (k = 0; k < n; k++) t = t " oak"
        print t "," (i % 6 < 3 ? "low" : "high") "," 10 + 5 * (i % 6) } }' >reviews.csv
cat >kinds.yaml <<'END'
name: kinds
model: {from: runs/base}
task: {kind: classify}
data: {table: reviews.csv, text_column: review, target: kind, valid_fraction: 0.2, split: random}
train: {batch: 12, micro_batch: 6, steps: 40, eval_every: 20, threads: 1}
optimizer: {lr: 3e-3, warmup: 5}
checkpoint: {every: 20}
precision: {compute: f32}
END
last=checkpoints/step-00000040

# digest RUN: of weights and the optimizer's state.
digest() {
    run 0 "$banyan" checkpoint digest "runs/$1"
    tail -n 1 out
}
# learned RUN: its accuracy on what is held out.
learned() {
    run 0 "$banyan" eval "runs/$1" --json
    awk -v a="$(field accuracy <out)" 'BEGIN { exit !(a > 0.9) }' || fail "$1: $(cat out)"
}

say "classes, resumed, on two ranks"
run 0 "$banyan" info kinds.yaml
run 0 "$banyan" train kinds.yaml --quiet
learned kinds
whole=$(digest kinds)
run 0 "$banyan" launch -n 2 train kinds.yaml --quiet --set name=ranks
[ "$(digest ranks)" = "$whole" ] || fail "two ranks have other weights than one"
rm -r runs/ranks/$last
run 0 "$banyan" train --resume runs/ranks --quiet
[ "$(digest ranks)" = "$whole" ] || fail "a run that was resumed has other weights"
holds runs/kinds/$last/config.json GPT2ForSequenceClassification
holds runs/kinds/$last/config.json '"0": "high"'
grep -q '"transformer.h.0.attn.c_attn.weight"' runs/kinds/$last/model.safetensors || fail "names without the prefix"
grep -q '"score.weight"' runs/kinds/$last/model.safetensors || fail "there is no score.weight"

say "the same by predict, by classify, and by a server"
printf 'review\napple oak\nfern oak oak\n' >new.csv
run 0 "$banyan" predict runs/kinds new.csv
cp out predicted
[ "$(sed -n 's/.*"label":"\([a-z]*\)".*/\1/p' predicted | tr '\n' ' ')" = "low high " ] || fail "$(cat predicted)"
tail -n 2 new.csv >new.txt
run 0 "$banyan" checkpoint merge runs/kinds merged
for model in runs/kinds merged; do
    run 0 "$banyan" classify $model --batch new.txt
    python3 - predicted out <<'END' || fail "$(cat predicted out)"
import json, sys
a, b = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
assert len(a) == len(b) == 2
for x, y in zip(a, b):
    assert x["label"] == y["label"] and abs(x["probability"] - y["probability"]) < 1e-5, (x, y)
END
done
serve_models runs/kinds
await_ready
curl -sS -o answer -H 'Content-Type: application/json' "$url/v1/predict" \
    -d '{"model": "kinds", "rows": [{"review": "apple oak"}, ["fern oak oak"]]}'
holds answer '"label":"low"'
holds answer '"label":"high"'
stop

say "with adapters, also beside weights in codes, and of other classes"
for base in full int8; do
    run 0 "$banyan" train kinds.yaml --quiet --set name=$base --set lora.rank=8 --set lora.base=$base --set 'lora.targets=[all-linear]' \
        --set optimizer.lr=1e-2
    learned $base
    tr -d ' \n' <runs/$base/$last/adapter_config.json >flat
    holds flat '"modules_to_save":["score"]'
done
run 0 "$banyan" train kinds.yaml --quiet --set name=others --set model.from=merged --set data.target=size --set 'model.new=[score.weight]'
holds runs/others/$last/config.json '"5": "35"'

say "numbers, by a llama"
run 0 "$banyan" train kinds.yaml --quiet --set name=sizes --set model.from=runs/llama --set task.kind=regress --set data.target=size
run 0 "$banyan" eval runs/sizes --json
awk -v r="$(field r2 <out)" 'BEGIN { exit !(r > 0.9) }' || fail "$(cat out)"
holds runs/sizes/$last/config.json LlamaForSequenceClassification
run 0 "$banyan" predict runs/sizes new.csv

say "what is refused"
run 2 "$banyan" generate runs/kinds --prompt a
holds err "a model that ends in outputs has no logits of tokens"
run 2 "$banyan" train base.yaml --set name=other --set model.outputs=3
holds err "model.outputs 3 is for texts that task.kind classify or regress rates"
run 2 "$banyan" train kinds.yaml --set name=other --set data.pair_column=review
holds err "data.pair_column is for encoders"
run 2 "$banyan" classify runs/sizes --batch new.txt
holds err "\`banyan predict runs/sizes FILE\`"
run 2 "$banyan" export runs/kinds --format gguf --out kinds.gguf
holds err "ends in outputs of texts"
