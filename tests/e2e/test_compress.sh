#!/bin/sh
# What `banyan compress` refuses, it refuses before it evaluates or writes anything.
. "$(dirname "$0")/../support/shell.sh"

tiny llama >c.yaml
run 0 "$banyan" train c.yaml --set name=l --set model.kv_heads=2
# refused WORDS ARGUMENTS...: an error that holds the words, before a loss is computed.
refused() {
    words=$1
    shift
    run 2 "$banyan" compress "$@"
    holds err "$words"
    [ ! -s out ] || fail "$(cat out)"
    [ -z "$(find . -name 'no*')" ] || fail "$(find . -name 'no*')"
}

say "names that a new directory cannot have, before the data is opened"
mkdir taken
for name in taken taken/ c.yaml; do
    refused "$name already exists" runs/l --method int8 --out $name --eval nowhere.txt
done
refused "there is no directory no/where/" runs/l --method int8 --out no/where/new --eval nowhere.txt
refused "the name of the new directory is empty" runs/l --method int8 --out "" --eval nowhere.txt
refused "int8: head is '9'" runs/l --method int8 --set head=9 --out no --eval nowhere.txt

say "a plan says what the model itself takes, and gives a setting to the methods that have it"
run 0 "$banyan" compress runs/l --plan --json
cp out plain
run 0 "$banyan" compress runs/l --plan --json --set group=32
[ "$(grep -c '"bytes"' out)" = "$(grep -c '"bytes"' plain)" ] || fail "$(cat out)"
[ "$(diff plain out | grep -c '^> {"method":"\(int4\|awq\|gptq\)"')" = 3 ] || fail "$(cat out)"
head -n 1 out >first
run 0 "$banyan" compress runs/l --method int8 --out l8 --json
[ "$(field method <first) $(field bytes <first)" = "none $(field bytes_before <out)" ] || fail "$(cat first out)"
run 2 "$banyan" compress runs/l --plan --set grop=32
holds err "no method has such a setting"

say "data that can be read only once"
mkfifo pipe
for data in - pipe; do
    refused "the data is read before and after" runs/l --method int8 --out no --eval $data <text.txt
done
run 0 "$banyan" compress runs/l --method gptq --samples 4 --data - --out from-input --eval text.txt <text.txt

say "the loss with a KV cache of 8-bit integers"
run 0 "$banyan" eval runs/l --json
mv out exact
run 0 "$banyan" eval runs/l --kv int8 --json
[ "$(field tokens <out)" = "$(field tokens <exact)" ] || fail "$(cat exact out)"
[ "$(field valid_loss <out)" != "$(field valid_loss <exact)" ] || fail "the cache is not coded: $(cat exact out)"
field valid_loss <out | awk -v exact="$(field valid_loss <exact)" '{ exit !($1 < 1.001 * exact && $1 > 0.999 * exact) }' ||
    fail "$(cat exact out)"
run 2 "$banyan" eval runs/l --kv int4
holds err "only int8 is supported"
run 2 "$banyan" eval runs/l --kv int8 --logits-out no.safetensors

say "w8a8 with masks between documents"
run 0 "$banyan" train c.yaml --set name=masked --set data.documents=mask --set train.steps=6
refused "--eval with --method w8a8: " runs/masked --method w8a8 --out no --eval held-out
run 2 "$banyan" eval runs/masked --precision int8
holds err "--precision: "
run 2 "$banyan" eval runs/masked --kv int8
holds err "--kv: "
run 0 "$banyan" compress runs/masked --method w8a8 --out masked
