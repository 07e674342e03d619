#!/bin/sh
# Nodes of a graph: training of each family, the nodes that are kept for a test, ranks, a resume, predictions, and what is
# refused.
. "$(dirname "$0")/../support/shell.sh"

# Three groups of nodes that know each other better than others; features say little of the group.
python3 - <<'END' || fail "no data"
import random, struct
rng = random.Random(5)
count = 240
with open("edges.csv", "w") as f, open("relations.txt", "w") as relations:
    f.write("from,to\n")
    for a in range(count):
        for _ in range(4):
            near = rng.random() < 0.85
            b = rng.randrange(count // 3) * 3 + a % 3 if near else rng.randrange(count)
            f.write(f"{a},{b}\n")
            relations.write(f"{0 if near else 1}\n")
def npy(name, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
npy("x.npy", "<f4", (count, 5), b"".join(
    struct.pack("<f", rng.gauss(0.7 if k == i % 3 else 0.0, 1)) for i in range(count) for k in range(5)))
npy("y.npy", "|i1", (count,), bytes(i % 3 for i in range(count)))
# The same graph with thirty nodes more, none of which is in training.
with open("grown.csv", "w") as f:
    f.write(open("edges.csv").read())
    for a in range(count, count + 30):
        for _ in range(5):
            f.write(f"{a},{rng.randrange(count // 3) * 3 + a % 3}\n")
old = open("x.npy", "rb").read()[-count * 20:]
npy("grown.npy", "<f4", (count + 30, 5), old + b"".join(
    struct.pack("<f", rng.gauss(0.7 if k == i % 3 else 0.0, 1)) for i in range(count, count + 30) for k in range(5)))
words = [[rng.randrange(10) * 3 + i % 3 if rng.random() < 0.5 else rng.randrange(30) for _ in range(2)] for i in range(count)]
npy("words.npy", "<f4", (count, 30), b"".join(struct.pack("<f", k in w) for w in words for k in range(30)))
END
cat >groups.yaml <<'END'
name: groups
task: {kind: nodes}
model: {kind: gcn, layers: 2, width: 8, dropout: 0.3}
data: {graph: edges.csv, features: x.npy, labels: y.npy, label_names: [red, green, blue],
       self_loops: true, per_class: 8, valid_nodes: 48, test_nodes: 96}
train: {steps: 60, batch: 24, micro_batch: 6, eval_every: 30, threads: 1}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
checkpoint: {every: 30, keep: 9}
END
# accuracy: of the test that "out" tells.
accuracy() {
    python3 -c 'import json, sys
e = json.load(open("out"))
assert e["nodes"] == 96 and e["accuracy"] > float(sys.argv[1]), e' "$1" || fail "the accuracy of the test"
}

say "train each family, and test on nodes that no training saw"
run 0 "$banyan" train groups.yaml
holds out "a graph of 240 nodes with 5 features"
holds out "24 nodes for training, 48 held out"
run 0 "$banyan" eval runs/groups --test --json
accuracy 0.8
last=runs/groups/checkpoints/step-00000060
holds "$last/config.json" '"num_nodes": 240'
run 0 "$banyan" train groups.yaml --set name=gat --set model.kind=gat --set model.heads=2
run 0 "$banyan" eval runs/gat --test --json
accuracy 0.7
run 0 "$banyan" train groups.yaml --set name=sage --set model.kind=sage --set data.self_loops=false
run 0 "$banyan" eval runs/sage --test --json
accuracy 0.7
run 0 "$banyan" train groups.yaml --set name=gin --set model.kind=gin --set data.self_loops=false --set model.residual=true \
    --set norm.kind=layer --set activation.kind=silu --set model.edge_dropout=0.1
run 0 "$banyan" eval runs/gin --test --json
accuracy 0.8
run 0 "$banyan" train groups.yaml --set name=rgcn --set model.kind=rgcn --set data.relations=relations.txt --set model.bases=2 \
    --set data.per_class=30
holds "runs/rgcn/checkpoints/step-00000060/config.json" '"num_relations": 4'
run 0 "$banyan" eval runs/rgcn --test --json
accuracy 0.85
run 0 "$banyan" train groups.yaml --set name=half --set precision.compute=bf16
run 0 "$banyan" eval runs/half --test --json
accuracy 0.8

say "parameters have the names and shapes of PyTorch Geometric's models, both ways"
cat >names.py <<'END'
import glob, json, os, struct
def tensors(folder):
    found = {}
    for path in glob.glob(f"{folder}/model*.safetensors"):
        raw = open(path, "rb").read()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                found[name] = (t["shape"], raw[8 + size + begin:8 + size + end])
    return found
def layers(one):
    return {f"convs.{i}.{name}": shape for i, (n, o) in enumerate([(5, 8), (8, 3)]) for name, shape in one(i, n, o).items()}
linear = lambda name, n, o: {f"{name}.weight": [o, n], f"{name}.bias": [o]}
wanted = {
    "groups": layers(lambda i, n, o: {"lin.weight": [o, n], "bias": [o]}),
    "sage": layers(lambda i, n, o: {"lin_l.weight": [o, n], "lin_l.bias": [o], "lin_r.weight": [o, n]}),
    "gat": layers(lambda i, n, o: {"lin.weight": [o, n], "bias": [o], "att_src": [1, 2 - i, o // (2 - i)], "att_dst": [1, 2 - i, o // (2 - i)]}),
    "gin": layers(lambda i, n, o: {"eps": [1], **linear("nn.lins.0", n, o), **linear("nn.lins.1", o, o), "nn.norms.0.weight": [o],
                                   "nn.norms.0.bias": [o]}) | {"norms.0.weight": [8], "norms.0.bias": [8]},
    "rgcn": layers(lambda i, n, o: {"weight": [2, n, o], "comp": [4, 2], "root": [n, o], "bias": [o]}),
}
for run, names in wanted.items():
    have = {name: shape for name, (shape, _) in tensors(f"runs/{run}/checkpoints/step-00000060").items()}
    assert have == names, (run, have, names)
os.makedirs("state")
state, at, head = tensors("runs/groups/checkpoints/step-00000060"), 0, {}
for name, (shape, data) in state.items():
    head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(head).encode()
open("state/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in state.values()))
json.dump({"architectures": ["GCN"], "model_type": "banyan_gcn", "in_channels": 5, "hidden_channels": 8, "num_layers": 2,
           "out_channels": 3}, open("state/config.json", "w"))
END
run 0 python3 names.py
run 0 "$banyan" train groups.yaml --set name=state --set model.from=state --set train.steps=1 --set optimizer.lr=1e-20 --set optimizer.min_lr=0
run 0 "$banyan" predict runs/state --out state.jsonl
run 0 "$banyan" predict runs/groups --out groups.jsonl
same state.jsonl groups.jsonl

say "features of which few are not 0: the first layer reads these alone, with the losses of all"
words() {
    run 0 "$banyan" train groups.yaml --set name="$1" --set data.features=words.npy --set model.kind="$2" --set optimizer.kind=adam \
        --set model.dropout=0 --set train.log_every=1 --set train.steps=20 --set optimizer.weight_decay=5e-4 --set "$3"
}
for kind in gcn sage gat gin; do
    words "sparse-$kind" $kind train.eval_every=10
    grep -q 'feature_entries: [1-9]' "runs/sparse-$kind/config.yaml" || fail "$kind reads all features"
    words "dense-$kind" $kind model.feature_entries=0
    python3 -c 'import json, sys
a, b = ([e["loss"] for e in map(json.loads, open(f"runs/{name}/events.jsonl")) if "loss" in e] for name in sys.argv[1:])
assert len(a) == 20 and all(abs(x - y) < 1e-4 * abs(y) for x, y in zip(a, b)) and a[-1] < a[0], (a, b)' \
        sparse-$kind dense-$kind || fail "the losses of $kind"
done
run 0 "$banyan" train groups.yaml --set name=dropped --set data.features=words.npy --set model.input_dropout=0.5
run 0 "$banyan" eval runs/dropped --test --json
accuracy 0.6

say "the same bits on two ranks, with other threads, and after a resume"
run 0 "$banyan" launch -n 2 train groups.yaml --set name=two
same "$last/model.safetensors" runs/two/checkpoints/step-00000060/model.safetensors
run 0 "$banyan" train groups.yaml --set name=threads --set train.threads=3
same "$last/model.safetensors" runs/threads/checkpoints/step-00000060/model.safetensors
cp "$last/model.safetensors" whole.safetensors
rm -r "$last"
run 0 "$banyan" train --resume runs/groups
same "$last/model.safetensors" whole.safetensors

say "predict nodes of a list"
printf '3\n17\n200\n' >some.txt
run 0 "$banyan" predict runs/groups some.txt --csv --out some.csv
python3 -c 'import csv
rows = list(csv.DictReader(open("some.csv")))
assert [r["node"] for r in rows] == ["3", "17", "200"] and all(0.3 < float(r["probability"]) <= 1 for r in rows), rows' ||
    fail "the predictions"

say "predict all nodes, some by number, and nodes that no training saw; classes by name"
run 0 "$banyan" predict runs/groups --out all.jsonl
run 0 "$banyan" predict runs/groups --nodes 17,3 --json --out two.jsonl
run 0 "$banyan" predict runs/groups --graph grown.csv --features grown.npy --out grown.jsonl
run 0 "$banyan" embed runs/groups --graph grown.csv --features grown.npy --out grown-vectors.npy
run 0 "$banyan" embed runs/groups --nodes 5,200 --out two.npy --json
holds out '{"out":"two.npy","nodes":2,"width":'
run 0 "$banyan" embed runs/groups --nodes 200
mv out vector.jsonl
cat >check.py <<'END'
# A GCN of two layers by its formula, on grown.csv: what the vectors and classes of its nodes must be.
import json, math, struct, sys
count = 270
edges = {(i, i) for i in range(count)}
for line in open("grown.csv").read().split()[1:]:
    a, b = map(int, line.split(","))
    edges |= {(a, b), (b, a)}
near = [[] for _ in range(count)]
for a, b in edges:
    near[b].append(a)
x = struct.iter_unpack("<5f", open("grown.npy", "rb").read()[-count * 20:])
raw = open(sys.argv[1], "rb").read()
head = struct.unpack("<Q", raw[:8])[0]
heads = json.loads(raw[8:8 + head])
def tensor(name):
    begin, end = heads[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", raw[8 + head + begin:8 + head + end])
def layer(x, i):
    w, b = tensor(f"convs.{i}.lin.weight"), tensor(f"convs.{i}.bias")
    wide = len(w) // len(b)
    y = [[sum(w[o * wide + k] * r[k] for k in range(wide)) / math.sqrt(len(near[n])) for o in range(len(b))]
         for n, r in enumerate(x)]
    return [[sum(y[m][o] for m in near[n]) / math.sqrt(len(near[n])) + b[o] for o in range(len(b))]
            for n in range(count)]
hidden = [[max(0, v) for v in row] for row in layer(list(x), 0)]
logits = layer(hidden, 1)
def rows(name):
    raw = open(name, "rb").read()
    shape = raw[:128].split(b"(")[1].split(b")")[0].split(b",")
    assert len(raw) == 128 + int(shape[0]) * 8 * 4 and int(shape[1]) == 8, raw[:128]
    return list(struct.iter_unpack("<8f", raw[128:]))
vectors = rows("grown-vectors.npy")
assert len(vectors) == count
assert all(abs(a - b) < 1e-4 for n in range(count) for a, b in zip(vectors[n], hidden[n])), "vectors"
said = [json.loads(line) for line in open("grown.jsonl")]
assert [p["node"] for p in said] == list(range(count))
for p, row in zip(said, logits):
    share = math.exp(row[p["class"]]) / sum(math.exp(v) for v in row)
    assert row[p["class"]] > max(row) - 1e-4 and abs(share - p["probability"]) < 1e-4, (p, row)
    assert p["label"] == ["red", "green", "blue"][p["class"]], p
assert sum(p["class"] == p["node"] % 3 for p in said[240:]) >= 20, said[240:]
every = [json.loads(line) for line in open("all.jsonl")]
assert [p["node"] for p in every] == list(range(240))
assert [json.loads(line) for line in open("two.jsonl")] == [every[17], every[3]]
two = rows("two.npy")
one = json.loads(open("vector.jsonl").read())
assert one["node"] == 200 and all(abs(a - b) < 1e-6 for a, b in zip(one["embedding"], two[1]))
END
run 0 python3 check.py "$last/model.safetensors"
run 0 "$banyan" predict runs/sage --graph grown.csv --features grown.npy --nodes 269
holds out '"node":269'
run 2 "$banyan" predict runs/groups --nodes 240
holds err "has no node 240; there are 240"
run 2 "$banyan" predict runs/groups --nodes 3,x
holds err "'x' does not begin with a number"
run 1 "$banyan" predict runs/groups --graph grown.csv --features y.npy
holds err "y.npy"

say "samples of surroundings: the loss of the whole graph if they have all edges; the same bits on two ranks"
cat >first.sh <<'END'
name=$1
shift
"$banyan" train groups.yaml --set name="$name" --set model.kind=sage --set data.self_loops=false --set model.dropout=0 \
    --set train.steps=1 --set train.log_every=1 --set train.eval_every=1 --set checkpoint.every=1 "$@" >/dev/null &&
    grep -o '"loss": *[0-9.e-]*' "runs/$name/events.jsonl" | head -n 1 >"$name.losses" && [ -s "$name.losses" ]
END
export banyan
run 0 sh first.sh whole
run 0 sh first.sh full --set data.fan_outs='[999, 999]' --set data.threads=2
same whole.losses full.losses
run 0 sh first.sh few --set data.fan_outs='[3, 2]'
cmp -s few.losses whole.losses && fail "samples of 3 and 2 edges have the loss of the whole graph"
set -- --set model.kind=sage --set data.self_loops=false --set data.fan_outs='[6, 3]'
run 0 "$banyan" train groups.yaml --set name=sampled "$@" --set data.threads=1
run 0 "$banyan" eval runs/sampled --test --json
accuracy 0.55
run 0 "$banyan" predict runs/sampled --graph grown.csv --features grown.npy --nodes 269
holds out '"node":269'
run 0 "$banyan" launch -n 2 train groups.yaml --set name=sampled2 "$@" --set data.threads=3
same runs/sampled/checkpoints/step-00000060/model.safetensors runs/sampled2/checkpoints/step-00000060/model.safetensors
run 2 "$banyan" train groups.yaml --set name=bad --set data.fan_outs='[0, 2]'
holds err "'0' is not a number of edges"

say "samples of several targets: with all edges and all targets, the weights of the whole graph, with any threads"
for kind in gcn sage gat; do
    set -- --set model.kind=$kind --set train.steps=5 --set train.eval_every=5 --set checkpoint.every=5
    run 0 "$banyan" train groups.yaml --set name=all-$kind --set train.micro_batch=24 "$@"
    run 0 "$banyan" train groups.yaml --set name=cover-$kind --set train.batch=1 --set train.micro_batch=1 \
        --set data.sample_targets=24 --set data.fan_outs='[999, 999]' --set data.threads=2 "$@"
    same runs/all-$kind/checkpoints/step-00000005/model.safetensors \
        runs/cover-$kind/checkpoints/step-00000005/model.safetensors
done
set -- --set model.kind=sage --set data.self_loops=false --set data.fan_outs='[6, 3]' --set data.sample_targets=6 \
    --set train.batch=4 --set train.micro_batch=1
run 0 "$banyan" train groups.yaml --set name=several "$@" --set data.threads=1
run 0 "$banyan" eval runs/several --test --json
accuracy 0.55
for ranks in 2 4; do
    run 0 "$banyan" launch -n $ranks train groups.yaml --set name=several$ranks "$@" --set data.threads=2
    same runs/several/checkpoints/step-00000060/model.safetensors \
        runs/several$ranks/checkpoints/step-00000060/model.safetensors
done
run 0 "$banyan" predict runs/several some.txt --csv --out several.csv
[ "$(wc -l <several.csv)" -eq 4 ] || fail "predictions of a model of several targets"
run 2 "$banyan" train groups.yaml --set name=bad --set data.fan_outs='[3]'
holds err "1 hops, but the model has 2 layers"
run 2 "$banyan" train groups.yaml --set name=bad --set data.fan_outs='[3, 3]' --set data.sample_targets=25
holds err "data.sample_targets 25 are more than the 24 nodes to train on"

say "parts of the graph: one cluster has the loss of the whole graph; walks have the same bits on two ranks, with any threads"
near() {
    python3 -c 'import sys
a, b = (float(open(f"{n}.losses").read().split(":")[1]) for n in sys.argv[1:])
assert abs(a - b) < 1e-5 * b, (a, b)' "$@" || fail "the losses of $1 and $2"
}
sed 's/$/,0.25/; 1s/.*/from,to,weight/' edges.csv >light.csv
for kind in gcn sage gin; do
    run 0 sh first.sh "flat-$kind" --set model.kind=$kind --set train.batch=24 --set train.micro_batch=24
    run 0 sh first.sh "one-$kind" --set model.kind=$kind --set train.batch=1 --set train.micro_batch=1 \
        --set data.sampling=clusters --set data.clusters=1
    near "flat-$kind" "one-$kind"
    run 0 sh first.sh "light-$kind" --set model.kind=$kind --set train.batch=24 --set train.micro_batch=24 \
        --set data.graph=light.csv --set data.edge_weights=true
    run 0 sh first.sh "light-one-$kind" --set model.kind=$kind --set train.batch=1 --set train.micro_batch=1 \
        --set data.graph=light.csv --set data.edge_weights=true --set data.sampling=clusters --set data.clusters=1
    run 0 sh first.sh "light-near-$kind" --set model.kind=$kind --set train.batch=24 --set train.micro_batch=24 \
        --set data.graph=light.csv --set data.edge_weights=true --set data.fan_outs='[999, 998]'
    near "light-$kind" "light-one-$kind"
    near "light-$kind" "light-near-$kind"
done
near light-gcn flat-gcn # without loops, normalised sums do not change with the scale of weights
cmp -s light-gin.losses flat-gin.losses && fail "weights of edges make no difference"
set -- --set model.kind=sage --set data.self_loops=false --set data.sampling=walks --set data.sample_targets=12 --set data.walk_length=6 \
    --set train.batch=2 --set train.micro_batch=1
run 0 "$banyan" train groups.yaml --set name=walks "$@" --set data.threads=1
run 0 "$banyan" eval runs/walks --test --json
accuracy 0.6
run 0 "$banyan" launch -n 2 train groups.yaml --set name=walks2 "$@" --set data.threads=3
same runs/walks/checkpoints/step-00000060/model.safetensors runs/walks2/checkpoints/step-00000060/model.safetensors
run 0 "$banyan" train groups.yaml --set name=clusters --set data.sampling=clusters --set data.clusters=6 --set data.sample_clusters=2 \
    --set train.batch=3 --set train.micro_batch=1
run 0 "$banyan" eval runs/clusters --test --json
accuracy 0.7
run 2 "$banyan" train groups.yaml --set name=bad --set data.sampling=walks --set data.fan_outs='[3, 2]'
holds err "data.fan_outs are of data.sampling neighbours; it is walks"
run 2 "$banyan" train groups.yaml --set name=bad --set data.sampling=clusters
holds err "data.clusters is 0"
run 2 "$banyan" train groups.yaml --set name=bad --set data.sampling=walks --set model.kind=gat
holds err "this model of kind gat reads no weights of edges"
run 1 "$banyan" train groups.yaml --set name=bad --set data.edge_weights=true
holds err "edges.csv: line 2 is not two numbers of nodes, from 0 to 2147483646, and a weight"

say "features divided among ranks: the bits of features on every rank, with surroundings and parts, and after a kill"
run 0 "$banyan" pack --graph edges.csv --features x.npy --labels y.npy --out packed
set -- --set data.graph=packed --set data.features= --set data.labels= --set model.kind=sage --set data.self_loops=false \
    --set train.batch=8 --set train.micro_batch=2
divided() {
    name=$1
    shift
    run 0 "$banyan" train groups.yaml --set name="$name" "$@"
    for ranks in 2 4; do
        run 0 "$banyan" launch -n $ranks train groups.yaml --set name="$name-$ranks" "$@" --set data.partition_features=true
        same "runs/$name/checkpoints/step-00000060/model.safetensors" \
            "runs/$name-$ranks/checkpoints/step-00000060/model.safetensors"
    done
    grep '"accuracy"' "runs/$name/events.jsonl" | grep -o '"accuracy": *[0-9.]*' >one
    grep '"accuracy"' "runs/$name-4/events.jsonl" | grep -o '"accuracy": *[0-9.]*' >four
    [ -s one ] || fail "no evaluations"
    same one four
}
divided around "$@" --set data.fan_outs='[4, 3]'
divided parts "$@" --set data.sampling=walks --set data.sample_targets=6
rm -r runs/around-4/checkpoints/step-00000060
run 0 "$banyan" launch -n 2 train --resume runs/around-4
same runs/around/checkpoints/step-00000060/model.safetensors runs/around-4/checkpoints/step-00000060/model.safetensors
"$banyan" info groups.yaml "$@" --set data.fan_outs='[4, 3]' --set data.partition_features=true --ranks 4 --json >four.json
"$banyan" info groups.yaml "$@" --set data.fan_outs='[4, 3]' --ranks 4 --json >plain.json
python3 -c 'import json
a, b = (json.load(open(n))["data_bytes"] for n in ("four.json", "plain.json"))
assert 8 << 20 < a - b < 16 << 20, (a, b)' || fail "the memory of the exchange"
run 2 "$banyan" train groups.yaml --set name=bad "$@" --set data.partition_features=true
holds err "a step reads the whole graph"
run 2 "$banyan" train groups.yaml --set name=bad --set data.fan_outs='[4, 3]' --set data.partition_features=true
holds err "pack it with \`banyan pack --graph\`"

say "lists of nodes; what is refused"
seq 0 49 >train.txt && seq 50 99 >valid.txt && seq 49 60 >both.txt
run 0 "$banyan" train groups.yaml --set name=lists --set data.train_list=train.txt --set data.valid_list=valid.txt \
    --set train.steps=2
holds out "50 nodes for training, 50 held out"
run 2 "$banyan" train groups.yaml --set name=bad --set data.train_list=train.txt --set data.valid_list=both.txt
holds err "node 49 is in train.txt and in both.txt"
run 2 "$banyan" train groups.yaml --set name=bad --set model.kind=rgcn
holds err "model.kind rgcn needs relations"
head -n 9 relations.txt >few_relations.txt
run 1 "$banyan" train groups.yaml --set name=bad --set model.kind=rgcn --set data.relations=few_relations.txt
holds err "few_relations.txt has the relations of 9 edges, but edges.csv has 960 edges"
run 2 "$banyan" train groups.yaml --set name=bad --set norm.kind=batch --set data.fan_outs='[3, 2]'
holds err "norm.kind batch would count the empty rows of samples"
run 2 "$banyan" train groups.yaml --set name=bad --set model.kind=sage --set model.aggregate=max --set model.edge_dropout=0.5
holds err "model.aggregate max has no sum"
run 2 "$banyan" train groups.yaml --set name=bad --set model.kind=mlp
holds err "task.kind nodes needs a model of the nodes of a graph"
run 2 "$banyan" train groups.yaml --set name=bad --set data.per_class=500
holds err "data.per_class is 500"
sed '1s/.*/0,1.5/' edges.csv >first_bad.csv
run 1 "$banyan" train groups.yaml --set name=bad --set data.graph=first_bad.csv
holds err "first_bad.csv: line 1 is not two numbers of nodes"
run 1 "$banyan" pack --graph first_bad.csv --features x.npy --out first_bad
holds err "first_bad.csv: line 1 is not two numbers of nodes"
echo 500 >far.txt
run 1 "$banyan" pack --graph edges.csv --features x.npy --train-list far.txt --out far
holds err "far.txt"
: >empty.txt
run 1 "$banyan" pack --graph edges.csv --features x.npy --train-list empty.txt --out far
holds err "empty.txt"
sed 's/^239,.*/239,240/' edges.csv >edges_bad.csv
run 1 "$banyan" train groups.yaml --set name=bad --set data.graph=edges_bad.csv
holds err "has node 240; there are 240"
