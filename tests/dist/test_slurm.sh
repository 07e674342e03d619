#!/bin/sh
# Debian's Slurm on one node: srun starts ranks that train together, and deploy/slurm.sh runs as a job that is
# asked to stop, saves, goes back into the queue and is done later, with the bits of one rank.
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/mpi.sh"

skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "Slurm's daemons need root"
for program in munged slurmctld slurmd srun sbatch; do
    command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
    command -v "$program" >/dev/null || skip "Slurm is not installed: there is no $program"
done

# ---- the cluster: its daemons end with the test ----

cluster=$work/slurm
node=$(hostname)
daemons=
stop_cluster() {
    [ -z "$daemons" ] || scancel --user root --quiet 2>/dev/null
    for pid in $daemons; do kill "$pid" 2>/dev/null; done
    for pid in $daemons; do wait "$pid" 2>/dev/null; done
}
on_exit=stop_cluster
mkdir -p "$cluster/spool" "$cluster/state" "$cluster/run"
chmod 755 "$work" "$cluster"
(umask 077 && head -c 1024 /dev/urandom >"$cluster/munge.key")
ports=$(python3 -c 'import socket
both = [socket.socket() for _ in range(2)]
for s in both: s.bind(("", 0))
print(*(s.getsockname()[1] for s in both))') || fail "no free ports"
cat >"$cluster/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
AuthType=auth/munge
AuthInfo=socket=$cluster/run/munge.sock,cred_expire=30
MessageTimeout=100
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool
SlurmctldPidFile=$cluster/run/slurmctld.pid
SlurmdPidFile=$cluster/run/slurmd.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=pmix
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
export SLURM_CONF="$cluster/slurm.conf"
# daemon NAME COMMAND...: in the background
daemon() {
    name=$1
    shift
    "$@" >"$cluster/$name.out" 2>&1 &
    daemons="$daemons $!"
}
daemon munged munged --force --foreground --key-file="$cluster/munge.key" --socket="$cluster/run/munge.sock" \
    --pid-file="$cluster/run/munged.pid" --log-file="$cluster/munged.log" --seed-file="$cluster/munge.seed"
for _ in $(seq 3000); do [ -S "$cluster/run/munge.sock" ] && break; sleep 0.05; done
daemon slurmctld slurmctld -D -c
daemon slurmd slurmd -D
for _ in $(seq 3000); do
    timeout 60 sinfo -h -o %t 2>/dev/null | grep -q idle && break
    sleep 0.1
done
timeout 60 sinfo -h -o %t 2>/dev/null | grep -q idle || { tail -n 5 "$cluster"/*.out; fail "the node is not idle"; }

# ---- training ----

tiny gpt2 >c.yaml
steps="--set train.steps=400 --set checkpoint.every=50 --set train.threads=1"
# shellcheck disable=SC2086
run 0 "$banyan" train c.yaml --quiet --set name=one --set train.micro_batch=4 $steps
digest() { "$banyan" checkpoint digest "runs/$1/checkpoints/step-00000400" | sed 's/ .*//'; }
same_end() {
    digest one >one.digest
    digest "$1" >its.digest
    [ -s one.digest ] || fail "an empty digest"
    same one.digest its.digest
}

say "srun -n 2 banyan train: two ranks, the bits of one"
# shellcheck disable=SC2086
run 0 timeout 6800 srun -n 2 "$banyan" train c.yaml --quiet --set name=srun --set train.micro_batch=4 $steps
same_end srun
[ "$(ls -d runs/srun*)" = runs/srun ] || fail "the ranks trained apart: $(ls runs)"

say "deploy/slurm.sh: asked to stop, saved, back in the queue, done"
job=$(BANYAN="$banyan" sbatch --parsable --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --output=job.out --export=ALL \
    "$root/deploy/slurm.sh" runs/job c.yaml --set train.micro_batch=4 --set train.steps=400 --set checkpoint.every=50 \
    --set train.threads=1 --quiet) || fail "sbatch"
state() { squeue -h -j "$job" -o %T 2>/dev/null; }
until grep -q -s '"step":50,' runs/job/events.jsonl; do
    [ -n "$(state)" ] || { cat job.out; fail "the job ended early"; }
    sleep 0.05
done
scancel --batch --signal=TERM "$job"
for _ in $(seq 3000); do
    grep -q "all ranks save and exit" job.out && [ "$(state)" != RUNNING ] && break
    sleep 0.1
done
holds job.out "all ranks save and exit"
holds runs/job/run.json '"status": "stopped"'
for _ in $(seq 3000); do
    [ -z "$(state)" ] || [ "$(state)" = COMPLETED ] && break
    sleep 0.1
done
holds job.out "--resume runs/job --from-start"
exists runs/job/checkpoints/step-00000400/manifest.json
same_end job
