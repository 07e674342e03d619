#!/bin/sh
# Laws are fitted to tables and to runs, and costs are told from tables of prices.
. "$(dirname "$0")/../support/shell.sh"

# Runs by a known law, in two groups.
awk 'BEGIN {
    print "data,parameters,tokens,loss,loss_b"
    for (n = 2e7; n < 3e9; n *= 3) for (k = 2; k < 3000; k *= 3) {
        d = n * k
        loss = 1.8 + 480 / n ^ 0.35 + 2100 / d ^ 0.37
        printf "one,%.0f,%.0f,%.12f,%.12f\n", n, d, loss, loss + 1
        printf "two,%.0f,%.0f,%.12f,%.12f\n", n, d, 2 * loss, loss
    }
}' >runs.csv

say "a law is found again, and the best size for a budget"
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e22 --loss 2.2 --json
near "$(field e <out)" 1.8 1e-5
near "$(field alpha <out | head -n 1)" 0.35 1e-5
near "$(field a <out)" 480 0.1
for key in '"best":{"flops":1e+22' '"reach":{"loss":2.2' '"choices":[{"choice":"delta 1e-4"' '"influence":[{"run":"N '; do
    holds out "$key"
done
near "$(sed 's/.*"isoflop":{"budgets":[0-9]*,"factor":[^,]*,"power":\([^}]*\)}.*/\1/' out)" 0.514 0.05
size=$(sed 's/.*"best":{"flops":1e+22,"parameters":\([^,]*\),.*/\1/' out)
# The minimum over sizes, by trying them.
awk -v size="$size" 'BEGIN {
    for (x = log(1e7); x < log(1e12); x += 1e-3) {
        n = exp(x); loss = 1.8 + 480 / n ^ 0.35 + 2100 / (1e22 / 6 / n) ^ 0.37
        if (best == 0 || loss < least) { best = n; least = loss }
    }
    exit !(size > 0.99 * best && size < 1.01 * best)
}' || fail "the best size is $size"
cp out first
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e22 --loss 2.2 --json
sed 's/"seconds":[^,]*//' first >a
sed 's/"seconds":[^,]*//' out | same - a

say "columns by name, the picture, and what is said to people"
run 0 "$banyan" plan fit runs.csv --where data=two --loss-column loss_b --out law.svg
holds err "wrote law.svg"
grep -q '^law  *loss = 1.8 + 4[78].* / N^0.35.* + 2[01].* / D^0.37' out || fail "$(cat out)"
holds out "80 % interval"
grep -q '<svg' law.svg || fail "no picture"
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e27
holds out "times that of the largest run"
run 2 "$banyan" plan fit runs.csv --where data=one --loss 1.7
holds err "--loss 1.7 is never reached: by the law of these runs, 1.8 is left"
run 2 "$banyan" plan fit runs.csv --loss-column perplexity
holds err "no column 'perplexity' of the loss; it has: data, parameters, tokens, loss"
run 2 "$banyan" plan fit runs.csv --where data=three
holds err "no row whose data is three"
run 2 "$banyan" plan fit runs.csv --where data
holds err "is not COLUMN=VALUE"
awk 'BEGIN { print "parameters,tokens,loss"
    for (n = 2e7; n < 3e9; n *= 3) for (k = 5; k < 400; k *= 3) printf "%.0f,%.0f,2.5\n", n, n * k }' >level.csv
run 2 "$banyan" plan fit level.csv
holds err "the loss of these runs does not fall with their parameters (A is 0)"
awk 'BEGIN { print "parameters,tokens,loss"
    for (n = 2e7; n < 3e9; n *= 3) for (k = 5; k < 400; k *= 3) printf "%.0f,%.0f,%.6f\n", n, n * k, 1.8 + 480 / n ^ 0.35 }' >alone.csv
