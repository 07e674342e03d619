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
