#!/bin/sh
# The supervisor with four ranks: one that is killed in a step, in a collective and in a save, one that is
# stopped, one that is asked to stop. No run is lost, and each ends with the bits of a run left alone. Ranks
# that would compute other bits are refused. Then banyan doctor on ranks.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

tiny gpt2 >c.yaml
set -- train c.yaml --quiet --set train.steps=320 --set checkpoint.every=10 --set train.eval_every=160 \
    --set train.batch=16 --set train.micro_batch=2 --set train.threads=1 --set train.log_every=1

# start ARGUMENT...: `banyan launch -n 4` of the run "job" in the background, until its ranks train.
start() {
    rm -rf runs/job
    "$banyan" launch -n 4 "$@" >out 2>err &
    background=$!
    wait_for '"step":12,' runs/job/events.jsonl
}
# The process of a rank. It may be no child of mpirun: that of Open MPI 5 is prterun, and starts a daemon.
rank_pid() {
    for process in /proc/[0-9]*; do
        if [ "$process/exe" -ef "$banyan" ] && [ "$process/cwd" -ef "$work" ] &&
            tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -q -x "OMPI_COMM_WORLD_RANK=$1"; then
            echo "${process#/proc/}"
        fi
    done
}
is_launcher() { case $(cat "$1/comm" 2>/dev/null) in mpirun | prterun | prted | orted) ;; *) false ;; esac; }
signal_rank() { kill "-$2" "$(rank_pid "$1")" || { cat err >&2; fail "there is no rank $1"; }; }
ends_with() {
    wait "$background"
    code=$?
    background=
    [ "$code" -eq "$1" ] || { cat err >&2; fail "the supervisor ended with $code, not $1"; }
    for process in /proc/[0-9]*; do
        if [ "$process/cwd" -ef "$work" ] && { [ "$process/exe" -ef "$banyan" ] || is_launcher "$process"; }; then
            fail "a process of the job is left: $process"
        fi
    done
}
digest() { "$banyan" checkpoint digest "$1" | sed 's/ .*//'; }
same_end() {
    digest runs/whole/checkpoints/step-00000320 >whole.digest || fail "no digest"
    digest runs/job/checkpoints/step-00000320 >job.digest || fail "no digest"
    [ -s whole.digest ] || fail "an empty digest"
    same whole.digest job.digest
    without_time runs/whole/events.jsonl >whole.events
    without_time runs/job/events.jsonl >job.events
    same whole.events job.events
}

run 0 "$banyan" "$@" --set name=whole
set -- "$@" --set name=job

say "kill -9 of rank 3 in a step"
start "$@"
signal_rank 3 KILL
ends_with 0
holds err "crash: rank 3 (host "
holds err "restart 1 of 10"
same_end

say "kill -9 of rank 2 while it waits in a collective"
# When it comes to wait there is not seen from outside: a kill that came too early is made again, later.
for delay in 0.3 1 3 9 27; do
    start --silence 100s "$@"
    signal_rank 1 STOP
    sleep "$delay"
    signal_rank 2 KILL
    ends_with 0
    holds err "crash: rank 2 (host "
    same_end
    if grep -q -F "last collective: waits in " err; then break; fi
done
holds err "last collective: waits in "

say "kill -9 of rank 1 in a save, which all ranks write"
start "$@" --set parallel.writers=4 --set checkpoint.every=2
pid=$(rank_pid 1)
saving() {
    for directory in runs/job/checkpoints/step-*.tmp*; do [ -e "$directory" ] && return 0; done
    return 1
}
until saving; do
    kill -0 "$background" 2>/dev/null || { cat err >&2; fail "the job was over before a save was seen"; }
done
kill -KILL "$pid" || fail "there is no rank 1"
ends_with 0
holds err "crash: rank 1 (host "
same_end

say "a rank that is stopped: named, with the last thing it did; the job goes on"
start --silence 10s "$@"
signal_rank 2 STOP
ends_with 0
holds err "hang: rank 2 (host "
grep -q "was not heard of for [0-9]* s: step " err || { cat err >&2; fail "the silence is not named"; }
same_end

for victim in 0 3; do
    say "SIGTERM to rank $victim: all save, code 3; two ranks go on to the same end"
    start "$@"
    signal_rank "$victim" TERM
    ends_with 3
    holds err "all ranks save and exit"
    run 0 "$banyan" launch -n 2 train --resume runs/job --quiet
    same_end
