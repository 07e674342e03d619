#!/bin/sh
# Makes the golden files of the parity tests anew with Debian's PyTorch and compares them with those that
# are kept. On a machine without python3-torch only their presence is checked.
. "$(dirname "$0")/../support/shell.sh"

say "golden files are there"
for name in gpt2 llama_tied llama_gqa mixtral; do
    exists "$root/tests/parity/golden/$name.safetensors"
done
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    say "PyTorch $(/usr/bin/python3 -c 'import torch; print(torch.__version__)') makes the same"
    run 0 /usr/bin/python3 "$root/tests/parity/make_golden.py" --check "$root/tests/parity/golden"
else
    echo "python3-torch is not installed: the golden files are not made anew"
fi
