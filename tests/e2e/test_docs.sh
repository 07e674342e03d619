#!/bin/sh
# What the documents say is true: their commands run (trainings cut to a few steps), or, where a comment says
# "check only", the programs they name exist; their links lead to files.
. "$(dirname "$0")/../support/shell.sh"

# The commands are run in a copy that sees the tree's folders, with a banyan that trains for a few steps.
mkdir bin
cat >bin/banyan <<END
#!/bin/sh
case "\$*" in "train --data "*) exec "$banyan" "\$@" --minutes 0.3 --set train.steps=4 --set train.eval_batches=1 ;; esac
case "\$*" in "assistant "*" --minutes "*) exec "$banyan" "\$@" --minutes 0.2 ;; esac
case "\$*" in "train "*" --minutes "*) exec "$banyan" "\$@" --minutes 0.01 ;; esac
case "\$*" in "generate "*" --image"*) exec "$banyan" "\$@" --steps 5 ;; esac
case "\$1 \$2" in
"train --resume") exec "$banyan" "\$@" ;;
"train examples/bert_small.yaml") set -- "\$@" --set train.batch=8 ;;
esac
case "\$1" in
train) exec "$banyan" "\$@" --set train.steps=4 --set train.eval_every=2 --set train.eval_batches=1 ;;
profile) exec "$banyan" "\$@" --steps 1 ;;
esac
case "\$*" in
"launch "*--dry-run*) ;;
"launch "*" train "*) exec "$banyan" "\$@" --set train.steps=4 --set train.eval_every=2 --set train.eval_batches=1 ;;
esac
exec "$banyan" "\$@"
END
chmod +x bin/banyan
PATH=$work/bin:$PATH
for folder in examples scripts docs deploy; do
    ln -s "$root/$folder" .
done
# Its characters cover the prompts of the documents; models are evaluated on all of it.
head -n 1000 text.txt >play.txt
{ cat play.txt && echo "ROMEO: In the beginning" && cat play.txt; } >input.txt
# Files of 500 images and labels in the form of MNIST's, and a table with a category and missing cells.
{ printf '\000\000\010\003\000\000\001\364\000\000\000\034\000\000\000\034' && head -c 392000 "$banyan"; } |
    gzip >t10k-images-idx3-ubyte.gz
{
    printf '\000\000\010\001\000\000\001\364'
    for _ in $(seq 50); do printf '\000\001\002\003\004\005\006\007\010\011'; done
} | gzip >t10k-labels-idx1-ubyte.gz
awk 'BEGIN {
    print "age,rooms,near,median_house_value"
    for (i = 1; i <= 400; i++) printf "%d,%s,%s,%d\n", i % 50, i % 7 ? i * 37 % 11 : "", i % 3 ? "SEA" : "LAND", 1000 + i * 7 % 90
}' >housing.csv

# Pictures of two classes, of two sizes.
python3 - <<'END' || fail "no pictures"
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for name in ("stripes", "checks"):
    os.makedirs(f"pictures/{name}")
    for i in range(20):
        side = 32 + i % 2 * 8
        rows = b"".join(b"\0" + b"".join(bytes([(x // 4 + (y // 4 if name == "checks" else 0) + i) % 2 * 200, i, y])
                                         for x in range(side)) for y in range(side))
        with open(f"pictures/{name}/{i}.png", "wb") as out:
            out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                      chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END

# blocks FILE: writes the sh blocks as block.N, preceded by a line "# only" where they are only checked.
blocks() {
    rm -f block.*
    awk '
        /^<!-- check only/ { only = 1 }
        /^```sh$/ { inside = 1; file = sprintf("block.%02d", ++count); printf "%s\n", only ? "# only" : "set -e" >file; next }
        /^```$/ && inside { inside = 0; only = 0; close(file); next }
        inside { print >file }
    ' "$1"
}

for document in README.md CONTRIBUTING.md docs/*.md; do
    blocks "$root/$document"
    for block in block.*; do
        [ -e "$block" ] || continue
        if [ "$(head -n 1 "$block")" = "# only" ]; then
            say "$document: programs of a block exist"
            # The suite builds one preset, which stands for the others.
            sed 's/#.*//; s|build/debug/|build/release/|' "$block" | while read -r program rest; do
                [ -z "$program" ] || command -v "$program" >/dev/null || [ -x "$root/$program" ] || echo "$program $rest"
            done >missing
            [ ! -s missing ] || fail "$document: $(cat missing)"
        else
            say "$document: $(sed -n 2p "$block") ..."
            run 0 sh "$block"
        fi
    done
    say "$document: links"
    sed 's/](/\n](/g' "$root/$document" | sed -n 's/^](\([^)#]*\).*/\1/p' | while read -r link; do
        case $link in http*) continue ;; esac
        [ -e "$root/$(dirname "$document")/$link" ] || echo "$link"
    done >missing
    [ ! -s missing ] || fail "$document: no such file: $(cat missing)"
    say "$document: paths in it exist"
    grep -o '`[A-Za-z_./]*`' "$root/$document" | tr -d '`' |
        grep -E '^(src|tests|scripts|docs|include|bench|examples)/.*[a-z]$' | grep -v NAME | sort -u | while read -r path; do
        [ -e "$root/$path" ] || echo "$path"
    done >missing
    [ ! -s missing ] || fail "$document: no such path: $(cat missing)"
done

say "the schedule that docs/parallelism.md shows is the one that its command prints"
run 0 sh -c "$(grep '^banyan plot --schedule [^>]*$' "$root/docs/parallelism.md" | grep -v -e --out)"
sed -n '/^```text$/,/^```$/p' "$root/docs/parallelism.md" | grep -v '^```' >documented
same out documented

say "every command of the program is in README.md, and the other way round"
"$banyan" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | sort >commands
sed -n 's/^| `banyan \([a-z]*\)[a-z ]*` .*/\1/p' "$root/README.md" | sort >documented
same commands documented

say "so is every exit code"
"$banyan" --help | sed -n 's/^  \([0-9][0-9 +N]*[0-9N]\|[0-9]\)   *\(.*\)/\1 \2/p' >commands
sed -n 's/^| \([0-9][0-9 +N]*\) | \(.*\) |$/\1 \2/p' "$root/README.md" >documented
[ "$(wc -l <commands)" -eq 10 ] || fail "banyan --help lists $(wc -l <commands) exit codes"
same commands documented
