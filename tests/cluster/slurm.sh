# Sourced by the tests of Slurm: a cluster of this machine alone, or of the hosts of hosts.sh, with configuration, keys,
# state, ports and sockets in the test's folder. Everything runs in the foreground of a shell of its own, and is ended by its
# own process id.
#
#   begin_slurm SCRIPT...      in a mount namespace of its own, so that munge's socket is the test's; or skips (77)
#   begin_here SHOAL           the same, then a cluster of this machine in the test's folder, with $shoal and `training`
#   need_slurm                 skips where a program is missing
#   start_slurm [N]            munged, slurmctld and a slurmd: of this machine; N: of each of worker-0 ... of start_hosts N.
#                              Skips with a reason where one does not start
#   start_slurmd I             ... of one host again; its process is slurmd_pid[I]
#   kill_slurmd I              with all that it has started
#   await_nodes                until all are idle
#   begin_training             what is trained; then, with $shoal, `training DIR [STEPS]` are the words that train into DIR
#   same DIR DIR               both have trained four steps, to the same bits
#   within SECONDS SINCE WHAT  it took no longer since now_ms said SINCE
skip() {
    echo "skipped: $*"
    exit 77
}
need_slurm() {
    local tool
    [ "$(id -u)" -eq 0 ] || skip "only root starts slurmd"
    for tool in srun:slurm-client scancel:slurm-client sinfo:slurm-client slurmctld:slurmctld slurmd:slurmd munged:munge \
        unshare:util-linux; do
        command -v "${tool%:*}" >/dev/null || [ -x "/usr/sbin/${tool%:*}" ] || skip "${tool%:*} is not installed (package ${tool#*:})"
    done
}
begin_slurm() {
    [ "${SHOAL_SLURM_INSIDE:-}" = 1 ] && return
    need_slurm
    unshare --mount true 2>/dev/null || skip "this machine makes no namespaces (unshare: not permitted)"
    rmdir "$folder" # the script begins again, and makes another one
    SHOAL_SLURM_INSIDE=1 exec unshare --mount --propagation private "$@"
}
begin_here() {
    local variable
    begin_slurm bash "$0" "$@"
    shoal=$(readlink -f "$1")
    for variable in $(compgen -e | grep -E '^(SHOAL_|SLURM|MASTER_|PMI)' | grep -v '^SHOAL_SLURM_INSIDE$'); do unset "$variable"; done
    unset RANK WORLD_SIZE LOCAL_RANK
    cd "$folder" || exit 1
    folder=$PWD
    start_slurm
    begin_training
}

