"""Checks of a running server, with Python's own library alone.

usage: serve_client.py CHECK URL [PROCESS-ID...]
"""
import base64
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

url = sys.argv[2]
# Tokens of an answer that takes a while.
MANY = 900
where = urllib.parse.urlparse(url)


def call(path, body=None, method=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read() or b"{}"), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def completion(**more):
    return {"model": "tiny", "prompt": "apple", "max_tokens": 40, "seed": 7, **more}


def stream(body, path="/v1/completions"):
    """Texts by choice, the reasons of their ends, usage."""
    request = urllib.request.Request(url + path, json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode(), {"Content-Type": "application/json"})
    texts, reasons, usage, last = {}, {}, None, None
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        for line in answer:
            last = line if line.strip() else last
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                i = choice["index"]
                texts[i] = texts.get(i, "") + choice.get("text", choice.get("delta", {}).get("content", ""))
                if choice.get("logprobs"):
                    texts[f"{i} tokens"] = texts.get(f"{i} tokens", []) + choice["logprobs"]["tokens"]
                if choice["finish_reason"]:
                    assert i not in reasons
                    reasons[i] = choice["finish_reason"]
            usage = chunk.get("usage") or usage
    assert last.strip() == b"data: [DONE]", last
    return texts, reasons, usage


def raw(text):
    with socket.create_connection((where.hostname, where.port), timeout=300) as s:
        s.sendall(text)
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        return answer


