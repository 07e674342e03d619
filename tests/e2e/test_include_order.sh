#!/bin/sh
# A module includes only modules below it, in src/ and through the public headers, file names are unique, and comments
# name what exists.
#
# Each line of `modules`: a module, then the modules that it may include. `headers` says whose the public headers
# are. The command line stands on public headers and its own alone.
set -u
cd "$(dirname "$0")/../.." || exit 1

below_train="base config graph ops passes device store comm exec nn optim data checkpoint track drift"
modules="base:
config: base
graph: base
ops: base graph
passes: base graph ops
device: base
store: base device
comm: base
exec: base graph ops passes device store comm
nn: base config graph ops passes device store comm exec
optim: base config graph ops passes device store comm exec nn
data: base config
checkpoint: base device store comm
export: $below_train
drift: base
track: base
train: $below_train export
infer: $below_train export
plan: $below_train
compress: $below_train export train infer plan
serve: $below_train export train infer plan compress"

# The modules of src/serve, and which of the others each may include; all may include what lies in src/serve itself.
serve_modules="serve:
http:
observe:
link: observe
client: http link
broker: observe link
features: observe link
gateway: http observe link features
worker: observe link
deploy: observe link
pool: http observe link features gateway deploy"

headers="adapter=checkpoint json=base status=base exit=base executable=base text=base dtype=base shape=base packing=base op=base device=device comm=comm config=config graph=graph map=graph ops=ops passes=passes
program=exec
model=nn optimizer=optim data=data array_set=data table=data pack=data tokenizer=data text_stream=data chat=data checkpoint=checkpoint export=export track=track train=train launch=train task=train predictor=train pipeline=train runs=train
infer=infer engine=infer draft=infer beam=infer constraint=infer logit_process=infer machine=plan profile=plan serve=serve serve_config=serve drift=drift drift_report=serve compress=compress"

problems=0
complain() {
    echo "$1"
    problems=$((problems + 1))
}

module_of_header() {
    for pair in $headers; do
        [ "${pair%=*}" = "$1" ] && { echo "${pair#*=}"; return; }
    done
}

# may MODULE OTHER: true when MODULE may include OTHER.
may() {
    [ "$1" = "$2" ] && return 0
    for other in $(echo "$modules" | sed -n "s/^$1: *//p"); do
        [ "$other" = "$2" ] && return 0
    done
    return 1
}

# check_serve FILE MODULE: what a file of src/serve includes of its modules.
check_serve() {
    allowed=$(echo "$serve_modules" | sed -n "s/^$2: *//p")
    echo "$serve_modules" | grep -q "^$2:" || complain "$1: a module of src/serve that this test does not know"
    for other in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"serve\/\([^"\/]*\)\/[^"]*".*/\1/p' "$1"); do
        case " $2 $allowed " in
        *" $other "*) ;;
        *) complain "$1: serve/$2 may not include serve/$other" ;;
        esac
    done
}

# check_file FILE MODULE: every quoted include of a file that belongs to a module.
check_file() {
    for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$1"); do
        case $include in
        banyan/banyan.h) other=umbrella ;;
        revision.h | redis_broker_script.h | serve_page.h) other=base ;; # made by the build
        banyan/*)
            other=$(module_of_header "$(basename "$include" .h)")
            [ -n "$other" ] || complain "$1: $include belongs to no module that this test knows"
            ;;
        */*) other=${include%%/*} ;;
        *) other=nothing ;;
        esac
        may "$2" "$other" || complain "$1: $2 may not include \"$include\" ($other)"
    done
}

for folder in src/*/; do
    module=$(basename "$folder")
    [ "$module" = cli ] && continue
    echo "$modules" | grep -q "^$module:" || complain "$folder: a module that this test does not know"
    for file in $(find "$folder" -name '*.[ch]' -o -name '*.inc'); do
        check_file "$file" "$module"
    done
done

for file in $(find src/serve -name '*.[ch]'); do
    check_serve "$file" "$(basename "$(dirname "$file")")"
done

for file in include/banyan/*.h; do
    name=$(basename "$file" .h)
    [ "$name" = banyan ] && continue
    module=$(module_of_header "$name")
    if [ -n "$module" ]; then
        check_file "$file" "$module"
    else
        complain "$file belongs to no module that this test knows"
    fi
done

for file in src/cli/*.[ch] examples/*.c; do
    [ -e "$file" ] || continue
    for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file"); do
        case $include in
        banyan/*) [ -e "include/$include" ] || complain "$file: there is no $include" ;;
        *) [ -e "$(dirname "$file")/$include" ] ||
            complain "$file: \"$include\" is neither public nor its own" ;;
        esac
    done
done

# A header of include/banyan may share its name with the module's own (graph.h); nothing else may.
for name in $(find src tests bench examples -type f \( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' \) \
    2>/dev/null | grep -v '/\.venv/' | sed 's|.*/||' | sort | uniq -d); do
    complain "two files are named $name: $(find src tests bench examples -name "$name" 2>/dev/null | tr '\n' ' ')"
done

# Internal names and names of C files in comments exist; NAME stands for any, and what ends in an underscore for all
# that begin so. A name with a path may be another project's.
missing=$(python3 - <<'END'
import pathlib
import re

comment = re.compile(r"/\*.*?\*/", re.S)
files = [f for folder in ("include", "src") for f in sorted(pathlib.Path(folder).rglob("*.[ch]"))]
texts = {f: f.read_text() for f in files}
there = {f.name for f in files}
for text in texts.values():
    there.update(re.findall(r"\bby__\w+", comment.sub(" ", text)))
for f, text in texts.items():
    for words in comment.findall(text):
        for name in re.findall(r"\bby__[a-z0-9_]*[a-z0-9]\b|(?<![\w./-])[a-z0-9_]+\.c\b", words):
            if name not in there:
                print(f"{f}: there is no {name}, which a comment names")
END
)
[ -z "$missing" ] || complain "$missing"

[ "$problems" -eq 0 ] || { echo "$problems problems"; exit 1; }
echo "every include points downwards"
