#!/bin/sh
# The smallest program, without any optional library: it is configured and built, trains, and says of each thing that
# it lacks how to get it.
. "$(dirname "$0")/../support/shell.sh"

build=$(cd "$(dirname "$banyan")" && pwd)
[ -e "$build/compile_commands.json" ] || { echo "skipped: $build is no build" && exit 77; }
grep -q '^BY_SANITIZE:STRING=$' "$build/CMakeCache.txt" || { echo "skipped: objects with a sanitizer" && exit 77; }

say "the program is configured, compiled where it differs, and linked with four libraries"
run 0 python3 "$root/tests/support/smallest.py" "$root" "$build" .
whole=$banyan
banyan=$work/banyan
run 0 ldd "$banyan"
for library in cairo curl uv nettle pcre2 hiredis seccomp jpeg png webp "libz\." snappy zstd mpi; do
    if grep -q "$library" out; then fail "it needs $library"; fi
done
run 0 "$banyan" --version
holds out "without mpi, server, redis, feast, sandbox, curl, plots, jpeg, png, webp, zlib, snappy, zstd, nettle, pcre2, onednn"
run 0 "$banyan" doctor
holds out "without      plots (charts)"
run 0 "$whole" --version
holds out "with mpi, server"

say "it trains, with the weights of the whole program"
tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set name=small --set train.steps=2 --set optimizer.warmup=1
run 0 "$whole" train c.yaml --quiet --set name=whole --set train.steps=2 --set optimizer.warmup=1
same runs/small/checkpoints/step-00000002/model.safetensors runs/whole/checkpoints/step-00000002/model.safetensors

# lacks PART PACKAGE ARGUMENTS...: exit code 2, naming option and package.
lacks() {
    part=$1
    package=$2
    shift 2
    say "without $part: $*"
    run 2 "$banyan" "$@"
    holds err "built without $part; ${package:+install $package}"
    holds err "build it with -DBY_WITH_$(echo "$part" | tr a-z A-Z)=on"
}
lacks plots libcairo2-dev plot runs/small --out loss.png
lacks plots libcairo2-dev info c.yaml --out memory.svg
lacks nettle nettle-dev checkpoint digest runs/small
lacks curl libcurl4-openssl-dev train c.yaml --set name=m --set track.sinks=[mlflow]
lacks curl libcurl4-openssl-dev runs sync runs/small --server http://127.0.0.1:1
lacks server libuv1-dev serve runs/small
lacks server libuv1-dev deploy --status --name tiny
lacks server libuv1-dev drift report runs/small --data text.txt
lacks server libuv1-dev bench serve http://127.0.0.1:1 --model a --requests 1
OMPI_COMM_WORLD_SIZE=2
export OMPI_COMM_WORLD_SIZE
lacks mpi libopenmpi-dev train c.yaml --set name=ranks
unset OMPI_COMM_WORLD_SIZE
echo "YQ== 0" >ranks.tiktoken
lacks nettle nettle-dev pack text.txt --output packed --tokenizer ranks.tiktoken
echo '{"q": "1 + 1", "a": "2"}' >items.jsonl
cat >suite.yaml <<END
task: sums
dataset_path: json
dataset_kwargs: {data_files: items.jsonl}
test_split: train
output_type: generate_until
doc_to_text: "{{q}} ="
doc_to_target: "{{a}}"
filter_list: [{filter: [{function: regex}]}]
END
lacks pcre2 libpcre2-dev eval runs/small --suite suite.yaml

say "images and files in formats without a library"
cat >images.yaml <<END
name: images
task: {kind: classify}
model: {kind: vit, layers: 1, heads: 2, width: 16, patch: 4, image_height: 8, image_width: 8}
data: {images: folder, resize: crop, valid_fraction: 0.5}
train: {steps: 2, batch: 2}
END
for format in jpeg png webp; do
    rm -rf folder
    mkdir -p folder/a folder/b
    for name in a/1 a/2 b/1 b/2; do
        case $format in
        jpeg) printf '\377\330\377\340image' >folder/$name.jpg ;;
        webp) printf 'RIFF\026\0\0\0WEBPVP8 \012\0\0\0\060\0\0\235\001\052\010\0\010\0' >folder/$name.webp ;;
        png) printf '\211PNG\r\n\032\nimage' >folder/$name.png ;;
        esac
    done
    lacks "$format" "lib$format-dev" train images.yaml
done
printf '\037\213\010\000' >x.gz
lacks zlib zlib1g-dev train images.yaml --set data.images=x.gz --set data.labels=x.gz

say "a server without what it may lack"
mkdir server
run 0 python3 "$root/tests/support/smallest.py" "$root" "$build" server REDIS FEAST SANDBOX CURL
banyan=$work/server/banyan
lacks sandbox libseccomp-dev serve runs/small --listen 127.0.0.1:0
cat >server.yaml <<END
webhooks: {origins: ["http://127.0.0.1:1"]}
END
lacks curl libcurl4-openssl-dev gateway --no-sandbox --listen 127.0.0.1:0 --dir . --traces http://127.0.0.1:1/v1/traces
lacks curl libcurl4-openssl-dev serve --check --config server.yaml runs/small
echo "features: {store: redis://127.0.0.1:1}" >server.yaml
lacks feast "" serve --check --config server.yaml runs/small
lacks redis libhiredis-dev gateway --no-sandbox --listen 127.0.0.1:0 --broker redis://127.0.0.1:1
