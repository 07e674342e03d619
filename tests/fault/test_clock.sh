#!/bin/sh
# The wall clock jumps while a run goes on, and between two of its processes: nothing stalls, nothing is lost,
# rates and times stay what they are, and checkpoints are kept by their steps.
. "$(dirname "$0")/../support/shell.sh"

"$root/scripts/tracking-env" || {
    echo "skipped: scripts/tracking-env could not install tensorboard, wandb and mlflow"
    exit 77
}
python=$root/build/venv-tracking/bin/python

# The calls that tell the wall clock, shifted by the seconds in the file `shift`. Clocks that nobody sets are
# left alone, as a step of the clock leaves them.
cat >shift.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds(void)
{
    long shift = 0;
    FILE *file = fopen(SHIFT, "r");
    if (file != NULL) {
        shift = fscanf(file, "%ld", &shift) == 1 ? shift : 0;
        fclose(file);
    }
    return shift;
}
int clock_gettime(clockid_t clock, struct timespec *out)
{
    long result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && clock == CLOCK_REALTIME) {
        out->tv_sec += seconds();
    }
    return (int)result;
}
time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
END
cc -shared -fPIC -O1 -DSHIFT="\"$work/shift\"" -o shift.so shift.c || fail "the shim does not compile"
set_clock() { echo "$1" >shift.tmp && mv shift.tmp shift; }
set_clock 3600
near "$(LD_PRELOAD="$work/shift.so" "$python" -c 'import time; print(time.time())')" "$(($(date +%s) + 3600))" 1000
set_clock 0

tiny gpt2 >c.yaml
export ROOT="$root"
set -- --set "track.sinks=[tensorboard, wandb]" --set train.steps=200 --set train.eval_every=50 --set checkpoint.every=20 \
    --set track.norms_every=50 --set track.system_every=10
run 0 "$banyan" train c.yaml "$@" --set name=calm

say "an hour forward and two hours back while a run goes on"
env LD_PRELOAD="$work/shift.so" "$banyan" train c.yaml "$@" --set name=run >log 2>err &
background=$!
wait_for '"event":"train","step":40,' runs/run/events.jsonl
set_clock 3600
wait_for '"event":"train","step":80,' runs/run/events.jsonl
set_clock -3600
wait_for '"event":"train","step":120,' runs/run/events.jsonl
kill -KILL "$background"
wait "$background" 2>/dev/null
background=

say "... and it goes on from its newest checkpoint, with the clock still an hour behind"
run 0 env LD_PRELOAD="$work/shift.so" "$banyan" train --resume runs/run
same runs/calm/checkpoints/step-00000200/model.safetensors runs/run/checkpoints/step-00000200/model.safetensors
ls runs/calm/checkpoints >calm.list
ls runs/run/checkpoints >run.list
same calm.list run.list
run 0 "$banyan" runs ls --json
holds out '"name":"run"'
[ "$(field status <runs/run/run.json)" = done ] || fail "run.json does not say done"

say "... with all events, in order, at times that only grow, and rates above 0"
run 0 "$python" - runs/calm runs/run <<'END'
import glob, json, os, sys
sys.path.insert(0, os.path.join(os.environ["ROOT"], "tests", "e2e"))
from read_tracking import records_of
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

def events(run):
    return [json.loads(line) for line in open(run + "/events.jsonl")]
def grows(times, what):
    assert times == sorted(times), what
    assert times[-1] - times[0] < 1800, (what, times[-1] - times[0])
clocked = ("time", "tokens_per_s", "mfu")
calm, run = ([{k: v for k, v in e.items() if k not in clocked} for e in events(r) if e["event"] not in ("system", "plan", "use")]
             for r in sys.argv[1:])
assert calm == run
grows([e["time"] for e in events(sys.argv[2])], "events.jsonl")
for e in events(sys.argv[2]):
    for key, value in e.items():
        if key.endswith("_per_s") or key.endswith("_seconds"):
            assert 0 <= value < 1e7, (key, value)
files = sorted(glob.glob(sys.argv[2] + "/tensorboard/events.*"))
assert len(files) == 2, files
grows([e.wall_time for f in files for e in EventFileLoader(f).Load()], "tensorboard")
assert max(e.step for e in EventFileLoader(files[1]).Load()) == 200
files = sorted(glob.glob(sys.argv[2] + "/wandb/offline-run-*/run-*.wandb"))
assert len(files) == 2, files
rows = [{i.key: json.loads(i.value_json) for i in r.history.item}
        for f in files for r in records_of(f) if r.WhichOneof("record_type") == "history"]
grows([r["_timestamp"] for r in rows], "wandb")
assert all(r["_runtime"] >= 0 for r in rows)
END
