#!/bin/sh
# A server: answers equal streams, errors come before answers, clients that go away end their own request alone,
# and processes that die in the middle of streams change nothing of them.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
client="$root/tests/e2e/serve_client.py"
check() { python3 "$client" "$@" || { tail -n 20 log >&2; fail "$*"; }; }

# in_browser [KEY]: what people see of the page.
in_browser() {
    browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
        echo "not tested: the page in a browser, since chromium is not installed"
        return
    }
    timeout 6800 python3 "$root/tests/e2e/page_browser.py" "$browser" "$work/browser" "$url" "$@" ||
        fail "the page in a browser"
}

make_text text.txt 400
echo "bob@example.com 0123456789" >>text.txt
train_tiny

say "answers, errors, connections"
# Passwords that are in the environment of the server, and no part of it needs.
AWS_SECRET_ACCESS_KEY=of-the-shell REDISCLI_AUTH=of-the-shell HF_TOKEN=of-the-shell serve --workers 2
for what in ready answers errors connection cancel page; do
    check "$what" "$url"
done
levels=$(ps -o ni=,args= --ppid "$server" | awk '{ print $3, $1 }' | sort -u | paste -s -d ' ')
own=$(ps -o ni= -p "$server")
lower=$((own < 19 ? own + 1 : 19)) # the lowest priority that there is
[ "$levels" = "broker $((own)) gateway $((own)) worker $lower" ] || fail "workers do not give way: $levels"
for process in "$server" $(ps -o pid= --ppid "$server"); do
    for pid in "$process" $(ps -o pid= --ppid "$process"); do
        ! grep -q of-the-shell "/proc/$pid/environ" || fail "$(ps -o args= "$pid") has passwords of the shell"
    done
done
say "a worker that is killed, one that stops, and the broker"
check lost "$url" worker SIGKILL "$server"
check lost "$url" worker SIGSTOP "$server"
check lost "$url" broker SIGKILL "$server"
for reason in 'crash"} 1' 'silent"} 1' 'hang"} 0'; do
    until curl -s "$url/metrics" | grep -q -F "banyan_worker_restarts_total{model=\"tiny\",reason=\"$reason"; do
        kill -0 "$server" || fail "the server has ended"
        sleep 0.1
    done
