"""Quotas and tasks of a gateway's clients, with workers that this program plays and brokers that it starts and kills.

usage: gateway_tasks.py SOCKET BANYAN
"""
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from peer_frames import Worker

path, banyan = sys.argv[1:]
directory = os.path.dirname(path)
log = open("log", "ab")
processes = []


def start(*command, **more):
    processes.append(subprocess.Popen([banyan, *command, "--dir", directory], stderr=log, **more))
    return processes[-1]


def start_broker(*more):
    # The worker that this program plays sends no beats.
    return start("broker", "--silence", "3600", "--hang", "3600", "--tasks", "gateway_tasks.sqlite", *more)


def wait_for(what):
    """Until it is something, which is returned."""
    end = time.time() + 300
    while True:
        out = what()
        if out:
            return out
        assert time.time() < end, "it did not come"
        time.sleep(0.02)


def connect():
    try:
        return Worker("one", info={"context": 1000})
    except OSError:
        return None  # the broker is not there yet


def call(path, body=None, method=None, **headers):
    """Status and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def job():
    wait_for(worker.work)
    return worker.jobs.pop()


def end(job, prompt, generated):
    usage = {"prompt_tokens": prompt, "completion_tokens": generated}
    begin = {"e": "begin", "prompt_tokens": prompt, "version": "one"}
    worker.tell(job, begin, {"e": "text", "i": 0, "text": "a"}, {"e": "end", "usage": usage, "timing": {}})


def used():
    """Tokens of the day, as the gateway's file has them."""
    try:
        with open("quota.json") as file:
            return json.load(file)["used"].get("", 0)
    except FileNotFoundError:
        return 0


def run(path, body, prompt, generated, before=lambda: None):
    """A request that the worker answers."""
    thread = threading.Thread(target=call, args=(path, {"model": "m", **body}))
    thread.start()
    taken = job()
    before()
    end(taken, prompt, generated)
    thread.join()


def stream(body):
    """Lines of a stream as they come; the last one is None."""
    out = []
    data = json.dumps({"model": "m", "stream": True, **body}).encode()
    request = urllib.request.Request(url + "/v1/completions", data, {"Content-Type": "application/json"})

    def read():
        with urllib.request.urlopen(request) as answer:
            out.extend(answer)
        out.append(None)

    threading.Thread(target=read).start()
    return out


def events(path, body=None):
    """Events of a stream as they come; the last one is None."""
    out = []
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})

    def read():
        with urllib.request.urlopen(request) as stream:
            for line in stream:
                out.extend([json.loads(line[6:])] if line.startswith(b"data: ") else [])
        out.append(None)

    threading.Thread(target=read).start()
    return out