def metric(name):
    with urllib.request.urlopen(url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(name)


def gauges(name):
    """The values of a family, whatever their labels."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        return [float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{")]


def wait_for(what, seconds=300):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "it did not come"
        time.sleep(0.002)


def check_ready():
    wait_for(lambda: call("/health/ready")[0] == 200)


def check_answers():
    status, whole, _ = call("/v1/completions", completion())
    assert status == 200, whole
    choice = whole["choices"][0]
    assert choice["finish_reason"] == "length" and whole["usage"]["completion_tokens"] == 40
    assert len(choice["text"]) == 40, choice
    texts, reasons, usage = stream(completion())
    assert texts[0] == choice["text"] and reasons[0] == "length" and usage == whole["usage"]
    # Sequences and prompts of one request; each sequence of n is that of its own seed.
    _, many, _ = call("/v1/completions", completion(n=3, prompt=["apple", "bay"]))
    assert [c["index"] for c in many["choices"]] == list(range(6))
    assert many["choices"][0]["text"] == choice["text"]
    assert many["choices"][1]["text"] == call("/v1/completions", completion(seed=8))[1]["choices"][0]["text"]
    texts, _, _ = stream(completion(n=3, prompt=["apple", "bay"]))
    assert [texts[i] for i in range(6)] == [c["text"] for c in many["choices"]]
    # A stop text is not part of the answer; what stands before it is.
    stop = choice["text"][10:13]
    _, stopped, _ = call("/v1/completions", completion(stop=[stop]))
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["choices"][0]["text"] == choice["text"][: choice["text"].index(stop)]
    _, form, _ = call("/v1/completions", completion(response_format={"type": "regex", "pattern": "[a-c]{4}"}))
    text = form["choices"][0]["text"]
    assert len(text) == 4 and set(text) <= set("abc"), text
    check_stops(choice["text"])
    check_guided()
    check_echo(choice["text"])
    check_best()
    _, probable, _ = call("/v1/completions", completion(logprobs=0, max_tokens=3))
    check_origin()
    logprobs = probable["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == probable["choices"][0]["text"]
    assert all(p < 0 for p in logprobs["token_logprobs"])
    status, models, _ = call("/v1/models")
    assert [m["id"] for m in models["data"]] == ["tiny"]
    assert call("/v1/models/tiny")[1]["id"] == "tiny"


def check_origin():
    """Answers name the run and version that they are of."""
    version = None
    for path, body in (
        ("/v1/completions", completion(max_tokens=2)),
        ("/v1/completions", completion(max_tokens=2, stream=True)),
        ("/v1/completions", completion(max_tokens=2, prompt=["a", "b"])),
        ("/v1/embeddings", {"model": "tiny", "input": "apple"}),
    ):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()
            assert answer.headers["X-Banyan-Run"] == "tiny", (path, answer.headers)
            assert answer.headers["X-Banyan-Version"].startswith("step-00000002-"), (path, answer.headers)
            assert version in (None, answer.headers["X-Banyan-Version"]), (version, answer.headers)
            version = answer.headers["X-Banyan-Version"]


def check_stops(whole):
    """Stop tokens of a request, and the least number of tokens in front of any stop."""

    def ask(**more):
        status, answer, _ = call("/v1/completions", completion(**more))
        assert status == 200, answer
        return [(c["text"], c["finish_reason"]) for c in answer["choices"]]

    found = {}
    for i in range(16):  # the tokens are characters
        text, reason = ask(stop_token_ids=[i])[0]
        assert whole.startswith(text) and (reason == "stop") == (text != whole), (i, text)
        if text != whole:
            found[whole[len(text)]] = i
    assert len(found) > 4 and all(c not in whole[: whole.index(c)] for c in found), found
    for c, i in list(found.items())[:4]:
        many = ask(stop_token_ids=[i], min_tokens=25, n=3)
        assert all(len(text) >= 25 and c not in text and (r == "stop") == (len(text) < 40) for text, r in many), many
        assert ask(stop_token_ids=[i], min_tokens=25, seed=8) == many[1:2]
    # A stop text counts behind them too.
    plain = ask(ignore_eos=True)[0][0]
    late = ask(ignore_eos=True, stop=[plain[2], plain[30]], min_tokens=25)[0]
    assert late[1] == "stop" and 25 <= len(late[0]) <= 30 and plain.startswith(late[0]), (plain, late)
    assert ask(top_k=-1) == ask()
    for wrong in (
        {"min_tokens": 41},
        {"min_tokens": -1},
        {"stop_token_ids": [99999]},
        {"stop_token_ids": ["a"]},
        {"stop_token_ids": 1},
        {"stop_token_ids": list(range(17))},
    ):
        assert call("/v1/completions", completion(**wrong))[0] == 400, wrong


def check_echo(whole):
    """The prompt in front of each text, and alone where a stop comes at once."""

    def texts(**more):
        status, answer, _ = call("/v1/completions", completion(echo=True, **more))
        assert status == 200, answer
        return [c["text"] for c in answer["choices"]]

    assert texts() == ["apple" + whole]
    assert texts(stop=[whole[0]]) == ["apple"]
    many = texts(prompt=["apple", "bay"], n=2)
    assert many[0] == "apple" + whole and [t[:3] for t in many] == ["app"] * 2 + ["bay"] * 2, many
    given = call("/v1/completions", completion(prompt=[1, 2, 3]))[1]["choices"][0]["text"]
    said = texts(prompt=[1, 2, 3])[0]
    assert len(said) == 43 and said.endswith(given), (said, given)
    assert stream(completion(echo=True))[0][0] == "apple" + whole
    check_scores()


def check_scores():
    """Log-probabilities of a prompt: what the same tokens had when they were generated, however they are asked for."""

    def choices(**more):
        status, answer, _ = call("/v1/completions", completion(echo=True, **more))
        assert status == 200, answer
        return answer["choices"]

    status, made, _ = call("/v1/completions", completion(logprobs=2, max_tokens=90, ignore_eos=True))
    made = made["choices"][0]
    whole = "apple" + made["text"]
    only = choices(prompt=whole, max_tokens=0, logprobs=2)[0]
    assert only["text"] == whole and only["finish_reason"] == "length", only
    scores = only["logprobs"]
    assert "".join(scores["tokens"]) == whole and scores["text_offset"] == list(range(95))
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert all(p < 0 for p in scores["token_logprobs"][1:])
    for name in ("token_logprobs", "top_logprobs", "tokens"):
        assert scores[name][5:] == made["logprobs"][name], name
    # Behind it, beside other answers, and of a prompt of which the cache has the pages.
    more = choices(prompt=["apple", whole], max_tokens=2, logprobs=2, n=2)
    for c in more[2:]:
        assert {name: values[:95] for name, values in c["logprobs"].items()} == scores
        assert c["logprobs"]["text_offset"] == list(range(97)) and "".join(c["logprobs"]["tokens"]) == c["text"]
    assert more[0]["logprobs"]["token_logprobs"][:5] == scores["token_logprobs"][:5]
    assert choices(max_tokens=0)[0]["text"] == "apple"
    # As a stream, and from tokens.
    done = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    ask = completion(prompt=whole, echo=True, max_tokens=1, logprobs=2, stream=True)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(ask).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        data = answer.read()
    frames = [json.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")]
    for logprobs in [f["choices"][0]["logprobs"] for f in frames if f["choices"][0]["logprobs"]]:
        done = {name: done[name] + logprobs[name] for name in done}
    assert {name: values[:95] for name, values in done.items()} == scores
    assert len(choices(prompt=[1, 2], max_tokens=0, logprobs=0)[0]["logprobs"]["token_logprobs"]) == 2
    assert call("/v1/completions", completion(max_tokens=0))[1]["error"]["param"] == "max_tokens"
    check_harness(choices)


def check_harness(choices):
    """Requests of lm-evaluation-harness 0.4.13 (local-completions): lists of tokens, with one token more than it wants."""
    asked = {"model": "tiny", "prompt": [[1, 2, 3, 4, 5], [3, 1], [1, 2, 3, 9]], "temperature": 0, "max_tokens": 1,
             "logprobs": 1, "seed": 1234, "echo": True}
    status, answer, _ = call("/v1/completions", asked)
    assert status == 200, answer
    for choice, ids in zip(sorted(answer["choices"], key=lambda c: c["index"]), asked["prompt"], strict=True):
        scores = choice["logprobs"]
        assert scores["token_logprobs"][:-1] == choices(prompt=ids, max_tokens=0, logprobs=1)[0]["logprobs"]["token_logprobs"]
        assert len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == len(ids) + 1
        assert all(len(top) == 1 and p <= max(top.values())
                   for p, top in zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:]))
        # It takes a token for the likeliest one if both numbers are equal.
        assert scores["token_logprobs"][-1] == max(scores["top_logprobs"][-1].values())
    asked = {"prompt": [[1, 2, 3], [4, 5]], "model": "tiny", "max_tokens": 16, "temperature": 0,
             "stop": ["\n", "<|endoftext|>"], "seed": 1234}
    status, answer, _ = call("/v1/completions", asked)
    assert status == 200 and sorted(c["index"] for c in answer["choices"]) == [0, 1], answer
    assert not any("\n" in c["text"] for c in answer["choices"])


def check_best():
    """The sequences whose tokens are the most probable, by their mean, are shown."""
    ask = {"max_tokens": 12, "prompt": ["apple", "bay"]}

    def best(choices, count):
        means = [sum(p) / len(p) for p in (c["logprobs"]["token_logprobs"] for c in choices)]
        return [choices[i]["text"] for i in sorted(range(len(means)), key=lambda i: -means[i])[:count]]

    _, every, _ = call("/v1/completions", completion(**ask, n=5, logprobs=0))
    for n in (1, 2):
        _, answer, _ = call("/v1/completions", completion(**ask, n=n, best_of=5))
        wanted = best(every["choices"][:5], n) + best(every["choices"][5:], n)
        assert [c["text"] for c in answer["choices"]] == wanted, (answer, wanted)
        assert [c["index"] for c in answer["choices"]] == list(range(2 * n))
        assert answer["usage"] == every["usage"]
    _, same, _ = call("/v1/completions", completion(**ask, n=5, best_of=5))
    assert [c["text"] for c in same["choices"]] == [c["text"] for c in every["choices"]]
    task = call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(**{**ask, "prompt": "apple"}, best_of=5)})[1]
    while task["status"] not in ("completed", "failed"):
        time.sleep(0.02)
        task = call("/v1/tasks/" + task["id"])[1]
    assert [c["text"] for c in task["result"]["choices"]] == best(every["choices"][:5], 1), task
    for wrong in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 100}):
        assert call("/v1/completions", completion(**wrong))[1]["error"]["param"] == "best_of", wrong


def check_guided():
    """vLLM's fields for the form of a text, each by a text that it must match."""
    choice = ["apple", "b.b", "(0|1)*"]
    for form, pattern in (
        ({"guided_choice": choice[:2]}, "|".join(map(re.escape, choice[:2]))),
        ({"guided_regex": "[a-c]{4}"}, "[a-c]{4}"),
        ({"guided_json": {"enum": [12, 34]}}, "12|34"),
        ({"guided_json": '{"enum": [12, 34]}'}, "12|34"),
        ({"guided_json": True, "max_tokens": 2}, ".*"),
        ({"structured_outputs": {"choice": ["12", "34"]}}, "12|34"),
        ({"structured_outputs": {"json": {"enum": [12, 34]}}}, "12|34"),
    ):
        status, answer, _ = call("/v1/completions", completion(**form, n=3))
        assert status == 200, answer
        assert all(re.fullmatch(pattern, c["text"]) for c in answer["choices"]), (form, answer)
    # What is no expression in a choice stays none: the vocabulary has no parentheses.
    status, answer, _ = call("/v1/completions", completion(guided_choice=choice[2:]))
    assert status == 400 and answer["error"]["code"] == "unwritable_format", answer
    for wrong, param in (
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice"),
        ({"guided_regex": {}}, "guided_regex"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"grammar": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ):
        status, answer, _ = call("/v1/completions", completion(**wrong))
        assert status == 400 and answer["error"]["param"] == param, answer


def check_forbidden(vocab):
    """A request that forbids all that may follow is the client's fault, and no error of the server."""
    before = gauges("banyan_version_errors_total")
    form = {"response_format": {"type": "regex", "pattern": "[a-c]{4}"}, "max_tokens": 4}
    every = {str(i): -100 for i in range(vocab)}
    writes = []
    for i in range(vocab):
        status, answer, _ = call("/v1/completions", completion(logit_bias={k: v for k, v in every.items() if k != str(i)}, **form))
        if status == 200:
            writes.append(answer["choices"][0]["text"])
        else:
            assert status == 400 and answer["error"]["code"] == "invalid_request", answer
            assert "the biases forbid all that the rest of the request allows" in answer["error"]["message"], answer
    assert sorted(writes) == ["aaaa", "bbbb", "cccc"], writes
    for bias in (every, {k: 0 if k == "0" else v for k, v in every.items()}):
        for more in ({}, {"n": 3}, {"temperature": 0}, {"best_of": 3}):
            status, answer, _ = call("/v1/completions", completion(logit_bias=bias, **{**form, **more}))
            assert status == 400 and answer["error"]["type"] == "invalid_request_error", answer
    assert call("/v1/completions", completion(logit_bias=every))[0] == 400
    body = json.dumps(completion(logit_bias=every, stream=True, **form)).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert b'"code":"invalid_request"' in raw(head % len(body) + body)
    assert gauges("banyan_version_errors_total") == before, before


def check_errors():
    def error(status, code, *args, **more):
        got, body, headers = call(*args, **more)
        assert got == status and body["error"]["code"] == code, (got, body)
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return body["error"], headers

    path = "/v1/completions"
    assert "max_tokens" in error(400, "invalid_request", path, completion(max_token=1))[0]["message"]
    assert error(400, "invalid_request", path, completion(temperature=3))[0]["param"] == "temperature"
    for options in ("yes", {"include_usag": True}, {"include_usage": 1}):
        body = error(400, "invalid_request", path, completion(stream=True, stream_options=options))[0]
        assert body["param"] == "stream_options", body
    error(400, "invalid_request", path, completion(max_tokens=0))
    error(400, "invalid_request", path, completion(n=1000))
    error(400, "invalid_request", path, completion(prompt=""))
    error(400, "invalid_request", path, completion(prompt=[99999]))
    for prompt, tokens in (("a" * 2000, "has 2000"), ([1] * 2000, "has 2000"), ("a" * 100000, "has 100000")):
        body = error(400, "context_length_exceeded", path, completion(prompt=prompt))[0]
        assert f"maximum context length is 1024 tokens, and the text {tokens}" in body["message"], body
        assert body["param"] == "prompt", body
    error(400, "context_length_exceeded", path, completion(prompt="a" * 6000000))
    error(400, "invalid_request", path, completion(stop=[""]))
    for key in ("x", "01", " 1", "1 ", "+1", "-1", "1.0", "1e1", "", "0x1", "\u0661", "99999", "4294967297"):
        message = error(400, "invalid_request", path, completion(logit_bias={key: 1}))[0]["message"]
        assert f"'logit_bias' has the key \"{key}\", which is no token" in message, message
    for stop in ("\0", "a\0b", ["a", "\0"]):
        assert "'stop' has a text with U+0000" in error(400, "invalid_request", path, completion(stop=stop))[0]["message"]
    check_forbidden(int(re.search("from 0 to ([0-9]+)", message)[1]) + 1)
    error(400, "invalid_request", path, completion(response_format={"type": "regex", "pattern": "(" * 60000}))
    # The vocabulary has no braces, and letters without capitals.
    for form in ({"type": "json_object"}, {"type": "regex", "pattern": "a*(B|C)"}):
        for streams in (False, True):
            error(400, "unwritable_format", path, completion(response_format=form, stream=streams))
    error(400, "invalid_request", path, completion(), headers={"Content-Length": "10"})
    # The sentence names what was asked for and what there is, for whoever asks.
    task = {"endpoint": path, "body": completion(model="other")}
    long = completion(model="other", prompt="a" * 300000)
    for missing in ((path, completion(model="other")), ("/v1/models/other",), ("/v1/tasks", task), (path, long),
                    ("/v1/tasks", {"endpoint": path, "body": long})):
        body = error(404, "model_not_found", *missing)[0]
        assert body["message"] == "the model 'other' is not served here; served: 'tiny'", body
        assert body["param"] == "model", body
    # OpenAI's limits of what is kept with a response.
    for data in ({str(i): "a" for i in range(17)}, {"k" * 65: "a"}, {"k": "\u20ac" * 513}, {"k": 1}, ["a"]):
        body = {"model": "tiny", "input": "a", "metadata": data}
        assert error(400, "invalid_request", "/v1/responses", body)[0]["param"] == "metadata", data
    most = {("k" * 60) + str(i): "\u20ac" * 512 for i in range(16)}
    body = {"model": "tiny", "input": "a", "metadata": most}
    assert error(400, "invalid_request", "/v1/responses", body)[0]["param"] != "metadata"  # the model has no template
    assert error(404, "route_not_found", "/v1/else")[0]["message"] == "there is no such route"
    # What other servers are asked for is either here, too, or the sentence says what is instead.
    for there, here in (("/api/generate", "POST /v1/completions"), ("/generate_stream", "stream"), ("/v1", "/v1/models"),
                        ("/api/chat", "POST /v1/chat/completions"), ("/tokenize", "token ids"), ("/healthz", "/health"),
                        ("/v1/completion", "did you mean POST /v1/completions?"), ("/v1/chat/completion", "mean POST /v1/chat/"),
                        ("/v1/v1/embeddings", "mean POST /v1/embeddings?"), ("/v1/predict/", "mean POST /v1/predict?")):
        assert here in error(404, "route_not_found", there, {})[0]["message"], there
    for there in ("/health", "/ping"):
        assert call(there)[0] == 200 and call(there)[1]["status"] == "ready", call(there)
    assert call("/version")[1].keys() == {"version"}
    error(400, "invalid_request", "/v1/chat/completions", {"model": "tiny", "messages": []})
    # The model has no template.
    error(400, "invalid_request", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "a"}]})
    assert error(405, "method_not_allowed", path)[1]["Allow"] == "POST"
    error(415, "not_json", path, completion(), headers={"Content-Type": "text/plain"})
    # The errors of a stream come before its head.
    error(400, "invalid_request", path, completion(stream=True, prompt=[99999]))
    assert raw(b"GET / HTTP/1.1\nHost: localhost\n\n").startswith(b"HTTP/1.1 400 ")
    deep = b'{"model":"tiny","prompt":' + b"[" * 3000 + b"]" * 3000 + b"}"
    answer = raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(deep) + deep)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    # What would take far more memory than its text is refused unparsed; characters of a string are no structure.
    for many in ([{}] * 70000, [1] * 300000):
        message = error(400, "invalid_request", path, completion(prompt=many))[0]["message"]
        assert "objects and lists" in message, message
    assert call(path, completion(prompt='[{,"' * 100000))[0] == 400  # too long for the model


