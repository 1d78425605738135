#!/usr/bin/env bash
# The `shoal` program from outside: exit codes, messages, help, launching.  Usage: shoal_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG

# Without and with wrong words
expect 2 "$shoal"
says "usage: shoal"
expect 0 "$shoal" --version
says "shoal "
expect 0 "$shoal" --help
says "run" "report" "help"
expect 2 "$shoal" rnu
says "\"rnu\"" "nearest is \"run\""
expect 2 "$shoal" help rnu
says "nearest is \"run\""
expect 2 "$shoal" report extra
says "extra"
for word in config run; do
    expect 2 "$shoal" help "$word" extra
    says "takes one name" "\"extra\" after \"$word\""
done
expect 2 env SHOAL_LOG=shout "$shoal" report
says "\"shout\" is not known" "warning"
expect 0 env SHOAL_LOG=comm=debug,error "$shoal" report
expect 0 "$shoal" generate --help
says 'standard input (default a'

# Every subcommand explains itself, in both ways
commands=$("$shoal" --help | awk '/^  [a-z]/ { print $1 }')
[ "$(echo "$commands" | wc -l)" -ge 3 ] || complain "--help lists: $commands"
for command in $commands; do
    expect 0 "$shoal" "$command" --help
    says "usage: " "shoal "
    expect 0 "$shoal" help "$command"
    says "usage: " "shoal "
done
expect 0 env SHOAL_SECRET=hidden SHOAL_LOG=info OTHER_VARIABLE=other "$shoal" report
says "  SHOAL_SECRET=(not shown)" "  SHOAL_LOG=info"
case $output in *hidden* | *OTHER_VARIABLE*) complain "the report shows other variables, or the secret: $output" ;; esac
# each feature of the CPU by its name in the system's list
for feature in avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16; do
    listed=$(grep -m 1 '^flags' /proc/cpuinfo | grep -cw $feature)
    [ "$(grep 'CPU features' <<<"$output" | grep -cw ${feature/_/})" = "$listed" ] || complain "the report on $feature: $output"
done
case $(uname -m) in aarch64) says "Advanced SIMD" ;; *) says "AMX tiles" ;; esac
says "CPU identity" "comes first" "found, used when SHOAL_OPS names it"
says "version" "CPU features" "/dev/shm" "devices" "communication" "which kernels serve"
expect 0 "$shoal" report --world 16 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 \
    --expert-model-parallel-size 4 --expert-tensor-parallel-size 1
says "16 ranks, tp 2, ep 4, dp 4, pp 2; numbered tp-cp-ep-dp-pp" "dp                   [0 2 4 6] [1 3 5 7] [8 10 12 14]" \
    "tp+pp                [0 1 8 9] [2 3 10 11]" "expert ep+pp         [0-3 8-11] [4-7 12-15]" \
    "expert dp            [0 4] [1 5]" "tied embeddings      [0 8] [1 9]"
expect 0 "$shoal" report --world-size 16 --pipeline-model-parallel-size 4 --tensor-model-parallel-size 2 --use-tp-pp-dp-mapping
says "pp                   [0 2 4 6] [1 3 5 7] [8 10 12 14]" "tied embeddings      [0 6] [1 7]"
cat >"$folder/exact.json" <<'CONFIG'
{"reduction": "exact", "exact_splits": {"tensor": 4, "sequence": 2}, "tensor_parallel": {"autotp_size": 2}}
CONFIG
expect 0 "$shoal" report --world 8 --deepspeed_config "$folder/exact.json"
says "8 ranks, tp 2, dp 4" "exact_splits.tensor   4: 2 on each rank along tp" "exact_splits.sequence 2"
expect 2 "$shoal" report --world 8 --tensor-model-parallel-size 4 --deepspeed_config "$folder/exact.json"
says "tensor_parallel.autotp_size is 2, but --tensor-model-parallel-size is 4"
echo '{"reduction": "exact"}' >"$folder/plain.json"
expect 2 "$shoal" report --world 6 --tensor-model-parallel-size 3 --deepspeed_config "$folder/plain.json"
says "exact_splits.tensor is 1 and there are 3 tensor-parallel ranks"
expect 2 "$shoal" report --world 15 --tensor-model-parallel-size 2
says "15 ranks cannot be divided into replicas of 2"
expect 2 "$shoal" report --tensor-model-parallel-size 2
says "--world-size must be given"
expect 0 "$shoal" help config
says "train_batch_size" "zero_optimization.offload_param"

# Output that nobody takes is a failure
if [ -w /dev/full ]; then
    code=0
    "$shoal" help config >/dev/full 2>/dev/null || code=$?
    [ "$code" -eq 1 ] || complain "a full disk ended with $code, not 1"
fi

# Launching
run="$shoal run --master_port 0"
expect 0 $run --num_gpus 2 bash -c 'echo "rank=$RANK world=$WORLD_SIZE arg=$0"'
says "rank=0 world=2 arg=--local_rank=0" "rank=1 world=2 arg=--local_rank=1"
expect 7 $run --num_gpus 3 bash -c 'test $RANK = 1 && exit 7; exec sleep 30'
says "rank 1 (pid " "exited with code 7; stopping the other 2"
expect 137 $run --num_gpus 2 bash -c 'test $RANK = 0 && kill -9 $$; exec sleep 30'
says "rank 0 (pid " "killed by signal 9 (Killed); stopping the other 1"
expect 2 $run --num_gpu 2 true
says "--num_gpu" "--num_gpus"
expect 2 $run
says "no program"
expect 2 $run no-such-program-anywhere
says "no-such-program-anywhere" "PATH"
expect 2 $run --num_nodes 2 true
says "--num_nodes 2 needs a hostfile that names the hosts" "--hostfile"
# A rank that leaves without an error before the others meet it is not waited for
for gone in 0 1 2; do
    expect 1 timeout 60 $run --num_gpus 3 --no_local_rank bash -c 'test $RANK = '$gone' || exec "$@"' script \
        "$shoal" bench comm --max-bytes 4K --repeats 1 --seconds 0.01
    says "rank $gone ended before it joined the others"