slurm_pids=()
end_slurm() {
    local pid tries
    # slurmd ends its steps; munged last, as all of them sign with it
    for pid in "${slurm_pids[@]:1}" "${slurm_pids[0]}"; do
        kill "$pid" 2>/dev/null || continue
        for tries in $(seq 1200); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        kill -9 "$pid" 2>/dev/null
    done
    # steps' managers carry the test's configuration in their environment or arguments
    for pid in $(grep -lF -- "$folder" /proc/[0-9]*/{cmdline,environ} 2>/dev/null | cut -d/ -f3 | sort -u); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = slurmstepd ] && kill -9 "$pid"
    done
    umount /run/munge 2>/dev/null
    if [ -n "${host_pid[0]:-}" ]; then end_hosts; else rm -rf "$folder"; fi
}
free_port() {
    local port tries
    for tries in $(seq 1200); do
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
slurmd_pid=()
start_slurmd() {
    # its own mounts: munge's socket has to be put in place there, too
    daemon "slurmd.$1.out" nsenter --target "${host_pid[$1]}" --net --uts --ipc --mount sh -c \
        "cd '$folder' && { mountpoint -q /run/munge || mount --bind '$folder/run' /run/munge; } && exec slurmd -D -N worker-$1"
    slurmd_pid[$1]=$!
}
kill_slurmd() {
    local pid
    kill -9 "${slurmd_pid[$1]}" 2>/dev/null
    # managers of steps are no children of it any more
    for pid in $(pgrep -x slurmstepd); do
        [ "$(readlink "/proc/$pid/ns/uts")" = "$(readlink "/proc/${host_pid[$1]}/ns/uts")" ] || continue
        kill -9 $(pgrep -P "$pid") "$pid" 2>/dev/null
    done
}
await_nodes() {
    local tries
    for tries in $(seq 1200); do
        [ "$(sinfo -h -N -o %t 2>/dev/null | sort -u)" = idle ] && return
        sleep 0.1
    done
    return 1
}
start_slurm() {
    local tries memory pid i hosts=${1:-0} states
    trap end_slurm EXIT
    PATH=$PATH:/usr/sbin
    mkdir -m 755 run munge state spool tmp "tmp/$(hostname -s)"
    chmod 755 "$folder"
    mkdir -p /run/munge && mount --bind "$folder/run" /run/munge || skip "this machine lets nobody put another /run/munge in place"
    head -c 128 /dev/urandom >munge/key
    chmod 600 munge/key
    chmod 700 munge
    daemon munged.log munged --foreground --force --key-file="$folder/munge/key" --log-file="$folder/munge/log" \
        --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --num-threads=2
    for tries in $(seq 1200); do
        munge -n </dev/null >/dev/null 2>&1 && break
        kill -0 "${slurm_pids[0]}" 2>/dev/null || skip "munged does not start: $(cat munged.log munge/log 2>/dev/null | tail -n 3)"
        sleep 0.05
    done
    memory=$(awk '/MemTotal/ {print int($2 / 2048)}' /proc/meminfo)
    local address=127.0.0.1
    [ "$hosts" = 0 ] || address=10.77.0.1
    cat >slurm.conf <<CONF
ClusterName=shoal
SlurmctldHost=$(hostname -s)($address)
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
TmpFS=$folder/tmp/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
PropagateResourceLimits=NONE
SlurmdTimeout=${SLURMD_TIMEOUT:-15}
MessageTimeout=5
TCPTimeout=2
$(if [ "$hosts" = 0 ]; then
        echo "NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=8 RealMemory=$memory State=UNKNOWN"
    else
        for ((i = 0; i < hosts; i++)); do
            echo "NodeName=worker-$i NodeHostname=worker-$i NodeAddr=10.77.0.$((10 + i)) CPUs=8 RealMemory=$memory State=UNKNOWN"
        done
    fi)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
CONF
    export SLURM_CONF=$folder/slurm.conf
    daemon ctld.out slurmctld -D
    if [ "$hosts" = 0 ]; then daemon slurmd.out slurmd -D; fi
    # PMIx keeps a server's socket there, one per host
    for ((i = 0; i < hosts; i++)); do mkdir -p "tmp/worker-$i"; done
    for ((i = 0; i < hosts; i++)); do start_slurmd "$i"; done
    for tries in $(seq 1200); do
        states=$(sinfo -h -N -o %t 2>/dev/null | sort -u)
        [ "$states" = idle ] && return
        for pid in "${slurm_pids[@]}"; do
            kill -0 "$pid" 2>/dev/null ||
                skip "Slurm does not start: $(tail -n 3 slurmctld.log slurmd.*.log ctld.out slurmd*.out 2>/dev/null | tr '\n' ' ')"
        done
        sleep 0.1
    done
    skip "Slurm's node does not come up: $(sinfo 2>&1 | tail -n 1) $(tail -n 3 slurmd.*.log 2>/dev/null | tr '\n' ' ')"
}
begin_training() {
    local i
    cat >config.json <<'JSON'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "exact", "zero_optimization": {"stage": 2}, "seed": 3}
JSON
    for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
}
training() {
    echo "$shoal" pretrain gpt --deepspeed_config config.json --data-path text --num-layers 2 --hidden-size 32 \
        --num-attention-heads 4 --seq-length 16 --threads 1 --eval-iters 0 --train-iters "${2:-4}" --save "$1"
}
same() {
    local name
    for name in "$1"/global_step4/*.safetensors; do
        cmp "$name" "$2/global_step4/${name##*/}" || complain "$1 and $2 differ"
    done
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
within() {
    local took=$(($(now_ms) - $2))
    [ $took -le $(($1 * 1000)) ] || complain "$3 took $took ms"
    echo "$3: $took ms"
}
