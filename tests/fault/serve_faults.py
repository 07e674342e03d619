"""A load on a server while one of its parts fails: every request is answered once and right, or fails with an error.

usage: serve_faults.py URL FAULT PID... [NAME=VALUE...]

PID is the supervisor, or several processes of `banyan` by hand. FAULT is the name of a function below. Tasks that were
accepted must end with their result, whatever happens; other requests may fail, but never by silence or a wrong text.
"""
import contextlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

where = urllib.parse.urlparse(sys.argv[1])
fault = sys.argv[2]
parents = [a for a in sys.argv[3:] if a.isdigit()]
options = dict(a.split("=", 1) for a in sys.argv[3:] if "=" in a)
# Bodies whose answers are known before the fault: short prompts with long answers, and the reverse.
bodies = [{"model": "tiny", "prompt": "apple", "max_tokens": 250, "seed": i} for i in range(6)]
bodies += [{"model": "tiny", "prompt": "bay cedar " * 60 + "abcdef"[i], "max_tokens": 8, "seed": i} for i in range(6)]
expected = []
lock = threading.Lock()
counts = {"ok": 0, "error": 0, "broken": 0, "left": 0, "expiring": 0}
codes = {}
wrong = []
accepted = {}
stopping = threading.Event()
# A client may see its connection break where the gateway is what fails.
may_break = fault.startswith("gateway")


def count(what, code=None):
    with lock:
        counts[what] += 1
        if code is not None:
            codes[code] = codes.get(code, 0) + 1


def connect():
    return http.client.HTTPConnection(where.hostname, where.port, timeout=300)


def post(path, body, headers=None):
    c = connect()
    try:
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        answer = c.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        c.close()


def refuse(status, answer):
    error = answer.get("error") or {}
    if status not in (429, 500, 502, 503, 504) or not error.get("code") or not error.get("message"):
        with lock:
            wrong.append(f"an answer that is no error: {status} {answer}")
    count("error", f"{status} {error.get('code')}")


def whole(i):
    status, answer = post("/v1/completions", bodies[i])
    if status != 200:
        refuse(status, answer)
    elif answer["choices"][0]["text"] != expected[i]:
        with lock:
            wrong.append(f"another text for {i}")
    else:
        count("ok")


def stream(i, leaves=False):
    text, ends, failed = "", 0, None
    c = connect()
    try:
        c.request("POST", "/v1/completions", json.dumps({**bodies[i], "stream": True}), {"Content-Type": "application/json"})
        answer = c.getresponse()
        if answer.status != 200:
            refuse(answer.status, json.loads(answer.read()))
            return
        for line in answer:
            if leaves and len(text) > 20:
                count("left")
                return
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                ends += 1
                continue
            chunk = json.loads(line[6:])
            failed = chunk if "error" in chunk else failed
            for choice in chunk.get("choices", []):
                text += choice["text"]
                ends += choice["finish_reason"] is not None
    finally:
        c.close()
    if failed:
        refuse(int(failed["error"].get("status", 500)), failed)
    elif ends == 2 and text == expected[i]:
        count("ok")
    elif ends < 2 and expected[i].startswith(text):
        raise ConnectionError("the stream has no end")
    else:
        with lock:
            wrong.append(f"another stream for {i}: {ends} ends, {text!r}, not {expected[i]!r}")


def task(i, key):
    more = {"expires_after": 30} if fault == "soak" else {}
    status, answer = post("/v1/tasks", {"endpoint": "/v1/completions", "body": bodies[i], **more}, {"Idempotency-Key": key})
    if status != 202:
        refuse(status, answer)
        return
    if more:
        with lock:
            counts["expiring"] += 1
        return
    with lock:
        before = accepted.setdefault(key, (i, answer["id"]))
    if before != (i, answer["id"]):
        with lock:
            wrong.append(f"one key has two tasks: {before}, {answer['id']}")


def run(number):
    draw = random.Random(number)
    turn = 0
    while not stopping.is_set():
        i = draw.randrange(len(bodies))
        turn += 1
        try:
            kind = draw.randrange(8)
            if kind < 3:
                stream(i)
            elif kind < 4:
                stream(i, leaves=True)
            elif kind < 6:
                whole(i)
            else:
                task(i, f"{fault}-{os.getpid()}-{number}-{turn}")
        except (OSError, http.client.HTTPException) as error:
            count("broken")
            if not may_break:
                with lock:
                    wrong.append(f"a connection broke: {error!r}")
            time.sleep(0.05)


def wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"it did not come: {counts}, {codes}, {wrong[:3]}"
        time.sleep(0.02)


def more(n):
    """Until so many more requests are answered."""
    goal = counts["ok"] + n
    wait_for(lambda: counts["ok"] >= goal)


def processes(role):
    out = []
    for parent in parents:
        rows = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", parent, "-p", parent], capture_output=True, text=True).stdout
        out += [int(row.split()[0]) for row in rows.splitlines() if f" {role} " in row]
    assert out, f"no {role}"
    return out


def kill(role, number):
    os.kill(processes(role)[0], number)


def redis(*command):
    got = subprocess.run(["redis-cli", "-p", options["redis"], *command], capture_output=True, text=True, timeout=300)
    assert got.returncode == 0, got.stderr
    return got.stdout.strip()


def ready():
    try:
        c = connect()
        c.request("GET", "/health/ready")
        return c.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


# ---- faults ----


def none():
    pass


def worker_kill():
    kill("worker", signal.SIGKILL)


