#!/bin/sh
# What stands at the address of an MLflow server may be something else, its address may be written in two
# ways, and a run that goes on is running again: all seen by a server that writes down what it is asked.
. "$(dirname "$0")/../support/shell.sh"

cat >server.py <<'END'
import http.server, json, os, sys

class Server(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        asked = self.path.split("/mlflow/")[-1].split("?")[0]
        status = json.loads(body).get("status", "") if body else ""
        with open("asked", "a") as log:
            log.write(("%s %s" % (asked, status)).strip() + "\n")
        reply = {"experiments/get-by-name": {"experiment": {"experiment_id": "1"}},
                 "runs/create": {"run": {"info": {"run_id": "r1"}}}}.get(asked, {})
        text = "<html>welcome</html>" if os.path.exists("is-a-page") and "batch" in asked else json.dumps(reply)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    do_GET = do_POST = answer
    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Server)
with open("port.tmp", "w") as file:
    file.write(str(server.server_port))
os.rename("port.tmp", "port")
server.serve_forever()
END
python3 server.py &
server=$!
on_exit="kill -9 $server"
until [ -s port ]; do sleep 0.05; done
url=http://127.0.0.1:$(cat port)
tiny gpt2 >c.yaml

say "a page that is no reply of MLflow: nothing counts as sent"
run 0 "$banyan" train c.yaml --set name=a
touch is-a-page
run 1 "$banyan" runs sync runs/a --server "$url"
holds err "its reply is not JSON"
holds runs/a/mlflow.json '"offset": 0,'
rm is-a-page
run 0 "$banyan" runs sync runs/a --server "$url"
grep -q '"offset": 0,' runs/a/mlflow.json && fail "nothing was sent"

say "the address with a slash at its end is the same server"
: >asked
run 0 "$banyan" runs sync runs/a --server "$url/"
[ ! -s asked ] || { cat asked >&2; fail "something was sent twice"; }

say "a run that was stopped and goes on: killed, running, finished"
set -- train c.yaml --json --set track.sinks=mlflow --set track.mlflow="$url/" --set name=b
train_until 5 TERM "$banyan" "$@" --set train.steps=2000
[ "$code" -eq 3 ] || fail "exit code $code"
grep '^runs/update' asked >updates
[ "$(cat updates)" = "runs/update KILLED" ] || { cat updates >&2; fail "not one end"; }
train_until 15 TERM "$banyan" train --json --resume runs/b
grep '^runs/update' asked | tr '\n' ' ' >updates
[ "$(cat updates)" = "runs/update KILLED runs/update RUNNING runs/update KILLED " ] || { cat updates >&2; fail "updates"; }
[ "$(grep -c '^runs/create' asked)" -eq 1 ] || fail "two runs on the server"