done
say "tasks"
check tasks "$url"
check task_events "$url"
kill -TERM "$server"
wait "$server"
# The port must stay the same when the gateway comes back.
port=${url##*:}
listen=127.0.0.1:$port
serve --workers 2
listen=127.0.0.1:0
check ready "$url"
check tasks_lost "$url" "$server"
run 2 "$banyan" broker --dir "$work/sock"
holds err "another server listens on $work/sock/broker.socket"
run 2 "$banyan" serve runs/tiny --listen 127.0.0.1:0 --dir "$work/sock"
holds err "another server listens on $work/sock/control.socket"
run 0 "$banyan" deploy --status --dir "$work/sock"

say "a load"
run 0 "$banyan" bench serve "$url" --model tiny --requests 60 --concurrency 8 --prompt-tokens 5 --tokens 7 \
    --vocab 20 --json --out times.svg
grep -q "<svg" times.svg || fail "no picture"
holds out '"requests":60,"ok":60,"refused":0,"failed":0,'
run 0 "$banyan" bench serve "$url" --model tiny --requests 40 --rate 400 --concurrency 40 --tokens 7 --vocab 20 --whole
[ "$(sed -n 's/^ok\t//p' out)" = 40 ] || fail "$(cat out)"
run 1 "$banyan" bench serve "$url" --model other --requests 4
run 1 "$banyan" bench serve http://127.0.0.1:1 --model tiny
holds err "connection refused"
stop
! tail -n +"$(grep -n '"event":"draining"' log | tail -n 1 | cut -d : -f 1)" log | grep peer_lost || fail "the end of a server is a loss"
[ "$(tail -n 20 log | grep -c '"event":"peer_left"')" -ge 2 ] || fail "gateway and workers do not leave: $(tail -n 20 log)"
python3 -c 'import json, sys; all("time" in json.loads(line) or line.startswith("{\"event\":\"failed\"") or sys.exit(line) for line in open("log"))' ||
    fail "a line of the log is not JSON"
holds log '"event":"worker_stopped"'
! grep -q sandbox_violation log || fail "a worker asks for what it gave up: $(grep sandbox_violation log)"
[ -z "$(ps -eo args= | grep "[-]-dir $work/sock")" ] || fail "processes are left"

say "drift"
[ "$(find runs/tiny -name drift_reference.json | wc -l)" -gt 0 ] || fail "the checkpoint has no reference"
serve --drift-window 60
check ready "$url"
check drift "$url"
[ "$(grep -c '"event":"drift"' log)" = 1 ] || fail "$(cat log)"
in_browser
stop

say "feedback, and what is kept of requests"
serve --set feedback.directory=feedback --set payload.directory=payload --set payload.fraction=1
check ready "$url"
check feedback "$url"
kill -9 $(ps -o pid= --ppid "$server") "$server" # and nothing that was answered is lost
[ "$(wc -l <feedback/feedback-000001.jsonl)" = 23 ] || fail "$(cat feedback/*)"
server=
[ "$(wc -l <payload/payload-000001.jsonl)" = 2 ] || fail "$(cat payload/*)"
grep -q '"prompt":"apple <email>"' payload/payload-000001.jsonl || fail "$(cat payload/*)"
grep -q '"prompt":"cedar <number>"' payload/payload-000001.jsonl || fail "$(cat payload/*)"
run 0 "$banyan" pack payload --tokenizer char --output packed --json
holds out '"documents": 2'

say "traces"
traces=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
serve --traces "http://user:secret@127.0.0.1:$traces/v1/traces?key=secret"
check ready "$url"
python3 "$root/tests/e2e/trace_client.py" "$url" "$traces" log || { tail -n 20 log >&2; fail "traces"; }
for event in request traced_request; do
    grep "\"event\":\"$event\"" log | grep -q '"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"' || fail "$(cat log)"
done
stop
# One that takes connections and never answers.
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(600)' >silent &
aside=$!
until [ -s silent ]; do sleep 0.1; done
serve --set tracing.endpoint="http://127.0.0.1:$(cat silent)/v1/traces" --set tracing.queue=8
check ready "$url"
python3 "$root/tests/e2e/trace_client.py" "$url" dead || fail "traces without a collector"
stop
grep '"traces_unavailable"' log | grep -q '"reason":"[^"]' || fail "the log does not say that no span is taken"
kill "$aside"
aside=
run 2 "$banyan" serve runs/tiny --set tracing.endpoint=collector:4318 --check
holds err "tracing.endpoint is collector:4318"

say "keys and limits, by a configuration"
printf '# a comment\n%s test\n%s few inference\n' "$(printf secret | sha256sum | cut -d' ' -f1)" \
    "$(printf few | sha256sum | cut -d' ' -f1)" >keys
cat >serve.yaml <<END
gateway: {keys: keys}
worker: {model: runs/tiny, count: 1}
limits: {keys: [{name: few, tokens_per_day: 40}]}
END
run 0 "$banyan" serve --config serve.yaml --check
run 2 "$banyan" serve --config serve.yaml --set limits.keys='[]' --set gateway.keys=none --check
holds err none
run 2 "$banyan" serve --config serve.yaml --set limits.key=1 --check
holds err 'unknown key "key" in section limits'
serve --config serve.yaml
check keys "$url"
check page "$url"
in_browser secret
check quota "$url"
# Keys as they are in the file now, without a restart; a file that is wrong changes nothing.
answer_of() { curl -s -o answer -w '%{http_code}' -H "Authorization: Bearer $1" "$url/v1/models"; }
cp keys keys.before
{ grep -v ' few ' keys && printf '%s late\n' "$(printf late | sha256sum | cut -d' ' -f1)"; } >keys.new
mv keys.new keys
until [ "$(answer_of late)" = 200 ]; do kill -0 "$server" || fail "the server has ended"; sleep 0.1; done
[ "$(answer_of few)" = 401 ] || fail "a key that was taken away counts"
echo "no key" >keys
until grep -q '"event":"keys_not_read"' log; do kill -0 "$server" || fail "the server has ended"; sleep 0.1; done
holds log "keys:1: a key is 64 hexadecimal digits"
[ "$(answer_of late) $(answer_of secret)" = "200 200" ] || fail "a file that is wrong takes keys away"
mv keys.before keys
until [ "$(answer_of few)" = 200 ]; do kill -0 "$server" || fail "the server has ended"; sleep 0.1; done
stop
serve --config serve.yaml --set gateway.page=false
check ready "$url"
check no_page "$url"
check quota_kept "$url"
stop

say "the gateway has its own time to answer what it has"
serve_ready --grace 0.01
curl -sN "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "apple", "max_tokens": 900, "stream": true}' >stream &
background=$!
until [ -s stream ]; do kill -0 "$background" 2>/dev/null || fail "no stream"; sleep 0.02; done
stop
wait "$background"
background=
holds stream "data: [DONE]"
! grep -q '"error"' stream || fail "the stream ended with $(grep '"error"' stream)"

say "a KV cache of 8-bit integers"
serve_ready --workers 1 --kv int8
curl -sf "$url/v1/completions" -H 'Content-Type: application/json' \
    -d '{"model": "tiny", "prompt": "apple", "max_tokens": 3, "temperature": 0, "logprobs": 0}' >answer || fail "no answer"
run 0 "$banyan" generate runs/tiny --prompt apple --tokens 3 --temperature 0 --logprobs 0 --kv int8 --json
python3 - answer out <<'END' || fail "not the cache of generate: $(cat answer out)"
import json, sys
served = json.load(open(sys.argv[1]))["choices"][0]["logprobs"]["token_logprobs"]
local = [t["log_probability"] for t in json.load(open(sys.argv[2]))["logprobs"]]
assert len(served) == 3 and all(abs(a - b) < 1e-5 * abs(b) for a, b in zip(served, local)), (served, local)
END

say "a gateway that dies while the server stops is an error of the server"
worker=$(pgrep -P "$server" -f "banyan worker")
kill -STOP "$worker"
curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "apple", "max_tokens": 9}' >answer &
background=$!
until curl -s "$url/metrics" | grep -q -E '^banyan_requests_running[^ ]* 1'; do sleep 0.02; done
kill -TERM "$server"
until grep -q -F '"event":"draining"' log; do sleep 0.02; done
kill -9 "$(pgrep -P "$server" -f "banyan gateway")"
kill -CONT "$worker"
wait "$server"
code=$?
[ $code = 1 ] || fail "the server ended with $code"
server=
grep -q -F "the gateway ended with code 137 (crash) while the server was stopping" log || fail "the reason is not said: $(tail -n 3 log)"
wait "$background" && fail "an answer came from a gateway that was killed"
background=

