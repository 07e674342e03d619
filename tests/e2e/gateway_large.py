"""Answers of a gateway that are too large for its loop, from a worker that this program plays.

usage: gateway_large.py SOCKET URL
"""
import base64
import json
import random
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request

from peer_frames import Worker

url = sys.argv[2]
worker = Worker("one")
random.seed(1)


def ask(path, body):
    """What comes of a request, once it has come; a function that waits for it."""
    out = []
    data = json.dumps({"model": "m", **body}).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})

    def fetch():
        try:
            out.append(urllib.request.urlopen(request).read())
        except urllib.error.HTTPError as e:
            out.append(e.read())

    thread = threading.Thread(target=fetch)
    thread.start()
    return lambda: thread.join() or out[0]


def job():
    end = time.time() + 300
    while not worker.work():
        assert time.time() < end
    return worker.jobs.pop()


def refused(path, body):
    """Status and code of the answer to a body of bytes that is refused."""
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())["error"]["code"]


def metric(name):
    lines = urllib.request.urlopen(url + "/metrics").read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + " "))


def apart():
    """How often another thread than the loop's has read or printed an answer."""
    return metric("banyan_large_answers_total")


def embed(count, width, encoding):
    floats = [struct.pack(f"<{width}f", *(random.gauss(0, 1) for _ in range(width))) for _ in range(count)]
    vectors = [struct.unpack(f"<{width}f", f) for f in floats]
    coded = [base64.b64encode(f).decode() for f in floats]
    answer = ask("/v1/embeddings", {"input": ["a"] * count, "encoding_format": encoding})
    usage = {"prompt_tokens": count, "completion_tokens": 0}
    result = {"e": "result", "result": {"list": coded}, "usage": usage, "timing": {}}
    worker.tell(job(), {"e": "begin", "prompt_tokens": count, "version": "one"}, result)
    # Byte by byte: what reads and prints it makes no difference.
    numbers = ["[" + ",".join("%.9g" % x for x in v) + "]" for v in vectors]
    texts = numbers if encoding == "float" else [json.dumps(c) for c in coded]
    rows = ",".join(f'{{"object":"embedding","index":{i},"embedding":{text}}}' for i, text in enumerate(texts))
    used = f'"usage":{{"prompt_tokens":{count},"total_tokens":{count}}}'
    assert answer() == f'{{"object":"list","data":[{rows}],"model":"m",{used}}}'.encode()


end = time.time() + 300
while b'"m"' not in urllib.request.urlopen(url + "/v1/models").read():
    assert time.time() < end
for encoding in ("float", "base64"):
    before, first = apart(), metric("banyan_time_to_first_token_seconds_count")
    embed(2, 16, encoding)
    assert apart() == before
    # By this time a server is scaled, also one that only answers in one piece.
    assert metric("banyan_time_to_first_token_seconds_count") == first + 1
    embed(2048, 64, encoding)
    assert apart() == before + 2

# A text of some megabytes; and one whose client goes away while it is printed.
before = apart()
answer = ask("/v1/completions", {"prompt": "a"})
end = {"e": "end", "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "timing": {}}
begin = {"e": "begin", "prompt_tokens": 1, "version": "one"}
worker.tell(job(), begin, {"e": "text", "i": 0, "text": 'x"\n' * 700000}, end)
assert json.loads(answer())["choices"][0]["text"] == 'x"\n' * 700000 and apart() == before + 1
for i in range(20):
    body = json.dumps({"model": "m", "prompt": "a"}).encode()
    gone = socket.create_connection(url.removeprefix("http://").split(":"))
    gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    worker.tell(job(), {"e": "text", "i": 0, "text": "y" * 3000000}, {"e": "end", "usage": {}, "timing": {}})
    time.sleep(0.001 * i)
    gone.close()

# Large requests are read on another thread; what they hold arrives as it was sent, with the escapes of their text.
text = "\u0001\"\\\u20ac" * 50000
before = metric("banyan_large_requests_total")
for path, body, field in (("/v1/completions", {"prompt": text}, "prompt"),
                          ("/v1/embeddings", {"input": [text]}, "input"),
                          ("/v1/predict", {"rows": [{"a": text}]}, "rows"),
                          ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}, "messages")):
    answer = ask(path, body)
    given = job()
    request = given["request"] if isinstance(given["request"], dict) else json.loads(given["request"])
    wanted = body[field]
    assert request[field] == wanted, path
    worker.tell(given, {"e": "error", "status": 400, "code": "no", "message": "no"})
    assert json.loads(answer())["error"]["code"] == "no"
assert metric("banyan_large_requests_total") == before + 4
# A model that is not served is refused without a worker, whatever follows in the body.
junk = b'"' + b"\\u0001" * 50000 + b'"'
for path, body in (("/v1/completions", b'"prompt": ' + junk),
                   ("/v1/chat/completions", b'"messages": [{"role": "user", "content": ' + junk + b"}]"),
                   ("/v1/responses", b'"input": ' + junk),
                   ("/v1/embeddings", b'"input": ' + junk),
                   ("/v1/predict", b'"rows": [[' + junk + b"]]")):
    assert refused(path, b"{" + body + b', "model": "none"}') == (404, "model_not_found"), path
assert refused("/v1/completions", junk[:-1]) == (400, "invalid_request")
assert not worker.work()
assert urllib.request.urlopen(url + "/health/live").status == 200
