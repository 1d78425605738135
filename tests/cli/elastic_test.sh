#!/usr/bin/env bash
# `shoal elastic`, and `shoal run --elastic_training` on this machine: ranks are killed at random while the slots of the
# hostfile change, and the last checkpoint has every byte of an undisturbed run's.
# Usage: [SHOAL_TEST_FULL=1] [SHOAL_TEST_SEED=N] elastic_test.sh SHOAL        full: 20 kills instead of 4
. "$(dirname "$0")/check.sh"
. "$(dirname "$0")/../cluster/elastic.sh"
shoal=$(readlink -f "$1")
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_FAULT RANK WORLD_SIZE MASTER_PORT MASTER_ADDR SHOAL_JOB_ID DEEPSPEED_ELASTICITY_CONFIG
cd "$folder" || exit 1
folder=$PWD
begin_elastic

# ---- shoal elastic: DeepSpeed's vectors, as ds_elastic prints them ----
cat >wide.json <<'JSON'
{"elasticity": {"enabled": true, "max_train_batch_size": 10000, "micro_batch_sizes": [8, 12, 16, 17], "min_gpus": 32,
                "max_gpus": 1500, "version": 0.1}}
JSON
expect 0 "$shoal" elastic -c wide.json
says "Elasticity config:" '"max_train_batch_size": 10000' "Calculated results:" "final_batch_size .... 9792" \
    "valid_gpus .......... [32, 34, 36, 48, 51, 64, 68, 72, 96, 102, 136, 144, 153, 192, 204, 272, 288, 306, 408, 576, 612, 816, 1224]" \
    "     272           12             3"
expect 0 "$shoal" elastic -c wide.json -w 64
says "Calculated results for world size 64:" "micro_batch_size .... 17" "      64           17             9  <"
expect 2 "$shoal" elastic -c wide.json -w 33
says "wide.json:1: elasticity: 33 data-parallel ranks cannot divide the batch of 9792: start one of these numbers: 32, 34, "
expect 0 "$shoal" elastic -c elastic.json -w 3
says "final_batch_size .... 24" "with reduction exact, micro-batch 2 for all of them: [1, 2, 3, 4, 6, 12]"
echo '{}' >none.json
expect 2 "$shoal" elastic -c none.json
says "none.json has no section elasticity: add "
expect 2 "$shoal" elastic
says "--config must be given"

# ---- what the agent refuses ----
run=("$shoal" run --elastic_training --master_port 0)
expect 2 "${run[@]}" true
says "give the program --deepspeed_config FILE"
expect 2 "${run[@]}" true --deepspeed_config none.json
says "none.json has no section elasticity"
expect 2 "${run[@]}" "$shoal" pretrain gpt --deepspeed_config elastic.json --save out
says "give shoal pretrain --load out, too"
expect 2 env -u SLURM_JOB_NODELIST "${run[@]}" --launcher slurm true --deepspeed_config elastic.json
says "salloc --no-kill"
expect 2 "${run[@]}" --min_elastic_nodes 3 --max_elastic_nodes 2 true
says "--min_elastic_nodes 3 is more than --max_elastic_nodes 2"
expect 2 "$shoal" run --max_restarts 3 true
says "--max_restarts is for jobs with --elastic_training"
expect 2 env DEEPSPEED_ELASTICITY_CONFIG='{"max_train_batch_size": 7, "micro_batch_sizes": [2, 3]}' "${run[@]}" \
    true --deepspeed_config elastic.json
says "elasticity.max_train_batch_size is not that of DEEPSPEED_ELASTICITY_CONFIG"

