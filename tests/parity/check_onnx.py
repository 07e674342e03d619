#!/usr/bin/env python3
"""ONNX graphs that banyan wrote, run by onnxruntime.

    check_onnx.py logits FILE.onnx LOGITS [BOUND]   onnx.checker accepts the file, and the logits of the tokens in LOGITS,
                                                    which `banyan eval --logits-out` wrote, differ by at most BOUND
                                                    (1e-4): all tokens at once, and where there are past keys and
                                                    values also in pieces; of one sequence alone too
    check_onnx.py greedy FILE.onnx LOGITS COUNT OUT the first 4 tokens of LOGITS and their most probable continuation,
                                                    COUNT tokens through past keys and values, as tokens in OUT
    check_onnx.py predicts FILE.onnx DATA LINES     what `banyan predict` says of DATA (images as npy, a table as CSV) in
                                                    LINES: classes, and probabilities and values within 1e-4 (values: of
                                                    the target's deviation), for batches of all examples, 7 and 1
    check_onnx.py diffusion GOLDEN DIR              the model of golden/DIR.safetensors as a directory in Hugging Face form
    check_onnx.py denoises FILE.onnx GOLDEN         what the graph predicts is what PyTorch says in the golden file, for all
                                                    of its images and each alone
    check_onnx.py forecasts FILE.onnx TABLE AHEAD   the rows that `banyan predict --csv` put behind each series (column shop)
                                                    of TABLE in AHEAD, within 1e-4 of a channel's deviation, for batches
                                                    of all series and of one
    check_onnx.py nodes FILE.onnx EDGES FEATURES LINES
                                                    the outputs of all nodes that `banyan predict --yields output` said in
                                                    LINES, within 1e-4; with room for further nodes and edges, too
    check_onnx.py graphs FILE.onnx GRAPHS LINES     what `banyan predict` says in LINES of all small graphs of an npz file, within
                                                    1e-4: all at once, with room for further ones, and each alone
    check_onnx.py gine CHECKPOINT GRAPHS LINES      what a model of one layer `gin` that reads features of edges says of
                                                    each graph, computed here by the equation, within 1e-4
    check_onnx.py links FILE.onnx EDGES FEATURES LINES
                                                    the scores of pairs that `banyan predict` says in LINES, within 1e-4
    check_onnx.py follows LOGITS                    each token behind the 4th is the most probable one by these logits
    check_onnx.py each <LINES                       such a command in each line: libraries are loaded once for all of them
"""
import csv
import glob
import json
import os
import struct
import sys

import numpy as np
import onnx
import onnxruntime

from check_llama_cpp import read_tensors


def fail(message):
    print(f"check_onnx: {message}", file=sys.stderr)
    sys.exit(1)


