#!/usr/bin/env bash
# Waits that are said: who waits for whom, where. Ranks that others wait for do not come, come late, are stopped or hold a lock;
# after 5 s there is a line, which this test waits for.  Usage: waits_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG RANK WORLD_SIZE SHOAL_FAULT SHOAL_JOB_ID MASTER_ADDR MASTER_PORT SHOAL_SECRET SHOAL_SECRET_FILE
cd "$folder" || exit 1
folder=$PWD
seq 4000 >text
echo '{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' >config.json
train=("$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 --eval-iters 0
    --data-path text --deepspeed_config config.json --train-iters 1)
port=$((20000 + RANDOM % 12000))
pids=()
# rank NAME RANK PORT COMMAND...: in the background, until the end of this test, its output in NAME
rank() {
    local name=$1 rank=$2 port=$3
    shift 3
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 100 "$@" >"$name" 2>&1 </dev/null &
    pids+=($!)
}
# after_5_s NAME PATTERN: a line of NAME has the pattern, in which @ stands for seconds from 5 on
after_5_s() {
    local seconds='\([5-9]\|[1-9][0-9]\)' tries
    local pattern=${2//@/$seconds}
    for tries in $(seq 600); do
        ! grep -q "$pattern" "$1" || return
        sleep 0.1
    done
    complain "$1: no line \"$2\": $(cat "$1")"
}
# line NAME TEXT: a line of NAME is a warning with the text
line() { after_5_s "$1" "warning: waiting for @ s $2"; }

# one that does not come, by each way to meet; all at once, as nothing is computed
rank no_rank0 1 $port "${train[@]}"
rank no_rank1 0 $((port + 1)) "${train[@]}"
SHOAL_COMM=ucx rank ucx_rank0 1 $((port + 2)) "${train[@]}"
SHOAL_COMM=ucx rank ucx_rank1 0 $((port + 3)) "${train[@]}"
# loopback that is down
if unshare -n true 2>/dev/null; then
    rank no_loopback 1 $((port + 4)) unshare -n "${train[@]}"
    loopback=$!
fi
# a rank 0 that is stopped when it has answered once: the other one waits in a collective
rank stopped_0 0 $((port + 5)) env SHOAL_FAULT=comm.post:40@0=stop "${train[@]}" --train-iters 1000 --log-interval 1000
rank stopped_1 1 $((port + 5)) "${train[@]}" --train-iters 1000 --log-interval 1000
# a lock of the token cache that another process holds
mkdir locked && cp text locked/text
"${train[@]}" --data-path locked/text --save saved >first 2>&1 || complain "$(cat first)"
tokens=$(echo locked/.shoal-cache/*.shoal-tokens)
rm "$tokens"
(umask 077 && : >"$tokens.lock")
flock "$tokens.lock" sleep 100 &
pids+=($!)
rank locked_0 0 $((port + 6)) env -u RANK -u WORLD_SIZE "${train[@]}" --data-path locked/text
# pipes that nobody writes into
mkfifo pipe silent
rank piped 0 0 env -u RANK -u WORLD_SIZE "${train[@]}" --deepspeed_config pipe
rank piped_lines 0 0 "$shoal" preprocess --input pipe --output-prefix piped_lines
rank piped_input 0 0 bash -c 'exec "$0" preprocess --input - --output-prefix piped_input <>silent' "$shoal"
rank piped_text 0 0 "$shoal" tokenizer encode byte pipe
cp -r saved latest_pipe && rm latest_pipe/latest && mkfifo latest_pipe/latest
cp -r saved weights_pipe && rm weights_pipe/*/model-*.safetensors && mkfifo weights_pipe/global_step1/model-00001-of-00001.safetensors
rank piped_latest 0 0 env -u RANK -u WORLD_SIZE "${train[@]}" --load latest_pipe
rank verified 0 0 "$shoal" checkpoint verify weights_pipe
rank piped_plan 0 0 env -u RANK -u WORLD_SIZE "$shoal" plan gpt --deepspeed_config=pipe
# hosts that do not answer, before and after the start; ranks that take long to end
mkdir bin && printf '#!/bin/sh\nexec sleep 100\n' >bin/ssh && chmod +x bin/ssh
printf 'far-0 slots=1\nfar-1 slots=1\n' >hosts
PATH=$folder/bin:$PATH rank asked 0 0 env -u RANK -u WORLD_SIZE -u MASTER_PORT "$shoal" run -H hosts --launcher ssh true
PATH=$folder/bin:$PATH rank started 0 0 env -u RANK -u WORLD_SIZE -u MASTER_PORT "$shoal" run -H hosts --launcher ssh --no_preflight --master_port 4711 true
rank ends 0 0 env -u RANK -u WORLD_SIZE -u MASTER_PORT bash -c '"$0" run --no_local_rank --grace_period 100 sh -c "trap \"\" TERM; touch deaf; exec sleep 100" & echo $! >run
    until [ -e deaf ]; do sleep 0.05; done; kill $!; wait; wait' "$shoal"
line no_rank0 "for rank 0: no answer from 127.0.0.1:"
line no_rank1 "for other ranks to join at 127.0.0.1:$((port + 1)); of 2 these have not: 1"
if [ -n "${loopback:-}" ]; then
    line no_loopback "for rank 0: there is no way to 127.0.0.1:.*ip link set lo up"
fi
after_5_s piped "waiting for another process to write into the pipe pipe: @ s so far"
after_5_s piped_plan "waiting for another process to write .*pipe.*: @ s so far"
for name in piped_lines piped_text; do
    after_5_s $name "waiting for another process to write pipe, .*: @ s so far"
done
after_5_s piped_latest "waiting for another process to write latest_pipe/latest, .*: @ s so far"
after_5_s verified "verifying the checkpoint global_step1: @ s so far"
after_5_s piped_input "waiting for another process to write standard input, .*: @ s so far"
line asked "for the answer of host far-0 and others by ssh"
line started "for 2 of 2 hosts to start their ranks: far-0, far-1; ssh has not connected"
line ends "for 1 of 1 ranks to save and end; a second signal ends them at once"
kill "$(cat run)"
line locked_0 "for another process that makes locked/.shoal-cache/"
after_5_s stopped_1 "waiting for @ s for rank 0 to come to "
# by now a rank has said that UCX is not there
if grep -q "connected by ucx\|plug-in" ucx_rank0 ucx_rank1; then
    echo "left out: UCX"
else
    line ucx_rank0 "for rank 0: no answer from 127.0.0.1:"
    line ucx_rank1 "for other ranks to join; of 2 these have not: 1"
fi
for pid in "${pids[@]}"; do
    kill -9 $(cat /proc/$pid/task/*/children 2>/dev/null) $pid 2>/dev/null
    wait $pid 2>/dev/null
done
finish
