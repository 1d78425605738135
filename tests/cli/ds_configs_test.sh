#!/usr/bin/env bash
# Published ds_config.json files, rewritten: each runs, warns of certain keys, or is refused for a feature that is not
# there.  Usage: ds_configs_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
table=$(dirname "$(realpath "$0")")/ds_configs.tsv
forget_job
export SHOAL_THREADS=1 SHOAL_LOG=warning
cd "$folder" || exit 1
mkdir nvme
shape="--num-layers 1 --hidden-size 32 --num-attention-heads 8 --seq-length 8 --vocab-size 64 --deepspeed_config c.json"

# sentence FEATURE: a part of the error that refuses it
sentence() {
    case $1 in
    apex) echo "amp is deprecated; NVIDIA Apex is not used" ;;
    autocast) echo "torch_autocast.enabled is known but not supported yet" ;;
    compression) echo "_training is" ;;
    curriculum) echo "curriculum_learning.enabled is known but not supported yet" ;;
    data-efficiency) echo "data_efficiency.enabled is known but not supported yet" ;;
    fp8) echo "msamp is deprecated; FP8 by MS-AMP is not supported" ;;
    layer-drop) echo "progressive_layer_drop.enabled is known but not supported yet" ;;
    one-bit) echo "is known but not supported yet; use adamw" ;;
    other-optimizer) echo "optimizer.type: there is no optimizer" ;;
    sequence-parallel) echo "passes has \"autosp\", which is not supported" ;;
    sparse-attention) echo "sparse_attention is deprecated" ;;
    unknown-parameter) echo "scheduler.params.warmup_max_lr: unknown key" ;; # WarmupCosineLR of DeepSpeed raises TypeError
    zenflow) echo "zenflow, which is on when it is given, is not supported" ;;
    *) echo "no such feature: $1" ;;
    esac
}
# warned: the keys that the last output warns of, sorted, in one line
warned() {
    sed -n 's/^\[shoal\] rank 0: warning: \([^ ]*\) \(has no effect\|is \|[0-9]* is taken \).*/\1/p' <<<"$output" |
        sort -u | tr '\n' ' '
}

rows=0
declare -A seen
while IFS=$'\t' read -r verdict json; do
    [[ $verdict != \#* ]] || continue
    rows=$((rows + 1))
    seen[${verdict%% *}]=1
    echo "$json" >c.json
    command="pretrain gpt $shape --mock-data --train-iters 1 --eval-iters 0"
    [[ ! $json =~ \"autotp_size\":([0-9]+) ]] || command="plan gpt $shape --world-size ${BASH_REMATCH[1]}"
    [[ $json =~ \"lr\":[0-9] ]] || command="$command --lr 0.001"
    before=$failures
    case $verdict in
    refused\ *)
        expect 2 "$shoal" $command
        says "$(sentence "${verdict#refused }")"
        ;;
    *)
        expect 0 "$shoal" $command
        keys=$(warned)
        wanted=${verdict#runs}
        [ "${keys% }" = "${wanted#warns }" ] || complain "warns of \"${keys% }\", not \"${wanted#warns }\""
        ;;
    esac
    [ "$before" = "$failures" ] || echo "    $json"
done <"$table"
[ "$rows" -ge 100 ] || complain "$table has $rows rows"
[ "${#seen[@]}" = 3 ] || complain "$table lacks a kind of verdict: ${!seen[*]}"
# ---- what flags say in place of the file ----
train="$shoal pretrain gpt ${shape% --deepspeed_config*} --mock-data --eval-iters 0 --log-interval 1"
expect 2 $train --train-iters 1
says "the configuration has no \`optimizer\` section: give --lr"
export SHOAL_LOG=info
expect 0 $train --train-iters 1 --lr 0.01
says "train_micro_batch_size_per_gpu is 1" "batch: 1 sample" "lr 1.00e-02"
expect 0 $train --train-iters 1 --lr 0.01 --micro-batch-size 3 --bf16
says "batch: 3 samples"
expect 0 "$shoal" plan gpt ${shape% --deepspeed_config*} --lr 0.01 --micro-batch-size 2 --world-size 2
echo '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}' >c.json
expect 2 $train --train-iters 1 --deepspeed_config c.json
says "the configuration has no \`optimizer\` section: give --lr"

# "auto" of Hugging Face's Trainer: the length of the training, and its warm-up
echo '{"train_batch_size": 1, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}, "scheduler":
    {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto",
    "warmup_num_steps": "auto", "warmup_type": "linear"}}}' >c.json
expect 0 $train --train-iters 1 --deepspeed_config c.json
says "c.json: optimizer.params.lr is \"auto\", which the flag --lr fills"
# rates FLAGS...: the learning rates of the steps
rates() {
    expect 0 $train --deepspeed_config c.json "$@"
    got=$(grep -o 'lr [0-9.e+-]*' <<<"$output" | cut -d' ' -f2 | tr '\n' ' ')
}
rates --train-iters 6 --lr 0.08
[ "$got" = "0.00e+00 0.00e+00 4.00e-02 8.00e-02 6.00e-02 4.00e-02 " ] || complain "rates without warm-up: $got"
rates --train-iters 6 --lr 0.08 --lr-warmup-iters 4
[ "$got" = "0.00e+00 0.00e+00 2.00e-02 4.00e-02 6.00e-02 8.00e-02 " ] || complain "rates with a warm-up of 4: $got"
with_iters=$got
rates --train-iters 6 --lr 0.08 --lr-warmup-fraction 0.67 --lr-decay-iters 6
[ "$got" = "$with_iters" ] || complain "rates with a warm-up of two thirds: $got"
expect 2 $train --train-iters 6 --lr 0.08 --min-lr 0.01 --deepspeed_config c.json
says "--min-lr asks for Megatron's schedule but c.json has a scheduler (WarmupDecayLR)"

# buffers of an offload: nobody set a number, or one that is too small
offload='"device": "nvme", "nvme_path": "nvme", "pipeline_read": true, "pipeline_write": true'
for count in '' ', "buffer_count": 4'; do
    echo "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {$offload$count}}}" >c.json
    expect 0 $train --train-iters 1 --lr 0.01 --deepspeed_config c.json
    line="buffer_count 4 is raised to 12"
    [ -n "$count" ] || line="buffer_count, which is not given, is 12"
    [ "$(grep -c "$line" <<<"$output")" = 1 ] || complain "not once \"$line\": $output"
done
finish
