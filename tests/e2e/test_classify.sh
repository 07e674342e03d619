#!/bin/sh
# Classification, from a config to predictions: images with augmentation, and the rows of a table.
. "$(dirname "$0")/../support/shell.sh"

# Images 1 x 8 x 8 of three classes, a bright stripe in the row 2 x class + 1, with noise; their labels; and a table
# whose class follows from its columns, one of them a category, some cells empty.
python3 - <<'END' || fail "no data"
import random, struct
random.seed(5)
labels, pixels, rows = [], bytearray(), []
for i in range(110):
    c = random.randrange(3)
    labels.append(c)
    for y in range(8):
        pixels += bytes(min(255, random.randrange(90) + (150 if y == 2 * c + 1 else 0)) for _ in range(8))
    size = random.gauss(0, 1)
    color = random.choice("red green blue".split())
    name = "large" if size > 0.5 else "odd, \"small\"" if color == "red" else "small"
    quoted = '"' + name.replace('"', '""') + '"'
    rows.append(f"{'' if i % 17 == 3 else size:.6},{color},{quoted}" if i % 17 != 3 else f",{color},{quoted}")
open("images.idx", "wb").write(struct.pack(">IIII", 0x803, 110, 8, 8) + pixels)
open("labels.idx", "wb").write(struct.pack(">II", 0x801, 110) + bytes(labels))
open("labels.txt", "w").write("\n".join(map(str, labels)) + "\n")
open("table.csv", "w").write("size,color,name\n" + "\n".join(rows) + "\n")
open("new.csv", "w").write("color,size\nred,2.0\nviolet,\n")
END
cat >images.yaml <<'END'
name: images
task: {kind: classify, smoothing: 0.05}
model: {kind: vit, layers: 1, heads: 2, width: 16, patch: 4, dropout: 0.1}
precision: {compute: f32}
data: {images: images.idx, labels: labels.idx, valid_fraction: 0.2, shift: 1, flip: true,
       label_names: [low, middle, high]}
train: {steps: 40, batch: 12, micro_batch: 4, eval_every: 20, log_every: 10, threads: 1}
optimizer: {lr: 3e-3}
checkpoint: {every: 10, keep: 9}
END

say "train on images"
run 0 "$banyan" train images.yaml
holds out "88 samples for training, 22 held out"
holds out "samples/s"
holds out "accuracy"
last=runs/images/checkpoints/step-00000040
holds "$last/preprocessor_config.json" '"image_mean": ['
holds "$last/config.json" '"1": "middle"'
grep -q '"accuracy":' runs/images/events.jsonl || fail "no accuracy in the events"

say "the same bits with more threads, and from a list of transforms"
run 0 "$banyan" train images.yaml --set train.threads=2 --set data.threads=3 --set name=two \
    --set data.shift=0 --set data.flip=false --set 'data.transforms=[shift=1, flip]'
same "$last/model.safetensors" runs/two/checkpoints/step-00000040/model.safetensors

say "mixed images have two labels: the same bits with more threads and after a resume"
set -- --set data.shift=0 --set data.flip=false --set 'data.transforms=[shift=1, flip, mixup=0.4]' --set checkpoint.every=10
run 0 "$banyan" train images.yaml "$@" --set train.steps=20 --set name=mixed
mixed=runs/mixed/checkpoints/step-00000020
! cmp -s "$mixed/model.safetensors" runs/two/checkpoints/step-00000020/model.safetensors || fail "nothing was mixed"
cp "$mixed/model.safetensors" mixed.safetensors
rm -r "$mixed"
run 0 "$banyan" train --resume runs/mixed --set train.threads=2 --set data.threads=3
same mixed.safetensors "$mixed/model.safetensors"
run 2 "$banyan" train images.yaml "$@" --set 'data.transforms=[mixup, cutmix]'
holds err "only one transform mixes images, and mixup does already"

say "resumed, the same bits"
cp -r runs/images runs/resumed
rm -r runs/resumed/checkpoints/step-00000030 runs/resumed/checkpoints/step-00000040
run 0 "$banyan" train --resume runs/resumed
same "$last/model.safetensors" runs/resumed/checkpoints/step-00000040/model.safetensors
same "$last/optimizer.safetensors" runs/resumed/checkpoints/step-00000040/optimizer.safetensors

