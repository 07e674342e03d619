"""Checks of a server's traces, with a collector of its own: Python's library alone.

usage: trace_client.py URL PORT [LOG]    LOG: what the gateway logs
       trace_client.py URL dead
"""
import http.server
import json
import sys
import threading
import time
import urllib.error
import urllib.request

url = sys.argv[1]
spans = []
resources = []
answers = []
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path.split("?")[0] == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        status = answers.pop(0) if answers else 200
        if status == 200:
            for group in body["resourceSpans"]:
                resources.append(attributes(group["resource"]))
                for scope in group["scopeSpans"]:
                    spans.extend(scope["spans"])
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *ignored):
        pass


def attributes(of):
    return {a["key"]: next(iter(a["value"].values())) for a in of["attributes"]}


def complete(headers=None, path="/v1/completions", **more):
    body = {"model": "tiny", "prompt": "apple", "max_tokens": 40, "seed": 7, **more}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read(), answer.headers


def counter(name):
    with urllib.request.urlopen(url + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float([line for line in lines if line.startswith(name + " ")][0].split()[1])


def wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, spans
        time.sleep(0.05)


def seconds(span):
    return (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) * 1e-9


def of_trace(id):
    return {s["name"]: s for s in spans if s["traceId"] == id}


def check_spans():
    # A caller's trace goes on, below the caller's span.
    body, headers = complete({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"})
    version, trace, own, flags = headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01") and own != SPAN, headers["traceparent"]
    assert headers["tracestate"] == "vendor=1"
    wait_for(lambda: len(of_trace(TRACE)) == 4)
    found = of_trace(TRACE)
    root = found.pop("POST /v1/completions")
    assert root["spanId"] == own and root["parentSpanId"] == SPAN and root["kind"] == 2, root
    assert root["traceState"] == "vendor=1" and root["status"] == {}, root
    assert abs(int(root["startTimeUnixNano"]) * 1e-9 - time.time()) < 86400, root
    assert int(root["startTimeUnixNano"]) < int(root["endTimeUnixNano"]), root
    # Waiting, prompt and answer follow one another without a gap, within the request.
    assert set(found) == {"queue", "prefill", "decode"}, found
    last = int(root["startTimeUnixNano"])
    for name in ("queue", "prefill", "decode"):
        span = found[name]
        assert span["parentSpanId"] == own and span["kind"] == 1, span
        gap = int(span["startTimeUnixNano"]) - last
        assert gap >= -1000 and (gap <= 1000 or name == "queue") and seconds(span) >= 0, (name, span, last)
        last = int(span["endTimeUnixNano"])
    assert last <= int(root["endTimeUnixNano"])
    assert seconds(found["prefill"]) > 0 and seconds(found["decode"]) > 0
    assert len({s["spanId"] for s in spans}) == len(spans)
    usage = json.loads(body)["usage"]
    said = attributes(root)
    assert said["gen_ai.request.model"] == "tiny" and said["gen_ai.operation.name"] == "text_completion", said
    assert said["gen_ai.usage.input_tokens"] == str(usage["prompt_tokens"]), said
    assert said["gen_ai.usage.output_tokens"] == str(usage["completion_tokens"]), said
    assert said["gen_ai.response.id"] == json.loads(body)["id"] and said["http.response.status_code"] == "200", said
    assert resources[0] == {"service.name": "banyan"}, resources


def check_contexts():
    # Not sampled by the caller: no spans, but the trace goes on.
    quiet = TRACE.replace("4", "5")
    _, headers = complete({"traceparent": f"00-{quiet}-{SPAN}-00"})
    assert headers["traceparent"].startswith(f"00-{quiet}-") and headers["traceparent"].endswith("-00")
    # What is no header of the standard begins a trace.
    ids = set()
    for bad in (f"00-{TRACE}-{SPAN}", f"01-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", "x"):
        _, headers = complete({"traceparent": bad, "tracestate": "vendor=1"})
        assert headers["tracestate"] is None
        id = headers["traceparent"].split("-")[1]
        assert len(id) == 32 and id != TRACE
        ids.add(id)
    assert len(ids) == 4
    # A stream, of two prompts; and an error.
    _, headers = complete(stream=True, prompt=["apple", "cedar"])
    pair = headers["traceparent"].split("-")[1]
    try:
        complete(max_tokens=-1)
        raise AssertionError("it was answered")
    except urllib.error.HTTPError as error:
        refused = error.headers["traceparent"].split("-")[1]
    wait_for(lambda: ids <= {s["traceId"] for s in spans} and len([s for s in spans if s["traceId"] == pair]) == 7 and of_trace(refused))
    for id in ids:
        assert "parentSpanId" not in of_trace(id)["POST /v1/completions"]
    assert attributes(of_trace(refused)["POST /v1/completions"])["http.response.status_code"] == "400"
    assert not of_trace(quiet)
    # A collector that has no room for the moment gets them again.
    before = len(spans)
    answers.append(503)
    complete()
    wait_for(lambda: len(spans) == before + 4)
    assert counter("banyan_trace_spans_dropped_total") == 0


def check_log(path):
    """A collector that refuses a batch, and takes the next one."""

    def events(name):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.startswith("{") and line.endswith("}\n")]
        return [line for line in lines if line["event"] == name]

    assert not events("traces_unavailable")
    answers.append(400)
    complete()
    wait_for(lambda: events("traces_unavailable"))
    complete()
    wait_for(lambda: events("traces_available"))
    dropped = counter("banyan_trace_spans_dropped_total")
    endpoint = f"http://127.0.0.1:{sys.argv[2]}/v1/traces"
    (lost,), (back,) = events("traces_unavailable"), events("traces_available")
    assert lost["endpoint"] == back["endpoint"] == endpoint, lost
    assert lost["reason"] == "the collector answered 400" and lost["dropped"] == dropped > 0, lost


if sys.argv[2] == "dead":
    # The server's queue takes 8 spans, and its collector takes none.
    for _ in range(12):
        complete(max_tokens=2)
    wait_for(lambda: counter("banyan_trace_spans_dropped_total") >= 12 * 4 - 16)
    assert counter("banyan_trace_spans_total") == 0 and counter("banyan_trace_spans_waiting") <= 8
else:
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    check_spans()
    check_contexts()
    if len(sys.argv) > 3:
        check_log(sys.argv[3])
