#!/bin/sh
# Adapters that banyan trains load in Hugging Face's peft with the same logits, and the other way round. Needs
# the environment of scripts/python-env; without it nothing is checked, and the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/python-env" >/dev/null || {
    echo "skipped: scripts/python-env could not install peft"
    exit 77
}
python=$root/build/venv/bin/python
say "adapters of banyan and of peft"
run 0 "$python" "$root/tests/parity/check_peft.py" "$banyan" "$work"