def check_connection():
    """Requests that come one behind another, before their answers."""
    one = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = json.dumps(completion(max_tokens=2)).encode()
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    answer = raw(one + post + one.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3 and answer.index(b"text_completion") < answer.rindex(b"live"), answer


def check_cancel():
    """The client of a stream goes away: its request ends, and the other one does not."""
    before = metric("banyan_cancelled_total")
    body = json.dumps(completion(stream=True, max_tokens=MANY)).encode()
    other = {}
    thread = threading.Thread(target=lambda: other.update(zip("tru", stream(completion(max_tokens=MANY)))))
    thread.start()
    s = socket.create_connection((where.hostname, where.port))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    s.recv(1)
    s.close()
    thread.join()
    wait_for(lambda: metric("banyan_requests_running") == 0)
    assert other["r"] == {0: "length"} and other["u"]["completion_tokens"] == MANY, other
    # It may have ended before the client was seen to go.
    assert metric("banyan_cancelled_total") <= before + 1


def check_feedback():
    """What is said of an answer, and the answers themselves, which are kept without an address in them."""
    status, answer, _ = call("/v1/completions", completion(prompt="apple bob@example.com", max_tokens=3))
    assert status == 200
    texts, _, _ = stream(completion(prompt="cedar 5550123456", max_tokens=4))
    assert texts[0]
    for body, code in (({"id": answer["id"], "rating": 1}, 200), ({"id": answer["id"], "rating": 0.5, "comment": "so \"so\""}, 200),
                       ({"id": "own-1", "label": "cat"}, 200), ({"id": answer["id"]}, 400), ({"rating": 1}, 400),
                       ({"id": "x y", "rating": 1}, 400), ({"id": "x", "rating": "good"}, 400),
                       ({"id": "x", "label": {}}, 400), ({"id": "x", "rating": 1, "else": 1}, 400), ([1], 400)):
        status, said, _ = call("/v1/feedback", body)
        assert status == code, (body, status, said)
    # Twenty at a time, and each is on disk once it was answered.
    crew = [threading.Thread(target=lambda i=i: call("/v1/feedback", {"id": f"many-{i}", "rating": i % 2})) for i in range(20)]
    [t.start() for t in crew]
    [t.join() for t in crew]
    with open("feedback/feedback-000001.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 23 and len({row["id"] for row in rows}) == 22, rows
    assert sorted(gauges("banyan_feedback_total")) == [1.0, 22.0]
    assert abs(metric("banyan_feedback_rating_mean") - 11.5 / 22) < 1e-12
    wait_for(lambda: metric("banyan_payload_records_total") == 2.0)


def check_drift():
    """Windows of 60 requests: words as in the training data, the same words, then one of them alone."""
    words = "apple bay cedar dune elm fern grove hill iris jade kelp lime moss nut oak pine".split()
    state = 99

    def word(n):
        nonlocal state
        state = (state * 1103515245 + 12345) % 2147483648
        return words[state // 65536 % n]

    for window, (n, detected) in enumerate([(16, 0.0), (16, 0.0), (1, 1.0)]):
        assert gauges("banyan_drift_window_requests") == [0.0]
        for _ in range(60):
            assert call("/v1/completions", completion(prompt=" ".join(word(n) for _ in range(8)) + "\n", max_tokens=1))[0] == 200
        wait_for(lambda: gauges("banyan_drift_windows_total") == [window + 1.0])
        assert gauges("banyan_drift_detected") == [detected], (window, gauges("banyan_drift_score"))
        assert gauges("banyan_drift_alarms_total") == [detected]
        assert len(gauges("banyan_drift_score")) == 2
    assert gauges("banyan_drift_samples") == [60.0 * len(" ".join(["apple"] * 8) + "\n")]
    assert gauges("banyan_drift_p_value")[0] < 1e-9


def check_lost():
    """A process dies in the middle of streams: every stream goes on as if nothing had happened."""
    role, name, parent = sys.argv[3], sys.argv[4], sys.argv[5]
    # Pieces are empty where a text may be the begin of a stop.
    def body(i):
        return completion(seed=i, max_tokens=MANY, logprobs=0, stop=["a~", "e~", "o~", " ~"])

    wanted = [stream(body(i)) for i in range(16)]
    assert len(wanted[0][0]["0 tokens"]) == MANY, wanted[0]
    got = [None] * len(wanted)

    def run(i):
        got[i] = stream(body(i))

    # On a machine that is fast or busy, the streams may be over before they are seen: they are begun again.
    for _ in range(100):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(wanted))]
        for thread in threads:
            thread.start()
        while metric("banyan_requests_running") <= 4 and any(thread.is_alive() for thread in threads):
            pass
        if any(thread.is_alive() for thread in threads):
            break
    else:
        assert False, "the streams were never seen"
    children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", parent], capture_output=True, text=True).stdout
    victim = [int(line.split()[0]) for line in children.splitlines() if f" {role} " in line][0]
    os.kill(victim, getattr(signal, name))
    for thread in threads:
        thread.join()
    assert got == wanted, [(g, w) for g, w in zip(got, wanted) if g != w]
    wait_for(lambda: metric("banyan_workers_ready") == 2)
    assert metric("banyan_ready") == 1
    wait_for(lambda: not os.path.exists(f"/proc/{victim}"))


def finished(id):
    _, task, _ = call("/v1/tasks/" + id)
    return task if task["status"] in ("completed", "failed", "cancelled") else None


def check_tasks():
    """A task gives what its route would have given; a key of idempotency makes it one."""
    body = completion(n=2)
    status, task, headers = call("/v1/tasks", {"endpoint": "/v1/completions", "body": body}, headers={"Idempotency-Key": "one"})
    assert status == 202 and headers["Location"] == "/v1/tasks/" + task["id"], task
    assert call("/v1/tasks", {"endpoint": "/v1/completions", "body": body}, headers={"Idempotency-Key": "one"})[1]["id"] == task["id"]
    wait_for(lambda: finished(task["id"]))
    task = finished(task["id"])
    whole = call("/v1/completions", body)[1]
    assert task["result"]["choices"] == whole["choices"] and task["result"]["usage"] == whole["usage"], task
    # What is wrong is said at once where it can be, else by the task.
    for wrong in ({"endpoint": "/v1/else", "body": body}, {"endpoint": "/v1/completions"}, {"endpoint": "/v1/completions", "body": completion(stream=True)}, {"endpoint": "/v1/completions", "body": completion(n=0)}, {"endpoint": "/v1/completions", "body": completion(logprobs=0)}):
        assert call("/v1/tasks", wrong)[0] == 400, wrong
    assert call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(model="other")})[0] == 404
    assert call("/v1/tasks", {"endpoint": "/v1/completions", "body": body}, headers={"Content-Type": "text/plain"})[0] == 415
    bad = call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(prompt=[99999])})[1]
    wait_for(lambda: finished(bad["id"]))
    assert finished(bad["id"])["error"]["status"] == 400
    assert call("/v1/tasks/task_none")[0] == 404 and call("/v1/tasks/..")[0] in (400, 404)
    # Many, of which the last ones are cancelled.
    ids = [call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(max_tokens=MANY, seed=i)})[1]["id"] for i in range(60)]
    for id in ids[-5:]:
        assert call(f"/v1/tasks/{id}/cancel", method="POST")[0] == 200
    for id in ids:
        wait_for(lambda: finished(id))
    states = [finished(id)["status"] for id in ids]
    assert set(states[:-5]) == {"completed"} and set(states[-5:]) <= {"cancelled", "completed"}, states


