#!/usr/bin/env bash
# One `shoal run` on two hosts with sshd of their own: what ranks are given, how a job ends, what the pre-flight refuses.
# Usage: launcher_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
shoal=$(readlink -f "$1")
unset SHOAL_COMM SHOAL_LOG RANK WORLD_SIZE MASTER_PORT MASTER_ADDR SHOAL_JOB_ID SHOAL_SECRET SHOAL_SECRET_FILE DS_ENV_FILE
cd "$folder" || exit 1
start_hosts 2
export HOME=$folder
printf 'worker-0 slots=2\nworker-1 slots=1\n' >hosts
export PDSH_SSH_ARGS_APPEND="-F $folder/ssh_config"
by_ssh=("$shoal" run -H hosts --launcher ssh --launcher_args "-F $folder/ssh_config")
by_pdsh=("$shoal" run -H hosts --launcher pdsh)

cat >show.sh <<'SCRIPT'
#!/bin/sh
echo "<$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $(hostname) $CUDA_VISIBLE_DEVICES $FROM_FILE $*>"
test ${#SHOAL_SECRET} = 64 && echo "$SHOAL_SECRET $MASTER_ADDR:$MASTER_PORT" >seen.$RANK
SCRIPT
# writes its pid, and leaves with 0 after SIGTERM when it is told to
cat >wait.sh <<'SCRIPT'
#!/bin/sh
trap '[ -n "$SAVES" ] && echo saved >saved.$RANK; exit ${SAVES:-143}' TERM
echo $$ >pid.$RANK.new && mv pid.$RANK.new pid.$RANK
n=0
while [ $n -lt 600 ]; do sleep 0.1 & wait $!; n=$((n + 1)); done
SCRIPT
cat >fail.sh <<'SCRIPT'
#!/bin/sh
echo $$ >pid.$RANK.new && mv pid.$RANK.new pid.$RANK
[ "$RANK" != 2 ] && exec sleep 300
until [ -s pid.0 ] && [ -s pid.1 ]; do sleep 0.05; done
exit 7
SCRIPT
chmod +x ./*.sh

gone() { # the processes of the files pid.* end within a minute
    local file pid left tries=0
    for file in pid.*; do
        pid=$(cat "$file")
        while [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do
            [ $((tries += 1)) -gt 1200 ] && complain "$1: process $pid ($file) is still there" && kill -9 "$pid" && break
            sleep 0.05
        done
    done
    rm -f pid.*
    left=$(find /dev/shm "$(memory_of 0)" "$(memory_of 1)" -path '*/shoal-0/letter*' 2>/dev/null)
    [ -z "$left" ] || complain "$1 left $left"
}
await_pids() {
    local tries=0 rank
    for rank in 0 1 2; do
        until [ -s pid.$rank ]; do
            [ $((tries += 1)) -gt 1200 ] && complain "no rank $rank: $(cat out)" && return
            sleep 0.05
        done
    done
}
# Limits are at least five times what the slowest run on a busy machine took: 3.3 s for a failure, 1.2 s for a signal, 6.0 s
# without a network.
within() { # SECONDS SINCE WHAT
    local took=$((($(date +%s%N) - $2) / 1000000))
    echo "$3: $took ms"
    [ $took -le $(($1 * 1000)) ] || complain "$3 took $took ms"
}

# ---- what ranks are given ----
printf "FROM_FILE=it's 100%% \$HOME\n" >.deepspeed_env
launchers=(ssh)
if command -v pdsh >/dev/null; then launchers+=(pdsh); else echo "pdsh is not installed: not tested"; fi
for by in "${launchers[@]}"; do
    declare -n run=by_$by
    expect 0 "${run[@]}" ./show.sh "a  b" '%n' "it's"
    says "<0/3 0/2 0/2 worker-0 0,1 it's 100% \$HOME --local_rank=0 a  b %n it's>" \
        "<1/3 1/2 0/2 worker-0 0,1 " "<2/3 0/1 1/2 worker-1 0 it's 100% \$HOME --local_rank=0 a  b "
    says "host             ranks  shoal    program  config" "worker-1             1  same     same"
    [ "$(cat seen.* | sort -u | wc -l)" = 1 ] || complain "$by: not one secret and one place: $(cat seen.*)"
    case $(cat seen.0) in *" 10.77.0.10:"*) ;; *) complain "$by: not at the first host's address" ;; esac
    rm seen.*
