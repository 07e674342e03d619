#!/bin/sh
# A segmentation as a user runs it: shapes are drawn, a small U-Net trains on them, what it says of the held-out pictures
# has the metrics that the masks which predict writes have, and a server gives the same masks.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

python3 "$root/examples/make_shapes.py" shapes 24 || fail "no shapes"
mkdir -p held/images held/masks
for i in 00 01 02 03 04 05; do mv "shapes/images/00$i.png" held/images && mv "shapes/masks/00$i.png" held/masks; done
cat >shapes.yaml <<END
name: shapes
seed: 5
task: {kind: segment, loss: both}
model: {kind: unet, width: 8, depth: 2}
precision: {compute: f32}
data: {images: shapes/images, labels: shapes/masks, valid_images: held/images, valid_labels: held/masks, transforms: [flip, rotate]}
train: {steps: 12, batch: 6, micro_batch: 3, eval_every: 6}
optimizer: {lr: 1e-2, warmup: 2}
END

say "it trains, and the best checkpoint is that of the highest mean IoU"
run 0 "$banyan" train shapes.yaml
holds out "(best)"
say "the weights are the same with one thread"
run 0 "$banyan" checkpoint digest runs/shapes
mv out digest
run 0 "$banyan" train shapes.yaml --set name=one --set train.threads=1 --set data.threads=3
run 0 "$banyan" checkpoint digest runs/one
same out digest

say "eval and the masks of predict agree"
run 0 "$banyan" eval runs/shapes --data held/images,held/masks --json
iou=$(field mean_iou <out)
accuracy=$(field pixel_accuracy <out)
run 0 "$banyan" predict runs/shapes held/images --masks found
mv out found.lines
holds found.lines '"mask":"found/0003.png"'
holds found.lines '"shares":['
python3 - held/masks found >measured <<'END' || fail "no measure"
import struct, sys, zlib, glob, os

