# Sourced by the tests of this folder: makes hosts out of network and host-name namespaces, each with a veth pair to a
# bridge, a name, an address, an sshd and a /dev/shm of its own. All of it lives in namespaces of this test's process tree,
# and is gone with it. The hosts share processes and files; memory of one they cannot map on another, so that
# ranks of two hosts meet over the network, as those of two machines do.
#
#   begin_hosts SHOAL SCRIPT...   runs the calling script again in its own namespaces, or skips (77) with a reason
#   start_hosts N                 worker-0 to worker-N-1, 10.77.0.10 and up; the launcher is 10.77.0.1 (head)
#   on_host I COMMAND...          in the namespaces of worker-I
#   memory_of I                   its /dev/shm, as the launcher sees it
#   cut_host I, mend_host I       takes its link down and up
#   lose_frames I PERCENT         its link loses so many of a hundred packets, each way; end_loss I
#   can_lose                      why not, or nothing
#   stop_sshd I, start_sshd I      kills its sshd and the sessions; starts it again
skip() {
    echo "skipped: $*"
    exit 77
}
begin_hosts() {
    [ "${SHOAL_HOSTS_INSIDE:-}" = 1 ] && return
    local tool
    [ "$(id -u)" -eq 0 ] || skip "only root makes network namespaces"
    for tool in ip:iproute2 unshare:util-linux nsenter:util-linux ssh:openssh-client ssh-keygen:openssh-client; do
        command -v "${tool%:*}" >/dev/null || skip "${tool%:*} is not installed (package ${tool#*:})"
    done
    [ -x /usr/sbin/sshd ] || skip "sshd is not installed (package openssh-server)"
    local namespaces="--net --uts --mount --propagation private" processes="--pid --fork --kill-child --mount-proc"
    unshare $namespaces true 2>/dev/null || skip "this machine makes no namespaces (unshare: not permitted)"
    # processes in one of their own end with the test, however that ends
    unshare $namespaces $processes true 2>/dev/null && namespaces+=" $processes"
    unshare --net sh -c 'ip link add type veth' 2>/dev/null || skip "this machine makes no veth pairs"
    [ -z "${folder:-}" ] || rmdir "$folder" # the script begins again, and makes another one
    SHOAL_HOSTS_INSIDE=1 exec unshare $namespaces "$@"
}

hosts_pids=()
host_pid=()
sshd_pid=()
end_hosts() {
    local pid
    for pid in "${sshd_pid[@]}"; do
        kill -9 $(sessions_of "$pid") "$pid" 2>/dev/null
    done
    for pid in "${hosts_pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$folder"
}
start_hosts() {
    local count=$1 i pid address
    trap end_hosts EXIT
    hostname head
    ip link set lo up
    ip link add name hub type bridge && ip link set hub up && ip addr add 10.77.0.1/24 dev hub || skip "this machine makes no bridge"
    printf '127.0.0.1 localhost\n10.77.0.1 head\n' >"$folder/names"
    for ((i = 0; i < count; i++)); do echo "10.77.0.$((10 + i)) worker-$i" >>"$folder/names"; done
    mount --bind "$folder/names" /etc/hosts || skip "this machine lets nobody put another /etc/hosts in place"
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key" && cp "$folder/key.pub" "$folder/allowed"
    cat >"$folder/ssh_config" <<CONFIG
Host *
  IdentityFile $folder/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile $folder/known
  LogLevel ERROR
CONFIG
    mkdir -p /run/sshd
    mount -t tmpfs -o mode=1777 none /dev/shm || skip "this machine mounts no tmpfs"
    for ((i = 0; i < count; i++)); do
        address=10.77.0.$((10 + i))
        ssh-keygen -q -t ed25519 -N '' -f "$folder/host-$i"
        unshare --net --uts --ipc --mount --propagation private \
            sh -c 'mount -t tmpfs -o mode=1777 none /dev/shm && exec sleep 1000000' >/dev/null 2>&1 </dev/null &
        pid=$!
        disown
        hosts_pids+=("$pid")
        host_pid[i]=$pid
        until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ] && [ "$(cat /proc/$pid/comm)" = sleep ]; do sleep 0.01; done
        ip link add name "h$i" type veth peer name eth0 netns "$pid" || skip "this machine makes no veth pairs"
        ip link set "h$i" master hub up
        on_host "$i" sh -c "hostname worker-$i; ip link set lo up; ip addr add $address/24 dev eth0; ip link set eth0 up"
        cat >"$folder/sshd-$i" <<CONFIG
