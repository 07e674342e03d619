#!/bin/sh
# Only the modules that define operations (src/ops) and run them (src/device) name one: everywhere else what is
# special about an op is read from its row. op_names.c names all of them, from their list.
set -u
cd "$(dirname "$0")/../.." || exit 1

found=$(grep -rnE 'BY_OP_[A-Z]' src include bench examples --include='*.c' --include='*.h' --include='*.inc' |
    grep -vE '^(src/ops/|src/device/|include/banyan/op\.h:|src/base/op_names\.c:)')
if [ -n "$found" ]; then
    echo "operations are named outside src/ops and src/device:"
    echo "$found"
    exit 1
fi
echo "no module but ops and device names an operation"
