#!/bin/sh
# The losses of preferences and their gradients are those of the published formulas in float64. Needs the environment of scripts/python-env;
# without it nothing is checked, and the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/python-env" >/dev/null || {
    echo "skipped: scripts/python-env could not install transformers"
    exit 77
}
python=$root/build/venv/bin/python
say "20 steps of banyan and of PyTorch"
run 0 "$python" "$root/tests/parity/check_preferences.py" "$banyan" "$work"
