#!/bin/sh
# Tokenizers give the ids and texts of Hugging Face's, and chat templates the text of Jinja's, live, for every
# family that is supported.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/python-env" >/dev/null || {
    echo "skipped: scripts/python-env could not install tokenizers, tiktoken and jinja2"
    exit 77
}
python=$root/build/venv/bin/python
tools=${BY_TOOLS:-$root/build/release/tests}

say "GPT-2's form, learned vocabularies, characters"
run 0 "$python" "$root/tests/parity/check_tokenizers.py" "$tools/tokenizer_tool"
cat out
say "published families"
run 0 "$python" "$root/tests/parity/check_tokenizer_families.py" "$tools/tokenizer_tool"
cat out
say "chat templates"
run 0 "$python" "$root/tests/parity/check_chat_templates.py" "$tools/template_tool"
cat out
if "$python" -c 'import numpy, transformers' 2>/dev/null; then
    say "what is learned of conversations"
    run 0 "$python" "$root/tests/parity/check_chat_masks.py" "$banyan" 60
    cat out
fi
