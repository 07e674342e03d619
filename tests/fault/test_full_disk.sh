#!/bin/sh
# A disk that is full while a checkpoint is written: a clear error, and the checkpoint before it stays valid
# and is resumed from, to the bits of a run that never failed. With a file-size limit, and, where a tmpfs may
# be mounted, with a file system that is really full.
. "$(dirname "$0")/../support/shell.sh"

# A constant rate: the first ten steps are the same whether the run is to end there or at twenty.
tiny gpt2 | sed 's/warmup: 5/warmup: 5, schedule: constant/' >c.yaml
say "a run that never failed"
run 0 "$banyan" train c.yaml --quiet --set name=whole

# after_failure RUN: what must hold when the save at step 20 failed.
after_failure() {
    [ "$code" -eq 1 ] || fail "exit code $code: $(cat err)"
    holds err "$1/checkpoints/step-00000020"
    holds "$1/run.json" '"failed"'
    if ls -A "$1/checkpoints" | grep -E 'tmp|trash|00000020'; then fail "leftovers of the failed save"; fi
    run 0 "$banyan" eval "$1" --json
    holds out "$1/checkpoints/step-00000010\""
}

say "a file-size limit while saving"
run 0 "$banyan" train c.yaml --quiet --set name=limited --set train.steps=10
size=$(wc -c <runs/limited/checkpoints/step-00000010/model.safetensors)
(
    ulimit -f $((size / 1024))
    "$banyan" train --resume runs/limited --set train.steps=20 >out 2>err
)
code=$?
after_failure runs/limited

# recover RUN: with room again it goes on, and ends as if nothing had been.
recover() {
    run 0 "$banyan" train --resume "$1" --set train.steps=20
    for file in model.safetensors optimizer.safetensors; do
        same "runs/whole/checkpoints/step-00000020/$file" "$1/checkpoints/step-00000020/$file"
    done
}
say "without the limit it goes on"
recover runs/limited

full=$work/full
mkdir "$full"
if mount -t tmpfs -o size=4m tmpfs "$full" 2>/dev/null; then
    on_exit="umount $full"
    say "a file system that is full while saving"
    run 0 "$banyan" train c.yaml --quiet --set name=full --set run.dir="$full" --set train.steps=10
    free=$(df -k "$full" | awk 'NR == 2 { print $4 }')
    head -c $(((free - 400) * 1024)) /dev/zero >"$full/ballast"
    "$banyan" train --resume "$full/full" --set train.steps=20 >out 2>err
    code=$?
    holds err "the disk is full"
    after_failure "$full/full"
    rm "$full/ballast"
    say "a disk that is full for a moment while the run logs: nothing ends, no event is lost"
    "$banyan" train c.yaml --json --set name=moment --set run.dir="$full" --set train.steps=400 \
        --set checkpoint.every=0 --set train.eval_every=0 >moment.out 2>moment.err &
    background=$!
    wait_for '"step":20,' moment.out
    # It stands still while the disk is filled, so that it cannot be done before.
    kill -STOP "$background"
    dd if=/dev/zero of="$full/ballast" bs=1k >/dev/null 2>&1
    kill -CONT "$background"
    wait_for "training continues" moment.err
    rm "$full/ballast"
    wait "$background" || fail "the run ended: $(cat moment.err)"
    background=
    [ "$(grep -c '"event":"train"' "$full/moment/events.jsonl")" -eq 400 ] || fail "events were lost"
    rm -r "$full/moment"
    say "room again: it goes on"
    recover "$full/full"
else
    echo "no tmpfs can be mounted here: the file-size limit alone was tried"
fi
