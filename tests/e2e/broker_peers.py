"""A broker's peers, played by this program: which worker a request is given to, by its version and by what became of
its former workers.

usage: broker_peers.py SOCKET
"""
import json
import select
import socket
import struct
import sys
import time


class Peer:
    """A connection that speaks the frames of link.h."""

    def __init__(self, **hello):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(sys.argv[1])
        self.data = b""
        self.send(t="hello", pid=1, **hello)

    def send(self, **message):
        self.send_frame(json.dumps(message).encode())

    def send_frame(self, text):
        self.socket.sendall(struct.pack("<I", len(text)) + text)

    @staticmethod
    def events_of(data):
        """The events of a list (event_list.h)."""
        while data:
            size, kind, id_length, _ = struct.unpack("<IcBI", data[:10])
            id, rest = data[10 : 10 + id_length].decode(), data[11 + id_length : 4 + size]
            yield {"id": id, "e": "text", "i": rest[0], "text": rest[1:].decode()} if kind == b"p" else json.loads(rest)
            data = data[4 + size :]

    def take(self, seconds=0.0):
        """Messages that have come, without states of the broker, of which the last one is kept."""
        out = []
        while select.select([self.socket], [], [], seconds)[0]:
            piece = self.socket.recv(1 << 20)
            if not piece:
                break
            self.data += piece
            seconds = 0.0
        while len(self.data) >= 4 and len(self.data) >= 4 + struct.unpack("<I", self.data[:4])[0]:
            length = struct.unpack("<I", self.data[:4])[0]
            frame = self.data[4 : 4 + length]
            message = {"t": "events", "events": [*self.events_of(frame[1:])]} if frame[0] == 1 else json.loads(frame)
            self.data = self.data[4 + length :]
            if message["t"] == "state":
                self.state = message
            else:
                out.append(message)
        return out

    def close(self):
        self.socket.close()


count = 0


class Worker(Peer):
    def __init__(self, version, slots=4):
        global count
        count += 1
        self.version = version
        super().__init__(role="worker", name=f"w{count}", model="m", version=version, slots=slots, info={"context": 8})
        self.jobs = []

    def work(self, seconds=0.05):
        self.jobs += [m for m in self.take(seconds) if m["t"] == "work"]
        return self.jobs

    def tell(self, job, *events):
        frame = b"\1"
        for event in events:
            piece = event["e"] == "text"
            whole = json.dumps({"id": job["id"], **event}).encode()
            rest = bytes([event["i"]]) + event["text"].encode() if piece else whole
            kind = {"text": b"p", "end": b"e", "error": b"x"}[event["e"]]
            id = job["id"].encode() + b"\0"
            frame += struct.pack("<IcBI", 6 + len(id) + len(rest), kind, len(id) - 1, job["attempt"]) + id + rest
        self.send_frame(frame)

    def answer(self, text="a"):
        for job in self.jobs:
            self.tell(job, {"e": "text", "i": 0, "text": text}, {"e": "end"})
        self.jobs = []


class Gateway(Peer):
    def __init__(self):
        super().__init__(role="gateway", name="g")
        self.events = {}

    def submit(self, id, **more):
        self.send(t="submit", id=id, model="m", cost=1, request={"prompt": "a"}, **more)

    def take(self, seconds=0.0):
        for message in super().take(seconds):
            for event in message.get("events", []):
                self.events.setdefault(event["id"], []).append(event)

    def last(self, id, seconds=20):
        end = time.time() + seconds
        while not (id in self.events and self.events[id][-1]["e"] in ("end", "error")):
            assert time.time() < end, (id, self.events.get(id))
            self.take(0.1)
        return self.events[id][-1]

    def version(self, name):
        """What the state says of a version."""
        self.state = None
        while self.state is None:
            self.take(0.3)
        models = self.state["models"]
        return ([v for m in models for v in m["versions"] if v["version"] == name] or [None])[0]


def wait_for(what, *args):
    end = time.time() + 20
    while not what(*args):
        assert time.time() < end, "it did not come"
        time.sleep(0.01)


def route(shares, **more):
    versions = [{"version": v, "share": s, "shadow": v in more.get("shadow", ())} for v, s in shares.items()]
    supervisor.send(t="route", model="m", versions=versions)


supervisor = Peer(role="supervisor", name="s")
gateway = Gateway()
one, two = Worker("one", 1000), Worker("two", 1000)
wait_for(lambda: gateway.version("two") and len(gateway.state["workers"]) == 2)

# Before anyone says which versions get requests, none does.
gateway.submit("early-0")
assert not one.work(0.5) and not two.work(0.0)
route({"one": 0.75, "two": 0.25})
wait_for(lambda: one.work() or two.work())

