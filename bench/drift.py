#!/usr/bin/env python3
"""Drift of requests: windows without it that alarm, and whether the first window with it does.

    bench/drift.py URL MODEL --same HELD_OUT.txt --other ANOTHER_AUTHOR.txt [--window 200] [--windows 50]

The server must have one worker and `--drift-window WINDOW`. Prompts are pieces of both texts, from random places:
first WINDOWS windows of the held-out text, then one of another author.
"""

import argparse
import http.client
import json
import random
import re
import threading
import time
import urllib.parse
import urllib.request


def pieces(path, count, length, seed):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    pick = random.Random(seed)
    places = [text.find(" ", pick.randrange(len(text) - 2 * length)) for _ in range(count)]
    return [text[at:text.rfind(" ", at, at + length)] for at in places]  # whole words


def send(url, model, prompts, threads=8):
    """Completions of one token; every one must be answered."""
    todo = list(prompts)
    failures = []
    where = urllib.parse.urlparse(url)

    def work():
        connection = http.client.HTTPConnection(where.hostname, where.port)
        while todo:
            try:
                prompt = todo.pop()
            except IndexError:
                return
            body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 1})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                failures.append(data)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert not failures, failures[0]


def gauges(url):
    """{name: {labels: value}} of the gauges of drift."""
    out = {}
    with urllib.request.urlopen(url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            found = re.match(r"banyan_drift_(\w+)\{(.*)\} (\S+)$", line)
            if found:
                name, labels, value = found.groups()
                method = re.search(r'method="(\w+)"', labels)
                out[name + (":" + method.group(1) if method else "")] = float(value)
    return out


def after(url, windows):
    """The gauges once so many windows were compared: the broker tells them four times a second."""
    for _ in range(200):
        now = gauges(url)
        if now.get("windows_total", 0) >= windows:
            return now
        time.sleep(0.05)
    raise SystemExit("no window was compared: is there one worker, and is --drift-window that of the server?")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--same", required=True)
    parser.add_argument("--other", required=True)
    parser.add_argument("--window", type=int, default=200)
    parser.add_argument("--windows", type=int, default=50)
    parser.add_argument("--length", type=int, default=300, help="characters of a prompt")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    before = gauges(a.url).get("windows_total", 0)
    worst = {}
    for i in range(a.windows):
        send(a.url, a.model, pieces(a.same, a.window, a.length, a.seed * 1000 + i))
        now = after(a.url, before + i + 1)
        for key in ("score:psi", "score:jensen_shannon"):
            worst[key] = max(worst.get(key, 0.0), now[key])
        worst["p_value"] = min(worst.get("p_value", 1.0), now["p_value"])
    alarms = now["alarms_total"]
    send(a.url, a.model, pieces(a.other, a.window, a.length, a.seed))
    shifted = after(a.url, before + a.windows + 1)
    print(f"{a.windows} windows of {a.window} requests without drift: {alarms:.0f} alarms; largest psi "
          f"{worst['score:psi']:.4f}, jensen_shannon {worst['score:jensen_shannon']:.4f}, smallest p "
          f"{worst['p_value']:.3g}")
    print(f"the first window of another text: {'reported' if shifted['detected'] else 'MISSED'}; psi "
          f"{shifted['score:psi']:.4f}, jensen_shannon {shifted['score:jensen_shannon']:.4f}, p {shifted['p_value']:.3g}")
    raise SystemExit(0 if alarms == 0 and shifted["detected"] else 1)


if __name__ == "__main__":
    main()
