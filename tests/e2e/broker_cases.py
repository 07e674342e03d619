"""The rules that both brokers keep, as one table of cases: the process `banyan broker` (src/serve/broker) and the script in
Redis (src/serve/link/redis/*.lua) must give the same answers.

usage: broker_cases.py SOCKET           a broker that runs with --queue 4
       broker_cases.py PORT SCRIPT      an empty Redis, and the script as a file

A case is a title and steps, with a model of its own:
    worker NAME VERSION SLOTS   connects, and names the model (or another, model=NAME)
    route VERSION=SHARE...      which versions get new requests
    submit ID [KEY=VALUE...]    priority, left (seconds), whole, follows, again, version
    given NAME ID|-             the next request that the worker is given; "-": none
    tell NAME ID EVENT...       events of the worker's last attempt: text:T, end
    stale NAME ID EVENT...      the same of the attempt before
    cancel ID                   by the gateway
    told NAME ID                the worker is told to end a request
    lose NAME                   the worker's process is gone
    again ID                    the gateway connects anew, and asks by the same id
    events ID EVENT...|-        all that the gateway has got of a request: text:T, again, end, error:CODE; again?: or
                                not, as where the gateway has asked anew and knows
"""
import json
import socket
import struct
import sys
import time

import peer_frames

QUEUE = 4
CASES = """
a request for a model when none is served
    submit a
    events a error:starting

a request for a model that no worker names
    worker other v 1 model=other
    submit a
    events a error:model_not_found

no more wait than the queue has room for, and who was accepted before is not refused
    worker w v 1
    submit a
    given w a
    submit b
    submit c
    submit d
    submit e
    submit f
    events f error:queue_full
    submit g again=1
    tell w a end
    given w b
    events a end

the parts of a request are refused with the first one that is
    worker w v 1
    submit a-0
    given w a-0
    submit b-0
    submit c-0
    submit d-0
    submit e-0
    submit f-0
    events f-0 error:queue_full
    tell w a-0 end
    given w b-0
    submit f-1 follows=1
    events f-1 error:queue_wait

requests of a higher priority first, and those of one in the order in which they came
    worker w v 1
    submit a
    given w a
    submit low priority=-1
    submit b
    submit high priority=1
    submit c
    tell w a end
    given w high
    tell w high end
    given w b
    tell w b end
    given w c
    tell w c end
    given w low

a request is submitted once
    worker w v 1
    submit a
    given w a
    submit b
    submit b
    tell w a end
    given w b
    tell w b end
    given w -
    events b end

the events of a request reach its gateway in order
    worker w v 1
    submit a
    given w a
    tell w a text:x text:y end
    events a text:x text:y end

a request of a lost worker goes to another one, and the gateway is told
    worker w v 1
    submit a
    given w a
    tell w a text:x
    events a text:x
    lose w
    worker x v 1
    given x a
    tell x a text:x text:y end
    events a text:x again text:x text:y end

a request that has lost three workers fails
    worker w v 1
    submit a
    given w a
    lose w
    worker x v 1
    given x a
    lose x
    worker y v 1
    given y a
    lose y
    worker z v 1
    given z -
    events a again again error:worker_lost

a worker that was given a request again says nothing of the earlier attempt
    worker w v 1
    submit a
    given w a
    again a
    told w a
    given w a
    stale w a text:stale end
    tell w a text:x end
    events a again? text:x end

a request is cancelled while it waits, and at its worker
    worker w v 1
    submit a
    given w a
    submit b
    submit c
    cancel b
    cancel a
    told w a
    given w c
    tell w c end
    given w -
    events a -
    events b -

a request that waits past its deadline fails
    worker w v 1
    submit a
    given w a
    submit b left=0.05
    events b error:deadline_exceeded
    tell w a end
    given w -

new requests go to the versions that have a share
    worker v v 1
    worker w w 1
    route v=1 w=0
    submit a
    given v a
    given w -
    route w=1 v=0
    submit b
    given w b
    tell v a end
    given v -

what waits for a version that gets no requests any more goes to another one
    worker v v 1
    worker w w 1
    route w=0 v=1
    submit a
    given v a
    submit b
    route w=1 v=0
    given w b

a stream that has begun waits for its own version
    worker v v 1
    worker w w 1
    route v=1 w=0
    submit a
    given v a
    tell v a text:x
    events a text:x
    route w=1 v=0
    lose v
    given w -
    worker x v 1
    given x a
    tell x a text:x end
    events a text:x again text:x end

an answer that is given whole begins again with another version
    worker v v 1
    worker w w 1
    route v=1 w=0
    submit a whole=1
    given v a
    tell v a text:x
    events a text:x
    route w=1 v=0
    lose v
    given w a
    tell w a text:y end
    events a text:x again text:y end

a request that names a version goes to that one only
    worker v v 1
    worker w w 1
    route v=1 w=0
    submit a version=w
    given v -
    given w a
"""


