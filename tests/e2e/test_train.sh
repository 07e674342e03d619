#!/bin/sh
# The commands from text to generated words, what a run directory holds, and what bad input is answered.
. "$(dirname "$0")/../support/shell.sh"

tiny gpt2 >c.yaml

say "help and version"
run 0 "$banyan" --help
holds out "banyan COMMAND"
run 0 "$banyan" --version
for command in $("$banyan" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    run 0 "$banyan" "$command" --help
    holds out "usage: banyan $command"
done

say "train: plain lines"
run 0 "$banyan" train c.yaml
holds out "memory "
holds out "step 20/20  loss "
holds out "tok/s"
holds out "valid_loss"

say "the run directory"
exists runs/tiny/config.yaml runs/tiny/environment.json runs/tiny/run.json runs/registry.sqlite \
    runs/tiny/checkpoints/best.json
for step in 10 20; do
    for file in model.safetensors optimizer.safetensors state.json config.json tokenizer.json manifest.json; do
        exists "runs/tiny/checkpoints/step-000000$step/$file"
    done
done
holds runs/tiny/run.json '"done"'
[ "$(grep -c '"event":"train"' runs/tiny/events.jsonl)" -eq 20 ] || fail "not 20 steps in events.jsonl"
[ "$(grep -c '"event":"eval"' runs/tiny/events.jsonl)" -eq 2 ] || fail "not 2 evaluations in events.jsonl"

say "the kept config trains to the same weights, in a directory of its own"
run 0 "$banyan" train runs/tiny/config.yaml --json
head -n 1 out >first
[ "$(field run <first)" = runs/tiny-2 ] || fail "$(cat first)"
same runs/tiny/checkpoints/step-00000020/model.safetensors runs/tiny-2/checkpoints/step-00000020/model.safetensors

say "a peak that training exceeds is not trusted"
mkdir -p low/banyan steps/banyan
python3 - "$XDG_CACHE_HOME/banyan/machine.json" <<'END' || fail "no peak is kept"
import json, sys
with open(sys.argv[1]) as f:
    cache = json.load(f)
for name, peak in (("steps", {}), ("low", {"f32_gflops": 1e-6})):
    for machine in cache["machines"]:
        machine.update(peak, busy=0)
    with open(f"{name}/banyan/machine.json", "w") as f:
        json.dump(cache, f)
END
run 0 env XDG_CACHE_HOME="$work/low" "$banyan" train c.yaml --set train.steps=2 --set optimizer.warmup=0 --set name=low --set run.dir=other
holds out ">100% of peak"
holds err "training exceeds the peak of 0 GFLOP/s"
! grep -q '"mfu"' other/low/events.jsonl || fail "a share above 1 is kept"

say "what a step was planned to take, and takes, also for later plans"
run 0 env XDG_CACHE_HOME="$work/steps" "$banyan" train c.yaml --set train.steps=6 --set optimizer.warmup=0 --set name=steps --set run.dir=planned
grep -q '^step  .* ms planned, 80 % between ' out || fail "$(cat out)"
grep -q '^step  .* ms, planned .* %)$' out || fail "$(cat out)"
grep -q '^memory  .* resident, planned ' out || fail "$(cat out)"
grep '"event":"plan"' planned/steps/events.jsonl | tail -n 1 >last
for key in planned_step_seconds step_seconds planned_bytes resident_bytes; do
    holds last "\"$key\":"
done
run 0 env XDG_CACHE_HOME="$work/steps" "$banyan" plan planned/steps --json
# It is what was learned: the step without what other programs took of it.
learned=$(field measured_s <steps/banyan/steps.json)
near "$(field planned_s <steps/banyan/steps.json)" "$(field planned_step_seconds <last)" 1e-6
near "$(field step_s <out)" "$learned" "$(awk -v s="$learned" 'BEGIN { print s / 50 }')"
awk -v own="$learned" 'BEGIN { exit !(own > 0) }' || fail "$learned"
holds out '"corrected_by":1,'

say "a log ends with what the run used"
printf 'prices: [{device: me, price_per_hour: 2, watts: 65}]\nregions: [{region: here, grams_co2_per_kwh: 100, pue: 1.5}]\n' >prices.yaml
run 0 "$banyan" train c.yaml --set train.steps=2 --set optimizer.warmup=0 --set name=used --set run.dir=used \
    --prices prices.yaml --price-device me --price-region here
holds err " kWh ("
grep '"event":"use"' used/used/events.jsonl | tail -n 1 >last
near "$(field money <last)" "$(awk -v s="$(field seconds <last)" 'BEGIN { print 2 * s / 3600 }')" 1e-6
near "$(field kg_co2 <last)" "$(awk -v e="$(field kwh <last)" 'BEGIN { print e / 10 }')" 1e-9
run 2 "$banyan" train c.yaml --prices prices.yaml
holds err "belong together"

say "a run that is named as a config is a new run, and says so"
run 0 "$banyan" train runs/tiny --quiet --set train.steps=1 --set optimizer.warmup=0 --set name=again
holds err "runs/tiny is a run: its config is trained from step 0, as a new run; to continue it: banyan train --resume runs/tiny"
exists runs/again/config.yaml

say "another seed does not"
run 0 "$banyan" train c.yaml --quiet --set seed=2 --set name=other
[ ! -s out ] || fail "--quiet printed something"
if cmp -s runs/tiny/checkpoints/step-00000020/model.safetensors \
    runs/other/checkpoints/step-00000020/model.safetensors; then fail "equal weights"; fi

say "eval"
run 0 "$banyan" eval runs/tiny --json
valid=$(field valid_loss <out)
near "$(awk -v l="$valid" 'BEGIN { print exp(l) }')" "$(field perplexity <out)" 0.01
near "$(awk -v l="$valid" 'BEGIN { print l / log(2) }')" "$(field bits_per_byte <out)" 0.01
holds out "runs/tiny/checkpoints/step-00000020\""
run 0 "$banyan" eval runs/tiny --batches 4 --json
near "$(field valid_loss <out)" "$(grep '"eval"' runs/tiny/events.jsonl | tail -n 1 | field valid_loss)" 1e-6
reference=runs/tiny/checkpoints/step-00000020/drift_reference.json
bits=$(awk "BEGIN { print $(field valid_loss <out) / log(2) / $(field bytes_per_token <$reference) }")
near "$(field bits_per_byte <$reference)" "$bits" 1e-5

say "eval on packed data"
run 0 "$banyan" pack text.txt --output packed --tokenizer runs/tiny/checkpoints/step-00000020/tokenizer.json \
    --valid-fraction 0.1 --json
[ "$(field text_bytes <out)" -eq "$(wc -c <text.txt)" ] || fail "bytes"
run 0 "$banyan" eval runs/tiny --data packed/valid --batches 4 --json
near "$(field valid_loss <out)" "$(grep '"eval"' runs/tiny/events.jsonl | tail -n 1 | field valid_loss)" 1e-6

say "train on packed data"
run 0 "$banyan" train c.yaml --quiet --set data.text=[] --set data.train=packed/train --set data.valid=packed/valid \
    --set name=packed
same runs/tiny/checkpoints/step-00000020/model.safetensors runs/packed/checkpoints/step-00000020/model.safetensors

say "generate: the same text for the same seed, another for another"
for seed in 1 1 2; do
    run 0 "$banyan" generate runs/tiny --prompt "apple " --tokens 40 --seed $seed
    [ "$(head -c 6 out)" = "apple " ] || fail "the prompt is missing"
    [ "$(wc -c <out)" -ge 46 ] || fail "too short"
    if [ "$seed" -eq 1 ] && [ -e text.1 ]; then same out text.1; fi
    cp out text.$seed
done
if cmp -s text.1 text.2; then fail "seeds 1 and 2 generate the same"; fi

say "generate: ends in front of a stop string, and shows nothing of it"
# The third word of the text above, which begins with its second.
word=$(cut -c 7- text.1 | tr -s ' \n' '\n\n' | sed -n 2p)
run 0 "$banyan" generate runs/tiny --prompt "apple " --tokens 40 --seed 1 --stop "$word" --stop "~no such text~" --json
[ "$(field stop <out)" = stop_string ] || fail "$(cat out)"
if field text <out | grep -q -F -e "$word"; then fail "the stop string '$word' is shown: $(cat out)"; fi
run 2 "$banyan" generate runs/tiny --stop ""

say "plot"
run 0 "$banyan" plot runs/tiny runs/other --out loss.png
[ "$(head -c 4 loss.png | tail -c 3)" = PNG ] || fail "no PNG"
run 0 "$banyan" plot runs --out loss.svg --log
holds loss.svg "<svg"

say "runs"
run 0 "$banyan" runs runs
[ "$(wc -l <out)" -eq 6 ] || fail "five runs and a heading"
run 0 "$banyan" runs runs --name other --json
[ "$(field status <out)" = done ] || fail "$(cat out)"

say "info"
run 0 "$banyan" info c.yaml
grep -q "^device  *cpu .* of memory" out || fail "info does not name the device"
holds out "6N + 12LCT"
for row in parameters gradients optimizer activations workspace data total; do holds out "  $row"; done
run 0 "$banyan" info c.yaml --graph
cp out graph
for pass in forward precision gradients recompute fuse order; do
    run 0 "$banyan" info c.yaml --after $pass --set precision.compute=bf16 --set memory.recompute=block
    holds out "linear_cross_entropy"
    cp out $pass
done
run 0 "$banyan" info c.yaml --after order
same out graph
holds precision bf16
if grep -q bf16 forward; then fail "bf16 before the precision pass"; fi
holds gradients grad.
[ "$(wc -l <recompute)" -gt "$(wc -l <gradients)" ] || fail "recompute added nothing"
run 0 "$banyan" info c.yaml --config
holds out "micro_batch: 8"

# refused CODE TEXT COMMAND...: the exit code, and what the message says.
refused() {
    say "refused: $2"
    text=$2
    run_code=$1
    shift 2
    run "$run_code" "$@"
    holds err "$text"
}
printf 'name: x\ntrain:\n  stepz: 3\n' >bad.yaml
refused 2 "bad.yaml:3" "$banyan" train bad.yaml
holds err steps
refused 2 "micro_batch" "$banyan" train c.yaml --set train.micro_batch=3
refused 2 "heads" "$banyan" info c.yaml --set model.heads=5
refused 2 'did you mean "optimizer.lr"?' "$banyan" train c.yaml --set optimizer.lrr=1
refused 2 "nowhere.txt" "$banyan" train c.yaml --set data.text=nowhere.txt
refused 2 "data.text" "$banyan" train c.yaml --set data.text=[]
refused 2 "tokens" "$banyan" train c.yaml --set model.context=200000
refused 2 "unknown command 'trian'; did you mean 'train'?" "$banyan" trian
run 0 "$banyan" info c.yaml --set train.steps=5 --set seed=3 --set train.steps=6 --ranks 2 --ranks 1
holds err "--set train.steps is given twice: its last value counts"
holds err "--ranks is given twice"
! grep -q seed err || fail "$(cat err)"
refused 2 "unknown flag '--stepz'; see" "$banyan" train c.yaml --stepz 3
refused 2 "unknown flag '--quite'; did you mean '--quiet'?" "$banyan" train c.yaml --quite
refused 2 "did you mean '--listen'? (HOST:PORT" "$banyan" serve runs/tiny --port 80
refused 2 "did you mean '--tokens'?" "$banyan" generate runs/tiny --max_new_tokens=5
refused 2 "did you mean '--prompt'?" "$banyan" generate runs/tiny -p hello
refused 2 'set as --set KEY=VALUE; did you mean "optimizer.lr"?' "$banyan" train c.yaml --learning-rate 1
refused 2 "banyan launch -n N train CONFIG" "$banyan" train c.yaml --nproc_per_node 4
refused 2 "the model is an argument" "$banyan" eval --model runs/tiny
refused 2 "did you mean '--device'? (--device auto, or cpu)" "$banyan" serve runs/tiny --gpu 1
refused 2 "no device 'xpu' in this build, which has: cpu" "$banyan" serve runs/tiny --device xpu
refused 2 "no device 'xpu:1' in this build" "$banyan" train c.yaml --device xpu:1
refused 2 "device 'cpu:1': this machine has 1 of the kind cpu" "$banyan" eval runs/tiny --device cpu:1
refused 2 "no pass" "$banyan" info c.yaml --after magic
refused 2 "nowhere" "$banyan" eval nowhere
printf 'abc\377\376def\n' >invalid.txt
refused 1 "invalid.txt" "$banyan" train c.yaml --set data.text=invalid.txt

say "--minutes chooses the steps of a run that is otherwise as if they had been given"
set -- train c.yaml --quiet --set optimizer.warmup=0.2
run 0 "$banyan" "$@" --set name=timed --minutes 0.01
steps=$(sed -n 's/^  steps: //p' runs/timed/config.yaml)
last=$(printf 'checkpoints/step-%08d' "$steps")
run 0 "$banyan" "$@" --set name=given --set train.steps="$steps"
for file in model.safetensors optimizer.safetensors state.json; do same "runs/timed/$last/$file" "runs/given/$last/$file"; done
sed 's/^name: .*//' runs/timed/config.yaml >timed.yaml
sed 's/^name: .*//' runs/given/config.yaml >given.yaml
same timed.yaml given.yaml
run 0 "$banyan" train c.yaml --set name=json --json --minutes 0.001 --set optimizer.warmup=0
[ "$(grep -c '"event":"fit"' out)" = 1 ] || fail "no line says what was measured"
refused 2 "--minutes '0' is not" "$banyan" train c.yaml --minutes 0
refused 2 "give one of them" "$banyan" train c.yaml --minutes 1 --set train.steps=3
refused 2 "past: give more steps" "$banyan" train --resume runs/timed --minutes 1
refused 2 "a share of them fits any number" "$banyan" train c.yaml --minutes 0.001 --set optimizer.warmup=1999

say "the dial makes a config of one limit, which is then an ordinary one"
cp text.txt "my book.txt"
run 0 "$banyan" train --data "my book.txt" --flops 2e9 --json --set train.threads=1
holds out '"event":"dial"'
holds out '"config":"my-book.yaml"'
[ -s runs/my-book/checkpoints/step-*/model.safetensors ] || fail "no checkpoint: $(ls -R runs/my-book)"
run 0 "$banyan" train my-book.yaml --quiet --set train.threads=1
same runs/my-book/checkpoints/step-*/model.safetensors runs/my-book-2/checkpoints/step-*/model.safetensors
echo "# mine" >my-book.yaml
run 0 "$banyan" train --data "my book.txt" --flops 2e9 --quiet --set train.threads=1 --set train.steps=1
[ "$(cat my-book.yaml)" = "# mine" ] || fail "the dial wrote over a file of the user"
[ -s my-book-2.yaml ] || fail "no config: $(ls)"
holds my-book-2.yaml 'precision: {compute: '
run 1 "$banyan" train --data text.txt --memory 1MiB --flops 2e9 --quiet --set train.threads=1
least=$(sed -n 's/.* trains in \([0-9]*\) MiB of memory at least, and may have 1 MiB.*/\1/p' err)
[ "$least" -gt 1 ] || fail "no least memory: $(cat err)"
run 0 "$banyan" train --data text.txt --memory $((least + 32))MiB --flops 2e9 --quiet --set train.threads=1
run 0 "$banyan" plan text.yaml --json
holds out '"fits":true'
# Activations that are rounded let no budget choose: without one they are planned as they are.
run 0 "$banyan" train --data text.txt --flops 2e9 --quiet --set train.threads=1 --set memory.activations=int8
refused 2 "set memory.recompute" "$banyan" train --data text.txt --memory 40MiB --flops 2e9 --set train.threads=1 \
    --set memory.activations=int8
refused 2 "nothing trains in no memory" "$banyan" train --data text.txt --memory 0
refused 2 "say what the run may take" "$banyan" train --data text.txt
refused 2 "choose a config for --data TEXT" "$banyan" train c.yaml --depth 3
refused 2 "--data chooses a config" "$banyan" train c.yaml --data text.txt --minutes 1
refused 2 "belong together" "$banyan" train --data text.txt --money 5
refused 2 "is no time such as" "$banyan" train --data text.txt --until tomorrow
refused 2 "--until 2001-01-31T10:00 is over" "$banyan" train --data text.txt --until 2001-01-31T10:00
refused 2 "give it at least " "$banyan" train --data text.txt --minutes 0.00001 --set train.threads=1
refused 2 "less than 20 steps" "$banyan" train --data text.txt --flops 1e5 --set train.threads=1

say "a shard that was cut short is named"
cp -r packed cut
truncate -s -100 cut/train/tokens-00000.npy
run 1 "$banyan" train c.yaml --set data.text=[] --set data.train=cut/train
holds err "cut/train/tokens-00000.npy"

say "a checkpoint with a wrong bit is passed over, the one before it is taken"
printf 'X' | dd of=runs/tiny/checkpoints/step-00000020/model.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
run 0 "$banyan" eval runs/tiny --json
holds out "runs/tiny/checkpoints/step-00000010\""
run 0 "$banyan" train --resume runs/tiny --quiet
holds err "resuming from step 10; the 10 steps after it are trained again"
same runs/tiny-2/checkpoints/step-00000020/model.safetensors runs/tiny/checkpoints/step-00000020/model.safetensors

say "no good checkpoint at all is an error"
for step in 10 20; do truncate -s 1000 runs/tiny/checkpoints/step-000000$step/model.safetensors; done
run 1 "$banyan" train --resume runs/tiny
holds err "no complete checkpoint"
holds err "model.safetensors"

say "sizes that overflow are an error"
run 2 "$banyan" info c.yaml --set model.width=1048576 --set model.heads=1 --set model.context=16777216 \
    --set model.vocab=1073741824 --set train.batch=16777216
holds err "micro_batch 16777216 x context 16777216 is more than 2147483648 tokens"
