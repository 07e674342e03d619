#!/usr/bin/env python3
"""Times banyan's engine and generator beside llama.cpp's batched-bench and llama-bench, on a GPT-2 124M of
random weights, in turn, and prints medians and ratios.

    bench/llama_engine.py --checkout TREE --build DIR [--rounds 3] [--sessions 1,4,16,64] [--threads N]

TREE is llama.cpp's source (for gguf-py), DIR a build of it with the targets llama-batched-bench and llama-bench:

    cmake -S TREE -B DIR -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release
    cmake --build DIR --target llama-batched-bench llama-bench

Needs numpy (scripts/python-env). Decoding is compared with S_TG, prompts with S_PP: both sides take in the
prompts of all sequences, 512 tokens each and none of them shared, then decode all together. One sequence is
compared in bf16, int8 with q8_0, int4 with q4_0, 128 tokens behind a prompt of 512. The files of random weights
are kept in build/gguf. The last line is one JSON object.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 12, 12, 768, 1024, 50257
PROMPT, TOKENS, ALONE_TOKENS = 512, 64, 128
TWINS = {"bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}


def tensors():
    """Names and shapes of GPT-2 in GGUF, rows first; matrices are those of two axes."""
    yield "token_embd.weight", (VOCAB, WIDTH)
    yield "position_embd.weight", (CONTEXT, WIDTH)
    for name in ["output_norm"] + [f"blk.{i}.{norm}" for i in range(LAYERS) for norm in ("attn_norm", "ffn_norm")]:
        yield name + ".weight", (WIDTH,)
        yield name + ".bias", (WIDTH,)
    for i in range(LAYERS):
        for name, rows, columns in (("attn_qkv", 3 * WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH),
                                    ("ffn_up", 4 * WIDTH, WIDTH), ("ffn_down", WIDTH, 4 * WIDTH)):
            yield f"blk.{i}.{name}.weight", (rows, columns)
            yield f"blk.{i}.{name}.bias", (rows,)


def write_model(path, kind):
    import gguf
    import numpy
    draw = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path + ".tmp", "gpt2")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("no_vocab")
    for name, shape in tensors():
        values = (0.02 * draw.standard_normal(shape)).astype(numpy.float32)
        matrix = len(shape) == 2 and name != "position_embd.weight"
        form = gguf.GGMLQuantizationType[kind if matrix else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(path + ".tmp", path)


def model(kind):
    path = os.path.join(ROOT, "build", "gguf", f"random-gpt2-124m-{kind.lower()}.gguf")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_model(path, kind)
    return path


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
    source = os.path.join(ROOT, "examples", "gpt2_124m.yaml")
    return run([a.banyan, "bench", *words, source, "--set", f"model.vocab={VOCAB}", "--threads", str(a.threads),
                "--json"])


def together(a, sessions):
    """(prompts, decoding) of banyan and of llama.cpp, tokens a second."""
    ours = banyan(a, ["engine", "--sessions", str(sessions), "--requests", str(sessions), "--prompt-tokens",
                      str(PROMPT), "--tokens", str(TOKENS), "--precision", "bf16"])
    theirs = run([os.path.join(a.build, "bin", "llama-batched-bench"), "-m", model("BF16"), "-npp", str(PROMPT),
                  "-ntg", str(TOKENS), "-npl", str(sessions), "-c", str(sessions * (PROMPT + TOKENS)), "-b", "2048",
                  "-ub", "512", "-t", str(a.threads), "-tb", str(a.threads), "--output-format", "jsonl"])
    return ((ours["prompts"]["tokens_per_s"], theirs["speed_pp"]),
            (ours["decode"]["tokens_per_s"], theirs["speed_tg"]))


def alone(a, precision):
    ours = banyan(a, ["generate", "--precision", precision, "--prompt-tokens", str(PROMPT), "--tokens",
                      str(ALONE_TOKENS)])
    theirs = run([os.path.join(a.build, "bin", "llama-bench"), "-m", model(TWINS[precision]), "-p", "0", "-n",
                  str(ALONE_TOKENS), "-d", str(PROMPT), "-t", str(a.threads), "-r", "1", "-o", "json"])
    return ours["decode_tokens_per_s"], theirs[0]["avg_ts"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--checkout", required=True)
    p.add_argument("--build", required=True)
    p.add_argument("--banyan", default=os.path.join(ROOT, "build", "release", "banyan"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--sessions", default="1,4,16,64")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    a = p.parse_args()
    sys.path.insert(0, os.path.join(a.checkout, "gguf-py"))
    pairs = {}
    for _ in range(a.rounds):
        for sessions in (int(word) for word in a.sessions.split(",")):
            prompts, decoding = together(a, sessions)
            pairs.setdefault(f"prompts of {sessions}", []).append(prompts)
            pairs.setdefault(f"decoding of {sessions}", []).append(decoding)
        for precision in TWINS:
            pairs.setdefault(f"one sequence, {precision}", []).append(alone(a, precision))
    summary = {}
    print(f"{'tokens/s':24} {'banyan':>9} {'llama.cpp':>9} {'ratio':>6}")
    for name, rounds in pairs.items():
        ours, theirs = (statistics.median(side) for side in zip(*rounds))
        ratio = statistics.median(x / y for x, y in rounds)  # neighbours in time
        summary[name] = {"banyan": round(ours, 1), "llama_cpp": round(theirs, 1), "ratio": round(ratio, 3)}
        print(f"{name:24} {ours:9.1f} {theirs:9.1f} {ratio:6.2f}")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
