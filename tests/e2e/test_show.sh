#!/bin/sh
# What a model sees of its data, and what it says of held-out data, as pictures; classes drawn alike.
. "$(dirname "$0")/../support/shell.sh"

# 116 images 1 x 8 x 8 of three classes, a bright stripe in the row 2 x class + 1: 78, 26 and 12 of them, mixed.
python3 - <<'END' || fail "no data"
import random, struct
random.seed(5)
labels = [0 if i % 3 else 1 if i % 9 else 2 for i in range(116)]
pixels = bytearray()
for c in labels:
    for y in range(8):
        pixels += bytes(min(255, random.randrange(90) + (150 if y == 2 * c + 1 else 0)) for _ in range(8))
open("images.idx", "wb").write(struct.pack(">IIII", 0x803, 116, 8, 8) + pixels)
open("labels.idx", "wb").write(struct.pack(">II", 0x801, 116) + bytes(labels))
open("draws.txt", "w").write("".join(f"{i % 2}\n" for i in range(116)))
END
cat >images.yaml <<'END'
name: images
task: {kind: classify}
model: {kind: vit, layers: 1, heads: 2, width: 16, patch: 4}
precision: {compute: f32}
data: {images: images.idx, labels: labels.idx, valid_fraction: 0.2, label_names: [low, middle, high],
       transforms: [shift=2, flip, mixup=0.4]}
train: {steps: 16, batch: 12, eval_every: 16, threads: 1}
optimizer: {lr: 3e-3}
checkpoint: {every: 8, keep: 9}
END

# pixels FILE: a digest of the pixels of a PNG of 8 bits and RGB, whatever wrote it.
cat >pixels.py <<'END'
import hashlib, struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, body = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    chunk = data[at + 8:at + 8 + size]
    if kind == b"IHDR":
        width, height = struct.unpack(">II", chunk[:8])
        assert chunk[8:] == bytes([8, 2, 0, 0, 0]), chunk
    body += chunk if kind == b"IDAT" else b""
    at += size + 12
