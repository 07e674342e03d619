# Test hosts made of network namespaces; sourced behind shell.sh, root only. host_network joins them with
# links of a rate and a delay. Each has a name of its own (n1, n2, ...) and sees the others by name.
#
#   hosts_up COUNT [MBIT_PER_S] [DELAY_US]     exits with 77 (skipped) where namespaces are not permitted
#   on HOST COMMAND...                         runs a command on a host
#   cut_link HOST, mend_link HOST              takes its link down, and up again
# hosts_down is called at the end of the script. "$hosts_agent HOST COMMAND..." is what mpirun takes for ssh.

hosts_id=by$$
hosts_count=0
hosts_agent=$work/agent
hosts_network=

skip() {
    echo "skipped: $*"
    exit 77
}

hosts_down() {
    for i in $(seq "$hosts_count"); do
        for pid in $(ip netns pids "$hosts_id-$i" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip netns del "$hosts_id-$i" 2>/dev/null
    done
    [ -z "$hosts_network" ] || kill -9 "$hosts_network" 2>/dev/null
    for i in $(seq "$hosts_count"); do rm -rf "${TMPDIR:-/tmp}/ompi.n$i.0"; done
}

hosts_up() {
    [ "$(id -u)" -eq 0 ] || skip "hosts of network namespaces need root"
    ip netns add "$hosts_id-probe" 2>/dev/null || skip "network namespaces are not permitted"
    ip netns del "$hosts_id-probe"
    hosts_count=$1
    on_exit=hosts_down
    : >network.ready
    "$(dirname "$banyan")/tests/host_network" "$hosts_id." "$1" "${2:-1000}" "${3:-0}" >network.ready 2>network.err &
    hosts_network=$!
    until grep -q ready network.ready; do
        kill -0 "$hosts_network" 2>/dev/null || skip "no TUN devices: $(cat network.err)"
        sleep 0.02
    done
    echo "127.0.0.1 localhost" >hosts_names
    for i in $(seq "$1"); do echo "10.77.0.$i n$i" >>hosts_names; done
    for i in $(seq "$1"); do
        ip netns add "$hosts_id-$i" || fail "no namespace for host $i"
        ip link set "$hosts_id.$((i - 1))" netns "$hosts_id-$i"
        ip -n "$hosts_id-$i" link set lo up
        ip -n "$hosts_id-$i" addr add "10.77.0.$i/24" dev "$hosts_id.$((i - 1))"
        ip -n "$hosts_id-$i" link set "$hosts_id.$((i - 1))" mtu 9000 up
    done
    cat >"$hosts_agent" <<AGENT
#!/bin/sh
# HOST COMMAND...: the command, which a shell takes apart as ssh's would, on a host that answers.
host=\$1
shift
number=\${host#n}
[ -e "$work/down.\$number" ] && { echo "\$host does not answer" >&2; exit 255; }
exec ip netns exec "$hosts_id-\$number" unshare --uts --mount sh -c '
    hostname "\$0" && mount --bind "$work/hosts_names" /etc/hosts && cd "$work" && exec sh -c "\$1"' "\$host" "\$*"
AGENT
    chmod +x "$hosts_agent"
    export OMPI_MCA_plm_rsh_agent="$hosts_agent"
}

on() { "$hosts_agent" "$@"; }
cut_link() {
    touch "$work/down.${1#n}"
    ip -n "$hosts_id-${1#n}" link set "$hosts_id.$((${1#n} - 1))" down
}
mend_link() {
    rm -f "$work/down.${1#n}"
    ip -n "$hosts_id-${1#n}" link set "$hosts_id.$((${1#n} - 1))" up
}
