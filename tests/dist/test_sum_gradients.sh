#!/bin/sh
# examples/sum_gradients.c: at most 150 lines on public headers, learns, and prints the same weights to the
# last bit as one process, as one rank and as three and six ranks.
set -u
cd "$(dirname "$0")/../.." || exit 1

program=build/release/example_sum_gradients
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$*"
    cat "$work"/* | head -n 40
    exit 1
}

[ "$(wc -l <examples/sum_gradients.c)" -le 150 ] || fail "the example has more than 150 lines"
"$program" >"$work/alone" 2>&1 || fail "one process"
awk '/^step/ { loss[++n] = $4 } END { exit !(n == 4 && loss[4] < 0.5 * loss[1]) }' "$work/alone" ||
    fail "it does not learn"
. tests/support/mpi.sh
for n in 1 3 6; do
    mpi_run "$n" "$program" >"$work/$n" 2>&1 || fail "$n ranks"
    cmp "$work/alone" "$work/$n" || fail "$n ranks print other weights"
done
mpi_run 2 "$program" >"$work/2" 2>&1 || fail "2 ranks"
echo "1, 3 and 6 ranks have the same weights"
