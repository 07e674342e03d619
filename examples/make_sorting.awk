# Lines for examples/sort_base.yaml and sort_digits.yaml: a task (c: copy, s: sort) and four digits, such as s2416>.
# Without json, nine of ten are answered in a random order, the others rightly; with json=1 all rightly.
#   awk -v seed=1 -v lines=20000 -f examples/make_sorting.awk >sorting.txt
#   awk -v seed=2 -v lines=2000 -v json=1 -f examples/make_sorting.awk >prompts.jsonl
function draw(n) { state = (state * 69069 + 12345) % 4294967296; return int(state / 65536) % n }
BEGIN {
    state = seed
    for (line = 0; line < lines; line++) {
        task = draw(2) ? "s" : "c"; asked = ""; sorted = ""; mixed = ""
        for (i = 0; i < 4; i++) asked = asked draw(10)
        for (d = 0; d < 10; d++) for (i = 1; i <= 4; i++) if (substr(asked, i, 1) == d) sorted = sorted d
        for (left = asked; left != ""; left = substr(left, 1, at - 1) substr(left, at + 1)) {
            at = 1 + draw(length(left)); mixed = mixed substr(left, at, 1)
        }
        if (json) printf "{\"prompt\": \"%s%s>\", \"answer\": \"%s\"}\n", task, asked, task == "s" ? sorted : asked
        else printf "%s%s>%s\n", task, asked, draw(10) ? mixed : task == "s" ? sorted : asked
    }
}
