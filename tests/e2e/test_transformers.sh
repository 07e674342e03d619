#!/bin/sh
# Small random models that transformers makes are read exactly, and what banyan writes of them transformers
# loads as what they were.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/python-env" >/dev/null || {
    echo "skipped: scripts/python-env could not install transformers"
    exit 77
}
python=$root/build/venv/bin/python
checker=$root/tests/parity/check_transformers.py

say "transformers makes models: every family, whole and sharded, in f32, bf16 and f16"
mkdir models
run 0 "$python" "$checker" make models
make_text text.txt 100
cat >c.yaml <<'EOF'
name: saved
data: {text: [text.txt], tokenizer: char}
train: {steps: 1, batch: 1, eval_every: 0, eval_batches: 1}
optimizer: {lr: 1e-30, weight_decay: 0}
EOF
for logits in models/*.logits.safetensors; do
    model=${logits%.logits.safetensors}
    say "$model is read, and written as a checkpoint"
    run 0 "$banyan" eval "$model" --tokens "$logits" --logits-out "$model.banyan.safetensors" --precision f32
    run 0 "$banyan" train c.yaml --set "model.from=$model"
    mv runs/saved/checkpoints/step-00000001 "$model.saved"
    rm -r runs
done

say "weights in bf16 are used so"
run 0 "$banyan" eval models/qwen3 --tokens models/qwen3.logits.safetensors --logits-out default.safetensors
run 0 "$banyan" eval models/qwen3 --tokens models/qwen3.logits.safetensors --logits-out narrow.safetensors --precision bf16
same default.safetensors narrow.safetensors

say "logits are those of transformers, and it loads each checkpoint as the class that it was"
say "beam search finds the texts of transformers, with their scores"
say "classes of texts are those of transformers"
say "suites make the prompts of Python and jinja2, with the scores of transformers"
parity=$root/tests/parity
cat >checks <<END
"$checker" compare models
"$parity/check_beams.py" "$(dirname "$banyan")/tests/beam_tool"
"$parity/check_classify.py" "$banyan" classifiers
"$parity/check_suites.py" "$banyan"
END
run 0 "$python" "$parity/check_each.py" <checks
cat out
