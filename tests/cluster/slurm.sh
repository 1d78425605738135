# Sourced by the test of Slurm: a cluster of this machine alone, with configuration, keys, state, ports and sockets in the
# test's folder. Everything runs in the foreground of a shell of its own, and is ended by its own process id.
#
#   begin_slurm SCRIPT...      in a mount namespace of its own, so that munge's socket is the test's; or skips (77)
#   start_slurm                munged, slurmctld and a slurmd per node; skips with a reason where one does not start
skip() {
    echo "skipped: $*"
    exit 77
}
begin_slurm() {
    [ "${SHOAL_SLURM_INSIDE:-}" = 1 ] && return
    local tool
    [ "$(id -u)" -eq 0 ] || skip "only root starts slurmd"
    for tool in srun:slurm-client scancel:slurm-client sinfo:slurm-client slurmctld:slurmctld slurmd:slurmd munged:munge \
        unshare:util-linux; do
        command -v "${tool%:*}" >/dev/null || [ -x "/usr/sbin/${tool%:*}" ] || skip "${tool%:*} is not installed (package ${tool#*:})"
    done
    unshare --mount true 2>/dev/null || skip "this machine makes no namespaces (unshare: not permitted)"
    SHOAL_SLURM_INSIDE=1 exec unshare --mount --propagation private "$@"
}

slurm_pids=()
end_slurm() {
    local pid tries
    # slurmd ends its steps; munged last, as all of them sign with it
    for pid in "${slurm_pids[@]:1}" "${slurm_pids[0]}"; do
        kill "$pid" 2>/dev/null || continue
        for tries in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        kill -9 "$pid" 2>/dev/null
    done
    # steps' managers carry the test's configuration in their environment or arguments
    for pid in $(grep -lF -- "$folder" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = slurmstepd ] && kill -9 "$pid"
    done
    umount "$folder/run" 2>/dev/null
    rm -rf "$folder"
}
free_port() {
    local port tries
    for tries in $(seq 50); do
        port=$((20000 + SRANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}
# daemon LOG COMMAND...
daemon() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null &
    slurm_pids+=("$!")
    disown
}
start_slurm() {
    local tries memory pid
    trap end_slurm EXIT
    PATH=$PATH:/usr/sbin
    mkdir -m 755 run munge state spool
    chmod 755 "$folder"
    mkdir -p /run/munge && mount --bind "$folder/run" /run/munge || skip "this machine lets nobody put another /run/munge in place"
    head -c 128 /dev/urandom >munge/key
    chmod 600 munge/key
    chmod 700 munge
    daemon munged.log munged --foreground --force --key-file="$folder/munge/key" --log-file="$folder/munge/log" \
        --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --num-threads=2
    for tries in $(seq 100); do
        munge -n </dev/null >/dev/null 2>&1 && break
        kill -0 "${slurm_pids[0]}" 2>/dev/null || skip "munged does not start: $(cat munged.log munge/log 2>/dev/null | tail -n 3)"
        sleep 0.05
    done
    memory=$(awk '/MemTotal/ {print int($2 / 2048)}' /proc/meminfo)
    cat >slurm.conf <<CONF
ClusterName=shoal
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdParameters=config_overrides
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
ReturnToService=2
KillWait=2
InactiveLimit=0
MailProg=/bin/true
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
PropagateResourceLimits=NONE
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=8 RealMemory=$memory State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
CONF
    export SLURM_CONF=$folder/slurm.conf
    daemon ctld.out slurmctld -D
    daemon slurmd.out slurmd -D
    for tries in $(seq 200); do
        [ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && return
        for pid in "${slurm_pids[@]}"; do
            kill -0 "$pid" 2>/dev/null ||
                skip "Slurm does not start: $(tail -n 3 slurmctld.log slurmd.*.log ctld.out slurmd.out 2>/dev/null | tr '\n' ' ')"
        done
        sleep 0.1
    done
    skip "Slurm's node does not come up: $(sinfo 2>&1 | tail -n 1) $(tail -n 3 slurmd.*.log 2>/dev/null | tr '\n' ' ')"
}
