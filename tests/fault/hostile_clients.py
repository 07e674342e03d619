"""Clients that misbehave, while a normal one asks all the time.

usage: hostile_clients.py URL   of a server with the time limits of test_serve_clients.sh
"""
import concurrent.futures
import http.client
import json
import re
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

where = urllib.parse.urlparse(sys.argv[1])
MIB = 1 << 20
GROWTH = 32 * MIB  # of the gateway, at most, by requests that were answered or refused
WAITING = 64 * MIB  # the same with a stream whose 7,200 events of some 5 KB may wait for their turn
TCP_REPAIR = 19
ask = {"model": "tiny", "prompt": "apple", "max_tokens": 4, "seed": 1}
long = {"model": "tiny", "prompt": "apple", "max_tokens": 900, "stream": True, "seed": 1}
wide = {**long, "n": 8, "logprobs": 5}  # 5 MB
answered = 0
failure = None
stopping = threading.Event()


def connect(receive=None):
    s = socket.socket()
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive)
    s.settimeout(300)
    s.connect((where.hostname, where.port))
    return s


def post(body, *headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = headers or (f"Content-Length: {len(body)}",)
    return "\r\n".join(("POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines, "", "")).encode() + body


def rest(s):
    """What comes until the server closes; a reset is an end too."""
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def metrics():
    c = http.client.HTTPConnection(where.hostname, where.port, timeout=300)
    c.request("GET", "/metrics")
    lines = c.getresponse().read().decode().splitlines()
    c.close()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def memory():
    return metrics()["process_resident_memory_bytes"]


def wait_for(what, condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def normal():
    """Asks one after another, each time on a new connection; each answer must be that of the first time."""
    global answered, failure
    expected = None
    while not stopping.is_set():
        try:
            c = http.client.HTTPConnection(where.hostname, where.port, timeout=300)
            c.request("POST", "/v1/completions", json.dumps(ask), {"Content-Type": "application/json"})
            answer = c.getresponse()
            text = json.loads(answer.read())["choices"][0]["text"]
            c.close()
            expected = expected or text
            assert (answer.status, text) == (200, expected), (answer.status, text)
            answered += 1
        except Exception as error:
            failure = error
            return


def others_are_answered():
    before = answered
    wait_for("a normal client is answered", lambda: failure or answered >= before + 2)
    assert not failure, repr(failure)


# ---- requests that are refused, or are not although they are odd ----


def chunked(pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def odd_requests():
    body = json.dumps(ask).encode()
    get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    length, coding = f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"
    ones = chunked(body[i : i + 1] for i in range(len(body)))
    table = [
        ("a target of 5,000 bytes", 404, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("a head above the limit", 431, b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("65 headers", 431, get + b"X: y\r\n" * 64 + b"\r\n"),
        ("a length above the limit", 413, post(b"", f"Content-Length: {1 << 18}")),
        ("a length beyond all numbers", 413, post(b"", "Content-Length: " + "9" * 40)),
        ("chunks above the limit", 413, post(chunked([b" " * 60000] * 3), coding)),
        ("a chunk beyond all numbers", 400, post(b"fffffffff\r\n", coding)),
        ("more chunks than 65,536", 413, post(chunked([b" "] * 65537), coding)),
        ("a body in chunks of a byte", 200, post(ones, coding, "Connection: close")),
        ("two lengths", 400, post(body, length, length)),
        ("two lengths in one", 400, post(body, f"{length}, {len(body)}")),
        ("a length with a sign", 400, post(body, f"Content-Length: +{len(body)}")),
        ("a length and chunks", 400, post(ones, length, coding)),
        ("chunks and a length", 400, post(ones, coding, length)),
        ("two codings", 400, post(ones, coding, coding)),
        ("another coding", 501, post(body, "Transfer-Encoding: gzip, chunked")),
        ("a chunk's extension", 400, post(b"1;a=b\r\n{\r\n", coding)),
        ("a chunk without its end", 400, post(b"1\r\n{}\r\n", coding)),
        ("a folded header", 400, get + b"X: y\r\n z\r\n\r\n"),
        ("a folded length", 400, post(body, "Content-Length:\r\n 5")),
        ("bare LF", 400, b"GET /v1/models HTTP/1.1\nHost: localhost\n\n"),
        ("bare LF behind a header", 400, get + b"X: y\n\r\n"),
        ("bare CR", 400, get + b"X: y\rZ: y\r\n\r\n"),
        ("a space before the colon", 400, get + b"X : y\r\n\r\n"),
        ("NUL in the target", 400, b"GET /v1/\0models HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("NUL in a header", 400, get + b"X: y\0\r\n\r\n"),
        ("NUL in a body", 400, post(b'{"model": "tiny", "prompt": "\0"}', "Content-Length: 32", "Connection: close")),
        ("no host", 400, b"GET / HTTP/1.1\r\n\r\n"),
        ("two hosts", 400, get + b"Host: b\r\n\r\n"),
        ("another version", 505, b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"),
        ("no version", 400, b"GET /\r\n\r\n"),
        ("noise", 400, bytes(range(1, 256)) * 4),
    ]
    for name, status, data in table:
        # What comes behind a request that is refused must not be taken for one.
        with connect() as s:
            s.sendall(data + (get + b"\r\n" if status != 200 and b"close" not in data else b""))
            answer = rest(s)
        assert answer.startswith(b"HTTP/1.1 %d " % status) and len(re.findall(rb"HTTP/1.1 \d", answer)) == 1, (name, status, answer[:300])


# ---- requests that do not end ----


def drip(name, status, begin, data):
    """Sends a byte at a time until there is an answer."""
    with connect() as s:
        s.sendall(begin)
        for i in range(len(data)):
            if select.select([s], [], [], 0.05)[0]:
                break
            s.send(data[i : i + 1])
        answer = rest(s)
    assert answer.startswith(b"HTTP/1.1 %d " % status), (name, answer[:300])


def idle():
    """Connections that say nothing are closed; the rest of half a request is not waited for."""
    few = metrics()["process_open_fds"]
    held = [connect() for _ in range(500)]
    wait_for("500 connections are held", lambda: metrics()["process_open_fds"] >= few + 480)
    others_are_answered()
    for s in held:
        assert rest(s) == b""
        s.close()


def half():
    """Half a request and the end of what the client sends: nothing to answer."""
    with connect() as s:
        s.sendall(post(ask)[:-3])
        s.shutdown(socket.SHUT_WR)
        assert rest(s) == b""


# ---- answers that are not read ----


def pipeline():
    """Requests without end whose answers are not read: the server stops reading. Then all are answered in order."""
    many = 2000
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %08d\r\nX: " + b"y" * 300 + b"\r\n\r\n"
    data = b"".join(request % i for i in range(many))
    s = connect(4096)
    s.settimeout(0.4)
    sent, first = 0, memory()
    try:
        while sent < len(data):
            sent += s.send(data[sent : sent + 8192])
    except TimeoutError:
        pass
    grown = memory() - first
    assert sent < len(data) and grown < GROWTH, f"{sent} of {len(data)} bytes were taken, and memory grew by {grown / MIB:.0f} MiB"
    others_are_answered()
    s.settimeout(300)
    whole = sent // (len(request) + 4)
    got, at = b"", 0
    while at < whole:
        piece = s.recv(65536)
        assert piece, f"closed behind {at} of {whole} answers"
        got += piece
        lines = got.split(b"\r\n")
        for line in lines[:-1]:
            if line.lower().startswith(b"x-request-id: "):
                assert int(line[14:]) == at, (line, at)
                at += 1
        got = lines[-1]
    s.close()


def unread():
    """The same, never read: main() sees that the server has closed the connection."""
    s = connect(4096)
    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
    return s


def stream(body, receive=None):
    s = connect(receive)
    s.sendall(post(body))
    return s


def running():
    return metrics()["banyan_requests_running"]


def left(name, cause):
    """A client of a stream goes in a way of its own: its request ends, and counts as cancelled."""
    before = metrics()["banyan_cancelled_total"]
    cause()
    wait_for(f"the request is cancelled: {name}", lambda: metrics()["banyan_cancelled_total"] > before)
    # The other one is the normal client's.
    wait_for(f"nothing of it is left: {name}", lambda: running() <= 1)
    others_are_answered()


def killed():
    code = f"import socket; s = socket.create_connection(({where.hostname!r}, {where.port})); s.sendall({post(long)!r})\n"
    child = subprocess.Popen([sys.executable, "-c", code + "while True: print(len(s.recv(999)), flush=True)"], stdout=subprocess.PIPE)
    child.stdout.readline()
    child.stdout.readline()
    child.kill()
    child.wait()


def vanished():
    """As a machine that lost its power: no end of the connection is sent."""
    s = stream(long)
    s.recv(1000)
    try:
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        pass  # only root may; then it is a client that closes
    s.close()


def half_closed():
    s = stream(long)
    s.recv(1000)
    s.shutdown(socket.SHUT_WR)
    rest(s)


def stuck():
    """A reader that takes nothing: it is cut off, unless the kernel's buffers have room for all."""
    with stream(wide, 4096) as s:
        s.recv(100)
        others_are_answered()
        wait_for("the stream of a reader that is stuck ends", lambda: running() <= 1)


def slow_reader():
    """Behind, but within the bound: it gets all."""
    with connect(4096) as s:
        s.sendall(post({**ask, "max_tokens": 60, "stream": True}))
        data = b""
        while b"[DONE]" not in data:
            piece = s.recv(512)
            assert piece, data
            data += piece
            time.sleep(0.01)


def main():
    first = memory()
    client = threading.Thread(target=normal, daemon=True)
    client.start()
    others_are_answered()
    few = metrics()["process_open_fds"]
    began = time.monotonic()
    kept = unread()

    def done(name):
        print(f"{name}: {time.monotonic() - began:.1f} s, {answered} answered", flush=True)

    odd_requests()
    done("odd requests")
    slow = [
        ("a head", 408, b"", b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 60 + b"\r\n"),
        ("a head, behind an answer", 200, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\n" * 9),
        ("a body", 408, post(b"", "Content-Length: 999"), b" " * 999),
        ("chunks", 408, post(b"", "Transfer-Encoding: chunked"), b"1\r\n \r\n" * 200),
        ("no body", 408, post(b"", "Content-Length: 999"), b""),
    ]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        work = [pool.submit(drip, *row) for row in slow]
        work += [pool.submit(f) for f in (idle, half, pipeline, slow_reader)]
        for w in work:
            w.result()
    done("slow and idle clients")
    grown = memory() - first
    assert grown < GROWTH, f"memory of the gateway grew by {grown / MIB:.1f} MiB"
    for cause in (killed, vanished, half_closed):
        left(cause.__name__, cause)
        done(cause.__name__)
    stuck()
    done("stuck")
    stopping.set()
    client.join(30)
    assert not failure, repr(failure)
    wait_for("no connection is left", lambda: metrics()["process_open_fds"] <= few)
    kept.close()
    grown = memory() - first
    assert grown < WAITING, f"memory of the gateway grew by {grown / MIB:.1f} MiB"
    print(f"{answered} answers meanwhile; memory of the gateway grew by {grown / MIB:.1f} MiB")


main()
