#!/bin/sh
# Metrics of models, versions and workers by the server's own names, and by vLLM's: the families that its dashboards ask
# for. Both are in Prometheus' format and have the same values.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

train_tiny
serve_ready
# steps: how many steps the worker has told of; none before its first heartbeat.
steps() { curl -sf "$url/metrics" >own && sed -n 's/^banyan_engine_step_sequences_count{.*} //p' own; }
# Some are made before it is ready.
until [ "$(steps)" -gt 0 ] 2>/dev/null; do sleep 0.1; done
mv own before
made=$(sed -n 's/^banyan_engine_step_sequences_count{.*} //p' before)
# ask TOKENS MORE: a completion, which vLLM would count for its model.
ask() {
    echo "{\"model\": \"tiny\", \"prompt\": \"apple\", \"max_tokens\": $1, \"seed\": 7, \"ignore_eos\": true$2}" >body
    curl -sf "$url/v1/completions" -H 'Content-Type: application/json' -d @body >answer || fail "a completion"
}
ask 5 ''
ask 7 ', "n": 2'
ask 9 ', "stream": true'
curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": [99999]}' >answer
holds answer invalid_request
curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "other", "prompt": "a"}' >answer
holds answer model_not_found
# What a worker tells comes with its next heartbeat.
until [ "$(steps)" = $((made + 21)) ]; do sleep 0.1; done
curl -sf "$url/metrics?names=banyan" | grep -q '^banyan_prompt_tokens_total ' || fail "no metrics by their own names"
curl -sf "$url/metrics?names=vllm" >vllm
[ "$(curl -s -o answer -w '%{http_code}' "$url/metrics?names=else")" = 400 ] || fail "$(cat answer)"
stop

say "families, labels and values"
cat >check.py <<'END'
import re, sys

def read(path):
    """By name and labels: values; by name: types. A family has its head once, and its samples behind it."""
    samples, types, open_family = {}, {}, None
    for line in open(path):
        if line.startswith("# TYPE "):
            _, _, open_family, kind = line.split()
            assert open_family not in types, line
            types[open_family] = kind
        elif not line.startswith("#"):
            name, labels, value = re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:{(.*)})? (\S+)\n', line).groups()
            assert re.sub("_(bucket|sum|count)$", "", name) == open_family or name == open_family, line
            key = (name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or "")))
            assert key not in samples, line
            samples[key] = float(value)
    return samples, types

before, _ = read("before")
own, own_types = read("own")
vllm, types = read("vllm")
labels = {("model_name", "tiny"), ("engine", "0")}
of = lambda name, *more: vllm[(name, frozenset(labels | set(more)))]
mine = lambda name: own[(name, frozenset())]
for name, here in (("time_to_first_token", "time_to_first_token"), ("inter_token_latency", "inter_token_latency"),
                   ("time_per_output_token", "inter_token_latency"), ("e2e_request_latency", "request_duration")):
    assert types[f"vllm:{name}_seconds"] == "histogram"
    for part in ("sum", "count"):
        assert of(f"vllm:{name}_seconds_{part}") == mine(f"banyan_{here}_seconds_{part}"), (name, part)
    assert of(f"vllm:{name}_seconds_bucket", ("le", "+Inf")) == of(f"vllm:{name}_seconds_count") > 0
assert of("vllm:e2e_request_latency_seconds_count") == 3 and of("vllm:request_queue_time_seconds_count") == 3
assert of("vllm:prompt_tokens_total") == mine("banyan_prompt_tokens_total") == 3 * 5
assert of("vllm:generation_tokens_total") == mine("banyan_generated_tokens_total") == 5 + 14 + 9
for reason, count in (("stop", 0), ("length", 4), ("abort", 0), ("error", 1)):
    assert of("vllm:request_success_total", ("finished_reason", reason)) == count, reason
# The same by the server's own names, for each model.
model = lambda name, *more: own[(name, frozenset({("model", "tiny"), *more}))]
for name, other in (("queue_time", "request_queue_time"), ("time_to_first_token",) * 2, ("inter_token_latency",) * 2,
                    ("request_duration", "e2e_request_latency")):
    assert own_types[f"banyan_model_{name}_seconds"] == "histogram"
    for part in ("sum", "count"):
        assert model(f"banyan_model_{name}_seconds_{part}") == of(f"vllm:{other}_seconds_{part}") > 0, (name, part)
    edges = {float(dict(key)["le"]) for n, key in own if n == f"banyan_model_{name}_seconds_bucket"}
    assert {0.1, 0.15, 0.2, 0.25, 0.3} < edges, (name, edges)
