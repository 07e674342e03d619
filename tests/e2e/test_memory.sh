#!/bin/sh
# The memory that a run takes at its peak (VmHWM), on several ranks that of each, is the memory that was planned before
# it began, within 3 %.
. "$(dirname "$0")/../support/shell.sh"

cat >c.yaml <<END
model: {kind: gpt2, layers: 6, heads: 6, width: 384, context: 256, vocab: 6144}
precision: {compute: f32}
train: {batch: 2}
END
for setting in "precision.compute=f32" "precision.compute=bf16" "memory.recompute=block" "train.micro_batch=1" \
    "model.kind=llama" "offload.optimizer=disk" "memory.recompute=full" "memory.budget=272MiB" \
    "memory.activations=bf16" "memory.activations=int8" "optimizer.kind=adafactor" "optimizer.kind=lion" "lora.rank=8"; do
    run 0 "$banyan" bench train c.yaml --steps 1 --json --set "$setting"
    planned=$(field planned_bytes <out)
    measured=$(field measured_bytes <out)
    [ "$setting" != offload.optimizer=disk ] || holds out '"disk_ms":'
    say "$setting: planned $planned, measured $measured bytes"
    [ "$planned" -gt 100000000 ] || fail "the model is too small to tell"
    near "$measured" "$planned" "$(awk -v p="$planned" 'BEGIN { print 0.03 * p }')"
done

# The graph is the one that runs: with what the budget makes again.
run 0 "$banyan" info c.yaml --graph
lines=$(wc -l <out)
run 0 "$banyan" info c.yaml --graph --set memory.budget=272MiB
[ "$(wc -l <out)" -gt "$lines" ] || fail "nothing is computed again in the graph that is printed"
# The plan of any rank of a job, without the others.
run 0 "$banyan" info c.yaml --ranks 4 --rank 3 --set parallel.pipeline=2 --json
holds out '"ranks":4,"rank":3,"place":"pipeline 1, data 1"'
run 0 "$banyan" info c.yaml --ranks 2 --rank 1 --set parallel.pipeline=2
holds out "rank          1 of 2: pipeline 1"
run 0 "$banyan" info c.yaml --ranks 2 --graph --set parallel.shard=2 --set parallel.zero=3
holds out gather_parameter
run 2 "$banyan" info c.yaml --ranks 2 --rank 2
holds err "--rank 2"
# ... and the picture of what a step has in memory, too.
run 0 "$banyan" info c.yaml --out memory.svg --set memory.budget=272MiB
holds memory.svg "</svg>"
run 2 "$banyan" info c.yaml --out memory.gif
holds err ".png or .svg"
# What does not fit is said, with what would.
run 0 "$banyan" info c.yaml --set memory.budget=240MiB
holds out "fits with"
run 0 "$banyan" info c.yaml --set memory.budget=240MiB --json
holds out '"fits":false,"changes":[{"set":"'
run 1 "$banyan" bench train c.yaml --steps 1 --set memory.budget=240MiB
holds err "memory.budget is 240.0 MiB"

command -v mpirun >/dev/null 2>&1 || exit 0
. "$root/tests/support/mpi.sh"
# ranks RANKS KEY=VALUE...: the memory of each rank.
ranks() {
    count=$1
    shift
    case_name="$count ranks, $*"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    run 0 mpi_run "$count" "$banyan" bench train c.yaml --steps 1 --json --set train.threads=1 \
        --set train.micro_batch=1 --set model.tied=false "$@"
    for i in $(seq "$count"); do
        planned=$(sed 's/.*"ranks_planned_bytes":\[\([^]]*\).*/\1/' out | cut -d, -f"$i")
        measured=$(sed 's/.*"ranks_measured_bytes":\[\([^]]*\).*/\1/' out | cut -d, -f"$i")
        say "$case_name: rank $((i - 1)) planned $planned, measured $measured bytes"
        [ "$planned" -gt 100000000 ] || fail "the model is too small to tell"
        near "$measured" "$planned" "$(awk -v p="$planned" 'BEGIN { print 0.03 * p }')"
    done
}
ranks 2 pipeline=2 schedule=gpipe
ranks 2 pipeline=2 schedule=zero_bubble
ranks 2 shard=2
ranks 2 shard=2 zero=2
ranks 4 pipeline=2 shard=2 zero=3
