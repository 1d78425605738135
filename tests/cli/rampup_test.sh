#!/usr/bin/env bash
# --rampup-batch-size, --step-batch-size-schedule: Megatron's batches that change, on any number of ranks, and resumed.  Usage: rampup_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1

for i in $(seq 200); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "reduction": "exact",
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
train="$shoal pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1
       --data-path text --tokenizer-type char --eval-iters 2 --deepspeed_config ds.json --train-iters 12 --log-interval 1"
ramp="--rampup-batch-size 4 4 60"
schedule="--lr 0.01 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 3"
two="$shoal run --master_port 0 --num_gpus 2"
batches() { grep -o "batch [0-9]*  " <<<"$output" | tr -dc '0-9\n' | tr '\n' ' '; }
rates() { grep -o "lr [0-9.e+-]*" <<<"$output" | tr '\n' ' '; }
final_loss() { grep "on validation set" <<<"$output" | tail -1; }

# 3 growths share 60 samples: 20 with each batch. Before the steps 0 4 8 12 16 | 20 28 36 | 44 56 | 68 84 are consumed.
expect 0 $train $ramp $schedule --save one
[ "$(batches)" = "4 4 4 4 4 8 8 8 12 12 16 16 " ] || complain "batches: $(batches)"
loss=$(final_loss)
# Megatron's schedule counts samples: of the warm-up's 3 * 16, 0 and 4 and 8 ... came before
case $(rates) in
"lr 0.00e+00 lr 8.33e-04 lr 1.67e-03 lr 2.50e-03 lr 3.33e-03 lr 4.17e-03 lr 5.83e-03 "*) ;;
*) complain "learning rates: $(rates)" ;;
esac
# where the batch grows it is saved, as Megatron does
for step in 5 8 10 12; do
    [ -d one/global_step$step ] || complain "no checkpoint of step $step: $(ls one)"
done
one=one
same_weights() {
    local file
    for file in "$one"/global_step12/*.safetensors; do
        cmp -s "$file" "$1/global_step12/${file##*/}" || complain "$1: ${file##*/} differs from one run's"
    done
}
expect 0 $two $train $ramp $schedule --save two
[ "$(final_loss)" = "$loss" ] || complain "two ranks: $(final_loss), one: $loss"
same_weights two
# resumed in the middle of a batch size, on other ranks
expect 0 $train $ramp $schedule --save parts --exit-interval 7
expect 0 $two $train $ramp $schedule --save parts --load parts
[ "$(batches)" = "8 12 12 16 16 " ] || complain "resumed with batches: $(batches)"
same_weights parts
# without a ramp it is another training
expect 0 $train $schedule
[ -z "$(batches)" ] || complain "a batch that stays is in each line: $output"
[ "$(final_loss)" != "$loss" ] || complain "the ramp changes nothing"

# --step-batch-size-schedule: 16 tokens are a sample, so 20 samples with 4, 36 with 12, one step of 16, and 8 at the end
steps="--step-batch-size-schedule 896:16 0:4,320:12 1K:8"
expect 0 $train $steps $schedule --save scheduled
[ "$(batches)" = "4 4 4 4 4 12 12 12 16 8 8 8 " ] || complain "scheduled batches: $(batches)"
loss=$(final_loss)
one=scheduled
expect 0 $two $train $steps $schedule --save scheduled_two
[ "$(final_loss)" = "$loss" ] || complain "two ranks: $(final_loss), one: $loss"
same_weights scheduled_two
expect 0 $train $steps $schedule --save scheduled_parts --exit-interval 7
expect 0 $two $train $steps $schedule --save scheduled_parts --load scheduled_parts
[ "$(batches)" = "12 16 8 8 8 " ] || complain "resumed with batches: $(batches)"
same_weights scheduled_parts

refuses_steps() {
    local words=$1
    shift
    expect 2 $two $train --step-batch-size-schedule "$words"
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "$words: more than one sentence: $output"
    says "$@"
}
refuses_steps "0:4 1M" 'has "1M": give TOKENS:BATCH'
refuses_steps "0:4 1X:8" 'has "1X:8": give TOKENS:BATCH'
refuses_steps "0:4 320:0" 'has "320:0": give TOKENS:BATCH'
refuses_steps "16:4" "must set the batch from 0 tokens on"
refuses_steps "0:4 320:8 330:16" "320 and 330 tokens are both 20 samples of --seq-length 16"
refuses_steps "0:6 320:16" "the batch 6 is not a multiple of 4, which is micro-batch 2 * 2 data-parallel ranks"
refuses_steps "0:4 320:12" "the largest batch is 12, and train_batch_size is 16"
# Megatron refuses --global-batch-size beside a schedule: the largest batch is then the full one
sed 's/"train_batch_size": 16, //' ds.json >bare.json
expect 0 ${train/ds.json/bare.json} $steps $schedule --micro-batch-size 2
[ "$(batches)" = "4 4 4 4 4 12 12 12 16 8 8 8 " ] || complain "a schedule without a batch: $(batches)"
[ "$(final_loss)" = "$loss" ] || complain "a schedule without a batch: $(final_loss), with one: $loss"
expect 2 $two $train --step-batch-size-schedule 0:16 $ramp
says "--rampup-batch-size and --step-batch-size-schedule both change the batch size"

refuses() {
    local words=$1
    shift
    expect 2 $two $train --rampup-batch-size $words
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "$words: more than one sentence: $output"
    says "$@"
}
refuses "4 5 60" "from 4 to the batch of 16 there is no whole number of increments of 5"
refuses "32 4 60" "starts with 32 samples, more than the final batch of 16"
refuses "6 10 60" "the first batch 6 is not a multiple of 4, which is micro-batch 2 * 2 data-parallel ranks"
refuses "4 6 60" "an increment of 6 is not a multiple of 4"
refuses "4 4" "takes three whole numbers"
refuses "4 x 60" "takes three whole numbers"
finish
