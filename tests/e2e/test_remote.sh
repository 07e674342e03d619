#!/bin/sh
# Data that is remote, from a web server and a store of S3 of this machine (tests/support/remote_server.py): runs have
# the bits of local files whatever the servers do, nothing is fetched twice, and no credential is written anywhere.
. "$(dirname "$0")/../support/shell.sh"

unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY AWS_PROFILE AWS_ENDPOINT_URL_S3
export HOME="$work/home"
mkdir -p home/.aws files/bucket

servers=
stop_servers() {
    # shellcheck disable=SC2086
    [ -z "$servers" ] || kill $servers 2>/dev/null
}
on_exit=stop_servers
# serve FAULT...: starts a server of files/; its address is in $server.
serve() {
    rm -f port
    python3 "$root/tests/support/remote_server.py" "$work/files" "$work/port" "$work/log" "$@" &
    servers="$servers $!"
    until [ -s port ]; do
        kill -0 $! 2>/dev/null || fail "the server did not start"
        sleep 0.02
    done
    server=http://127.0.0.1:$(cat port)
}
# equal A B: the runs have the same weights.
equal() {
    last=$(ls "runs/$1/checkpoints" | tail -n 1)
    same "runs/$1/checkpoints/$last/model.safetensors" "runs/$2/checkpoints/$last/model.safetensors"
}