class Model:
    def __init__(self, path):
        onnx.checker.check_model(path, full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.past = [i for i in self.session.get_inputs() if i.name.startswith("past_key_values.")]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def empty(self, batch):
        return {i.name: np.zeros((batch, i.shape[1], 0, i.shape[3]), np.float32) for i in self.past}

    def run(self, tokens, past):
        out = dict(zip(self.outputs, self.session.run(None, {"input_ids": tokens.astype(np.int64), **past})))
        return out["logits"], {n: out[n.replace("past_key_values", "present")] for n in past}


def check_logits(path, file, bound=1e-4):
    ours = read_tensors(file)
    tokens, expected = ours["tokens"], ours["logits"]
    model = Model(path)
    distance = 0.0
    for cuts in ([], [1], [3, 4, 9]) if model.past else ([],):
        past, rows = model.empty(len(tokens)), []
        for piece in np.split(tokens, cuts, 1):
            logits, past = model.run(piece, past)
            rows.append(logits)
        distance = max(distance, float(np.abs(np.concatenate(rows, 1) - expected).max()))
    alone, _ = model.run(tokens[:1, :7], model.empty(1))
    distance = max(distance, float(np.abs(alone - expected[:1, :7]).max()))
    print(f"{path}: largest difference of logits {distance:.2e} (up to {np.abs(expected).max():.1f}), limit {float(bound):.0e}")
    if not distance <= float(bound):
        fail(f"{path}: logits differ by {distance:.2e}")


def greedy(path, file, count, out):
    model = Model(path)
    fed = read_tensors(file)["tokens"][:1, :4]
    past, ids = model.empty(1), [int(i) for i in fed[0]]
    for _ in range(int(count)):
        logits, past = model.run(fed, past)
        ids.append(int(logits[0, -1].argmax()))
        fed = np.array([[ids[-1]]])
    header = json.dumps({"tokens": {"dtype": "I32", "shape": [1, len(ids)], "data_offsets": [0, 4 * len(ids)]}}).encode()
    with open(out, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + np.array(ids, np.int32).tobytes())


def follows(file):
    ours = read_tensors(file)
    best, tokens = ours["logits"][0].argmax(-1), ours["tokens"][0]
    wrong = [i for i in range(3, len(tokens) - 1) if best[i] != tokens[i + 1]]
    if wrong:
        fail(f"{file}: token {wrong[0] + 1} is {tokens[wrong[0] + 1]}, ours {best[wrong[0]]}")
    print(f"{len(tokens) - 4} equal tokens")


def read_table(path, encoding, context=0):
    """The rows of a CSV file as the graph's inputs: numbers as they are, NaN where missing; ids of categories. `context`:
    windows of so many rows of each shop, the last of which ends with it."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    feeds = {}
    if context:
        shops = {}
        for r in rows:
            shops.setdefault(r["shop"], []).append([float(r[c["name"]] or "nan") for c in encoding["numbers"]])
        return {"series": np.array([s[i:i + context] for s in shops.values()
                                    for i in range(len(s) % context, len(s) - context + 1, context)], np.float64)}
    if encoding["numbers"]:
        feeds["numbers"] = np.array([[float(r[c["name"]] or "nan") for c in encoding["numbers"]] for r in rows], np.float64)
    if encoding["categories"]:
        feeds["categories"] = np.array([[c["values"].index(r[c["name"]]) + 1 if r[c["name"]] in c["values"] else 0
                                         for c in encoding["categories"]] for r in rows], np.int64)
    return feeds


def predicts(path, data, lines):
    model = Model(path)
    about = model.session.get_modelmeta().custom_metadata_map
    encoding = json.loads(about.get("banyan.encoding", "null"))
    reads = model.session.get_inputs()[0]
    context = reads.shape[1] if reads.name == "series" else 0
    feeds = {"images": np.load(data)} if encoding is None else read_table(data, encoding, context)
    with open(lines) as file:
        ours = [json.loads(line) for line in file]
    count = len(ours)
    distance = 0.0
    for size in (count, 7, 1):
        pieces = [model.session.run(None, {n: f[i:i + size] for n, f in feeds.items()})[0] for i in range(0, count, size)]
        out = np.concatenate(pieces).astype(np.float64)
        if model.outputs == ["values"]:
            targets = encoding.get("targets") or [encoding["target"]]
            names = [t["name"] for t in targets] if len(targets) > 1 else ["value"]
            theirs = out / [t["deviation"] for t in targets]
            expected = np.array([[o[n] for n in names] for o in ours]) / [t["deviation"] for t in targets]
        elif "output" in ours[0]:
            theirs, expected = out.reshape(count, -1), np.array([o["output"] for o in ours])
        else:
            theirs = np.exp(out - out.max(1, keepdims=True))
            theirs = (theirs / theirs.sum(1, keepdims=True)).max(1)
            expected = np.array([o["probability"] for o in ours])
            labels = json.loads(about["banyan.id2label"])
            for i, o in enumerate(ours):
                if o["class"] != out[i].argmax() or o["label"] != labels[str(o["class"])]:
                    fail(f"{path}: example {i} is {out[i].argmax()}, ours {o}")
        distance = max(distance, float(np.abs(theirs - expected).max()))
    print(f"{path}: {count} examples, largest difference {distance:.2e}, spread {theirs.std():.2e}")
    if not distance <= 1e-4 or not theirs.std() > 1e-3:
        fail(f"{path}: predictions differ by {distance:.2e}")


DENOISERS = {
    "dit": dict(architectures=["DiT"], model_type="dit", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                intermediate_size=64, patch_size=2, num_channels=2, layer_norm_eps=1e-6),
    "unet2d": dict(architectures=["UNet2DModel"], model_type="unet2d", in_channels=2, block_out_channels=[8, 16],
                   attended_levels=[2], layers_per_block=1, attention_head_dim=4, norm_num_groups=2, norm_eps=1e-5)}


def diffusion(golden, directory):
    weights = {n[8:]: t for n, t in read_tensors(golden).items() if n.startswith("weights.")}
    header, blobs, at = {}, [], 0
    for name, tensor in weights.items():
        blobs.append(tensor.astype(np.float32).tobytes())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    os.makedirs(directory)
    with open(directory + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    config = dict(DENOISERS[directory], image_size=[8, 12], id2label={str(i): f"LABEL_{i}" for i in range(3)})
    for name, content in (("config", config), ("preprocessor_config", dict(image_mean=[0.5, 0.5], image_std=[0.5, 0.5]))):
        with open(f"{directory}/{name}.json", "w") as f:
            json.dump(content, f)


def denoises(path, golden):
    model, ours = Model(path), read_tensors(golden)
    feeds = {"images": ours["images"], "timesteps": ours["timesteps"].astype(np.int64), "classes": ours["classes"].astype(np.int64)}
    distance = 0.0
    for size in (3, 1):
        pieces = [model.session.run(["predicted"], {n: f[i:i + size] for n, f in feeds.items()})[0] for i in range(0, 3, size)]
        distance = max(distance, float(np.abs(np.concatenate(pieces) - ours["logits"]).max()))
    print(f"{path}: largest difference {distance:.2e}, spread {ours['logits'].std():.2e}")
    if not distance <= 1e-4:
        fail(f"{path}: predictions differ by {distance:.2e}")


def forecasts(path, table, ahead):
    model = Model(path)
    scales = json.loads(model.session.get_modelmeta().custom_metadata_map["banyan.series"])["channels"]
    context = model.session.get_inputs()[0].shape[1]

    def by_shop(path):
        shops = {}
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                shops.setdefault(row["shop"], []).append([float(row[s["name"]]) for s in scales])
        return shops

    read, ours = by_shop(table), by_shop(ahead)
    windows = np.array([rows[-context:] for rows in read.values()])
    expected = np.array([ours[shop] for shop in read])
    distance = 0.0
    for size in (len(windows), 1):
        out = np.concatenate([model.session.run(None, {"series": windows[i:i + size]})[0]
                              for i in range(0, len(windows), size)])
        distance = max(distance, float(np.abs((out - expected) / [s["deviation"] for s in scales]).max()))
    print(f"{path}: {len(windows)} windows, largest difference {distance:.2e}, spread {expected.std():.2e}")
    if out.shape != expected.shape or not distance <= 1e-4 or not expected.std() > 1e-3:
        fail(f"{path}: forecasts differ by {distance:.2e}")


def in_rows(pairs, count):
    """Edges [n, 2] in both directions, without loops, as a matrix in rows: offsets, sources."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]])[:, ::-1], axis=0)  # by where they end, then where they come from
    ends = np.bincount(pairs[:, 0], minlength=count)
    return np.concatenate([[0], np.cumsum(ends)]).astype(np.int64), pairs[:, 1].astype(np.int64)


def nodes(path, edges, features, lines):
    model, x = Model(path), np.load(features)
    offsets, sources = in_rows(np.loadtxt(edges, np.int64, delimiter=","), len(x))
    expected = np.array([json.loads(line)["output"] for line in open(lines)])
    if json.loads(model.session.get_modelmeta().custom_metadata_map["banyan.id2label"])["1"] != "b":
        fail(f"{path}: the names of classes")
    wide = {"features": np.concatenate([x, np.ones((9, x.shape[1]), np.float32)]),
            "offsets": np.concatenate([offsets, np.full(9, offsets[-1])]),
            "sources": np.concatenate([sources, np.full(17, -1)])}
    exact = {"features": x, "offsets": offsets, "sources": sources}
    distance = 0.0
    for feeds in (exact, wide):
        for wanted in (np.arange(len(x)), np.array([len(x) - 1, 3])):
            out = model.session.run(["logits"], {**feeds, "nodes": wanted})[0]
            distance = max(distance, float(np.abs(out - expected[wanted]).max()))
    print(f"{path}: {len(x)} nodes, largest difference {distance:.2e}, spread {expected.std():.2e}")
    if not distance <= 1e-4 or not expected.std() > 1e-2 or not (np.diff(offsets) == 0).any():
        fail(f"{path}: logits differ by {distance:.2e}")


def links(path, edges, features, lines):
    model, x = Model(path), np.load(features)
    offsets, sources = in_rows(np.loadtxt(edges, np.int64, delimiter=","), len(x))
    ours = [json.loads(line) for line in open(lines)]
    pairs = np.array([[o["from"], o["to"]] for o in ours], np.int64)
    expected = np.array([o["score"] for o in ours])
    distance = 0.0
    for size in (len(pairs), 1):
        out = [model.session.run(["scores"], {"features": x, "offsets": offsets, "sources": sources, "pairs": pairs[i:i + size]})[0]
               for i in range(0, len(pairs), size)]
        distance = max(distance, float(np.abs(np.concatenate(out) - expected).max()))
    print(f"{path}: {len(pairs)} pairs, largest difference {distance:.2e}, spread {expected.std():.2e}")
    if not distance <= 1e-4 or not expected.std() > 1e-2:
        fail(f"{path}: scores differ by {distance:.2e}")


def features_of(data, begins, ends, graph, number):
    """Listed edges of a graph by numbers of nodes, with their features."""
    for k in range(ends[graph], ends[graph + 1]):
        yield tuple(number[data["edge_index"][:, k] + begins[graph]]), data["edge_feat"][k]


def gine(checkpoint, file, lines):
    data = np.load(file)
    w = {name: tensor.astype(np.float64) for path in glob.glob(checkpoint + "/model*.safetensors")
         for name, tensor in read_tensors(path).items()}
    begins = np.concatenate([[0], np.cumsum(data["num_node_list"])])
    ends = np.concatenate([[0], np.cumsum(data["num_edge_list"])])

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    distance = 0.0
    for g, line in enumerate(open(lines)):
        x = data["node_feat"][begins[g]:begins[g + 1]].astype(np.float64)
        edges = {}
        for back in (True, False):
            for (a, b), f in features_of(data, begins, ends, g, np.arange(begins[-1]) - begins[g]):
                if a != b:
                    edges[(b, a) if back else (a, b)] = f
        y = (1 + w["convs.0.eps"]) * x
        for (a, b), f in edges.items():
            y[b] += np.maximum(x[a] + linear(f.astype(np.float64), "convs.0.lin"), 0)
        y = linear(np.maximum(linear(y, "convs.0.nn.lins.0"), 0), "convs.0.nn.lins.1")
        out = linear(np.concatenate([y.sum(0), data["graph_feat"][g].astype(np.float64)]), "lin")
        said = json.loads(line)
        p = np.exp(out - out.max()) / np.exp(out - out.max()).sum()
        distance = max(distance, abs(p[said["class"]] - said["probability"]))
    print(f"{checkpoint}: {g + 1} graphs, largest difference {distance:.2e}")
    if not distance <= 1e-4 or g + 1 != len(data["num_node_list"]):
        fail(f"{checkpoint}: probabilities differ by {distance:.2e}")


def graphs(path, file, lines):
    model, data = Model(path), np.load(file)
    begins = np.concatenate([[0], np.cumsum(data["num_node_list"])])
    ends = np.concatenate([[0], np.cumsum(data["num_edge_list"])])
    ours = [json.loads(line) for line in open(lines)]
    numbers = model.outputs == ["values"]
    expected = np.array([o["value" if numbers else "probability"] for o in ours])
    scale = data["graph_label"].std() if numbers else 1.0

    def run(chosen, room):
        pairs = np.concatenate([data["edge_index"].T[ends[g]:ends[g + 1]] + begins[g] for g in chosen]).astype(np.int64)
        where = np.concatenate([np.arange(begins[g], begins[g + 1]) for g in chosen])
        number = np.zeros(begins[-1], np.int64)
        number[where] = np.arange(len(where))
        offsets, sources = in_rows(number[pairs], len(where))
        sizes = np.concatenate([[0], np.cumsum(data["num_node_list"][chosen])]).astype(np.int64)
        x = data["node_feat"][where].astype(np.float32)
        feeds = {"features": np.concatenate([x, np.ones((room, x.shape[1]), np.float32)]),
                 "offsets": np.concatenate([offsets, np.full(room, offsets[-1])]),
                 "sources": np.concatenate([sources, np.full(room, -1)]),
                 "graphs": np.concatenate([sizes, np.full(room, sizes[-1])])}
        if any(i.name == "edge_features" for i in model.session.get_inputs()):
            listed = {tuple(p): f for g in chosen for p, f in features_of(data, begins, ends, g, number)}
            ends_in = np.repeat(np.arange(len(where)), np.diff(offsets))
            e = np.array([listed[p] if p in listed else listed[p[::-1]] for p in zip(sources, ends_in)], np.float32)
            e = e.reshape(-1, data["edge_feat"].shape[1])
            feeds["edge_features"] = np.concatenate([e, np.ones((room, e.shape[1]), np.float32)])
        if any(i.name == "graph_features" for i in model.session.get_inputs()):
            whole = data["graph_feat"][chosen].astype(np.float32)
            feeds["graph_features"] = np.concatenate([whole, np.ones((room, whole.shape[1]), np.float32)])
        out = model.session.run(None, feeds)[0][:len(chosen)].astype(np.float64)
        if numbers:
            return out[:, 0]
        out = np.exp(out - out.max(1, keepdims=True))
        return (out / out.sum(1, keepdims=True))[np.arange(len(chosen)), [ours[g]["class"] for g in chosen]]

    every = np.arange(len(ours))
    distance = 0.0
    for said in (run(every, 0), run(every, 11), np.concatenate([run(every[g:g + 1], 0) for g in every])):
        distance = max(distance, float(np.abs(said - expected).max() / scale))
    print(f"{path}: {len(ours)} graphs, largest difference {distance:.2e}, spread {expected.std() / scale:.2e}")
    if len(ours) != len(data["num_node_list"]) or not distance <= 1e-4 or not expected.std() / scale > 1e-2:
        fail(f"{path}: predictions differ by {distance:.2e}")


def each():
    count = 0
    for line in sys.stdin:
        command, *arguments = line.split()
        COMMANDS[command](*arguments)
        count += 1
    print(f"{count} commands")


COMMANDS = {"logits": check_logits, "greedy": greedy, "follows": follows, "predicts": predicts, "diffusion": diffusion,
            "denoises": denoises, "forecasts": forecasts, "nodes": nodes, "links": links, "graphs": graphs, "gine": gine, "each": each}
if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
