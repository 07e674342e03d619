#!/bin/sh
# A GPU's stand-in trains what the tests in C do not: nodes of graphs, series by recurrent networks, and texts by each kind
# of attention. Every loss is the CPU's within rounding.
. "$(dirname "$0")/../support/shell.sh"

standins=$(dirname "$banyan")/tests/standins/all
if [ ! -e "$standins/libcuda.so.1" ]; then
    echo "skipped: there are no stand-ins for NVIDIA's libraries (they need clang++)"
    exit 77
fi
BANYAN_CUDA_PATH=$standins
export BANYAN_CUDA_PATH

python3 - <<'END' || fail "no data"
import math, random, struct
rng = random.Random(5)
count = 60
with open("edges.csv", "w") as f:
    f.write("from,to\n")
    for a in range(count):
        for _ in range(3):
            f.write(f"{a},{rng.randrange(count // 3) * 3 + a % 3}\n")
def npy(name, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
npy("x.npy", "<f4", (count, 5), b"".join(
    struct.pack("<f", rng.gauss(0.7 if k == i % 3 else 0.0, 1)) for i in range(count) for k in range(5)))
npy("y.npy", "|i1", (count,), bytes(i % 3 for i in range(count)))
with open("sold.csv", "w") as f:
    f.write("sold,price\n")
    for i in range(120):
        f.write(f"{math.sin(i * math.pi / 12):.4f},{10 + math.cos(i / 5):.3f}\n")
END
common='train: {steps: 4, batch: 8, micro_batch: 4, eval_every: 4, log_every: 1, threads: 1}
precision: {compute: f32}
optimizer: {lr: 0.01, schedule: constant, warmup: 0}
checkpoint: {every: 4}'
cat >nodes.yaml <<END
name: nodes
task: {kind: nodes}
model: {kind: gcn, layers: 2, width: 12, dropout: 0.2}
data: {graph: edges.csv, features: x.npy, labels: y.npy, self_loops: true, per_class: 8, valid_nodes: 9, test_nodes: 9}
$common
END
cat >series.yaml <<END
name: series
task: {kind: forecast}
model: {kind: lstm, context: 12, outputs: 4, layers: 2, width: 9}
data: {table: sold.csv, valid_fraction: 0.2}
$common
END
make_text text.txt 60
cat >text.yaml <<END
name: text
model: {kind: llama, layers: 2, heads: 2, kv_heads: 1, width: 16, context: 24}
data: {text: [text.txt], tokenizer: char, cache: cache}
$common
END

losses() { grep -o '"loss": *[0-9.e+-]*' "runs/$1/events.jsonl" | sed 's/.*: *//'; }

# alike NAME CONFIG SETTING...: the losses of a GPU's stand-in are the CPU's.
alike() {
    name=$1
    config=$2
    shift 2
    for device in cpu cuda; do
        run 0 "$banyan" train "$config" --set name="$name-$device" --set device=$device "$@"
        losses "$name-$device" >$device.losses
    done
    holds out "device     cuda: stand-in 0"
    [ "$(wc -l <cpu.losses)" -eq 4 ] || fail "$name: not 4 losses: $(cat cpu.losses)"
    paste cpu.losses cuda.losses | awk -v name="$name" '
        { d = $1 - $2; d = d < 0 ? -d : d; if (!(d < 2e-5)) { print name ": loss " $1 " on the CPU, " $2 " on the GPU"; bad = 1 } }
        END { exit bad }' >&2 || fail "$name: other losses"
}

say "nodes of graphs"
alike gcn nodes.yaml
alike gat nodes.yaml --set model.kind=gat --set model.heads=2
alike sage nodes.yaml --set model.kind=sage --set data.self_loops=false
alike sage-max nodes.yaml --set model.kind=sage --set data.self_loops=false --set model.aggregate=max

say "series by recurrent networks"
alike lstm series.yaml
alike gru series.yaml --set model.kind=gru

say "texts by linear attention, and with slopes"
alike linear text.yaml --set attention.kind=linear
alike alibi text.yaml --set attention.kind=alibi
