#!/bin/sh
# What each method that quantises makes of a run: bytes of the tensors, held-out loss, and tokens a second of one
# sequence.
#
#   bench/compress.sh RUN DIR [BANYAN]     RUN: of a language model; DIR: for results
#
# METHODS ("int8 w8a8 fp8 int4 awq gptq"), GROUP (64), SAMPLES (128).
set -eu
run=$1
dir=$2
banyan=${3:-$(dirname "$0")/../build/release/banyan}
mkdir -p "$dir"
field() { sed -n "s/.*\"$1\": *\\([^,}]*\\).*/\\1/p"; }
speed() { "$banyan" bench generate "$@" --json | field decode_tokens_per_s; }

printf '%-6s %12s %10s %8s %10s\n' method bytes loss change tokens/s
printf '%-6s %12s %10s %8s %10.1f\n' bf16 - "$("$banyan" eval "$run" --json | field valid_loss)" - \
    "$(speed "$run" --precision bf16)"
for method in ${METHODS:-int8 w8a8 fp8 int4 awq gptq}; do
    set -- --method "$method"
    case $method in
    int4) set -- "$@" --set "group=${GROUP:-64}" ;;
    awq | gptq) set -- "$@" --set "group=${GROUP:-64}" --samples "${SAMPLES:-128}" ;;
    esac
    rm -rf "${dir:?}/$method"
    made=$("$banyan" compress "$run" "$@" --out "$dir/$method" --eval held-out --json 2>"$dir/$method.log")
    before=$(echo "$made" | field loss_before)
    after=$(echo "$made" | field loss_after)
    change=$(awk -v a="$after" -v b="$before" 'BEGIN { printf "%+.2f %%", 100 * (a - b) / b }')
    printf '%-6s %12s %10s %8s %10.1f\n' "$method" "$(echo "$made" | field bytes_after)" "$after" "$change" \
        "$(speed "$dir/$method")"
done
