"""Writes a graph to measure with: a text of edges, features and classes of the nodes, and lists of those to train on
and held out.

    build/venv/bin/python bench/graph_data.py DIR [--nodes N] [--edges N] [--features N] [--classes N]
    banyan pack --graph DIR/edges.csv --features DIR/features.npy --labels DIR/labels.npy --train-list DIR/train.npy \
        --valid-list DIR/valid.npy --store f16 --out DIR/packed

Nodes of a class know each other better than others, and some nodes have many more edges than others: the node that an
edge ends in is number N u^1.5, u uniform. 1 node in 10 is trained on, 1 in 100 held out. Needs numpy.
"""
import argparse
import pathlib

import numpy as np

CHUNK = 1 << 21


def digits(numbers, width):
    """ASCII digits of numbers, with zeros in front: u8 [n, width]."""
    out = np.empty((len(numbers), width), np.uint8)
    for i in range(width - 1, -1, -1):
        numbers, digit = np.divmod(numbers, 10)
        out[:, i] = digit + ord("0")
    return out


def write_edges(path, nodes, edges, classes, rng):
    width = len(str(nodes - 1))
    with open(path, "wb") as f:
        f.write(b"source,target\n")
        for begin in range(0, edges, CHUNK):
            count = min(CHUNK, edges - begin)
            target = np.minimum((nodes * rng.random(count) ** 1.5).astype(np.int64), nodes - 1)
            source = rng.integers(0, nodes, count)
            near = source // classes * classes + target % classes
            source = np.where((rng.random(count) < 0.7) & (near < nodes), near, source)
            line = np.empty((count, 2 * width + 2), np.uint8)
            line[:, :width] = digits(source, width)
            line[:, width] = ord(",")
            line[:, width + 1:-1] = digits(target, width)
            line[:, -1] = ord("\n")
            f.write(line.tobytes())


def write_features(path, nodes, features, classes, rng):
    means = rng.normal(0, 0.3, (classes, features)).astype(np.float32)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (nodes, features))
    for begin in range(0, nodes, CHUNK // features):
        ids = np.arange(begin, min(begin + CHUNK // features, nodes))
        out[ids] = means[ids % classes] + rng.standard_normal((len(ids), features), np.float32)
    out.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=16)
    a = parser.parse_args()
    a.directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    write_edges(a.directory / "edges.csv", a.nodes, a.edges, a.classes, rng)
    write_features(a.directory / "features.npy", a.nodes, a.features, a.classes, rng)
    np.save(a.directory / "labels.npy", (np.arange(a.nodes) % a.classes).astype(np.int32))
    order = rng.permutation(a.nodes)
    np.save(a.directory / "train.npy", order[: a.nodes // 10])
    np.save(a.directory / "valid.npy", order[a.nodes // 10 : a.nodes // 10 + a.nodes // 100])


if __name__ == "__main__":
    main()
