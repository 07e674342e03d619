#!/bin/sh
# A student and its teacher: the run resumes bit for bit, on several ranks too, its checkpoints hold the student alone,
# and a teacher that has changed is refused.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --set name=teacher
teacher=runs/teacher/checkpoints/step-00000020
run 1 "$banyan" train c.yaml --set name=new --set distill.teacher=nowhere
holds err "distill.teacher: "

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
holds err "learned from other weights"
run 0 "$banyan" train --resume runs/other --set distill.teacher=kept
agrees other
