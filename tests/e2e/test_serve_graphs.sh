#!/bin/sh
# A server of models of graphs, whose workers are in their sandbox: nodes of the graph that the model has, and graphs that
# requests bring; what `banyan predict` says of the same.
. "$(dirname "$0")/../support/shell.sh"
# shellcheck source=tests/support/serve.sh
. "$root/tests/support/serve.sh"

python3 - <<'END' || fail "no data"
import json, os, random, struct
rng = random.Random(5)
count = 40
def npy(name, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
def graph(name, count):
    edges = [(a, rng.randrange(count)) for a in range(count) for _ in range(2)]
    x = [[rng.gauss(a % 2, 1) for _ in range(3)] for a in range(count)]
    x = [list(struct.unpack("<3f", struct.pack("<3f", *row))) for row in x]
    open(f"{name}.csv", "w").writelines(f"{a},{b}\n" for a, b in edges)
    npy(f"{name}.npy", "<f4", (count, 3), b"".join(struct.pack("<3f", *row) for row in x))
    json.dump({"features": x, "edges": edges}, open(f"{name}.json", "w"))
    return x, edges
graph("own", count)
npy("y.npy", "|i1", (count,), bytes(i % 2 for i in range(count)))
graph("new", 12)
os.makedirs("small")
tables = {n: open(f"small/{n}.csv", "w") for n in ("num-node-list", "num-edge-list", "edge", "node-feat", "graph-label", "edge-feat",
                                                      "graph-feat")}
for g in range(12):
    x, edges = graph("small-one", 5)
    tables["num-node-list"].write("5\n")
    tables["num-edge-list"].write(f"{len(edges)}\n")
    tables["edge"].writelines(f"{a},{b}\n" for a, b in edges)
    tables["node-feat"].writelines(",".join(map(repr, row)) + "\n" for row in x)
    tables["graph-label"].write(f"{g % 2}\n")
    bonds = [[(2 * a + b) % 3, 1] for a, b in edges]
    tables["edge-feat"].writelines(f"{k},{one}\n" for k, one in bonds)
    tables["graph-feat"].write(f"{g / 4},-1\n")
    json.dump({"features": x, "edges": edges, "edge_features": bonds, "graph_features": [g / 4, -1]}, open("small-bonds.json", "w"))
END
cat >own.yaml <<'END'
name: own
task: {kind: nodes}
model: {kind: gcn, layers: 2, width: 8}
data: {graph: own.csv, features: own.npy, labels: y.npy, label_names: [even, odd], self_loops: true,
       per_class: 8, valid_nodes: 5, test_nodes: 5}
train: {steps: 20, batch: 16, threads: 1, eval_every: 0}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
END
cat >small.yaml <<'END'
name: small
task: {kind: graphs}
model: {kind: gat, layers: 2, width: 8, heads: 2}
data: {graph: small, valid_graphs: 2, test_graphs: 2, self_loops: true}
train: {steps: 5, batch: 1, threads: 1, eval_every: 0}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
END
sed 's/^name: small/name: bonds/; s/kind: gat, layers: 2, width: 8, heads: 2/kind: gin, layers: 2, width: 8/; s/self_loops: true/self_loops: true, edge_features: true, graph_features: true/' small.yaml >bonds.yaml
cat >links.yaml <<'END'
name: links
task: {kind: links}
model: {kind: sage, layers: 2, width: 8, decoder: mlp}
data: {graph: own.csv, features: own.npy, valid_links: 0.1, test_links: 0.1}
train: {steps: 20, batch: 16, threads: 1, eval_every: 0}
precision: {compute: f32}
optimizer: {lr: 0.02, schedule: constant, warmup: 0}
END
printf '0,1\n39,7\n2,2\n' >pairs.csv
for name in links dots; do
    run 0 "$banyan" train links.yaml --quiet --set name=$name --set model.decoder="$([ $name = dots ] && echo dot || echo mlp)"
    run 0 "$banyan" predict runs/$name pairs.csv --out $name.lines
done
run 0 "$banyan" train own.yaml --quiet
run 0 "$banyan" train own.yaml --quiet --set name=sampled --set data.fan_outs='[3, 3]' --set train.batch=4
awk 'BEGIN { for (i = 0; i < 80; i++) print i % 2 }' >relations.txt
run 0 "$banyan" train own.yaml --quiet --set name=related --set model.kind=rgcn --set data.relations=relations.txt \
    --set data.self_loops=false
run 0 "$banyan" predict runs/related --out related.lines
run 0 "$banyan" train small.yaml --quiet
run 0 "$banyan" train bonds.yaml --quiet
run 0 "$banyan" predict runs/own --out own.lines
run 0 "$banyan" predict runs/own --graph new.csv --features new.npy --out new.lines
run 0 "$banyan" predict runs/small --nodes 11 --out small.lines
run 0 "$banyan" predict runs/bonds --nodes 11 --out bonds.lines

say "a server answers with what predict says"
serve_models runs/own runs/small runs/bonds runs/sampled runs/links runs/dots runs/related
await_ready
cat >ask.py <<'END'
import json, sys, urllib.error, urllib.request
url = sys.argv[1]
def ask(code=200, **body):
    request = urllib.request.Request(url + "/v1/predict", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        answer, status = json.load(urllib.request.urlopen(request)), 200
    except urllib.error.HTTPError as error:
        answer, status = json.load(error), error.code
    assert status == code, (status, answer)
    return answer.get("predictions") if code == 200 else answer["error"]["message"]
def lines(name):
    return [json.loads(line) for line in open(name)]
def alike(have, want):
    assert len(have) == len(want), (have, want)
    for a, b in zip(have, want):
        assert all(abs(a[k] - v) < 1e-6 if k in ("probability", "score") else a[k] == v for k, v in b.items()), (a, b)
own, new, small = lines("own.lines"), lines("new.lines"), lines("small.lines")
graph = json.load(open("new.json"))
alike(ask(model="own", nodes=[3]), [own[3]])
alike(ask(model="own", nodes=[39, 0, 39]), [own[39], own[0], own[39]])
assert [p["index"] for p in ask(model="own", nodes=[39, 0, 39])] == [0, 1, 2]
alike(ask(model="own", graph=graph), new)
assert len(ask(model="sampled", graph=graph)) == 12
alike(ask(model="related", nodes=[39, 0]), [lines("related.lines")[39], lines("related.lines")[0]])
assert "the model knows relations" in ask(400, model="related", graph=graph)
alike(ask(model="own", graph=graph, nodes=[7, 2]), [new[7], new[2]])
one = ask(model="own", graph={"features": [[1, 0, 2]]})
assert len(one) == 1 and one[0]["label"] in ("even", "odd"), one
alike(ask(model="small", graph=json.load(open("small-one.json"))), [{k: small[0][k] for k in ("class", "label", "probability")}])
bonds = json.load(open("small-bonds.json"))
alike(ask(model="bonds", graph=bonds), [{k: lines("bonds.lines")[0][k] for k in ("class", "label", "probability")}])
other = ask(model="bonds", graph={**bonds, "edge_features": [[2, 0]] * len(bonds["edges"])})
assert abs(other[0]["probability"] - lines("bonds.lines")[0]["probability"]) > 1e-4, other
other = ask(model="bonds", graph={**bonds, "graph_features": [9, 9]})
assert abs(other[0]["probability"] - lines("bonds.lines")[0]["probability"]) > 1e-4, other
assert "'graph.graph_features' must be a list of 2 numbers" in ask(400, model="bonds", graph={**bonds, "graph_features": [1]})
assert "feature 1 of graph 0 is no number" in ask(400, model="bonds", graph={**bonds, "graph_features": [1, "x"]})
assert "reads no 'graph.graph_features'" in ask(400, model="own", graph={"features": [[1, 2, 3]], "graph_features": [1]})
assert "list of 10 lists of 2 numbers" in ask(400, model="bonds", graph=json.load(open("small-one.json")))
assert "edge 0 has 1 features; the model reads 2" in ask(400, model="bonds", graph={**bonds, "edge_features": [[1]] * 10})
assert "reads no 'graph.edge_features'" in ask(400, model="small", graph=bonds)
assert "no number of a node; there are 40" in ask(400, model="own", nodes=[40])
assert "no number of a node; there are 12" in ask(400, model="own", graph=graph, nodes=[12])
assert "node 0 has 2 features; the model reads 3" in ask(400, model="own", graph={"features": [[1, 2]]})
assert "edge 0 is not two numbers of nodes" in ask(400, model="own", graph={"features": [[1, 2, 3]], "edges": [[0, 1]]})
assert "no field 'links'" in ask(400, model="own", graph={"features": [[1, 2, 3]], "links": []})
assert "1 to 2048 lists" in ask(400, model="own", graph={"features": [[1, 2, 3]] * 2049})
assert "send 'nodes' or 'graph'" in ask(400, model="own", rows=[[1]])
assert "send 'graph'" in ask(400, model="small", nodes=[1])
for name in "links", "dots":
    alike(ask(model=name, pairs=[[0, 1], [39, 7], [2, 2]]), lines(f"{name}.lines"))
assert "not two numbers of nodes; there are 40" in ask(400, model="links", pairs=[[0, 40]])
assert "not two numbers of nodes" in ask(400, model="links", pairs=[[0, 1], [3]])
assert "send 'pairs'" in ask(400, model="links", nodes=[1])
assert "neither 'nodes' nor 'graph'" in ask(400, model="links", nodes=[1], pairs=[[0, 1]])
assert "send 'nodes' or 'graph'" in ask(400, model="own", pairs=[[0, 1]])
info = json.load(urllib.request.urlopen(url + "/v1/models/own"))["info"]
assert info["nodes"] == 40 and info["features"] == 3 and info["request_nodes"] == 2048, info
END
python3 ask.py "$url" || { tail -n 20 log >&2; fail "the answers"; }
stop