raw, stride = zlib.decompress(body), 3 * width
rows, before = [], bytearray(stride)
for y in range(height):
    kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for i in range(stride):
        a, b, c = row[i - 3] if i > 2 else 0, before[i], before[i - 3] if i > 2 else 0
        p = a + b - c
        best = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        row[i] = (row[i] + [0, a, b, (a + b) // 2, best][kind]) & 255
    rows.append(bytes(row))
    before = row
if len(sys.argv) > 2:  # the two images of the first tile, each 96 pixels wide
    assert all(row[36:324] == row[336:624] for row in rows[40:130])
print(width, height, hashlib.sha256(b"".join(rows)).hexdigest()[:16])
END
pixels() { python3 pixels.py "$1" || fail "$1 is no such PNG"; }

say "images before and after augmentation: the same picture for any number of threads"
run 0 "$banyan" data show images.yaml --out seen.png --count 6 --epoch 1
holds err "wrote seen.png"
[ "$(pixels seen.png)" = "1260 208 c8c1ce797e89f4c0" ] || fail "other pixels: $(pixels seen.png)"
run 0 "$banyan" data show images.yaml --out threads.png --count 6 --epoch 1 --set data.threads=3 --set train.batch=4 --json
same seen.png threads.png
holds out '{"out":"threads.png","epoch":1,"samples":6,"examples":[{"example":'
run 0 "$banyan" data show images.yaml --out other.png --count 6
! cmp -s seen.png other.png || fail "two epochs look alike"
run 0 "$banyan" data show images.yaml --out plain.png --count 1 --set 'data.transforms=[]'
python3 pixels.py plain.png alike >out || fail "what is not augmented changes"
run 2 "$banyan" data show images.yaml --out seen.svg
holds err "is written to a name in .png"

say "classes are drawn alike: the same for any number of threads, and after a resume"
run 0 "$banyan" data stats images.yaml
printf 'class\ttraining\theld out\tdrawn in epoch 0\nlow\t62\t15\t62\nmiddle\t20\t6\t20\nhigh\t11\t2\t11\n' >wanted
head -n 4 out >classes
same classes wanted
holds out "$(printf 'order of 93 samples in 1 file, batches of 12\tdrawn\tif all were shuffled')"
set -- --set data.balance=classes --set 'data.transforms=[]'
run 0 "$banyan" data stats images.yaml "$@" --json --epoch 3
holds out '{"class":"low","training":62,"held_out":15,"drawn":31}'
holds out '{"class":"high","training":11,"held_out":2,"drawn":31}'
run 0 "$banyan" train images.yaml "$@"
run 0 "$banyan" train images.yaml "$@" --set name=again --set data.threads=3 --set train.threads=2
last=checkpoints/step-00000016/model.safetensors
same runs/images/$last runs/again/$last
rm -r runs/again/checkpoints/step-00000016
run 0 "$banyan" train --resume runs/again
same runs/images/$last runs/again/$last
run 0 "$banyan" train images.yaml "$@" --set name=plain --set data.balance=none
! cmp -s runs/images/$last runs/plain/$last || fail "nothing was balanced"
run 0 "$banyan" data stats images.yaml --set data.draws=draws.txt
holds out "$(printf 'low\t62\t15')"
run 0 "$banyan" train images.yaml --set data.draws=draws.txt --set name=drawn
sed -i 's/^0$/0.5/' draws.txt
run 2 "$banyan" train --resume runs/drawn --set train.steps=20
holds err "was trained on other data"
run 2 "$banyan" train images.yaml --set data.draws=nowhere.txt
holds err "there is no file or directory nowhere.txt"
awk 'BEGIN { print "x,y"; for (i = 0; i < 20; i++) printf "%d,%d\n", i, i * 7 % 5 }' >table.csv
echo '{task: {kind: regress}, model: {kind: mlp}, data: {table: table.csv, target: y, balance: classes}}' >table.yaml
run 2 "$banyan" train table.yaml
holds err "has no classes"

say "which example is which: the numbers that data.draws counts, and those that an epoch draws"
python3 - <<'END' || fail "no pictures"
import os, struct, zlib
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for i in range(12):
    os.makedirs(f"pets/{'cat' if i % 2 else 'dog'}", exist_ok=True)
    with open(f"pets/{'cat' if i % 2 else 'dog'}/{i}.png", "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress((b"\0" + bytes([20 * i] * 8)) * 8)) + chunk(b"IEND", b""))
END
set -- --set 'data.images=[pets]' --set 'data.labels=[]' --set 'data.label_names=[]' --set model.image_height=8 \
    --set model.image_width=8 --set model.channels=1
run 0 "$banyan" data show images.yaml "$@" --list
[ "$(head -n 1 out)" = "$(printf 'example\tpart\tdraws\tdrawn in epoch 0\tclass\tfile\tsample')" ] || fail "$(cat out)"
[ "$(wc -l <out)" -eq 13 ] || fail "$(cat out)"
awk -F'\t' 'NR > 1 { if ($1 != NR - 2 || $6 !~ "^pets/" $5 "/") exit 1 }' out || fail "$(cat out)"
chosen=$(awk -F'\t' '$2 == "training" { print $6; exit }' out)
awk -F'\t' -v chosen="$chosen" 'NR > 1 { print ($6 == chosen) + 0 }' out >one.txt
run 0 "$banyan" data show images.yaml "$@" --set data.draws=one.txt --out one.png --count 9 --json
[ "$(grep -o "\"file\":\"$chosen\"" out | wc -l)" -eq 9 ] || fail "$chosen: $(cat out)"
awk 'BEGIN { for (i = 0; i < 116; i++) print i % 4 }' >fourths.txt
run 0 "$banyan" data show images.yaml --set data.draws=fourths.txt --list --json --epoch 2
cp out listed
run 0 "$banyan" data show images.yaml --set data.draws=fourths.txt --count 93 --epoch 2 --json --out all.png
python3 - <<'END' || fail "what is listed as drawn is not what is drawn"
import collections, json
drawn = collections.Counter(e["example"] for e in json.load(open("out"))["examples"])
listed = [json.loads(line) for line in open("listed")]
assert [e["example"] for e in listed] == list(range(116))
assert all(e["drawn"] == drawn[i] and e["draws"] == i % 4 and e["trained"] != e["held_out"] for i, e in enumerate(listed))
assert sum(drawn.values()) == 93 and sum(e["trained"] for e in listed) == 93
END
run 2 "$banyan" data show table.yaml --set data.balance=none
holds err "add --list"
run 0 "$banyan" data show table.yaml --set data.balance=none --list
[ "$(wc -l <out)" -eq 21 ] || fail "$(cat out)"

say "what a classifier says of held-out data"
for chart in confusion classes pr roc calibration confusion,classes,pr,roc,calibration; do
    run 0 "$banyan" plot runs/images --show $chart --out chart.svg
    holds chart.svg "<svg"
done
run 0 "$banyan" plot runs/images --show confusion --data images.idx,labels.idx --out confusion.png
exists confusion.png
run 0 "$banyan" plot runs/plain --show wrong --data images.idx,labels.idx --out wrong.png --count 5
[ "$(pixels wrong.png | cut -d ' ' -f 1)" -gt 400 ] || fail "wrong.png: $(pixels wrong.png)"
run 0 "$banyan" plot runs/images --show filters --out filters.png
[ "$(pixels filters.png | cut -d ' ' -f 1)" -gt 1000 ] || fail "filters.png: $(pixels filters.png)"
run 0 "$banyan" plot runs/images --show attention --out attention.png --count 3
[ "$(pixels attention.png | cut -d ' ' -f 1)" -eq 936 ] || fail "attention.png: $(pixels attention.png)"
run 2 "$banyan" plot runs/images --show overlay
holds err "task.kind segment"

say "the same pictures as images of TensorBoard, at the step of the checkpoint"
run 0 "$banyan" plot runs/images --show confusion,roc --out both.png --tensorboard
run 0 "$banyan" plot runs/images --show wrong --count 5 --data images.idx,labels.idx --out wrong.png --tensorboard
cat >events.py <<'END'
# Reads the images of event files: TFRecords with CRC-32C, of Events as protocol buffers.
import glob, struct, sys
table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    table.append(n)
def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
def fields(data):
    at, out = 0, {}
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            out[key >> 3] = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            out[key >> 3] = data[at:at + size]
            at += size
    return out
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data, at, first = open(path, "rb").read(), 0, True
    while at < len(data):
        size, crc = struct.unpack("<QI", data[at:at + 12])
        assert crc == masked(data[at:at + 8])
        event = data[at + 12:at + 12 + size]
        assert masked(event) == struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0]
        event = fields(event)
        assert not first or event[3] == b"brain.Event:2"
        if 5 in event:
            value = fields(fields(event[5])[1])
            image = fields(value[4])
            print(value[1].decode(), event.get(2, 0), image[2], image[1], image[3], image[4] == open(sys.argv[2], "rb").read())
        at, first = at + 16 + size, False
END
python3 events.py runs/images/tensorboard/plots both.png >out || fail "no events"
python3 events.py runs/images/tensorboard/plots wrong.png >>out || fail "no events"
holds out "confusion,roc 16 $(python3 -c 'import struct; print(*struct.unpack(">II", open("both.png", "rb").read()[16:24]))') 3 True"
holds out "wrong 16 $(pixels wrong.png | cut -d ' ' -f 1,2) 3 True"
[ "$(grep -c True out)" -eq 2 ] || fail "$(cat out)"
run 2 "$banyan" plot runs/images --show confusion --out both.svg --tensorboard
holds err "TensorBoard shows PNG"
run 2 "$banyan" plot runs/images --tensorboard
holds err "draws the curves of a run itself"

run 0 "$banyan" predict runs/images images.idx --yields attention
python3 - <<'END' || fail "attention: shares of each head do not add up to 1"
import json
for line in open("out"):
    shares = json.loads(line)["attention"]
    assert len(shares) == 2 * 5 and all(abs(sum(shares[h * 5 : h * 5 + 5]) - 1) < 1e-5 for h in range(2)), line
END
run 2 "$banyan" plot runs/images --show filters,wrong
holds err "drawn by themselves"
run 2 "$banyan" plot runs/images --show confusion,loss
run 2 "$banyan" plot runs/images runs/plain --show confusion
holds err "is of one model"
for list in "" "loss," ",loss"; do
    run 2 "$banyan" plot runs/images --show "$list"
    holds err "--show: '' is not loss, throughput"
done
run 2 "$banyan" plot runs/images --show nothing
holds err "confusion, classes, pr"

say "tokens as a model sees them, and which of them are hidden"
make_text text.txt 60
cat >bert.yaml <<'END'
name: bert
model: {kind: bert, layers: 1, width: 16, heads: 2, context: 24}
task: {kind: masked}
data: {text: [text.txt], tokenizer: char, valid_fraction: 0.1}
train: {batch: 4, steps: 1}
END
run 0 "$banyan" data show bert.yaml --count 3
[ "$(grep -c '^sample [0-2] of epoch 0: 24 tokens, 4 to predict$' out)" -eq 3 ] || fail "$(cat out)"
[ "$(grep -o '{[^|]*|[^}]}' out | wc -l)" -eq 12 ] || fail "$(cat out)"
cp out first
run 0 "$banyan" data show bert.yaml --count 3 --out again.txt --set data.threads=2
same first again.txt
run 0 "$banyan" data show bert.yaml --count 1 --json
holds out '{"epoch":0,"sample":0,"tokens":24,"targets":4,"text":"'
run 2 "$banyan" plot nowhere --show confusion

say "conversations: what is learned of them, and a NUL in one"
run 0 "$banyan" pack text.txt --tokenizer bpe --vocab 257 --out bytes
printf '{"question": "a\\u0000b", "answer": "moss"}\n{"question": "c", "answer": "oak"}\n' >talks.jsonl
run 2 "$banyan" pack talks.jsonl --tokenizer bytes --chat-template none --out talks
holds err "--chat-template is for conversations: add --chat"
run 2 "$banyan" pack --chat talks.jsonl --chat-template none --out talks
holds err "--chat needs the tokenizer of the model to tune: --tokenizer DIR"
cat >talk.yaml <<'END'
name: talk
model: {kind: llama, layers: 1, width: 16, heads: 2, context: 24}
task: {kind: chat}
chat: {template: none}
data: {text: [talks.jsonl], tokenizer: bytes, valid_fraction: 0, packing: padded}
train: {batch: 2, steps: 1}
END
run 0 "$banyan" data show talk.yaml --count 2
holds out ": 24 tokens, 4 to predict"
holds out ": 24 tokens, 3 to predict"
holds out "a␀b"
holds out "[[moss]]"
run 0 "$banyan" pack --chat talks.jsonl --tokenizer bytes --chat-template none --out talks
say "... and with another template than the one they were packed with"
sed 's/kind: chat/kind: language/; /^chat:/d; s/talks.jsonl/text.txt/; s/, packing: padded//' talk.yaml >base.yaml
run 0 "$banyan" train base.yaml --quiet --set name=base
run 2 "$banyan" data show talk.yaml --set model.from=runs/base --set data.text=[] --set data.train=talks --set chat.template=plain
holds err "chat.template plain is not the template that talks was packed with"
run 0 "$banyan" data show talk.yaml --set model.from=runs/base --set data.text=[] --set data.train=talks --count 1
run 2 "$banyan" data show talk.yaml --set data.text=[] --set data.train=talks --set model.context=4
holds err "talks: 1 samples are longer than model.context 4, the longest of 7 tokens: pack them with --context 4"
