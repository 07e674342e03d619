#!/bin/sh
# What deploy/ holds: the manifest's fields are those of MPIJob v2beta1 (and a wrong one is found), its command
# and flags are banyan's, the image has every library that the program is linked to, the scripts are valid. What
# deploys a server: Kubernetes' own schemas, systemd and promtool accept it, and its metrics and commands exist.
# tests/dist/test_slurm.sh runs the Slurm script.
. "$(dirname "$0")/../support/shell.sh"
check="$root/tests/e2e/check_deploy.py"

say "mpijob.yaml"
run 0 python3 "$check" "$root/deploy/mpijob.yaml"
for change in 's/slotsPerWorker: 2/slotsPerWorker: two/' 's/slotsPerWorker/slotPerWorker/' 's/WaitForWorkersReady/Wait/' \
    's/    Worker:/    Workers:/' 's/claimName: banyan/claim: banyan/' 's/terminationGracePeriodSeconds: 120/terminationGracePeriodSeconds: 30/'; do
    sed "$change" "$root/deploy/mpijob.yaml" >wrong.yaml
    run 1 python3 "$check" wrong.yaml
done

say "its launcher's command, with a banyan that prints its arguments"
mkdir bin
printf '#!/bin/sh\necho "$@"\n' >bin/banyan
chmod +x bin/banyan
python3 -c 'import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
container = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
print(container["args"][0].replace("/data", sys.argv[2]))' "$root/deploy/mpijob.yaml" "$work/data" >launcher.sh
PATH=$work/bin:$PATH run 0 sh -c "$(cat launcher.sh)"
[ "$(cat out)" = "launch --hostfile /etc/mpi/hostfile --grace 90s train $work/data/config.yaml --set name=job --set run.dir=$work/data/runs" ] ||
    fail "the launcher's first command is: $(cat out)"
mkdir -p data/runs/job && : >data/runs/job/config.yaml
PATH=$work/bin:$PATH run 0 sh -c "$(cat launcher.sh)"
[ "$(cat out)" = "launch --hostfile /etc/mpi/hostfile --grace 90s train --resume $work/data/runs/job --from-start" ] ||
    fail "the launcher's later command is: $(cat out)"
echo "n1.banyan.default.svc slots=2" >hostfile
run 0 "$banyan" launch --hostfile hostfile --grace 90s --dry-run train c.yaml

say "slurm.sh"
run 0 bash -n "$root/deploy/slurm.sh"

say "proxies"
if command -v openssl >/dev/null && command -v nginx >/dev/null && command -v haproxy >/dev/null; then
    run 0 openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout key.pem -out cert.pem
    cat cert.pem key.pem >both.pem
    sed "s|/etc/ssl/certs/banyan.pem|$work/cert.pem|; s|/etc/ssl/private/banyan.key|$work/key.pem|; s|/run/nginx.pid|$work/nginx.pid|" \
        "$root/deploy/proxy/nginx.conf" >nginx.conf
    run 0 nginx -t -q -e stderr -c "$work/nginx.conf"
    sed "s|/etc/ssl/private/banyan.pem|$work/both.pem|" "$root/deploy/proxy/haproxy.cfg" >haproxy.cfg
    run 0 haproxy -c -q -f haproxy.cfg
else
    say "nginx, haproxy or openssl are not installed: their files are not checked"
fi

say "Dockerfile: packages of the libraries"
# Their names are those of the system that builds the image: the file names none of them.
"$root/deploy/library-packages" "$banyan" >packages
for package in $(cat packages); do
    dpkg-query -L "$package" 2>/dev/null || fail "$package is not a package here"
done >files
objdump -p "$banyan" | sed -n 's/^ *NEEDED *//p' | grep -v '^libc\.\|^libm\.\|^ld-linux' >needed
while read -r library; do
    grep -q -F "/$library" files || echo "$library"
done <needed >missing
[ ! -s missing ] || fail "the image lacks: $(cat missing)"
grep -E '^ +(&& )?lib[a-z0-9-]+|apt-get.* lib' "$root/deploy/Dockerfile" && fail "a library's package is named"
[ "$(grep -c '^FROM ${SYSTEM} AS' "$root/deploy/Dockerfile")" = 2 ] || fail "the image is built on another system than it runs on"
holds "$root/deploy/Dockerfile" "RUN deploy/library-packages build/release/banyan >/packages"
holds "$root/deploy/Dockerfile" "xargs -a /tmp/packages apt-get install"
[ "$(sed -n '/^FROM job AS serve$/,$s/^USER //p' "$root/deploy/Dockerfile")" = 10001:10001 ] || fail "a server's image runs as root"
[ -x "$root/scripts/setup" ] || fail "the image's build needs scripts/setup"

