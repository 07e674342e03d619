"""A broker's peers, played by this program: which worker a request is given to, by its version and by what became of
its former workers.

usage: broker_peers.py SOCKET
"""
import socket
import sys
import time

from peer_frames import Peer, Worker


class Gateway(Peer):
    def __init__(self):
        super().__init__(role="gateway", name="g")
        self.events = {}
        self.answers = {}

    def submit(self, id, **more):
        self.send(t="submit", **{"id": id, "model": "m", "cost": 1, "request": {"prompt": "a"}, **more})

    def take(self, seconds=0.0):
        for message in super().take(seconds):
            for event in message.get("events", []):
                self.events.setdefault(event["id"], []).append(event)
            if message["t"] == "task":
                self.answers[message["ref"]] = message

    def last(self, id, seconds=300):
        end = time.time() + seconds
        while not (id in self.events and self.events[id][-1]["e"] in ("end", "error")):
            assert time.time() < end, (id, self.events.get(id))
            self.take(0.1)
        return self.events[id][-1]

    def add_task(self, ref, model):
        """What the broker answers to a task."""
        task = {"model": model, "cost": 1, "request": {"prompt": "a"}}
        self.send(t="task_add", ref=ref, id=f"task_{ref}", owner="o", expires=time.time() + 60, task=task)
        wait_for(lambda: self.take(0.1) or ref in self.answers)
        return self.answers[ref]

    def models(self):
        """What the next state says of models."""
        self.state = None
        while self.state is None:
            self.take(0.3)
        return self.state["models"]

    def version(self, name):
        """What it says of a version."""
        models = self.models()
        return ([v for m in models for v in m["versions"] if v["version"] == name] or [None])[0]


def wait_for(what, *args):
    """Until it is so; what is asked waits for messages itself."""
    end = time.time() + 300
    while not what(*args):
        assert time.time() < end, "it did not come"


def route(shares, model="m", **more):
    versions = [{"version": v, "share": s, "shadow": v in more.get("shadow", ())} for v, s in shares.items()]
    supervisor.send(t="route", model=model, versions=versions)


supervisor = Peer(role="supervisor", name="s")
gateway = Gateway()
# Why a task is not taken: no model is served yet, or not this one.
error = gateway.add_task(1, "m")["error"]
assert (error["status"], error["code"], error["retry_after"]) == (503, "starting", 1.0), error
one, two = Worker("one", 1000), Worker("two", 1000)
wait_for(lambda: gateway.version("two") and len(gateway.state["workers"]) == 2)
error = gateway.add_task(2, "other")["error"]
assert (error["status"], error["code"], error["retry_after"]) == (404, "model_not_found", 0.0), error

# Before anyone says which versions get requests, none does.
gateway.submit("early-0")
wait_for(lambda: [m["queue"] for m in gateway.models()] == [1])
assert not one.work(0.0) and not two.work(0.0)
route({"one": 0.75, "two": 0.25})
wait_for(lambda: one.work() or two.work())

# Shares; the parts of a request stay together.
for i in range(400):
    gateway.submit(f"r{i}-0", whole=True)
    gateway.submit(f"r{i}-1", whole=True)
wait_for(lambda: len(one.work()) + len(two.work()) == 801)
ids = [{j["id"].rsplit("-", 1)[0] for j in w.jobs} for w in (one, two)]
assert not ids[0] & ids[1] and 60 < len(ids[1]) < 140, (len(ids[0]), len(ids[1]))
# What a worker says of a request of another one is no news.
stranger, own = one.jobs[0]["id"], two.jobs[-1]["id"]
two.tell(one.jobs[0], {"e": "error", "status": 500, "code": "stranger", "message": "stranger"})
two.answer()
gateway.last(own)
assert stranger not in gateway.events, gateway.events[stranger]
one.answer()
gateway.last("r399-1")
state = gateway.version("two")
assert state["requests"] == 2 * len(ids[1]) - ("early" in ids[1]) and state["errors"] == 0, state
assert state["first"]["count"] == state["requests"] and sum(state["whole"]["counts"]) == state["requests"]

# Errors that a version answers for: the server's, and a format that its vocabulary cannot write; not what a client does.
route({"one": 0.0, "two": 1.0})
ends = {500: "generation_failed", 400: "unwritable_format", 404: "not_found"}
for status in ends:
    gateway.submit(f"end{status}-0")
wait_for(lambda: len(two.work()) == len(ends))
for job, (status, code) in zip(two.jobs, ends.items()):
    two.tell(job, {"e": "error", "status": status, "code": code, "message": code})
two.jobs = []
wait_for(lambda: gateway.version("two")["requests"] == state["requests"] + len(ends))
assert gateway.version("two")["errors"] == 2, gateway.version("two")

# A stream that has begun waits for its own version; an answer that is given whole begins again with another one.
route({"one": 1.0, "two": 0.0})
gateway.submit("stream-0"), gateway.submit("whole-0", whole=True), gateway.submit("unsent-0")
wait_for(lambda: len(one.work()) == 3)
before = max(job["attempt"] for job in one.jobs)
for job in one.jobs[:2]:
    one.tell(job, {"e": "text", "i": 0, "text": "b"})
wait_for(lambda: gateway.take(0.05) or {"stream-0", "whole-0"} <= gateway.events.keys())
route({"two": 1.0, "one": 0.0})
wait_for(lambda: gateway.version("two")["share"] == 1.0)
one.close()
wait_for(lambda: len(two.work()) == 2)
assert {j["id"] for j in two.jobs} == {"whole-0", "unsent-0"} and all(j["attempt"] > before for j in two.jobs)
one = Worker("one")
wait_for(one.work)
assert [(j["id"], j["attempt"] > before) for j in one.jobs] == [("stream-0", True)]
one.answer("b"), two.answer("b")
assert gateway.last("stream-0")["e"] == "end"

