#!/bin/sh
# The order of the sources, read from them and from the objects of the release: a room calls and includes only rooms
# below it, files do not call in large circles, folders are small, names are unique and say where they belong, comments
# name what exists, and so do the walks of docs/architecture.md. tests/support/order.py has the rooms and what is not in order yet.
set -u
cd "$(dirname "$0")/../.." || exit 1

exec python3 tests/support/order.py
