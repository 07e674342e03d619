#!/bin/sh
# Two hosts, made of network namespaces, with a link of 1 Gbit/s and 1 ms: the ranks end as one rank does, bit for
# bit; when the link is cut, or a host is gone, the job goes on with the host that is left.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/hosts.sh"
command -v mpirun >/dev/null || skip "there is no mpirun (Debian: openmpi-bin)"

hosts_up 2 1000 1000
tiny gpt2 >c.yaml
printf 'n1 slots=1\nn2 slots=1\n' >hostfile
common="--quiet --set train.steps=40 --set checkpoint.every=5 --set train.micro_batch=4 --set train.threads=1"

digest() { "$banyan" checkpoint digest "runs/$1/checkpoints/step-00000040" | sed 's/ .*//'; }
same_end() {
    digest one >one.digest
    digest "$1" >its.digest
    [ -s one.digest ] || fail "an empty digest"
    same one.digest its.digest
}
# start NAME [SILENCE]: the job in the background on n1, until it trains
start() {
    on n1 "$banyan" launch --hostfile hostfile --silence "${2:-1000s}" --threads 1 train c.yaml --set "name=$1" $common >out 2>err &
    background=$!
    wait_for '"step":8,' "runs/$1/events.jsonl"
}
ends_with() {
    wait "$background"
    code=$?
    background=
    [ "$code" -eq "$1" ] || { cat err >&2; fail "the supervisor ended with $code, not $1"; }
}

say "doctor: two hosts, the link's delay, the line that starts a job on them"
run 0 on n1 "$banyan" doctor --hostfile hostfile
holds out "host n1,"
holds out "host n2,"
holds out "all ranks have the same build"
latency=$(awk '/^latency/ { getline; getline; print $3; exit }' out)
awk -v l="$latency" 'BEGIN { exit !(l >= 1000) }' || { cat out; fail "a latency of $latency us over a link of 1000"; }
holds out "mpirun -n 2 --host n1:1,n2:1 "
holds out "--mca btl_tcp_if_include 10.77.0.0/24"

say "two hosts train the bits of one rank"
# shellcheck disable=SC2086
run 0 "$banyan" train c.yaml --set name=one $common
# shellcheck disable=SC2086
run 0 on n1 "$banyan" launch --hostfile hostfile --threads 1 train c.yaml --set name=two $common
same_end two

say "a link that is cut: named, and the job goes on with the host that is left"
start cut 10s
cut_link n2
ends_with 0
holds err "rank 1 (host n2) was not heard of for "
holds err "host n2 cannot be reached and is not used"
holds err "1 of 2 ranks fit on"
same_end cut
mend_link n2

say "a host that is asked to stop, as a spot instance is: all save, and the job goes on with the other"
start spot
kill -TERM "$(ip netns pids "$hosts_id-2" | while read -r pid; do
    [ "/proc/$pid/exe" -ef "$banyan" ] && echo "$pid"
done | head -n 1)" || fail "there is no rank on n2"
ends_with 0
holds err "all ranks save and exit"
holds err "continuing on the remaining hosts"
if grep -q "restart 1 of" err; then fail "it counts as a failure"; fi
same_end spot

say "a host that is gone when the job is started again"
start gone
touch down.2
kill -9 "$(ip netns pids "$hosts_id-2" | while read -r pid; do
    [ "/proc/$pid/exe" -ef "$banyan" ] && echo "$pid"
done | head -n 1)" || fail "there is no rank on n2"
ends_with 0
holds err "crash: rank 1 (host n2)"
holds err "host n2 cannot be reached and is not used"
same_end gone
rm -f down.2
