#!/bin/sh
# Conventions of the command line, for every flag of every command as --help lists them: one name for outputs,
# times and sizes with units, --json, files that do not exist, standard input.
. "$(dirname "$0")/../support/shell.sh"

# Commands, with the measurements of bench and the plans of plan in their place.
{
    "$banyan" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v -x -e bench -e plan
    "$banyan" bench --help | sed -n '/^measurements:/,$s/^  \([a-z]*\) .*/bench \1/p'
    "$banyan" plan --help | sed -n '/^plans:/,$s/^  \([a-z]*\) .*/plan \1/p'
} >commands
[ "$(wc -l <commands)" -gt 30 ] || fail "the commands are not listed"

say "outputs are --out, times have units, and what prints results has --json"
while read -r command; do
    # shellcheck disable=SC2086
    run 0 "$banyan" $command --help
    sed -n '/^flags:/,$p' out | sed -n 's/^  --*\([a-z0-9-]*\) *\([A-Z][^ ]*\)\{0,1\}.*/\1 \2/p' >flags
    if grep -q '^output' flags; then fail "$command: --output is another name for --out"; fi
    if grep -q -E ' (SECONDS|SEC|DURATION|INTERVAL|BYTES)$' flags; then fail "$command: $(cat flags)"; fi
    case $command in # these serve, converse, draw or run another command
    chat | serve | gateway | broker | worker | launch | watch | plot) ;;
    *) grep -q '^json' flags || fail "$command has no --json" ;;
    esac
    while read -r flag value; do
        case $value in
        TIME)
            # shellcheck disable=SC2086
            run 0 "$banyan" $command "--$flag" 1.5s --help
            case $command in # their times are keys of a configuration, which is read later
            serve | gateway) continue ;;
            esac
            # shellcheck disable=SC2086
            run 2 "$banyan" $command "--$flag" 5x --help
            holds err "--$flag '5x' is not a time"
            holds err "such as 500ms, 30s, 10m or 1h"
            ;;
        FILE | DIR)
            case $flag in # made by the command, or keys of a configuration
            out | image | images | masks | logits-out | items-out | remote-cache | trace | failure | ready-file | tasks | dir | quota | control | keys | checkpoint) continue ;;
            esac
            # shellcheck disable=SC2086
            run 2 "$banyan" $command "--$flag" /nowhere/at/all --help
            holds err "banyan $command: there is no file or directory /nowhere/at/all"
            ;;
        esac
    done <flags
    # shellcheck disable=SC2086
    if grep -q '^out ' flags; then run 0 "$banyan" $command --output x --help; fi
done <commands

say "a file that is named and does not exist is a wrong argument"
tiny gpt2 >c.yaml
echo '{task: {kind: regress}, model: {kind: mlp}, data: {table: nowhere.csv, target: y}}' >table.yaml
while read -r arguments; do
    # shellcheck disable=SC2086
    run 2 "$banyan" $arguments
    holds err nowhere
done <<'END'
train nowhere.yaml
train --resume nowhere
train c.yaml --set data.text=nowhere.txt
train c.yaml --set data.text=[] --set data.train=nowhere
train c.yaml --set data.text=[] --set data.mix=nowhere/train=1
train c.yaml --set data.tokenizer=./nowhere.json
train c.yaml --set model.from=nowhere
train c.yaml --set distill.teacher=nowhere
train table.yaml
info nowhere.yaml
info c.yaml --set model.from=nowhere
launch -n 2 train nowhere.yaml
bench train nowhere.yaml
bench pack nowhere.txt --tokenizer c.yaml
profile nowhere.yaml
eval nowhere
predict nowhere c.yaml
eval runs --data nowhere
eval runs --data c.yaml,nowhere
generate nowhere
chat nowhere
embed nowhere --batch c.yaml
classify nowhere --batch c.yaml
export nowhere --format gguf --out x.gguf
compress nowhere --method gptq --out x
logits nowhere --data . --out x
drift report nowhere --data c.yaml
pack nowhere.txt --out x
data verify nowhere
data stats nowhere
checkpoint ls nowhere
checkpoint digest nowhere
checkpoint diff c.yaml nowhere
checkpoint merge nowhere x
runs nowhere
runs show nowhere
watch nowhere
plot nowhere
serve nowhere --check
assistant nowhere
END
[ ! -e x ] || fail "something was made"

say "standard input is packed as a file is"
run 0 "$banyan" pack text.txt --tokenizer char --out packed-file
run 0 sh -c '"$0" pack - --tokenizer char --output packed-stream <text.txt' "$banyan"
same packed-file/tokens-00000.npy packed-stream/tokens-00000.npy