done
# Jobs at the same instant with default flags do not get in each other's way
jobs=
for job in 1 2 3 4 5 6 7 8; do
    env -u MASTER_PORT "$shoal" run --num_gpus 2 --no_local_rank \
        "$shoal" bench comm --max-bytes 4K --repeats 1 --seconds 0.01 >"$folder/job.$job" 2>&1 &
    jobs="$jobs $!"
done
job=0
for pid in $jobs; do
    job=$((job + 1))
    wait "$pid" || complain "job $job of eight ended with $?: $(cat "$folder/job.$job")"
done
# A port that was asked for is not replaced
expect 2 env MASTER_PORT=x "$shoal" run true
says 'MASTER_PORT="x" is no port'
# A hostfile that names this machine alone
echo "localhost slots=3" >"$folder/hostfile"
expect 0 $run --hostfile "$folder/hostfile" bash -c 'test "$WORLD_SIZE" = 3'
expect 0 $run --hostfile "$folder/hostfile" --include localhost:0,2 bash -c 'test "$WORLD_SIZE $CUDA_VISIBLE_DEVICES" = "2 0,2"'
# One that names a host which is not there; an ssh of our own, as a machine may have none
mkdir "$folder/none" "$folder/bin"
printf '#!/bin/sh\necho "ssh: Could not resolve hostname worker-1: Name or service not known" >&2\nexit 255\n' >"$folder/none/ssh"
chmod +x "$folder/none/ssh"
echo "worker-1 slots=3" >>"$folder/hostfile"
expect 2 env PATH="$folder/none:$PATH" $run --launcher ssh --hostfile "$folder/hostfile" true
says "worker-1" "Could not resolve"
# USER@NAME in a hostfile: the user goes to ssh alone. An ssh of our own runs the command here.
cat >"$folder/bin/ssh" <<'SSH'
#!/usr/bin/env bash
while [ $# -gt 1 ] && [ "${1#-}" != "$1" ]; do shift; done
echo "$1" >>"$(dirname "$0")/logins"
shift
exec sh -c "$*"
SSH
chmod +x "$folder/bin/ssh"
printf 'ann@worker-0 slots=2\nbob@worker-1 slots=1\n' >"$folder/users"
expect 0 env PATH="$folder/bin:$PATH" $run --launcher ssh -H "$folder/users" \
    bash -c 'echo "rank $RANK of $WORLD_SIZE meets at <$MASTER_ADDR>"'
says "rank 0 of 3" "rank 1 of 3" "rank 2 of 3"
case $output in *"<"*"@"*">"*) complain "a user in MASTER_ADDR: $output" ;; esac
[ "$(sort -u "$folder/bin/logins" | xargs)" = "ann@worker-0 bob@worker-1" ] || complain "ssh got $(cat "$folder/bin/logins")"
for launcher in openmpi mpich impi mvapich slurm; do
    expect 2 $run --dry-run --launcher $launcher -H "$folder/users" true
    says "users:1: ann@worker-0 names a user" "--launcher $launcher takes none"
done
expect 0 $run --dry-run --launcher pdsh -H "$folder/users" true
says "-w ann@worker-0,bob@worker-1" "--world_info=worker-0:0,1@worker-1:0" "--master_addr=worker-0"
# A quoted argument stays one
expect 0 $run --no_local_rank bash -c 'test "$1" = "two words" && test $# = 1' script "two words"

# Ctrl-C: the job ends with 128 + 2 and both ranks are gone. Without job control (set -m) the shell would start
# the job with SIGINT ignored.
cat >"$folder/rank.sh" <<'RANK'
echo $$ >>"$1/pids"
exec sleep 30
RANK
set -m
$run --num_gpus 2 --no_local_rank bash "$folder/rank.sh" "$folder" >"$folder/out" 2>&1 </dev/null &
job=$!
for _ in $(seq 3000); do
    [ "$(wc -l 2>/dev/null <"$folder/pids")" = 2 ] && break
    sleep 0.02
done
kill -INT "$job"
code=0
wait "$job" || code=$?
set +m
[ "$code" -eq 130 ] || complain "SIGINT ended with $code, not 130: $(cat "$folder/out")"
for pid in $(cat "$folder/pids"); do
    kill -0 "$pid" 2>/dev/null && complain "rank $pid is still there after SIGINT"
done

# What standard output does not take is said, and no file gets its number
for words in "help" "--version" "help config" "run --help" "pretrain --help" "plan --help" "diff --help" "bench gemm --help"; do
    for to in /dev/full -; do
        code=0
        if [ "$to" = - ]; then "$shoal" $words >&- 2>"$folder/said" || code=$?
        else "$shoal" $words >"$to" 2>"$folder/said" || code=$?; fi
        [ "$code" -eq 1 ] || complain "$words into $to ended with $code"
        grep -q "cannot write to standard output" "$folder/said" || complain "$words into $to: $(cat "$folder/said")"
    done
done
finish
