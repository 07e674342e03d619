"""Runs scripts one after another in one process: PyTorch and transformers take longer to load than most of them.

usage: check_each.py <LINES    a line: a script and its arguments, quoted as for a shell
"""

import runpy
import shlex
import sys

for line in sys.stdin:
    sys.argv = shlex.split(line)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            print("check_each: " + line.strip(), file=sys.stderr)
            raise