def pixels(path):
    data = open(path, "rb").read()
    at, body = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
            assert (depth, colour) == (8, 3), (depth, colour)
        body += data[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += 12 + n
    raw, out, above = zlib.decompress(body), [], bytes(width)
    for y in range(height):  # undoes the filters
        kind, row = raw[y * (width + 1)], bytearray(raw[y * (width + 1) + 1:(y + 1) * (width + 1)])
        for x in range(width):
            a, b, c = row[x - 1] if x else 0, above[x], above[x - 1] if x else 0
            p = a + b - c
            paeth = min((abs(p - v), i, v) for i, v in enumerate((a, b, c)))[2]
            row[x] = (row[x] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        above = bytes(row)
        out += row
    return out

both, said, true, right, count = [0] * 4, [0] * 4, [0] * 4, 0, 0
for path in sorted(glob.glob(sys.argv[1] + "/*.png")):
    for t, p in zip(pixels(path), pixels(os.path.join(sys.argv[2], os.path.basename(path)))):
        if t != 255:
            both[t] += t == p
            said[p] += 1
            true[t] += 1
            right += t == p
            count += 1
ious = [b / (s + t - b) for b, s, t in zip(both, said, true) if s + t]
print(sum(ious) / len(ious), right / count)
END
read -r want_iou want_accuracy <measured
near "$iou" "$want_iou" 1e-6
near "$accuracy" "$want_accuracy" 1e-6

say "overlays of the held-out pictures: the truth and what is found"
run 0 "$banyan" plot runs/shapes --show overlay --out overlay.png --count 2 --tensorboard
[ "$(ls runs/shapes/tensorboard/plots | wc -l)" -eq 1 ] || fail "no image for TensorBoard"
python3 - <<'END' || fail "the overlay is another one"
import os, struct, zlib
def rgb(path):
    data = open(path, "rb").read()
    at, body, palette = 8, b"", None
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + n]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", chunk[:10])
        palette = chunk if kind == b"PLTE" else palette
        body += chunk if kind == b"IDAT" else b""
        at += 12 + n
    step = 3 if colour == 2 else 1
    raw, rows, above = zlib.decompress(body), [], bytes(width * step)
    for y in range(height):
        kind, row = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
        for x in range(width * step):
            a, b, c = row[x - step] if x >= step else 0, above[x], above[x - step] if x >= step else 0
            p = a + b - c
            paeth = min((abs(p - v), i, v) for i, v in enumerate((a, b, c)))[2]
            row[x] = (row[x] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        above = bytes(row)
        rows.append([tuple(row[3 * x:3 * x + 3]) if step == 3 else row[x] for x in range(width)])
    return rows, palette
page, _ = rgb("overlay.png")
names = sorted(os.listdir("held/images"))
images = {name: rgb("held/images/" + name)[0] for name in names}
side = len(images[names[0]])
scale = -(-96 // side) if side < 96 else 1
def over(pixel, label):
    colour = (0, 0, 0)
    for bit in range(8):
        colour = tuple(v | (label >> (3 * bit + k) & 1) << (7 - bit) for k, v in enumerate(colour))
    return pixel if label == 0 else tuple((a + (0 if label == 255 else b)) // 2 for a, b in zip(pixel, colour))
def panel(k):
    head = 12 + 20 + 4  # the margin, the title and what is below it
    return [[page[head + y * scale][12 + k * (side * scale + 4) + x * scale] for x in range(side)] for y in range(side)]
shown = [name for name in names if images[name] == panel(0)]
assert len(shown) == 1, shown
for k, folder in ((1, "held/masks/"), (2, "found/")):
    labels, _ = rgb(folder + shown[0])
    assert panel(k) == [[over(p, c) for p, c in zip(*rows)] for rows in zip(images[shown[0]], labels)], folder
END

say "an exported model finds the same, without its run"
run 0 "$banyan" export runs/shapes --format safetensors --out exported
run 0 "$banyan" predict exported held/images --masks again
same found/0000.png again/0000.png

say "each picture has a mask of its own: samples of one name in several shards, pictures of one stem"
python3 - <<'END' || fail "no shards"
import os, shutil, tarfile
os.mkdir("parts")
os.mkdir("other")
for i, path in enumerate(("parts/a.tar", "parts/b.tar", "other/a.tar")):
    with tarfile.open(path, "w") as out:
        for k in range(2):
            out.add(f"held/images/000{2 * i + k}.png", f"{k}.png")
os.mkdir("stems")
for i, name in enumerate(("x.png", "x.jpg", "x-1.png")):
    shutil.copy(f"held/images/000{i}.png", "stems/" + name)
END
run 0 "$banyan" predict exported parts/a.tar parts/b.tar other/a.tar --masks shards
holds out '"mask":"shards/parts_a_0.png"'
[ "$(ls shards | tr '\n' ' ')" = \
    "other_a_0.png other_a_1.png parts_a_0.png parts_a_1.png parts_b_0.png parts_b_1.png " ] ||
    fail "other masks: $(ls shards)"
for i in 0 1 2 3 4 5; do
    set -- parts_a parts_a parts_b parts_b other_a other_a
    shift $i
    same "shards/$1_$((i % 2)).png" "found/000$i.png"
done
run 0 "$banyan" predict exported parts --masks folder
[ "$(ls folder | tr '\n' ' ')" = "a_0.png a_1.png b_0.png b_1.png " ] || fail "other masks: $(ls folder)"
run 0 "$banyan" predict exported parts/a.tar --masks shard
[ "$(ls shard | tr '\n' ' ')" = "0.png 1.png " ] || fail "other masks: $(ls shard)"
run 0 "$banyan" predict exported stems --masks stems-found
[ "$(ls stems-found | wc -l)" = 3 ] || fail "other masks: $(ls stems-found)"
[ "$(grep -o '"mask":"[^"]*"' <out | sort -u | wc -l)" = 3 ] || fail "not three masks: $(cat out)"

say "of an archive that is a URL, it is the archive that is asked for"
run 1 "$banyan" train shapes.yaml --set name=far --set data.images=http://127.0.0.1:1/a.npz/images \
    --set data.labels=http://127.0.0.1:1/a.npz/masks
holds err "http://127.0.0.1:1/a.npz: "

say "a server answers with the mask that predict has written"
serve_models runs/shapes
await_ready
printf '{"model": "shapes", "images": ["%s"]}' "$(base64 -w 0 held/images/0003.png)" >request.json
run 0 curl -sf "$url/v1/predict" -H 'Content-Type: application/json' -d @request.json
field mask <out | base64 -d >mask.png
same mask.png found/0003.png
stop

say "errors name what is missing"
mkdir less && cp shapes/masks/0010.png less
run 1 "$banyan" train shapes.yaml --set data.labels=less --set name=x
holds err "has no classes of its pixels"
run 2 "$banyan" train shapes.yaml --set 'data.labels=[]' --set name=x
holds err "data.labels"
run 2 "$banyan" train shapes.yaml --set model.kind=resnet --set 'model.depths=[1]' --set model.stem=small --set name=x
holds err "set model.kind to unet"
run 2 "$banyan" train shapes.yaml --set model.depth=7 --set name=x
holds err "a multiple of 128"
