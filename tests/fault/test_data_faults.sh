#!/bin/sh
# Faults of the data that a run trains on.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 | sed "s/warmup: 5/warmup: 1/" >c.yaml

say "a shard that is cut short while the run trains: an error that names it, and what was learned is saved"
rm -f lines
mkfifo lines
"$banyan" train c.yaml --json --set name=cut --set train.steps=1000000 --set train.eval_every=0 \
    --set checkpoint.every=0 >lines 2>err &
background=$!
while read -r line; do
    case $line in
    *'"event":"train","step":5,'*) for shard in cache/*/train/tokens-*.npy; do truncate -s 1000 "$shard"; done ;;
    esac
done <lines
wait "$background"
code=$?
background=
[ "$code" -eq 1 ] || fail "exit code $code: $(cat err)"
holds err "tokens-00000.npy no longer has byte "
holds err "the file was truncated while it was in use"
holds runs/cut/run.json '"failed"'
[ "$(ls runs/cut/checkpoints | grep -c '^step-')" -eq 1 ] || fail "what was learned was not saved"

# flip FILE OFFSET: writes other bytes of the vocabulary there, at equal length.
flip() { printf '\001\000\002\000' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }

rm -r cache
say "checksums are verified at the first use of packed data, and once"
head -n 2000 text.txt >train.txt
tail -n 500 text.txt >valid.txt
run 0 "$banyan" train c.yaml --quiet --set name=base
tokenizer=$(ls runs/base/checkpoints/step-*/tokenizer.json | head -n 1)
run 0 "$banyan" pack train.txt --output packed/train --tokenizer "$tokenizer"
run 0 "$banyan" pack valid.txt --output packed/valid --tokenizer "$tokenizer"
run 0 "$banyan" data verify packed --json
holds out '"directory":"packed/train"'
holds out '"directory":"packed/valid"'
set -- train c.yaml --quiet --set train.steps=2 --set train.eval_batches=1 --set "data.text=[]" --set data.train=packed/train
run 0 "$banyan" "$@" --set data.valid=packed/valid
exists packed/train/.verified packed/valid/.verified
flip packed/train/tokens-00000.npy 1000
run 1 "$banyan" "$@"
holds err "packed/train/tokens-00000.npy: damaged"
run 1 "$banyan" data verify packed/train
holds err "packed/train/tokens-00000.npy: damaged"
rm -r packed/train
run 0 "$banyan" pack train.txt --output packed/train --tokenizer "$tokenizer"
run 0 "$banyan" "$@"
sed 's/"type"/"type" /' packed/train/tokenizer.json >same.json && cp same.json packed/train/tokenizer.json
run 0 "$banyan" "$@"
cp packed/train/tokenizer.json kept.json
sed 's/"a": *[0-9]*/"\&": 7/' kept.json >packed/train/tokenizer.json
run 1 "$banyan" data verify packed/train
holds err "packed/train/tokenizer.json"
cp kept.json packed/train/tokenizer.json

say "what is no regular file is refused, and never waited for"
rm -rf pipes && mkdir pipes
for name in c.yaml a.jpg a.npy; do mkfifo "pipes/$name"; done
cp -r runs/base pipes/run
rm pipes/run/events.jsonl
mkfifo pipes/run/events.jsonl "$(ls -d pipes/run/checkpoints/step-* | tail -n 1)/chat_template.jinja"
printf 'model: {kind: vit, layers: 1, heads: 2, width: 32, patch: 14}\ntask: {kind: classify}\n' >pictures.yaml
while read -r code command; do
    timeout 60 "$banyan" $command >out 2>err </dev/null
    [ $? -eq "$code" ] || fail "$command: $(cat err)"
    holds err "it is not a regular file"
done <<END
2 info pipes/c.yaml
2 train pipes/c.yaml
2 serve --config pipes/c.yaml --check
1 generate pipes/run --prompt a --tokens 1
1 runs show pipes/run
1 watch pipes/run --once
1 train --resume pipes/run --set train.steps=1000
1 train pictures.yaml --set data.images=pipes/a.jpg
1 train pictures.yaml --set data.images=pipes/a.npy
END

say "data of another tokenizer is refused"
run 0 "$banyan" pack valid.txt --output other --tokenizer bpe --vocab 300
run 2 "$banyan" "$@" --set data.valid=other
holds err "was packed with another tokenizer"
run 2 "$banyan" eval runs/base --data other
holds err "was packed with another tokenizer"
holds err "pack it with --tokenizer"

say "weights to start from bring their tokenizer and their sizes"
weights=$(ls -d runs/base/checkpoints/step-*20)
set -- train c.yaml --quiet --set name=tuned --set train.steps=2 --set model.from="$weights"
run 0 "$banyan" "$@" --set data.text=valid.txt
same "$tokenizer" runs/tuned/checkpoints/step-00000002/tokenizer.json
run 0 "$banyan" pack valid.txt --vocab 300 --out pairs
run 2 "$banyan" "$@" --set data.text=valid.txt --set data.tokenizer=pairs/tokenizer.json
holds err "was packed with another tokenizer"
run 2 "$banyan" "$@" --set data.text=valid.txt --set model.layers=3
holds err "model.layers is 3, but the weights of model.from=$weights have 2"
say "so does a value that is the default, a file's as an override's"
for key in layers=4 width=128 mlp_width=77 norm_eps=0.1 kind=llama context=65; do
    run 2 "$banyan" "$@" --set data.text=valid.txt --set model.$key
    holds err "model.${key%=*} is ${key#*=}, but the weights of model.from=$weights have "
done
printf 'base: c.yaml\nmodel: {width: 128}\n' >sized.yaml
run 2 "$banyan" train sized.yaml --set name=tuned --set model.from="$weights"
holds err "model.width is 128, but the weights of model.from=$weights have "
run 2 "$banyan" "$@" --set data.text=valid.txt --set model.rope_scaling=ntk
holds err "model.rope_scaling belongs to llama, mixtral; the kind here is gpt2"
say "and a resumed run needs neither"
mv runs/base elsewhere
run 0 "$banyan" train --resume runs/tuned --quiet --set train.steps=4
mv elsewhere runs/base

say "text, JSON lines and standard input are packed with the run's tokenizer"
run 0 "$banyan" eval runs/base --data packed/valid --json
field valid_loss <out >packed.loss
run 0 "$banyan" eval runs/base --data valid.txt --json
field valid_loss <out >text.loss
same packed.loss text.loss
"$banyan" eval runs/base --data - --json <valid.txt >out 2>err || fail "standard input: $(cat err)"
field valid_loss <out >input.loss
same packed.loss input.loss
awk 'BEGIN { printf "{\"text\": \"" } { printf "%s\\n", $0 } END { print "\"}" }' valid.txt >valid.jsonl
run 0 "$banyan" eval runs/base --data valid.jsonl --json
field valid_loss <out >lines.loss
same packed.loss lines.loss
mkdir tmp
TMPDIR=$work/tmp run 0 "$banyan" eval runs/base --data valid.txt --json
[ -z "$(ls -A tmp)" ] || fail "left over: $(ls -A tmp)"

say "text that was edited at equal length is not resumed on"
run 0 "$banyan" train c.yaml --quiet --set name=edited --set train.steps=10
sed -i '1s/a/e/' text.txt
run 2 "$banyan" train --resume runs/edited --set train.steps=20
holds err "was trained on other text of the same length"
