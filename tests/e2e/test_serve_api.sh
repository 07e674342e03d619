#!/bin/sh
# The routes of a server with several models: text, a conversation, an adapter, a table, images. Predictions and vectors
# are those of `banyan predict` and `banyan embed`; the last part asks with the real openai package and needs the
# environment of scripts/serve-env.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
client="$root/tests/e2e/serve_api_client.py"
check() { "$@" || { tail -n 20 log >&2; fail "$*"; }; }

make_text text.txt 400
echo '{"a": [1.5e+3, -2]}' >>text.txt
tiny gpt2 >c.yaml
set -- --quiet --set train.threads=1 --set optimizer.warmup=1 --set train.steps=2
run 0 "$banyan" train c.yaml "$@" --set model.context=256 --set train.batch=1
cp -r "$(ls -d runs/tiny/checkpoints/step-* | tail -n 1)" talk
# A template that says "moss" for each member of a message that is null or an empty list.
nulls='{% for k in m %}{% if m[k] is none or m[k] == [] %}moss{% endif %}{% endfor %}'
printf '%s' '{% for m in messages %}{{ m.content + " " }}'"$nulls"'{% endfor %}{{ more | default("") }}' >talk/chat_template.jinja
run 0 "$banyan" train c.yaml "$@" --set model.context=256 --set train.batch=1 --set name=adapted \
    --set model.from=talk --set lora.rank=2 --set optimizer.lr=1
cp -r "$(ls -d runs/adapted/checkpoints/step-* | tail -n 1)" adapter
python3 "$client" files

# A model without a template, whose texts end at the character that is the likeliest behind the prompt.
cp -r talk ended
rm ended/chat_template.jinja
run 0 "$banyan" generate talk --prompt "apple " --no-prompt --temperature 0 --tokens 1
python3 - out <<END
import json, sys
with open("talk/tokenizer.json") as f:
    vocabulary = json.load(f)["model"]["vocab"]
with open(sys.argv[1]) as f:
    end = vocabulary[f.read()[0]]
with open("ended/generation_config.json", "w") as f:
    json.dump({"eos_token_id": [end]}, f)
END

# What ends a text that is served ends it on the command line, and nothing is written behind it.
run 0 "$banyan" generate ended --prompt "apple " --no-prompt --temperature 0 --tokens 8
[ -z "$(tr -d '\n' <out)" ] || fail "behind the end: $(cat out)"
run 0 "$banyan" generate ended --prompt "apple " --temperature 0 --tokens 8 --json
holds out '"tokens":0,"text":"",'
holds out '"stop":"end_of_text"'
printf 'apple ' >asked
run 0 "$banyan" generate ended --batch asked --temperature 0 --tokens 8
holds out '"stop":"end_of_text"'
printf 'apple\n' >asked
printf '%s' '{% for m in messages %}{{ m.content + " " }}{% endfor %}' >plain.jinja
run 0 "$banyan" chat ended --template plain.jinja --temperature 0 --tokens 8 <asked
[ -z "$(tr -d '\n' <out)" ] || fail "behind the end: $(cat out)"
run 0 "$banyan" chat talk --template plain.jinja --temperature 0 --tokens 8 <asked
[ -n "$(tr -d '\n' <out)" ] || fail "the test compares nothing"

