#!/bin/sh
# Diffusion as a user runs it: a tiny DiT and a tiny U-Net train on drawn stripes, with the same weights on any number of
# ranks and after a resume, make images of a class as a grid and one by one, and refuse what they cannot do.
. "$(dirname "$0")/../support/shell.sh"

# 48 images of 8 x 8: class 0 has a bright left half, class 1 a bright upper one.
python3 - <<'END' || fail "no images"
import struct
pixels, labels = bytearray(), bytearray()
for n in range(48):
    labels.append(n % 2)
    for y in range(8):
        for x in range(8):
            pixels.append((240 if (y if n % 2 else x) < 4 else 10) - (n * 7 + x * y) % 10)
open("images.idx", "wb").write(struct.pack(">BBBBIII", 0, 0, 8, 3, 48, 8, 8) + pixels)
open("labels.idx", "wb").write(struct.pack(">BBBBI", 0, 0, 8, 1, 48) + labels)
END
cat >stripes.yaml <<'END'
name: stripes
seed: 3
task: {kind: diffuse, timesteps: 100}
model: {kind: dit, patch: 2, layers: 2, width: 32, heads: 2}
precision: {compute: f32}
data: {images: images.idx, labels: labels.idx, valid_fraction: 0.25}
train: {steps: 40, batch: 16, micro_batch: 4, eval_every: 20, log_every: 20}
optimizer: {lr: 3e-3, warmup: 10, ema: 0.9}
checkpoint: {every: 20}
END

say "the same weights on any number of ranks, and after a resume"
run 0 "$banyan" train stripes.yaml --quiet --set train.threads=1
weights=checkpoints/step-00000040/model.safetensors
for ranks in 2 4; do
    run 0 "$banyan" launch -n $ranks train stripes.yaml --quiet --set name=on$ranks --set train.threads=1
    same runs/stripes/$weights runs/on$ranks/$weights
done
run 0 "$banyan" train stripes.yaml --quiet --set name=again --set train.threads=2 --set data.threads=3
same runs/stripes/$weights runs/again/$weights
rm -r runs/again/checkpoints/step-00000040
run 0 "$banyan" train --resume runs/again --quiet
same runs/stripes/$weights runs/again/$weights
run 0 "$banyan" eval runs/stripes --ema --json
holds out '"valid_loss"'

say "images of the classes, the same for the same seed"
run 0 "$banyan" train stripes.yaml --quiet --set name=taught --set train.steps=400 --set train.micro_batch=16 --set train.eval_every=0 --set optimizer.lr=6e-3
run 0 "$banyan" generate runs/taught --ema --image grid.png --images made --samples 20 --steps 10 --seed 5
holds err grid.png
[ "$(ls made | wc -l)" -eq 20 ] || fail "$(ls made)"
run 0 "$banyan" generate runs/taught --ema --image again.png --samples 20 --steps 10 --seed 5 --json
holds out '{"samples":20,"image":"again.png","images":null,"seed":5}'
same grid.png again.png
run 0 "$banyan" generate runs/taught --ema --image other.png --samples 20 --steps 10 --seed 6
cmp -s grid.png other.png && fail "another seed makes the same images"
run 0 "$banyan" train stripes.yaml --quiet --set name=named --set train.steps=1 --set train.eval_every=0 --set 'data.label_names=[left, upper]'
run 0 "$banyan" generate runs/named --image named.png --class upper --samples 2 --steps 2 --tensorboard
run 0 "$banyan" generate runs/named --image numbered.png --class 1 --samples 2 --steps 2
same named.png numbered.png
python3 - <<'END' || fail "no labels of one class"
import struct
open("ones.idx", "wb").write(struct.pack(">BBBBI", 0, 0, 8, 1, 48) + bytes(48))
END
run 0 "$banyan" train stripes.yaml --quiet --set name=one --set data.labels=ones.idx --set train.steps=1 --set train.eval_every=0
run 0 "$banyan" generate runs/one --image one.png --class 0 --samples 2 --steps 1
grep -q samples runs/named/tensorboard/plots/events.out.tfevents.* || fail "no samples for TensorBoard"
run 2 "$banyan" generate runs/named --image named.png --class lower
holds err "--class lower: the model has classes 0 to 1, by name left to upper"
run 2 "$banyan" generate runs/named --class upper
holds err "it needs --image"
run 0 "$banyan" generate runs/taught --ema --images one --class 1 --samples 3 --guidance 1 --steps 7
exists one/000002_1.png
cat >of_classes.py <<'END'
import glob, struct, sys, zlib

