"""Compares training pictures that are read from a web server and from a store of S3 with local ones.

usage: remote_read.py BANYAN FOLDER [--copies 16] [--threads 2] [--rounds 3]

FOLDER has a folder of JPEGs for each class. They are packed into a shard, of which there are so many copies, and
`banyan bench loader` takes one epoch of random resized crops of them: from the local files, from nginx, and from a
store of S3 that checks signatures (tests/support/remote_server.py), whose caches are empty each time. Printed are its
samples a second, which a step waits for; the seconds of the whole command, with what it reads before the first batch;
and the seconds of processor time. `link_http` and `link_s3` are what curl fetches from each server over eight
connections, not signed, in MiB/s, and `..._pack_mib_per_s` what `banyan pack` reaches that reads the same pictures and
writes them. A line of JSON for each round, then the medians and what remote reading reaches of local reading.
"""

import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SIDE, BATCH = 224, 32
S3 = {"AWS_ACCESS_KEY_ID": "TESTKEY", "AWS_SECRET_ACCESS_KEY": "testsecret/+x", "AWS_SESSION_TOKEN": "testtoken==",
      "AWS_REGION": "test-region-1"}


def run(command, **more):
    """Output of a command, its seconds, and those of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, time.time() - began, sum(after[:2]) - sum(before[:2])


def start_nginx(work):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(f"{work}/nginx.conf", "w") as out:
        out.write(f"daemon off; worker_processes 1; pid {work}/nginx.pid; error_log {work}/nginx.log;\n"
                  f"user root; events {{}}\nhttp {{ access_log off; sendfile on; keepalive_requests 100000; server {{\n"
                  f"listen 127.0.0.1:{port}; root {work}/files; }} }}\n")
    server = subprocess.Popen(["nginx", "-c", f"{work}/nginx.conf", "-p", work], stderr=subprocess.DEVNULL)
    return server, f"http://127.0.0.1:{port}"


def start_s3(work):
    server = subprocess.Popen([sys.executable, f"{ROOT}/tests/support/remote_server.py", f"{work}/files",
                               f"{work}/port", f"{work}/log"])
    while not os.path.exists(f"{work}/port") or not open(f"{work}/port").read():
        time.sleep(0.05)
    return server, f"http://127.0.0.1:{open(f'{work}/port').read().strip()}"


def link(address, names):
    """Seconds of curl, eight files at a time."""
    words = ["curl", "-sf", "--parallel", "--parallel-max", "8"]
    for name in names:
        words += ["-o", "/dev/null", f"{address}/bucket/{name}"]
    return run(words)[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("banyan")
    parser.add_argument("folder")
    parser.add_argument("--copies", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    servers = []
    with tempfile.TemporaryDirectory() as work:
        try:
            measure(a, work, servers)
        finally:
            for server in servers:
                server.terminate()
                server.wait()


def measure(a, work, servers):
    os.makedirs(f"{work}/files/bucket")
    run([a.banyan, "pack", "--images", a.folder, "--out", f"{work}/packed", "--shard-mib", "4096"])
    shard = [f for f in os.listdir(f"{work}/packed") if f.endswith(".tar")][0]
    names = [f"shard-{i:03}.tar" for i in range(a.copies)]
    for name in names:
        shutil.copy(f"{work}/packed/{shard}", f"{work}/files/bucket/{name}")
    mib = sum(os.path.getsize(f"{work}/files/bucket/{n}") for n in names) / 2**20
    samples = a.copies * sum(len(files) for _, _, files in os.walk(a.folder))
    nginx, http = start_nginx(work)
    servers.append(nginx)
    store, server = start_s3(work)
    servers.append(store)
    env = dict(os.environ, **S3, AWS_ENDPOINT_URL=f"{server}/s3")
    places = {"local": f"{work}/files/bucket", "http": f"{http}/bucket", "s3": "s3://bucket"}
    with open(f"{work}/loader.yaml", "w") as out:
        out.write(f"name: read\ntask: {{kind: classify}}\n"
                  f"model: {{kind: resnet, image_height: {SIDE}, image_width: {SIDE}}}\n"
                  f"data: {{resize: crop, decode: use, transforms: [resized_crop], threads: {a.threads}}}\n"
                  f"train: {{steps: 10, batch: {BATCH}}}\n")
    rounds = []
    for _ in range(a.rounds):
        found = {"link_http": mib / link(http, names), "link_s3": mib / link(server, names)}
        for name, place in places.items():
            images = "[" + ", ".join(f"{place}/{n}" for n in names) + "]"
            cache = f"{work}/cache-{name}"
            shutil.rmtree(cache, ignore_errors=True)
            text, seconds, cpu = run([a.banyan, "bench", "loader", f"{work}/loader.yaml", "--json", "--warm-up", "4",
                                      "--batches", str(samples // BATCH - 5), "--set", f"data.images={images}", "--set",
                                      f"data.remote_cache={cache}"], env=env)
            found[name] = json.loads(text)["samples_per_s"]
            found[name + "_seconds"], found[name + "_cpu_seconds"] = seconds, cpu
            shutil.rmtree(cache, ignore_errors=True)
            shutil.rmtree(f"{work}/out", ignore_errors=True)
            shards = [f"{place}/{n}" for n in names]
            _, seconds, cpu = run([a.banyan, "pack", "--images", *shards, "--out", f"{work}/out", "--remote-cache",
                                   cache], env=env)
            found[name + "_pack_mib_per_s"], found[name + "_pack_cpu_seconds"] = mib / seconds, cpu
            shutil.rmtree(cache, ignore_errors=True)
        rounds.append(found)
        print(json.dumps({k: round(v, 3) for k, v in found.items()}), flush=True)
    median = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
    print(json.dumps({"mib": round(mib, 1), "samples": samples, "threads": a.threads,
                      **{k: round(v, 3) for k, v in median.items()},
                      "http_of_local": round(median["http"] / median["local"], 3),
                      "s3_of_local": round(median["s3"] / median["local"], 3)}))


if __name__ == "__main__":
    main()
