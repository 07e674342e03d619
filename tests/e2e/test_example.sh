#!/bin/sh
# A user's own model and task through the public headers alone: at most 150 lines each, and they learn.
. "$(dirname "$0")/../support/shell.sh"

for example in custom_model custom_task; do
    lines=$(wc -l <"$root/examples/$example.c")
    say "examples/$example.c has $lines lines"
    [ "$lines" -le 150 ] || fail "more than 150"
    say "it includes only public headers and the standard library"
    if grep '^#include "' "$root/examples/$example.c" | grep -v '^#include "banyan/'; then
        fail "another header"
    fi
done

say "the model runs, and its loss falls"
run 0 "$root/build/release/example_custom_model"
holds out "step 300"
first=$(sed -n 's/^step *1 .*loss //p' out)
last=$(sed -n 's/^step *300 .*loss //p' out)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 2 && b < 0.1) }' || fail "loss $first to $last"

say "the task takes the noise away, and leaves a run with its metric"
run 0 "$root/build/release/example_custom_task"
holds out "step 600: "
holds runs/denoise/events.jsonl '"snr_db":'
exists runs/denoise/checkpoints/best.json runs/denoise/checkpoints/step-00000600/model.safetensors
run 0 "$banyan" runs runs
holds out denoise

say "every example config is valid"
for config in "$root"/examples/*.yaml; do
    case $config in
    *vit* | *resnet* | *dit*) sizes="model.channels=1 model.image_height=28 model.image_width=28 model.outputs=10" ;;
    *unet*) sizes="model.channels=3 model.image_height=64 model.image_width=64 model.outputs=4" ;;
    *etth1*) sizes=model.channels=7 ;;
    *cora*) sizes="model.channels=1433 model.outputs=7 model.nodes=2708 model.edges=13264 model.sample_nodes=0 model.sample_edges=0" ;;
    *mlp*) sizes="model.numbers=8 model.outputs=1" ;;
    */chat.yaml | */preference.yaml | */sort_digits.yaml) sizes="model.vocab=1000 model.from=" ;;
    */text_classes.yaml) sizes="model.vocab=1000 model.outputs=3 model.from= data.text_column=text data.max_tokens=64" ;;
    *) sizes=model.vocab=1000 ;;
    esac
    run 0 "$banyan" info "$config" $(for size in $sizes; do echo "--set $size"; done)
done
