#!/bin/sh
# Texts that a random model writes under JSON schemas and regular expressions, checked by jsonschema and re.
. "$(dirname "$0")/../support/shell.sh"

say "schemas and patterns"
run 0 /usr/bin/python3 "$root/tests/parity/check_constraints.py" "$(dirname "$banyan")/tests/constraint_tool"
holds out "schemas and 10 patterns fit"

say "generate: a small model of characters writes JSON"
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "{\"name\": \"x%d\", \"tags\": [\"a\", \"bb\"]} ok: %d!\n", i, i }' >text.txt
cat >c.yaml <<'EOF'
model: {kind: gpt2, layers: 1, heads: 2, width: 32, context: 128}
precision: {compute: f32}
train: {batch: 4, steps: 5, threads: 1}
data: {text: [text.txt], tokenizer: char}
run: {dir: runs}
EOF
run 0 "$banyan" train c.yaml --quiet
cat >schema.json <<'EOF'
{"type": "object", "required": ["name", "tags", "n"], "additionalProperties": false, "properties": {
  "name": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 10, "maximum": 99},
  "tags": {"type": "array", "maxItems": 3, "items": {"enum": ["a", "bb"]}}}}
EOF
printf '%s\n' ok x1 '"name' bb 7 >prompts.txt
run 0 "$banyan" generate runs --schema schema.json --batch prompts.txt --temperature 2
cp out batch
for seed in 1 2 3; do
    run 0 "$banyan" generate runs --schema schema.json --seed $seed --temperature 2 --repetition-penalty 1.1 --json
    cat out >>batch
done
/usr/bin/python3 -c 'import json, jsonschema
schema = json.load(open("schema.json"))
lines = [json.loads(line) for line in open("batch")]
assert len(lines) == 8
for line in lines:
    assert line["stop"] == "complete", line
    jsonschema.validate(json.loads(line["text"]), schema)' || fail "texts do not fit: $(cat batch)"

say "the same text alone and in the batch"
run 0 "$banyan" generate runs --schema schema.json --prompt ok --temperature 2 --json
[ "$(field text <out)" = "$(head -1 batch | field text)" ] || fail "another text: $(cat out)"

say "expressions, and what is refused"
run 0 "$banyan" generate runs --regex 'ok: [0-9]{2,3}!' --no-prompt
grep -qx 'ok: [0-9]\{2,3\}!' out || fail "does not match: $(cat out)"
run 2 "$banyan" generate runs --regex '(a' --no-prompt
holds err "a group ( is not closed"
run 2 "$banyan" generate runs --regex a --json-object
echo '{"not": {}}' >bad.json
run 2 "$banyan" generate runs --schema bad.json
holds err 'the keyword "not" is not supported'
