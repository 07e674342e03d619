#!/bin/sh
# Text packed on several ranks: the same bytes as by one process, also with duplicates, a held-out part and lines that are
# left out; after a kill, on another number of ranks; and never from pieces of other texts.
. "$(dirname "$0")/../support/shell.sh"

# Files of several units of 1 MiB, and JSON lines with duplicates and a damaged one.
python3 - <<'END' || fail "no texts"
import json, os, random
random.seed(3)
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 9))) for _ in range(3000)]
def text(n):
    return " ".join(random.choice(words) for _ in range(n))
os.mkdir("crawl")
with open("crawl/book.txt", "w") as out:
    for _ in range(1600):
        out.write(text(200).capitalize() + ".\n")
with open("crawl/lines.jsonl", "w") as out:
    first = text(60)
    for i in range(6000):
        line = first if i % 500 == 499 else text(60)
        out.write("broken\n" if i == 3210 else json.dumps({"text": line}) + "\n")
END
set -- crawl --vocab 400 --valid-fraction 0.1 --dedup near --corrupt skip --shard-tokens 300000

say "the same bytes on 1, 2 and 3 ranks"
run 0 "$banyan" pack "$@" --out alone --json
cp out alone.json
[ "$(ls alone/train/tokens-*.npy | wc -l)" -gt 3 ] || fail "one shard: the test is too small"
for ranks in 2 3; do
    run 0 "$banyan" launch -n $ranks pack "$@" --out on$ranks --threads 1 --json
    diff -r alone on$ranks || fail "the result differs on $ranks ranks"
    [ ! -e on$ranks.partial ] || fail "on$ranks.partial is left"
    grep '"tokens"' out >joined || fail "no rank joined: $(cat out)"
    for key in tokens valid_tokens documents exact_duplicates near_duplicates corrupt_lines; do
        [ "$(field $key <joined)" = "$(field $key <alone.json)" ] || fail "$key: $(cat joined alone.json)"
    done
    [ "$(grep -c "lines.jsonl:3211: left out" err)" -eq 1 ] || fail "the damaged line is not reported once: $(cat err)"
done
run 0 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out plain
run 0 "$banyan" launch -n 2 pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out plain2
diff -r plain plain2 || fail "text that is cut differs"

say "what killed ranks have encoded is used, on any number of them"
run 0 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out killed
holds out "other ranks still encode"
[ ! -e killed ] || fail "it is whole without the other rank"
pieces=$(echo killed.partial/pieces-*)
ls "$pieces" >had
[ "$(wc -l <had)" -ge 1 ] || fail "no piece is kept"
touch -d '2001-01-01' "$pieces"/*
mkdir killed.partial/whole && echo torn | tee killed.partial/whole/manifest.json >killed.partial/whole/.banyan-partial
run 0 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out killed
for piece in $(cat had); do
    [ "$(date -r "$pieces/$piece" +%Y)" = 2001 ] || fail "$piece was encoded again"
done
run 0 "$banyan" launch -n 3 pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out killed
diff -r plain killed || fail "the result differs after a kill"
[ ! -e killed.partial ] || fail "killed.partial is left"

say "a rank that comes late finds the result; other texts are refused, damaged pieces encoded again"
run 0 "$banyan" launch -n 2 pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out killed
holds out "another rank has written it"
run 2 "$banyan" launch -n 2 pack crawl/lines.jsonl --corrupt skip --tokenizer alone/train/tokenizer.json --out killed
holds err "killed already exists, of other texts"
run 0 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out other
run 2 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --no-eos --out other
holds err "other.partial is of other texts or options"
piece=$(ls other.partial/pieces-*/piece-* | head -n 1)
printf x | dd of="$piece" bs=1 seek=1000 conv=notrunc 2>/dev/null
run 0 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$banyan" pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out other
holds out "other ranks still encode"
run 0 "$banyan" launch -n 2 pack crawl/book.txt --tokenizer alone/train/tokenizer.json --out other
diff -r plain other || fail "a damaged piece was not encoded again"
run 2 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$banyan" pack - --out stream
holds err "standard input goes to one rank"
