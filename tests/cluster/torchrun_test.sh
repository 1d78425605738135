#!/usr/bin/env bash
# torchrun starts Shoal in each of its forms: on one machine, with both kinds of its store, again after a failure, and on two
# hosts. Rank 0 tells its port in torchrun's store. comm.agent_store_test proves the protocol where PyTorch is not installed.
# Usage: [SHOAL_TEST_TORCHRUN=PATH] torchrun_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
torchrun=${SHOAL_TEST_TORCHRUN:-torchrun}
command -v "$torchrun" >/dev/null || skip "torchrun is not installed (package torch), and SHOAL_TEST_TORCHRUN names none"
begin_hosts bash "$0" "$@"
shoal=$(readlink -f "$1")
unset SHOAL_COMM SHOAL_LOG SHOAL_JOB_ID SHOAL_SECRET SHOAL_SECRET_FILE OPENBLAS_CORETYPE LOCAL_RANK RANK WORLD_SIZE MASTER_PORT MASTER_ADDR
export OMP_NUM_THREADS=1 LOGLEVEL=ERROR
start_hosts 2
cd "$folder" || exit 1
echo '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "reduction": "exact"}' >config.json
train="$shoal pretrain gpt --deepspeed_config config.json --mock-data --num-layers 1 --hidden-size 16 --num-attention-heads 2
    --seq-length 8 --train-iters 2 --eval-iters 0"
port() { echo $((20000 + SRANDOM % 10000)); }
same() {
    local file
    for file in alone/global_step2/*.safetensors; do
        cmp -s "$file" "$1/global_step2/${file##*/}" || complain "$1 has other bits in ${file##*/}"
    done
}
expect 0 $train --save alone

# one machine: the agent's store has MASTER_PORT in all of these but the last, where PyTorch leaves the port free
forms=("" "--standalone" "--master-port $(port)" "--rdzv-backend c10d --rdzv-endpoint localhost:$(port) --rdzv-id x")
for form in "${forms[@]}"; do
    expect 0 timeout 90 "$torchrun" $form --no-python --nproc-per-node 2 $train --save one
    says "on 2 ranks"
    same one
    rm -rf one
done
expect 0 env USE_LIBUV=0 timeout 90 "$torchrun" --no-python --nproc-per-node 4 $train --save four
same four
expect 0 env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 timeout 90 "$torchrun" --standalone --no-python --nproc-per-node 2 $train
says "on 2 ranks"
# `shoal run` inside of a rank of torchrun's is a job of its own
expect 0 timeout 90 "$torchrun" --standalone --no-python --nproc-per-node 1 "$shoal" run --num_gpus 2 --master_port 0 $train
says "on 2 ranks"

# restarts: the first attempt leaves a port in the store, where nobody is any more
cat >twice.sh <<SCRIPT_
#!/bin/sh
if [ "\$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "\$RANK" = 1 ]; then
    sleep 2
    exit 3
fi
exec $(echo $train) "\$@"
SCRIPT_
chmod +x twice.sh
for form in "" "--standalone"; do
    expect 0 timeout 120 "$torchrun" $form --max-restarts 1 --no-python --nproc-per-node 2 ./twice.sh --save again
    same again
    rm -rf again
done

# two hosts: both agents hand out the first one's store. on_two NAME FLAGS... -- PROGRAM...; $code: of both
on_two() {
    local name=$1 i flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1") && shift; done
    shift
    code=0
    for i in 1 0; do
        on_host $i timeout 120 "$torchrun" --nnodes 2 --nproc-per-node 2 --no-python "${flags[@]//RANK/$i}" "$@" >"$name.$i" 2>&1 </dev/null &
        node[i]=$!
    done
    for i in 0 1; do wait "${node[i]}" || code=$?; done
    output=$(cat "$name.0" "$name.1")
}
node=()
static="--node-rank RANK --master-addr worker-0 --master-port"
c10d="--rdzv-backend c10d --rdzv-endpoint 10.77.0.10:29511 --rdzv-id two --local-addr 10.77.0.1RANK"
export UCX_TLS=tcp,self
on_two refused $static 29510 -- $train
grep -q "a rank cannot join: MASTER_ADDR=" refused.0 || complain "two hosts without a secret: rank 0 is not told: $(cat refused.0)"
[ $code -ne 0 ] || complain "two hosts without a secret: a success: $output"
says "is no address of this machine, and ranks of several machines meet only with a secret" SHOAL_SECRET_FILE
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
export SHOAL_SECRET_FILE=$folder/secret
on_two static $static 29510 -- $train --save by_static
[ $code -eq 0 ] || complain "two hosts, static: $code: $output"
says "on 4 ranks"
same by_static
on_two c10d $c10d -- $train --save by_c10d
[ $code -eq 0 ] || complain "two hosts, c10d: $code: $output"
same by_c10d
sed -i 's/"\$RANK" = 1/"$RANK" = 3/' twice.sh
on_two again $c10d --max-restarts 3 -- ./twice.sh --save both_again
[ $code -eq 0 ] || complain "two hosts, a restart: $code: $output"
same both_again
# a range that the firewall leaves open
on_two range $static 29510 -- env UCX_TCP_PORT_RANGE=20100-20110 $train
[ $code -eq 0 ] || complain "two hosts, a range of ports: $code: $output"
finish
