#!/bin/sh
# scripts/setup names packages that each supported system has: its package manager is played by scripts that know the
# names that differ.
. "$(dirname "$0")/../support/shell.sh"

mkdir fake
PATH=$work/fake:$PATH
# What `lacks` names is not in the archive; nothing is known before an update, and `has` names what is installed.
cat >fake/apt-cache <<'END'
#!/bin/sh
[ -e updated ] || exit 0
grep -q -x -F -e "$2" lacks || printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' "$2"
END
cat >fake/dpkg-query <<'END'
#!/bin/sh
sed 's/^/install ok installed /' has
END
cat >fake/apt-get <<'END'
#!/bin/sh
case $1 in
update) : >updated ;;
install)
    for package; do
        case $package in
        install | -*) ;;
        *)
            grep -q -x -F -e "$package" lacks && echo "E: Unable to locate package $package" >&2 && exit 100
            echo "$package" >>has
            ;;
        esac
    done
    ;;
esac
END
printf '#!/bin/sh\necho 0\n' >fake/id
chmod +x fake/*

# system NAME LACKED...: setup installs names that the system has, and a second time nothing.
system() {
    say "$1"
    shift
    rm -f updated has
    touch has
    printf '%s\n' "$@" >lacks
    run 0 "$root/scripts/setup"
    run 0 "$root/scripts/setup" --compile-tests
    for package in lld clang libcmocka-dev; do
        grep -q -x "$package" has || fail "$package is not installed"
    done
    grep -q -x redis-server has && fail "tests are not compiled with redis-server"
    run 0 "$root/scripts/setup" --tests
    cp out first
    for package in gcc cmake libuv1-dev libcmocka-dev clang redis-server; do
        grep -q -x "$package" has || fail "$package is not installed"
    done
    cp has before
    run 0 "$root/scripts/setup" --tests
    same has before
    grep -q installing out && fail "a second run installs something"
    true
}
system "Debian 12" ""
system "Debian 13" clang-format-14 clang-tidy-14 libclang-rt-14-dev libomp-14-dev libclang-common-14-dev libdnnl2
grep -q -x libclang-rt-dev has || fail "no sanitizers for clang"
holds first "not in the package archive of this system: clang-format-14 clang-tidy-14"
system "Ubuntu 22.04" libjpeg62-turbo-dev libclang-rt-dev libclang-rt-14-dev chromium
grep -q -x libclang-common-14-dev has || fail "no sanitizers for clang"
holds first "not in the package archive of this system: chromium"
system "Ubuntu 24.04" libjpeg62-turbo-dev libclang-rt-14-dev libomp-14-dev chromium

say "a system without oneDNN, which is optional, and one without libuv, which is not"
system "no oneDNN" libdnnl-dev
rm -f updated && : >has
echo libuv1-dev >lacks
run 1 "$root/scripts/setup"
holds err "none of these: libuv1-dev"

say "ok"
