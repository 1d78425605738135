#!/usr/bin/env bash
# `shoal bench` and `shoal tune` from outside.  Usage: bench_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset SHOAL_ACCELERATOR DS_ACCELERATOR SHOAL_COMM SHOAL_LOG SHOAL_IO SHOAL_NUM_THREADS OMP_NUM_THREADS
quick="--repeats 2 --seconds 0.01"

# Wrong words
expect 2 "$shoal" bench
says "usage: shoal bench"
expect 2 "$shoal" bench gem
says "\"gem\"" "nearest is \"gemm\""
expect 2 "$shoal" bench gemm --thread 2
says "--thread" "--threads"
expect 2 "$shoal" bench gemm --set huge $quick
says "huge" "124m, tiny or llama-1b"
expect 2 "$shoal" bench gemm --accelerator cudda
says "accelerator 'cudda' is unknown; did you mean 'cuda'?"
expect 2 "$shoal" bench gemm --device 1 $quick
says "--device is 1, and accelerator cpu has 1"
expect 2 "$shoal" bench comm --ranks 2 --max-bytes 4Q
says "--max-bytes \"4Q\" is not a size"
expect 2 "$shoal" bench step --model gpt2-125m
says "nearest is gpt2-124m"
expect 2 "$shoal" bench io
says "--folder"
expect 2 "$shoal" bench io --folder "$folder/none" --size 1M
says "$folder/none"
expect 2 "$shoal" bench io --folder "$shoal" --size 1M
says "Not a directory"
expect 2 "$shoal" bench io --folder /proc --size 1M
says "cannot make a file in \"/proc\""
expect 2 "$shoal" bench io --folder "" --size 1M
says "--folder is empty"
expect 2 "$shoal" tune io --folder "$(printf 'a/%.0s' {1..2100})" --size 1M
says "the folder's name has more than"
expect 2 "$shoal" bench gemm --m 1000000000 --n 1000000000 --k 1000000000
says "exceeds any memory"
expect 2 "$shoal" bench attention --batch 1 --heads 4 --kv-heads 3 --seq-length 8 --head-size 4 $quick
says "--heads 4 is not divisible by --kv-heads 3"
expect 2 "$shoal" bench attention --batch 1000000 --heads 1000000 --seq-length 10000000 --head-size 4096
says "exceed any memory"
expect 2 "$shoal" bench comm $quick
says "one rank sends nothing" "--ranks N"
expect 2 "$shoal" bench comm --ranks 2 --min-bytes 8M --max-bytes 1M
says "no message size lies from 8388608 to 1048576"
[ "$(wc -l <<<"$output")" = 1 ] || complain "more than a sentence: $output"
expect 2 "$shoal" bench comm --ranks 2 --step-factor 1
says "at least 2"
expect 2 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench comm --ranks 2
says "--ranks starts ranks as threads"
expect 2 "$shoal" bench start --num_gpus 0
says "--num_gpus" "from 1"
expect 2 "$shoal" bench start --model tiny --repeats 1 --deepspeed_config "$folder/none"
says "$folder/none" "exited with code 2"
expect 2 "$shoal" tune
says "the subjects are io and comm"

# Samples when they are asked for
expect 2 "$shoal" bench step --model tiny --micro-batch 1 --repeats 2 --seconds 0.01 --threads 1 --paced
says "--paced: standard input ended before the last sample"
for subject in "step --model tiny --micro-batch 1" "generate --model tiny" "checkpoint --size 1M --folder $folder"; do
    # shellcheck disable=SC2086
    output=$(printf '\n\n' | "$shoal" bench $subject --repeats 2 --seconds 0.01 --json --paced 2>&1) ||
        complain "$subject --paced ended with $?: $output"
    [ "$(grep -c '^ready$' <<<"$output")" = 2 ] || complain "$subject: not two samples asked for: $output"
    says '"repeats": 2'
done

# Every subject explains itself
for subject in $("$shoal" bench --help | awk '/^  [a-z]/ { print $1 }'); do
    expect 0 "$shoal" bench "$subject" --help
    says "usage: shoal bench $subject" "--json" "--repeats"
done
expect 0 "$shoal" tune io --help
says "usage: shoal tune io"

# Figures
expect 0 "$shoal" bench gemm --m 64 --n 48 --k 32 --threads 1 $quick
says "product NN 64x48x32" "GFLOP/s" "of 2)"
if grep -qw avx2 /proc/cpuinfo; then
    expect 0 "$shoal" bench gemm --m 64 --n 48 --k 32 --threads 1 --prepacked --ops cpu-avx2 $quick
    says "product NN 64x48x32" "GFLOP/s"
