#!/bin/bash
# Training on Slurm. The supervisor runs on the first node of the job. It restarts the ranks from the newest checkpoint
# when a node fails, and saves at the time limit or on preemption; the job is then requeued and resumes.
#
#   sbatch deploy/slurm.sh RUN CONFIG [FLAG]...     RUN: run directory, e.g. runs/small, shared by all nodes
#
#SBATCH --job-name=banyan
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
# SIGTERM two minutes before the end, to this script only:
#SBATCH --signal=B:TERM@120
set -u

run=$1
config=$2
shift 2
banyan=${BANYAN:-banyan}

hosts=$(mktemp) || exit 1
trap 'rm -f "$hosts"' EXIT
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/ slots=${SLURM_NTASKS_PER_NODE:-1}/" >"$hosts"

if [ -e "$run/config.yaml" ]; then
    set -- --resume "$run" --from-start "$@"
else
    set -- "$config" --set "name=$(basename "$run")" --set "run.dir=$(dirname "$run")" "$@"
fi
"$banyan" launch --hostfile "$hosts" --grace 90s train "$@" &
supervisor=$!
trap 'kill -TERM "$supervisor"' TERM

# A signal interrupts `wait` before the supervisor has ended.
wait "$supervisor"
code=$?
while kill -0 "$supervisor" 2>/dev/null; do
    wait "$supervisor"
    code=$?
done

# Saved but not done: requeue.
if [ "$code" -eq 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
