#!/bin/sh
# Parquet files as pyarrow writes them are read with the same values. Needs the environment of scripts/tracking-env,
# whose mlflow brings pyarrow; without it nothing is checked, and the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" >/dev/null || {
    echo "skipped: scripts/tracking-env could not install pyarrow"
    exit 77
}
python=$root/build/venv-tracking/bin/python
say "types, nulls, dictionaries, codecs and pages"
run 0 "$python" "$root/tests/parity/check_parquet.py" "${BY_TOOLS:-$root/build/release/tests}/table_tool" "$work"
cat out