done
expect 0 "${by_ssh[@]}" --include worker-1@worker-0:1 --no_preflight --master_port 4711 --no_local_rank ./show.sh
says "<0/2 0/1 0/2 worker-0 1 " "<1/2 0/1 1/2 worker-1 0 "
case $output in *"free shm"*) complain "a pre-flight: $output" ;; esac
[ "$(cut -d' ' -f2 seen.0)" = worker-0:4711 ] || complain "$(cat seen.0)"
expect 0 "${by_ssh[@]}" --num_nodes 1 --num_gpus 3 ./show.sh
says "<2/3 2/3 0/1 worker-0 0,1,2"
# the lines of DeepSpeed's launcher, of each host
expect 0 "${by_ssh[@]}" --include worker-1@worker-0:1 --no_preflight --no_local_rank --log_level info ./show.sh
says "WORLD INFO DICT: {'worker-0': [1], 'worker-1': [0]}" "nnodes=2, num_local_procs=1, node_rank=0" \
    "nnodes=2, num_local_procs=1, node_rank=1" "global_rank_mapping=defaultdict(<class 'list'>, {'worker-0': [0], 'worker-1': [1]})" \
    "dist_world_size=2" "Setting CUDA_VISIBLE_DEVICES=1" "spawned with command: ['./show.sh']" "exits successfully."
# files of each rank, cores of its own, a script that the shell reads first, the launcher's number
printf 'FROM_VENV="it'"'"'s there"\nexport FROM_VENV\n' >activate
cat >look.sh <<'SCRIPT'
#!/bin/sh
echo "rank $RANK has $OMP_NUM_THREADS threads on $(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status), $FROM_VENV"
[ "$LOCAL_RANK" != 0 ] || grep -lx $PPID /tmp/$PPID.deepspeed
SCRIPT
chmod +x look.sh
cores=($(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status | tr ',' '\n' | awk -F- '{for (i = $1; i <= ($2 ? $2 : $1); i++) print i}'))
mkdir pids
expect 0 "${by_ssh[@]}" --enable_each_rank_log logs --bind_core_list "${cores[0]}${cores[1]:+,${cores[1]}}" --venv_script "$folder/activate" --save_pid ./look.sh
for rank in 0 1 2; do
    set -- logs/[0-9]*_rank$rank.log
    [ -s "$1" ] || complain "no log of rank $rank: $(ls logs) $output"