cat >table.yaml <<END
name: houses
task: {kind: regress}
model: {kind: mlp, hidden: [16], activation: relu}
precision: {compute: f32}
data: {table: table.csv, target: price, valid_fraction: 0.2}
train: {steps: 20, batch: 8}
optimizer: {lr: 1e-2}
run: {dir: runs}
END
cat >images.yaml <<END
name: digits
task: {kind: classify}
model: {kind: vit, layers: 1, heads: 2, width: 16, patch: 4, image_height: 8, image_width: 8}
precision: {compute: f32}
data: {images: [images.npy], labels: [labels.npy], valid_fraction: 0.2, resize: crop}
train: {steps: 10, batch: 8}
optimizer: {lr: 1e-2}
run: {dir: runs}
END
run 0 "$banyan" train table.yaml --quiet --set train.threads=1 --set optimizer.warmup=1
run 0 "$banyan" train images.yaml --quiet --set train.threads=1 --set optimizer.warmup=1
run 0 "$banyan" predict runs/houses new.csv
mv out houses.lines
run 0 "$banyan" predict runs/digits new.npy
mv out digits.lines
run 0 "$banyan" predict runs/digits new.png
[ "$(cat out)" = "$(head -n 1 digits.lines)" ] || fail "$(cat out) is not $(head -n 1 digits.lines)"
printf 'apple bay\ncedar\nmoss nut oak pine apple bay cedar dune\n' >texts
run 0 "$banyan" embed runs/tiny --batch texts --normalize
mv out vectors.lines
run 0 "$banyan" generate talk --adapter adapter --prompt "apple " --no-prompt --temperature 0 --tokens 20
mv out adapted.text

say "a server of six models"
serve_models runs/tiny talk adapted=talk+adapter ended runs/houses runs/digits/ --set feedback.directory=feedback \
    --set payload.directory=payload --set payload.fraction=1
for what in models embeddings predict probabilities parts encoding; do
    say "$what"
    check python3 "$client" "$what" "$url"
done

say "what is kept of predictions is what a report of drift reads, and feedback tells how good they are"
check python3 "$client" feedback "$url"
run 0 "$banyan" drift report runs/houses --data rows.jsonl --window 50 --json
holds out '"requests":50,"windows":1,"alarms":0,'
holds out '"name":"prediction","kind":"number"'
mkdir kept
head -n 20 rows.jsonl >kept/payload-000001.jsonl
tail -n +21 rows.jsonl >kept/payload-000002.jsonl
for data in rows.jsonl kept; do
    run 0 "$banyan" predict runs/houses $data
    same out houses.lines
done

say "drift of texts in a column of a table, and what has none"
{ echo said && yes "apple bay cedar" | head -n 60; } >said.csv
python3 "$root/tests/support/write_parquet.py" said.csv said.parquet
for data in said.csv said.parquet; do
    run 0 "$banyan" drift report runs/tiny --data $data --field said --window 60 --json
    holds out '"requests":60,"windows":1,"alarms":1,'
done
run 1 "$banyan" drift report runs/tiny --data said.csv
holds err "said.csv has no column of texts 'prompt' or 'text': name it by --field"
yes "apple bay cedar" | head -n 2000 >said.txt
mkdir said
cp said.txt said/one.md
for data in said.txt said; do # pieces of whole lines
    run 0 "$banyan" drift report runs/tiny --data $data --json
    holds out '"windows":1,"alarms":1,'
done
run 1 "$banyan" drift report runs/tiny --data said.parquet --field nosuch
run 1 "$banyan" drift report runs/tiny --data payload --field nosuch
holds err "payload: no line has a text in 'nosuch': name it by --field"

say "the examples of the reference"
check python3 "$client" reference "$url" "$root/docs/api.md"
codes=$(sed -n '/^| status | `code`/,/^$/p' "$root/docs/api.md" | cut -d '|' -f 3 | grep -o '`[a-z_]*`' | tr -d '`' | grep -v code)
[ "$(echo "$codes" | wc -l)" -gt 20 ] || fail "no table of codes in docs/api.md"
for code in $codes; do
    grep -rqF "\"$code\"" "$root/src/serve" || fail "docs/api.md names the error $code, which no answer has"
done

say "what is served by a name"
run 2 "$banyan" serve runs/tiny tiny=talk --dir "$work/other"
holds err "two models are named 'tiny'"
run 2 "$banyan" serve runs/tiny none=runs/none --listen 127.0.0.1:0 --dir "$work/other"
holds err "runs/none"

say "the openai package"
if "$root/scripts/serve-env" >env.log 2>&1; then
    check "$root/build/venv-serve/bin/python" "$client" openai "$url"
    check "$root/build/venv-serve/bin/python" "$client" jpeg "$url"
else
    echo "skipped: scripts/serve-env could not install openai and pillow"
    exit 77
fi
