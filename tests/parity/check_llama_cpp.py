#!/usr/bin/env python3
"""GGUF files that banyan wrote, run by llama.cpp.

    check_llama_cpp.py logits FILE.gguf LOGITS [BOUND]   llama.cpp's logits of the tokens in LOGITS, which
                                                   `banyan eval --logits-out` wrote, differ by at most BOUND (1e-4)
    check_llama_cpp.py perplexity FILE.gguf LOGITS [BOUND]   the perplexity of these tokens differs by at most
                                                   this share (0.001) from that of LOGITS
    check_llama_cpp.py greedy FILE.gguf PROMPT COUNT TEXT    its most probable continuation of PROMPT, COUNT tokens
                                                   or up to the end of text, is the file TEXT, byte for byte
    check_llama_cpp.py blocks F32.gguf FILE.gguf   the quantised matrices of FILE have the bytes that the pip package
                                                   gguf makes of those of F32
    check_llama_cpp.py metadata FILE.gguf KEY=VALUE...       the pip package gguf reads the file and these values

The library is the one in the wheel of xllamacpp, which exports llama.cpp's C interface; scripts/export-env installs
it. There is no header in the wheel: structures are taken as bytes, whose fields are found by their defaults.
"""
import ctypes
import glob
import json
import os
import struct
import sys

import numpy as np


class Blob(ctypes.Structure):
    """A structure of options: more bytes than any of them has."""
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def fail(message):
    print(f"check_llama_cpp: {message}", file=sys.stderr)
    sys.exit(1)


