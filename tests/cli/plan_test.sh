#!/usr/bin/env bash
# `shoal plan`, and `pretrain` that refuses what does not fit.  Usage: plan_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_CPU_BYTES
cd "$folder" || exit 1

cat >large.json <<'CONFIG'
{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CONFIG
large="$shoal plan gpt --deepspeed_config large.json --num-layers 96 --hidden-size 12288 --num-attention-heads 96
       --seq-length 2048 --vocab-size 50257"
expect 3 $large --world-size 64,1024 --memory-limit 80GiB --peak-tflops 312 --memory-bandwidth 2000 --network-bandwidth 25
says "174.60 billion parameters" "64 ranks: does not fit" "1024 ranks: does not fit; needs" "the given limit is 80.0 GiB" \
    "it fits with --recompute-granularity full" "reduce_scatter" "seconds of a step"
expect 0 $large --world-size 1024 --memory-limit 80GiB --recompute-granularity full
says "1024 ranks: fits" "recompute" "left"
expect 3 $large --world-size 2,1024 --memory-limit 80G --json
[ "$(wc -l <<<"$output")" = 1 ] || complain "JSON is not one line: $output"
says '"world_size":1024' '"fits":false' '"suggestion":"' '"sent_elements":' '"traffic":{' '"flops_forward":'

# GPT-2 124M in exact mode: the logits and the fp32 gradient of the output matrix are what does not fit
cat >exact.json <<'CONFIG'
{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "reduction": "exact",
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CONFIG
# models by name
expect 2 "$shoal" plan gtp --deepspeed_config exact.json
says "there is no model \"gtp\"; nearest is gpt; there are: gpt, llama, bert, gpt2-124m"
expect 2 "$shoal" plan
says "name a model, such as gpt or gpt2-124m"
gpt2="$shoal plan gpt --deepspeed_config exact.json --num-layers 12 --hidden-size 768 --num-attention-heads 12
      --seq-length 256 --vocab-size 50257"
expect 3 $gpt2 --memory-limit 3GiB
says "1 rank: does not fit" "it fits with --cross-entropy-loss-fusion"
expect 0 $gpt2 --memory-limit 3GiB --cross-entropy-loss-fusion
says "fits"

# ---- little memory ----
# A batch, logits and states that no limit below leaves room for: planning them needs none of it.
sed 's/"train_micro_batch_size_per_gpu": 1/"train_micro_batch_size_per_gpu": 64/' large.json >wide.json
if [ -z "$SANITIZE" ]; then
    for kib in 9000 12000 16000 20000 24000 30000 40000 60000; do
        output=$(ulimit -v $kib && exec $shoal plan gpt --deepspeed_config wide.json --num-layers 2 --hidden-size 1024 \
            --num-attention-heads 16 --seq-length 65536 --vocab-size 50257 --memory-limit 80GiB --ranks-per-node 1 2>&1)
        code=$?
        # 127: there is no room for the program itself
        [ $code -lt 126 ] || [ $code = 127 ] || complain "a plan in $kib KiB of addresses ended with $code: $output"
    done
    [ $code = 3 ] || complain "60 MB are not enough for a plan, which says that the training does not fit: $output"
fi

# ---- mistakes ----
expect 2 $large --memory-limit much
says "--memory-limit" "much" "80GiB"
[ "$(grep -c "shoal" <<<"$output")" = 1 ] || complain "more than a sentence: $output"
expect 2 $large --memory-limit 80GiBs
expect 2 $large --memory-limit 0.1
# numbers that come near 2^63 on the way
sed 's/"stage": 3/"stage": 2, "reduce_bucket_size": 9223372036854775807/' large.json >bucket.json
grep -q 9223372036854775807 bucket.json || complain "the large bucket is not there"
expect 0 "$shoal" plan gpt --deepspeed_config bucket.json --num-layers 2 --hidden-size 16 --num-attention-heads 2 \
    --seq-length 16 --vocab-size 100 --world-size 1048576 --memory-limit 1GiB
expect 2 $large --world-size ''
says "--world-size has 0 numbers"
# more work in a step than 64 bits count
sed 's/"gradient_accumulation_steps": 1,//' large.json >many.json
many() { # CODE GLOBAL_BATCH
    expect "$1" "$shoal" plan gpt --deepspeed_config many.json --global-batch-size "$2" --num-layers 2 \
        --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --vocab-size 50257 --memory-limit 1PiB --json
}
many 0 10000000000
[[ $output != *:-* ]] || complain "a negative number: $output"
many 2 1000000000000
says "use a smaller global batch"
expect 2 $large --world-size 0
says "--world-size"
expect 2 $large --world-sise 4
says "nearest flag is --world-size"
expect 2 "$shoal" plan gpt --deepspeed_config large.json --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16
says "--vocab-size"
expect 2 "$shoal" plan llama --deepspeed_config large.json
says "llama"
cat >small.json <<'CONFIG'
{"packed_weights": false, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
small="gpt --deepspeed_config small.json --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64
       --mock-data --train-iters 1 --eval-iters 0 --threads 1"
expect 2 "$shoal" plan $small --world-size 3
says "--world-size 3" "train_batch_size"

# ---- a run is what its plan said, or does not begin ----
expect 0 "$shoal" plan $small --world-size 1 --json
planned=$output
need=$(sed 's/.*"need_bytes":\([0-9]*\).*/\1/' <<<"$output")
expect 0 "$shoal" pretrain $small
says "memory: planned" "peak RSS"
[ "$(sed -n 's/.*planned \(.*\), used.*/\1/p' <<<"$output")" = "$(sed -n 's/.*used \(.*\), peak.*/\1/p' <<<"$output")" ] ||
    complain "planned is not used: $output"
expect 0 env SHOAL_CPU_BYTES="$need" "$shoal" pretrain $small
expect 2 env SHOAL_CPU_BYTES=$((need - 1)) "$shoal" pretrain $small
says "the plan does not fit" "it fits with --recompute-granularity full" "--ignore-plan"
[ "$(wc -l <<<"$output")" = 1 ] || complain "more than a sentence: $output"
# the layers' memory is left over when the batch of a step is smaller: the machine says no itself
device=$(sed 's/.*"device_bytes":\([0-9]*\).*/\1/' <<<"$planned")
expect 1 env SHOAL_CPU_BYTES=$((device - 100000)) "$shoal" pretrain $small --ignore-plan
says "no memory"
# what costs least is tried first: weights that are packed need not be
sed 's/"packed_weights": false/"packed_weights": true/' small.json >packed.json
expect 2 env SHOAL_CPU_BYTES="$need" "$shoal" pretrain ${small/small.json/packed.json}
says "it fits with packed_weights false"
# two ranks: one sentence, and what helps is a stage
expect 0 "$shoal" plan $small --world-size 2 --json
need=$(sed 's/.*"need_bytes":\([0-9]*\).*/\1/' <<<"$output")
expect 2 env SHOAL_CPU_BYTES=$((need - 1)) "$shoal" run --master_port 0 --num_gpus 2 "$shoal" pretrain $small
says "the plan does not fit" "zero_optimization.stage 1"
[ "$(grep -c "^shoal" <<<"$output")" = 1 ] || complain "more than a sentence: $output"
sed -i 's/"optimizer"/"zero_optimization": {"stage": 1}, "optimizer"/' small.json
expect 0 env SHOAL_CPU_BYTES=$((need - 1)) "$shoal" run --master_port 0 --num_gpus 2 "$shoal" pretrain $small
if [ -z "$SANITIZE" ]; then
    (ulimit -d 3000; "$shoal" pretrain $small) >refused 2>&1
    grep -q "ulimit -d" refused || complain "a data limit of 1 MB: $(cat refused)"
fi
# a model that one rank cannot hold is refused, and trains with stage 3 and NVMe
if [ -z "$SANITIZE" ]; then
    mkdir nvme
    states='"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "bf16": {"enabled": true}, "steps_per_print": 1000000,
            "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1'
    echo "{$states}" >whole.json
    echo "{$states, \"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 500000, \"stage3_max_reuse_distance\": 0,
          \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"nvme\"},
          \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"nvme\", \"max_in_cpu\": 0}}}" >outside.json
    shape="--num-layers 4 --hidden-size 512 --num-attention-heads 4 --seq-length 16 --mock-data --train-iters 2
           --eval-iters 0 --threads 1"
    limited() { (ulimit -d 150000; "$@"); }
    expect 2 limited "$shoal" pretrain gpt --deepspeed_config whole.json $shape
    says "the plan does not fit" "it fits with" "offload_optimizer and offload_param (max_in_cpu 0) to nvme"
    expect 0 limited "$shoal" pretrain gpt --deepspeed_config outside.json $shape
    says "step 2/2" "memory: planned"
    expect 0 "$shoal" plan gpt --deepspeed_config outside.json $shape
    says "NVMe" "offloaded states" "fits"
fi
finish
