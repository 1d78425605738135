#!/usr/bin/env bash
# Offload in `shoal pretrain`, as processes: the same weights wherever states and parameters wait, nothing left
# on the drive, a full drive in one sentence.  Usage: offload_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
export SHOAL_SIM_BYTES=268435456
cd "$folder" || exit 1

for i in $(seq 200); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
# configuration FILE OFFLOAD: OFFLOAD stands in zero_optimization
configuration() {
    cat >"$1" <<CONFIG
{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "reduction": "exact", "steps_per_print": 1000000,
 "gradient_clipping": 1.0, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
 "aio": {"block_size": 16384, "queue_depth": 4},
 "zero_optimization": {"stage": 3, "sub_group_size": 3000$2}}
CONFIG
}
nvme='{"device": "nvme", "nvme_path": "drive"'
configuration none.json ""
configuration cpu.json ', "offload_optimizer": {"device": "cpu", "ratio": 0.7}, "offload_param": {"device": "cpu"}'
configuration nvme.json ", \"offload_optimizer\": $nvme, \"pipeline_read\": true, \"pipeline_write\": true,
    \"buffer_count\": 12}, \"offload_param\": $nvme, \"max_in_cpu\": 2000}"
shape="--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1"
train() { echo "$shoal pretrain gpt $shape --data-path text --tokenizer-type char --eval-iters 1 --deepspeed_config $1"; }
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
# same_weights DIR: its tensors are those of none1/
same_weights() {
    local file
    for file in none1/global_step6/*.safetensors; do
        cmp -s "$file" "$1/global_step6/${file##*/}" || complain "$1: ${file##*/} differs"
    done
}

expect 0 $(train none.json) --train-iters 6 --save none1
for where in cpu nvme; do
    for n in 1 3; do
        expect 0 $(ranks $n) $(train $where.json) --train-iters 6 --save $where$n
        same_weights $where$n
    done
    expect 0 env SHOAL_ACCELERATOR=sim SHOAL_SIM_STREAMS=thread $(ranks 2) $(train $where.json) --train-iters 6 --save sim$where
    same_weights sim$where
done
# continuing from the drive in memory, and back
expect 0 $(ranks 2) $(train nvme.json) --train-iters 4 --save mixed
expect 0 $(ranks 3) $(train cpu.json) --train-iters 6 --load mixed --save mixed
same_weights mixed
[ -d drive ] || complain "the drive's folder was not made"
[ -z "$(ls -A drive)" ] || complain "left on the drive: $(ls -AR drive)"

# a rank that is killed leaves nothing there either
expect 137 env SHOAL_FAULT="io_read:20@1=kill" $(ranks 2) $(train nvme.json) --train-iters 6
says "rank 1"
[ -z "$(ls -A drive)" ] || complain "a killed rank left on the drive: $(ls -AR drive)"
# what the drive cannot do is said, with the file
expect 1 env SHOAL_FAULT="io_read:20@1" $(ranks 2) $(train nvme.json) --train-iters 6
says "rank 1" "optimizer.swp"

# a wrong path is a mistake of the configuration, found by all ranks
sed 's|"drive"|"/proc/drive"|' nvme.json >wrong.json
expect 2 $(ranks 2) $(train wrong.json) --train-iters 1
says 'nvme_path "/proc/drive" cannot be used'
# a rank that fails while an engine is made does not wait for the others, nor they for it
for point in host_alloc:8 comm.split device_alloc:4; do
    expect 1 env SHOAL_FAULT="$point@1" timeout 60 $(ranks 2) $(train nvme.json) --train-iters 1
    says "fault" "rank 1"
    [ -z "$(ls -A drive)" ] || complain "$point left on the drive: $(ls -AR drive)"
done

# a full drive
full='mount -t tmpfs -o size=64k none drive && exec "$@"'
if unshare -rm sh -c "$full" - true 2>/dev/null; then
    expect 1 unshare -rm sh -c "$full" - $(train nvme.json) --train-iters 6
    says "the disk is full" "drive/shoal_"
else
    echo "skipped: a full drive (no mount of a tmpfs here)"
fi
finish
