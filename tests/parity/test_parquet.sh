#!/bin/sh
# Parquet files as pyarrow writes them are read with the same values. Needs the environment of scripts/tracking-env,
# whose mlflow brings pyarrow; without it nothing is checked, and the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" >/dev/null || {
    echo "skipped: scripts/tracking-env could not install pyarrow"
    exit 77
}
python=$root/build/venv-tracking/bin/python
say "types, nulls, dictionaries, codecs and pages"
run 0 "$python" "$root/tests/parity/check_parquet.py" "${BY_TOOLS:-$root/build/release/tests}/table_tool" "$work"
cat out
say "training on a table in parts"
cat >table.yaml <<END
task: {kind: regress}
model: {kind: mlp, hidden: [4]}
precision: {compute: f32}
data: {target: price, valid_fraction: 0.2}
train: {steps: 5, batch: 8, threads: 1}
optimizer: {warmup: 1}
run: {dir: runs}
END
for what in csv parts; do
    run 0 "$banyan" train table.yaml --quiet --set name=$what --set data.table=train.$what
    run 0 "$banyan" checkpoint digest runs/$what
    grep -v runs/ out >digest.$what
done
[ -s digest.csv ] || fail "no digest"
cmp digest.csv digest.parts || fail "training on parts is not that on the CSV file"

say "texts to pack"
for what in texts.jsonl texts.parquet parts; do
    run 0 "$banyan" pack $what --field body --vocab 300 --valid-fraction 0.1 --output "packed-${what#texts.}"
done
for part in train valid; do
    for file in packed-jsonl/$part/*.npy packed-jsonl/$part/tokenizer.json; do
        cmp "$file" "packed-parquet/$part/${file##*/}" || fail "$file is not that of the Parquet file"
        cmp "$file" "packed-parts/$part/${file##*/}" || fail "$file is not that of the parts"
    done
done
run 1 "$banyan" pack nulls.parquet --field body --tokenizer char --output none
holds err 'nulls.parquet:2: the field "body" is missing'
run 0 "$banyan" pack nulls.parquet --field body --tokenizer char --corrupt skip --corrupt-budget 1 --output some
run 1 "$banyan" pack bytes.parquet --field body --tokenizer char --output none
holds err 'bytes.parquet:2'
run 1 "$banyan" pack texts.parquet --field bodi --tokenizer char --output none
holds err "did you mean 'body'"
run 1 "$banyan" pack texts.parquet --field id --tokenizer char --output none
holds err "column 'id' holds no text"
