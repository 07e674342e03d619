#!/bin/sh
# Label maps of PNGs, of COCO annotations and of PASCAL VOC's lists: the same pictures give the same weights.
. "$(dirname "$0")/../support/shell.sh"

cat >maps.py <<'END'
import json, os, random, struct, zlib
random.seed(2)
SIDE = 16
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(rows, kind):
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, kind, 0, 0, 0))
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))
folders = "images masks coco voc/JPEGImages voc/SegmentationClass voc/ImageSets/Segmentation".split()
for folder in folders:
    os.makedirs(folder)
coco = {"images": [], "annotations": [], "categories": [{"id": 44, "name": "b"}, {"id": 9, "name": "a"}]}
for i in range(9):
    mask = [[0] * SIDE for _ in range(SIDE)]
    for k, category in ((1, 9), (2, 44)):
        x, y, w, h = (random.randrange(1, 8) for _ in range(4))
        for row in mask[y:y + h]:
            row[x:x + w] = [k] * w
        corners = [x, y, x + w, y, x + w, y + h, x, y + h]
        runs, last = [0], False
        for p in range(SIDE * SIDE):
            inside = x <= p // SIDE < x + w and y <= p % SIDE < y + h
            runs += [0] if inside != last else []
            last = inside
            runs[-1] += 1
        coco["annotations"].append({"id": 10 * i + k, "image_id": 100 - i, "category_id": category, "segmentation":
                                    [corners] if i % 2 else {"size": [SIDE, SIDE], "counts": runs}})
    coco["images"].append({"id": 100 - i, "file_name": f"{i}.jpg", "height": SIDE, "width": SIDE})
    picture = png([[min(255, 90 * c + random.randrange(60)) for c in row for _ in range(3)] for row in mask], 2)
    for folder, ending, data in (("images", "jpg", picture), ("masks", "png", png(mask, 0)), ("coco", "jpg", picture),
                                 ("voc/JPEGImages", "jpg", picture), ("voc/SegmentationClass", "png", png(mask, 0))):
        with open(f"{folder}/{i}.{ending}", "wb") as out:
            out.write(data)
for folder in ("coco", "voc/JPEGImages"):
    with open(folder + "/unlisted.jpg", "wb") as out:
        out.write(picture)
with open("voc/ImageSets/Segmentation/train.txt", "w") as out:
    out.write("".join(f"{i}\n" for i in range(9)))
with open("objects.json", "w") as out:
    json.dump(coco, out)
END
python3 maps.py || fail "no label maps"
cat >maps.yaml <<END
name: png
task: {kind: segment}
model: {kind: unet, width: 4, depth: 1}
data: {images: images, labels: masks, valid_fraction: 0.3}
train: {steps: 4, batch: 4, eval_every: 4, threads: 1}
optimizer: {lr: 1e-2, warmup: 1}
run: {dir: runs}
END
digest() {
    run 0 "$banyan" train maps.yaml --quiet --set name="$@"
    run 0 "$banyan" checkpoint digest "runs/$1"
    grep -v runs/ out >"digest.$1"
}
say "PNGs"
digest png
[ -s digest.png ] || fail "no digest"
say "COCO annotations: polygons and runs"
digest coco --set data.images=coco --set data.labels=objects.json
same digest.png digest.coco
say "a list of PASCAL VOC"
digest voc --set data.images=voc/ImageSets/Segmentation/train.txt --set data.labels=voc/SegmentationClass
same digest.png digest.voc

say "what is wrong is an error that names it"
sed 's/"category_id": 44/"category_id": 45/' objects.json >wrong.json
run 1 "$banyan" train maps.yaml --set data.images=coco --set data.labels=wrong.json
holds err "wrong.json: the annotation with id 2 is of no category"
run 1 "$banyan" train maps.yaml --set data.images=masks --set data.labels=objects.json
holds err "none of its images is in the folder"