assert model("banyan_model_prompt_tokens_total") == 3 * 5 and model("banyan_model_generated_tokens_total") == 5 + 14 + 9
# And for each version, and each worker.
(version,) = {dict(key)["version"] for name, key in own if name == "banyan_version_share"}
assert model("banyan_version_prompt_tokens_total", ("version", version)) == 3 * 5
assert model("banyan_version_generated_tokens_total", ("version", version)) == 5 + 14 + 9
# They are there, and 0, before the first request: a rate does not see the value that a counter begins with.
assert before[("banyan_model_queue_time_seconds_count", frozenset({("model", "tiny")}))] == 0
assert before[("banyan_version_prompt_tokens_total", frozenset({("model", "tiny"), ("version", version)}))] == 0
(worker,) = {dict(key)["worker"] for name, key in own if name == "banyan_engine_running"}
def at(name, *more):
    """What the requests have added."""
    key = (name, frozenset({("model", "tiny"), ("version", version), ("worker", worker), *more}))
    return own[key] - before[key]

# Every step had one sequence, but the 7 of two answers to one prompt.
steps = "banyan_engine_step_sequences"
assert own_types[steps] == "histogram"
assert [at(steps + "_bucket", ("le", le)) for le in ("1", "2", "256", "+Inf")] == [15, 21, 21, 21]
assert at(steps + "_sum") == 15 + 2 * 6 and at(steps + "_count") == 21
assert at("banyan_engine_rows_total") == 3 * 5 + 4 + 2 * 6 + 8
assert at("banyan_prefix_cache_tokens_total") == 3 * 5 < of("vllm:prefix_cache_queries_total")
assert at("banyan_prefix_cache_hit_tokens_total") == of("vllm:prefix_cache_hits_total") == 0
for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
    assert types["vllm:" + name] == "gauge" and of("vllm:" + name) == 0, name
assert types["vllm:num_preemptions_total"] == "counter" and "process_resident_memory_bytes" in types
# Clients make no series by the names that they ask for.
assert not any(("model_name", "other") in key for _, key in vllm)
END
run 0 python3 check.py
if command -v promtool >/dev/null; then
    # It finds fault with vLLM's colons, by another code than with the format.
    promtool check metrics <vllm >out 2>&1
    [ $? -ne 1 ] || fail "$(cat out)"
fi

say "the configuration, and refusals, of which a model has those of all"
serve_ready --set gateway.metrics_names=vllm --set worker.sessions=1 --delay 0.3
curl -sf "$url/metrics" >vllm
holds vllm 'vllm:num_requests_running{model_name="tiny",engine="0"} 0'
# An embedding waits 0.3 s for others, in a worker: that is no time in the queue.
curl -sf "$url/v1/embeddings" -H 'Content-Type: application/json' -d '{"model": "tiny", "input": "apple"}' >answer || fail "an embedding"
curl -sf "$url/metrics?names=banyan" >own
awk '/^banyan_model_request_duration_seconds_sum/ { whole = $2 } /^banyan_model_queue_time_seconds_sum/ { queue = $2 }
    END { exit !(whole - queue >= 0.299) }' own || fail "$(grep seconds_sum own)"
run 0 "$banyan" bench serve "$url" --model tiny --requests 60 --concurrency 60 --tokens 900 --vocab 20 --json
refused=$(sed -n 's/.*"refused":\([0-9]*\),.*/\1/p' out)
curl -sf "$url/metrics?names=banyan" >own
[ "$refused" -gt 0 ] || fail "none was refused: $(cat out)"
holds own "banyan_rejected_total{reason=\"queue_wait\"} $refused"
holds own "banyan_model_rejected_total{model=\"tiny\",reason=\"queue_wait\"} $refused"
holds own 'banyan_model_rejected_total{model="tiny",reason="queue_full"} 0'
stop
run 2 "$banyan" serve runs/tiny --set gateway.metrics_names=else --check
holds err "gateway.metrics_names is else: must be banyan or vllm"