say "a worker that is stopped does not hold up the end"
serve_ready --workers 1 --set worker.grace=10000
worker=$(pgrep -P "$server" -f "banyan worker")
kill -STOP "$worker"
stop

say "a worker by hand: its file for probes, and its end while it loads"
"$banyan" broker --dir "$work/sock" 2>log &
aside=$!
printf 1 >ready
run 2 "$banyan" worker runs/none --dir "$work/sock" --ready-file ready
[ ! -s ready ] || fail "it ended, and counts as ready"
mkfifo starting # whoever opens it to write waits
"$banyan" worker runs/tiny --dir "$work/sock" --ready-file starting 2>>log &
background=$!
wait_for_handlers
kill -TERM "$background"
wait "$background"
[ $? = 143 ] || fail "a worker that starts did not end by SIGTERM"
"$banyan" worker runs/tiny --dir "$work/sock" --threads 1 --ready-file ready 2>>log &
background=$!
until [ -s ready ]; do kill -0 "$background" 2>/dev/null || fail "a worker has ended"; sleep 0.05; done
kill -TERM "$background"
wait "$background" || fail "a worker ended with $?"
[ ! -s ready ] || fail "a worker that has ended counts as ready"
background=
kill "$aside"
aside=

say "threads that have nothing to compute keep no helpers"
# count_threads THREADS: those of a worker in $few, and in $many once it has made embeddings.
count_threads() {
    serve_ready --workers 1 --threads "$1"
    tasks=/proc/$(pgrep -P "$server" -f "banyan worker")/task
    curl -sf "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "apple", "max_tokens": 9}' >answer || fail "no answer"
    few=$(ls "$tasks" | wc -l)
    curl -sf "$url/v1/embeddings" -H 'Content-Type: application/json' -d '{"model": "tiny", "input": "apple"}' >answer || fail "no embedding"
    until [ "$(ls "$tasks" | wc -l)" -le "$few" ]; do
        [ "$((waited += 1))" -lt 3000 ] || fail "$(ls "$tasks" | wc -l) threads remain of $few"
        sleep 0.1
    done
    stop
}
waited=0
count_threads 1
alone=$few
count_threads 2
[ "$few" = $((alone + 1)) ] || fail "a worker with two threads has $few, and $alone with one"

