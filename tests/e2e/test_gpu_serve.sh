#!/bin/sh
# A server on a GPU's stand-in: the answers are those of a server on the CPU, to one request and to several at a time, also
# with weights of 8 bits; and nothing of what a process gives up is asked for.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

standins=$(dirname "$banyan")/tests/standins/all
if [ ! -e "$standins/libcuda.so.1" ]; then
    echo "skipped: there are no stand-ins for NVIDIA's libraries (they need clang++)"
    exit 77
fi
BANYAN_CUDA_PATH=$standins
export BANYAN_CUDA_PATH
# The same weights on every machine: with weights of 8 bits a CPU rounds activations, too, to 16 bits, which a GPU does
# not, so that in some models a near tie of two tokens falls otherwise.
BANYAN_ISA=avx2
export BANYAN_ISA

make_text text.txt 200
tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set device=cpu --set train.threads=1 --set optimizer.warmup=1 --set train.steps=8 \
    --set model.width=32 --set model.layers=1 --set train.batch=2

# ask PROMPT TOKENS: prints the text.
ask() {
    curl -s --fail "$url/v1/completions" -H 'Content-Type: application/json' \
        -d "{\"model\":\"tiny\",\"prompt\":\"$1\",\"max_tokens\":$2,\"temperature\":0}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])'
}

# answers FLAG...: texts of a server, one alone and four at a time, in "answers".
answers() {
    serve_ready "$@"
    ask "apple " 12 >answers
    pids=
    for i in 1 2 3 4; do
        ask "$(head -n $((4 * i)) text.txt | tail -n 1 | cut -c "1-$((5 + 6 * i))")" 10 >"answer.$i" &
        pids="$pids $!"
    done
    # shellcheck disable=SC2086
    wait $pids || fail "a request failed: $(tail -n 5 log)"
    cat answer.1 answer.2 answer.3 answer.4 >>answers
    stop
}

for flags in "" "--precision int8"; do
    say "texts ${flags:-in the precision of the model}"
    # shellcheck disable=SC2086
    answers --device cpu $flags
    mv answers cpu.answers
    # shellcheck disable=SC2086
    answers --device cuda $flags
    same cpu.answers answers
done
