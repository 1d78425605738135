#!/usr/bin/env bash
# Training whose ranks UCX connects: the bits of one rank, what is chosen among hosts, a rank that is killed, and a program
# without the plug-in.
# Usage: ucx_test.sh SHOAL SOURCE
. "$(dirname "$0")/check.sh"
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR SHOAL_FAULT MASTER_PORT RANK WORLD_SIZE LOCAL_SIZE
unset UCX_TLS UCX_NET_DEVICES
shoal=$1 source=$2
"$shoal" report | grep -q '^  ucx  *UCX ' || { echo "skipped: no plug-in for UCX that loads" && exit 77; }
PATH=$(dirname "$(readlink -f "$shoal")"):$PATH "$(basename "$shoal")" report | grep -q '^  ucx  *UCX ' ||
    complain "started by its bare name, the program finds no plug-in"
cd "$folder" || exit 1
head -c 20000 "$source/docs/TUTORIAL.md" >text.txt
for reduction in exact fast; do
    cat >"$reduction.json" <<JSON
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "$reduction", "zero_optimization": {"stage": 2}, "seed": 3}
JSON
done
train() { # REDUCTION SAVE ITERATIONS
    echo "$shoal" pretrain gpt --deepspeed_config "$1.json" --data-path text.txt --num-layers 2 --hidden-size 64 \
        --num-attention-heads 4 --seq-length 32 --train-iters "${3:-4}" --save "$2"
}
same() { # DIR DIR
    local name
    for name in "$1"/global_step4/*.safetensors; do
        cmp "$name" "$2/global_step4/${name##*/}" || complain "$1 and $2 differ"
    done
}

# the bits of one rank; in rank order those of shared memory, in fp32, too
expect 0 $(train exact alone)
SHOAL_COMM=ucx expect 0 "$shoal" run --num_gpus 2 $(train exact by_ucx)
same by_ucx alone
SHOAL_COMM=ucx expect 0 "$shoal" run --num_gpus 2 $(train fast fast_ucx)
expect 0 "$shoal" run --num_gpus 2 $(train fast fast_shm)
same fast_ucx fast_shm
cmp -s by_ucx/global_step4/model-00001-of-00001.safetensors fast_ucx/global_step4/model-00001-of-00001.safetensors &&
    complain "exact and fast have the same weights: the comparison above sees nothing"

# two hosts of one rank each, as `shoal run` tells their ranks: nobody asked for ucx
port=$((20000 + $$ % 10000))
export SHOAL_SECRET=0123456789abcdef0123456789abcdef MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=2 LOCAL_SIZE=1 LOCAL_RANK=0
RANK=1 $(train exact hosts) >other 2>&1 &
other=$!
RANK=0 expect 0 $(train exact hosts)
wait $other || complain "rank 1 failed: $(cat other)"
same hosts alone
bench=("$shoal" bench comm --min-bytes 4K --max-bytes 4K --seconds 0.01 --repeats 1)
RANK=1 "${bench[@]}" >other 2>&1 &
other=$!
RANK=0 expect 0 "${bench[@]}"
wait $other || complain "rank 1 failed: $(cat other)"
says "2 ranks (ucx)"

# a rank that is killed: the other one says which
RANK=1 $(train exact killed 1000000) >other 2>&1 &
other=$!
(for ((i = 0; i < 1200; i++)); do
    grep -q 'step' first 2>/dev/null && break
    sleep 0.05
done
kill -9 $other) &
killer=$!
code=0
RANK=0 timeout 120 $(train exact killed 1000000) >first 2>&1 || code=$?
wait $killer $other 2>/dev/null
[ "$code" = 1 ] || complain "rank 0 ended with $code beside a rank that was killed: $(tail -n 3 first)"
output=$(cat first)
says "rank 1 (pid $other on " "is gone: it was killed or left without shoal_comm_destroy"
unset SHOAL_SECRET MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_SIZE LOCAL_RANK

# algorithms as they were measured: the same bits, and refused by another world
printf 'world UCX 2 0\nall_reduce integer 100000 ring\nall_reduce integer - halving\nall_reduce any - direct\nall_gather any - ring\nreduce_scatter integer - halving\nbroadcast any - tree\n' >table
SHOAL_COMM=ucx SHOAL_COMM_TUNING=table expect 0 "$shoal" run --num_gpus 2 $(train exact tuned)
same tuned alone
SHOAL_COMM=ucx SHOAL_COMM_TUNING=table expect 2 "$shoal" run --num_gpus 3 "$shoal" bench comm --max-bytes 4K
says "table (SHOAL_COMM_TUNING) was measured by 2 ranks of UCX" "this job has 3 of UCX" "run \`shoal tune comm\` with this job's ranks"
SHOAL_COMM=ucx SHOAL_COMM_TUNING=absent expect 2 "$shoal" run --num_gpus 2 "$shoal" bench comm --max-bytes 4K
says "cannot read absent (SHOAL_COMM_TUNING): No such file"
echo 'all_reduce any 5 slowly' >>table
SHOAL_COMM=ucx SHOAL_COMM_TUNING=table expect 2 "$shoal" run --num_gpus 2 "$shoal" bench comm --max-bytes 4K
says 'table:8: "all_reduce any 5 slowly" is not what `shoal tune comm` writes'
SHOAL_COMM=ucx expect 0 "$shoal" run --num_gpus 2 "$shoal" tune comm --max-bytes 16K --repeats 1 --output measured
says "all_reduce     any            4096 B  direct " "reduce_scatter integer        4096 B  direct "
grep -q '^world UCX 2 2$' measured && grep -q '^broadcast any - ' measured || complain "tune comm wrote $(cat measured)"
SHOAL_COMM=ucx SHOAL_COMM_TUNING=measured expect 0 "$shoal" run --num_gpus 2 "$shoal" bench comm --max-bytes 4K --seconds 0.01
expect 2 "$shoal" run --num_gpus 2 "$shoal" tune comm
says "tune comm: shm has only one algorithm per collective"

# a program without its plug-in
mkdir -p bare/bin && cp "$shoal" bare/bin/shoal
SHOAL_COMM=ucx expect 2 "$folder/bare/bin/shoal" run --num_gpus 2 $(train exact wrong | sed "s|^$shoal|$folder/bare/bin/shoal|")
says "its plug-in does not load (libshoal_ucx.so: " "libucx-dev"
SHOAL_COMM=lam expect 2 "$shoal" run --num_gpus 2 $(train exact wrong)
says 'unknown backend "lam" (SHOAL_COMM): use self, thread, shm, mpi or ucx'
finish