say "a server: manifests, compose, dashboard, rules, by the metrics of one that runs"
server="$root/tests/e2e/check_server_deploy.py"
# The schemas come from PyPI; without them the rest is checked.
python=$root/build/venv-deploy/bin/python
"$root/scripts/deploy-env" >env.log 2>&1 || python=python3
"$banyan" broker --dir "$work/sock" 2>log &
broker=$!
began=$(date +%s)
"$banyan" gateway --dir "$work/sock" --listen 127.0.0.1:0 --set feedback.directory=feedback \
    --set payload.directory=payload >url 2>>log &
gateway=$!
on_exit="kill $broker $gateway"
until [ -s url ]; do sleep 0.1; done
until curl -sf "$(cat url)/metrics" >metrics && grep -q banyan_version_share metrics; do sleep 0.1; done
# What a probe is told is no error of the server.
[ "$(curl -s -o out -w '%{http_code}' "$(cat url)/health/ready")" = 503 ] || fail "ready without a worker: $(cat out)"
run 0 curl -sf -o metrics "$(cat url)/metrics"
holds metrics 'banyan_ready 0'
# To a second, as the kernel says when it was booted.
awk -v from="$began" -v to="$(date +%s)" '$1 == "process_start_time_seconds" { good = $2 > from - 2 && $2 < to + 2 } END { exit !good }' metrics ||
    fail "$(grep process_start_time metrics), and it began behind $began"
holds metrics 'banyan_http_requests_total{status="5xx"} 0'
kill "$gateway" "$broker"
wait
on_exit=:
run 0 "$python" "$server" "$root/deploy" metrics
cp -r "$root/deploy" copy
for change in 'gateway.yaml s/periodSeconds: 2$/periodSecond: 2/' 'worker.yaml s/terminationGracePeriodSeconds: 90/terminationGracePeriodSeconds: 30/' \
    'network.yaml s/app: banyan-redis/app: redis/' 'autoscale-keda.yaml s/metricType: Value/metricType: AverageValue/' \
    'autoscale-keda.yaml s/metricType: AverageValue/metricType: Value/' 'autoscale-keda.yaml s/IfHigher/IfLower/' \
    'autoscale-keda.yaml s/behavior: current/behaviour: current/' 'autoscale-keda.yaml s/banyan_time_to_first/banyan_first/' \
    'autoscale-keda.yaml s/replicas: 4/replica: 4/'; do
    file=copy/kubernetes/${change%% *}
    sed -i "${change#* }" "$file"
    # A wrong name of a field is found by the schemas alone, all else without them, in a tenth of the time.
    checks=python3
    case $change in
    gateway* | *replica:*)
        [ "$python" != python3 ] || { cp "$root/deploy/kubernetes/${change%% *}" "$file" && continue; }
        checks=$python
        ;;
    esac
    run 1 "$checks" "$server" copy metrics
    cp "$root/deploy/kubernetes/${change%% *}" "$file"
done
"$python" "$server" "$root/deploy" commands >commands
[ "$(grep -c . commands)" -ge 8 ] || fail "commands: $(cat commands)"
# Each is refused for what is not there, never for a flag.
while read -r command; do
    eval "set -- $command"
    one=$1
    shift
    "$banyan" "$one" --help >help 2>&1
    for word in "$@"; do
        case $word in --*) grep -q -e "  $word " help || fail "banyan $one has no $word" ;; esac
    done
done <commands

say "systemd units"
if command -v systemd-analyze >/dev/null; then
    mkdir units
    for unit in "$root"/deploy/systemd/*.service; do
        sed "s|/usr/local/bin/banyan|$banyan|" "$unit" >"units/$(basename "$unit")"
    done
    run 0 systemd-analyze verify --man=no units/*.service
    [ ! -s err ] || fail "$(cat err)"
fi

say "alerts"
if command -v promtool >/dev/null; then
    run 0 promtool test rules "$root/deploy/prometheus/alerts_test.yml"
    sed 's|/etc/prometheus/key|/dev/null|; s|alerts.yml|'"$root"'/deploy/prometheus/alerts.yml|' "$root/deploy/prometheus/prometheus.yml" >prometheus.yml
    run 0 promtool check config prometheus.yml
    promtool check metrics <metrics >out 2>&1 || fail "$(cat out)"
fi
