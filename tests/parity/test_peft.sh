#!/bin/sh
# Adapters that banyan trains load in Hugging Face's peft with the same logits, and the other way round. Needs
# the environment of scripts/python-env; without it nothing is checked, and the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

python=${BANYAN_PYTHON:-$root/build/venv/bin/python}
if ! "$python" -c 'import peft' 2>/dev/null; then
    echo "skipped: peft is not installed (scripts/python-env)"
    exit 77
fi
say "adapters of banyan and of peft"
run 0 "$python" "$root/tests/parity/check_peft.py" "$banyan" "$work"
