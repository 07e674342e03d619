#!/bin/sh
# Features of entities: a Redis filled as Feast does it, and a `feast serve`, give the predictions of the same rows in a
# file. Then what is missing, too old or of another type, and a store that is silent, down and back.
. "$(dirname "$0")/../support/shell.sh"
client="$root/tests/e2e/features_client.py"
command -v redis-server >/dev/null || {
    echo "skipped: redis-server is not installed"
    exit 77
}
end_all() {
    [ ! -s redis.pid ] || kill -9 "$(cat redis.pid)" 2>/dev/null
    end_server
}
# shellcheck source=tests/support/serve.sh
. "$root/tests/support/serve.sh"
on_exit=end_all
check() { "$@" || { tail -n 20 log >&2; fail "$*"; }; }
port=$(free_port)
redis() {
    {
        printf 'port %s\nbind 127.0.0.1\ndaemonize yes\nsave ""\n' "$port"
        printf 'dir %s\npidfile %s/redis.pid\nrequirepass "sec ret"\n' "$work" "$work"
    } | redis-server - >/dev/null
    until redis-cli -p "$port" -a "sec ret" ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
}
# start CONFIG: a server with it.
start() { serve_models runs/trips --config "$1"; }

python3 "$client" files
cat >table.yaml <<END
name: trips
task: {kind: regress}
model: {kind: mlp, hidden: [16], activation: relu}
precision: {compute: f32}
data: {table: table.csv, target: price, valid_fraction: 0.2}
train: {steps: 30, batch: 8}
optimizer: {lr: 1e-2}
run: {dir: runs}
END
run 0 "$banyan" train table.yaml --quiet --set train.threads=1 --set optimizer.warmup=1
{ head -n 1 new.csv && sed -n 2p new.csv | awk -F, -v OFS=, '{$1 = $2 = $3 = "NA"; print}'; } >stale.csv
sed 1d empty.csv | awk -F, -v OFS=, '{$6 = "a"; print}' | cat new.csv - | sed -n '1p;$p' >half.csv
for what in new empty stale half; do
    run 0 "$banyan" predict runs/trips $what.csv
    mv out $what.lines
done

printf 'sec ret\n' >password
cat >redis.yaml <<END
features:
  store: redis://127.0.0.1:$port
  password_file: password
  project: shop
  timeout: 30
  entities: [{name: zone, type: string}, {name: driver_id}]
  views:
    - {name: driver_stats, entities: driver_id, ttl: 86400}
    - {name: zone_use, entities: "zone, driver_id"}
  columns:
    - {column: rate, feature: "driver_stats:rate"}
    - {column: share, feature: "driver_stats:share"}
    - {column: trips, feature: "driver_stats:trips"}
    - {column: active, feature: "zone_use:active"}
    - {column: since, feature: "zone_use:since", time_unit: ms}
    - {column: class, feature: "zone_use:class"}
END

say "a configuration that is wrong"
wrong() {
    sed "$1" redis.yaml >wrong.yaml
    run 2 "$banyan" serve --config wrong.yaml --check
    holds err "$2"
}
run 0 "$banyan" serve --config redis.yaml --check
wrong 's/ttl: 86400/tll: 1/' 'did you mean "ttl"'
wrong 's/driver_stats:share/vx/' 'the feature "vx" of column share is not VIEW:FEATURE'
wrong 's/entities: driver_id/entities: driver/' 'the view driver_stats has the entity "driver"'
wrong 's/zone_use:active/zones:active/' "a view that features.views does not name"
wrong 's/column: trips/column: rate/' "names rate twice"
wrong "s|127.0.0.1:$port|user:secret@127.0.0.1:$port|" "features.store has a password"
grep -q secret err && fail "a message shows a password"
wrong 's/password_file: password/password_file: none/' "none"

say "the same rows from Redis"
redis
python3 "$client" fill - "$port" || fail "fill"
start redis.yaml
for what in served outcomes refused; do
    check python3 "$client" "$what" "$url"
done
grep '"features_unavailable"' log | grep -q WRONGTYPE || fail "the log does not say why"

say "a store that is down and back"
kill -9 "$(cat redis.pid)"
check python3 "$client" down "$url"
known=$(grep -c '"features_available"' log)
redis
python3 "$client" fill - "$port" || fail "fill"
check python3 "$client" served "$url"
[ "$(grep -c '"features_available"' log)" -gt "$known" ] || fail "the log does not say that the store is back"
stop

say "a store that is silent"
sed 's/timeout:.*/timeout: 0.5/' redis.yaml >short.yaml
start short.yaml
check python3 "$client" ready "$url"
kill -STOP "$(cat redis.pid)"
check python3 "$client" silent "$url"
grep '"features_unavailable"' log | grep -q 'no answer within' || fail "the log does not say that the store is silent"
kill -CONT "$(cat redis.pid)"
stop

say "a required feature, and the cache"
sed 's/driver_stats:share"/&, required: true/; s/timeout:.*/&\n  cache: 100\n  cache_time: 3600/' \
    redis.yaml >cache.yaml
start cache.yaml
check python3 "$client" required "$url" "$port"
stop

say "a store that is down from the beginning, without which it goes on"
kill -9 "$(cat redis.pid)"
sed 's/zone_use:class"/&, default: a/; s/timeout:.*/&\n  fallback: missing/' redis.yaml >missing.yaml
start missing.yaml
check python3 "$client" fallback "$url"
stop

say "the same rows from feast serve"
sed "s|redis://|http://|; /password_file/d" redis.yaml >http.yaml
start http.yaml
check python3 "$client" http "$url" "$port"
for why in "does not answer what was asked" "status 500"; do
    grep '"features_unavailable"' log | grep -q "$why" || fail "the log does not say '$why'"
done
stop

say "a feast serve that is silent"
sed 's/timeout:.*/timeout: 1/' http.yaml >short.yaml
start short.yaml
check python3 "$client" http_silent "$url" "$port"
grep '"features_unavailable"' log | grep -qE "no answer within|timed out" || fail "the log does not say that it is silent"
stop
