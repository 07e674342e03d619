#!/bin/sh
# Metrics by vLLM's names: the families that its dashboards ask for, in Prometheus' format, with the values that the
# server's own names have.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

train_tiny
serve_ready
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
curl -sf "$url/metrics" >own
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

own, _ = read("own")
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

say "the configuration"
serve_ready --set gateway.metrics_names=vllm
curl -sf "$url/metrics" >vllm
holds vllm 'vllm:num_requests_running{model_name="tiny",engine="0"} 0'
stop
run 2 "$banyan" serve runs/tiny --set gateway.metrics_names=else --check
holds err "gateway.metrics_names is else: must be banyan or vllm"
