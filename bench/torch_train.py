#!/usr/bin/env python3
"""The twin of `banyan bench train` in PyTorch: full steps (forward, loss, backward, clipping, AdamW) on random
tokens. Prints one JSON line.

    torch_train.py --preset gpt2_124m --batch 4 --micro-batch 4 --dtype bf16 --compile --steps 10
    torch_train.py --preset gpt2_124m --batch 4 --ranks 2 --threads 1     # DistributedDataParallel over gloo
    torch_train.py --preset gpt2_1.5b --batch 1 --optimizer adafactor --recompute     # each block checkpointed
    torch_train.py --preset gpt2_124m --batch 16 --compile --device cuda
"""
import argparse
import contextlib
import inspect
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch

import torch_models


def start_ranks(ranks):
    """Runs this command as `ranks` processes; returns the exit status of the first that fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    processes = [subprocess.Popen([sys.executable] + sys.argv, env=dict(own, RANK=str(rank))) for rank in range(ranks)]
    return next((status for status in [process.wait() for process in processes] if status), 0)


def model_sync(model, waits):
    return model.no_sync() if waits else contextlib.nullcontext()


def make_optimizer(model, kind):
    """The optimizer, and whether it is a fused one."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    if kind == "adafactor":
        return torch.optim.Adafactor(groups, lr=1e-3), False
    options = dict(lr=6e-4, betas=(0.9, 0.95), eps=1e-8)
    if "fused" in inspect.signature(torch.optim.AdamW).parameters:
        try:
            return torch.optim.AdamW(groups, fused=True, **options), True
        except RuntimeError:  # before 2.4, fused is for GPUs only
            pass
    return torch.optim.AdamW(groups, **options), False


def main():
    parser = argparse.ArgumentParser(description="training speed of PyTorch")
    torch_models.add_model_arguments(parser)
    parser.add_argument("--batch", type=int, default=4, help="sequences a step")
    parser.add_argument("--micro-batch", type=int, help="sequences a forward pass; default: --batch")
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--optimizer", choices=("adamw", "adafactor"), default="adamw")
    parser.add_argument("--recompute", action="store_true", help="torch.utils.checkpoint around each block")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel processes of --threads threads each")
    arguments = parser.parse_args()
    if arguments.batch % arguments.ranks:
        parser.error(f"--ranks {arguments.ranks} does not divide --batch {arguments.batch}")
    if arguments.ranks > 1 and "RANK" not in os.environ:
        sys.exit(start_ranks(arguments.ranks))
    torch.set_num_threads(arguments.threads)
    share = arguments.batch // arguments.ranks  # sequences of this process
    micro = min(arguments.micro_batch or share, share)
    if share % micro:
        parser.error(f"--micro-batch {micro} does not divide the {share} sequences of a process")
    if arguments.compile and not hasattr(torch, "compile"):
        parser.error(f"PyTorch {torch.__version__} has no torch.compile")

    torch.manual_seed(1337)
    config = torch_models.model_config(arguments)
    device = torch.device(arguments.device)
    model = torch_models.Model(config).to(device)
    model.recompute = arguments.recompute
    optimizer, fused = make_optimizer(model, arguments.optimizer)
    step_model = model
    if arguments.ranks > 1:
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(1337 + torch.distributed.get_rank())
        step_model = torch.nn.parallel.DistributedDataParallel(model)
    if arguments.compile:
        step_model = torch.compile(step_model)

    def step():
        total = 0.0
        rounds = share // micro
        for i in range(rounds):
            tokens = torch.randint(config["vocab"], (micro, config["context"] + 1), device=device)
            waits = arguments.ranks > 1 and i < rounds - 1  # gradients are exchanged with the last micro-batch
            with model_sync(step_model, waits):
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=arguments.dtype == "bf16"):
                    loss = step_model(tokens[:, :-1], tokens[:, 1:].contiguous()) * (micro / share)
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return total

    times, start_ms, loss = [], None, None
    for i in range(arguments.warmup + arguments.steps):
        begin = time.perf_counter()
        loss = step()
        if start_ms is None:
            start_ms = torch_models.since_process_start_ms()
        if i >= arguments.warmup:
            times.append(time.perf_counter() - begin)
    peak_rss = torch_models.peak_rss_bytes()
    if arguments.ranks > 1:
        rank = torch.distributed.get_rank()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        if rank > 0:
            return

    median = statistics.median(times)
    rate = arguments.batch * config["context"] / median
    peak = arguments.ranks * torch_models.peak_gflops(
        torch.bfloat16 if arguments.dtype == "bf16" else torch.float32, device)
    print(json.dumps({
        "tokens_per_s": round(rate, 1), "step_ms": round(1e3 * median, 2),
        "step_ms_min": round(1e3 * min(times), 2), "step_ms_max": round(1e3 * max(times), 2),
        "mfu": round(rate * torch_models.flops_per_token(model, 6) / peak / 1e9, 4),
        "mfu_12": round(rate * torch_models.flops_per_token(model, 12) / peak / 1e9, 4),
        "peak_gflops": round(peak, 1), "peak_rss_bytes": peak_rss,
        "device": arguments.device,
        "device_bytes": torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None, "start_ms": round(start_ms),
        "loss": round(loss, 4), "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": arguments.dtype, "compile": arguments.compile, "fused_adamw": fused, "optimizer": arguments.optimizer, "recompute": arguments.recompute,
        "threads": torch.get_num_threads(), "ranks": arguments.ranks, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
