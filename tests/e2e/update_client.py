"""Clients of a server whose versions change.

usage: update_client.py load URL FILE SECONDS [MODEL]   until FILE exists, or for SECONDS: every request must end well
       update_client.py constrained URL FILE SECONDS   the same with a text that must be "vvvvvv"; prints how many the vocabulary could not write
       update_client.py answer URL                 the answer of the version that serves
"""
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

url = sys.argv[2]
model = sys.argv[5] if len(sys.argv) > 5 else "tiny"


def call(seed, stream, **more):
    """The whole text of an answer; an exception for anything that is not one."""
    body = {"model": model, "prompt": "apple", "max_tokens": 60, "seed": seed, "stream": stream, **more}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        if not stream:
            return json.loads(answer.read())["choices"][0]["text"]
        text, last = "", b""
        for line in answer:
            last = line if line.strip() else last
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                text += chunk["choices"][0]["text"]
        assert last.strip() == b"data: [DONE]", last
        return text


def load():
    """Prints how many answers there were, and how many different ones to one request: each is a version's."""
    answers = [set(), set()]
    failures = []
    count = [0]
    end = time.time() + float(sys.argv[4])

    def run(i):
        while time.time() < end and not os.path.exists(sys.argv[3]):
            try:
                answers[i % 2].add(call(i % 2, i % 3 == 0))
                count[0] += 1
            except urllib.error.HTTPError as error:
                failures.append(f"{error.code} {error.read()!r}")
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"requests": count[0], "failed": len(failures), "versions": max(len(a) for a in answers)}))
    assert not failures, failures[:5]


def constrained():
    pattern = {"type": "regex", "pattern": "v{6}"}
    requests, failed, end = 0, 0, time.time() + float(sys.argv[4])
    while time.time() < end and not os.path.exists(sys.argv[3]):
        requests += 1
        try:
            text = call(requests, False, response_format=pattern)
            assert text == "vvvvvv", text
        except urllib.error.HTTPError as error:
            reason = error.read()
            assert error.code == 400 and b"unwritable_format" in reason, (error.code, reason)
            failed += 1
    print(json.dumps({"requests": requests, "failed": failed}))


if sys.argv[1] == "load":
    load()
elif sys.argv[1] == "constrained":
    constrained()
else:
    print(call(0, False))
