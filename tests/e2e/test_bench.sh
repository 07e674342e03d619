#!/bin/sh
# Every measurement of `banyan bench` and `banyan profile`, once, on models that take milliseconds: their JSON
# is JSON and holds what is promised, their files are what they say, and wrong requests are refused.
. "$(dirname "$0")/../support/shell.sh"
export XDG_CACHE_HOME="$work/cache-home"
unset BANYAN_ISA

# json EXPRESSION: `out` is one line of JSON, and the Python expression is true of it (d).
json() {
    [ "$(wc -l <out)" -eq 1 ] || fail "not one line of JSON"
    python3 -I -S -c "import json, sys; d = json.load(open('out')); sys.exit(0 if ($1) else 1)" ||
        fail "not JSON, or not so: $1, of $(cat out)"
}

cat >c.yaml <<'END'
model: {kind: gpt2, layers: 2, heads: 2, width: 32, context: 32, vocab: 40}
train: {batch: 4}
precision: {compute: bf16}
END
awk 'BEGIN { for (i = 0; i < 3000; i++) print "the number", i, "follows", i - 1 }' >text.txt

say "bench machine measures, prints and keeps"
run 0 "$banyan" bench machine --json
json "all(d[k] > 0 for k in ('f32_gflops', 'bf16_gflops', 'read_gbps', 'copy_gbps', 'cores', 'threads'))"
json "d['int8_gops'] is None or d['int8_gops'] > 0"
json "d['isa'] in d['levels'] and 'banyan' in d['libraries'] and d['cpu']"
json "d['f32_gflops'] >= d['own_f32_gflops'] > 0 and d['bf16_gflops'] >= d['own_bf16_gflops'] > 0"
json "d['disk_write_gbps'] > 0 and d['disk_read_gbps'] > 0 and isinstance(d['disk_direct'], bool)"
json "d['cache'] == '$work/cache-home/banyan/machine.json'"
python3 -m json.tool <cache-home/banyan/machine.json >/dev/null || fail "the cache is not JSON"
[ -z "$(ls -A | grep '^\.banyan')" ] || fail "a temporary file is left"
json "set(d['busy']) <= {'f32', 'bf16', 'int8', 'memory'}"

say "figures come from the cache"
# What was measured beside other tests would be measured again.
sed -i 's/"busy": [0-9]*/"busy": 0/' cache-home/banyan/machine.json
cp cache-home/banyan/machine.json before
run 0 "$banyan" bench kernels c.yaml --steps 1 --json
cmp before cache-home/banyan/machine.json || fail "the cache was written again"

say "a cache that cannot be written costs a note"
run 0 env XDG_CACHE_HOME="$work/text.txt" "$banyan" bench machine --threads 1 --json
holds err "not stored"
json "d['cache'] is None and d['threads'] == 1 and d['f32_gflops'] > 0"

say "bench train"
run 0 "$banyan" bench train c.yaml --steps 2 --json
json "all(d[k] > 0 for k in ('tokens_per_s', 'step_ms', 'mfu', 'mfu_12', 'peak_gflops', 'planned_bytes', 'measured_bytes', 'loss', 'start_ms'))"

if command -v mpirun >/dev/null 2>&1; then
    say "bench train on two ranks: the memory of each"
    . "$root/tests/support/mpi.sh"
    run 0 mpi_run 2 "$banyan" bench train c.yaml --steps 1 --json --set train.threads=1 --set train.batch=2 --set train.micro_batch=1
    json "len(d['ranks_planned_bytes']) == len(d['ranks_measured_bytes']) == 2 and d['ranks_planned_bytes'][0] == d['planned_bytes']"
fi

say "bench scale, on ranks that are threads of one process"
run 0 "$banyan" bench scale c.yaml --ranks 1,3 --steps 1 --set model.kind=llama --set train.threads=1 --set train.batch=6
run 0 "$banyan" bench scale c.yaml --ranks 1,3 --steps 1 --set train.threads=1 --set train.batch=6 --out scale.svg --json
json "[p['ranks'] for p in d['points']] == [1, 3] and d['points'][0]['efficiency'] == 1 and d['backend'] == 'threads'"
json "all(p[k] > 0 for p in d['points'] for k in ('tokens_per_s', 'step_ms', 'efficiency', 'mfu'))"
json "d['points'][0]['exposed_ms'] == 0 and 0 < d['points'][1]['exposed_ms'] < d['points'][1]['step_ms']"
json "all(abs(p['exposed_share'] * p['step_ms'] - p['exposed_ms']) < 1e-3 * p['step_ms'] for p in d['points'])"
grep -q '<svg' scale.svg || fail "no picture"
for ranks in 2,1 0 1,x ""; do
    run 2 "$banyan" bench scale c.yaml --ranks "$ranks"
    holds err "in ascending order, such as 1,2,4"
