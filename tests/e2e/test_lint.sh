#!/bin/sh
# scripts/lint judges with one version of clang-format and clang-tidy, and without it fails instead of passing: in a copy
# that sees programs of another version.
. "$(dirname "$0")/../support/shell.sh"

mkdir -p copy/scripts bin
cp "$root/scripts/lint" copy/scripts/
for program in sh env dirname grep sed git xargs awk cat mkdir chmod; do
    ln -s "$(command -v "$program")" bin/
done
# A layout that only version 14 accepts.
fake() { printf '#!/bin/sh\ncase $1 in --version) echo "clang version %s" ;; *) exit %d ;; esac\n' "$2" "$3" >"$1" && chmod +x "$1"; }
fake bin/clang-format 19.1.7 1
fake bin/clang-tidy 19.1.7 0
echo "int a;" >copy/a.c
lint() { env PATH="$work/bin" "$work/copy/scripts/lint" "$@"; }
install_nothing() { printf '#!/bin/sh\nexit 1\n' >copy/scripts/lint-env && chmod +x copy/scripts/lint-env; }

say "another version of the tools"
install_nothing
run 1 lint format
holds err "there is no clang-format 14"
run 77 lint tidy
holds out "skipped: there is no clang-tidy 14"

say "a folder that git does not know"
fake bin/clang-format-14 14.0.6 0
run 1 env GIT_DIR=/nowhere PATH="$work/bin" "$work/copy/scripts/lint" format
holds err "git names no sources"

say "the version that counts, of the system and installed"
git init -q copy && git -C copy add a.c
run 0 lint format
rm bin/clang-format-14
cat >copy/scripts/lint-env <<'END'
#!/bin/sh
mkdir -p build/venv-lint/bin
printf '#!/bin/sh\necho "clang-format version 14.0.6"\n' >build/venv-lint/bin/clang-format
chmod +x build/venv-lint/bin/clang-format
END
run 0 lint format

say "ok"