run 0 "$banyan" plan fit alone.csv
holds out "these runs do not tell it"
head -n 5 runs.csv >few.csv
run 2 "$banyan" plan fit "$root/examples/gpt2_124m.yaml"
holds err "gpt2_124m.yaml is a config"
run 2 "$banyan" plan fit few.csv
holds err "4 runs; a law of five numbers needs at least 6"
sed '3s/.*/one,1e300,1e20,2.5,2.5/' runs.csv >huge.csv
run 1 "$banyan" plan fit huge.csv
holds err "huge.csv, row 2: 6 x 1e+300 parameters x 1e+20 tokens is no finite number"
run 2 "$banyan" plan fit
holds err "name a table of runs, or run directories"
run 2 "$banyan" plan fti
holds err "unknown plan 'fti'"

say "the shape of a config for a budget, by the FLOPs of its own graph"
echo '{model: {kind: llama, layers: 2, heads: 4, kv_heads: 2, width: 64, context: 64, vocab: 256}, train: {batch: 8}}' >base.yaml
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config base.yaml --json
heads=$(field heads <out)
layers=$(field layers <out)
steps=$(field steps <out)
# The loss by the law of a number of heads, as the shape is scaled.
loss_of() {
    "$banyan" info base.yaml --set model.heads="$1" --set model.kv_heads=$(($1 / 2)) --set model.width=$(($1 * 16)) \
        --set model.layers=$(($1 / 2)) --json >info || fail "no shape of $1 heads"
    awk -v n="$(field parameters <info)" -v f="$(field flops_per_token <info)" \
        'BEGIN { printf "%.12g", 1.8 + 480 / n ^ 0.35 + 2100 / (1e17 / f) ^ 0.37 }'
}
[ "$layers" = $((heads / 2)) ] || fail "$heads heads in $layers layers"
best=$(loss_of "$heads")
near "$(sed 's/.*"shape":.*"loss":\([0-9.]*\)}.*/\1/' out)" "$best" 1e-5
near "$(awk -v s="$steps" -v f="$(field flops_per_token <info)" 'BEGIN { print s * 8 * 64 * f / 1e17 }')" 1 0.01
for other in $((heads - 2)) $((heads + 2)); do
    awk -v a="$best" -v b="$(loss_of $other)" 'BEGIN { exit !(a <= b) }' || fail "$other heads are better than $heads"