def wait_for(what, *about):
    end = time.time() + 300
    while not what():
        assert time.time() < end, about
        time.sleep(0.002)


def record(id, attempt, event):
    """An event as in a list (event_list.h)."""
    kind, _, text = event.partition(":")
    rest = b"\0" + text.encode() if kind == "text" else json.dumps({"id": id, "e": kind}).encode()
    head = struct.pack("<IcBI", 7 + len(id) + len(rest), b"p" if kind == "text" else b"e", len(id), attempt)
    return head + id.encode() + b"\0" + rest


class Embedded:
    """The broker behind a socket."""

    def __init__(self, path):
        self.gateway = None
        self.refs = self.answered = 0
        self.reconnect()

    def reconnect(self):
        if self.gateway:
            self.gateway.close()
        self.gateway = peer_frames.Peer(role="gateway", name="g")
        self.events = []

    def read(self):
        for message in self.gateway.take(0.002):
            if message["t"] == "task":
                self.answered = message["ref"]
            self.events += message.get("events", [])

    def settle(self):
        """What others have sent is handled before the last of some questions: in one turn of its loop, the broker
        accepts a connection, and in the next one it reads what came there."""
        for _ in range(3):
            self.refs += 1
            self.gateway.send(t="task_get", ref=self.refs, id="task_none", owner="o")
            wait_for(lambda: self.read() or self.answered == self.refs)

    def add_worker(self, name, model, version, slots):
        peer = peer_frames.Peer(role="worker", name=name, model=model, version=version, slots=slots, info={})
        self.settle()
        return peer

    def route(self, model, versions):
        peer = peer_frames.Peer(role="supervisor", name="s")
        peer.send(t="route", model=model, versions=versions)
        self.settle()
        peer.close()

    def submit(self, id, model, **more):
        self.gateway.send(t="submit", id=id, model=model, cost=1, request={"prompt": "a"}, **more)

    def cancel(self, id):
        self.gateway.send(t="cancel", id=id)

    def poll(self, peer):
        self.settle()
        return peer.take()

    def tell(self, peer, id, attempt, events):
        peer.send_frame(b"\1" + b"".join(record(id, attempt, event) for event in events))

    def lose(self, peer):
        peer.close()

    def news(self):
        self.settle()
        events, self.events = self.events, []
        return events