def grey(path):
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body += data[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += 12 + n
    raw, rows = zlib.decompress(body), []
    for y in range(8):  # undoes the filters
        kind, row, above = raw[9 * y], bytearray(raw[9 * y + 1:9 * y + 9]), rows[-1] if rows else bytes(8)
        for x in range(8):
            a, b, c = row[x - 1] if x else 0, above[x], above[x - 1] if x else 0
            p = a + b - c
            paeth = min((abs(p - v), i, v) for i, v in enumerate((a, b, c)))[2]
            row[x] = (row[x] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        rows.append(row)
    return rows

right = 0
paths = [p for folder in sys.argv[1:] for p in glob.glob(folder + "/*.png")]
for path in paths:
    rows = grey(path)
    left = sum(sum(r[:4]) - sum(r[4:]) for r in rows)
    upper = sum(map(sum, rows[:4])) - sum(map(sum, rows[4:]))
    right += (upper > left) == path.endswith("_1.png")
print(right, "of", len(paths))
sys.exit(right < 0.9 * len(paths))
END
# of_their_classes FOLDER...: the images in them show what their names say.
of_their_classes() { python3 of_classes.py "$@" || fail "the images are not of their classes"; }
of_their_classes made one

say "DDPM"
run 0 "$banyan" train stripes.yaml --quiet --set name=ddpm --set task.loss=ddpm --set task.betas=cosine --set train.steps=20
run 0 "$banyan" generate runs/ddpm --image ddpm.png --samples 3

say "a U-Net, on any number of ranks and after a resume"
sed 's/^name.*/name: unet/; s/^model.*/model: {kind: unet2d, width: 8, multipliers: [1, 2], attended: [2], depth: 1, norm_groups: 4}/' \
    stripes.yaml >unet.yaml
run 0 "$banyan" train unet.yaml --quiet
run 0 "$banyan" launch -n 2 train unet.yaml --quiet --set name=unet2 --set train.threads=1
same runs/unet/$weights runs/unet2/$weights
rm -r runs/unet2/checkpoints/step-00000040
run 0 "$banyan" train --resume runs/unet2 --quiet
same runs/unet/$weights runs/unet2/$weights
run 0 "$banyan" train unet.yaml --quiet --set name=drawn --set train.steps=200 --set train.micro_batch=16 \
    --set train.eval_every=0 --set optimizer.lr=6e-3
run 0 "$banyan" generate runs/drawn --ema --images drawn --samples 20 --steps 10
of_their_classes drawn
run 2 "$banyan" train unet.yaml --set name=odd --set model.multipliers='[1, 1, 1, 1, 1]'
holds err "must be a multiple of 16"

say "what it refuses"
run 2 "$banyan" generate runs/taught --image grid.jpg --samples 1
run 2 "$banyan" generate runs/taught --image grid.png --class 2
holds err "classes 0 to 1"
run 2 "$banyan" generate runs/taught --image grid.png --steps 101
holds err "1 to 100"
run 2 "$banyan" generate runs/taught --prompt x
holds err "generate --image"
run 2 "$banyan" train stripes.yaml --set name=mixed --set 'data.transforms=[mixup]'
holds err "two classes"
run 2 "$banyan" train stripes.yaml --set name=vit --set model.kind=vit --set model.patch=2
holds err "model.kind to dit or unet2d"
