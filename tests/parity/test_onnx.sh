#!/bin/sh
# onnxruntime runs the ONNX graphs that banyan writes. Of models of tokens: equal logits with and without past keys and
# values, for any batch and sequence, and equal greedy text. Of models of images, tables and series: what `banyan predict`
# says, for any batch. Of models of graphs: its logits, for a graph of any size, and what it says of small graphs and links.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/export-env" >/dev/null || {
    echo "skipped: scripts/export-env could not install onnxruntime"
    exit 77
}
python=$root/build/venv-export/bin/python
checker=$root/tests/parity/check_onnx.py

# later COMMAND...: one of the checker, with all others in one process: it takes longer to load than to check.
later() { echo "$*" >>checks; }

make_text text.txt 100
# check NAME MODEL [PARTS]: exports a model in both forms.
check() {
    say "$1"
    cat >"$1.yaml" <<END
name: $1
model: {$2, layers: 2, heads: 4, width: 64, context: 256}
${3:-}
precision: {compute: f32}
data: {text: [text.txt], tokenizer: char}
train: {steps: 6, batch: 4, eval_every: 0}
optimizer: {lr: 3e-3, warmup: 2}
END
    run 0 "$banyan" train "$1.yaml"
    run 0 "$banyan" eval "runs/$1" --logits-out "$1.logits.safetensors"
    run 0 "$banyan" export "runs/$1" --format onnx --output "$1.onnx"
    later logits "$1.onnx" "$1.logits.safetensors"
    run 0 "$banyan" export "runs/$1" --format onnx --no-cache --output "$1-whole.onnx"
    later logits "$1-whole.onnx" "$1.logits.safetensors"
}
check gpt2 "kind: gpt2"
check llama "kind: llama, kv_heads: 2"
check qwen3 "kind: llama, kv_heads: 1, qk_norm: true, head_dim: 24, tied: true"
check mistral "kind: llama, window: 20, tied: true"
check streams "kind: llama, kv_heads: 2" "values: {kind: embedded}
residual: {kind: mixed}
activation: {kind: relu2}"
check yarn "kind: llama, qkv_bias: true, rope_scaling: yarn, rope_factor: 4, rope_original_context: 64"

say "200 greedy tokens"
for name in gpt2 llama; do
    later greedy "$name.onnx" "$name.logits.safetensors" 200 "$name.tokens.safetensors"
done
for name in dit unet2d; do
    cp "$root/tests/parity/golden/$name.safetensors" .
    later diffusion $name.safetensors $name
done
run 0 "$python" "$checker" each <checks
holds out "16 commands"
rm checks
for name in gpt2 llama; do
    run 0 "$banyan" eval "runs/$name" --tokens "$name.tokens.safetensors" --logits-out "$name.back.safetensors"
    later follows "$name.back.safetensors"
done

# Images 3 x 8 x 12 of three classes, a bright stripe in the row 2 x class + 1; their labels; those of pixels; a table with a number
# that is far from 0, and a number and a category of which some are missing.
"$python" - <<'END' || fail "no data"
import numpy as np
random = np.random.default_rng(5)
labels = random.integers(0, 3, 110)
images = random.integers(0, 90, (110, 3, 8, 12))
for i, label in enumerate(labels):
    images[i, :, 2 * label + 1] += 40
np.save("images.npy", images.astype(np.uint8))
np.save("labels.npy", labels.astype(np.uint8))
maps = np.zeros((110, 8, 12), np.int64)  # the stripe of each image, and a pixel without a class
for i, label in enumerate(labels):
    maps[i, 2 * label + 1] = label + 1
maps[:, 0, 0] = -1
np.save("maps.npy", maps)
with open("table.csv", "w") as out:
    out.write("time,size,color,kind,price,size2\n")
    for i in range(200):
        time, size, color = 1.7e9 + random.uniform(0, 50), random.normal(), random.choice("red green blue".split())
        price = 1e5 + 300 * (time - 1.7e9) + 9000 * size + (5000 if color == "red" else 0)
        kind = "large" if size > 0.5 else "small"
        out.write(f"{time:.3f},{'' if i % 17 == 3 else round(size, 3)},{'' if i % 23 == 2 else color},{kind},{price:.2f},{size * size:.3f}\n")
