#!/bin/sh
# The engine with drafts and without, in turn: tokens a second of all work (prompts too), of the round whose ratio is
# the median; the same ratio by processor time, which other programs change little; and rows of the model (drafts too) for
# each of those without drafts. `random`: prompts of random tokens with random continuations, where drafts can only cost;
# `repeats`: prompts that repeat 32 tokens, continued by the most probable token.
#
#   bench/speculate.sh MODEL [BANYAN]     MODEL: a run, a directory or a config (then with initial weights)
#
# DRAFT (ngram; or a model), SESSIONS ("1 4 16"), ROUNDS (3), PROMPT (128), TOKENS (256), PRECISION (bf16).
set -eu
model=$1
banyan=${2:-$(dirname "$0")/../build/release/banyan}
# field NAME: a number of the JSON on standard input, the first of that name.
field() { grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d : -f 2; }
bench() {
    "$banyan" bench engine "$model" --json --precision "${PRECISION:-bf16}" --sessions "$sessions" --requests \
        $((2 * sessions)) --prompt-tokens "${PROMPT:-128}" --tokens "${TOKENS:-256}" "$@"
}

printf '%-8s %8s %10s %10s %7s %9s %6s %9s\n' text sessions plain drafts ratio processor rows right
for text in random repeats; do
    for sessions in ${SESSIONS:-1 4 16}; do
        case $text in
        random) set -- --temperature 1 ;;
        repeats) set -- --pattern-tokens 32 ;;
        esac
        for round in $(seq "${ROUNDS:-3}"); do
            plain=$(bench "$@")
            made=$(bench "$@" --speculate "${DRAFT:-ngram}")
            line=$(echo "$plain" | field tokens_per_s)
            for name in tokens_per_s accepted drafted processor_seconds rows; do
                line="$line $(echo "$made" | field "$name")"
            done
            echo "$line $(echo "$plain" | field processor_seconds) $(echo "$plain" | field rows)"
        done | awk '{ printf "%.4f %s\n", $2 / $1, $0 }' | sort -n | awk -v text="$text" -v sessions="$sessions" '
            { line[NR] = $0 }
            END {
                split(line[int((NR + 1) / 2)], f)
                printf "%-8s %8d %10.1f %10.1f %7.2f %9.2f %6.2f %9s\n", text, sessions, f[2], f[3], f[1], f[8] / f[6],
                    f[7] / f[9], f[4] "/" f[5]
            }'
    done
done