say "a log for people, and a failure as a line of the log"
serve_ready --log-format text
stop
grep -q '^[0-9:]\{8\} gateway_ready url=http://127' log || fail "no text: $(head -n 3 log)"
! grep -q '^{' log || fail "JSON: $(grep '^{' log)"
run 2 "$banyan" worker runs/else --child --dir "$work/sock" </dev/null
python3 -c 'import json; line = json.load(open("err")); assert line["event"] == "failed" and "runs/else" in line["worker"], line' || fail "$(cat err)"
run 2 "$banyan" worker runs/else --dir "$work/sock"
holds err "banyan worker: runs/else"
run 2 "$banyan" serve runs/tiny --log-format xml

say "several models with settings of their own, by a configuration alone"
cp -r runs/tiny runs/other
printf '%s' '{% for m in messages %}{{ m.content + " " }}{% endfor %}' >talk.jinja
cat >models.yaml <<END
models:
  - {path: $work/runs/tiny, name: first, chat_template: $work/talk.jinja, context: 64, workers: 2}
  - {path: $work/runs/other, precision: int8, kv: int8, sessions: 3}
END
run 0 "$banyan" serve --config models.yaml --check
rm -f url
"$banyan" serve --config models.yaml --listen 127.0.0.1:0 --dir "$work/sock" --threads 1 >url 2>log &
server=$!
while [ ! -s url ]; do kill -0 "$server" 2>/dev/null || { cat log >&2; fail "the server has ended"; }; sleep 0.1; done
url=$(cat url)
until [ "$(curl -s "$url/v1/models" | grep -o '"id":' | wc -l)" = 2 ]; do kill -0 "$server" || fail "ended"; sleep 0.1; done
curl -s "$url/v1/models" >out
holds out '"id":"first"'
holds out '"id":"other"'
holds out '"context":64'
grep -q '"chat":true.*"id":"other"\|"id":"first".*"chat":true' out || fail "no template: $(cat out)"
[ "$(pgrep -P "$server" -f ' worker .*--name first' | wc -l)" = 2 ] || fail "$(pgrep -a -P "$server")"
pgrep -a -P "$server" -f ' --name other' >out
for flag in '--precision int8' '--kv int8' '--sessions 3'; do holds out "$flag"; done
curl -s "$url/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model": "first", "messages": [{"role": "user", "content": "oak"}], "max_tokens": 3}' >out
holds out '"choices"'

