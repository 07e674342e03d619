"""Checks of a server's webhooks, with receivers of its own: Python's library alone.

usage: webhook_client.py URL PORT TLS-PORT OTHER-TLS-PORT FILES PROCESS-ID

FILES has secret, and trusted.pem and other.pem: certificates with their keys. The process is the parent of the gateway.
"""
import base64
import collections
import hashlib
import hmac
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

url, port, tls, other_tls, files, parent = sys.argv[1:7]
SECRET = base64.b64decode(open(files + "/secret").read().strip().removeprefix("whsec_"))
came = collections.defaultdict(list)  # by path: headers and bodies
changed = threading.Condition()
answers = {"/twice": [500, 503, 204], "/gone": [410], "/moved": [302] * 9, "/held": ["hold", 200]}


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with changed:
            came[self.path].append((dict(self.headers), body))
            changed.notify_all()
            left = answers.get(self.path, [])
            status = left.pop(0) if left else 200
        if status == "hold":
            self.rfile.read(1)  # until the sender is gone
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *ignored):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *ignored):
        pass  # a sender that trusts no certificate ends the handshake


def receive(at, certificate=None):
    server = Server(("0.0.0.0", int(at)), Receiver)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{files}/{certificate}.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def call(path, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def submit(webhook, **more):
    body = {"model": "tiny", "prompt": "apple", "max_tokens": 5, "seed": 7, **more}
    return call("/v1/tasks", {"endpoint": "/v1/completions", "body": body, "webhook": webhook})


def wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, {path: len(list) for path, list in came.items()}
        time.sleep(0.05)


def outcome(task):
    """Of a task whose message is not on its way any more."""
    try:
        hook = call("/v1/tasks/" + task["id"])[1]["webhook"]
    except OSError:  # the gateway is being started again
        return None
    return hook if hook["status"] != "pending" else None


def settled(task):
    wait_for(lambda: outcome(task))
    return outcome(task)


def checked(message, kind, task):
    """The data of a message whose signature is right."""
    headers, body = message
    headers = {name.lower(): value for name, value in headers.items()}
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert hmac.compare_digest(headers["webhook-signature"], expected), headers
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 600, headers
    assert headers["webhook-id"] == task["id"] and headers["content-type"] == "application/json", headers
    whole = json.loads(body)
    assert list(whole) == ["type", "timestamp", "data"] and whole["type"] == kind, whole
    assert whole["data"]["id"] == task["id"] and "result" not in whole["data"], whole
    return whole["data"]


def main():
    here = f"http://127.0.0.1:{port}"
    receive(port)
    receive(tls, "trusted")
    receive(other_tls, "other")
    # What is not listed is refused before anything is kept.
    bads = ("http://example.com/", f"{here}@example.com/", f"http://127.0.0.3:{port}/", "file:///etc/passwd", "x")
    for bad in bads:
        status, answer = submit(bad)
        assert status == 400 and answer["error"]["param"] == "webhook", (bad, answer)
    tasks = {path: submit(here + path)[1] for path in ("/twice", "/gone", "/moved")}
    tasks["/failed"] = submit(here + "/failed", prompt=[99999])[1]
    tasks["/cancelled"] = submit(here + "/cancelled", max_tokens=900, n=4)[1]
    assert call(f"/v1/tasks/{tasks['/cancelled']['id']}/cancel", method="POST")[0] == 200
    tasks["/trusted"] = submit(f"https://127.0.0.1:{tls}/trusted")[1]
    tasks["/other"] = submit(f"https://127.0.0.1:{other_tls}/other")[1]
    tasks["/private"] = submit(f"http://127.0.0.2:{port}/private")[1]
    # Two attempts fail, and the third is taken: the same message, signed anew.
    assert settled(tasks["/twice"]) == {"status": "delivered", "attempts": 3}
    assert [checked(m, "task.completed", tasks["/twice"])["status"] for m in came["/twice"]] == ["completed"] * 3
    assert len({body for _, body in came["/twice"]}) == 1
    for path, kind in (("/failed", "task.failed"), ("/cancelled", "task.cancelled"), ("/trusted", "task.completed")):
        assert settled(tasks[path]) == {"status": "delivered", "attempts": 1}, path
        data = checked(came[path][0], kind, tasks[path])
        assert (data["error"] is not None) == (path == "/failed"), data
    # Redirects are not followed, other authorities' certificates not taken, private addresses not spoken to.
    assert settled(tasks["/gone"]) == {"status": "failed", "attempts": 1}
    assert settled(tasks["/moved"]) == {"status": "failed", "attempts": 4} and len(came["/moved"]) == 4
    # An address that is not allowed is not tried again, a certificate may be replaced.
    for path, attempts in ("/other", 4), ("/private", 1):
        assert settled(tasks[path]) == {"status": "failed", "attempts": attempts}, path
        assert path not in came, came[path]
    assert "/elsewhere" not in came
    metrics = urllib.request.urlopen(url + "/metrics").read().decode()
    for name in ("delivered", "given_up"):
        assert f'banyan_webhooks_total{{outcome="{name}"}} 4\n' in metrics, metrics
    # A gateway that is killed between the end of a task and the receiver's answer: the next one sends the message.
    held = submit(here + "/held")[1]
    with changed:
        assert changed.wait_for(lambda: came["/held"], 300)
    children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", parent], capture_output=True, text=True).stdout
    os.kill([int(line.split()[0]) for line in children.splitlines() if " gateway " in line][0], signal.SIGKILL)
    assert settled(held) == {"status": "delivered", "attempts": 2}
    for message in came["/held"]:
        checked(message, "task.completed", held)


main()