def follow(id, last=None, most=None):
    """Events of a task as (number, name, data); `most` of them, then the client goes away."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    request = urllib.request.Request(f"{url}/v1/tasks/{id}/events", headers=headers)
    events = []
    with urllib.request.urlopen(request, timeout=300) as answer:
        if answer.status == 204:
            return None
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                lines[name] = value
            elif "id" in lines:
                events.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
                lines = {}
                if len(events) == most:
                    break
    return events


def check_task_events():
    """The states of a task in their order, up to its result; a client that comes again gets what it lacks."""
    body = completion(max_tokens=MANY)
    # Behind others, so that it has not ended when the client comes.
    others = [call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(max_tokens=MANY, n=8, seed=i)})[1]["id"] for i in range(12)]
    task = call("/v1/tasks", {"endpoint": "/v1/completions", "body": body})[1]
    first = follow(task["id"], most=1)[0]
    for id in others:
        call(f"/v1/tasks/{id}/cancel", method="POST")
    assert first[1] in ("queued", "in_progress") and first[2]["id"] == task["id"], first
    events = follow(task["id"], last=first[0])
    numbers = [first[0]] + [e[0] for e in events]
    assert numbers == sorted(set(numbers)) and events[-1][1] == "completed", (first, events)
    assert events[-1][2]["result"]["choices"] == call("/v1/completions", body)[1]["choices"]
    # It has ended: all that is left is the end, and behind it nothing.
    assert [e[1] for e in follow(task["id"])] == ["completed"]
    assert follow(task["id"], last=numbers[-1]) is None
    assert call("/v1/tasks/task_none/events")[0] == 404
    assert call(f"/v1/tasks/{task['id']}/events", method="POST")[0] == 404
    # One that is cancelled tells so at once.
    task = call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(max_tokens=MANY, n=8)})[1]
    call(f"/v1/tasks/{task['id']}/cancel", method="POST")
    assert follow(task["id"])[-1][1] in ("cancelled", "completed")


def check_tasks_lost():
    """Gateway, broker and worker die one after another; every task that was accepted ends once, with its result."""
    parent = sys.argv[3]
    accepted = {}
    for i in range(60):
        if i in (10, 20, 30):
            role = {10: "worker", 20: "broker", 30: "gateway"}[i]
            children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", parent], capture_output=True, text=True).stdout
            os.kill([int(line.split()[0]) for line in children.splitlines() if f" {role} " in line][0], signal.SIGKILL)
        while True:
            try:
                status, task, _ = call("/v1/tasks", {"endpoint": "/v1/completions", "body": completion(max_tokens=300, seed=i)}, headers={"Idempotency-Key": f"lost-{i}"})
            except (urllib.error.URLError, OSError, http.client.HTTPException):
                status = 0
            if status == 202:
                break
            time.sleep(0.02)
        accepted[i] = task["id"]
    assert len(set(accepted.values())) == 60
    for i, id in accepted.items():
        wait_for(lambda: finished(id))
        task = finished(id)
        assert task["status"] == "completed", task
        assert task["result"]["choices"] == call("/v1/completions", completion(max_tokens=300, seed=i))[1]["choices"]


def check_keys():
    status, _, headers = call("/v1/models")
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
    for path, method in (("/metrics", "GET"), ("/v1/completions", "POST"), ("/v1/else", "GET")):
        assert call(path, method=method)[0] == 401, path
    assert call("/health/live")[0] == 200
    assert call("/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401
    assert call("/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
    assert call("/v1/models", headers={"X-Api-Key": "secret"})[0] == 200
    # A key without scopes in the file is for inference and tasks.
    status, body, _ = call("/metrics", headers={"X-Api-Key": "secret"})
    assert status == 403 and body["error"]["code"] == "insufficient_scope", body


def page(**headers):
    with urllib.request.urlopen(urllib.request.Request(url + "/", headers=headers)) as answer:
        return answer.read().decode(), answer.headers


def check_page():
    """It needs no key, and its headers let it run what it holds and ask this server alone."""
    text, headers = page()
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
    assert rules["default-src"] == "'none'" and rules["connect-src"] == "'self'", rules
    for tag in ("script", "style"):
        (part,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert rules[tag + "-src"] == f"'sha256-{digest}'", rules
    for word in ("http:", "https:", "//", "src=", "style=", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", " onclick"):
        lines = [line for line in text.splitlines() if word in line and not (word == "//" and re.search(r"(^|\s)// ", line))]
        assert not lines, lines
    assert headers["Cache-Control"] == "no-cache"
    try:
        page(**{"If-None-Match": headers["ETag"]})
        raise AssertionError("it is sent again")
    except urllib.error.HTTPError as error:
        assert error.code == 304 and error.read() == b"" and error.headers["ETag"] == headers["ETag"]
        assert error.headers["Content-Length"] is None
    assert page(**{"If-None-Match": '"other"'})[0] == text
    assert call("/", {})[0] in (401, 405)


def check_no_page():
    status, body, _ = call("/")
    assert status == 404 and body["error"]["code"] == "route_not_found", body


def check_quota():
    """What a key has used of its day's tokens is what its requests needed, not what they might have."""
    few = {"X-Api-Key": "few"}
    wait_for(lambda: call("/health/ready")[0] == 200)
    body = completion(prompt=[1, 2], max_tokens=30)
    for _ in range(3):  # refused before it runs: nothing is used
        assert call("/v1/completions", completion(prompt=[99999]), headers=few)[0] == 400
    status, answer, _ = call("/v1/completions", body, headers=few)
    assert status == 200, answer
    used = answer["usage"]["total_tokens"]
    assert 40 - used < 30, used
    check_quota_kept()


def check_quota_kept():
    status, answer, headers = call("/v1/completions", completion(prompt=[1, 2], max_tokens=30), headers={"X-Api-Key": "few"})
    assert status == 429 and answer["error"]["code"] == "insufficient_quota", answer
    assert 0 < int(headers["Retry-After"]) <= 86400
    assert call("/v1/completions", completion(max_tokens=2), headers={"X-Api-Key": "secret"})[0] == 200


globals()["check_" + sys.argv[1]]()
