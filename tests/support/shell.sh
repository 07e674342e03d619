# What the test scripts share; sourced by them, POSIX sh. Every check prints what it looks at; the first
# that is wrong ends the script. The text and the configs are made here: no test needs a file that is not in the repository.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
banyan=${BANYAN:-$root/build/release/banyan}
work=$(cd "$(mktemp -d "${TMPDIR:-/tmp}/banyan-test-XXXXXX")" && pwd -P)
# Threads that wait give way, the measured peak of the machine is kept between tests, and no server of this user is in
# the way of a test's.
export OMP_WAIT_POLICY=passive XDG_CACHE_HOME="$root/build/test-cache" XDG_RUNTIME_DIR="$work/.runtime"
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 1
# Containers often tell Python to keep no bytecode: each import of PyTorch and transformers would compile them anew, for
# ten seconds.
unset PYTHONDONTWRITEBYTECODE

background=
on_exit=:
clean_up() {
    [ -z "$background" ] || kill -9 "$background" 2>/dev/null
    $on_exit
    # What is left of a test that ended early, such as the ranks of an mpirun, would write while it is removed.
    cd /
    left=$(find /proc/[0-9]*/cwd -prune -lname "$work*" 2>/dev/null | cut -d / -f 3)
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -9 $left 2>/dev/null
    rm -rf "$work" 2>/dev/null || { sleep 1 && rm -rf "$work"; }
}
trap clean_up EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1

say() { echo "check: $*"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# run CODE COMMAND...: standard output in out, standard error in err; the exit code must be CODE.
run() {
    wanted=$1
    shift
    "$@" >out 2>err
    code=$?
    if [ "$code" -ne "$wanted" ]; then
        tail -n 20 out err >&2
        fail "exit code $code, not $wanted, of: $*"
    fi
}
# Whether a file holds a fixed text.
holds() { grep -q -F -e "$2" "$1" || { tail -n 20 "$1" >&2; fail "$1 does not hold '$2'"; }; }
exists() { for path in "$@"; do [ -e "$path" ] || fail "$path does not exist"; done; }
same() { cmp "$1" "$2" >&2 || fail "$1 and $2 differ"; }
# A number or string of a line of JSON on standard input.
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# near A B BOUND: |A - B| <= BOUND.
near() {
    awk -v a="$1" -v b="$2" -v bound="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= bound && -d <= bound) }' ||
        fail "$1 and $2 differ by more than $3"
}
# Events without those that a clock decides (which rank was slow), and the others without such fields.
without_time() { sed '/"event":"straggler"/d; /"event":"config"/d; /"event":"plan"/d; /"event":"use"/d; s/"tokens_per_s":[^,]*,//; s/"exchange_seconds":[^,]*,"exposed_seconds":[^,]*,//; s/"mfu":[^,}]*,\{0,1\}//; s/,"time":[^}]*//' "$1"; }

# make_text FILE LINES: words drawn at random from sixteen, the same for everybody.
make_text() {
    awk -v lines="$2" 'BEGIN {
        count = split("apple bay cedar dune elm fern grove hill iris jade kelp lime moss nut oak pine", word, " ")
        state = 12345
        for (i = 0; i < lines; i++) {
            line = ""
            for (k = 0; k < 8; k++) {
                state = (state * 1103515245 + 12345) % 2147483648
                line = line word[1 + int(state / 65536) % count] (k < 7 ? " " : "")
            }
            print line
        }
    }' >"$1"
}

# tiny KIND: prints a config of a model that trains in seconds.
tiny() {
    cat <<END
name: tiny
model: {kind: $1, layers: 2, heads: 4, width: 64, context: 64, dropout: 0.1}
precision: {compute: f32}
data: {text: [text.txt], tokenizer: char, cache: cache}
train: {steps: 20, batch: 8, eval_every: 10, eval_batches: 4, log_every: 1}
optimizer: {lr: 3e-3, warmup: 5}
checkpoint: {every: 10, keep: 3}
run: {dir: runs}
END
}

# wait_for TEXT FILE: until the file holds a fixed text; the process in the background must live until then.
wait_for() {
    until grep -q -s -F -e "$1" "$2"; do
        kill -0 "$background" 2>/dev/null || { tail -n 20 "$2" >&2; fail "the process ended before $2 held '$1'"; }
        sleep 0.02
    done
}
# Until the process in the background is banyan and catches SIGTERM, bit 14 of the mask.
wait_for_handlers() {
    until [ "/proc/$background/exe" -ef "$banyan" ] &&
        [ $((0x$(sed -n 's/^SigCgt:[^0-9a-f]*//p' "/proc/$background/status") & 0x4000)) -ne 0 ]; do
        kill -0 "$background" 2>/dev/null || fail "the process ended before it caught signals"
        sleep 0.02
    done
}

# train_until STEP SIGNAL COMMAND...: runs `banyan train ... --json` in the background, sends SIGNAL as soon
# as STEP is reported, and leaves the exit code in $code. The run must still be going on then.
train_until() {
    until_step=$1
    signal=$2
    shift 2
    rm -f lines
    mkfifo lines
    "$@" >lines 2>err &
    background=$!
    reached=no
    while read -r line; do
        case $line in
        *'"event":"train","step":'"$until_step",*)
            kill "-$signal" "$background"
            reached=yes
            ;;
        esac
    done <lines
    wait "$background"
    code=$?
    background=
    [ "$reached" = yes ] || { cat err >&2; fail "the run ended before step $until_step"; }
}

[ -x "$banyan" ] || fail "$banyan does not exist; build it with: cmake --preset release && cmake --build build/release"
make_text text.txt 3000
