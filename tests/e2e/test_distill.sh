#!/bin/sh
# A student and its teacher: the run resumes bit for bit, on several ranks too, its checkpoints hold the student alone,
# and a teacher that has changed is refused. Stored logits of all tokens give the losses of the teacher itself.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=teacher
teacher=runs/teacher/checkpoints/step-00000020
run 2 "$banyan" train c.yaml --set name=new --set distill.teacher=nowhere
holds err "distill.teacher: there is no file or directory nowhere"

set -- train c.yaml --json --set model.kind=llama --set model.width=32 --set model.heads=2 --set distill.teacher=runs/teacher \
    --set distill.hidden=0.1 --set train.micro_batch=4 --set checkpoint.every=4
run 0 "$banyan" "$@" --set name=whole
digest() {
    run 0 "$banyan" checkpoint digest "runs/$1"
    tail -n 1 out
}
whole_digest=$(digest whole)
# agrees RUN
agrees() {
    [ "$(digest "$1")" = "$whole_digest" ] || fail "$1 has other weights than the run that was whole"
}
say "kill -9 after step 17, resume"
train_until 17 KILL "$banyan" "$@" --set name=killed
run 0 "$banyan" train --resume runs/killed
agrees killed
. "$root/tests/support/mpi.sh"
say "two ranks that divide everything"
run 0 mpi_run 2 "$banyan" "$@" --set name=ranks --set parallel.shard=2 --set parallel.zero=3
agrees ranks

say "what is saved is the student"
run 0 "$banyan" eval runs/whole --json
run 0 "$banyan" generate runs/whole --prompt oak --tokens 5
if grep -q "teacher\." runs/whole/checkpoints/step-00000020/model.safetensors; then
    fail "the teacher is in the student's checkpoint"
fi

say "another teacher is refused"
train_until 17 KILL "$banyan" "$@" --set name=other
cp -r "$teacher" kept
run 0 "$banyan" train --resume runs/teacher --set train.steps=24
run 2 "$banyan" train --resume runs/other
holds err "was trained with other teacher weights"
run 0 "$banyan" train --resume runs/other --set distill.teacher=kept
agrees other

say "stored logits of the whole vocabulary are the teacher"
tokenizer=$teacher/tokenizer.json
head -c 65 text.txt >one.txt
run 0 "$banyan" pack one.txt --tokenizer "$tokenizer" --output one --json
vocab=$(field vocab <out)
run 0 "$banyan" logits kept --data one --out all --top "$vocab" --json
run 0 "$banyan" logits kept --data one --out usual --json
holds out "\"top\":$vocab"
same usual/ids-00000.npy all/ids-00000.npy
run 2 "$banyan" logits kept --data one --out no --top 0
run 2 "$banyan" logits kept --data one --out all --top "$vocab"
holds err "already exists"
set -- train c.yaml --json --set data.text=[] --set train.eval_every=0 --set model.dropout=0
run 0 "$banyan" "$@" --set data.train=one --set distill.teacher=kept --set name=live
run 0 "$banyan" "$@" --set data.train=one --set distill.logits=all --set name=stored
losses() { sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "runs/$1/events.jsonl"; }
losses live >live
losses stored >stored
[ "$(wc -l <live)" -ge 20 ] || fail "there are no losses to compare"
paste live stored | while read -r a b; do near "$a" "$b" 1e-5; done || exit 1

say "the most probable tokens, and what is refused"
run 0 "$banyan" pack text.txt --tokenizer "$tokenizer" --output packed
for temperature in 0 inf 1001; do
    run 2 "$banyan" logits kept --data packed --out hot --temperature "$temperature"
    holds err "is not a number above 0 and at most 1000"
done
run 0 "$banyan" logits kept --data packed --out said --top 4
run 0 "$banyan" "$@" --set data.train=packed --set distill.logits=said --set name=few
run 2 "$banyan" "$@" --set data.train=packed --set distill.logits=said --set distill.temperature=3 --set name=no
holds err "was made with a temperature of 2, but distill.temperature is 3"
run 2 "$banyan" "$@" --set data.train=one --set distill.logits=said --set name=no
holds err "was made from other data"
tr a-z A-Z <text.txt >foreign.txt
run 0 "$banyan" pack foreign.txt --tokenizer char --output foreign
run 2 "$banyan" train c.yaml --set data.text=[] --set data.train=foreign --set train.eval_every=0 --set name=no \
    --set distill.teacher=kept
holds err "distill.teacher=kept has another tokenizer"
run 0 "$banyan" export kept --format gguf --output kept.gguf
for model in kept kept.gguf; do
    run 2 "$banyan" logits "$model" --data foreign --out no --top 4
    holds err "was packed with another tokenizer than the model's"
done
run 0 "$banyan" logits kept.gguf --data packed --out again --top 4
same again/ids-00000.npy said/ids-00000.npy
printf x | dd of=said/ids-00000.npy bs=1 seek=500 conv=notrunc 2>/dev/null
"$banyan" "$@" --set data.train=packed --set distill.logits=said --set name=no >out 2>err && fail "damaged logits are read"
holds err "it is damaged"