class Redis:
    """The script, called as the links to Redis do."""

    CODES = {b"full": "queue_full", b"wait": "queue_wait", b"unknown": "model_not_found", b"starting": "starting"}

    def __init__(self, port, script):
        with open(script, encoding="utf-8") as file:
            self.script = file.read()
        self.files = [socket.create_connection(("127.0.0.1", int(port))).makefile("rwb") for _ in range(2)]
        self.commands, self.channels = self.files
        self.names = 0
        self.inbox = {}
        self.reconnect()

    @staticmethod
    def send(file, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        file.flush()

    def reply(self, file):
        line = file.readline()
        kind, rest = line[:1], line[1:-2]
        assert kind != b"-", line
        if kind == b"$":
            return None if rest == b"-1" else file.read(int(rest) + 2)[:-2]
        return [self.reply(file) for _ in range(int(rest))] if kind == b"*" else rest

    def call(self, *words):
        self.send(self.commands, "EVAL", self.script, 0, *words)
        return self.reply(self.commands)

    def receive(self, name):
        """The messages of a channel: all that was published before the answer to a ping."""
        self.send(self.channels, "PING")
        while True:
            kind, channel, *text = self.reply(self.channels) + [b""]
            if kind == b"pong":
                break
            if kind == b"message" and text[0]:
                self.inbox[channel.decode().split(":")[-1]].append(peer_frames.Peer.message_of(text[0]))
        messages, self.inbox[name] = self.inbox[name], []
        return messages

    def subscribe(self, name):
        self.inbox[name] = []
        self.send(self.channels, "SUBSCRIBE", "banyan:to:" + name)

    def reconnect(self):
        self.names += 1
        self.gateway = f"g{self.names}"
        self.refused = []
        self.subscribe(self.gateway)

    def add_worker(self, name, model, version, slots):
        self.subscribe(name)
        self.call("hello", name, model, version, "{}")
        self.call("beat", name, model, version, json.dumps({"model": model, "version": version}))
        return {"name": name, "model": model, "version": version, "slots": slots, "held": set()}

    def route(self, model, versions):
        assert self.call("route", model, "s", json.dumps({"versions": versions}), "") == [b"1"]

    def submit(self, id, model, priority=0, left=0, whole=0, follows=0, again=0, version=""):
        level = 2 - priority
        answer = self.call("submit", id, model, level, 1, 1, int(left * 1000), self.gateway, 0, int(again), QUEUE,
                           1 << 30, 1 << 30, "wait", version, int(whole), "{}")
        if answer[0] != b"ok":
            self.refused.append({"id": id, "e": "error", "code": self.CODES[answer[0]]})

    def cancel(self, id):
        self.call("cancel", id, self.gateway)

    def poll(self, worker):
        messages = self.receive(worker["name"])
        worker["held"] -= {m["id"] for m in messages}
        # Nothing has been silent for so long but what a lost worker had.
        self.send(self.commands, "HSET", "banyan:pulse", "since", 1)
        self.reply(self.commands)
        room = worker["slots"] - len(worker["held"])
        who = [worker[key] for key in ("name", "model", "version")]
        for row in self.call("take", *who, room, 3000000, 3, 99) if room else []:
            worker["held"].add(row[0].decode())
            messages.append({"t": "work", "id": row[0].decode(), "attempt": int(row[1])})
        return messages

    def tell(self, worker, id, attempt, events):
        words = []
        for event in events:
            words += [id, attempt, event.split(":")[0], "h", record(id, attempt, event)]
        if not self.call("events", *words) and events[-1] == "end":
            worker["held"].discard(id)

    def lose(self, worker):
        self.call("bye", worker["name"])

    def news(self):
        self.call("state", self.gateway, 5000)
        events, self.refused = self.refused, []
        return events + [e for m in self.receive(self.gateway) for e in m.get("events", [])]


class Case:
    def __init__(self, broker, number):
        self.broker, self.number = broker, number
        self.workers, self.jobs, self.cancelled, self.attempts, self.received = {}, {}, {}, {}, {}

    def name(self, word):
        """What a word is called at the broker, where all cases run."""
        return f"c{self.number}{word}"

    def run(self, step):
        verb, *words = step.split()
        options = dict(w.split("=") for w in words if "=" in w)
        getattr(self, verb)(*[w for w in words if "=" not in w], **options)

    def worker(self, name, version, slots, model="m"):
        self.workers[name] = self.broker.add_worker(self.name(name), self.name(model), version, int(slots))
        self.jobs[name], self.cancelled[name] = [], []

    def route(self, **shares):
        versions = [{"version": v, "share": float(share)} for v, share in shares.items()]
        self.broker.route(self.name("m"), versions)

    def submit(self, id, version=None, left=None, **more):
        more = {key: int(value) if key == "priority" else bool(int(value)) for key, value in more.items()}
        more.update({"version": version} if version else {}, **({"left": float(left)} if left else {}))
        self.broker.submit(self.name(id), self.name("m"), **more)

    def poll(self, name):
        for message in self.broker.poll(self.workers[name]):
            id = message["id"]
            if message["t"] == "work":
                self.jobs[name].append(id)
                self.attempts.setdefault(id, []).append(message["attempt"])
            else:
                self.cancelled[name].append(id)

    def next_of(self, name, list):
        wait_for(lambda: self.poll(name) or list[name], name)
        return list[name].pop(0)

    def given(self, name, id):
        if id == "-":
            self.poll(name)
            assert not self.jobs[name], self.jobs[name]
        else:
            found = self.next_of(name, self.jobs)
            assert found == self.name(id), found

    def told(self, name, id):
        found = self.next_of(name, self.cancelled)
        assert found == self.name(id), found

    def tell(self, name, id, *events, attempt=-1):
        id = self.name(id)
        self.broker.tell(self.workers[name], id, self.attempts[id][attempt], events)

    def stale(self, name, id, *events):
        self.tell(name, id, *events, attempt=-2)

    def cancel(self, id):
        self.broker.cancel(self.name(id))

    def lose(self, name):
        self.broker.lose(self.workers.pop(name))

    def again(self, id):
        self.broker.reconnect()
        self.submit(id, again=1)

    def events(self, id, *wanted):
        id = self.name(id)
        wanted = [] if wanted == ("-",) else list(wanted)
        known = "again?" in wanted

        def found():
            return [e for e in self.received.get(id, []) if e != "again" or not known]

        def come():
            for e in self.broker.news():
                more = {"text": ":" + e.get("text", ""), "error": ":" + e.get("code", "")}
                self.received.setdefault(e["id"], []).append(e["e"] + more.get(e["e"], ""))
            return len(found()) >= len(wanted)

        wanted = [e for e in wanted if e != "again?"]
        wait_for(come, id, wanted)
        assert found() == wanted, found()


broker = Redis(*sys.argv[1:]) if len(sys.argv) == 3 else Embedded(sys.argv[1])
for number, case in enumerate(CASES.strip().split("\n\n")):
    title, *steps = case.split("\n")
    state = Case(broker, number)
    for step in steps:
        try:
            state.run(step)
        except AssertionError as problem:
            sys.exit(f"{title}: {step.strip()}: {problem}")
    for name in [*state.workers]:
        state.lose(name)
