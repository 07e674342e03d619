#!/bin/sh
# `banyan profile` on several ranks, in every layout: a table of the ranks, and one trace of all of them, in
# which slices of a track lie inside one another or apart and every rank has its exchanges on one track.
. "$(dirname "$0")/../support/shell.sh"

cat >c.yaml <<'END'
model: {kind: gpt2, layers: 4, heads: 2, width: 32, context: 32, vocab: 40, tied: false}
precision: {compute: f32}
train: {batch: 8, micro_batch: 2, threads: 1}
END
cat >experts.yaml <<'END'
model: {kind: mixtral, layers: 2, heads: 2, kv_heads: 2, width: 32, context: 32, vocab: 40, experts: 4, experts_per_token: 2}
precision: {compute: f32}
train: {batch: 8, micro_batch: 2, threads: 1}
END

# Reads trace.json and the line of JSON in `out`: RANKS STEPS NEEDLE, where a slice of the exchanges of
# every rank holds the needle.
cat >check.py <<'END'
import collections, json, sys
ranks, steps, needle = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
told = json.load(open("out"))
events = json.load(open("trace.json"))["traceEvents"]
tracks, names = collections.defaultdict(list), {}
for e in events:
    if e["ph"] == "X":
        begin, length = round(1000 * e["ts"]), round(1000 * e["dur"])
        assert begin >= 0 and length >= 0, e
        tracks[e["pid"], e["tid"]].append((begin, -length, e))
    elif e["ph"] == "M" and e["name"].endswith("_name"):
        names[e["pid"], e.get("tid")] = e["args"]["name"]
    else:
        assert e["ph"] in "MC", e
for track, slices in tracks.items():
    inside = []
    slices.sort(key=lambda s: s[:2])
    for begin, length, e in slices:
        end = begin - length
        while inside and inside[-1] <= begin:
            inside.pop()
        assert not inside or end <= inside[-1], (track, e)
        inside.append(end)
for r in range(ranks):
    pid = r + 1
    assert names[pid, None].startswith(f"rank {r}, "), names
    assert names[pid, None].endswith(told["ranks"][r]["place"])
    assert names[pid, 1] == "compute" and names[pid, 2] == "collectives"
    assert sorted(t for p, t in tracks if p == pid) == [1, 2], "one track of collectives"
    assert any(needle in e["name"] for *_, e in tracks[pid, 2]), needle
    spans = [e for *_, e in tracks[pid, 1] if e["name"] == "step"]
    assert len(spans) == steps
    rank = told["ranks"][r]
    for key in ("compute_ms", "exposed_ms", "hidden_ms", "waiting_ms", "bubble_ms"):
        mean = sum(e["args"][key] for e in spans) / steps
        assert abs(mean - rank[key]) <= 1e-4 * (1 + mean), (key, mean, rank)
    assert 0 < rank["compute_ms"] < rank["step_ms"] and 0 <= rank["waiting_ms"] <= rank["exposed_ms"]
    assert rank["exposed_ms"] + rank["hidden_ms"] > 0 and rank["clock_ms"] == 0
    assert rank["compute_ms"] + rank["exposed_ms"] <= rank["step_ms"] * 1.0001
    assert rank["planned_bytes"] > 0 and rank["resident_bytes"] > 0
    assert (rank["bubble_ms"] > 0) == (told["pipeline"] is not None)
assert len(told["ranks"]) == ranks
if told["pipeline"]:
    p = told["pipeline"]
    # What a rank is idle is what its passes leave of the time from the first to the last of any rank.
    passes = collections.defaultdict(list)
    for (pid, tid), slices in tracks.items():
        for begin, length, e in slices:
            if e["cat"] == "program" and e["name"].split()[0] in ("forward", "backward", "weights"):
                passes[pid].append((begin, begin - length))
    count = len(passes[1]) // steps
    idle = []
    for s in range(steps):
        own = {pid: sorted(x)[s * count:(s + 1) * count] for pid, x in passes.items()}
        first, last = min(x[0][0] for x in own.values()), max(x[-1][1] for x in own.values())
        idle.append(sum(last - first - sum(e - b for b, e in x) for x in own.values()) / ranks)
    # (sums of gradients between passes are no idle time)
    assert 0 < p["bubble_ms"] <= 1e-6 * max(idle) * 1.0001, (p, idle)
    assert p["forward_ms"] > 0 and p["backward_ms"] > 0 and p["formula_ms"] > 0 and p["simulated_ms"] > 0
    assert (p["weights_ms"] > 0) == (p["schedule"] == "zero_bubble")
END

# layout RANKS NEEDLE CONFIG KEY=VALUE...
layout() {
    ranks=$1
    needle=$2
    config=$3
    shift 3
    say "$ranks ranks: $*"
    for setting in "$@"; do set -- "$@" --set "parallel.$setting" && shift; done
    run 0 "$banyan" profile "$config" --ranks "$ranks" --steps 2 --trace trace.json --json "$@"
    python3 check.py "$ranks" 2 "$needle" || fail "not so, of $(cat out)"
}
layout 2 "bucket 0 of the gradients" c.yaml data=2
layout 2 "bucket 0 of the gradients" c.yaml data=2 overlap=false
layout 2 "bucket 0 of the weights" c.yaml shard=2
layout 2 "all-reduce" c.yaml tensor=2
layout 2 "all-gather" c.yaml sequence=2
layout 2 "all-to-all" experts.yaml expert=2
layout 2 "micro-batch 3, stage 0 to 1" c.yaml pipeline=2 schedule=gpipe
layout 4 "of micro-batch 1, stage" c.yaml pipeline=2 data=2
layout 2 "of micro-batch 1, stage 1 to 2" c.yaml pipeline=2 schedule=interleaved chunks=2
layout 2 "of micro-batch 1, stage" c.yaml pipeline=2 schedule=zero_bubble

say "as a table, on the data of a config"
run 0 "$banyan" profile c.yaml --ranks 2 --steps 1 --set parallel.pipeline=2 --set model.vocab=-1 \
    --set data.text=text.txt --set data.tokenizer=char --set data.cache=cache
holds out "pipeline 1"
holds out "1f1b, 4 micro-batches"
holds out "waited"

say "what does not fit together is refused"
run 2 "$banyan" profile c.yaml --ranks -1
run 2 "$banyan" profile c.yaml --ranks 2 --steps 1 --set parallel.data=3
run 1 "$banyan" profile c.yaml --ranks 2 --steps 1 --trace /nowhere/step.json
holds err "/nowhere/step.json"

say "under mpirun"
. "$root/tests/support/mpi.sh"
run 0 mpi_run 2 "$banyan" profile c.yaml --steps 2 --trace trace.json --json --set parallel.pipeline=2
python3 check.py 2 2 "of micro-batch 1, stage" || fail "not so, of $(cat out)"
echo "passed"