# ---- what programs are given, and when it is over ----
expect 0 "${run[@]}" --num_gpus 5 sh -c 'echo "<$RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $GROUP_RANK $LOCAL_WORLD_SIZE $ROLE_RANK>"' sh --deepspeed_config elastic.json
says "start: 4 ranks on 1 host, no checkpoint yet" "<0/4 0/100 0 4 0>" "<3/4 0/100 0 4 3>"
expect 7 "${run[@]}" --max_restarts 2 --restart_backoff 0 sh -c 'echo "try $TORCHELASTIC_RESTART_COUNT"; exit 7' sh --deepspeed_config elastic.json
says "try 0" "restart 1 of 2: 1 ranks" "restart 2 of 2" "try 2" "given up after 2 restarts: the job ended with code 7"
expect 0 "${run[@]}" --restart_backoff 0 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ]' sh --deepspeed_config elastic.json
expect 2 "${run[@]}" sh -c 'exit 2' sh --deepspeed_config elastic.json
case $output in *restart*) complain "a mistake was tried again: $output" ;; esac
# a signal ends the job, not a start of it; also between two starts
for how in 'sleep 60' 'exit 7'; do
    "${run[@]}" --restart_backoff 30 sh -c "echo \$\$ >started; $how" sh --deepspeed_config elastic.json >out 2>&1 &
    job=$!
    await_file started
    sleep 0.7
    kill -TERM $job
    code=0
    wait $job || code=$?
    [ $code -eq 143 ] || complain "SIGTERM to the agent ($how): $code: $(cat out)"
    ! grep -q "restart 1" out || complain "SIGTERM and a restart: $(cat out)"
    [ ! -d "/proc/$(cat started)" ] || complain "SIGTERM left $(cat started)"
    rm started
done
# ranks that save and leave with 0 within the grace period
"${run[@]}" --grace_period 20 sh -c 'trap "exit 0" TERM; echo $$ >started; sleep 60 & wait' sh --deepspeed_config elastic.json >out 2>&1 &
job=$!
await_file started
kill -TERM $job
wait $job || complain "a grace period ended with $?: $(cat out)"
# a mistake at the start is not tried again
expect 2 "${run[@]}" ./no-such-program --deepspeed_config elastic.json
printf 'localhost slots=2\n' >hosts
sed 's/"version"/"min_gpus": 3, "version"/' elastic.json >three.json
expect 2 "${run[@]}" -H hosts true --deepspeed_config three.json
says "2 slots are too few: the section elasticity allows 3 ranks at least"

# a start that too few slots prevent gets nowhere, and the next wait is twice as long: 1 s and 2 s
printf 'localhost slots=4\n' >hosts
begin=${EPOCHREALTIME/./}
expect 1 "${run[@]}" -H hosts --max_restarts 2 --restart_backoff 1 sh -c \
    '[ $RANK = 0 ] || exit 0; echo localhost slots=2 >hosts; exit 7' sh --deepspeed_config three.json
says "start: 4 ranks" "given up after 2 restarts: 2 slots are too few"
took=$(((${EPOCHREALTIME/./} - begin) / 1000))
[ $took -ge 3000 ] || complain "two restarts that get nowhere followed after $took ms: $output"

# ---- DeepSpeed's world_info ----
# launch.py's spelling, for the one host of its world
expect 0 "$shoal" run --world_info eyJsb2NhbGhvc3QiOiBbMCwgMV19 --master_port 0 --enable_elastic_training --restart_backoff 0 sh -c \
    'echo "<$RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT>"; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK = 0 ] || sleep 60; exit 1; }' \
    sh --deepspeed_config elastic.json
says "<0/2 0>" "<1/2 1>"
expect 0 "$shoal" run --world_info eyJ3b3JrZXItMCI6IFswLCAyXX0= --master_port $((20000 + SRANDOM % 12000)) sh -c \
    'echo "<$RANK/$WORLD_SIZE $CUDA_VISIBLE_DEVICES $MASTER_ADDR>"'
says "<0/2 0,2 127.0.0.1>" "<1/2 0,2 127.0.0.1>"
expect 2 "$shoal" run --world_info eyJhIjogW10sICJiIjogWzBdfQ== --node_rank 0 true
says "--world_info: host a has no list of slots"
expect 2 "$shoal" run --world_info eyJhIjogWzBdLCAiYiI6IFswXX0= true
says "--world_info: give this host its number with --node_rank, from 0 to 1"

# ---- ranks are killed ----
undisturbed
printf 'localhost slots=4\n' >hosts
"${run[@]}" -H hosts --restart_backoff 0 $(train disturbed) >out 2>&1 &
job=$!
for ((hits = 1; hits <= kills; hits++)); do
    await_ranks || break
    nap $hits
    slots=$((1 + RANDOM % 4))
    printf "localhost slots=$slots\n" >hosts
    kill_rank
done
ends_equal $job
finish
