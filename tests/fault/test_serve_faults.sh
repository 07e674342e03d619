#!/bin/sh
# Parts of a server that die, stop, are full or slow, under load, with either broker: what was accepted is answered
# once and right, or fails with an error that says so; tasks end with their one result.
#   SECONDS_SLOW=12 tests/fault/test_serve_faults.sh   also outlasts the time after which a link to Redis is given up
. "$(dirname "$0")/../support/shell.sh"
. "$root/tests/support/serve.sh"
faults="$root/tests/fault/serve_faults.py"
on_exit=end_all
end_all() {
    end_server
    [ ! -s redis.pid ] || kill -9 "$(cat redis.pid)" 2>/dev/null
}
# The last lines say what was wrong, those before what the server did.
cause() {
    python3 "$faults" "$url" "$@" 2>wrong || {
        grep -v '"event":"request"' log | tail -n 20 >&2
        tail -n 5 wrong | cut -c 1-2000 >&2
        fail "$1"
    }
}

train_tiny

# The clock of processes that load it is set by the seconds in the file `shift`; clocks that nobody sets go on. The
# engine of the process whose number the file `hang` holds hangs. Both are mapped before a sandbox forbids to open files.
cat >shift.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *shift_text, *hang_text;

static const char *map(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *text = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    if (text == MAP_FAILED) {
        abort();
    }
    close(file);
    return text;
}
__attribute__((constructor)) static void map_both(void)
{
    shift_text = map(SHIFT);
    hang_text = map(HANG);
}
static long seconds(void)
{
    return shift_text != NULL ? atol(shift_text) : 0;
}
/* What the engine's thread calls behind each step. */
int uv_async_send(void *handle)
{
    int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "uv_async_send");
    while (hang_text != NULL && atol(hang_text) == getpid()) {
        usleep(10000);
    }
    return real(handle);
}
int clock_gettime(clockid_t clock, struct timespec *out)
{
    long result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        out->tv_sec += seconds();
    }
    return (int)result;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return result;
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
END
printf "%-15s\n" 0 >shift
printf "%-15s\n" 0 >hang
cc -shared -fPIC -O1 -DSHIFT="\"$work/shift\"" -DHANG="\"$work/hang\"" shift.c -o shift.so -ldl

say "the embedded broker"
# A gateway that is started again is found where it was.
listen=127.0.0.1:$(free_port)
LD_PRELOAD="$work/shift.so" serve --workers 2
for what in worker_kill worker_stop broker_kill gateway_kill disk_full; do cause "$what" "$server"; done
cause clock "$server" shift="$work/shift"
stop

say "a worker by hand that hangs ends"
"$banyan" broker --dir "$work/sock" 2>log &
aside=$!
LD_PRELOAD="$work/shift.so" "$banyan" worker runs/tiny --dir "$work/sock" --threads 1 --hang 5 2>>log &
background=$!
rm -f url
"$banyan" gateway --dir "$work/sock" --listen 127.0.0.1:0 >url 2>>log &
server=$!
wait_for http url
url=$(cat url)
await_ready
printf "%-15s\n" "$background" 1<>hang
curl -s -m 1700 "$url/v1/completions" -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "apple"}' >answer &
asked=$!
wait "$background"
code=$?
background=
[ "$code" = 4 ] || fail "a worker that hangs ended with $code"
holds log "banyan worker: no engine step in 5 s (--hang)"
kill "$asked"
stop
printf "%-15s\n" 0 1<>hang
kill "$aside"
aside=

command -v redis-server >/dev/null || {
    echo "skipped: redis-server is not installed"
    exit 77
}
port=$(free_port)
cat >redis.conf <<END
port $port
bind 127.0.0.1
daemonize yes
dir $work
pidfile $work/redis.pid
logfile $work/redis.log
appendonly yes
appendfsync always
save ""
enable-debug-command yes
END

say "Redis"
# On a busy machine workers may count as lost that only wait: a request may lose many of them.
LD_PRELOAD="$work/shift.so" redis-server redis.conf
LD_PRELOAD="$work/shift.so" serve --workers 2 --broker "redis://127.0.0.1:$port?silence=3&hang=3&attempts=100"
for what in worker_kill worker_stop gateway_kill; do cause "$what" "$server"; done
cause worker_pause "$server" redis="$port"
cause worker_hang "$server" file="$work/hang"
cause redis_kill "$server" conf="$work/redis.conf" pid="$work/redis.pid" redis="$port"
for what in redis_full redis_slow; do cause "$what" "$server" redis="$port"; done
[ -z "${SECONDS_SLOW:-}" ] || cause redis_slow "$server" redis="$port" seconds="$SECONDS_SLOW"
cause clock "$server" shift="$work/shift"
stop
# Nothing is left of what was answered: tasks stay until they expire, and nothing else.
left=$(redis-cli -p "$port" eval "local n = redis.call('XLEN', 'banyan:queue:tiny:normal') + redis.call('ZCARD', 'banyan:deadlines')
    for _, k in ipairs(redis.call('KEYS', 'banyan:job:*')) do if redis.call('HEXISTS', k, 'o') == 0 then n = n + 1 end end return n" 0)
[ "$left" = 0 ] || fail "$left requests are left in Redis"