# Shares; the parts of a request stay together.
for i in range(400):
    gateway.submit(f"r{i}-0", whole=True)
    gateway.submit(f"r{i}-1", whole=True)
wait_for(lambda: len(one.work()) + len(two.work()) == 801)
ids = [{j["id"].rsplit("-", 1)[0] for j in w.jobs} for w in (one, two)]
assert not ids[0] & ids[1] and 60 < len(ids[1]) < 140, (len(ids[0]), len(ids[1]))
one.answer(), two.answer()
gateway.last("r399-1")
state = gateway.version("two")
assert state["requests"] == 2 * len(ids[1]) - ("early" in ids[1]) and state["errors"] == 0, state
assert state["first"]["count"] == state["requests"] and sum(state["whole"]["counts"]) == state["requests"]

# A stream that has begun waits for its own version; an answer that is given whole begins again with another one.
route({"one": 1.0, "two": 0.0})
gateway.submit("stream-0"), gateway.submit("whole-0", whole=True), gateway.submit("unsent-0")
wait_for(lambda: len(one.work()) == 3)
for job in one.jobs[:2]:
    one.tell(job, {"e": "text", "i": 0, "text": "b"})
gateway.take(0.2)
route({"two": 1.0, "one": 0.0})
time.sleep(0.1)
one.close()
wait_for(lambda: len(two.work()) == 2)
assert {j["id"] for j in two.jobs} == {"whole-0", "unsent-0"} and all(j["attempt"] == 2 for j in two.jobs)
one = Worker("one")
wait_for(one.work)
assert [(j["id"], j["attempt"]) for j in one.jobs] == [("stream-0", 2)]
one.answer("b"), two.answer("b")
assert gateway.last("stream-0")["e"] == "end"

# Copies for a version under test: nobody gets their answers, which are compared.
route({"one": 1.0, "two": 0.0}, shadow=["two"])
for i in range(6):
    gateway.submit(f"copy{i}-0")
wait_for(lambda: len(one.work()) == 4 and len(two.work()) == 6)
while not all(f"copy{i}-0" in gateway.events and gateway.events[f"copy{i}-0"][-1]["e"] == "end" for i in range(6)):
    one.work(), one.answer("x"), gateway.take(0.1)
assert all(j["id"].startswith("shadow_") for j in two.jobs)
for i, job in enumerate(two.jobs):
    end = {"e": "end"} if i < 5 else {"e": "error", "status": 500}
    two.tell(job, {"e": "text", "i": 0, "text": "x" if i < 3 else "y"}, end)
two.jobs = []
wait_for(lambda: sum(gateway.version("two")["mirrored"][k] for k in ("same", "different", "failed")) == 6)
assert gateway.version("two")["mirrored"] == {"sent": 6, "same": 3, "different": 2, "failed": 1}
assert not [id for id in gateway.events if id.startswith("shadow")]

# A request that kills its workers: it is tried three times, the last time alone, and takes no other one along.
route({"one": 1.0})
two.close(), one.close()
workers = [Worker("one"), Worker("one")]
gateway.submit("poison-0", whole=True)
innocent = [f"innocent{i}-0" for i in range(7)]
for id in innocent:
    gateway.submit(id, whole=True)
killed = 0
end = time.time() + 20
while "poison-0" not in gateway.events or gateway.events["poison-0"][-1]["e"] != "error":
    assert time.time() < end, gateway.events.get("poison-0")
    for i, worker in enumerate(workers):
        worker.work()
        if any(j["id"] == "poison-0" for j in worker.jobs):
            killed += 1
            assert killed < 3 or len(worker.jobs) == 1, worker.jobs
            worker.close()
            workers[i] = Worker("one")
        elif killed >= 2:
            worker.answer()
    gateway.take()
assert killed == 3 and "3 times" in gateway.events["poison-0"][-1]["message"], gateway.events["poison-0"]
for id in innocent:
    while id not in gateway.events or gateway.events[id][-1]["e"] != "end":
        assert time.time() < end, (id, gateway.events.get(id))
        for worker in workers:
            worker.work(), worker.answer()
        gateway.take(0.05)
wait_for(lambda: gateway.version("one") and gateway.state["dead"] == 1)

# The version of a stream that has begun is no longer served: the client is told.
route({"one": 0.0, "three": 1.0})
gateway.submit("gone-0", version="one")
wait_for(lambda: any(w.work() for w in workers))
for worker in workers:
    worker.close()
route({"three": 1.0})
assert gateway.last("gone-0")["code"] == "version_gone"
