#!/bin/sh
# Every public header compiles alone, as C17 and as C++17, without a warning, and declares C functions
# with C linkage in both. banyan/banyan.h includes all of them.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
problems=0

# compile LANGUAGE STANDARD COMPILER HEADER
compile() {
    command -v "$3" >/dev/null || return 0
    printf '#include "%s"\n#include "%s"\n' "$4" "$4" >"$work/alone.$1"
    if ! "$3" -std="$2" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$work/alone.$1"; then
        echo "$4 does not compile alone as $2 with $3"
        problems=$((problems + 1))
    fi
}

command -v cc >/dev/null || { echo "there is no C compiler"; exit 1; }
for path in include/banyan/*.h; do
    header=${path#include/}
    for compiler in cc clang; do
        compile c c17 "$compiler" "$header"
    done
    for compiler in c++ clang++; do
        compile cpp c++17 "$compiler" "$header"
    done
    [ "$header" = banyan/banyan.h ] || grep -q -x -F "#include \"$header\"" include/banyan/banyan.h || {
        echo "banyan/banyan.h lacks $header"
        problems=$((problems + 1))
    }
    if grep -q BY_API "$path" && ! grep -q 'extern "C"' "$path"; then
        echo "$header declares functions without extern \"C\""
        problems=$((problems + 1))
    fi
done
[ "$problems" -eq 0 ] || exit 1
echo "every public header stands alone"
