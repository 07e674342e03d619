#!/bin/sh
# docs/extending.md is true: its code, put into a copy of the tree where the comments above the blocks say, is
# compiled without a warning, and its commands run there.
#
#   <!-- file PATH -->            the block is a new file
#   <!-- after PATH: TEXT -->     the block goes after the first line of PATH that contains TEXT
#   <!-- then ... -->             the block is run in the copy, whose program is build/banyan
. "$(dirname "$0")/../support/shell.sh"

copy=$work/tree
mkdir "$copy"
(cd "$root" && tar cf - CMakeLists.txt cmake include src examples tests) | tar xf - -C "$copy"

python3 - "$root/docs/extending.md" "$copy" <<'END' || fail "docs/extending.md does not fit the tree"
import os, re, sys
page, copy = open(sys.argv[1]).read(), sys.argv[2]
blocks = re.findall(r"^<!-- (file|after|then)\b(.*?) -->\n```\w+\n(.*?)^```$", page, re.M | re.S)
if not blocks:
    sys.exit("no block has a place")
for kind, where, text in blocks:
    if kind == "then":
        open(os.path.join(copy, "commands.sh"), "a").write(text)
        continue
    path, _, line = where.strip().partition(": ")
    target = os.path.join(copy, path)
    if kind == "file":
        if os.path.exists(target):
            sys.exit(f"{path} is there already")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").write(text)
        continue
    lines = open(target).read().splitlines(keepends=True)
    at = next((i for i, have in enumerate(lines) if line in have), None)
    if at is None:
        sys.exit(f"no line of {path} holds '{line}'")
    lines.insert(at + 1, text)
    open(target, "w").write("".join(lines))

# The table of what an addition touches: as many files as it says and no more than these, which exist but for NAME, and
# which are those of the code on the page.
MOST = {"an op": 7, "a pass": 4, "a model": 4, "a task": 4, "a transform": 3, "an optimizer": 4, "a format": 4,
        "a command": 3, "a route of the server": 3, "a device": 2}
rows = re.findall(r"^\| (an? [a-z ]+) \| (\d+) \| (.*) \|$", page, re.M)
if {title for title, _, _ in rows} != set(MOST):
    sys.exit(f"the table has {sorted(title for title, _, _ in rows)}")
for title, count, which in rows:
    listed = re.findall(r"`([^`]+)`", which)
    if len(listed) != int(count) or int(count) > MOST[title]:
        sys.exit(f"{title}: {count} files, at most {MOST[title]}: {listed}")
    for path in listed:
        if not re.search("NAME|SUBJECT", path) and not path.startswith("docs/") and not os.path.exists(os.path.join(copy, path)):
            sys.exit(f"{title}: there is no {path}")
    section = page.partition(f"\n## Add {title}\n")[2].split("\n## ")[0]
    files = {where.strip().partition(": ")[0] for _, where in re.findall(r"^<!-- (file|after)\b(.*?) -->$", section, re.M)}
    unlisted = [f for f in files if not any(re.fullmatch(re.sub("NAME|SUBJECT", r"\\w+", re.escape(p)), f) for p in listed)]
    if unlisted or len(files) > int(count):
        sys.exit(f"{title}: the table lacks {unlisted}")
END

say "the code of the page compiles"
# What sees it is compiled; all else is taken from the build that is tested: sources that no block changes, whose files
# neither name an op, which has another number now, nor a level of the kernels, of which the copy has one. Blocks add to
# headers declarations and numbers only.
mkdir taken
python3 - "$(cd "$(dirname "$banyan")" && pwd)" "$root" "$copy" taken <<'END' || fail "what the copy shares with the build"
import functools, os, pathlib, re, shutil, subprocess, sys
build, root, copy, taken = map(pathlib.Path, sys.argv[1:])
NUMBERS = re.compile(rb"\bBY_OP_[A-Z]|\bBY_OPS\b|\bby__op_row_in\b|\bBY_HAS_")
DEFINITIONS = {root / "include/banyan/op.h", root / "src/ops/ops.h"}

@functools.lru_cache(maxsize=None)
def kind_of(path):
    """Of a file that an object depends on: not the tree's own, a source, or what the copy sees in another way."""
    path = pathlib.Path(os.path.normpath(build / path))
    if root not in path.parents or build in path.parents:
        return "foreign"
    text, twin = path.read_bytes(), copy / path.relative_to(root)
    if path.suffix != ".h" and text != twin.read_bytes() or path not in DEFINITIONS and NUMBERS.search(text):
        return "changed"
    return "source" if path.suffix == ".c" and root / "src" in path.parents else "same"

if not (build / "compile_commands.json").exists() or "BY_SANITIZE:STRING=\n" not in (build / "CMakeCache.txt").read_text():
    sys.exit() # all is compiled
listing = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], check=True, stdout=subprocess.PIPE, text=True).stdout
for block in listing.split("\n\n"):
    target, _, lines = block.partition(":")
    kinds = {kind_of(line.strip()) for line in lines.split("\n")[1:]}
    if "source" in kinds and "changed" not in kinds and (build / target).exists():
        (taken / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / target, taken / target)
END
cat >compiler <<END
#!/bin/sh
# COMPILER ARGUMENT... -o OBJECT -c SOURCE
last=
for word in "\$@"; do
    [ "\$last" != -o ] || object=\$word
    last=\$word
done
[ -e "$work/taken/\$object" ] || exec "\$@"
exec cp "$work/taken/\$object" "\$object"
END
chmod +x compiler
# No optimization, without which gcc does not see that code for other lengths of vectors is dead.
run 0 cmake -S "$copy" -B "$copy/build/debug" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DBY_WERROR=ON \
    -DBY_KERNEL_LEVELS=baseline "-DCMAKE_C_COMPILER_LAUNCHER=$work/compiler" \
    "-DBY_KERNEL_OPTIMIZATION=-O0;-Wno-sign-conversion;-Wno-stringop-overread;-Wno-stringop-overflow"
run 0 cmake --build "$copy/build/debug" --target banyan_cli test_gradients test_kernels test_transforms
ln -s debug/banyan debug/tests "$copy/build"

say "its commands run"
(cd "$copy" && set -e && . ./commands.sh) >out 2>err || { tail -n 20 out err >&2; fail "a command of the page"; }
[ -s out ] || fail "the commands printed nothing"
