"""Times PyTorch's loader of pictures: JPEG decode and random resized crop by torchvision, in worker processes.

usage: torch_loader.py FOLDER THREADS [--batch N] [--batches N] [--side N] [--decoder pillow|torchvision]

FOLDER has a folder of JPEGs for each class. THREADS 1 decodes in this process, N > 1 in N worker processes, which is how
PyTorch uses cores. Prints a line of JSON like `banyan bench loader --json`; processor time is that of all processes.
"""

import argparse
import json
import os
import resource
import time

import torch
import torchvision
from torchvision.transforms import v2


def read_tensor(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)


def used(before):
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime - before


def children():
    """Processor seconds of the worker processes that run now."""
    total = 0.0
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("threads", type=int)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--decoder", choices=("pillow", "torchvision"), default="pillow")
    a = parser.parse_args()
    torch.set_num_threads(1)
    tail = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    crop = v2.RandomResizedCrop(a.side, antialias=True)
    if a.decoder == "pillow":
        steps, reader = [crop, v2.ToImage()] + tail, torchvision.datasets.folder.default_loader
    else:
        steps, reader = [crop] + tail, read_tensor
    data = torchvision.datasets.ImageFolder(a.folder, v2.Compose(steps), loader=reader)
    workers = a.threads if a.threads > 1 else 0
    loader = torch.utils.data.DataLoader(data, a.batch, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=workers > 0)

    def batches():
        while True:
            yield from loader

    source = batches()
    for _ in range(a.warm_up):
        next(source)
    began, before, workers_before = time.time(), used(0.0), children()
    for _ in range(a.batches):
        next(source)
    seconds = time.time() - began
    cpu = used(before) + children() - workers_before
    samples = a.batches * a.batch
    print(json.dumps({"samples_per_s": samples / seconds, "samples_per_cpu_s": samples / cpu, "samples": samples,
                      "seconds": seconds, "cpu_seconds": cpu, "threads": a.threads, "batch": a.batch}))


if __name__ == "__main__":
    main()