done

say "bench generate, of a config with initial weights"
run 0 "$banyan" bench generate c.yaml --prompt-tokens 20 --tokens 6 --json
json "all(d[k] > 0 for k in ('prefill_tokens_per_s', 'decode_tokens_per_s', 'bandwidth_share', 'prefill_mfu'))"
json "d['prompt_tokens'] == 20 and d['tokens'] == 6 and d['precision'] == 'bf16'"
run 0 "$banyan" bench generate c.yaml --precision f32 --json
json "d['prompt_tokens'] + d['tokens'] == 32 and d['precision'] == 'f32'"
run 2 "$banyan" bench generate c.yaml --prompt-tokens 30 --tokens 6
holds err "do not fit into the context of 32"

say "bench generate, of a run"
run 0 "$banyan" train c.yaml --quiet --set train.steps=1 --set data.text=text.txt --set data.tokenizer=char \
    --set data.cache=tokens --set run.dir=runs
run 0 "$banyan" bench generate runs --tokens 4 --json
json "d['tokens'] == 4 and d['decode_tokens_per_s'] > 0"

say "bench engine, with so many at a time and at a rate"
run 0 "$banyan" bench engine c.yaml --sessions 3 --requests 5 --prompt-tokens 20 --tokens 6 --json
json "all(d[k] > 0 for k in ('tokens_per_s', 'ttft_ms', 'token_ms', 'step_ms', 'mfu', 'bandwidth_share', 'rows_per_step'))"
json "d['processor_seconds'] > 0 and d['rows'] > d['generated'] > 0 and d['padding'] >= 0"
json "d['rows'] == round(d['rows_per_step'] * d['steps'])"
json "d['requests'] == 5 and d['sessions'] == 3 and d['ttft_p95_ms'] >= d['ttft_ms']"
run 0 "$banyan" bench engine runs --rate 500 --requests 4 --prompt-tokens 20 --shared-tokens 17 --tokens 2 --json
json "d['rate'] == 500 and d['tokens_per_s'] > 0"
run 0 "$banyan" bench engine runs --sessions 1 --requests 3 --prompt-tokens 20 --shared-tokens 17 --tokens 2 --json
json "d['found_tokens'] == 32"
run 0 "$banyan" bench engine c.yaml --sessions 2 --requests 2 --prompt-tokens 20 --tokens 6 --profile --json
json "d['prompts']['steps'] == 1 and d['decode']['steps'] == 5 and d['decode']['tokens_per_s'] > 0"
json "{'packed_matmul', 'paged_attention'} <= {k['op'] for k in d['profile']} and all(k['runs'] > 0 for k in d['profile'])"
json "sum(k['seconds'] for k in d['profile']) < d['seconds']"
run 0 "$banyan" bench engine c.yaml --sessions 2 --requests 2 --prompt-tokens 20 --tokens 6 --kv int8 --profile
holds out "between nodes"

say "bench engine, with several numbers of sessions"
run 0 "$banyan" bench engine c.yaml --sweep 1,3 --prompt-tokens 20 --tokens 6 --out sweep.svg
[ "$(cut -f 1 out | paste -sd ' ' -)" = "sessions 1 3" ] || fail "$(cat out)"
awk -F '\t' 'NR > 1 && !($2 > 0 && $3 > $2 * 0.2 && $4 > 0 && $5 > 0) { exit 1 }' out || fail "$(cat out)"
grep -q "<svg" sweep.svg || fail "no picture"
run 0 "$banyan" bench engine c.yaml --sweep 2 --prompt-tokens 20 --tokens 6 --json
[ "$(field requests <out)" = 2 ] || fail "$(cat out)"
run 2 "$banyan" bench engine c.yaml --sweep 1,,2
holds err "--sweep 1,,2: give up to 32 numbers"
run 2 "$banyan" bench engine c.yaml --out sweep.svg