say "shards of pictures, a table and a text are made"
python3 - <<'END' || fail "no shards"
import io, random, struct, tarfile, zlib
random.seed(1)
def png(pixels, side):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[side * i : side * i + side] for i in range(side))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")
for shard in range(5):
    # With a member that makes each larger than a third of the small cache.
    with tarfile.open(f"files/bucket/train-{shard:03d}.tar", "w") as t:
        for i in range(24):
            label = (i + shard) % 3
            pixels = bytes(min(255, 60 * label + random.randrange(70)) for _ in range(256))
            for name, data in ((f"{i:04d}.png", png(pixels, 16)), (f"{i:04d}.cls", str(label).encode()), (f"{i:04d}.bin", random.randbytes(12000))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
import os
for label in ("left", "right"):
    os.makedirs(f"files/zoo/pets & more/{label}")
    for i in range(5):
        pixels = bytes(random.randrange(256) for _ in range(256))
        open(f"files/zoo/pets & more/{label}/{i} +.png", "wb").write(png(pixels, 16))
with open("files/table.csv", "w") as out:
    out.write("a,b,y\n")
    for i in range(200):
        a, b = random.random(), random.random()
        out.write(f"{a:.4f},{b:.4f},{2 * a - b:.4f}\n")
END
cp text.txt files/text.txt
cat >images.yaml <<END
name: local
task: {kind: classify}
model: {kind: resnet, width: 8, depths: [1, 1, 1, 1], stem: small, channels: 1, image_height: 16, image_width: 16}
precision: {compute: f32}
data: {images: ['files/bucket/train-000.tar', 'files/bucket/train-001.tar', 'files/bucket/train-002.tar', 'files/bucket/train-003.tar', 'files/bucket/train-004.tar'], resize: crop, decode: use, threads: 3, transforms: [resized_crop, flip], remote_cache: cache}
train: {steps: 6, batch: 8, eval_every: 6, log_every: 1}
checkpoint: {every: 3}
run: {dir: runs}
END
run 0 "$banyan" train images.yaml

say "shards of a server that fails: the same bits, from a range of names"
serve flaky
flaky=$server
range="$flaky/bucket/train-{000..004}.tar"
run 0 "$banyan" train images.yaml --set "data.images=$range" --set name=flaky
equal local flaky
grep -q '^503' log || fail "the server did not fail"

say "a cache that holds two shards of five; a resume within it; few shards at a time"
run 0 "$banyan" train images.yaml --set "data.images=$range" --set name=small --set data.remote_cache=small --set data.remote_cache_size=1MiB
equal local small
rm -r runs/small/checkpoints/step-00000006
run 0 "$banyan" train --resume runs/small
equal local small
for threads in 1 3; do
    run 0 "$banyan" train images.yaml --set "data.images=$range" --set name=few$threads --set data.threads=$threads --set data.shuffle_files=1 --set data.remote_cache=small --set data.remote_cache_size=1MiB
done
equal few1 few3
if cmp -s runs/local/checkpoints/step-00000006/model.safetensors runs/few1/checkpoints/step-00000006/model.safetensors; then fail "the order is the same"; fi
rm -r runs/few1/checkpoints/step-00000006
run 0 "$banyan" train --resume runs/few1
equal few1 few3
[ "$(du -sk small | cut -f 1)" -le 1500 ] || fail "the cache holds $(du -sk small)"

say "the index of the shards is kept, and a damaged one is made again"
serve
: >log
run 0 "$banyan" train images.yaml --set "data.images=$server/bucket/train-{000..004}.tar" --set name=first --set data.remote_cache=indexed
ls indexed/index/*.index >a
[ "$(wc -l <a)" = 5 ] || fail "$(cat a)"
find indexed -mindepth 1 -maxdepth 1 ! -name index -exec rm -r {} +
printf '!' | dd of="$(head -n 1 a)" bs=1 seek=60 conv=notrunc 2>/dev/null
cp "$(sed -n 2p a)" second.index
run 0 "$banyan" train images.yaml --set "data.images=$server/bucket/train-{000..004}.tar" --set name=again --set data.remote_cache=indexed
equal local again
same second.index "$(sed -n 2p a)"

say "two processes share each block of a text"
: >log
"$banyan" pack $server/text.txt --tokenizer char --out packed_a --remote-cache shared >a 2>&1 &
background=$!
run 0 "$banyan" pack $server/text.txt --tokenizer char --out packed_b --remote-cache shared
wait "$background" || fail "$(cat a)"
background=
run 0 "$banyan" pack text.txt --tokenizer char --out packed_local
for file in tokens-00000.npy documents.npy; do
    [ ! -e packed_local/$file ] || { same packed_local/$file packed_a/$file; same packed_local/$file packed_b/$file; }
done
[ "$(grep '^206' log | cut -d ' ' -f 3 | sort | uniq -d)" = "" ] || fail "fetched twice: $(cat log)"

say "a URL that is no text is refused as a file is"
printf '\211PNG\r\n\032\n' >files/notes.txt
head -c 4000 /dev/zero >>files/notes.txt
run 1 "$banyan" pack files/notes.txt --tokenizer char --out packed_none
holds err "is no text: it is a PNG picture"
run 1 "$banyan" pack $server/notes.txt --tokenizer char --out packed_none --remote-cache shared
holds err "$server/notes.txt is no text: it is a PNG picture"

say "a table"
cat >table.yaml <<END
name: table
task: {kind: regress}
model: {kind: mlp, layers: 1, width: 8}
precision: {compute: f32}
data: {table: files/table.csv, target: y, remote_cache: cache}
train: {steps: 5, batch: 16, log_every: 1}
run: {dir: runs}
END
run 0 "$banyan" train table.yaml
run 0 "$banyan" train table.yaml --set data.table=$flaky/table.csv --set name=far_table
equal table far_table
run 0 "$banyan" eval runs/far_table --data $flaky/table.csv --json

say "a signature in the query of a URL is in nothing but the config"
python3 - <<'END' || fail "no shard"
import io, tarfile
with tarfile.open("files/bucket/train-000.tar") as whole, tarfile.open("files/damaged.tar", "w") as out:
    for info in whole:
        data = whole.extractfile(info).read()
        data = data[:40] + b"damage" + data[46:] if info.name == "0005.png" else data
        out.addfile(info, io.BytesIO(data))
END
signed="$server/damaged.tar?sig=SECRET"
run 0 "$banyan" train images.yaml --set "data.images=$signed" --set data.corrupt=skip --set data.corrupt_budget=2 --set name=signed --set train.steps=2 --set train.eval_every=2
cat out err >shown
holds shown "left out: $server/damaged.tar, sample 0005"
run 0 "$banyan" predict runs/signed "$signed"
cat out err >>shown
holds out "\"file\":\"$server/damaged.tar\""
run 1 "$banyan" train images.yaml --set "data.images=$signed" --set data.corrupt=fail --set name=refused --set data.decode=ahead --set data.transforms=[]
cat out err >>shown
holds err "$server/damaged.tar, sample 0005"
run 2 "$banyan" train images.yaml --set 'data.draws=https://u:SECRET@h/x?SECRET'
cat out err >>shown
rm runs/signed/config.yaml
if grep -r -F -e SECRET shown runs; then fail "a signature was written"; fi

say "S3: requests are signed, folders listed, and credentials kept out of everything"
cat >home/.aws/credentials <<END
[default]
aws_access_key_id = TESTKEY
aws_secret_access_key = testsecret/+x
aws_session_token = testtoken==
[wrong]
aws_access_key_id = TESTKEY
aws_secret_access_key = testsecret/wrong
aws_session_token = testtoken==
END
printf '[default]\nregion = test-region-1\n[profile wrong]\nregion = test-region-1\n' >home/.aws/config
export AWS_ENDPOINT_URL=$flaky/s3
run 0 "$banyan" train images.yaml --set data.images=s3://bucket/ --set name=store
equal local store
run 0 "$banyan" train images.yaml --set "data.images=files/zoo/pets & more" --set name=pets --set train.batch=4
run 0 env AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=testsecret/+x AWS_SESSION_TOKEN=testtoken== AWS_SHARED_CREDENTIALS_FILE=none AWS_REGION=test-region-1 \
    "$banyan" train images.yaml --set "data.images=s3://zoo/pets & more/" --set name=far_pets --set train.batch=4
equal pets far_pets
if grep -r -q -F -e 'testsecret' -e 'testtoken' runs cache out err; then fail "a credential was written"; fi
export AWS_PROFILE=wrong
run 1 "$banyan" train images.yaml --set data.images=s3://bucket/train-000.tar --set name=wrong --set data.remote_cache=other
holds err "s3://bucket/train-000.tar: access is denied (status 403, SignatureDoesNotMatch)"
if grep -q -F -e TESTKEY -e testsecret -e testtoken err; then fail "a credential was shown"; fi
unset AWS_PROFILE
run 1 "$banyan" pack s3://bucket/none.txt --out none --tokenizer char --remote-cache other
holds err "s3://bucket/none.txt: the server has no such file (status 404, NoSuchKey)"

say "a run that waits for a server stops when it is asked to, and saves what is done"
serve hold
: >log
"$banyan" train images.yaml --set "data.images=$server/bucket/train-{000..004}.tar" --set name=held --set train.steps=1000000 \
    --set train.eval_every=1000000 --set data.remote_cache=few --set data.remote_cache_size=1MiB --quiet >a 2>&1 &
background=$!
until [ -s runs/held/events.jsonl ] && grep -q '"step":3' runs/held/events.jsonl; do
    kill -0 "$background" 2>/dev/null || fail "$(cat a)"
    sleep 0.02
done
: >files/.hold
until grep -q '^held' log; do
    kill -0 "$background" 2>/dev/null || fail "$(cat a)"
    sleep 0.02
done
kill -INT "$background"
status=0
wait "$background" || status=$?
background=
[ "$status" = 3 ] || fail "status $status: $(cat a)"
grep -q 'stopped at step' a || fail "$(cat a)"
ls runs/held/checkpoints/step-* >/dev/null || fail "nothing was saved"
rm files/.hold

say "what the network does not give is no damage, which corrupt: skip would leave out"
serve "gone=3 +.png"
for decode in ahead use; do
    run 1 env AWS_ENDPOINT_URL=$server/s3 "$banyan" train images.yaml --set "data.images=s3://zoo/pets & more/" --set name=gone \
        --set data.decode=$decode --set data.corrupt=skip --set data.corrupt_budget=9 --set data.remote_cache=other --set train.batch=4
    holds err "3 +.png: the server has no such file (status 404, NoSuchKey)"
done

say "killed while it fetches: nothing is torn, and what came is not fetched again"
: >log
serve stall=2
stalled=$server
head -c 900000 /dev/urandom | base64 -w 60 >files/long.txt
"$banyan" pack $stalled/long.txt --tokenizer char --out packed_long --remote-cache killed >a 2>&1 &
background=$!
# The first block is in the cache when the others are asked for.
until grep -q '^stalled' log; do
    kill -0 "$background" 2>/dev/null || fail "$(cat a)"
    sleep 0.02
done
kill -9 "$background"
wait "$background" 2>/dev/null
background=
: >files/.go
run 0 "$banyan" pack $stalled/long.txt --tokenizer char --out packed_long --remote-cache killed
run 0 "$banyan" pack files/long.txt --tokenizer char --out packed_near
[ "$(grep -c '^206 /long.txt bytes=0-' log)" = 1 ] || fail "$(cat log)"
for file in packed_near/*.npy; do same "$file" "packed_long/${file##*/}"; done