say "eval gives what predictions and labels say"
run 0 "$banyan" eval runs/images --json
held_out=$(field accuracy <out)
[ "$(field samples <out)" = 22 ] || fail "$(cat out)"
grep -q top5 out && fail "three classes have no top 5"
run 0 "$banyan" predict runs/images images.idx --csv
[ "$(head -n 1 out)" = index,class,label,probability ] || fail "$(head -n 1 out)"
[ "$(wc -l <out)" = 111 ] || fail "$(wc -l <out) lines"
tail -n +2 out | cut -d, -f2 | paste -d' ' - labels.txt | tail -n 22 |
    awk '{ hits += $1 == $2 } END { print hits / NR }' >counted
near "$held_out" "$(cat counted)" 1e-6
grep -q ',high,' out || fail "no class has its name"
run 0 "$banyan" eval runs/images --data images.idx,labels.idx --json
[ "$(field samples <out)" = 110 ] || fail "$(cat out)"
run 0 "$banyan" eval runs/images --best --json

say "another output of the model is exported by its name"
run 0 "$banyan" export runs/images --format onnx --yields features --out features.onnx
grep -q features features.onnx && ! grep -q logits features.onnx || fail "the output is not the features"
run 2 "$banyan" export runs/images --format onnx --yields hidden --out hidden.onnx
holds err "model.output: the model has no output 'hidden'; it has output, features"

