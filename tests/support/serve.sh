# Servers of tiny models, for scripts that source this behind shell.sh, POSIX sh.
server=
aside= # another process that must not outlive the script
end_server() {
    # shellcheck disable=SC2046
    [ -z "$server" ] || kill -9 $(ps -o pid= --ppid "$server") "$server" 2>/dev/null
    [ -z "$aside" ] || kill -9 "$aside" 2>/dev/null
}
on_exit=end_server
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# train_tiny: the run runs/tiny, with a context in which answers take a while.
train_tiny() {
    tiny gpt2 >c.yaml
    # Deep enough that streams last for some tenths of a second: processes are killed in the middle of them.
    run 0 "$banyan" train c.yaml --quiet --set model.context=1024 --set model.layers=4 --set train.batch=1 \
        --set train.steps=2 --set optimizer.warmup=1 --set train.threads=1
}
# serve_models MODEL... FLAG...: its address is in $url, its process in $server. A gateway that is started again has the
# same address with $listen, a port that is free.
listen=127.0.0.1:0
serve_models() {
    rm -f url
    # Workers give way only a little: tests run beside each other.
    "$banyan" serve --listen "$listen" --dir "$work/sock" --threads 1 --set worker.nice=1 "$@" >url 2>log &
    server=$!
    while [ ! -s url ]; do
        kill -0 "$server" 2>/dev/null || { cat log >&2; fail "the server has ended"; }
        sleep 0.1
    done
    url=$(cat url)
}
serve() { serve_models runs/tiny "$@"; }
# await_ready: until the server at $url takes requests.
await_ready() { until curl -sf "$url/health/ready" >/dev/null; do sleep 0.1; done; }
serve_ready() {
    serve "$@"
    await_ready
}
# stop: SIGTERM, behind which it ends without an error.
stop() {
    kill -TERM "$server"
    wait "$server" || { tail -n 20 log >&2; fail "the server ended with an error"; }
    server=
    ! grep sandbox_violation log || fail "a process asks for what it gave up"
}
# broker_script [PAUSE]: what the broker runs in Redis, as its link loads it, with two edges of histograms. Milliseconds
# without a call are a pause when there are more than PAUSE (an hour): two calls of a test may be far apart on a busy machine.
broker_script() {
    grep -q '^local PAUSE, .* = 1500,' "$root/src/serve/link/redis/redis_jobs.lua" || return 1
    echo '#!lua flags=allow-oom'
    echo "local PROTOCOL = '${PROTOCOL:-1}'"
    echo "local TASK_WAIT, TASK_TURN = ${TASK_WAIT:-3600000}, 8"
    echo 'local EDGES = {0.1, 1}'
    sed "s/^\(local PAUSE, .* = \)1500,/\1${1:-3600000},/" "$root/src/serve/link/redis/redis_jobs.lua"
    cat "$root/src/serve/link/redis/redis_versions.lua" "$root/src/serve/link/redis/redis_broker.lua"
}
# answers WANTED OPERATION ARGUMENT...: what $script gives, in one line ($got), must match the pattern. It runs in database 5
# of the Redis at the port $script_port.
script=script.lua
script_port=
answers() {
    wanted=$1
    shift
    got=$(redis-cli -p "$script_port" -n 5 --eval "$script" , "$@" 2>/dev/null | paste -s -d ' ')
    # shellcheck disable=SC2254
    case $got in
    $wanted) ;;
    *) fail "$1 gives '$got', not '$wanted': $*" ;;
    esac
}
