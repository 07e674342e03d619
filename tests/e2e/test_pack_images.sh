#!/bin/sh
# Pictures packed into shards: the same bytes for any number of ranks and after a kill, in few pages, as training reads
# them; from folders, shards of other formats and compressed ones.
. "$(dirname "$0")/../support/shell.sh"

export XDG_CACHE_HOME="$work/cache"
cat >pictures.py <<'END'
import gzip, io, os, random, struct, tarfile, zlib
random.seed(5)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(side):
    rows = b"".join(b"\0" + random.randbytes(3 * side) for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
for name in ("ant", "bee", "cat"):
    os.makedirs("pets/" + name)
    for i in range(80):
        with open(f"pets/{name}/{i:03}.png", "wb") as out:
            out.write(png(random.choice([4, 16, 40, 64])))
with gzip.open("stream.tar.gz", "wb") as packed, tarfile.open(fileobj=packed, mode="w") as out:
    for i in range(12):
        for ending, data in (("png", png(8)), ("cls", b"%d" % (i % 3))):
            member = tarfile.TarInfo(f"{i}.{ending}")
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
END
python3 pictures.py || fail "no pictures"

say "the same bytes for any number of ranks and threads"
run 0 "$banyan" pack --images pets --out one --shard-mib 1 --threads 1
holds out "240 pictures in 2 shards"
run 0 "$banyan" launch -n 2 pack --images pets --out two --shard-mib 1
run 0 "$banyan" pack --images pets --out three --shard-mib 1 --threads 3 --json
[ "$(field written <out)" = 2 ] || fail "not two shards were written"
diff -r one two && diff -r one three || fail "the shards differ"
[ ! -e two.partial ] || fail "two.partial is left"

say "goes on where a killed run was, and refuses other pictures"
cp -r one four.partial
rm four.partial/shard-000001.tar
echo torn >four.partial/shard-000001.tar.99.tmp
run 0 "$banyan" pack --images pets --out four --shard-mib 1 --json
[ "$(field written <out)" = 1 ] || fail "not one shard was written"
diff -r one four || fail "the shards differ after a kill"
run 0 "$banyan" pack --images pets --out four --shard-mib 1 --json
[ "$(field written <out)" = 0 ] || fail "a shard was written again"
run 2 "$banyan" pack --images pets --out four --shard-mib 2
holds err "four is of other pictures or options"

say "few pages, and the bytes that were there"
cat >check.py <<'END'
import glob, json, tarfile
want = {open(path, "rb").read(): path.split("/")[1] for path in glob.glob("pets/*/*.png")}
found = 0
for path in sorted(glob.glob("one/*.tar")):
    assert len(open(path, "rb").read()) % 4096 == 0
    names = label = None
    for member in tarfile.open(path):
        data = tarfile.open(path).extractfile(member).read()
        if member.name == "__classes.json":
            names = json.loads(data)["names"]
        elif member.name.endswith(".cls"):
            label = names[int(data)]
        else:
            assert want[data] == label, member.name
            pages = (member.offset_data % 4096 + member.size + 4095) // 4096
            assert pages == (member.size + 4095) // 4096, member.name
            found += 1
assert found == 240, found
END
python3 check.py || fail "the shards do not hold the pictures"

say "training reads them, with the names of the classes"
cat >t.yaml <<END
name: packed
task: {kind: classify}
model: {kind: resnet, stem: small, width: 8, depths: [1, 1], image_height: 16, image_width: 16}
data: {images: two, resize: crop, valid_fraction: 0.2, decode: use, shuffle_files: 1}
train: {steps: 2, batch: 8, eval_every: 2, threads: 1}
run: {dir: runs}
END
run 0 "$banyan" train t.yaml --quiet
holds runs/packed/config.yaml "label_names: [ant, bee, cat]"

say "how well an epoch mixes shards, and what it says of each held-out one"
python3 - <<'END' || fail "no shards"
import glob, os, tarfile
paths = sorted(glob.glob("pets/*/*.png"))
os.mkdir("many")
os.mkdir("held")
for shard in range(8):
    with tarfile.open(f"{'held' if shard > 5 else 'many'}/part-{shard}.tar", "w") as out:
        for path in paths[shard * 30:shard * 30 + 30]:
            name = path.replace("/", "_")[:-4]
            open("label", "w").write(str(["ant", "bee", "cat"].index(path.split("/")[1])))
            out.add(path, name + ".png")
            out.add("label", name + ".cls")
END
set -- --set 'data.images=[many]' --set 'data.valid_images=[held]' \
    --set 'data.label_names=[ant, bee, cat]' --set name=many
run 0 "$banyan" data stats t.yaml "$@" --set data.shuffle_files=2 --json
cp out mixed.json
run 0 "$banyan" data stats t.yaml "$@" --set data.shuffle_files=0 --json
python3 - <<'END' || fail "$(cat mixed.json out)"
import json
few, every = json.load(open("mixed.json"))["order"], json.load(open("out"))["order"]
assert few["files"] == every["files"] == 6 and every["window"] == 0 and few["window"] == 60 and few["samples"] == 180
assert every["drawn"] == every["shuffled"] and abs(few["shuffled"]["same_file"] - every["drawn"]["same_file"]) < 0.05
assert few["drawn"]["same_file"] > 1.5 * few["shuffled"]["same_file"]
assert few["drawn"]["files_per_batch"] < few["shuffled"]["files_per_batch"]
assert few["drawn"]["window_class_distance"] > 2 * few["shuffled"]["window_class_distance"]
assert abs(every["drawn"]["displacement"] - 1 / 3) < 0.06 and every["drawn"]["window_class_distance"] is None
END
run 0 "$banyan" data stats t.yaml "$@"
holds out "windows of 30"
run 0 "$banyan" train t.yaml "$@"
holds out "  part-6 "
grep '"accuracy_part-7"' runs/many/events.jsonl >event || fail "no event has the accuracy of a shard"
run 0 "$banyan" eval runs/many --json
cp out all.json
grep -q "$(grep -o '"accuracy_part-7":[^,}]*' all.json)" event || fail "other numbers: $(cat event all.json)"
for i in 6 7; do
    run 0 "$banyan" eval runs/many --data "held/part-$i.tar" --json
    cp out one-$i.json
done
run 0 "$banyan" eval runs/many --data held --json
same out all.json
python3 - <<'END' || fail "$(cat all.json one-6.json one-7.json)"
import json
every = json.load(open("all.json"))
for i in (6, 7):
    one = json.load(open(f"one-{i}.json"))
    assert one["samples"] == 30 and "valid_loss_part-6" not in one
    assert abs(every[f"valid_loss_part-{i}"] - one["valid_loss"]) < 1e-6 and every[f"accuracy_part-{i}"] == one["accuracy"]
mean = lambda key: (every[key + "_part-6"] + every[key + "_part-7"]) / 2
assert abs(mean("valid_loss") - every["valid_loss"]) < 1e-6 and abs(mean("accuracy") - every["accuracy"]) < 1e-6
END

say "labels that are names: the classes are those of all shards, in their order"
python3 - <<'END' || fail "no shards"
import gzip, glob, io, json, os, tarfile
os.mkdir("named")
paths = sorted(glob.glob("pets/*/*.png"))
def write(shard, samples, classes=None):
    with tarfile.open(shard, "w") as out:
        def add(name, data):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
        if classes:
            add("__classes.json", json.dumps({"names": classes}).encode())
        for i, (path, label) in enumerate(samples):
            add(f"{i}.png", open(path, "rb").read())
            add(f"{i}.json" if i % 2 else f"{i}.cls", json.dumps({"label": label}).encode() if i % 2 else str(label).encode())
name = lambda path: {"cat": "zebra fish", "ant": "\u00e4rmel", "bee": "bee"}[path.split("/")[1]]
for i in range(3):
    write(f"named/{i}.tar", [(path, name(path)) for path in reversed(paths[i * 80:i * 80 + 60])])
write("numbers.tar", [(path, 1) for path in paths[:3]])
write("declared.tar", [(path, ("yak", 1, "bee")[i]) for i, path in enumerate(paths[100:103])], ["yak", "bee"])
write("other.tar", [(path, "gnu") for path in paths[:3]], ["yak", "bee"])
write("latin.tar", [(paths[0], "x")])
data = open("latin.tar", "rb").read()
open("latin.tar", "wb").write(data.replace(b"x" + bytes(511), b"\xe4" + bytes(511)))
END
run 0 "$banyan" pack --images named --out names-one --shard-mib 1
run 0 "$banyan" launch -n 3 pack --images named/2.tar named/0.tar named/1.tar --out names-three --shard-mib 1
diff -r names-one names-three || fail "the shards differ"
tar xOf names-one/shard-000000.tar __classes.json >classes
[ "$(cat classes)" = '{"names": ["bee", "zebra fish", "ärmel"]}' ] || fail "other classes: $(cat classes)"
sed -e 's/"one\/\*.tar"/"names-one\/*.tar"/' -e 's/found == 240/found == 180/' \
    -e 's/path.split("\/")\[1\]/{"cat": "zebra fish", "ant": "ärmel", "bee": "bee"}[path.split("\/")[1]]/' check.py >check-names.py
python3 check-names.py || fail "the pictures have other names"
run 0 "$banyan" pack --images named declared.tar --out names-more
tar xOf names-more/shard-000000.tar __classes.json >classes
[ "$(cat classes)" = '{"names": ["bee", "yak", "zebra fish", "ärmel"]}' ] || fail "other classes: $(cat classes)"
run 1 "$banyan" pack --images named numbers.tar --out none
holds err "numbers.tar has labels that are numbers, and named/0.tar labels that are names"
run 1 "$banyan" pack --images other.tar --out none
holds err "other.tar, sample 0: its label, 'gnu', is none of the classes that the shard names"
run 1 "$banyan" pack --images latin.tar --out none
holds err "is no text of UTF-8, which names of classes are"
run 1 "$banyan" train t.yaml --set data.images=named --set name=named
holds err "or pack the shards (banyan pack --images)"

say "held-out data of other classes than numbered shards is refused"
python3 - <<'END' || fail "no shards"
import glob, io, os, shutil, tarfile
paths = sorted(glob.glob("pets/*/*.png"))
for shard, classes in (("three.tar", 3), ("five.tar", 5)):
    with tarfile.open(shard, "w") as out:
        for i, path in enumerate(paths[:30]):
            member = tarfile.TarInfo(f"{i}.cls")
            member.size = 1
            out.addfile(member, io.BytesIO(b"%d" % (i % classes)))
            out.add(path, f"{i}.png")
for folder, names in (("two", ("bee", "cat")), ("digits", ("0", "01", "2"))):
    for name in names:
        os.makedirs(f"{folder}-held/{name}")
        shutil.copy(paths[0], f"{folder}-held/{name}")
END
set -- --set data.images=three.tar --set data.valid_fraction=0 --set data.shuffle_files=0 --set name=apart
run 2 "$banyan" train t.yaml "$@" --set data.valid_images=five.tar
holds err "five.tar, sample "
holds err "has the label 4, but those of the training data are below 3"
for folder in two digits; do
    run 2 "$banyan" train t.yaml "$@" --set data.valid_images=$folder-held
    holds err "$folder-held has"
    holds err "set data.label_names"
done
run 0 "$banyan" train t.yaml "$@" --set data.valid_images=pets --quiet
run 0 "$banyan" train t.yaml "$@" --set data.valid_images=five.tar --set model.outputs=5 --set name=more --quiet
run 0 "$banyan" train t.yaml "$@" --set data.valid_images=two-held --set 'data.label_names=[ant, bee, cat]' \
    --set name=two --quiet

say "compressed streams, Parquet files, and shards anew"
run 0 "$banyan" pack --images stream.tar.gz one --out five
holds out "252 pictures in 1 shards"
[ ! -e five/streams ] || fail "what was decompressed is left"
run 1 "$banyan" pack --images "$root/tests/fuzz/corpus/parquet_images/struct_zstd_2" --out six
holds err "struct_zstd_2, sample"
holds err "--corrupt skip"
run 0 "$banyan" pack --images "$root/tests/fuzz/corpus/parquet_images/struct_zstd_2" --out six --corrupt skip
holds out "23 pictures in 1 shards"
holds out "1 damaged pictures are left out"
tar xOf six/shard-000000.tar __classes.json >out
holds out '"ant", "bee", "cat"'
run 1 "$banyan" train t.yaml --set data.images=stream.tar.gz --set name=stream
holds err "banyan pack --images"
mkdir streaming
printf '\050\265\057\375\004\000compressed by zstd' >streaming/shard.00000.mds.zstd
cp streaming/shard.00000.mds.zstd plain.mds
for shard in streaming streaming/shard.00000.mds.zstd plain.mds; do
    run 1 "$banyan" train t.yaml --set data.images=$shard --set name=stream
    holds err "is compressed: pictures are read where they lie"
done

say "files that are no pictures are packed with --corrupt skip, and left out of training"
cp -r pets mixed
rm mixed/ant/00*.png
echo text >mixed/ant/text.png
: >mixed/bee/empty.png
run 1 "$banyan" pack --images mixed --out six-mixed
holds err "--corrupt skip"
run 0 "$banyan" pack --images mixed --out six-mixed --corrupt skip
holds out "231 pictures in 1 shards"
holds out "1 damaged pictures are left out"
run 1 "$banyan" train t.yaml --set data.images=six-mixed --set data.shuffle_files=0 --set name=mixed
holds err "is neither a JPEG, a PNG nor a WebP"
run 0 "$banyan" train t.yaml --set data.images=six-mixed --set data.shuffle_files=0 --set name=mixed \
    --set data.corrupt=skip --quiet

say "what is no file of CIFAR"
head -c 5000 plain.mds >wrong.bin
run 1 "$banyan" train t.yaml --set data.images=wrong.bin --set data.format=cifar10 --set data.decode=ahead \
    --set data.shuffle_files=0 --set name=cifar
holds err "records of 3073 bytes: name the files of its binary version, data_batch_1.bin"
run 2 "$banyan" train t.yaml --set data.images=six-mixed --set data.format=cifar10 --set name=cifar
holds err "six-mixed is no file of data.format cifar10"