say "another output of the model is predicted by its name: the head of it gives the logits, and these the class"
run 0 "$banyan" predict runs/images images.idx
cp out usual.jsonl
run 0 "$banyan" predict runs/images images.idx --yields output
cp out logits.jsonl
run 0 "$banyan" predict runs/images images.idx --yields features
cp out features.jsonl
run 0 "$banyan" predict runs/images images.idx --yields features --csv
python3 - "$last/model.safetensors" out <<'END' || fail "the outputs are not those of the model"
import csv, json, math, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
def tensor(name):
    begin, end = head[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
usual, logits, features = ([json.loads(line) for line in open(f"{n}.jsonl")] for n in ("usual", "logits", "features"))
rows = list(csv.reader(open(sys.argv[2])))
weight, bias = tensor("classifier.weight"), tensor("classifier.bias")
width = len(weight) // len(bias)
assert rows[0] == ["index"] + [f"features_{i}" for i in range(width)]
assert len(usual) == len(logits) == len(features) == len(rows) - 1 == 110
for a, b, c, row in zip(usual, logits, features, rows[1:]):
    assert a["index"] == b["index"] == c["index"] == int(row[0]) and [float(x) for x in row[1:]] == c["features"]
    out = [sum(w * x for w, x in zip(weight[i * width:], c["features"])) + bias[i] for i in range(len(bias))]
    assert all(abs(x - y) < 1e-4 for x, y in zip(out, b["output"])), (out, b)
    share = 1 / sum(math.exp(x - max(out)) for x in out)
    assert b["output"].index(max(b["output"])) == a["class"] and abs(share - a["probability"]) < 1e-4
END
run 2 "$banyan" predict runs/images images.idx --yields hidden
holds err "model.output: the model has no output 'hidden'; it has output, features"

say "a new head, for other classes, on the weights of a run"
python3 - <<'END' || fail "no data"
data = open("labels.idx", "rb").read()
open("halves.idx", "wb").write(data[:8] + bytes(min(label, 1) for label in data[8:]))
END
set -- train images.yaml --set model.from=runs/images --set data.labels=halves.idx --set 'data.label_names=[low, other]' \
    --set train.steps=2 --set 'optimizer.groups=[{match: "classifier.*"}, {match: "*", frozen: true}]'
run 2 "$banyan" "$@" --set name=none
holds err "there are names for 2 classes, but the model has 3 outputs"
run 2 "$banyan" "$@" --set name=none --set 'model.new=["classifier.*", "pooler.*"]'
holds err 'model.new: "pooler.*" matches no parameter that '
run 2 "$banyan" train images.yaml --set model.from=runs/images --set 'model.new=["classifier.*"]' --set name=none
holds err 'model.new: "classifier.*" matches no parameter that '
run 2 "$banyan" train images.yaml --set 'model.new=["classifier.*"]' --set name=none
holds err "set model.from"
[ ! -e runs/none ] || fail "a run that was refused has a directory"
for outputs in -1 2; do
    run 0 "$banyan" "$@" --set name=head$outputs --set 'model.new=["classifier.*"]' --set model.outputs=$outputs
    holds err "and not those of model.from=$last: classifier.weight, classifier.bias"
done
for part in model model-frozen; do
    same runs/head-1/checkpoints/step-00000002/$part-00001-of-00001.safetensors \
        runs/head2/checkpoints/step-00000002/$part-00001-of-00001.safetensors
done
holds runs/head2/checkpoints/step-00000002/config.json '"1": "other"'
python3 - "$last" runs/head2/checkpoints/step-00000002 <<'END' || fail "the run has not all weights but the head"
import glob, json, struct, sys
def read(directory):
    tensors = {}
    for path in glob.glob(directory + "/model*.safetensors"):
        data = open(path, "rb").read()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        for name, at in json.loads(data[8:end]).items():
            if name != "__metadata__":
                tensors[name] = at["shape"], data[end + at["data_offsets"][0] : end + at["data_offsets"][1]]
    return tensors
old, new = map(read, sys.argv[1:])
assert old.keys() == new.keys()
assert sorted(k for k in old if old[k] != new[k]) == ["classifier.bias", "classifier.weight"]
assert new["classifier.weight"][0] == [2, 16]
END

say "other sizes: refused, or resized as while training"
python3 - <<'END' || fail "no data"
import struct
data = open("images.idx", "rb").read()[16:]
twice = lambda row: bytes(p for p in row for _ in "ab")
rows = [twice(data[i : i + 8]) * 2 for i in range(0, len(data), 8)]
open("large.idx", "wb").write(struct.pack(">IIII", 0x803, 110, 16, 16) + b"".join(rows))
END
run 2 "$banyan" predict runs/images large.idx
holds err "16"
run 2 "$banyan" train images.yaml --set 'data.transforms=[flip]'
holds err "data.transforms lists all augmentation: move data.shift into it"
run 2 "$banyan" train images.yaml --set data.resize=stretch
holds err "set model.image_height and model.image_width"
set -- --set model.image_height=8 --set model.image_width=8 --set data.resize=stretch --set data.resample=bicubic
run 0 "$banyan" train images.yaml "$@" --set data.images=large.idx --set name=resized
holds runs/resized/checkpoints/step-00000040/preprocessor_config.json '"resample": 3,'
run 0 "$banyan" eval runs/resized --data large.idx,labels.idx --json
[ "$(field samples <out)" = 110 ] || fail "$(cat out)"
run 0 "$banyan" predict runs/resized images.idx
[ "$(wc -l <out)" = 110 ] || fail "$(cat out)"

say "folders: one of each class, whose name is the class"
python3 - <<'END' || fail "no data"
import os, struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
def png(pixels, side):
    rows = b"".join(b"\0" + pixels[i : i + side] for i in range(0, side * side, side))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
pixels = open("images.idx", "rb").read()[16:]
for i, label in enumerate(open("labels.txt").read().split()):
    folder = "lines/" + ["low", "middle", "high"][int(label)] + ("/more/of it" if i % 9 == 0 else "")
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{i}.{'PNG' if i % 2 else 'png'}", "wb").write(png(pixels[64 * i : 64 * i + 64], 8))
open("lines/low/.hidden.png", "w"), open("lines/low/notes.txt", "w"), open("lines/README", "w")
open("small.png", "wb").write(png(bytes(16), 4))
END
set -- --set data.images=lines --set data.labels=[] --set data.label_names=[] --set model.channels=1
run 0 "$banyan" train images.yaml "$@" --set name=lines
holds out "110 pictures of 3 classes (high "
holds out "3 other files are ignored"
holds runs/lines/config.yaml "label_names: [high, low, middle]"
run 0 "$banyan" eval runs/lines --data lines --json
[ "$(field samples <out)" = 110 ] || fail "$(cat out)"
right=$(field accuracy <out)
run 0 "$banyan" predict runs/lines lines --csv --out lines.csv
[ "$(head -n 1 lines.csv)" = index,class,label,probability,file ] || fail "$(head -n 1 lines.csv)"
awk -F, 'NR > 1 { split($5, part, "/"); hits += part[2] == $3 } END { print hits / (NR - 1) }' lines.csv >counted
near "$right" "$(cat counted)" 1e-6
one=$(find lines -name '1.PNG')
run 0 "$banyan" predict runs/lines "$one"
if [ "$(wc -l <out)" != 1 ] || grep -q '"file"' out; then fail "$(cat out)"; fi
run 0 "$banyan" predict runs/lines "$one" "$one"
[ "$(grep -c "\"file\":\"$one\"" out)" = 2 ] || fail "$(cat out)"
run 2 "$banyan" predict runs/lines small.png
holds err "small.png: an image of 4 x 4 pixels; the model reads 8 x 8, and was trained without data.resize: resize it"
mkdir bad
cp "$one" bad/a.png
head -c 40 "$one" >bad/b.png
cp "$one" bad/c.png
run 1 "$banyan" predict runs/lines bad
holds err "bad/b.png"
holds err "(--skip leaves such pictures out)"
run 0 "$banyan" predict runs/lines bad --skip
[ "$(field file <out | tr '\n' ' ')" = "bad/a.png bad/c.png " ] || fail "$(cat out)"
holds err "left out: bad/b.png: "
mkdir lines/none
run 1 "$banyan" train images.yaml "$@"
holds err "lines/none: the class 'none' has no picture"
run 1 "$banyan" predict runs/lines lines/none
! grep -q skip err || fail "$(cat err)"
run 1 "$banyan" eval runs/lines --data lines
holds err "lines/none: the folder is none of the 3 classes of the training data"
rmdir lines/none
cp small.png lines/low
run 1 "$banyan" train images.yaml "$@"
holds err "small.png has 4 x 4 pixels, and "
run 1 "$banyan" train images.yaml "$@" --set data.corrupt=skip --set data.corrupt_budget=2
holds err "small.png has 4 x 4 pixels, and " # nothing of it is damaged
rm lines/low/small.png

say "shards: the same pictures in a tar archive, a TFRecord and an MDS shard"
python3 - <<'END' || fail "no shards"
import glob, io, json, struct, tarfile
def crc(data):
    c = 0xFFFFFFFF
    for x in data:
        c ^= x
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    c ^= 0xFFFFFFFF
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)
def part(number, data):
    size = len(data)
    return bytes([number << 3 | 2]) + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data