END
# predicts NAME KIND MODEL DATA FILE [FLAG...]: FILE is what the model was trained on; flags are of predict.
predicts() {
    say "$1: predictions"
    cat >"$1.yaml" <<END
name: $1
task: {kind: $2}
model: {$3}
precision: {compute: f32}
data: {$4, valid_fraction: 0.2}
train: {steps: 12, batch: 12, eval_every: 0}
optimizer: {lr: 3e-3, warmup: 2}
END
    run 0 "$banyan" train "$1.yaml"
    name=$1 file=$5
    shift 5
    run 0 "$banyan" predict "runs/$name" "$file" "$@"
    mv out "$name.lines"
    run 0 "$banyan" export "runs/$name" --format onnx --output "$name.onnx"
    later predicts "$name.onnx" "$file" "$name.lines"
}
predicts vit classify "kind: vit, layers: 2, heads: 2, width: 16, patch: 4" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
predicts resnet classify "kind: resnet, stem: small, width: 8, depths: [1, 1], block: bottleneck" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
predicts pooled classify "kind: resnet, width: 8, depths: [1, 1]" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
predicts convnext classify "kind: convnext, width: 8, depths: [1, 1], patch: 2" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
predicts mobilenet classify "kind: mobilenet_v2, depth_multiplier: 0.1, output_stride: 8" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
predicts efficientnet classify "kind: efficientnet, width_coefficient: 0.1, depths: [1, 2], widths: [16, 80], strides: [1, 2], kernel_sizes: [3, 5], expand_ratios: [1, 2]" \
    "images: images.npy, labels: labels.npy, label_names: [low, middle, high]" images.npy
for up in transposed bilinear; do
    norm=$([ $up = transposed ] && echo batch || echo group)
    predicts "unet-$up" segment "kind: unet, width: 8, depth: 2, up: $up, channel_norm: $norm" "images: images.npy, labels: maps.npy" images.npy \
        --yields output
