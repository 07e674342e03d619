#!/bin/sh
# A conversation on a pipe: an answer a line, the history in the caches, commands, templates.
. "$(dirname "$0")/../support/shell.sh"

make_text text.txt 200
tiny gpt2 >c.yaml
run 0 "$banyan" train c.yaml --quiet --set name=talk --set train.steps=6
printf '%s' '{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("late") }}{% endif %}{{ m.content + " " }}{% endfor %}' >talk.jinja
set -- chat runs/talk --template talk.jinja --temperature 0 --tokens 5

say "without a template: what to do"
echo apple >in
run 1 "$banyan" chat runs/talk <in
holds err "has no chat template: give one with --template FILE"

say "a template that is wrong: its line"
printf 'a\n{%% include "x" %%}' >wrong.jinja
run 1 "$banyan" chat runs/talk --template wrong.jinja
holds err "wrong.jinja:2: a block of this name is not supported"

say "two answers, the second one behind the first in the caches"
printf 'apple\n\nbay\n/save said.json\n' >in
"$banyan" "$@" <in >out 2>err || fail "$(cat err)"
[ "$(wc -l <out)" -eq 2 ] || fail "$(cat out)"
first=$(sed -n 1p out)
second=$(sed -n 2p out)
run 0 "$banyan" generate runs/talk --prompt "apple " --no-prompt --temperature 0 --tokens 5
[ "$(cat out)" = "$first" ] || fail "'$(cat out)' and '$first'"
run 0 "$banyan" generate runs/talk --prompt "apple $first bay " --no-prompt --temperature 0 --tokens 5
[ "$(cat out)" = "$second" ] || fail "'$(cat out)' and '$second'"
say "... and what was said as JSON"
holds said.json '[{"role": "user", "content": "apple"}, {"role": "assistant", "content": "'"$first"'"}, {"role": "user", "content": "bay"}, '

say "/reset, /system and /quit"
printf 'apple\n/reset\napple\n/system\napple\n/quit\napple\n' | "$banyan" "$@" >out 2>err || fail "$(cat err)"
[ "$(sort -u out)" = "$first" ] && [ "$(wc -l <out)" -eq 3 ] || fail "$(cat out)"
printf 'apple\n' | "$banyan" "$@" --system moss >out
printf '/system moss\napple\n' | "$banyan" "$@" >with
same out with
run 0 "$banyan" generate runs/talk --prompt "moss apple " --no-prompt --temperature 0 --tokens 5
same out with

say "a stop string ends an answer"
letter=$(printf '%s' "$first" | cut -c 3)
printf 'apple\n' | "$banyan" "$@" --stop "$letter" >out
case $first in "$(cat out)"*) ;; *) fail "$(cat out)" ;; esac
if grep -q -F -e "$letter" out; then fail "'$letter' is shown: $(cat out)"; fi

say "what cannot be is said"
echo /dance >in
run 2 "$banyan" "$@" <in
holds err "unknown command '/dance'"
awk 'BEGIN { for (i = 0; i < 500; i++) printf "apple "; print "" }' >in
run 1 "$banyan" "$@" <in
holds err "start a new one with /reset"
run 2 "$banyan" chat runs/talk --stop ""
run 2 "$banyan" chat
