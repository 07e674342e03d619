#!/usr/bin/env python3
"""Runs banyan and llama.cpp on the same weights in turn and prints medians and ratios.

    bench/llama_engine.py MODEL --build DIR [--parts together,alone,server] [--rounds 2] [--sessions 1,4,16,64]

MODEL is a run or a directory of a GPT-2 124M with its tokenizer; what it has learned does not matter for the times:

    banyan train examples/gpt2_124m.yaml --set data.text=corpus.txt --set train.steps=1 --set train.batch=1

llama.cpp gets it from `banyan export`, in bf16, q8_0 and q4_0; the files are kept in build/gguf. DIR is a build of
llama.cpp (its source is also in the archive of llama-cpp-python on PyPI, in vendor/):

    cmake -S TREE -B DIR -G Ninja -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release
    cmake --build DIR --target llama-batched-bench llama-bench llama-server

together  `bench engine` and llama-batched-bench, bf16: decoding is compared with S_TG, prompts with S_PP; both sides
          take in the prompts of all sequences, 512 tokens each and none of them shared, then decode all together
alone     `bench generate` and llama-bench: one sequence in bf16, int8 with q8_0, int4 with q4_0, 128 tokens behind
          a prompt of 512
server    `serve` and llama-server, bf16, 64 places each; `bench serve` is the client of both: 64 streams at a time,
          128 requests of 128 + 64 tokens

Of times (TTFT), a ratio above 1 says that banyan's is shorter. The last line is one JSON object.
"""
import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT, TOKENS, ALONE_TOKENS = 512, 64, 128
STREAMS, REQUESTS, SERVED_PROMPT, SERVED_TOKENS = 64, 128, 128, 64
TWINS = {"bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
START_SECONDS = 120


def gguf(a, dtype):
    """The model as a file for llama.cpp, made anew when the model has changed."""
    files = [os.path.join(at, name) for at, _, names in os.walk(a.model) for name in names]
    state = sorted((f, os.stat(f).st_mtime_ns) for f in files if f.endswith(".safetensors"))
    key = hashlib.sha256(repr((os.path.abspath(a.model), state)).encode()).hexdigest()[:12]
    path = os.path.join(ROOT, "build", "gguf", f"{key}-{dtype}.gguf")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([a.banyan, "export", a.model, "--format", "gguf", "--dtype", dtype, "--output", path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def peer(a, name):
    return os.path.join(a.build, "bin", name)


def run(command):
    """What a command prints, from its first line of JSON on."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(lines) if line[:1] in ("{", "[")), None)
    if done.returncode or begin is None:
        sys.stderr.write(done.stderr[-2000:])
        sys.exit(f"llama_engine: exit status {done.returncode}: {' '.join(command)}")
    value, _ = json.JSONDecoder().raw_decode("\n".join(lines[begin:]))
    return value


def banyan(a, words):
    return run([a.banyan, "bench", *words, a.model, "--threads", str(a.threads), "--json"])


def together(a):
    pairs = {}
    for sessions in (int(word) for word in a.sessions.split(",")):
        ours = banyan(a, ["engine", "--sessions", str(sessions), "--requests", str(sessions), "--prompt-tokens",
                          str(PROMPT), "--tokens", str(TOKENS), "--precision", "bf16"])
        theirs = run([peer(a, "llama-batched-bench"), "-m", gguf(a, "bf16"), "-npp", str(PROMPT), "-ntg", str(TOKENS),
                      "-npl", str(sessions), "-c", str(sessions * (PROMPT + TOKENS)), "-b", "2048", "-ub", "512",
                      "-t", str(a.threads), "-tb", str(a.threads), "--output-format", "jsonl"])
        pairs[f"prompts of {sessions}, tokens/s"] = ours["prompts"]["tokens_per_s"], theirs["speed_pp"]
        pairs[f"decoding of {sessions}, tokens/s"] = ours["decode"]["tokens_per_s"], theirs["speed_tg"]
    return pairs


def alone(a):
    pairs = {}
    for precision, twin in TWINS.items():
        ours = banyan(a, ["generate", "--precision", precision, "--prompt-tokens", str(PROMPT), "--tokens",
                          str(ALONE_TOKENS)])
        theirs = run([peer(a, "llama-bench"), "-m", gguf(a, twin), "-p", "0", "-n", str(ALONE_TOKENS), "-d",
                      str(PROMPT), "-t", str(a.threads), "-r", "1", "-o", "json"])
        pairs[f"one sequence, {precision}, tokens/s"] = ours["decode_tokens_per_s"], theirs[0]["avg_ts"]
    return pairs


def load_on(a, command, url, health, log):
    """What `bench serve` says of a server, which is started and ended."""
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(url + health, timeout=5).close()
                break
            except (OSError, urllib.error.URLError):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    sys.exit(f"llama_engine: {' '.join(command)} does not answer:\n{log.read()[-2000:]}")
                time.sleep(0.1)
        return run([a.banyan, "bench", "serve", url, "--model", "model", "--concurrency", str(STREAMS), "--requests",
                    str(REQUESTS), "--prompt-tokens", str(SERVED_PROMPT), "--tokens", str(SERVED_TOKENS), "--vocab",
                    "50000", "--json"])
    finally:
        process.terminate()
        process.wait()


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()


def server(a):
    context = SERVED_PROMPT + SERVED_TOKENS
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as log:
        host, port = free_address()
        ours = load_on(a, [a.banyan, "serve", a.model, "--name", "model", "--listen", f"{host}:{port}", "--dir",
                           directory, "--sessions", str(STREAMS), "--context", str(context), "--precision", "bf16",
                           "--threads", str(a.threads)], f"http://{host}:{port}", "/health/ready", log)
    with tempfile.TemporaryFile("w+") as log:
        host, port = free_address()
        theirs = load_on(a, [peer(a, "llama-server"), "-m", gguf(a, "bf16"), "--host", host, "--port", str(port),
                             "-np", str(STREAMS), "-c", str(STREAMS * (context + 64)), "-b", "2048", "-ub", "512", "-t",
                             str(a.threads), "-tb", str(a.threads)], f"http://{host}:{port}", "/health", log)
    pairs = {"server, tokens/s": (ours["tokens_per_s"], theirs["tokens_per_s"])}
    for share in ("p50", "p99"):
        pairs[f"server, TTFT {share}, ms"] = 1e3 * ours["ttft"][share], 1e3 * theirs["ttft"][share]
    pairs["server, TPOT p50, ms"] = 1e3 * ours["tpot"]["p50"], 1e3 * theirs["tpot"]["p50"]
    return pairs


PARTS = {"together": together, "alone": alone, "server": server}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--build", required=True)
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--banyan", default=os.path.join(ROOT, "build", "release", "banyan"))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--sessions", default="1,4,16,64")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    a = p.parse_args()
    rounds = {}
    for _ in range(a.rounds):
        for part in a.parts.split(","):
            for name, pair in PARTS[part](a).items():
                rounds.setdefault(name, []).append(pair)
    summary = {}
    print(f"{'':32} {'banyan':>9} {'llama.cpp':>9} {'ratio':>6}")
    for name, pairs in rounds.items():
        ours, theirs = (statistics.median(side) for side in zip(*pairs))
        # Of neighbours in time.
        ratio = statistics.median(y / x if name.endswith("ms") else x / y for x, y in pairs)
        summary[name] = {"banyan": round(ours, 1), "llama_cpp": round(theirs, 1), "ratio": round(ratio, 3)}
        print(f"{name:32} {ours:9.1f} {theirs:9.1f} {ratio:6.2f}")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
