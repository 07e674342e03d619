#!/bin/sh
# Communicators over MPI: the cases of tests/support/comm_cases.c under mpirun, with ranks that read each
# other's memory and with ranks that send messages as if they were on different hosts; then ranks that
# disagree, are late, fail and die, which every other rank must say or mpirun must end.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/support/mpi.sh

program=build/release/tests/comm_ranks
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
problems=0

complain() {
    echo "$*"
    tail -n 12 "$output"
    problems=$((problems + 1))
}

# ranks N MODE: into $output
ranks() {
    mpi_run "$1" "$program" "$2" >"$output" 2>&1
}

# expect WHERE N MODE TEXT: the ranks fail, and at least one line has the text
expect() {
    if ranks "$2" "$3"; then
        complain "$1, $2 ranks, $3: did not fail"
    fi
    grep -q "$4" "$output" || complain "$1, $2 ranks, $3: no \"$4\""
}

if ! "$program" all >"$output" 2>&1 || ! grep -q 'rank 0: ok' "$output"; then
    complain "one process without mpirun"
fi
for where in near far; do
    if [ "$where" = far ]; then
        BANYAN_COMM_FAR=1
        export BANYAN_COMM_FAR
    fi
    for n in 1 2 3 4; do
        ranks "$n" all || complain "$where, $n ranks"
        [ "$(grep -c ': ok$' "$output")" = "$n" ] || complain "$where, $n ranks: not all are ok"
    done
    ranks 4 mesh || complain "$where, mesh of 4 ranks"
    expect "$where" 3 kind 'rank 0 (.*) calls all-reduce "gradients" (f32, 16000 bytes), but rank 2 (.*) calls barrier'
    expect "$where" 3 late 'rank 2 (.*) did not come to all-reduce "gradients" .*all-reduce "warm-up"'
    expect "$where" 3 fail 'rank 2: disk /data is full'
    grep -q 'rank [01]: rank 2 (.*): disk /data is full' "$output" ||
        complain "$where: the others were not told why rank 2 failed"
    ranks 3 die && complain "$where: a rank was killed, and mpirun says nothing"
done

# Hosts of two ranks: messages and memory together.
BANYAN_COMM_FAR=2
for n in 3 4 5; do
    ranks "$n" all || complain "hosts of two, $n ranks"
    [ "$(grep -c ': ok$' "$output")" = "$n" ] || complain "hosts of two, $n ranks: not all are ok"
done
ranks 4 mesh || complain "hosts of two, mesh of 4 ranks"
ranks 4 bytes || complain "hosts of two, bytes between them"
BANYAN_COMM_FAR=3
ranks 5 all || complain "hosts of three and two"
unset BANYAN_COMM_FAR
mpi_run 2 build/release/banyan bench comm --largest 1 --json >"$output" 2>&1 || complain "bench comm"
[ "$(grep -c '"backend":"mpi","ranks":2,.*"mpi_allreduce_gbps":.*"ratio":.*]}$' "$output")" = 1 ] ||
    complain "bench comm: not one line of JSON with both sums"

[ "$problems" -eq 0 ] || { echo "$problems problems"; exit 1; }
echo "communicators over MPI do what those of threads do"
