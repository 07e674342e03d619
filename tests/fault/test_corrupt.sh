#!/bin/sh
# Damaged data: by default an error that names it; with data.corrupt=skip it is left out, and every number of ranks,
# and a resume, give the same bits.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

tiny gpt2 | sed "s/warmup: 5/warmup: 1/" >c.yaml
make_text text.txt 4000
run 0 "$banyan" pack text.txt --tokenizer char --valid-fraction 0.1 --output packed
shard=packed/train/tokens-00000.npy
cp "$shard" whole.npy

# spoil OFFSET BYTES: writes bytes there.
spoil() { printf "$2" | dd of="$shard" bs=1 seek="$1" conv=notrunc 2>/dev/null; }
spoil 20128 '\377\377'
spoil 80128 '\001\000\002\000'

set -- train c.yaml --set "data.text=[]" --set data.train=packed/train --set data.valid=packed/valid --set train.eval_every=0 \
    --set train.steps=8 --set checkpoint.every=4 --set train.micro_batch=2 --set train.threads=1

say "fail: the file is named before the first step"
run 1 "$banyan" "$@" --set name=fail
holds err "$shard: damaged"
holds err "data.corrupt=skip"
[ ! -e runs/fail ] || fail "a run was begun"

say "skip: more than the budget is an error that names counts and the file with the most"
run 1 "$banyan" "$@" --set name=over --set data.corrupt=skip
holds err "8192 of 158110 tokens are damaged, and data.corrupt_budget 0.01 allows 1581; the most, 8192, are in $shard"
run 1 "$banyan" "$@" --set name=over --set data.corrupt=skip --set data.corrupt_budget=8191
holds err "data.corrupt_budget 8191 allows 8191"

say "within the budget it is left out, named and counted"
set -- "$@" --set data.corrupt=skip --set data.corrupt_budget=8192
run 0 "$banyan" "$@" --set name=one
holds err "left out: $shard, at 16512: 4096 tokens from number 8192 on: a token is not below the vocabulary"
holds err "left out: $shard, at 73856: 4096 tokens from number 36864 on: its checksum is wrong"
[ "$(grep -c '"event":"corrupt"' runs/one/events.jsonl)" -eq 2 ] || fail "events: $(cat runs/one/events.jsonl)"
replaced=$(grep '"event":"replaced"' runs/one/events.jsonl | tail -n 1 | field damaged_samples)
[ "$replaced" -ge 2 ] || fail "replaced: $replaced"
holds err "$replaced samples had damaged tokens"
run 0 "$banyan" checkpoint digest runs/one/checkpoints/step-00000008
mv out one.digest
without_time runs/one/events.jsonl | grep -v '"status"' >one.events

for n in 2 4; do
    say "$n ranks: the same bits, the same events"
    run 0 mpi_run "$n" "$banyan" "$@" --set name="ranks$n"
    [ "$(grep -c "left out:" err)" -eq 2 ] || fail "said more than once: $(cat err)"
    run 0 "$banyan" checkpoint digest "runs/ranks$n/checkpoints/step-00000008"
    same one.digest out
    without_time "runs/ranks$n/events.jsonl" | grep -v '"status"' >n.events
    same one.events n.events
done

say "a resume, on another number of ranks, with the count of samples"
rm -rf runs/ranks2/checkpoints/step-00000008 packed/train/.verified
run 0 "$banyan" train --resume runs/ranks2
holds err "$replaced samples had damaged tokens"
run 0 "$banyan" checkpoint digest runs/ranks2/checkpoints/step-00000008
same one.digest out

say "whole data gives other bits than what stands in for damage, and says at a resume that it is other data"
rm -rf runs/ranks2/checkpoints/step-00000008
cp whole.npy "$shard"
run 0 "$banyan" train --resume runs/ranks2
holds err "other parts of the data are damaged than when"
run 0 "$banyan" checkpoint digest runs/ranks2/checkpoints/step-00000008
cmp -s one.digest out && fail "the damage made no difference"

say "documents apart in bins: 1 and 2 ranks count the same targets"
printf '{"text": "apple bay cedar dune elm"}\n%.0s' $(seq 2000) >lines.jsonl
run 0 "$banyan" pack lines.jsonl --tokenizer packed/train/tokenizer.json --output bins
printf '\001\000\002\000' | dd of=bins/tokens-00000.npy bs=1 seek=9000 conv=notrunc 2>/dev/null
set -- "$@" --set data.train=bins --set data.corrupt_budget=0.2 --set data.packing=best_fit --set data.documents=mask
run 0 "$banyan" "$@" --set name=bins1
grep -q '"event":"replaced"' runs/bins1/events.jsonl || fail "nothing was replaced"
run 0 mpi_run 2 "$banyan" "$@" --set name=bins2
run 0 "$banyan" checkpoint digest runs/bins1/checkpoints/step-00000008
mv out one.digest
run 0 "$banyan" checkpoint digest runs/bins2/checkpoints/step-00000008
same one.digest out

say "evaluation: damaged windows have no targets, a shard that is cut short is left out as a whole"
run 0 "$banyan" eval runs/one --json
whole=$(field tokens <out)
spoiled=$(ls packed/valid/tokens-*.npy)
printf '\377\377' | dd of="$spoiled" bs=1 seek=128 conv=notrunc 2>/dev/null
run 0 "$banyan" eval runs/one --json
holds err "left out: packed/valid/tokens-00000.npy, at 128: 4096 tokens from number 0 on"
[ "$(field tokens <out)" -lt "$whole" ] || fail "tokens: $(cat out)"
run 1 "$banyan" predict runs/one packed/valid
holds err "$spoiled: damaged at 128: a token is not below the vocabulary; predictions leave no document out"
truncate -s 1000 "$spoiled"
run 1 "$banyan" eval runs/one --json
holds err "15811 of 15811 tokens are damaged"
