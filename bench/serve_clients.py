"""Clients that ask a server without a pause until a file exists; prints what became of their requests.

usage: serve_clients.py URL MODEL CLIENTS FILE
"""
import json
import os
import sys
import threading
import time
import urllib.request

url, model, clients, enough = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
times, failures = [], []


def ask(seed):
    body = {"model": model, "prompt": "The", "max_tokens": 24, "seed": seed, "stream": seed % 2 == 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        data = answer.read()
    if body["stream"]:
        assert data.endswith(b"data: [DONE]\n\n") and b'"error"' not in data, data[-300:]
    else:
        assert json.loads(data)["choices"][0]["finish_reason"], data


def run(i):
    seed = i
    while not os.path.exists(enough):
        begun = time.monotonic()
        try:
            ask(seed)
            times.append(time.monotonic() - begun)
        except Exception as error:
            detail = error.read() if hasattr(error, "read") else b""
            failures.append(f"{error!r} {detail[:200]!r}")
        seed += clients


ask(0)  # a model that cannot read the prompt ends this at once
threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
times.sort()
quantile = lambda p: round(1e3 * times[int(p * (len(times) - 1))]) if times else None
print(json.dumps({"requests": len(times) + len(failures), "failed": len(failures), "ms_p50": quantile(0.5), "ms_p95": quantile(0.95), "ms_max": quantile(1.0), "failures": failures[:5]}))
