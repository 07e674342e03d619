"""Thousands of streams on one gateway: its memory, how long a question about health takes, and whether any stream starves.

usage: serve_streams.py URL PID MODEL [--streams N] [--idle N] [--tokens N] [--seconds S]

Starts N streams, and while they run asks /health/live on one connection after another, every 20 ms. Prints JSON: resident
memory of the gateway (process PID) before, with idle connections, and with the streams; percentiles of health; the
slowest stream's share of the tokens of the fastest.
"""
import argparse
import asyncio
import json
import time
import urllib.parse

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("pid", type=int)
parser.add_argument("model")
parser.add_argument("--streams", type=int, default=5000)
parser.add_argument("--idle", type=int, default=10000)
parser.add_argument("--tokens", type=int, default=100)
parser.add_argument("--seconds", type=float, default=20)
parser.add_argument("--prober", default="env", help="command that runs the client which asks for health: nice -n -10")
options = parser.parse_args()
where = urllib.parse.urlparse(options.url)


def resident():
    with open(f"/proc/{options.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


async def connect():
    while True:
        try:
            return await asyncio.open_connection(where.hostname, where.port)
        except OSError:
            await asyncio.sleep(0.05)


async def stream(i, counts, failures):
    body = json.dumps({"model": options.model, "prompt": [1, 2, 3], "max_tokens": options.tokens, "seed": i, "stream": True, "ignore_eos": True}).encode()
    reader, writer = await connect()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        failures.append(head.split(b"\r\n")[0].decode())
        return
    while piece := await reader.read(65536):
        counts[i] += piece.count(b"data: {")
    writer.close()


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))] if values else None


async def main():
    report = {"resident": resident()}
    idle = [await connect() for _ in range(options.idle)]
    await asyncio.sleep(1)
    report["idle_connections"] = options.idle
    report["idle_bytes"] = resident() - report["resident"]
    for _, writer in idle:
        writer.close()
    await asyncio.sleep(2)
    before = resident()
    counts, failures, times = [0] * options.streams, [], []
    tasks = [asyncio.create_task(stream(i, counts, failures)) for i in range(options.streams)]
    await asyncio.sleep(3)
    # The client that asks is a process of its own, so that its times are not those of reading streams.
    prober = await asyncio.create_subprocess_exec(*options.prober.split(), "python3", "-c", PROBE, where.hostname, str(where.port), str(options.seconds), stdout=asyncio.subprocess.PIPE)
    most = 0
    while prober.returncode is None and not (prober.stdout.at_eof()):
        most = max(most, resident())
        try:
            line = await asyncio.wait_for(prober.stdout.readline(), 0.5)
            times += [float(line)] if line.strip() else []
        except asyncio.TimeoutError:
            pass
    running = sum(not task.done() for task in tasks)
    snapshot = [c for c in counts]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    report |= {"streams": options.streams, "running_at_the_end": running, "stream_bytes": most - before, "failures": len(failures), "failure": failures[:1]}
    report |= {"tokens": sum(snapshot), "least": min(snapshot), "most": max(snapshot), "health": len(times), "p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "worst": max(times, default=None)}
    print(json.dumps(report))


PROBE = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    begin = time.monotonic()
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
        s.sendall(b"GET /health/live HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
        while s.recv(4096):
            pass
    print(time.monotonic() - begin, flush=True)
    time.sleep(0.02)
"""
asyncio.run(main())
