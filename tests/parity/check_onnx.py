#!/usr/bin/env python3
"""ONNX graphs that banyan wrote, run by onnxruntime.

    check_onnx.py logits FILE.onnx LOGITS [BOUND]   onnx.checker accepts the file, and the logits of the tokens in LOGITS,
                                                    which `banyan eval --logits-out` wrote, differ by at most BOUND
                                                    (1e-4): all tokens at once, and where there are past keys and
                                                    values also in pieces; of one sequence alone too
    check_onnx.py greedy FILE.onnx LOGITS COUNT OUT the first 4 tokens of LOGITS and their most probable continuation,
                                                    COUNT tokens through past keys and values, as tokens in OUT
    check_onnx.py follows LOGITS                    each token behind the 4th is the most probable one by these logits
"""
import json
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


if __name__ == "__main__":
    {"logits": check_logits, "greedy": greedy, "follows": follows}[sys.argv[1]](*sys.argv[2:])
