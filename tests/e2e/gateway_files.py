"""A gateway that clients leave no file: it finds its broker again all the same.

usage: gateway_files.py SOCKET BANYAN
"""
import collections
import os
import resource
import socket
import subprocess
import sys
import time

path, banyan = sys.argv[1:]
directory = os.path.dirname(path)
log = open("log", "ab")
processes = []


def start(*command, **more):
    processes.append(subprocess.Popen([banyan, *command, "--dir", directory], stderr=log, **more))
    return processes[-1]


def metric(name):
    """By a connection that was there before the others."""
    first.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += first.recv(1 << 16)
    head, body = answer.split(b"\r\n\r\n", 1)
    length = int(next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))[15:])
    while len(body) < length:
        body += first.recv(1 << 16)
    return next(float(line.split()[-1]) for line in body.decode().splitlines() if line.startswith(name + " "))


others = []
late = collections.deque(maxlen=100)


def is_reached():
    """Whether the broker is; a client that has been sent away comes again at once."""
    late.extend(socket.create_connection((host, int(port))) for _ in range(10))
    return metric("banyan_broker_reached") == 1


def wait_for(what):
    end = time.time() + 300
    while not what():
        assert time.time() < end, "it did not come"
        time.sleep(0.05)


try:
    broker = start("broker")
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    gateway = start("gateway", "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, preexec_fn=few)
    host, port = gateway.stdout.readline().decode().strip().removeprefix("http://").rsplit(":", 1)
    first = socket.create_connection((host, int(port)))
    wait_for(lambda: metric("banyan_broker_reached") == 1)
    others.extend(socket.create_connection((host, int(port))) for _ in range(100))
    broker.kill()
    broker.wait()
    wait_for(lambda: not is_reached())
    start("broker")
    wait_for(is_reached)
    assert metric('banyan_connections_refused_total{limit="all"}') >= 100 - 32
finally:
    for process in processes:
        process.kill()
        process.wait()