# A gateway that comes back asks by the same id: what the worker still says of the earlier delivery is no news.
gateway.submit("back-0")
wait_for(lambda: len(two.work()) == 1)
(stale,), two.jobs = two.jobs, []
gateway.close()
gateway = Gateway()
gateway.submit("back-0", again=True)
wait_for(lambda: len(two.work()) == 1)
two.tell(stale, {"e": "text", "i": 0, "text": "stale"}, {"e": "end"})
two.answer("fresh")
assert gateway.last("back-0")["e"] == "end"
assert [e.get("text") for e in gateway.events["back-0"]] == ["fresh", None], gateway.events["back-0"]

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
end = time.time() + 300
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

# What would wait too long is refused at once, with the reason. Behind a start, with nothing measured, four times as many
# sequences may wait as run, and 8 when what runs has not ended for a while.
worker = Worker("one", slots=5, model="n", sessions=4)
route({"one": 1.0}, model="n")
wait_for(lambda: [m["sessions"] for m in gateway.models() if m["id"] == "n"] == [4])
for i in range(22):
    gateway.submit(f"n{i}-0", model="n", sequences=i // 21 + 1)
wait_for(lambda: worker.work() and "n21-0" in gateway.events or gateway.take(0.05))
refused = [id for id in gateway.events if id[0] == "n"]
assert 2 <= len(refused) <= 10 and len(worker.jobs) == 5, (refused, worker.jobs)
assert all(gateway.events[id][0]["code"] == "queue_wait" for id in refused)
assert all(1 <= gateway.events[id][0]["retry_after"] <= 60 for id in refused)
# The other prompts of a request that was taken, and requests of a higher priority, of which none wait.
gateway.submit("n0-1", model="n", follows=True)
gateway.submit("urgent-0", model="n", priority=1)
wait_for(lambda: [m["wait"] > 0 for m in gateway.models() if m["id"] == "n"] == [True])
gateway.submit("late-0", model="n", left=1e-6, priority=1)
assert gateway.last("late-0")["code"] == "queue_deadline"
gateway.submit("late-1", model="n", follows=True)
assert gateway.last("late-1")["status"] == 429
model = [m for m in gateway.models() if m["id"] == "n"][0]
assert model["queue"] == 22 - len(refused) + 2 - 5 and model["refused"] == len(refused) + 2, model
given = [j["id"] for j in worker.jobs]
while len(given) < 24 - len(refused):
    worker.answer()
    given += [j["id"] for j in worker.work()]
assert given[5] == "urgent-0" and given[-1] == "n0-1", given
worker.answer()
wait_for(lambda: [m["queue"] + m["wait"] for m in gateway.models() if m["id"] == "n"] == [0])

# Tasks have their turn, however many requests come: once one has waited for 5 seconds, the eighth of what workers get
# is the task that has waited longest, at the worker's next place, which need not be a session.
worker = Worker("one", slots=5, model="t", sessions=4)
route({"one": 1.0}, model="t")
wait_for(lambda: [m["sessions"] for m in gateway.models() if m["id"] == "t"] == [4])
requests = iter(f"t{i}-0" for i in range(100000))
for _ in range(20):
    gateway.submit(next(requests), model="t", again=True)
wait_for(lambda: len(worker.work()) == 5)
for id, priority in ("task-a", -1), ("task-b", 0):
    task = {"model": "t", "cost": 1, "priority": priority, "request": {"prompt": "a"}}
    gateway.send(t="task_add", ref=id, id=id, owner="o", expires=time.time() + 3600, task=task)
    wait_for(lambda: [m["queue"] for m in gateway.models() if m["id"] == "t"] == [16 if id == "task-a" else 17])
begun = time.time()
given = []
while sum(id.startswith("task") for id in given) < 2:
    assert time.time() - begun < 300, given[-20:]
    for job in worker.work(0.01):
        given.append(job["id"])
        gateway.submit(next(requests), model="t", again=True)
    worker.answer()
    gateway.take()
tasks = [i for i, id in enumerate(given) if id.startswith("task")]
assert [given[i] for i in tasks] == ["task-a", "task-b"] and tasks[1] - tasks[0] >= 8, (tasks, given[tasks[0] :])

# A connection that a dialer has bound is a worker's of one model, whatever is said there.
own = {"version": "one", "slots": 1, "info": {}}
for name, hello in [
    ("gateway", {"role": "gateway"}),
    ("supervisor", {"role": "supervisor"}),
    ("of another model", {"role": "worker", "model": "m", **own}),
    ("bound again", {"t": "bound", "model": "m"}),
    ("not bound at all", None),
    ("worker", {"role": "worker", "model": "bound", **own}),
]:
    peer = Peer.__new__(Peer)
    peer.socket, peer.data = socket.socket(socket.AF_UNIX), b""
    peer.socket.connect(sys.argv[1])
    peer.send(t="bound", **({"model": "bound"} if hello else {}))
    if hello:
        peer.send(**{"t": "hello", "name": "bound", "pid": 1, **hello})
    if name == "worker":
        wait_for(lambda: [w for w in gateway.models() and gateway.state["workers"] if w["model"] == "bound"])
    else:
        peer.socket.settimeout(300)
        try:
            while peer.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
    peer.close()