done
if [ ${#cores[@]} -ge 2 ]; then
    grep -qx "rank 0 has 1 threads on ${cores[0]}, it's there" logs/*_rank0.log || complain "rank 0: $(cat logs/*_rank0.log)"
    grep -qx "rank 1 has 1 threads on ${cores[1]}, it's there" logs/*_rank1.log || complain "rank 1: $(cat logs/*_rank1.log)"
    grep -qx "rank 2 has 2 threads on ${cores[0]}[-,]${cores[1]}, it's there" logs/*_rank2.log || complain "rank 2: $(cat logs/*_rank2.log)"
fi
for rank in 0 2; do
    file=$(grep -ho '/tmp/[0-9]*.deepspeed' logs/*_rank$rank.log)
    [ -n "$file" ] && [ ! -e "$file" ] || complain "no file of a launcher's number, or it is left: \"$file\" $(cat logs/*_rank$rank.log)"
done
rm -r logs
# the launcher's machine is one of the hosts: no ssh to itself
printf 'head slots=1\nworker-1 slots=1\n' >with_head
expect 0 "$shoal" run -H with_head --launcher ssh --launcher_args "-F $folder/ssh_config" ./show.sh
says "<0/2 0/1 0/2 head 0" "<1/2 0/1 1/2 worker-1 0"
grep -q " 10.77.0.1:" seen.0 || complain "$(cat seen.0)"
# by hand on every host
(umask 077; echo 0123456789abcdef0123456789abcdef >secret)
for i in 0 1; do
    on_host $i env SHOAL_SECRET_FILE="$folder/secret" "$shoal" run -H hosts --no_ssh --node_rank $i \
        sh -c 'echo "<$RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $SHOAL_JOB_ID>"' >by_hand.$i 2>&1 || complain "$(cat by_hand.$i)"
done
grep -q "<1/3 worker-0:29500 0.0." by_hand.0 || complain "$(cat by_hand.0)"
grep -q "<2/3 worker-0:29500 0.0." by_hand.1 || complain "$(cat by_hand.1)"
[ "$(sed 's/.*500//' by_hand.0 by_hand.1 | sort -u | wc -l)" = 1 ] || complain "two jobs: $(cat by_hand.*)"
# nothing secret is in any command line while a job runs
"${by_ssh[@]}" sh -c 'echo $$ >pid.$RANK.new; echo $SHOAL_SECRET >secret.$RANK; mv pid.$RANK.new pid.$RANK; exec sleep 300' >out 2>&1 &
job=$!
await_pids
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' >words
grep -qF "$(cat secret.0)" words && complain "the secret stands on a command line"
grep -qF "it's 100" words && complain "a variable's value stands on a command line"
grep -q -- "--secret_from=stdin" words || complain "no command line was seen"
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 143 ] || complain "SIGTERM ended with $code: $(cat out)"
gone "SIGTERM"

# a letter that no job took goes when the next one comes
if command -v pdsh >/dev/null; then
    old=$(memory_of 1)/shoal-0/letter-9.0.aaaaaaaa.7
    echo >"$old"
    touch -d '1 hour ago' "$old"
    expect 0 "${by_pdsh[@]}" true
    [ ! -e "$old" ] || complain "an old letter stays"
fi

# ---- how a job ends ----
for by in "${launchers[@]}"; do
    declare -n run=by_$by
    begin=$(date +%s%N)
    expect 7 "${run[@]}" ./fail.sh
    says "rank 2 (worker-1, pid " "exited with code 7"
    says "stopping the other 1 host"
    [ "$(grep -c 'exited with code 7' <<<"$output")" = 1 ] || complain "$by: not one verdict: $output"
    within 15 "$begin" "a failure"
    gone "$by: a failing rank"
    # the front is killed
    "${run[@]}" ./wait.sh >out 2>&1 &
    job=$!
    await_pids
    kill -9 $job
    wait $job 2>/dev/null
    gone "$by: a killed front"
    # Ctrl-C, which a terminal sends to the foreground; and the other signals that stop a job
    for signal in INT TERM HUP; do
        # a shell's background commands ignore SIGINT
        env --default-signal=INT "${run[@]}" ./wait.sh >out 2>&1 &
        job=$!
        await_pids
        begin=$(date +%s%N)
        kill -$signal $job
        code=0
        wait $job || code=$?
        [ $code -eq $((128 + $(kill -l $signal))) ] || complain "$by: SIG$signal ended with $code: $(cat out)"
        gone "$by: SIG$signal"
        within 10 "$begin" "$by: SIG$signal"
    done
done
# saved and left with 0 within the grace period
SAVES=0 "${by_ssh[@]}" --grace_period 20 sh -c 'SAVES=0 exec ./wait.sh' >out 2>&1 &
job=$!
await_pids
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 0 ] && [ -f saved.0 ] && [ -f saved.1 ] && [ -f saved.2 ] || complain "grace period: $code $(ls) $(cat out)"
gone "a grace period"
# a host's launcher is killed: its guard clears up, the job ends
"${by_ssh[@]}" ./wait.sh >out 2>&1 &
job=$!
await_pids
parent=$(sed -n 's/^PPid:\t//p' "/proc/$(cat pid.2)/status")
begin=$(date +%s%N)
kill -9 "$parent"
code=0
wait $job || code=$?
[ $code -ne 0 ] && grep -q "host worker-1" out || complain "a killed launcher of a host: $code $(cat out)"
within 10 "$begin" "a killed launcher"
gone "a killed launcher of a host"
# sshd and its sessions are killed
"${by_ssh[@]}" ./wait.sh >out 2>&1 &
job=$!
await_pids
begin=$(date +%s%N)
stop_sshd 1
code=0
wait $job || code=$?
[ $code -eq 1 ] && grep -q "host worker-1: the connection is gone" out || complain "a killed sshd: $code $(cat out)"
within 10 "$begin" "a killed sshd"
gone "a killed sshd"
start_sshd 1
# the network goes: both sides find out
await_sshd 1
"${by_ssh[@]}" ./wait.sh >out 2>&1 &
job=$!
await_pids
cut_host 1
begin=$(date +%s%N)
while [ -d "/proc/$(cat pid.2)" ] && [ $(($(date +%s%N) - begin)) -lt 100000000000 ]; do sleep 0.1; done
within 40 "$begin" "a rank without a network"
kill -TERM $job 2>/dev/null
code=0
wait $job || code=$?
[ $code -ne 0 ] || complain "a cut network ended with 0"
mend_host 1
gone "a cut network"

# ---- ranks of two hosts in one group ----
# over memory within a host and the network between them; the store is at master_addr
expect 0 "${by_ssh[@]}" "$shoal" bench comm --op all_reduce --max-bytes 4096 --seconds 0.01
says "3 ranks (hierarchical)"

# a search on several hosts; in the long one the collectives' algorithms are timed first
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
fast=true
[ "${SHOAL_TEST_FULL:-0}" != 1 ] || fast=false
printf '{"train_batch_size": 6, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 0},
    "autotuning": {"fast": %s, "start_profile_step": 2, "end_profile_step": 3, "num_tuning_micro_batch_sizes": 0}}' $fast >tune.json
expect 0 "${by_ssh[@]}" --autotuning run "$shoal" pretrain gpt --deepspeed_config tune.json --data-path text --num-layers 1 --hidden-size 32 \
    --num-attention-heads 4 --seq-length 16 --threads 1 --eval-iters 0 --train-iters 4
says "experiments on 3 ranks, of 2 hosts" "autotuning: z_gas2_tmbspg1: " "the best is z_gas" "step 4/4"
if [ $fast = false ]; then
    says "autotuning: the algorithms of collectives are those of "
    grep -q "^SHOAL_COMM_TUNING=.*/comm.tuning " autotuning_results/cmd_optimal.txt || complain "$(cat autotuning_results/cmd_optimal.txt)"
fi

# ---- ranks that mpirun starts ----
mkdir bin
printf '#!/bin/sh\nexec ssh -F %s "$@"\n' "$folder/ssh_config" >bin/ssh_here
chmod +x bin/ssh_here
by_mpi() { # NAME FLAGS...
    local name=$1 flags="-launcher-exec $folder/bin/ssh_here"
    shift
    [ $name = mpich ] || flags="--allow-run-as-root --mca plm_rsh_agent $folder/bin/ssh_here"
    printf '#!/bin/sh\nexec mpirun.%s "$@"\n' "$name" >bin/mpirun
    chmod +x bin/mpirun
    PATH=$folder/bin:$PATH "$shoal" run -H hosts --no_preflight --launcher "$name" --launcher_args "$flags" "$@"
}
for name in openmpi mpich; do
    command -v mpirun.$name >/dev/null || { echo "mpirun.$name is not installed: not tested" && continue; }
    rm -f seen.*
    expect 0 by_mpi $name ./show.sh "a  b" "it's"
    says "<0/3 0/2 0/2 worker-0 0,1 it's 100% \$HOME --local_rank=0 a  b it's>" "<1/3 1/2 0/2 worker-0 0,1 " \
        "<2/3 0/1 1/2 worker-1 0 it's"
    [ "$(cat seen.* | sort -u | wc -l)" = 1 ] || complain "$name: not one secret and one place: $(cat seen.*)"
    TMPDIR=$folder/pids expect 0 by_mpi $name --enable_each_rank_log logs --save_pid sh -c "ls '$folder'/pids"
    for rank in 0 1 2; do
        grep -q '^[0-9]*.deepspeed$' logs/[0-9]*_rank$rank.log || complain "$name: rank $rank has no log, or the launcher no file of its number: $(ls logs)"
    done
    ! ls pids/*.deepspeed >/dev/null 2>&1 || complain "$name: files of the launcher's number are left"
    rm -r logs
    [ $name = mpich ] && continue
    begin=$(date +%s%N)
    expect 7 by_mpi $name ./fail.sh
    says "rank 2 (worker-1, pid " "exited with code 7; stopping the other 1 host"
    within 20 "$begin" "$name: a failure"
    gone "$name: a failing rank"
done

# ---- what the pre-flight refuses ----
await_sshd 1
refused() { # SENTENCE FLAGS...
    local sentence=$1
    shift
    rm -f pid.*
    expect 2 "${by_ssh[@]}" "$@"
    says "$sentence"
    ! ls pid.* >/dev/null 2>&1 || complain "ranks were started: $*"
}
printf 'worker-0 slots=1\nworker-9 slots=1\n' >unknown
refused "host worker-9 cannot be reached (ssh: Could not resolve hostname worker-9" -H unknown ./wait.sh
refused 'host worker-0 does not have the program ./none: copy it' ./none
refused "host worker-0 does not have the configuration none.json" ./wait.sh --deepspeed_config none.json
python=$(command -v python3 || true)
if [ -n "$python" ]; then
    nsenter --target "${host_pid[0]}" --net "$python" -c 'import socket, time
s = socket.socket(); s.bind(("0.0.0.0", 4712)); s.listen(); open("listens", "w").close(); time.sleep(60)' &
    listener=$!
    hosts_pids+=("$listener")
    until [ -f listens ]; do sleep 0.05; done
    refused "port 4712 is in use on host worker-0: give another with --master_port" --master_port 4712 ./wait.sh
    kill "$listener"
fi
# another build, another configuration: hosts with files of their own
mkdir other
cp "$shoal" copy
echo '{}' >config.json
for what in copy config.json; do
    cp $what other/$what
    printf ' ' >>other/$what
    stop_sshd 1
    start_sshd 1 "mount --bind '$folder/other/$what' '$folder/$what'"
    await_sshd 1
    case $what in
    copy)
        by_ssh[0]=$folder/copy
        refused "/copy on host worker-1 is another build than on this machine (hashes " ./wait.sh
        says "differs"
        by_ssh[0]=$shoal
        ;;
    *) refused "the configuration of host worker-1 is not that of host worker-0 (hashes" ./wait.sh --deepspeed_config=config.json ;;
    esac
done
# a clock that is years behind
cp "$shoal" real
printf '#!/bin/sh\n"%s" "$@" | sed "s/^clock .*/clock 1000000000.0/"\n' "$folder/real" >other/copy
stop_sshd 1
start_sshd 1 "mount --bind '$folder/other/copy' '$folder/copy'"
await_sshd 1
by_ssh[0]=$folder/copy
refused "the clock of host worker-1 is " ./wait.sh
says " behind that of this machine: set it (NTP)"
by_ssh[0]=$shoal
# no shared memory
stop_sshd 1
start_sshd 1 "mount -t tmpfs -o size=8m none /dev/shm"
await_sshd 1
refused "host worker-1 has 8.0 MiB free in /dev/shm, and its ranks need at least 64 MiB" ./wait.sh

# ---- the launcher's machine ----
# two jobs with default flags
"$shoal" run --num_gpus 2 "$shoal" bench comm --op all_reduce --max-bytes 4096 --seconds 0.2 >one 2>&1 &
job=$!
expect 0 "$shoal" run --num_gpus 2 "$shoal" bench comm --op all_reduce --max-bytes 4096 --seconds 0.2
wait $job || complain "the first of two jobs: $(cat one)"
finish
