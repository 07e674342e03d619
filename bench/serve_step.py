"""An open loop of short requests whose rate changes; prints, of windows of 5 seconds, answers, refusals (429), failures and
p95 of the time to the whole answer.

usage: serve_step.py URL MODEL SECONDS RATE...     the last rate lasts three times as long
"""
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

url, model, seconds, rates = sys.argv[1], sys.argv[2], float(sys.argv[3]), [float(r) for r in sys.argv[4:]]
random.seed(1)
done, lock = [], threading.Lock()


def ask(at, seed):
    body = {"model": model, "prompt": "The", "max_tokens": 2, "seed": seed}
    try:
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
        end = "answered"
    except urllib.error.HTTPError as error:
        end = "refused" if error.code == 429 else f"failed with {error.code}"
    except OSError as error:
        end = f"failed: {error}"
    with lock:
        done.append((at, time.monotonic() - at, end))


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
print("seconds\tanswered\trefused\tfailed\tp95 ms of those answered")


def p95_of(low):
    """Of the 5 seconds from `low` on; None without an answer."""
    inside = sorted(t for a, t, end in done if low <= a < low + 5 and end == "answered")
    return inside[int(0.95 * (len(inside) - 1))] if inside else None


for window in range(int((time.monotonic() - begun) / 5)):
    low = begun + 5 * window
    ends = Counter(end for a, _, end in done if low <= a < low + 5)
    p95 = p95_of(low)
    print(f"{5 * window}\t{ends['answered']}\t{ends['refused']}\t{ends.total() - ends['answered'] - ends['refused']}\t"
          + ("-" if p95 is None else f"{1e3 * p95:.0f}"))
for end, count in Counter(end for _, _, end in done if end.startswith("failed")).items():
    print(f"{count} {end}")
for low in range(0, int(seconds)):
    p95 = p95_of(steps[1] + low)
    if p95 is not None and p95 < 0.2:
        print(f"p95 of 5 seconds is under 200 ms from {low} s behind the step")
        break
