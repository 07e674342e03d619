#!/usr/bin/env python3
"""Models of the nodes of a graph in PyTorch Geometric, with the recipes of its own examples for citation graphs (gcn.py, gat.py):
full batches, Adam with L2 decay, features that add up to 1, the test at the best epoch of validation. Prints one JSON line.

    torch_graphs.py cora.npz gcn --train train.txt --valid valid.txt --test test.txt --epochs 200 --seed 1
    torch_graphs.py cora.npz sage --per-class 20 --epochs 200 --no-evaluation       only the steps, for their time

    torch_graphs.py PACKED sage --epochs 8 --no-evaluation        of a directory of `banyan pack --graph`, whose edges are a
                                                                  sparse matrix, so that no message of an edge is stored

It needs torch_geometric (PyPI) beside PyTorch; graphs.py runs it.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import to_undirected

RECIPES = {
    "gcn": dict(width=16, dropout=0.5, lr=0.01, decay=(5e-4, 0.0), activation=F.relu),
    "sage": dict(width=64, dropout=0.5, lr=0.01, decay=(5e-4, 5e-4), activation=F.relu),
    "gat": dict(width=8, heads=8, dropout=0.6, lr=0.005, decay=(5e-4, 5e-4), activation=F.elu),
}


class Network(nn.Module):
    def __init__(self, kind, features, classes):
        super().__init__()
        r = RECIPES[kind]
        self.dropout, self.activation = r["dropout"], r["activation"]
        if kind == "gcn":
            layers = GCNConv(features, r["width"], cached=True), GCNConv(r["width"], classes, cached=True)
        elif kind == "sage":
            layers = SAGEConv(features, r["width"]), SAGEConv(r["width"], classes)
        else:
            layers = (GATConv(features, r["width"], r["heads"], dropout=r["dropout"]),
                      GATConv(r["width"] * r["heads"], classes, heads=1, concat=False, dropout=r["dropout"]))
        self.convs = nn.ModuleList(layers)

    def forward(self, x, edges):
        x = self.convs[0](F.dropout(x, self.dropout, self.training), edges)
        return self.convs[1](F.dropout(self.activation(x), self.dropout, self.training), edges)


def read_graph(path):
    """Features whose rows add up to 1, labels, and edges in both directions without loops, each once."""
    f = np.load(path)
    rows = np.repeat(np.arange(len(f["adj_indptr"]) - 1), np.diff(f["adj_indptr"]))
    pairs = np.stack((rows, f["adj_indices"]))
    edges = to_undirected(torch.from_numpy(pairs[:, pairs[0] != pairs[1]]).long(), num_nodes=len(f["labels"]))
    x = np.zeros(f["attr_shape"], np.float32)
    x[np.repeat(np.arange(len(x)), np.diff(f["attr_indptr"])), f["attr_indices"]] = f["attr_data"]
    x /= np.maximum(np.abs(x).sum(1, keepdims=True), 1e-30)
    return torch.from_numpy(x), torch.from_numpy(f["labels"].astype(np.int64)), edges


def read_packed(directory):
    """Features, labels, edges as a transposed sparse matrix, and the nodes to train on."""
    read = lambda name: np.load(os.path.join(directory, name + ".npy"))
    offsets, sources = read("offsets").astype(np.int64), read("sources").astype(np.int64)
    x = torch.from_numpy(read("features").astype(np.float32))
    edges = torch.sparse_csr_tensor(torch.from_numpy(offsets), torch.from_numpy(sources), torch.ones(len(sources)),
                                    size=(len(x), len(x)))
    return x, torch.from_numpy(read("labels").astype(np.int64)), edges, torch.from_numpy(read("train").astype(np.int64))


def read_nodes(path):
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, ndmin=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("kind", choices=RECIPES)
    parser.add_argument("--train", help="files of nodes")
    parser.add_argument("--valid")
    parser.add_argument("--test")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-evaluation", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    if os.path.isdir(a.graph):
        x, y, edges, train = read_packed(a.graph)
    else:
        x, y, edges = read_graph(a.graph)
        train, valid, test = (read_nodes(path) for path in (a.train, a.valid, a.test))
    model = Network(a.kind, x.shape[1], int(y.max()) + 1)
    r = RECIPES[a.kind]
    optimizer = torch.optim.Adam([dict(params=conv.parameters(), weight_decay=decay)
                                  for conv, decay in zip(model.convs, r["decay"])], lr=r["lr"])
    best = found = 0.0
    first = min(3, a.epochs - 1)  # epochs before the clock starts
    for epoch in range(a.epochs):
        if epoch == first:
            began, used = time.perf_counter(), time.process_time()
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], y[train]).backward()
        optimizer.step()
        if not a.no_evaluation:
            with torch.no_grad():
                model.eval()
                said = model(x, edges).argmax(1)
                if (accuracy := (said[valid] == y[valid]).float().mean().item()) > best:
                    best, found = accuracy, (said[test] == y[test]).float().mean().item()
    counted = a.epochs - first
    print(json.dumps(dict(kind=a.kind, accuracy=found, valid_accuracy=best, threads=a.threads,
                          epoch_ms=(time.perf_counter() - began) / counted * 1e3,
                          epoch_cpu_ms=(time.process_time() - used) / counted * 1e3,
                          torch=torch.__version__, torch_geometric=torch_geometric.__version__)))


if __name__ == "__main__":
    main()