def worker_stop():
    """It answers nobody any more, and is killed for it."""
    worker = processes("worker")[0]
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: not os.path.exists(f"/proc/{worker}"))


def write_mapped(path, number):
    """Processes have the file mapped: it is never truncated."""
    with open(path, "r+") as out:
        out.write(f"{number:<15}\n")


def retried():
    """How many requests were taken from lost workers."""
    return int(redis("hget", "banyan:counters", "retried") or 0)


def worker_pause():
    """It goes on when others have requests of it already: what it says then is no news. It ends if its supervisor is faster."""
    worker = processes("worker")[0]
    before = retried()
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: retried() > before or not os.path.exists(f"/proc/{worker}"))
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


def worker_hang():
    """Its process lives, and its engine makes no step: others take its requests, and it is killed."""
    worker = processes("worker")[0]
    write_mapped(options["file"], worker)
    wait_for(lambda: not os.path.exists(f"/proc/{worker}"))
    write_mapped(options["file"], 0)


def broker_kill():
    kill("broker", signal.SIGKILL)


def gateway_kill():
    kill("gateway", signal.SIGKILL)
    time.sleep(0.3)
    wait_for(ready)


def gateways():
    """The channels on which gateways receive events; none while Redis starts."""
    try:
        return set(redis("pubsub", "channels", "banyan:to:gateway_*").split())
    except AssertionError:
        return set()


def redis_kill():
    """It comes back with what its append-only file has: all that it has answered, as long as it writes before it answers
    (appendfsync always; with everysec a busy disk delays writes by up to two seconds). A gateway that has connected again
    receives nothing of what it submitted before, of which it has missed events."""
    former = gateways()
    pid = int(open(options["pid"]).read())
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    subprocess.run(["redis-server", options["conf"]], check=True)
    wait_for(gateways)
    assert former and not former & gateways(), former


def redis_full():
    redis("config", "set", "maxmemory", "1")
    before = counts["error"]
    wait_for(lambda: counts["error"] >= before + 10)
    assert "503 broker_full" in codes, codes
    redis("config", "set", "maxmemory", "0")


def redis_slow():
    redis("debug", "sleep", options.get("seconds", "2"))
    redis("client", "pause", "1500", "all")


def disk_full():
    """The broker can write no byte more; tasks are refused, what needs no disk goes on."""
    broker = processes("broker")[0]
    resource.prlimit(broker, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    before = codes.get("503 not_written", 0)
    wait_for(lambda: codes.get("503 not_written", 0) >= before + 3)
    more(20)
    resource.prlimit(broker, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def clock():
    """The wall clock of every process jumps, on and back (the file is read by a library under them)."""
    for shift in ("3600", "-3600", "0"):
        write_mapped(options["shift"], shift)
        more(20)


def resident():
    """MiB of each process."""
    pids = subprocess.run(["ps", "-o", "pid=", "--ppid", parents[0]], capture_output=True, text=True).stdout.split()
    out = {}
    for pid in pids + [options["redis_pid"]] * bool(options.get("redis_pid")):
        with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/cmdline") as line:
            words = line.read().split("\0")
            size = [row.split()[1] for row in status if row.startswith("VmRSS")][0]
            out[pid] = (words[1] if "banyan" in words[0] else "redis", int(size) / 1024)
    return out


def soak():
    """Not a fault: memory over time (bench/serve_soak.sh)."""
    seconds = float(options["seconds"])
    end = time.monotonic() + seconds
    first, settled = resident(), None
    while time.monotonic() < end:
        left = end - time.monotonic()
        if settled is None and left < 0.8 * seconds:
            settled = resident()
        now = resident()
        assert now.keys() == first.keys(), "a process was started again"
        print(", ".join(f"{role} {size:.1f}" for role, size in now.values()), f"MiB; {counts}", flush=True)
        time.sleep(max(0.0, min(60.0, seconds / 10, left)))
    for pid, (role, size) in resident().items():
        print(f"{role}: {settled[pid][1]:.2f} MiB behind a fifth, {size:.2f} at the end, {100 * (size / settled[pid][1] - 1):+.2f} %")


def finished(id):
    c = connect()
    try:
        c.request("GET", "/v1/tasks/" + id)
        answer = c.getresponse()
        task = json.loads(answer.read())
        return task if answer.status == 200 and task["status"] in ("completed", "failed", "cancelled") else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        c.close()


def main():
    wait_for(ready)
    for body in bodies:
        status, answer = post("/v1/completions", body)
        assert status == 200, answer
        expected.append(answer["choices"][0]["text"])
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(int(options.get("clients", "12")))]
    for thread in threads:
        thread.start()
    more(20)
    began = time.monotonic()
    globals()[fault]()
    more(40)
    recovered = time.monotonic() - began
    stopping.set()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a request has no answer"
    # Every task that was accepted has its one result.
    for key, (i, id) in accepted.items():
        wait_for(lambda: finished(id))
        done = finished(id)
        if done["status"] != "completed" or done["result"]["choices"][0]["text"] != expected[i]:
            wrong.append(f"task {id}: {done}")
    assert not wrong, (len(wrong), wrong[:3])
    assert (accepted or fault == "soak") and counts["ok"] > 0
    print(f"{fault}: {counts['ok']} answered, {len(accepted) + counts['expiring']} tasks, {counts['left']} clients left, {counts['broken']} broken, errors {codes}; answers again after {recovered:.1f} s")


main()
