#!/bin/sh
# What deploy/ holds: the manifest's fields are those of MPIJob v2beta1 (and a wrong one is found), its command
# and flags are banyan's, the image has every library that the program is linked to, the scripts are valid.
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
sed -n 's/\\$//; /^FROM debian:12$/,$p' "$root/deploy/Dockerfile" | tr ' ' '\n' >words
objdump -p "$banyan" | sed -n 's/^ *NEEDED *//p' | while read -r library; do
    path=$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')
    package=$(dpkg -S "$(readlink -f "$path")" 2>/dev/null | sed 's/:.*//; q')
    case $package in '' | libc6) continue ;; esac
    grep -q -x -F "$package" words || echo "$library ($package)"
done >missing
[ ! -s missing ] || fail "the image lacks: $(cat missing)"
[ -x "$root/scripts/setup" ] || fail "the image's build needs scripts/setup"