def open_library():
    import xllamacpp
    lib = ctypes.CDLL(glob.glob(os.path.join(xllamacpp.__path__[0], "xllamacpp*.so"))[0])
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
            ("llama_model_default_params", Blob, []), ("llama_context_default_params", Blob, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Blob]),
            ("llama_init_from_model", pointer, [pointer, Blob]), ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_vocab_n_tokens", number, [pointer]), ("llama_batch_init", Batch, [number] * 3),
            ("llama_decode", number, [pointer, Batch]), ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [pointer, number]),
            ("llama_get_memory", pointer, [pointer]), ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
            ("llama_tokenize", number, [pointer, ctypes.c_char_p, number, ctypes.POINTER(number), number, ctypes.c_bool, ctypes.c_bool]),
            ("llama_token_to_piece", number, [pointer, number, ctypes.c_char_p, number, number, ctypes.c_bool]),
            ("llama_vocab_is_eog", ctypes.c_bool, [pointer, number]), ("llama_log_set", None, [pointer, pointer])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Model:
    def __init__(self, path):
        self.lib = lib = open_library()
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, _: sys.stderr.write(text.decode(errors="replace")) if level >= 4 else None)
        lib.llama_log_set(ctypes.cast(self.quiet, ctypes.c_void_p), None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            fail(f"llama.cpp does not load {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = lib.llama_vocab_n_tokens(self.vocab)
        self.context = None

    def open_context(self, tokens):
        """A context whose keys and values are f32, without the approximations of flash attention."""
        options = self.lib.llama_context_default_params()
        words = list(struct.unpack_from("38i", bytes(options.bytes)))
        minus = words.index(-1)  # rope scaling, pooling, attention, flash attention: -1 is "as the model says"
        kinds = next(i for i in range(minus + 4, 37) if words[i] == 1 and words[i + 1] == 1)  # K and V: f16
        if words[:4] != [512, 2048, 512, 1] or words[minus:minus + 4] != [-1] * 4:
            fail("this version of llama.cpp has other options")
        words[0] = words[1] = words[2] = tokens
        words[minus + 3] = 0
        words[kinds] = words[kinds + 1] = 0
        struct.pack_into("38i", options.bytes, 0, *words)
        self.context = self.lib.llama_init_from_model(self.model, options)
        if not self.context:
            fail("llama.cpp makes no context")
        self.batch = self.lib.llama_batch_init(tokens, 0, 1)

    def logits(self, tokens, first, every):
        """Logits after each of these tokens (or the last alone), which stand at position `first` on."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), first + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every or i + 1 == len(tokens)
        if self.lib.llama_decode(self.context, batch) != 0:
            fail("llama_decode fails")
        rows = range(len(tokens)) if every else [len(tokens) - 1]
        return np.stack([np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (self.size,)).copy()
                         for i in rows])

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def tokenize(self, text):
        ids = (ctypes.c_int32 * (len(text) + 8))()
        count = self.lib.llama_tokenize(self.vocab, text, len(text), ids, len(ids), True, True)
        return list(ids[:count])

    def piece(self, token):
        buffer = ctypes.create_string_buffer(512)
        count = self.lib.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[:count]


def read_tensors(path):
    """Tensors of a safetensors file, of the types that banyan writes of logits."""
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    kinds = {"F32": np.float32, "I32": np.int32}
    return {name: np.frombuffer(data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]],
                                kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def all_logits(path, tokens):
    model = Model(path)
    model.open_context(tokens.shape[1])
    rows = []
    for sequence in tokens:
        model.clear()
        rows.append(model.logits(sequence, 0, True))
    return np.stack(rows)


def check_logits(path, file, bound=1e-4):
    ours = read_tensors(file)
    theirs = all_logits(path, ours["tokens"])
    if theirs.shape != ours["logits"].shape:
        fail(f"{path}: logits of {theirs.shape}, not {ours['logits'].shape}")
    distance = float(np.abs(theirs - ours["logits"]).max())
    print(f"{path}: largest difference of logits {distance:.2e} (up to {np.abs(theirs).max():.1f}), limit {float(bound):.0e}")
    if not distance <= float(bound):
        fail(f"{path}: logits differ by {distance:.2e}")


def loss(logits, tokens):
    rows = logits[:, :-1].astype(np.float64)
    rows = rows - rows.max(-1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return -np.take_along_axis(rows, tokens[:, 1:, None], -1).mean()


def check_perplexity(path, file, bound=0.001):
    ours = read_tensors(file)
    theirs = loss(all_logits(path, ours["tokens"]), ours["tokens"])
    share = abs(np.exp(theirs - loss(ours["logits"], ours["tokens"])) - 1)
    print(f"{path}: perplexity {np.exp(theirs):.4f}, {100 * share:.4f} % from ours")
    if not share <= float(bound):
        fail(f"{path}: the perplexity differs by {100 * share:.3f} %")


def check_greedy(path, prompt, count, text):
    model = Model(path)
    ids = model.tokenize(prompt.encode())
    model.open_context(len(ids) + int(count))
    said, position, fed = b"", 0, ids
    for _ in range(int(count)):
        token = int(model.logits(fed, position, False)[0].argmax())
        position += len(fed)
        fed = [token]
        if model.lib.llama_vocab_is_eog(model.vocab, token):
            break
        said += model.piece(token)
    with open(text, "rb") as f:
        expected = f.read().removesuffix(b"\n")  # which ends the output of `banyan generate`
    if said != expected:
        at = next((i for i, (a, b) in enumerate(zip(said, expected)) if a != b), min(len(said), len(expected)))
        fail(f"{path}: texts differ from byte {at} on:\n{said!r}\n{expected!r}")
    print(f"{path}: equal text of {len(said)} bytes")


def check_blocks(path, file):
    from gguf import GGMLQuantizationType, GGUFReader, quants
    plain = {t.name: t for t in GGUFReader(path).tensors}
    checked = 0
    for tensor in GGUFReader(file).tensors:
        if tensor.tensor_type in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
            expected = quants.quantize(np.array(plain[tensor.name].data), tensor.tensor_type)
            checked += 1
            if not np.array_equal(np.array(tensor.data), expected):
                fail(f"{file}: blocks of {tensor.name} differ")
    print(f"{file}: equal blocks of {checked} tensors")
    if checked == 0:
        fail(f"{file}: there are no such blocks")


def check_metadata(path, *pairs):
    from gguf import GGUFReader
    reader = GGUFReader(path)
    for pair in pairs:
        key, _, expected = pair.partition("=")
        value = reader.fields[key].contents() if key in reader.fields else None
        if str(value) != expected:
            fail(f"{path}: {key} is {value}, not {expected}")
    print(f"{path}: {len(reader.tensors)} tensors, {len(reader.fields)} pairs")


if __name__ == "__main__":
    {"logits": check_logits, "perplexity": check_perplexity, "greedy": check_greedy, "blocks": check_blocks,
     "metadata": check_metadata}[sys.argv[1]](*sys.argv[2:])
