# Sourced by the tests of this folder that hurt a training of four ranks, here or on two hosts of two (hosts.sh).
#
#   begin_job SHOAL                 two hosts, what is trained, an environment without a job in it
#   start WHERE [FLAGS...]          starts it in the background: $job is the launcher, its output goes to `out`
#   await_steps N                   until every rank has done a step; each rank's process is then `pid_of RANK`
#   one_fault WHERE FAULT MS CODE TEXTS   one line of faults_test.sh
#   leftovers                       prints what is left of jobs, on any host
groups=()
group=/sys/fs/cgroup/memory/shoal-$$
begin_job() {
    shoal=$(readlink -f "$1")
    wire=${SHOAL_TEST_WIRE:-${shoal%/bin/*}/tests/wire}
    unset SHOAL_COMM SHOAL_LOG RANK WORLD_SIZE MASTER_PORT MASTER_ADDR SHOAL_JOB_ID SHOAL_SECRET SHOAL_SECRET_FILE DS_ENV_FILE
    cd "$folder" || exit 1
    start_hosts 2
    trap 'end_groups; end_hosts' EXIT
    export HOME=$folder OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PDSH_SSH_ARGS_APPEND="-F $folder/ssh_config" OMPI_MCA_plm_rsh_agent="ssh -F $folder/ssh_config"
    export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1 HYDRA_LAUNCHER_EXTRA_ARGS="-F $folder/ssh_config" HYDRA_LAUNCHER_EXEC="$folder/ssh"
    export FI_PROVIDER=tcp # the hosts are one machine, and no way between them leads through its memory
    printf '#!/bin/sh\nexec /usr/bin/ssh -F %s/ssh_config "$@"\n' "$folder" >ssh
    mkdir by_mpi
    printf 'worker-0 slots=2\nworker-1 slots=2\n' >hosts
    local i
    for i in $(seq 300); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
    cat >config.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "reduction": "exact", "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1}}
CONFIG
    sed 's|"stage": 1|"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "disk"}|' config.json >config.disk.json
    # The ranks' own program: what a fault of theirs is, the variable says. A rank leaves its number for who hurts it.
    cat >train.sh <<SCRIPT
#!/bin/sh
echo \$\$ >pid.\$RANK.new && mv pid.\$RANK.new pid.\$RANK
config=config.json
case "\$HURT.\$RANK" in
exit.3) (sleep 1.5; kill -USR2 \$\$) & trap 'kill -9 \$child; exit 3' USR2 ;;
error.3) export SHOAL_FAULT=comm.post:60 ;;
other.3) exec "$shoal" bench comm --op broadcast ;;
other.*) exec "$shoal" bench comm --op all_reduce ;;
config.3) sed 's/"stage": 1/"stage": 2/' config.json >config.\$RANK.json; config=config.\$RANK.json ;;
hangs.3) export OMPI_MCA_opal_abort_delay=-1 ;;
slow.*)
    more="--hidden-size 256 --seq-length 128"
    [ \$RANK = 3 ] && (while sleep 0.05; do kill -STOP \$\$; sleep 0.3; kill -CONT \$\$ || exit; done) & ;;
memory.[012]) more=--ignore-plan ;;
memory.3)
    more=--ignore-plan
    echo \$\$ >$group/cgroup.procs
    ;;
late.3) sleep 5 ;;
absent.3) exec sleep 300 ;;
absent.*) export DEEPSPEED_TIMEOUT=0.1 ;;
disk.*) config=config.disk.json ;;
share.*) more="--save disk --save-interval 2" ;;
esac
set -- "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 \\
    --data-path text --tokenizer-type char --eval-iters 0 --train-iters \${STEPS:-1000000} --deepspeed_config \$config \$more
[ "\$HURT.\$RANK" = exit.3 ] || exec "\$@"
"\$@" & child=\$!
wait \$child; wait \$child
SCRIPT
    chmod +x train.sh ssh
    "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --data-path text \
        --tokenizer-type char --eval-iters 0 --train-iters 1 --deepspeed_config config.json >first 2>&1 || complain "$(cat first)"
}
end_groups() {
    local group
    for group in "${groups[@]}"; do rmdir "$group" 2>/dev/null; done
}
# cannot WHERE FAULT: why not, or nothing
cannot() {
    case $1 in
    pdsh) command -v pdsh >/dev/null || echo "pdsh is not installed" ;;
    openmpi | mpich) command -v "mpirun.$1" >/dev/null || echo "mpirun.$1 is not installed" ;;
    esac
    case $2 in
    loss) can_lose ;;
    memory) [ -w /sys/fs/cgroup/memory/cgroup.procs ] || echo "no control groups (v1) for memory that can be written" ;;
    esac
}
# SHOAL_TEST_ACROSS=NAME: what connects ranks of ssh and pdsh, instead of what Shoal chooses.
across=(env ${SHOAL_TEST_ACROSS:+SHOAL_COMM=$SHOAL_TEST_ACROSS})
flags=(--no_local_rank --silent_rank_timeout 2)
# start WHERE: in the background
start() {
    rm -f pid.* out
    local name=$1 program=${PROGRAM:-./train.sh}
    shift
    # what the ranks of other hosts are to know; an ssh session has none of this environment
    printf 'HURT=%s\nSTEPS=%s\n' "${HURT:-}" "${STEPS:-}" >.shoal_env
    case $name in
    here) set -- "$shoal" run --num_gpus 4 "${flags[@]}" "$@" $program ;;
    ssh) set -- "${across[@]}" "$shoal" run -H hosts --launcher ssh --launcher_args "-F $folder/ssh_config" "${flags[@]}" "$@" $program ;;
    pdsh) set -- "${across[@]}" "$shoal" run -H hosts --launcher pdsh "${flags[@]}" "$@" $program ;;
    openmpi | mpich)
        printf '#!/bin/sh\nexec mpirun.%s "$@"\n' "$name" >by_mpi/mpirun
        chmod +x by_mpi/mpirun
        set -- env UCX_TLS=tcp,self PATH="$folder/by_mpi:$PATH" SHOAL_COMM=mpi "$shoal" run -H hosts --launcher $name --no_preflight --master_port 4710 \
            "${flags[@]}" "$@" $program
        ;;
    esac
    "$@" >out 2>&1 </dev/null &
    job=$!
}
# The process of the rank; of one with a shell around it the shell.
pid_of() { cat "pid.$1"; }
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# Until rank 0 says that it trains, or the job is over.
await_steps() {
    local until=$(($(now_ms) + 60000))
    until grep -Eq '^([^ ]*: )?step [0-9]*00/' out 2>/dev/null; do
        kill -0 "$job" 2>/dev/null || return 1
        [ "$(now_ms)" -lt $until ] || { complain "no steps within 60 s: $(shown)" && return 1; }
        sleep 0.02
    done
}
# Until the job is over: $code, $took since $1 in ms. A launcher that was not let run for so long that it could not look
# after its ranks gives them their whole time again (look.c); where this loop stood still, $took counts from then, unless
# $3 ms were over before.
await_job() {
    local begin=$1 seconds=${2:-90} limit=${3:-0} now
    local last=$(now_ms)
    local until=$((last + seconds * 1000))
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.01
        now=$(now_ms)
        if [ $((now - last)) -gt 500 ]; then
            echo "  the machine stood still for $((now - last)) ms"
            [ $((last - begin)) -gt "$limit" ] || begin=$now
        fi
        last=$now
        [ "$now" -lt $until ] || break
    done
    took=$(($(now_ms) - begin))
    code=hangs
    if kill -0 "$job" 2>/dev/null; then
        kill -9 "$job"
    else
        wait "$job" 2>/dev/null
        code=$?
    fi
}
# Processes that work in this test's folder: whatever a job has started, on any host.
in_folder() {
    find /proc -maxdepth 2 -path '/proc/[0-9]*/cwd' -lname "$folder" 2>/dev/null | cut -d/ -f3
}
# What the job said, without its progress.
shown() { grep -Ev '^([^ ]*: )?step' out | tail -n 30; }
# What still runs that did not before the job, and what lies in memory.
leftovers() {
    in_folder | grep -vxFf before | while read -r pid; do
        case $(cat "/proc/$pid/comm" 2>/dev/null) in '' | bash | find | grep | sshd) continue ;; esac
        grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null ||
            { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | cut -c1-80 | sed "s/^/$pid /"
    done
    find /dev/shm "$(memory_of 0)" "$(memory_of 1)" -path '*/shoal-0/shoal-*' -newer mark 2>/dev/null
}
# gone SECONDS: nothing is left; prints what is
gone() {
    local until=$(($(now_ms) + $1 * 1000)) left
    while left=$(leftovers) && [ -n "$left" ]; do
        [ "$(now_ms)" -lt $until ] || { echo "$left" | head -n 5 && return 1; }
        sleep 0.05
    done
}
repair() {
    mend_host 1
    if [ "$1" = sshd ]; then start_sshd 1 && await_sshd 1; fi
}
one_fault() {
    local where=$1 fault=$2 limit=$3 wanted=$4 texts=$5 begin left text before=$failures
    touch mark
    case $fault in
    loss) "fault_$fault" && export STEPS=40 ;;
    late) export STEPS=40 ;;
    memory)
        groups=("$group")
        mkdir -p "$group"
        if [ "$where" = here ]; then echo 1M; else echo 3M; fi >"$group/memory.limit_in_bytes"
        ;;
    disk | share)
        mkdir -p disk
        stop_sshd 1 && start_sshd 1 "mount -t tmpfs -o size=64k none '$folder/disk'" && await_sshd 1
        ;;
    esac
    in_folder >before
    HURT=$fault start "$where"
    case $fault in
    kill | first | segv | abort | stop | hangs | link | sshd)
        await_steps || complain "$where $fault: the job ended before the fault: $(shown)"
        begin=$(now_ms)
        "fault_$fault"
        ;;
    slow)
        local until=$(($(now_ms) + 60000))
        until grep -q "is slow" out || ! kill -0 $job 2>/dev/null || [ "$(now_ms)" -gt $until ]; do sleep 0.1; done
        begin=$(now_ms)
        kill -TERM $job
        ;;
    *) begin=$(now_ms) ;;
    esac
    await_job $begin 90 "$limit"
    unset STEPS
    [ "$code" != hangs ] || complain "$where $fault: not over after 90 s: $(shown)"
    [ "$wanted" = - ] || [ "$code" = "$wanted" ] || complain "$where $fault: ended with $code, not $wanted: $(shown)"
    case $fault in exit | error | other | config | disk | share | loss | memory | late | absent) ;; *)
        [ "$limit" = 0 ] || [ $took -le "$limit" ] || complain "$where $fault: took $took ms, not $limit: $(shown)" ;;
    esac
    while [ -n "$texts" ]; do
        text=${texts%%;*}
        case $texts in *';'*) texts=${texts#*;} ;; *) texts= ;; esac
        text=${text# }
        grep -qF -- "$text" out || complain "$where $fault: \"$text\" is missing in: $(shown)"
    done
    case $fault in kill | first) # no rank has crashed, and what mpirun says of its own crash is no news
        ! grep -qF "*** Process received signal ***" out || complain "$where $fault: a backtrace: $(shown)" ;;
    esac
    ! grep -q "could not be told" out || complain "$where $fault: a warning of what is no trouble: $(shown)"
    # a host without a network ends its own ranks, whatever has started them; the slowest run took 7.0 s
    if [ $fault = link ]; then
        left=$(gone 35) || complain "$where $fault left on the host that was cut off: $left"
        echo "$where $fault: nothing is left on the host that was cut off after $(($(now_ms) - begin)) ms"
    fi
    [ $fault != link ] && [ $fault != sshd ] || repair $fault
    left=$(gone 60) || complain "$where $fault left: $left"
    [ $fault != loss ] || end_loss 1
    [ $fault != disk ] && [ $fault != share ] || { stop_sshd 1 && start_sshd 1 && await_sshd 1; }
    [ $failures -eq $before ] && echo "$where $fault: $took ms, code $code"
}
