"""An open loop of short requests whose rate changes; prints p95 of the time to the whole answer over windows of 5 seconds.

usage: serve_step.py URL MODEL SECONDS RATE...     the last rate lasts three times as long
"""
import json
import random
import sys
import threading
import time
import urllib.request

url, model, seconds, rates = sys.argv[1], sys.argv[2], float(sys.argv[3]), [float(r) for r in sys.argv[4:]]
random.seed(1)
done, lock = [], threading.Lock()


def ask(at, seed):
    body = {"model": model, "prompt": "The", "max_tokens": 2, "seed": seed}
    try:
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
        good = True
    except Exception:
        good = False
    with lock:
        done.append((at, time.monotonic() - at, good))


begun = time.monotonic()
at, steps = begun, []
for i, rate in enumerate(rates):
    steps.append(at)
    end = at + seconds * (3 if i == len(rates) - 1 else 1)
    while at < end:
        at += random.expovariate(rate)
        time.sleep(max(0.0, at - time.monotonic()))
        threading.Thread(target=ask, args=(at, len(done)), daemon=True).start()
    at = end
time.sleep(3)
print("seconds\trequests\tfailed\tp95 ms")
for window in range(int((time.monotonic() - begun) / 5)):
    low = begun + 5 * window
    inside = sorted(t for a, t, _ in done if low <= a < low + 5)
    failed = sum(not g for a, _, g in done if low <= a < low + 5)
    p95 = 1e3 * inside[int(0.95 * (len(inside) - 1))] if inside else float("nan")
    print(f"{5 * window}\t{len(inside)}\t{failed}\t{p95:.0f}")
step = steps[1]
for low in range(0, int(seconds)):
    inside = sorted(t for a, t, _ in done if step + low <= a < step + low + 5)
    if inside and inside[int(0.95 * (len(inside) - 1))] < 0.2:
        print(f"p95 of 5 seconds is under 200 ms from {low} s behind the step")
        break