done
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config base.yaml
holds out "config        --set model.width=$((heads * 16)) --set model.heads=$heads --set model.kv_heads=$((heads / 2))"
# A text that is repeated asks for more passes, and a smaller model, and inference for a smaller one of the same loss.
part() { sed "s/.*\"$1\":{\([^}]*\)}.*/{\1}/" out | field "$2"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' || fail "$1 is not below $2"; }
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e22 --loss 2.2 --json
parameters=$(part best parameters)
flops=$(part reach flops)
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e22 --unique-tokens 1e9 --loss 2.2 --inference-tokens 1e12 --json
near "$(part best unique_tokens)" 1e9 0
below "$(part best parameters)" "$parameters"
below "$flops" "$(part serve flops)"
near "$(awk -v n="$(part serve parameters)" -v d="$(part serve tokens)" \
    'BEGIN { printf "%.9g", 1.8 + 480 / n ^ 0.35 + 2100 / d ^ 0.37 }')" 2.2 1e-4
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e22 --unique-tokens 1e9
holds out "and 1e+09 tokens that differ, read 340 times"
holds out "more than about 40 passes"
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config base.yaml --json
steps=$(part shape steps)
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config base.yaml --unique-tokens 1e6 --json
[ "$(part shape steps)" != "$steps" ] || fail "repeats do not change the shape: $(cat out)"
run 2 "$banyan" plan fit runs.csv --unique-tokens 1e9
holds err "--unique-tokens takes a budget: --flops"
run 2 "$banyan" plan fit runs.csv --inference-tokens 1e9
holds err "--inference-tokens takes a loss to reach: --loss"

# A width of the MLP is scaled with the others: here it has 75 columns for each head.
sed 's/width: 64/width: 64, mlp_width: 300/' base.yaml >mlp.yaml
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config mlp.yaml --json
heads=$(field heads <out)
[ "$(field mlp_width <out)" = $((heads * 75)) ] || fail "$(cat out)"
run 0 "$banyan" info mlp.yaml --set model.heads="$heads" --set model.kv_heads=$((heads / 2)) --json \
    --set model.width=$((heads * 16)) --set model.layers=$((heads / 2)) --set model.mlp_width=$((heads * 75))
parameters=$(field parameters <out)
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config mlp.yaml
holds out "--set model.mlp_width=$((heads * 75)) "
run 0 "$banyan" plan fit runs.csv --where data=one --flops 1e17 --config mlp.yaml --json
holds out "\"parameters\":$parameters,"
run 2 "$banyan" plan fit runs.csv --where data=one --config base.yaml
holds err "--config takes a budget: --flops"

say "runs are read with the size, tokens, loss and FLOPs that they had"
tiny gpt2 >c.yaml
make_text text.txt 400
for width in 16 32 64; do
    for steps in 4 8 16; do
        run 0 "$banyan" train c.yaml --quiet --set name=w$width-$steps --set model.width=$width --set train.steps=$steps \
            --set train.eval_every=$steps --set train.eval_batches=1
    done
done
run 0 "$banyan" plan fit runs/w* --json
[ "$(field runs <out)" = 9 ] || fail "$(cat out)"
# The most FLOPs are those of the widest and longest: 16 steps of 8 sequences of 64 tokens.
each=$("$banyan" info runs/w64-16 --json | field flops_per_token)
most=$(field most_flops <out)
near "$most" "$(awk -v each="$each" 'BEGIN { print each * 16 * 8 * 64 }')" "$(awk -v m="$most" 'BEGIN { print 1e-4 * m }')"
# Reading a token takes a third of what training on it does, nearly.
read=$("$banyan" info runs/w64-16 --json | field read_flops)
near "$read" "$(awk -v each="$each" 'BEGIN { print each / 3 }')" "$(awk -v each="$each" 'BEGIN { print 0.02 * each }')"
# A run that began with the weights of another one changes nothing.
run 0 "$banyan" train c.yaml --quiet --set name=later --set model.from=runs/w32-8 --set model.width=32 \
    --set train.steps=4 --set train.eval_every=4 --set train.eval_batches=1
run 0 "$banyan" plan fit runs/w* --json
e=$(field e <out)
run 0 "$banyan" plan fit runs/later runs/w* --json
holds err "runs/later is left out: it began with the weights of runs/w32-8"
[ "$(field runs <out) $(field left_out <out) $(field e <out)" = "9 1 $e" ] || fail "$(cat out)"
rm -r runs/w16-4/events.jsonl
run 2 "$banyan" plan fit runs/w* --where data=one
holds err "is a run directory"
run 2 "$banyan" plan fit runs/w*
holds err "no held-out loss was recorded"

say "a ladder of runs: designed, climbed, and gone on with"
cat >ladder.yaml <<END
name: steps
model: {kind: llama, layers: 1, heads: 4, width: 32, context: 16, parameterisation: mup}
data: {text: [text.txt], tokenizer: char}
train: {batch: 8, eval_batches: 4}
optimizer: {lr: 0.01, warmup: 0.1}
END
run 2 "$banyan" plan ladder ladder.yaml --budget 1e6
holds err "its 4 smallest rungs take"
run 0 "$banyan" plan ladder ladder.yaml --budget 1e10 --rungs 4 --ratio 2 --dry-run --json
[ "$(wc -l <out)" = 4 ] || fail "$(cat out)"
run 0 "$banyan" plan ladder ladder.yaml --budget 1e10 --rungs 4 --ratio 2 --keep-going --json
[ "$(wc -l <out)" = 5 ] || fail "$(cat out)"
holds out '"next":{"flops":'
[ "$(ls -d runs/steps-ladder/rung-w*-s* | wc -l)" = 4 ] || fail "$(ls runs/steps-ladder)"
cp out before
run 0 "$banyan" plan ladder ladder.yaml --budget 1e10 --rungs 4 --ratio 2 --keep-going --json
cmp -s out before || fail "a ladder that is complete was climbed again: $(cat out)"
run 2 "$banyan" plan ladder ladder.yaml --budget 1e10 --rungs 4 --ratio 2 --set optimizer.lr=0.02
holds err "the rungs in runs/steps-ladder are of another config"
run 2 "$banyan" plan ladder ladder.yaml --budget 1e10 --rungs 4 --ratio 2 --set data.valid_fraction=0 --set name=none
holds err "no data is held out"
[ ! -e runs/none-ladder ] || fail "a ladder that cannot be climbed left $(ls -R runs/none-ladder)"

say "the coordinate check"
run 0 "$banyan" plan coords ladder.yaml --set model.vocab=64 --widths 16,32 --steps 1 --seeds 1 --out coords.svg --json
holds out '"verdict":"'
[ -s coords.svg ] || fail "no picture"
run 2 "$banyan" plan coords ladder.yaml --widths 32,16
holds err "is not a list of 2 to 16 ascending widths"
run 2 "$banyan" plan coords ladder.yaml --widths 16,32 --out coords.gif
holds err "--out 'coords.gif' is no name in .png or .svg"
run 2 "$banyan" plan coords ladder.yaml --widths 20,32
holds err "model.heads is 4 at width 32, and does not become whole; take multiples of 8"

say "money, energy and CO2 of a time, of FLOPs, of tokens and of a loss"
cat >prices.csv <<END
device,price_per_hour,spot_per_hour,purchase_price,upkeep_per_month,watts,idle_watts,tflops
big,2.5,1,30000,100,700,100,1000
small,0.5,,,,,,
END
cat >regions.csv <<END
region,grams_co2_per_kwh,pue,price_per_kwh
north,20,1.1,0.1
south,700,,0.2
END
run 0 "$banyan" plan cost prices.csv --device big --devices 8 --time 10h --regions regions.csv --region north --json
near "$(field money <out)" 200 1e-9
near "$(field kwh <out)" 61.6 1e-6
near "$(field kg_co2 <out)" 1.232 1e-6
# 36 months: 8 * (30000 + 36 * (100 + 730.5 h * 0.77 kW * 0.1)) and 8 * 36 * 730.5 * 2.5.
near "$(field owned <out)" 284999.568 0.01
near "$(field rented <out)" 525960 0.01
run 0 "$banyan" plan cost prices.csv --device BIG --devices 8 --flops 1.44e20 --share 0.5 --busy 0 --json
near "$(field work_seconds <out)" 36000 1e-6
near "$(field kwh <out)" 8 1e-6
run 0 "$banyan" plan cost prices.csv --device small --tokens 7.2e6 --tokens-per-s 1000 --json
near "$(field money <out)" 1 1e-9
[ "$(field kwh <out)" = null ] || fail "watts that are not known: $(cat out)"
run 0 "$banyan" plan cost prices.csv --device small --time 1h
holds out "0.50 money, no watts known; goodput"
sed -n '1p;/^one/p' runs.csv >one.csv
run 0 "$banyan" plan cost prices.csv --device big --devices 8 --loss 2.2 --law one.csv --json
near "$(field flops <out)" "$(sed 's/.*"reach":{"loss":2.2,"flops":\([^,]*\),.*/\1/' first)" 1e16

echo 'model: {kind: gpt2, layers: 2, heads: 2, width: 32, context: 32, vocab: 67}
train: {batch: 8, steps: 500}
parallel: {tensor: 2}' >priced.yaml
run 0 "$banyan" plan priced.yaml --cluster "$root/examples/clusters/a100.yaml" --json
step=$(field step_s <out)
run 0 "$banyan" plan cost prices.csv --device big --config priced.yaml --cluster "$root/examples/clusters/a100.yaml" --json
near "$(field devices <out)" 2 0
near "$(field work_seconds <out)" "$(awk -v s="$step" 'BEGIN { print 500 * s }')" 1e-6
run 2 "$banyan" plan cost prices.csv --device big --config priced.yaml --time 1h
holds err "by one of --time, --flops, --tokens, --loss and --config"
run 2 "$banyan" plan cost prices.csv --device big --time 1h --set train.steps=5
holds err "--cluster and --set go with --config"
run 1 "$banyan" plan cost prices.csv --device big --config priced.yaml --set memory.budget=1KiB
holds err "finds a layout that fits"

say "failures: how often to save, and spot instances that come and go"
run 0 "$banyan" plan cost prices.csv --device big --devices 10 --time 100h --mtbf 1000h --save 1m --restart 2m --json
near "$(field young_seconds <out)" 6572.67 0.01
near "$(field daly_seconds <out)" 6532.7 0.1
near "$(field best_seconds <out)" 6532.7 1
near "$(field goodput <out)" 0.981526 1e-6
printf 'seconds,instances\n0,10\n36000,9\n37000,10\n72000,10\n' >trace.csv
run 0 "$banyan" plan cost prices.csv --device big --devices 10 --time 10h --trace trace.csv --save 10s --restart 100s \
    --every 1000s --json
[ "$(field losses <out)" = 1 ] || fail "$(cat out)"
[ "$(field gains <out)" = 2 ] || fail "$(cat out)"
run 0 "$banyan" plan cost prices.csv --device big --devices 10 --time 10h --trace trace.csv --save 10s --restart 100s
grep -q '^spot .*goodput 9[0-9]' out || fail "$(cat out)"
run 2 "$banyan" plan cost prices.csv --device huge --time 1h
holds err "no device 'huge'; it has: big, small"
run 2 "$banyan" plan cost prices.csv --device small --flops 1e20
holds err "no tflops of 'small'"
run 2 "$banyan" plan cost prices.csv --device big --time 1h --flops 1e20
holds err "by one of --time, --flops, --tokens, --loss and --config"
printf 'seconds,instances\n0,10\n0,9\n' >trace.csv
run 1 "$banyan" plan cost prices.csv --device big --time 1h --trace trace.csv --save 1s
holds err "trace.csv, row 2: 9 instances from 0 s on; seconds ascend"

say "serving: what is measured of an engine, and replicas that a load takes"
cat >small.yaml <<END
model: {kind: llama, layers: 1, heads: 2, width: 16, context: 64, vocab: 64}
END
run 0 "$banyan" plan serve small.yaml --curve small.json --sessions 4 --rows 32
grep -q '"programs"' small.json || fail "$(cat small.json)"
# Machines differ: what follows is of a curve by hand, one request at a time that takes 100 ms.
cat >curve.json <<END
{"machine": "hand", "context": 64, "sessions": 1, "rows": 1, "pages": 4, "decode_key_seconds": 0,
 "prompt_key_seconds": 0, "open_seconds": 1, "error": 0, "steps": 0, "ratios": [],
 "programs": [{"rows": 1, "wanted": 1, "seconds": 0.1}]}
END
printf 'seconds,prompt_tokens,generated_tokens\n0,1,1\n0,1,1\n2,1,11\n' >load.csv
run 0 "$banyan" plan serve --curve curve.json --load load.csv --price 36 --json
near "$(field first_token_ms <out)" 100 1e-6
near "$(field first_token_p95_ms <out)" 200 1e-6
near "$(field token_ms <out)" 100 1e-6
# 3.1 s of a replica at 0.01 a second, for 13 tokens.
near "$(field per_million_tokens <out)" 2384.62 0.01
# Two replicas start in a second each; without idle time they take 1.1 s each and one of them 1.1 s more.
run 0 "$banyan" plan serve --curve curve.json --load load.csv --serverless-price 72 --free-idle --json
near "$(field starts <out)" 2 0
near "$(field billed_seconds <out)" 3.3 1e-6
run 0 "$banyan" plan serve --curve curve.json --load load.csv --first-token 150
grep -q '^replicas    2$' out || fail "$(cat out)"
run 0 "$banyan" plan serve --curve curve.json --load load.csv --first-token 50
holds out "do not meet the targets"
# Whatever there is no number for is null, or left out.
finite() {
    python3 -c 'import json, sys; print(json.loads(sys.stdin.read(), parse_constant=sys.exit)["curve"]["sessions"])' <out
}
run 0 "$banyan" plan serve small.yaml --curve small.json --sessions 4 --rows 32 --json
[ "$(finite)" = 4 ] || fail "$(cat out)"
printf 'seconds,prompt_tokens,generated_tokens\n5,1,1\n' >one.csv
sed 's/"seconds": 0.1/"seconds": 0/' curve.json >still.json
for curve in curve still; do
    run 0 "$banyan" plan serve --curve $curve.json --load one.csv --json
    [ "$(finite)" = 1 ] || fail "$(cat out)"
    run 0 "$banyan" plan serve --curve $curve.json --load one.csv
    holds out "1 requests at once"
    grep -Eq 'inf |nan' out && fail "$(cat out)"
done
run 2 "$banyan" plan serve --curve curve.json
holds err "say what arrives"
run 2 "$banyan" plan serve --curve curve.json --rate 1 --prompt-tokens 60 --tokens 60
holds err "the context of the engine is 64"

say "a planned step as a trace and as a picture"
echo 'model: {kind: gpt2, layers: 2, heads: 2, width: 32, context: 32, vocab: 67}
train: {batch: 8, micro_batch: 2}
parallel: {pipeline: 2, tensor: 2}' >layout.yaml
run 0 "$banyan" plan layout.yaml --cluster "$root/examples/clusters/a100.yaml" --trace step.json
holds err "wrote step.json"
holds out "network       host of 8 x a100"
holds out "us: tensor, pipeline"
python3 - step.json <<'END' || fail "the trace"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert {(e["pid"], e["tid"]) for e in spans} == {(0, 0), (0, 1), (2, 0), (2, 1)}
assert sum(e["name"].startswith("forward ") for e in spans) == 8
END
run 0 "$banyan" plan layout.yaml --cluster "$root/examples/clusters/a100.yaml" --trace step.svg
grep -q '<svg' step.svg || fail "no picture"

say "devices and memory that a search has not"
run 2 "$banyan" plan search layout.yaml --cluster "$root/examples/clusters/a100.yaml" --devices 513
holds err "513 ranks are more than the 512 devices that the levels of hosts of 8 A100 join"
run 1 "$banyan" plan search layout.yaml --devices 3 --set memory.budget=1KiB
grep -q '^does not fit  the least that a layout of at most 3 devices needs is .* a device, which has 1 B$' out ||
    fail "$(cat out)"
run 1 "$banyan" plan search layout.yaml --devices 3 --deadline 1ms
holds out "does not fit  no layout of at most 3 devices ends in time"

say "rates in the unit of the task, memory that adds up, and fewer ranks of this machine with more of its cores"
run 0 "$banyan" plan layout.yaml --set parallel.pipeline=1 --set parallel.tensor=1
grep -q '^per second .* tokens; ' out || fail "$(cat out)"
run 0 "$banyan" plan layout.yaml --set parallel.pipeline=1 --set parallel.tensor=1 --json
python3 - out <<'END' || fail "$(cat out)"
import json, sys
plan = json.load(open(sys.argv[1]))
assert abs(plan["tokens_per_s"] * plan["step_s"] / 256 - 1) < 1e-6, plan
for rank in plan["planned"]:
    kinds = ("parameter", "gradient", "optimizer", "activation", "workspace", "data")
    assert sum(rank[k + "_bytes"] for k in kinds) == rank["planned_bytes"], rank
END
one='--set parallel.pipeline=1 --set parallel.tensor=1 --set train.threads=1000'
# shellcheck disable=SC2086
run 0 "$banyan" plan search layout.yaml $one --devices 1 --json
alone=$(sed 's/.*"best":{"set":[^}]*"step_s":\([^,]*\),.*/\1/' out)
# shellcheck disable=SC2086
run 0 "$banyan" plan search layout.yaml $one --devices 4 --json
awk -v a="$alone" -v b="$(sed 's/.*"best":{"set":[^}]*"step_s":\([^,]*\),.*/\1/' out)" 'BEGIN { exit !(b <= a) }' ||
    fail "of four ranks the best takes longer than one, $alone s: $(cat out)"