say "bench engine, beside a long prompt: a short one has half of a step's rows"
run 0 "$banyan" bench engine c.yaml --beside 28 --requests 2 --prompt-tokens 4 --tokens 2 --rows 4 --json
json "d['beside'] == 28 and d['least_steps'] == 1 and d['first_token_steps'] == 2 and d['ttft_ms'] > 0"
run 2 "$banyan" bench engine c.yaml --beside 32
holds err "does not fit into the context of 32"
run 2 "$banyan" bench engine c.yaml --beside 8 --rate 3
run 2 "$banyan" bench engine c.yaml --prompt-tokens 30 --tokens 6
holds err "do not fit into the context of 32"

say "bench pack"
run 0 "$banyan" bench pack text.txt --train-bpe 300 --json
json "d['mb_per_s'] > 0 and d['learn_seconds'] > 0 and d['vocab'] == 300 and d['text_bytes'] == $(wc -c <text.txt)"
run 0 "$banyan" pack text.txt --output packed --vocab 280
run 0 "$banyan" bench pack text.txt --tokenizer packed --threads 2 --json
json "d['mb_per_s'] > 0 and d['vocab'] == 280 and d['tokens'] > 0 and 'learn_seconds' not in d"
[ -z "$(ls -A | grep '^\.banyan')" ] || fail "a temporary directory is left"
run 2 "$banyan" bench pack text.txt
run 2 "$banyan" bench pack nothing.txt --tokenizer packed

say "bench comm, of ranks that are threads, and a cluster file that a plan takes"
run 0 "$banyan" bench machine --threads 1 --out ours.yaml --ranks 3
holds err "wrote ours.yaml"
holds ours.yaml "from: guess}"
run 0 "$banyan" bench comm --ranks 3 --largest 1 --out ours.yaml --json
json "d['backend'] == 'threads' and d['ranks'] == 3 and [s['bytes'] for s in d['sizes']] == [4096, 16384, 65536, 262144, 1048576]"
json "all(s[k] > 0 for s in d['sizes'] for k in ('all_reduce_gbps', 'reduce_scatter_us', 'all_gather_us', 'all_to_all_us', 'send_us'))"
grep -q 'name: "host", width: 3, .*from: measured}' ours.yaml || fail "$(cat ours.yaml)"
run 0 "$banyan" plan c.yaml --ranks 2 --cluster ours.yaml
holds out "network       host of 3 x cpu"
run 2 "$banyan" bench comm --ranks 1 --out ours.yaml
run 2 "$banyan" bench comm --ranks -1

say "bench kernels"
run 0 "$banyan" bench kernels c.yaml --steps 1 --json
json "{'matmul', 'attention', 'attention_grad', 'adamw', 'sum_squares'} <= {k['op'] for k in d['kernels']}"
json "all(k['ms'] > 0 and k['roof_share'] > 0 and k['kernel'] and k['nodes'] > 0 for k in d['kernels'])"
json "len({k['shapes'] for k in d['kernels']}) == len(d['kernels'])"
run 0 "$banyan" bench kernels c.yaml --steps 1 --op matmul --isa all --json
json "[level['isa'] for level in d['levels']][0] == 'baseline' and len({level['isa'] for level in d['levels']}) == len(d['levels'])"
json "all(k['op'] == 'matmul' and k['kernel'].endswith(level['isa']) for level in d['levels'] for k in level['kernels'])"
run 0 "$banyan" bench kernels c.yaml --steps 1 --op adamw
holds out "adamw"
run 2 "$banyan" bench kernels c.yaml --steps 1 --op multiply
holds err "multiply"
run 2 "$banyan" bench kernels c.yaml --steps 1 --isa quantum
holds err "quantum"

