"""A worker that has a request and makes no step: others take its requests, it gets no more, and its link stays until it
makes a step, so that it cannot begin anew as if all were well.

usage: worker_hangs.py SOCKET     of a broker with a short --hang
"""
import itertools
import select
import time

from peer_frames import Peer, Worker


def beat(worker, steps, busy=True):
    worker.send(t="beat", steps=steps, busy=busy, engine={})


def wait_for(what):
    end = time.time() + 300
    while not what():
        assert time.time() < end, "it did not come"
        beat(good, 0, False)


def workers():
    gateway.take(0.3)
    return len(gateway.state["workers"])


def is_closed(worker):
    """Whether the broker has closed its link."""
    return bool(select.select([worker.socket], [], [], 0.05)[0]) and worker.socket.recv(1 << 16) == b""


gateway = Peer(role="gateway", name="g")
gateway.state = {"workers": []}
good = bad = Worker("v")
wait_for(lambda: workers() == 1)
gateway.send(t="submit", id="a-0", model="m", cost=1, request={"prompt": "a"})
wait_for(bad.work)
good = Worker("v")
moving = itertools.count(1)
wait_for(lambda: beat(bad, next(moving)) or workers() == 2)
# It speaks all the time, and its steps stay the same.
steps = next(moving)
wait_for(lambda: beat(bad, steps) or good.work())
assert [j["id"] for j in good.jobs] == ["a-0"] and good.jobs[0]["attempt"] > bad.jobs[0]["attempt"]
good.answer()
for _ in range(10):
    beat(bad, steps), beat(good, 0, False)
    assert not is_closed(bad), "it can begin anew"
assert workers() == 1
# It goes on, and begins anew.
beat(bad, steps + 1)
wait_for(lambda: is_closed(bad))
bad = Worker("v")
wait_for(lambda: beat(bad, next(moving)) or workers() == 2)