done

say "steps that fit into a time"
run 0 "$banyan" launch -n 2 train --minutes 0.002 c.yaml --quiet --set name=timed --set optimizer.warmup=0.1 \
    --set train.threads=1
exists runs/timed/config.yaml

say "micro-batches fit the ranks by themselves; a resume on other ranks keeps them"
set_aside=$*
set -- train c.yaml --quiet --set optimizer.warmup=0.05 --set checkpoint.every=2 --set train.threads=1
run 0 "$banyan" launch -n 4 "$@" --set train.steps=4 --set name=fitting
holds runs/fitting/config.yaml "  micro_batch: 2"
holds runs/fitting/config.yaml "  warmup: 0"
run 0 "$banyan" "$@" --set train.steps=4 --set name=given --set train.micro_batch=2
for name in fitting given; do
    run 0 "$banyan" checkpoint digest runs/$name/checkpoints/step-00000004
    mv out $name.digest
done
same given.digest fitting.digest
rm -r runs/fitting/checkpoints/step-00000004
run 0 "$banyan" launch -n 3 train --resume runs/fitting --quiet
holds runs/fitting/config.yaml "  micro_batch: 2"
run 0 "$banyan" checkpoint digest runs/fitting/checkpoints/step-00000004
same given.digest out
# shellcheck disable=SC2086
set -- $set_aside

say "a configuration that does not fit the ranks is found before any rank starts"
run 2 "$banyan" launch -n 6 "$@" --set train.batch=8
holds err "fewer than the 6 ranks"
run 2 "$banyan" launch -n 4 "$@" --set parallel.data=3
if grep -q OMP_NUM_THREADS err; then fail "ranks were started"; fi

say "ranks of another build, another config or other data are refused before they train"
cp "$banyan" other-build && printf x >>other-build
mkdir elsewhere && cp c.yaml elsewhere && { cat text.txt && cat text.txt; } >elsewhere/text.txt
# Two ranks with the same arguments; rank 1 has a command of its own before them (env sets what differs).
cat >pair.sh <<'END'
own=$1 program=$2
shift 2
# shellcheck disable=SC2086
[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec $program "$@" || exec $own "$@"
END
pair() { timeout 6800 mpirun --bind-to none -n 2 sh "$work/pair.sh" "$@"; }
refused_pair() { # refused_pair TEXT COMMAND [ARGUMENT...]: rank 0 trains, rank 1 has the command and the arguments
    text=$1
    own=$2
    shift 2
    pair "$own train c.yaml $*" "$banyan train c.yaml" --quiet --set train.threads=1 --set train.micro_batch=2 \
        --set name=pair >out 2>err
    case $? in
    2 | 6) ;; # of whichever rank mpirun sees first
    *) cat err >&2 && fail "these ranks train together: $own $*" ;;
    esac
    holds err "$text"
    [ ! -e runs/pair/checkpoints ] || fail "they trained"
}
refused_pair "runs another build of banyan" ./other-build
refused_pair "the hash of the config is" "$banyan" --set seed=2
refused_pair "the hash of the config's section parallel is" "$banyan" --set parallel.overlap=false
refused_pair "the hash of the training data is" "env -C $work/elsewhere $banyan"

say "ranks whose kernels give other bits are refused, and doctor shows them"
pair "env BANYAN_ISA=baseline $banyan" "$banyan" "$@" --set name=mixed >out 2>err
case $? in
2 | 6) ;; # of whichever rank mpirun sees first: the one that is wrong, or its peer
*) cat err >&2 && fail "ranks of different kernels train together" ;;
esac
holds err "rank 1 ("
holds err "computes with kernels for baseline"
run 1 pair "env BANYAN_ISA=baseline $banyan" "$banyan" doctor
holds out "DIFFERENT    level:"
holds out "so training refuses to start"

say "doctor: alone, and with ranks"
run 0 "$banyan" doctor
holds out "launch       OMP_NUM_THREADS="
run 0 "$banyan" doctor --ranks 3 --json
for key in '"ranks":3' '"same":true' '"single_copy":' '"clock":' '"latency_s":[[' '"bytes_per_s":[['; do
    holds out "$key"
done