say "a deployment that cannot be says why"
mkdir fifo && cp runs/tiny/checkpoints/*/config.json fifo/ && mkfifo fifo/model.safetensors
run 1 timeout 6800 "$banyan" deploy fifo --name other --dir "$work/sock"
holds err "model.safetensors: it is not a regular file"
mkdir broken && for file in runs/tiny/checkpoints/*/*; do [ -d "$file" ] || cp "$file" broken/; done
printf 'x' >broken/model.safetensors
run 1 timeout 6800 "$banyan" deploy broken --name other --dir "$work/sock"
holds err "was rolled back: its workers"
holds err "model.safetensors: 1 bytes"
stop
for wrong in 'path: runs/tiny, precision: int9' 'path: runs/tiny, kv: int4' 'path: runs/tiny, workers: many' \
    'path: runs/tiny, chat_template: nothing' 'name: a' 'path: runs/tiny, thread: 2' 'path: runs/none'; do
    echo "models: [{$wrong}]" >wrong.yaml
    run 2 "$banyan" serve --config wrong.yaml --check
done
echo 'models: [{path: runs/tiny}, {path: runs/tiny}]' >wrong.yaml
run 2 "$banyan" serve --config wrong.yaml --check
holds err "two models are named 'tiny'"

say "what cannot be served"
run 2 "$banyan" serve runs/tiny --listen 0.0.0.0:0 --dir "$work/sock"
holds err "reachable by other machines"
run 2 "$banyan" serve runs/tiny --listen nonsense --dir "$work/sock"
holds err "'nonsense' is not an address to listen on: write ADDRESS:PORT"
for refused in '--listen [::1:80' '--listen example.org:80' '--listen 127.0.0.1:65536' '--precision int9' \
    '--keys none.txt' '--pool sum --check' '--set worker.precision=f64' '--precision f64 --check'; do
    # shellcheck disable=SC2086
    run 2 "$banyan" serve runs/tiny --listen 127.0.0.1:0 --dir "$work/unused" $refused
    ! grep -q '"event"' err || fail "processes were started: $(cat err)"
done
[ ! -e "$work/unused" ] || fail "a directory was made"
run 2 "$banyan" serve runs/tiny --set gateway.listen=x --check
holds err "gateway.listen: 'x' is not an address to listen on"
run 2 "$banyan" serve runs/none --listen 127.0.0.1:0 --dir "$work/sock"
holds err "runs/none"
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(600)' >taken &
aside=$!
until [ -s taken ]; do sleep 0.1; done
run 2 timeout 6800 "$banyan" serve runs/tiny --listen "127.0.0.1:$(cat taken)" --dir "$work/sock"
holds err "cannot listen on 127.0.0.1:$(cat taken): address already in use: end the program that listens there"
kill "$aside"
aside=

say "a part that never starts ends the server; one that was ready is started again"
run 1 timeout 6800 "$banyan" serve runs/tiny --listen 127.0.0.1:0 --dir "$work/sock" --tasks "$work/sock"
holds err "the broker exited 5 times without becoming ready, the last time with code 1 (failed)"
# As the kernel does where the model does not fit into the memory.
cat >kill_worker.c <<'END'
#include <signal.h>
#include <string.h>

__attribute__((constructor)) static void kill_worker(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "worker") == 0) {
        raise(SIGKILL);
    }
}
END
cc -shared -fPIC kill_worker.c -o kill_worker.so
run 1 env LD_PRELOAD="$work/kill_worker.so" timeout 6800 "$banyan" serve runs/tiny --listen 127.0.0.1:0 --dir "$work/sock"
holds err "the worker exited 5 times without becoming ready, the last time with code 137 (crash)"
listen=127.0.0.1:$(free_port)
serve_ready
for _ in 1 2 3 4 5 6; do
    killed=$(pgrep -P "$server" -f ' gateway ')
    kill -9 "$killed"
    until started=$(pgrep -P "$server" -f ' gateway ') && [ "$started" != "$killed" ] &&
        curl -sf "$url/health/live" >/dev/null; do
        kill -0 "$server" || fail "the server has ended"
        sleep 0.1
    done
done
stop
