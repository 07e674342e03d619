"""What a gateway asks its broker, which this program plays, when the link breaks and comes back.

usage: gateway_relink.py SOCKET BANYAN
"""
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

path, banyan = sys.argv[1:]
# Made before there is a link: on a busy machine that takes as long as a silent broker is waited for.
LARGE = json.dumps({"list": [[1] * 3000000]})
MODEL = {"id": "m", "queue": 3, "workers": 0, "restarts": {"crash": 2}}
STATE = json.dumps({"t": "state", "workers": [], "models": [MODEL], "dead": 1}).encode()


class Broker:
    """One link of the gateway."""

    def __init__(self):
        self.socket = listener.accept()[0]
        self.data = b""
        self.messages = []
        self.wait_for(lambda m: m["t"] == "hello")

    def send(self, text):
        self.socket.sendall(struct.pack("<I", len(text)) + text)

    def read(self, seconds):
        """A gateway that has said hello hears the state meanwhile: a silent broker counts as lost."""
        if self.messages:
            self.send(STATE)
        if select.select([self.socket], [], [], seconds)[0]:
            self.data += self.socket.recv(1 << 20)
        while len(self.data) >= 4 and len(self.data) >= 4 + struct.unpack("<I", self.data[:4])[0]:
            length = struct.unpack("<I", self.data[:4])[0]
            self.messages.append(json.loads(self.data[4 : 4 + length]))
            self.data = self.data[4 + length :]

    def wait_for(self, what):
        """The first message that is so."""
        end = time.time() + 300
        while not [m for m in self.messages if what(m)]:
            assert time.time() < end, self.messages
            self.read(0.1)
        return next(m for m in self.messages if what(m))

    def result(self, job, result):
        """The whole answer of a request, whose result is JSON."""
        head = json.dumps({"id": job["id"], "e": "result", "usage": {}, "timing": {}})
        event = f'{head[:-1]}, "result": {result}}}'.encode()
        id = job["id"].encode() + b"\0"
        rest = id + event
        self.send(b"\1" + struct.pack("<IcBI", 6 + len(rest), b"r", len(id) - 1, 1) + rest)


def wait_for(what, broker=None):
    end = time.time() + 300
    while not what():
        assert time.time() < end, "it did not come"
        if broker:
            broker.read(0.01)
        else:
            time.sleep(0.01)


def listen():
    global listener
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()


def metric(name):
    lines = urllib.request.urlopen(url + "/metrics").read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), None)


def post(body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + "/v1/predict", data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


listen()
gateway = subprocess.Popen(
    [banyan, "gateway", "--dir", os.path.dirname(path), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
)
try:
    url = gateway.stdout.readline().strip()
    broker = Broker()

    # What the broker has said of models and workers is told as long as it is there.
    wait_for(lambda: metric("banyan_broker_reached") == 1 and metric("banyan_queue_requests") is not None, broker)
    assert metric("banyan_queue_requests") == 3 and metric("banyan_dead_requests_total") == 1
    assert metric('banyan_worker_restarts_total{model="m",reason="crash"}') == 2

    # The link breaks while another thread reads a large result: it is whole, and is not computed again.
    answers = []
    client = threading.Thread(target=lambda: answers.append(post({"model": "m", "rows": [[1]]})))
    client.start()
    job = broker.wait_for(lambda m: m["t"] == "submit")
    broker.result(job, LARGE)
    wait_for(lambda: metric("banyan_large_answers_total") >= 1, broker)
    broker.socket.close()
    broker = Broker()
    while client.is_alive():
        broker.read(0.05)
    assert len(answers[0]["predictions"][0]) == 3000000
    assert [m["t"] for m in broker.messages] == ["hello"], broker.messages

    # What could not be sent is asked for when the link is back, unless its client is gone: the broker then hears nothing.
    listener.close()
    os.unlink(path)
    broker.socket.close()
    wait_for(lambda: metric("banyan_broker_reached") == 0)
    for name in ("banyan_queue_requests", "banyan_dead_requests_total", 'banyan_model_workers{model="m"}'):
        assert metric(name) is None, name
    gone = socket.create_connection(url.removeprefix("http://").split(":"))
    body = json.dumps({"model": "m", "rows": [[2]]}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    gone.sendall(head % len(body) + body)
    wait_for(lambda: metric("banyan_requests_running") == 1)
    gone.close()
    wait_for(lambda: metric("banyan_requests_running") == 0)
    client = threading.Thread(target=lambda: answers.append(post({"model": "m", "rows": [[3]]})))
    client.start()
    wait_for(lambda: metric("banyan_requests_running") == 1)
    time.sleep(0.5)  # five attempts, of which the log tells one
    listen()
    broker = Broker()
    broker.result(broker.wait_for(lambda m: m["t"] == "submit"), json.dumps({"list": [4]}))
    client.join()
    assert answers[1]["predictions"] == [4]
    asked = [json.loads(m["request"])["rows"] for m in broker.messages[1:]]
    assert asked == [[[3]]], broker.messages
finally:
    gateway.terminate()
    assert gateway.wait(300) == 0
