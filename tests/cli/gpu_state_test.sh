#!/usr/bin/env bash
# What lies outside of an emulated GPU's memory: checkpoints that CPU and GPU give to each other, states in host memory and on a drive, text
# that both generate. All have the bits of a CPU.  Usage: gpu_state_test.sh SHOAL EMULATOR
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1") emulator=$(realpath "$2")
forget_job
cd "$folder" || exit 1
mkdir drive
for i in $(seq 30); do echo "a line of text for the tests, number $i"; done >text
# configuration FILE MORE
configuration() {
    echo "{\"train_batch_size\": 2, \"train_micro_batch_size_per_gpu\": 1, \"steps_per_print\": 1000, \"reduction\": \"exact\",
\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}$2}" >"$1"
}
drive='{"device": "nvme", "nvme_path": "drive"'
configuration none.json ""
configuration cpu.json ', "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}'
configuration cpu3.json ', "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.7}, "offload_param": {"device": "cpu"}}'
configuration nvme.json ", \"zero_optimization\": {\"stage\": 1, \"sub_group_size\": 1024, \"offload_optimizer\": $drive, \"pipeline_read\": true,
\"pipeline_write\": true, \"buffer_count\": 12}}"
# train CONFIG FLAGS...
train() {
    echo "$shoal pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text
        --tokenizer-type char --eval-iters 1 --deepspeed_config $*"
}
# same DIR: its weights and states are those of the CPU
same() {
    local file count=0
    for file in cpu/global_step4/*.safetensors; do
        cmp -s "$file" "$1/global_step4/${file##*/}" || complain "$1: ${file##*/} differs"
        count=$((count + 1))
    done
    [ $count -eq 3 ] || complain "$count files are compared, not weights and two states"
}
on_cpu="env SHOAL_OPS=ref SHOAL_ACCELERATOR=cpu"
export SHOAL_CUDA_DRIVER=$emulator SHOAL_ACCELERATOR=cuda
expect 0 $on_cpu $(train none.json --train-iters 4 --save cpu)
for where in none cpu cpu3 nvme; do
    expect 0 $(train $where.json --train-iters 4 --save gpu.$where)
    same gpu.$where
done
expect 0 "$shoal" run --master_port 0 --num_gpus 2 $(train cpu3.json --train-iters 4 --save gpu.two)
"$shoal" diff cpu gpu.two >out 2>&1 && grep -q "^equal: every bit of every tensor" out || complain "cpu and two ranks: $(tail -n 2 out)"
# half of the steps on each, in both orders
expect 0 $on_cpu $(train none.json --train-iters 2 --save there)
expect 0 $(train none.json --train-iters 4 --load there --save there)
same there
expect 0 $(train none.json --train-iters 2 --save back)
expect 0 $on_cpu $(train none.json --train-iters 4 --load back --save back)
same back
# the same text and the same logits
words="--num-tokens 12 --top-k 1 --threads 1 --prompt line"
expect 0 $on_cpu "$shoal" generate --load cpu $words --print-logits cpu.npy
text=$output
expect 0 "$shoal" generate --load gpu.none $words --print-logits gpu.npy
[ "$(grep -v '^\[shoal\]' <<<"$output")" = "$text" ] || complain "other text: $output, not $text"
cmp -s cpu.npy gpu.npy || complain "the logits differ"
finish
