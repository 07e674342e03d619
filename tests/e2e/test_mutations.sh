#!/bin/sh
# Every fault of tests/mutations.sh still fits the sources: it changes a text that they hold once.
sh "$(dirname "$0")/../mutations.sh" --check