try:
    broker = start_broker()
    worker = wait_for(connect)
    more = ["--quota", "quota.json", "--set", "limits.tokens_per_day=1000000"]
    gateway = start("gateway", "--listen", "127.0.0.1:0", *more, stdout=subprocess.PIPE)
    url = gateway.stdout.readline().decode().strip()
    wait_for(lambda: call("/v1/models")[1]["data"])

    # An answer without a bound counts with all that it has; and of several answers each one counts, before they run.
    run("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 3, 5000)
    wait_for(lambda: used() == 5003)
    several = {"prompt": "a", "n": 4, "max_tokens": 100}
    run("/v1/completions", several, 1, 8, lambda: wait_for(lambda: used() >= 5003 + 400))
    wait_for(lambda: used() == 5012)
    # None has more than the context, so that a bound beyond what may wait is none to be refused for.
    run("/v1/completions", {"prompt": "a", "max_tokens": 10_000_000}, 1, 1, lambda: wait_for(lambda: used() < 7000))
    wait_for(lambda: used() == 5014)

    # Who goes away before the first event pays for what is computed: by the bytes of the prompt, as nothing has told more.
    for path, body in (("/v1/embeddings", {"input": "a" * 4000}), ("/v1/completions", {"prompt": "a" * 4000})):
        before = used()
        data = json.dumps({"model": "m", **body}).encode()
        gone = socket.create_connection(url.removeprefix("http://").split(":"))
        gone.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(data) + data)
        job()
        gone.close()
        wait_for(lambda: before + 1000 < used() < before + 1016)

    # A key of idempotency stands for one task, whose repeats are free; what is not taken is free too.
    task = {"endpoint": "/v1/completions", "body": {"model": "m", "prompt": "a", "max_tokens": 10}}
    other = {"endpoint": "/v1/completions", "body": {"model": "m", "prompt": "b", "max_tokens": 10}}
    status, first = call("/v1/tasks", task, Idempotency_Key="k")
    assert status == 202, first
    charged = wait_for(lambda: used() > before + 1016 and used())
    status, again = call("/v1/tasks", task, Idempotency_Key="k")
    assert status == 202 and again["id"] == first["id"], again
    status, answer = call("/v1/tasks", other, Idempotency_Key="k")
    assert status == 409 and answer["error"]["code"] == "idempotency_conflict", answer
    status, answer = call("/v1/tasks", task, Idempotency_Key="")
    assert status == 400, answer
    unknown = {"endpoint": "/v1/completions", "body": {"model": "else", "prompt": "a", "max_tokens": 10}}
    status, answer = call("/v1/tasks", unknown)
    assert status == 404 and answer["error"]["code"] == "model_not_found", answer
    held = job()
    run("/v1/completions", {"prompt": "a", "max_tokens": 10}, 1, 6)
    wait_for(lambda: used() == charged + 7)

    # A stream whose worker says nothing, as while it reads a long prompt, gets comments.
    lines = stream({"prompt": "a", "max_tokens": 10})
    taken = job()
    worker.tell(taken, {"e": "begin", "prompt_tokens": 1, "version": "one"})
    wait_for(lambda: b": wait\n" in lines)
    worker.tell(taken, {"e": "text", "i": 0, "text": "b"}, {"e": "end", "usage": {}, "timing": {}})
    wait_for(lambda: lines[-1] is None)
    assert b"data: [DONE]\n" in lines and any(b'"b"' in line for line in lines[:-1]), lines

    # Who follows a task sees its end, though its attempts are counted by a broker and by the one that replaces it.
    seen = events(f"/v1/tasks/{first['id']}/events")
    wait_for(lambda: seen)
    former = worker
    worker = connect()
    former.close()
    wait_for(lambda: seen[-1]["attempts"] == 2 and seen[-1]["status"] == "in_progress")
    broker.kill()
    broker.wait()
    worker.close()
    broker = start_broker()
    worker = wait_for(connect)
    end(job(), 1, 1)
    wait_for(lambda: seen[-1] is None)
    assert seen[-2]["status"] == "completed" and seen[-2]["attempts"] == 3, seen[-2]
    assert seen[-2]["result"]["choices"][0]["text"] == "a", seen[-2]

    # So does who follows a response in the background, or resumes that behind one of its events.
    asked = {"model": "m", "input": "a", "max_output_tokens": 10, "background": True, "stream": True}
    seen = events("/v1/responses", asked)
    taken = job()
    wait_for(lambda: len(seen) == 3)
    path = "/v1/responses/" + seen[0]["response"]["id"]
    resumed = events(path + "?stream=true&starting_after=1")
    wait_for(lambda: resumed)
    end(taken, 1, 1)
    wait_for(lambda: seen[-1] is None and resumed[-1] is None)
    assert [e["type"] for e in seen[:3]] == ["response." + s for s in ("created", "queued", "in_progress")], seen
    assert resumed == seen[2:] and seen[-2]["type"] == "response.completed", (seen, resumed)
    assert seen[-2]["response"] == call(path)[1] and seen[5]["delta"] == "a", seen
    seen = events("/v1/responses", asked)
    job()
    wait_for(lambda: len(seen) == 3)
    assert call("/v1/responses/" + seen[0]["response"]["id"] + "/cancel", {})[1]["status"] == "cancelled"
    wait_for(lambda: seen[-1] is None)
    assert seen[-2]["type"] == "response.failed" and seen[-2]["response"]["status"] == "cancelled", seen

    # A key stores so many tasks, which are deleted by request, and so many responses, of which new ones replace old ones.
    broker.kill()
    broker.wait()
    worker.close()
    broker = start_broker("--stored", "2")
    worker = wait_for(connect)
    wait_for(lambda: call("/v1/tasks/" + first["id"])[0] == 200)
    kept, more = [call("/v1/tasks", {**task, "body": {**task["body"], "seed": seed}}) for seed in (1, 2)]
    assert kept[0] == 202 and more[0] == 429, (kept, more)
    assert more[1]["error"]["code"] == "too_many_stored", more
    status, dropped = call("/v1/tasks/" + kept[1]["id"], method="DELETE")  # an open one is cancelled
    assert status == 200 and dropped["status"] == "cancelled", dropped
    assert call("/v1/tasks", task)[1]["error"]["code"] == "too_many_stored"
    assert call("/v1/tasks/" + kept[1]["id"], method="DELETE")[0] == 200
    assert call("/v1/tasks/" + kept[1]["id"])[0] == 404
    status, fresh = call("/v1/tasks", task)
    assert status == 202, fresh
    wait_for(lambda: any(given["id"] == fresh["id"] for given in worker.work()))
    for given in worker.jobs:
        end(given, 1, 1)
    worker.jobs.clear()
    responses = []
    for seed in range(3):
        thread = threading.Thread(
            target=lambda: responses.append(call("/v1/responses", {"model": "m", "input": "a", "seed": seed})[1]["id"])
        )
        thread.start()
        end(job(), 1, 1)
        thread.join()
    assert [call("/v1/responses/" + id)[0] for id in responses] == [404, 200, 200], responses
finally:
    for process in processes:
        process.kill()
        process.wait()
