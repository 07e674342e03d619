#!/usr/bin/env python3
"""The twin of `banyan bench generate` in PyTorch: prefill of a prompt, then greedy decoding of one sequence with a
preallocated KV cache. Prints one JSON line.

    torch_generate.py --preset gpt2_124m --dtype bf16 --prompt 512 --tokens 128
"""
import argparse
import json
import statistics
import time

import torch

import torch_models


def read_bandwidth():
    """Bytes a second of a sum over 1 GiB."""
    data = torch.ones(1 << 28)
    best = 0.0
    for _ in range(5):
        begin = time.perf_counter()
        data.sum()
        best = max(best, 4 * data.numel() / (time.perf_counter() - begin))
    return best


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description="generation speed of PyTorch")
    torch_models.add_model_arguments(parser)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens to generate")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = torch_models.model_config(arguments)
    if arguments.prompt + arguments.tokens > config["context"]:
        parser.error(f"--prompt + --tokens exceeds the context, {config['context']}")

    torch.manual_seed(1337)
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float32
    model = torch_models.Model(config).to(dtype).eval()
    shape = (1, config["kv_heads"], config["context"], config["width"] // config["heads"])
    caches = [(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in model.blocks]
    run = torch.compile(model, dynamic=True) if arguments.compile else model
    prompt = torch.randint(config["vocab"], (1, arguments.prompt))

    def generate():
        begin = time.perf_counter()
        token = run(prompt, None, caches, 0).argmax(-1, keepdim=True)
        middle = time.perf_counter()
        for i in range(arguments.tokens):
            token = run(token, None, caches, arguments.prompt + i).argmax(-1, keepdim=True)
        return middle - begin, time.perf_counter() - middle

    generate()
    start_ms = torch_models.since_process_start_ms()
    times = [generate() for _ in range(arguments.repeats)]
    peak_rss = torch_models.peak_rss_bytes()
    prefill = arguments.prompt / statistics.median(t[0] for t in times)
    decode = arguments.tokens / statistics.median(t[1] for t in times)
    # A token reads all weights but the looked-up tables, and the keys and values so far.
    weights = torch_models.flops_per_token(model, 0) // 6
    keys = 2 * config["layers"] * config["kv_heads"] * shape[-1] * (arguments.prompt + arguments.tokens / 2)
    bytes_per_value = 2 if arguments.dtype == "bf16" else 4
    bandwidth = read_bandwidth()
    print(json.dumps({
        "prefill_tokens_per_s": round(prefill, 1), "decode_tokens_per_s": round(decode, 2),
        "bandwidth_share": round(decode * (weights + keys) * bytes_per_value / bandwidth, 4),
        "read_gb_per_s": round(bandwidth / 1e9, 1), "peak_rss_bytes": peak_rss, "start_ms": round(start_ms),
        "prompt": arguments.prompt, "tokens": arguments.tokens, "dtype": arguments.dtype,
        "compile": arguments.compile, "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
