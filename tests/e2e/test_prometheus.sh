#!/bin/sh
# What deploy/ asks of Prometheus, asked of one that scrapes a server under load: the alerts, the triggers of KEDA and
# the panels of the dashboard. Each query is understood, and has a value wherever there is something to measure.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
command -v prometheus >/dev/null || {
    echo "skipped: prometheus is not installed"
    exit 77
}
queries="$root/tests/e2e/prometheus_queries.py"

train_tiny
# The key that Prometheus has, as the head of compose.yaml makes it.
mkdir -p deploy/compose
printf secret >deploy/compose/key
eval "$(sed -n 's/^#   \(echo .*keys.txt\)$/\1/p' "$root/deploy/compose/compose.yaml")"
serve --keys deploy/compose/keys.txt --drift-window 20 --set feedback.directory=feedback --set payload.directory=payload

say "a Prometheus with the configuration of deploy/prometheus, which finds the gateway by its address"
port=$(free_port)
cp "$root/deploy/prometheus/alerts.yml" .
sed "s|/etc/prometheus/key|$work/deploy/compose/key|; s|scrape_interval: .*|scrape_interval: 500ms|; s|evaluation_interval: .*|evaluation_interval: 500ms|
s|dns_sd_configs:|static_configs:|; s|- {names: .*|- {targets: [\"${url#http://}\"]}|" "$root/deploy/prometheus/prometheus.yml" >prometheus.yml
prometheus --config.file=prometheus.yml --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$port" --log.level=warn 2>prometheus.log &
background=$!
python3 "$queries" "http://127.0.0.1:$port" scraped 'sum(banyan_http_requests_total)' || { cat prometheus.log >&2; fail "nothing is scraped"; }

say "every query, under load"
run 0 "$banyan" bench serve "$url" --key secret --model tiny --requests 40 --concurrency 4 --prompt-tokens 5 --tokens 20 --vocab 20
run 0 curl -sf -H "Authorization: Bearer secret" -H "Content-Type: application/json" "$url/v1/completions" \
    -d '{"model": "tiny", "prompt": "apple", "max_tokens": 1}'
id=$(sed 's/^{"id":"\([^"]*\)".*/\1/' out)
run 0 curl -sf -H "Authorization: Bearer secret" -H "Content-Type: application/json" "$url/v1/feedback" -d "{\"id\": \"$id\", \"rating\": 1}"
python3 "$queries" "http://127.0.0.1:$port" all "$root/deploy" || { cat prometheus.log >&2; fail "queries"; }
kill -TERM "$background"
wait "$background"
background=
stop