fi
expect 2 "$shoal" bench gemm --m 64 --n 48 --k 32 --threads 1 --prepacked --ops ref $quick
says "no packed layout for F32: leave --prepacked out"
expect 0 "$shoal" bench gemm --m 64 --n 48 --k 32 --threads 1 --json $quick
says '{"bench": "gemm"' '"limit_name": ' '"repeats": 2' '"time": {"value": '
expect 0 "$shoal" bench adam --count 10000 --threads 1 $quick
says "AdamW with bf16 weights" "axpy"
expect 0 "$shoal" bench comm --ranks 2 --op reduce_scatter --min-bytes 1K --max-bytes 8K --step-factor 8 $quick
says "reduce_scatter F32 1024 B, 2 ranks (thread)" "8192 B" "busbw" "round trip after"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench comm --max-bytes 4K $quick
says "all_reduce F32 4096 B, 2 ranks (shm)"
[ "$(echo "$output" | grep -c 4096)" -eq 1 ] || complain "more than one rank prints: $output"
model="--model tiny --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --micro-batch 2"
expect 0 "$shoal" bench step $model --dtype bf16 --threads 1 $quick
says "2x8 tokens" "tokens/s" "peak RSS" "FLOPs per token"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model --threads 1 $quick
says "4x8 tokens" "2 ranks of 1 thread"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model --threads 1 $quick --tensor-model-parallel-size 2
says "2 ranks of 1 thread, tp 2" "tokens/s"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model --threads 1 $quick \
    --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --gradient-accumulation-steps 3
says "2 ranks of 1 thread, pp 2 zb-h1, 3 micro-batches" "tokens/s"
expect 2 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model --pipeline-model-parallel-size 3 $quick
says "2 ranks cannot be divided into replicas of 3"
expect 2 "$shoal" bench step $model --num-virtual-stages-per-pipeline-rank 2 $quick
says "--num-virtual-stages-per-pipeline-rank has no effect without a pipeline"
shape="--model tiny --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8"
for dtype in fp32 bf16; do
    expect 0 "$shoal" bench generate $shape --dtype $dtype --threads 1 $quick
    says "prompt of 4 tokens" "a token after it, of 1 sequence" "weights at memory speed" "masters 0 MiB"
done
expect 2 "$shoal" bench generate $shape --prompt-length 8 $quick
says "leaves no room"
expect 2 "$shoal" bench generate --model gtp
says "--model: there is no model \"gtp\"; nearest is gpt"
expect 0 "$shoal" bench start $model --num_gpus 2 --repeats 2 --threads 1
says "begin of the first step of" "end of the first step of" "2 ranks" "--version alone"
expect 0 "$shoal" bench io --folder "$folder" --size 300K --block-size 8K --repeats 2
says "write " "read " "GB/s" "plain "
expect 0 "$shoal" tune io --folder "$folder" --size 64K --repeats 1
says '{"aio": {"block_size": ' '"queue_depth": ' '"intra_op_parallelism": ' '"single_submit": ' '"overlap_events": '
# ... which a configuration takes as it is
aio=$(echo "$output" | sed -n 's/^{\("aio": .*\)}$/\1/p')
cat >"$folder/config.json" <<CONFIG
{ $aio, "train_micro_batch_size_per_gpu": 2, "bf16": { "enabled": true }, "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } } }
CONFIG
expect 0 "$shoal" bench step $model --deepspeed_config "$folder/config.json" --threads 1 $quick
says "BF16 by configuration"
# ... and the update beside the drive that holds its states, also of two ranks
cat >"$folder/config.json" <<CONFIG
{ "train_micro_batch_size_per_gpu": 2, "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } },
  "zero_optimization": { "stage": 1, "sub_group_size": 1024, "offload_optimizer": { "device": "nvme",
    "nvme_path": "$folder", "buffer_count": 12, "pipeline_read": true, "pipeline_write": true } } }
CONFIG
expect 0 "$shoal" bench step $model --deepspeed_config "$folder/config.json" --threads 1 $quick
says "tokens/s" "update of states on the drive" "the drive reads" "update without the drive" "of the limit"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model \
    --deepspeed_config "$folder/config.json" --threads 1 --json $quick
says '"name": "update of states on the drive", "unit": "ms"' '"these bytes alone": {"value": '
rm -f "$folder/config.json"
# ... and interrupted
timeout --foreground -s INT 0.5 "$shoal" bench io --folder "$folder" --size 64M --seconds 60 >/dev/null 2>&1
[ -z "$(ls "$folder")" ] || complain "files stay: $(ls "$folder")"
finish
