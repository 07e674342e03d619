#!/bin/sh
# Texts that a random model writes under JSON schemas and regular expressions, checked by jsonschema and re.
. "$(dirname "$0")/../support/shell.sh"

say "schemas and patterns"
run 0 /usr/bin/python3 "$root/tests/parity/check_constraints.py" "$(dirname "$banyan")/tests/constraint_tool"
holds out "schemas and 10 patterns fit"
