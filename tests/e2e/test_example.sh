#!/bin/sh
# A user's own model through the public headers alone: at most 150 lines, built by the project and by hand,
# and it learns.
. "$(dirname "$0")/../support/shell.sh"

lines=$(wc -l <"$root/examples/custom_model.c")
say "examples/custom_model.c has $lines lines"
[ "$lines" -le 150 ] || fail "more than 150"

say "it includes only public headers and the standard library"
if grep '^#include "' "$root/examples/custom_model.c" | grep -v '^#include "banyan/'; then
    fail "another header"
fi

say "it runs, and its loss falls"
run 0 "$root/build/release/example_custom_model"
holds out "step 300"
first=$(sed -n 's/^step *1 .*loss //p' out)
last=$(sed -n 's/^step *300 .*loss //p' out)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 2 && b < 0.1) }' || fail "loss $first to $last"

say "every example config is valid"
for config in "$root"/examples/*.yaml; do
    run 0 "$banyan" info "$config" --set model.vocab=1000
done
