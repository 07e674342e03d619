#!/bin/sh
# Clients that are slow, silent, gone, greedy or ambiguous: each is refused, cut off or served within the bounds of
# docs/security.md, while other clients are answered as if there were none.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"

train_tiny
serve --workers 1 --set gateway.head_timeout=1 --set gateway.body_timeout=15 --set gateway.idle_timeout=20 \
    --set gateway.output_timeout=20 --set gateway.output=16KiB --set gateway.body=128KiB
python3 "$root/tests/fault/hostile_clients.py" "$url" || { grep -v '"event":"request"' log | tail -n 30 >&2; fail "clients"; }
stop