say "errors name the URL, and checks of a config ask nobody"
serve whole
run 1 "$banyan" train images.yaml --set data.images=$server/bucket/train-000.tar --set name=whole --set data.remote_cache=other
holds err "does not send parts of files"
for fault in "bare:without Content-Range" "shifted:with byte 1 on, and not 0" "sizeless:without the size of the file" \
    "longer:with more bytes than the 262144"; do
    serve "part=${fault%%:*}"
    run 1 "$banyan" pack $server/text.txt --tokenizer char --out none --remote-cache other
    holds err "$server/text.txt: the server answers a request for a part of it (Range, status 206) ${fault#*:}"
done
run 1 "$banyan" train images.yaml --set data.images=http://127.0.0.1:1/a.tar --set name=nobody --set data.remote_cache=other
holds err "http://127.0.0.1:1/a.tar: 4 attempts failed"
if grep -q proxy err; then fail "$(cat err)"; fi
run 1 env http_proxy=http://127.0.0.1:1 "$banyan" pack http://nobody.invalid/a.txt --out none --tokenizer char --remote-cache other
holds err "http://nobody.invalid/a.txt: 4 attempts failed"
holds err "the proxy that http_proxy names, unless no_proxy names the host"
run 2 env AWS_ENDPOINT_URL=127.0.0.1:9000 "$banyan" pack s3://bucket/a.txt --out none --tokenizer char --remote-cache other
holds err "the endpoint of S3 is '127.0.0.1:9000', and no URL: set AWS_ENDPOINT_URL"
serve
run 2 "$banyan" pack $server/long.txt --out none --tokenizer char --remote-cache tiny --remote-cache-size 1MiB
holds err "data.remote_cache_size; banyan pack: --remote-cache-size"
run 2 "$banyan" pack $server/long.txt --out none --tokenizer char --remote-cache-size much
holds err "must be a number of bytes"
run 2 "$banyan" train images.yaml --set data.train_rows=http://127.0.0.1:1/rows.npy --set name=rows
holds err "is read from a local path, and not from a URL"
run 2 "$banyan" train images.yaml --set data.images=http://user:hidden@127.0.0.1:1/a.tar --set name=user
if grep -q hidden err; then fail "$(cat err)"; fi
