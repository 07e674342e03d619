#!/bin/sh
# Times llama.cpp's generation in a checkout that you have built as its README says (target llama-bench, in build/):
#
#   bench/llamacpp.sh CHECKOUT MODEL_DIR [DTYPE [PROMPT [TOKENS [THREADS]]]]
#
# MODEL_DIR is a checkpoint in Hugging Face form with a tokenizer. The checkout's own script converts it to GGUF
# in DTYPE (bf16, f16 or f32), once: the file is kept in build/gguf. Prints one JSON line. PYTHON names an
# interpreter with torch and transformers for that script; default: build/venv, made by scripts/python-env.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: bench/llamacpp.sh CHECKOUT MODEL_DIR [DTYPE [PROMPT [TOKENS [THREADS]]]]" >&2
    exit 2
fi
checkout=$1 model=$2 dtype=${3:-bf16} prompt=${4:-512} tokens=${5:-128} threads=${6:-$(nproc)}
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/build/venv/bin/python}
program=$checkout/build/bin/llama-bench
if [ ! -x "$program" ]; then
    echo "llamacpp.sh: $program is missing; build llama-bench there" >&2
    exit 1
fi

key=$(cd "$model" && { pwd; ls -lnR --time-style=full-iso; } | cksum | cut -d' ' -f1)
gguf=$root/build/gguf/$key-$dtype.gguf
if [ ! -f "$gguf" ]; then
    mkdir -p "$root/build/gguf"
    if ! "$python" "$checkout/convert_hf_to_gguf.py" "$model" --outtype "$dtype" \
        --outfile "$gguf.tmp" >"$gguf.log" 2>&1; then
        tail -n 5 "$gguf.log" >&2
        exit 1
    fi
    mv "$gguf.tmp" "$gguf"
fi

# Tokens are generated behind the prompt, whose keys and values each of them reads.
{
    "$program" -m "$gguf" -p "$prompt" -n 0 -t "$threads" -r 3 -o json 2>/dev/null
    "$program" -m "$gguf" -p 0 -n "$tokens" -d "$prompt" -t "$threads" -r 3 -o json 2>/dev/null
} | python3 -c '
import json, sys
text = sys.stdin.read()
first, end = json.JSONDecoder().raw_decode(text)
runs = first + json.loads(text[end:])
speed = {bool(r["n_gen"]): r["avg_ts"] for r in runs}
print(json.dumps({"prefill_tokens_per_s": round(speed[False], 1), "decode_tokens_per_s": round(speed[True], 2),
                  "model_bytes": runs[0]["model_size"], "threads": runs[0]["n_threads"],
                  "build": runs[0]["build_commit"]}))'
