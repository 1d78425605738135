#!/usr/bin/env bash
# Programs of others start ranks of `shoal pretrain`: by the variables and arguments that DeepSpeed's launcher and
# torch.distributed.launch give, and by the real `deepspeed` and `accelerate launch` where they are installed. mpirun, srun and
# torchrun have tests of their own (cli.mpi_*, cluster.slurm, cluster.torchrun).
# Usage: [SHOAL_TEST_DEEPSPEED=PATH] [SHOAL_TEST_ACCELERATE=PATH] launchers_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
forget_job
unset OPENBLAS_CORETYPE
cd "$folder" || exit 1
echo '{"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}' >config.json
train=(pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --threads 1 --eval-iters 0
    --mock-data --deepspeed_config config.json --train-iters 2)
port() { echo $((20000 + SRANDOM % 10000)); }

# ---- by hand ----
cat >by_hand <<'SCRIPT'
export WORLD_SIZE=2 LOCAL_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1 MASTER_ADDR=127.0.0.1
RANK=1 LOCAL_RANK=1 "$1" ${FORM//N/1} "${@:2}" & other=$!
RANK=0 LOCAL_RANK=0 "$1" ${FORM//N/0} "${@:2}"; code=$?
wait $other || [ $code -ne 0 ] || code=$?
exit $code
SCRIPT
for form in --local_rank=N --local-rank=N "--local_rank N" ""; do
    FORM=$form MASTER_PORT=$(port) expect 0 bash by_hand "$shoal" "${train[@]}"
    says "on 2 ranks"
done
expect 2 "$shoal" --local_rank=first report
says 'there is no subcommand "--local_rank=first"'
expect 2 "$shoal" --local_rank
says 'there is no subcommand "--local_rank"'

# ---- by the programs themselves ----
deepspeed=${SHOAL_TEST_DEEPSPEED:-deepspeed} accelerate=${SHOAL_TEST_ACCELERATE:-accelerate} absent=
if command -v "$deepspeed" >/dev/null; then
    for flags in "" --no_local_rank; do
        expect 0 timeout 120 "$deepspeed" --no_python $flags --num_gpus 2 --master_port "$(port)" "$shoal" "${train[@]}"
        says "on 2 ranks"
    done
else
    absent="deepspeed is not installed (package deepspeed), and SHOAL_TEST_DEEPSPEED names none"
fi
if command -v "$accelerate" >/dev/null; then
    expect 0 timeout 120 "$accelerate" launch --no_python --multi_gpu --num_machines 1 --num_processes 2 --main_process_port "$(port)" \
        --mixed_precision no --dynamo_backend no "$shoal" "${train[@]}"
    says "on 2 ranks"
else
    absent="${absent:+$absent; }accelerate is not installed (package accelerate), and SHOAL_TEST_ACCELERATE names none"
fi
[ -z "$absent" ] || [ "$failures" -ne 0 ] || echo "skipped a part: $absent"
finish
