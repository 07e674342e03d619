#!/bin/sh
# Links of a graph, and small graphs: training, ranks, a resume, tests on what no training saw, predictions and vectors;
# a server that predicts nodes of its graph and graphs of requests.
. "$(dirname "$0")/../support/shell.sh"

# Three groups of nodes that are linked among themselves; rings with and without a chord that halves them, whose label is
# that and whose number is their size.
python3 - <<'END' || fail "no data"
import os, random, struct
rng = random.Random(5)
count = 150
with open("edges.csv", "w") as f, open("relations.txt", "w") as relations:
    for a in range(count):
        for _ in range(6):
            b = rng.randrange(count // 3) * 3 + a % 3 if rng.random() < 0.95 else rng.randrange(count)
            f.write(f"{a},{b}\n")
            relations.write(f"{(a + b) % 2}\n")
def npy(name, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
npy("x.npy", "<f4", (count, 5), b"".join(
    struct.pack("<f", rng.gauss(1.0 if k == i % 3 else 0.0, 1)) for i in range(count) for k in range(5)))
npy("y.npy", "|i1", (count,), bytes(i % 3 for i in range(count)))
os.makedirs("rings/raw")
files = {n: open(f"rings/raw/{n}.csv", "w") for n in ("num-node-list", "num-edge-list", "edge", "node-feat", "graph-label")}
with open("sizes.csv", "w") as sizes:
    for g in range(120):
        size, chords = rng.randrange(4, 12), g % 2
        edges = [(i, (i + 1) % size) for i in range(size)] + [(i, (i + 2) % size) for i in range(size // 2)] * chords
        files["num-node-list"].write(f"{size}\n")
        edges = sorted({tuple(sorted(e)) for e in edges})
        files["num-edge-list"].write(f"{len(edges)}\n")
        files["edge"].writelines(f"{a},{b}\n" for a, b in edges)
        degrees = [sum(i in e for e in edges) for i in range(size)]
        files["node-feat"].writelines(f"{d / 4},1\n" for d in degrees)
        files["graph-label"].write(f"{chords}\n")
        sizes.write(f"{size}\n")
END
cat >links.yaml <<'END'
name: links
task: {kind: links}
model: {kind: gcn, layers: 2, width: 16}
data: {graph: edges.csv, features: x.npy, self_loops: true, valid_links: 0.1, test_links: 0.2, held_out_negatives: 20}
train: {steps: 60, batch: 64, micro_batch: 16, eval_every: 30, threads: 1}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
checkpoint: {every: 30, keep: 9}
END
# above METRIC LEAST [MOST]: of the line of JSON in out.
above() {
    python3 -c 'import json, sys
v = json.load(open("out"))[sys.argv[1]]
assert float(sys.argv[2]) < v <= float((sys.argv[3:] or ["1"])[0]), v' "$@" || fail "$1: $(cat out)"
}
# again NAME CONFIG: two ranks, other threads and a resume end with the bits of the run.
again() {
    last=runs/$1/checkpoints/step-00000060
    run 0 "$banyan" launch -n 2 train "$2" --set name="$1-two"
    same "$last/model.safetensors" "runs/$1-two/checkpoints/step-00000060/model.safetensors"
    run 0 "$banyan" train "$2" --set name="$1-threads" --set train.threads=2 --set data.threads=2
    same "$last/model.safetensors" "runs/$1-threads/checkpoints/step-00000060/model.safetensors"
    cp "$last/model.safetensors" whole.safetensors
    rm -r "$last"
    run 0 "$banyan" train --resume "runs/$1"
    same "$last/model.safetensors" whole.safetensors
}

say "links: better than chance on those that no training saw; the same bits on two ranks and after a resume"
run 0 "$banyan" train links.yaml
run 0 "$banyan" eval runs/links --test --json
above auc 0.7
above mrr 0.25
above hits_10 0.6
again links links.yaml
run 0 "$banyan" train links.yaml --set name=mlp --set model.decoder=mlp --set model.kind=sage --set data.self_loops=false
run 0 "$banyan" eval runs/mlp --test --json
above auc 0.6

say "links: samples of surroundings with all edges are the whole graph; others have the same bits on two ranks"
set -- --set train.steps=4 --set train.eval_every=4 --set checkpoint.every=4
run 0 "$banyan" train links.yaml --set name=few "$@"
run 0 "$banyan" train links.yaml --set name=covers "$@" --set data.fan_outs='[999, 999]'
same runs/few/checkpoints/step-00000004/model.safetensors runs/covers/checkpoints/step-00000004/model.safetensors
set -- "$@" --set data.fan_outs='[4, 3]' --set data.supervision=0 --set data.held_out_negatives=5
run 0 "$banyan" train links.yaml --set name=around "$@"
run 0 "$banyan" launch -n 2 train links.yaml --set name=around2 "$@" --set data.threads=2
same runs/around/checkpoints/step-00000004/model.safetensors runs/around2/checkpoints/step-00000004/model.safetensors
run 0 "$banyan" pack --graph edges.csv --features x.npy --out packed
set -- "$@" --set data.graph=packed --set data.features= --set data.self_loops=false
run 0 "$banyan" train links.yaml --set name=whole "$@"
run 0 "$banyan" launch -n 2 train links.yaml --set name=divided "$@" --set data.partition_features=true
same runs/whole/checkpoints/step-00000004/model.safetensors runs/divided/checkpoints/step-00000004/model.safetensors
run 0 "$banyan" eval runs/around --test --json
printf '0,3\n' >pair.csv
run 0 "$banyan" predict runs/around pair.csv
holds out '"from":0,"to":3'
run 2 "$banyan" train links.yaml --set name=bad --set model.kind=rgcn
holds err "model.kind rgcn needs relations"

say "links: a model of relations reads those of the edges that are no targets"
set -- --set model.kind=rgcn --set data.relations=relations.txt --set data.self_loops=false
run 0 "$banyan" train links.yaml --set name=rgcn "$@"
run 0 "$banyan" eval runs/rgcn --test --json
above auc 0.7
last=runs/rgcn/checkpoints/step-00000060
holds "$last/config.json" '"num_relations": 4'
run 0 "$banyan" launch -n 2 train links.yaml --set name=rgcn-two "$@"
same "$last/model.safetensors" runs/rgcn-two/checkpoints/step-00000060/model.safetensors
run 0 "$banyan" predict runs/rgcn pair.csv
holds out '"from":0,"to":3'

say "links: predictions are of the product of vectors"
printf '0,3\n1,2\n149,0\n' >pairs.csv
run 0 "$banyan" predict runs/links pairs.csv --out pairs.jsonl
run 0 "$banyan" embed runs/links --out vectors.npy
python3 - <<'END' || fail "the predictions"
import json, math, struct
rows = list(struct.iter_unpack("<16f", open("vectors.npy", "rb").read()[128:]))
assert len(rows) == 150
said = [json.loads(line) for line in open("pairs.jsonl")]
assert [(p["from"], p["to"]) for p in said] == [(0, 3), (1, 2), (149, 0)]
for p in said:
    score = sum(a * b for a, b in zip(rows[p["from"]], rows[p["to"]]))
    assert abs(score - p["score"]) < 1e-4 and abs(1 / (1 + math.exp(-score)) - p["probability"]) < 1e-5, (p, score)
END
run 2 "$banyan" predict runs/links
holds err "predicts pairs of nodes"
run 2 "$banyan" train links.yaml --set name=bad --set data.valid_links=0.6 --set data.test_links=0.5
holds err "change data.valid_links"

cat >rings.yaml <<'END'
name: rings
task: {kind: graphs}
model: {kind: sage, layers: 2, width: 16, readout: sum}
data: {graph: rings, label_names: [plain, chords], pack_nodes: 32, valid_graphs: 20, test_graphs: 30}
train: {steps: 60, batch: 8, micro_batch: 2, eval_every: 30, threads: 1}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
checkpoint: {every: 30, keep: 9}
END
say "graphs: classes and numbers; the same bits on two ranks and after a resume"
run 0 "$banyan" train rings.yaml
run 0 "$banyan" eval runs/rings --test --json
above accuracy 0.8
above auc 0.9
above graphs 29 30
again rings rings.yaml
for readout in mean max; do
    run 0 "$banyan" train rings.yaml --set name=$readout --set model.kind=gcn --set model.readout=$readout \
        --set data.self_loops=true --set train.steps=2
done
run 0 "$banyan" predict runs/rings --out rings.jsonl
python3 - <<'END' || fail "the predictions"
import json
said = sorted((json.loads(line) for line in open("rings.jsonl")), key=lambda p: p["graph"])
assert [p["graph"] for p in said] == list(range(120))
assert sum(p["class"] == p["graph"] % 2 for p in said) > 100 and {p["label"] for p in said} == {"plain", "chords"}
END
mkdir sized && cp -r rings/raw sized/ && cp sizes.csv sized/raw/graph-label.csv
run 0 "$banyan" train rings.yaml --set name=sizes --set data.graph=sized --set data.target=number --set data.label_names='[]' \
    --set train.steps=120 --set optimizer.lr=0.05
run 0 "$banyan" eval runs/sizes --test --json
above mae 0 0.7
run 0 "$banyan" predict runs/sizes --out sizes.jsonl
python3 - <<'END' || fail "the numbers"
import json
sizes = [int(line) for line in open("sizes.csv")]
said = [json.loads(line) for line in open("sizes.jsonl")]
assert len(said) == 120 and sum(abs(p["value"] - sizes[p["graph"]]) for p in said) / 120 < 0.7, said[:5]
END
# The mean of the nodes does not tell how many there are; a feature of the graph does.
awk '{ print $1 / 8 - 1 }' sizes.csv >sized/raw/graph-feat.csv
run 0 "$banyan" train rings.yaml --set name=known --set data.graph=sized --set data.target=number --set data.label_names='[]' \
    --set model.readout=mean --set data.graph_features=true --set train.steps=120 --set optimizer.lr=0.05
run 0 "$banyan" eval runs/known --test --json
above mae 0 0.5
sed -i '$d' sized/raw/graph-feat.csv
run 1 "$banyan" train rings.yaml --set name=bad --set data.graph=sized --set data.graph_features=true
holds err "119 rows of features of graphs, and 120 graphs"
run 2 "$banyan" train rings.yaml --set name=bad --set data.pack_nodes=5
holds err "has 11 nodes"