done
predicts mlp regress "kind: mlp, hidden: [16, 24], activation: relu, norm: true" "table: table.csv, target: price" table.csv
predicts pair regress "kind: mlp, hidden: [16], activation: relu" "table: table.csv, target: [size2, price]" table.csv
predicts classes classify "kind: mlp, hidden: [16], activation: gelu, norm: true}
norm: {kind: batch" "table: table.csv, target: kind" table.csv

for name in dit unet2d; do
    say "$name: what it predicts"
    run 0 "$banyan" export $name --format onnx --output $name.onnx
    later denoises $name.onnx $name.safetensors
done

"$python" - <<'END' || fail "no series"
import math
with open("shops.csv", "w") as out:
    out.write("hour,shop,sold,price\n")
    for i in range(90):
        for k, shop in enumerate(("north", "south", "west")):
            out.write(f"{i},{shop},{math.sin(i * math.pi / 12 + k):.4f},{10 + k + math.cos(i / 5):.3f}\n")
END
# forecasts NAME MODEL
forecasts() {
    name=$1
    say "$name: forecasts"
    cat >"$name.yaml" <<END
name: $name
task: {kind: forecast}
model: {kind: $2, context: 24, outputs: 6}
precision: {compute: f32}
data: {table: shops.csv, time: hour, series: shop, valid_fraction: 0.2}
train: {steps: 12, batch: 12, eval_every: 0}
optimizer: {lr: 3e-3, warmup: 2}
END
    run 0 "$banyan" train "$name.yaml"
    run 0 "$banyan" predict "runs/$name" shops.csv --csv --out "$name.csv"
    run 0 "$banyan" export "runs/$name" --format onnx --output "$name.onnx"
    later forecasts "$name.onnx" shops.csv "$name.csv"
}
forecasts dlinear "dlinear, standardize: true"
forecasts patchtst "patchtst, layers: 1, width: 8, heads: 2, patch: 8, stride: 4"
forecasts tcn "tcn, layers: 3, width: 8"
forecasts nbeats "nbeats, width: 16, affine: true"
forecasts tide "tide, width: 16"
forecasts lstm "lstm, layers: 2, width: 8"
forecasts gru "gru, layers: 2, width: 8"

awk -F, 'NR == 1 { print $0 ",state" } NR > 1 { print $0 "," ($3 > 0 ? "up" : $3 > -0.5 ? "even" : "down") }' shops.csv >states.csv
whole="table: states.csv, series: shop, target: state, ignore: [hour]"
predicts patchtst-whole classify "kind: patchtst, context: 8, layers: 1, width: 8, heads: 2, patch: 4, stride: 2" "$whole" states.csv
predicts tcn-whole classify "kind: tcn, context: 8, layers: 2, width: 8" "$whole" states.csv
predicts gru-whole regress "kind: gru, context: 8, width: 8" \
    "table: shops.csv, series: shop, target: sold, ignore: [hour]" shops.csv

"$python" - <<'END' || fail "no graph"
import numpy as np
random = np.random.default_rng(3)
np.savetxt("edges.csv", random.integers(0, 60, (150, 2)), "%d", ",")
np.save("x.npy", random.normal(size=(60, 5)).astype(np.float32))
np.save("y.npy", (np.arange(60) % 3).astype(np.int32))
np.savetxt("grown.csv", random.integers(0, 70, (190, 2)), "%d", ",")
np.save("grown.npy", random.normal(size=(75, 5)).astype(np.float32))
np.savetxt("pairs.csv", random.integers(0, 60, (30, 2)), "%d", ",")
sizes, counts = random.integers(3, 9, 40), random.integers(2, 14, 40)
edges = np.concatenate([random.integers(0, n, (2, m)) for n, m in zip(sizes, counts)], 1)
x = random.normal(size=(sizes.sum(), 5)).astype(np.float32)
bonds = random.integers(0, 3, (counts.sum(), 2))
small = dict(num_node_list=sizes, num_edge_list=counts, edge_index=edges, node_feat=x)
np.savez("bonds.npz", **small, graph_label=(sizes > 5).astype(np.int64), edge_feat=bonds,
         graph_feat=random.normal(size=(40, 3)).astype(np.float32))
np.savez("small.npz", **small, graph_label=(sizes > 5).astype(np.int64))
np.savez("sized.npz", **small, graph_label=1e3 + 20.0 * sizes + counts)
END
# nodes NAME MODEL: logits of all nodes of another graph than that of the training, of which some have no edges.
nodes() {
    name=$1
    say "$name: nodes of a graph"
    cat >"$name.yaml" <<END
name: $name
task: {kind: nodes}
model: {kind: $2, layers: 2, width: 8}
precision: {compute: f32}
data: {graph: edges.csv, features: x.npy, labels: y.npy, label_names: [a, b, c], per_class: 8, valid_nodes: 5, test_nodes: 5}
train: {steps: 6, batch: 24, eval_every: 0}
optimizer: {lr: 3e-2, warmup: 2}
END
    run 0 "$banyan" train "$name.yaml"
    run 0 "$banyan" predict "runs/$name" --graph grown.csv --features grown.npy --yields output
    mv out "$name.lines"
    run 0 "$banyan" export "runs/$name" --format onnx --output "$name.onnx"
    later nodes "$name.onnx" grown.csv grown.npy "$name.lines"
}
nodes gcn gcn
nodes sage sage
nodes sage-max "sage, aggregate: max"
nodes gat "gat, heads: 2, output_heads: 2"
nodes gin gin

# about NAME TASK MODEL DATA FILES [PAIRS]: what `banyan predict` says of all of the data, or of pairs, onnxruntime says too.
about() {
    name=$1 task=$2 files=$5
    say "$name: $task"
    cat >"$name.yaml" <<END
name: $name
task: {kind: $task}
model: {kind: $3, width: 8}
precision: {compute: f32}
data: {$4}
train: {steps: 12, batch: 4, eval_every: 0}
optimizer: {lr: 3e-2, warmup: 2}
END
    shift 5
    run 0 "$banyan" train "$name.yaml"
    run 0 "$banyan" predict "runs/$name" "$@"
    mv out "$name.lines"
    run 0 "$banyan" export "runs/$name" --format onnx --output "$name.onnx"
    later "$task" "$name.onnx" "$files" "$name.lines"
}
about gin-graphs graphs "gin, layers: 2, readout: sum" "graph: small.npz, pack_nodes: 32" small.npz
about sage-graphs graphs "sage, layers: 2, readout: max" "graph: bonds.npz, graph_features: true" bonds.npz
about gat-graphs graphs "gat, layers: 1, heads: 2" "graph: small.npz" small.npz
about gine-graphs graphs "gin, layers: 1, readout: sum" "graph: bonds.npz, edge_features: true, graph_features: true" bonds.npz
later gine runs/gine-graphs/checkpoints/step-00000012 bonds.npz gine-graphs.lines
about gine-deep graphs "gin, layers: 2" "graph: bonds.npz, pack_nodes: 32, edge_features: true" bonds.npz
about gcn-numbers graphs "gcn, layers: 2" "graph: sized.npz, target: number" sized.npz
links="graph: edges.csv, features: x.npy, valid_links: 0.1, supervision: 0, negatives: 3, held_out_negatives: 5"
about sage-links links "sage, layers: 2" "$links" "edges.csv x.npy" pairs.csv
about gcn-links links "gcn, layers: 2, decoder: mlp" "$links" "edges.csv x.npy" pairs.csv

say "onnxruntime says the same of all of them"
run 0 "$python" "$checker" each <checks
cat out
holds out "39 commands"

say "what has no form in ONNX is an error"
cat >mixtral.yaml <<END
name: mixtral
model: {kind: mixtral, layers: 1, heads: 2, width: 16, context: 16}
precision: {compute: f32}
data: {text: [text.txt], tokenizer: char}
train: {steps: 1, batch: 1, eval_every: 0}
END
run 0 "$banyan" train mixtral.yaml
run 1 "$banyan" export runs/mixtral --format onnx --output mixtral.onnx
holds err "a model of kind mixtral has the operation"
rm runs/vit/checkpoints/*/preprocessor_config.json
run 1 "$banyan" export runs/vit --format onnx --output x.onnx
holds err "preprocessor_config.json"
run 2 "$banyan" export runs/llama --format onnx --dtype bf16 --output x.onnx
holds err "one of f32"

say "encoders: each head of BERT, with pairs of texts, as transformers computes them"
"$root/scripts/python-env" >/dev/null || {
    echo "skipped: scripts/python-env could not install transformers"
    exit 77
}
encoders=$root/tests/parity/check_encoder.py
torch=$root/build/venv/bin/python
"$python" - <<'END' || fail "no pairs"
import random
random.seed(2)
words = ["wool", "iron", "salt", "rice", "silk", "the", "of", "is", "un", "##even", "##s"]
open("vocab.txt", "w").write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words) + "\n")
with open("pairs.csv", "w") as out:
    out.write("first,second,label\n")
    for i in range(60):
        first = [random.choice(words[:8]) for _ in range(random.randint(1, 8))]
        second = [random.choice(words[:8] + ["unevens"]) for _ in range(random.randint(1, 8))]
        out.write(f"{' '.join(first)},{' '.join(second)},{'yes' if first[0] == second[0] else 'no'}\n")
with open("tags.csv", "w") as out:
    out.write("words,tags\n")
    for i in range(40):
        text = [random.choice(words[:5]) for _ in range(random.randint(1, 6))]
        out.write(f"{' '.join(text)},{' '.join('B-X' if w == 'iron' else 'O' for w in text)}\n")
with open("masked.txt", "w") as out:
    for i in range(300):
        out.write(" ".join(random.choice(words[:8]) for _ in range(9)) + "\n")
END
mkdir wordpiece && cp vocab.txt wordpiece && echo '{"model_type": "bert", "do_lower_case": true}' >wordpiece/config.json
# encoder NAME TASK DATA: trains an encoder and exports it; what compares both with transformers is in expects and heads.
encoder() {
    cat >"$1.yaml" <<END
name: $1
model: {kind: bert, layers: 2, heads: 2, width: 32, context: 24}
task: {kind: $2}
precision: {compute: f32}
data: {$3, tokenizer: wordpiece}
train: {steps: 20, batch: 8, eval_every: 0}
optimizer: {lr: 1e-2, warmup: 2}
END
    run 0 "$banyan" train "$1.yaml"
    run 0 "$banyan" export "runs/$1" --format onnx --output "$1.onnx"
    echo "'$encoders' expect runs/$1/checkpoints/step-00000020 $1.npz" >>expects
    echo "'$encoders' head $1.onnx $1.npz" >>heads
}
encoder paired classify "table: pairs.csv, text_column: first, pair_column: second, target: label, max_tokens: 16"
run 0 "$banyan" predict runs/paired pairs.csv
mv out pairs.lines
echo "'$encoders' pairs runs/paired/checkpoints/step-00000020 vocab.txt pairs.csv pairs.lines 16" >>expects
encoder tagged tag "table: tags.csv, text_column: words, target: tags"
encoder hidden masked "text: [masked.txt], valid_fraction: 0.1"
run 0 "$torch" "$root/tests/parity/check_each.py" <expects
cat out
run 0 "$python" "$root/tests/parity/check_each.py" <heads
cat out