def feature(name, data):
    return part(1, part(1, name) + part(2, data))
classes = ["high", "low", "middle"]
files = [(open(f, "rb").read(), classes.index(f.split("/")[1])) for f in sorted(glob.glob("lines/**/*.[pP][nN][gG]", recursive=True))]
with tarfile.open("lines.tar", "w") as t:
    for i, (data, label) in enumerate(files):
        for name, content in ((f"{i:04d}.png", data), (f"{i:04d}.cls", str(label).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            t.addfile(info, io.BytesIO(content))
with open("lines.tfrecord", "wb") as out:
    for data, label in files:
        record = part(1, feature(b"image/encoded", part(1, part(1, data))) + feature(b"image/class/label", part(3, part(1, bytes([label])))))
        size = struct.pack("<Q", len(record))
        out.write(size + crc(size) + record + crc(record))
config = json.dumps({"column_names": ["image", "label"], "column_encodings": ["png", "int"], "column_sizes": [None, 8]}).encode()
samples = [struct.pack("<I", len(data)) + data + struct.pack("<q", label) for data, label in files]
offsets = [8 + 4 * len(samples) + len(config)]
for sample in samples:
    offsets.append(offsets[-1] + len(sample))
open("lines.mds", "wb").write(struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + config + b"".join(samples))
# One byte of a record is wrong.
damaged = bytearray(open("lines.tfrecord", "rb").read())
damaged[60] ^= 1
open("damaged.tfrecord", "wb").write(damaged)
END
for shard in lines.tar lines.tfrecord lines.mds; do
    run 0 "$banyan" eval runs/lines --data $shard --json
    [ "$(field samples <out) $(field accuracy <out)" = "110 $right" ] || fail "$shard: $(cat out)"
    run 0 "$banyan" train images.yaml "$@" --set data.images=$shard --set 'data.label_names=[high, low, middle]' --set name=shard --set train.steps=1
    rm -r runs/shard
done
mkdir shards
cp lines.tar lines.mds shards
run 0 "$banyan" eval runs/lines --data shards --json
[ "$(field samples <out) $(field accuracy <out)" = "220 $right" ] || fail "$(cat out)"
run 0 "$banyan" predict runs/lines lines.tar
[ "$(wc -l <out)" = 110 ] || fail "$(cat out)"
run 1 "$banyan" train images.yaml "$@" --set data.images=damaged.tfrecord --set train.steps=1
holds err "damaged.tfrecord, sample 0 (byte 12): the record does not fit its checksum"
run 0 "$banyan" train images.yaml "$@" --set data.images=damaged.tfrecord --set train.steps=1 --set data.corrupt=skip
holds err "left out: damaged.tfrecord"
head -c 20000 lines.tar >cut.tar
run 1 "$banyan" train images.yaml "$@" --set data.images=cut.tar
holds err "cut.tar: the tar archive is damaged at byte "
run 1 "$banyan" predict runs/lines damaged.tfrecord
holds err "(--skip leaves such pictures out)"
python3 - <<'END' || fail "no archive"
import io, tarfile
with tarfile.open("none.tar", "w") as t:
    for name in "a.gif", "b.png":
        data = open("small.png", "rb").read()
        info = tarfile.TarInfo(name)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
END
run 1 "$banyan" predict runs/lines none.tar
holds err "none.tar, sample a: the sample has no picture (.jpg, .jpeg, .png, .webp)"
holds err "(--skip leaves such pictures out)"
run 0 "$banyan" predict runs/lines damaged.tfrecord small.png "$one" --skip --csv
[ "$(head -n 1 out)" = index,class,label,probability,file,sample ] || fail "$(head -n 1 out)"
[ "$(sed -n 2p out | cut -d , -f 1,5,6)" = 1,damaged.tfrecord,1 ] || fail "$(cat out)"
[ "$(tail -n 1 out | cut -d , -f 1,5,6)" = "111,$one," ] || fail "$(cat out)"
holds err "left out: damaged.tfrecord, sample 0 (byte 12): "
holds err "left out: small.png: "
run 1 "$banyan" eval runs/lines --data damaged.tfrecord
holds err "(data.corrupt=skip, or --skip of eval and predict, leaves out what cannot be read)"
run 0 "$banyan" eval runs/lines --data damaged.tfrecord --skip
holds err "left out: damaged.tfrecord, sample 0"
run 0 "$banyan" predict runs/lines damaged.tfrecord --skip --yields features
[ "$(head -n 1 out | field sample)" = 1 ] || fail "$(head -n 1 out)"

say "a label that is no class"
python3 -c 'd = open("labels.idx", "rb").read(); open("wild.idx", "wb").write(d[:-1] + bytes([200]))'
run 2 "$banyan" train images.yaml --set data.labels=wild.idx --set data.label_names=[] --set name=none
holds err "wild.idx, label number 109 has the label 200, but only 4 labels occur"
run 2 "$banyan" train images.yaml --set data.labels=wild.idx --set name=none
holds err "wild.idx, label number 109 has the label 200, but there are names for 3 classes"
run 2 "$banyan" train images.yaml --set data.labels=wild.idx --set data.label_names=[] --set model.outputs=100 --set name=none
holds err "the label 200, but model.outputs is 100"
python3 - <<'END' || fail "no labels"
import struct
labels = list(open("labels.idx", "rb").read()[8:])
labels[7] = -1
head = "{'descr': '<i8', 'fortran_order': False, 'shape': (110,), }".ljust(117) + "\n"
open("minus.npy", "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<110q", *labels))
open("most.txt", "w").write("".join(f"{i}\n" for i in range(80) if i != 7))
open("rest.txt", "w").write("".join(f"{i}\n" for i in range(80, 110)))
END
run 2 "$banyan" train images.yaml --set data.labels=minus.npy --set name=none
holds err "minus.npy, label number 7 is -1: classes are numbered from 0"
run 2 "$banyan" eval runs/images --data images.idx,minus.npy
holds err "minus.npy, label number 7 is -1"
run 2 "$banyan" train images.yaml --set data.valid_images=images.idx --set data.valid_labels=minus.npy \
    --set data.valid_fraction=0 --set name=none
holds err "minus.npy, label number 7 is -1"
run 0 "$banyan" train images.yaml --set data.labels=minus.npy --set data.train_rows=most.txt \
    --set data.valid_rows=rest.txt --set data.valid_fraction=0 --set name=none --set train.steps=1
rm -r runs/none
python3 -c 'd = open("labels.idx", "rb").read(); open("gap.idx", "wb").write(d[:-1] + bytes([9]))'
run 0 "$banyan" train images.yaml --set data.labels=gap.idx --set data.label_names=[] --set name=none --set train.steps=1
holds err "labels are 0 to 9, the largest that of gap.idx, label number 109, but 6 of these classes have no example"
rm -r runs/none

say "images of another size than those of the weights to start from"
cat >conv.yaml <<'END'
base: images.yaml
model: {kind: resnet, width: 8, depths: [1, 1], stem: small}
train: {steps: 1, batch: 12, micro_batch: 4}
END
run 0 "$banyan" train conv.yaml "$@" --set name=conv
set -- "$@" --set train.steps=1 --set data.resize=stretch
sized="--set model.image_height=16 --set model.image_width=12"
run 0 "$banyan" train conv.yaml "$@" $sized --set model.from=runs/conv --set name=conv_at
holds runs/conv_at/config.yaml "image_height: 16"
cat >kind.yaml <<'END'
name: conv_as
task: {kind: classify}
model: {kind: resnet, from: runs/conv}
data: {images: lines, valid_fraction: 0.2}
train: {batch: 12, micro_batch: 4}
END
run 0 "$banyan" train kind.yaml --set train.steps=1 --set data.resize=stretch
holds runs/conv_as/config.yaml "image_height: 8"
run 0 "$banyan" train images.yaml "$@" $sized --set model.from=runs/lines --set name=vit_at
run 0 "$banyan" eval runs/vit_at --data lines --json
[ "$(field samples <out)" = 110 ] || fail "$(cat out)"
run 2 "$banyan" train images.yaml "$@" $sized --set model.from=runs/lines --set name=none --set lora.rank=2 --set 'lora.targets=[query]'
holds err "with lora.rank, images have the size of the weights"
rm -r runs/conv_at runs/conv_as runs/vit_at

say "weights without a head, and without the prefix of those with one"
mkdir base
cp runs/lines/checkpoints/step-00000040/*.json base
python3 - runs/lines/checkpoints/step-00000040/model.safetensors base/model.safetensors <<'END' || fail "no weights"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
tensors = {k: v for k, v in json.loads(data[8:end]).items() if k.startswith("vit.")}
body, header = b"", {}
for name, at in tensors.items():
    part = data[end + at["data_offsets"][0] : end + at["data_offsets"][1]]
    header[name[4:]] = dict(at, data_offsets=[len(body), len(body) + len(part)])
    body += part
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(head)) + head + body)
END
run 1 "$banyan" train images.yaml "$@" --set model.from=base --set name=none
holds err "a pattern of its name in model.new lets it begin anew"
run 0 "$banyan" train images.yaml "$@" --set model.from=base --set 'model.new=["classifier.*"]' --set name=based --set train.steps=1
holds err "classifier.weight, classifier.bias"
cp runs/lines/checkpoints/step-00000040/*.safetensors base
run 0 "$banyan" predict base "$one" --out plain
sed -i 's/"height": [0-9]*/"height": 3/' base/preprocessor_config.json
run 0 "$banyan" predict base "$one" --out same
same plain same
sed -i 's/"do_resize": false/"do_resize": true/' base/preprocessor_config.json
run 1 "$banyan" predict base "$one"
holds err 'preprocessor_config.json: its "size" and what is cropped of it are'
echo '{"image_processor_type": "LevitImageProcessor"}' >base/preprocessor_config.json
mkdir several && cp "$one" several
run 1 "$banyan" predict base several
holds err '"LevitImageProcessor" is none of those that are known'
grep -q -e "--skip" err && fail "the file of a model is no picture that could be left out: $(cat err)"
rm -r base/preprocessor_config.json several
run 1 "$banyan" predict base "$one"
holds err "there is no preprocessor_config.json, which says how to scale pixels"
rm -r base runs/based

say "predictions do not depend on how many are computed together"
for name in lines conv; do
    run 0 "$banyan" predict runs/$name lines.tar --out plain
    for size in 1 3 12; do
        cp -r runs/$name runs/sized
        sed -i "s/micro_batch: .*/micro_batch: $size/" runs/sized/config.yaml
        run 0 "$banyan" predict runs/sized lines.tar
        same out plain
        rm -r runs/sized
    done
done
rm -r runs/conv
set -- --set data.images=lines --set data.labels=[] --set data.label_names=[] --set model.channels=1

say "decoded when they are used: the same bits with more threads, from a shard, and after a resume"
use="--set data.decode=use --set data.transforms=[resized_crop=0.3,flip] --set data.shift=0 --set data.flip=false
    --set data.resize=stretch --set model.image_height=8 --set model.image_width=8 --set train.steps=6 --set checkpoint.every=3"
for threads in 1 3; do
    run 0 "$banyan" train images.yaml "$@" $use --set name=use$threads --set data.threads=$threads
done
at=checkpoints/step-00000006/model.safetensors
same runs/use1/$at runs/use3/$at
# The pictures have the size of the model: those decoded ahead are cut alike.
run 0 "$banyan" train images.yaml "$@" $use --set data.decode=ahead --set name=ahead
same runs/use1/$at runs/ahead/$at
cp -r runs/use1 runs/again
rm -r runs/again/checkpoints/step-00000006
run 0 "$banyan" train --resume runs/again --set data.threads=2
same runs/use1/$at runs/again/$at
run 0 "$banyan" eval runs/use1 --data lines --json
[ "$(field samples <out)" = 110 ] || fail "$(cat out)"
run 0 "$banyan" train images.yaml "$@" $use --set data.images=lines.tar --set 'data.label_names=[high, low, middle]' --set name=use_shard
cp "$one" kept.png
printf 'more' >>"$one"
run 2 "$banyan" train --resume runs/again --set train.steps=9
holds err "was trained on other data"
head -c 60 kept.png >"$one"
run 1 "$banyan" train images.yaml "$@" $use --set name=cut
holds err "$one: "
holds err "(data.corrupt=skip, or --skip of eval and predict, leaves out what cannot be read)"
run 0 "$banyan" train images.yaml "$@" $use --set name=cut --set data.corrupt=skip
holds err "left out: $one: "
cp kept.png "$one"
rm -r runs/cut runs/use_shard runs/ahead runs/again
run 2 "$banyan" train images.yaml --set data.decode=use
holds err "data.decode use: images.idx is no folder and no shard of pictures"
run 2 "$banyan" train images.yaml "$@" --set data.decode=use
holds err "set data.resize"

say "a broken picture of few is left out, more than one is not"
cp bad/b.png lines/low
run 0 "$banyan" train images.yaml "$@" --set train.steps=1 --set data.corrupt=skip
holds err "left out: lines/low/b.png: "
cp bad/b.png lines/low/c.png
run 1 "$banyan" train images.yaml "$@" --set train.steps=1 --set data.corrupt=skip
holds err "2 of 112 samples are damaged, and data.corrupt_budget 0.01 allows 1; "
holds err "raise the budget"
run 1 "$banyan" train images.yaml "$@"
holds err "(data.corrupt=skip, or --skip of eval and predict, leaves out what cannot be read)"
rm lines/low/b.png lines/low/c.png

say "what a file is that is no picture is said, of one as of many"
printf 'GIF89a..........' >one.gif
printf 'plain words' >words.txt
: >empty.png
head -c 5 "$one" | tail -c 3 >cut.png
for file in "one.gif is a GIF picture" "words.txt is none of the files" "empty.png is empty" "cut.png does not begin as"; do
    run 1 "$banyan" predict runs/lines "${file%% *}"
    holds err "$file"
done
run 0 "$banyan" predict runs/lines one.gif "$one" --skip
holds err "left out: one.gif: the image is a GIF picture"
run 1 "$banyan" predict runs/lines bad/b.png bad/b.png --skip
holds err "none of the pictures (2) can be read: bad/b.png: "
run 2 "$banyan" train images.yaml "$@" --set data.labels=labels.idx
holds err "leave data.labels out"

say "drift of pictures is that of their predictions, whose throughput has its own unit"
for data in images.idx bad; do
    run 2 "$banyan" drift report runs/images --data $data
    holds err "give the JSON lines of \`banyan predict\`"
done
run 0 "$banyan" plot runs/images --show throughput --out throughput.svg
holds throughput.svg "<svg"

say "drift of what is predicted: none for the same images, and some where most have one class"
run 0 "$banyan" predict runs/images images.idx
cp out predicted.jsonl
run 0 "$banyan" drift report runs/images --data predicted.jsonl --window 110 --json
holds out '"requests":110,"windows":1,"alarms":0,'
holds out '"name":"prediction","kind":"category"'
holds out '"name":"confidence","kind":"number"'
grep '"label":"high"' predicted.jsonl >high
for i in 1 2 3 4 5 6 7 8 9; do cat high; done | head -n 110 >shifted.jsonl
run 0 "$banyan" drift report runs/images --data shifted.jsonl --window 110
holds out "with_drift	1"

say "a directory of weights without its run"
cp -r "$last" weights
run 0 "$banyan" predict runs/images images.idx
cut -d, -f1,2 out >with
run 0 "$banyan" predict weights images.idx
cut -d, -f1,2 out >without
same with without
run 0 "$banyan" info weights
holds out "images of 1 x 8 x 8, 3 outputs"

say "info, profile and bench know images"
run 0 "$banyan" info images.yaml
holds out "images of 1 x 8 x 8, 3 outputs"
run 0 "$banyan" profile images.yaml --steps 1 --json
holds out '"samples_per_s":'
run 0 "$banyan" bench train images.yaml --steps 1 --set data.images=[] --set data.labels=[] \
    --set model.image_height=8 --json
holds out '"samples_per_s":'

say "other data is refused"
head -c 7000 images.idx >kept && cat kept images.idx | head -c 7056 >changed.idx
cp labels.idx labels.kept
printf '\001' | dd of=labels.idx bs=1 seek=9 conv=notrunc 2>/dev/null
printf '\002' | dd of=labels.idx bs=1 seek=10 conv=notrunc 2>/dev/null
printf '\000' | dd of=labels.idx bs=1 seek=11 conv=notrunc 2>/dev/null
cmp -s labels.idx labels.kept && fail "the labels were not changed"
run 2 "$banyan" train --resume runs/resumed --set train.steps=50
holds err "was trained on other data"
cp labels.kept labels.idx
run 2 "$banyan" train images.yaml --set data.labels=[]
holds err "there are no labels"
run 2 "$banyan" train images.yaml --set model.image_height=16
holds err "model.image_height is 16"
run 2 "$banyan" train images.yaml --set data.label_names=[one,two]
holds err "names for 2 classes"
mkdir -p one/only && cp lines/high/*.png one/only
run 2 "$banyan" train images.yaml --set data.images=one --set data.labels=[] --set data.label_names=[] --set model.channels=1
holds err "examples are of one class, only"
run 2 "$banyan" train images.yaml --set data.text=x
holds err "data.text belongs to task language"

say "train on a table"
cat >table.yaml <<'END'
name: table
task: {kind: classify}
model: {kind: mlp, layers: 1, width: 16}
precision: {compute: f32}
data: {table: table.csv, target: name, valid_fraction: 0.2, split: random}
train: {steps: 200, batch: 22, eval_every: 100, log_every: 100, threads: 1}
optimizer: {lr: 1e-2}
checkpoint: {every: 100}
END
run 0 "$banyan" train table.yaml
exists runs/table/checkpoints/step-00000200/encoding.json
run 0 "$banyan" eval runs/table --json
near "$(field accuracy <out)" 1 0.25
run 0 "$banyan" predict runs/table new.csv
[ "$(wc -l <out)" = 2 ] || fail "$(cat out)"
holds out '"index":1,'
run 0 "$banyan" predict runs/table table.csv --csv
holds out '"odd, ""small"""'
run 2 "$banyan" predict runs/table table.csv new.csv
holds err "several files at once are images"
rm -r runs/table/checkpoints/step-00000200
cp runs/two/config.yaml kept.yaml
run 0 "$banyan" train --resume runs/table
run 2 "$banyan" train table.yaml --set model.kind=vit
holds err "the data is a table"

say "compress: a plan says which methods the model takes, and why not the others"
for from in images table; do
    run 0 "$banyan" compress runs/$from --plan
    [ "$(grep -c "not possible for this model: model.kind" out)" -ge 6 ] || fail "$(cat out)"
    run 0 "$banyan" compress runs/$from --plan --json
    cp out plan
    while read -r line; do
        method=$(echo "$line" | field method)
        why=$(echo "$line" | field refused)
        [ "$method" != none ] || continue
        rm -rf small
        run $((${#why} > 0 ? 2 : 0)) "$banyan" compress runs/$from --method "$method" --out small
        [ -z "$why" ] || holds err "$why"
        [ "$method" != w8a8 ] || holds err "use int8"
        [ ! -e small ] || run 0 "$banyan" predict small "$([ $from = images ] && echo images.idx || echo table.csv)"
        [ ! -e small ] || [ $from = table ] || holds out '"label":"'
    done <plan
done