say "profile, on random tokens, with a trace"
run 0 "$banyan" profile c.yaml --steps 2 --trace step.json --json
json "d['steps'] == 2 and d['data'] == 'random' and d['wait_ms'] == 0 and d['trace'] == 'step.json'"
json "{'matmul', 'attention', 'adamw'} <= {r['name'] for r in d['ops']}"
json "[r['name'] for r in d['layers']] == ['outside blocks', 'block 0', 'block 1', 'gradient norm', 'update']"
json "abs(sum(r['ms'] for r in d['ops']) - sum(r['ms'] for r in d['layers'])) < 1e-3 * d['step_ms']"
json "abs(sum(r['ms'] for r in d['ops']) + d['between_nodes_ms'] - d['step_ms']) < 1e-3 * d['step_ms']"
json "all(abs(r['forward_ms'] + r['backward_ms'] + r['update_ms'] - r['ms']) < 1e-3 * d['step_ms'] for r in d['ops'])"
json "d['memory']['peak_bytes'] == max(d['memory']['live_bytes']) == d['memory']['live_bytes'][d['memory']['peak_node']]"
cat >nests.py <<'END'
import json, sys
events = [e for e in json.load(open("step.json"))["traceEvents"] if e["ph"] == "X"]
nodes = [e for e in events if e["cat"] in ("forward", "backward", "update")]
ns = lambda e, key: round(1000 * e[key])
events.sort(key=lambda e: (ns(e, "ts"), -ns(e, "dur")))
inside = []
for e in events:
    begin, end = ns(e, "ts"), ns(e, "ts") + ns(e, "dur")
    while inside and inside[-1][0] <= begin:
        inside.pop()
    if inside and end > inside[-1][0]:
        sys.exit(f"{e['name']} crosses the end of {inside[-1][1]}")
    inside.append((end, e["name"]))
    if e in nodes and [name for _, name in inside][0] != "step":
        sys.exit(f"{e['name']} is in no step")
steps = sum(e["name"] == "step" for e in events)
if steps != 2 or len(nodes) % 2 or not {"gradients", "gradient norm", "update"} <= {e["name"] for e in events}:
    sys.exit(f"{steps} steps, {len(nodes)} nodes")
END
python3 nests.py || fail "the trace does not nest"
run 0 "$banyan" profile c.yaml --steps 1
holds out "live activations"
holds out "between nodes"

say "profile, accumulating and on the data of a run"
run 0 "$banyan" profile runs/run --steps 3 --set train.micro_batch=2 --json
json "d['data'] == 'config' and d['wait_share'] >= 0 and 0 <= d['waits'] <= 3"
json "'gradient sum' in [r['name'] for r in d['layers']]"
run 0 "$banyan" profile runs/run --steps 1 --random --json
json "d['data'] == 'random'"

say "a load on a server that closes connections"
python3 "$root/tests/e2e/closing_server.py" >address &
background=$!
until [ -s address ]; do sleep 0.1; done
run 0 "$banyan" bench serve "$(cat address)" --model any --requests 40 --concurrency 8 --json
json "d['ok'] == 40 and d['failed'] == 0 and d['failures'] == []"
kill "$background"
background=

say "a load on a server with a slow answer and an empty one"
rm -f address
python3 "$root/tests/e2e/odd_server.py" >address &
background=$!
until [ -s address ]; do sleep 0.1; done
run 1 "$banyan" bench serve "$(cat address)" --model any --requests 3 --concurrency 1 --json
# The slow one is the 95th percentile of two, and has no time between tokens; the empty one has no times.
json "d['ok'] == 2 and d['failed'] == 1 and d['ttft']['p95'] >= 0.5 and d['ttft']['p50'] > 0"
json "d['tpot']['p50'] == d['tpot']['p95'] > 0"
json "[(f['reason'], f['status'], f['count']) for f in d['failures']] == [('an answer without a token', 200, 1)]"
# Later answers tell of failures, each in its own way, and no answer has a time.
run 1 "$banyan" bench serve "$(cat address)" --model any --requests 5 --concurrency 1 --json
json "d['ok'] == 0 and d['refused'] == 1 and d['failed'] == 4 and set(d['ttft'].values()) == {None}"
json "[(f['reason'], f['status'], f['count'], f['message']) for f in d['failures']] == [
    ('HTTP 404', 404, 2, 'no such model'), ('HTTP 429', 429, 1, 'slower  please'),
    ('an error inside a stream', 200, 1, 'lost'), ('closed before the end of the answer', None, 1, '')]"
run 1 "$banyan" bench serve "$(cat address)" --model any --requests 2 --concurrency 1
holds out "an answer without a token	2	-"
holds out "ttft	-	-	-	-"
kill "$background"
background=

say "wrong requests are refused"
run 2 "$banyan" bench
run 2 "$banyan" bench nothing
run 2 "$banyan" bench machine something
run 2 "$banyan" profile
run 2 "$banyan" profile c.yaml --steps 0
run 1 "$banyan" profile c.yaml --steps 1 --trace /nowhere/step.json
holds err "/nowhere/step.json"
for part in machine train generate pack kernels; do
    run 0 "$banyan" bench $part --help
    holds out "usage: banyan bench $part"
done
echo "every measurement measures"