Port 22
ListenAddress $address
HostKey $folder/host-$i
PidFile none
AuthorizedKeysFile $folder/allowed
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
UsePAM no
UseDNS no
MaxStartups 100
CONFIG
        start_sshd "$i"
    done
    for ((i = 0; i < count; i++)); do
        await_sshd "$i" || skip "sshd does not let anybody in: $(cat "$folder/said" "$folder/sshd-$i.log")"
    done
}
on_host() {
    local i=$1
    shift
    # Another mount namespace begins in its root.
    nsenter --target "${host_pid[i]}" --net --uts --ipc --mount sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}
memory_of() { echo "/proc/${host_pid[$1]}/root/dev/shm"; }
# start_sshd I [SCRIPT]: after the script, in a mount namespace of its own, for a host with files of its own
start_sshd() {
    local sshd="exec /usr/sbin/sshd -D -f '$folder/sshd-$1' -E '$folder/sshd-$1.log'"
    # No function: it would be a shell beside the process that is meant.
    nsenter --target "${host_pid[$1]}" --net --uts --ipc --mount unshare --mount --propagation private \
        sh -c "${2:-true} && $sshd" >/dev/null 2>&1 </dev/null &
    sshd_pid[$1]=$!
    disown
    hosts_pids+=("$!")
}
# Until the host lets us in.
await_sshd() {
    local tries
    for tries in $(seq 100); do
        ssh -F "$folder/ssh_config" "worker-$1" true 2>"$folder/said" </dev/null && return
        sleep 0.1
    done
    return 1
}
# The sessions are its children, and theirs.
stop_sshd() {
    local pid
    for pid in $(sessions_of "${sshd_pid[$1]}") "${sshd_pid[$1]}"; do kill -9 "$pid" 2>/dev/null; done
    while kill -0 "${sshd_pid[$1]}" 2>/dev/null; do sleep 0.01; done # its address is free for the next
}
sessions_of() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        [ "$(cat /proc/"$child"/comm 2>/dev/null)" = sshd ] || continue
        echo "$child"
        sessions_of "$child"
    done
}
# netem where the kernel has it; else another link for the host (tests/tools/wire.c: $wire), with its address and its
# name: UCX takes the names of devices from /sys, which shows those of the machine.
wire_pid=
has_netem() { tc qdisc add dev lo root netem loss 0% 2>/dev/null && tc qdisc del dev lo root; }
can_lose() {
    has_netem || [ -x "${wire:-}" ] || echo "this kernel has no netem, and there is no wire (target wire)"
    has_netem || [ -c /dev/net/tun ] || echo "this machine has neither netem nor /dev/net/tun"
}
lose_frames() {
    local address=10.77.0.$((10 + $1)) tries
    if has_netem; then
        tc qdisc add dev "h$1" root netem loss "$2%" && on_host "$1" tc qdisc add dev eth0 root netem loss "$2%"
        return
    fi
    "$wire" $$ "${host_pid[$1]}" --loss "$2" --segments --name loss >"$folder/wire" 2>&1 </dev/null &
    wire_pid=$!
    disown
    hosts_pids+=("$wire_pid")
    for tries in $(seq 100); do
        grep -q '^ready' "$folder/wire" && break
        sleep 0.05
    done
    grep -q '^ready' "$folder/wire" || { complain "no lossy link: $(cat "$folder/wire")" && return 1; }
    cut_host "$1"
    on_host "$1" sh -c "ip addr del $address/24 dev eth0; ip link set eth0 down; ip link set eth0 name spare
        ip link set loss1 name eth0; ip addr add $address/24 dev eth0 && ip link set eth0 up"
    ip link set loss0 master hub up
    forget_neighbours
}
end_loss() {
    tc qdisc del dev "h$1" root 2>/dev/null
    on_host "$1" tc qdisc del dev eth0 root 2>/dev/null
    [ -n "$wire_pid" ] || return 0
    kill "$wire_pid"
    while kill -0 "$wire_pid" 2>/dev/null; do sleep 0.01; done
    wire_pid=
    on_host "$1" sh -c "ip link set spare name eth0; ip addr add 10.77.0.$((10 + $1))/24 dev eth0; ip link set eth0 up"
    mend_host "$1"
    forget_neighbours
}
forget_neighbours() {
    local i
    ip neigh flush all 2>/dev/null
    for i in "${!host_pid[@]}"; do on_host "$i" ip neigh flush all 2>/dev/null; done
}
cut_host() { ip link set "h$1" down; }
mend_host() { ip link set "h$1" up; }
