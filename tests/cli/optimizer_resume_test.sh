#!/usr/bin/env bash
# A training that continues with another optimizer: its states would be lost or mean something else, so it is refused, unless a flag drops
# them. And what lives across steps and is in no checkpoint: LoCo's errors.
# Usage: optimizer_resume_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1
gpt="$shoal pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --mock-data --vocab-size 32 --threads 1
    --eval-iters 0"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }

# ---- every pair of optimizers ----
config() { # NAME TYPE PARAMS [MORE]
    echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, \"reduction\": \"exact\",
        \"optimizer\": {\"type\": \"$2\", \"params\": {\"lr\": 0.01$3}}$4}" >"$1.json"
}
config adamw AdamW ', "weight_decay": 0.1'
config l2 Adam ', "weight_decay": 0.1, "adam_w_mode": false'
config sgd SGD
config momentum SGD ', "momentum": 0.9'
config lamb Lamb
config adafactor Adafactor
all="adamw l2 sgd momentum lamb adafactor"
for one in $all; do
    expect 0 $gpt --deepspeed_config $one.json --train-iters 2 --save $one
done
for one in $all; do
    for other in $all; do
        [ $one != $other ] || continue
        expect 2 $gpt --deepspeed_config $other.json --train-iters 3 --load $one --save new/deeper
        says "$one/global_step2" "another optimizer" "--no-load-optim" "--finetune"
        [ "$(grep -c . <<<"$output")" = 1 ] || complain "$one to $other: more than one sentence: $output"
        [ ! -e new ] || complain "$one to $other: a refused run left a folder"
    done
    expect 0 $gpt --deepspeed_config $one.json --train-iters 3 --load $one
    says "step 3/3"
    case $output in *optimizer\ *\`*) complain "the same optimizer is not the same: $output" ;; esac
done
expect 2 $gpt --deepspeed_config lamb.json --train-iters 3 --load adamw
says "the checkpoint adamw/global_step2 has optimizer states of \`adamw\`, and this run another optimizer, \`lamb\`"
expect 2 $gpt --deepspeed_config sgd.json --train-iters 3 --load momentum
says "has a state \`momentum_buffer\`, which \`sgd\` as configured here does not keep"
expect 2 $gpt --deepspeed_config momentum.json --train-iters 3 --load sgd
says "has no state \`momentum_buffer\`, which \`sgd\` as configured here needs"
expect 2 $gpt --deepspeed_config l2.json --train-iters 3 --load adamw --dist-ckpt-strictness log_all
says "\`adam with adam_w_mode false\`"
mkdir there
expect 2 $gpt --deepspeed_config lamb.json --train-iters 3 --load adamw --save there
[ -d there ] || complain "a folder that was there is gone"
# on other layouts, too
config two Lamb '' ', "zero_optimization": {"stage": 2}'
expect 2 $(ranks 2) $gpt --deepspeed_config two.json --train-iters 3 --load adamw
says "another optimizer, \`lamb\`"

# ---- what drops the states ----
for one in lamb sgd l2; do
    expect 0 $gpt --deepspeed_config $one.json --train-iters 3 --load adamw --no-load-optim
    says "step 3/3"
    expect 0 $gpt --deepspeed_config $one.json --train-iters 1 --load adamw --finetune
    says "step 1/1"
done

# ---- two names of one optimizer ----
config adam Adam ', "weight_decay": 0.1'
expect 0 $gpt --deepspeed_config adamw.json --train-iters 4 --load adamw --save a
expect 0 $gpt --deepspeed_config adam.json --train-iters 4 --load adamw --save b
says "was trained with optimizer \`adamw\`, this run uses \`adam\`: both are \`adamw\`, so its states are continued"
expect 0 "$shoal" diff a b
expect 0 $gpt --deepspeed_config adamw.json --train-iters 5 --load b
says "was trained with optimizer \`adam\`, this run uses \`adamw\`"
expect 2 $gpt --deepspeed_config l2.json --train-iters 5 --load b

# ---- other numbers of a run are said ----
config half AdamW ', "weight_decay": 0.1' ', "bf16": {"enabled": true}'
expect 0 $gpt --deepspeed_config half.json --train-iters 3 --load adamw
says "was trained in F32, this run computes in BF16"

config betas AdamW ', "weight_decay": 0.2, "betas": [0.8, 0.95]'
expect 0 $gpt --deepspeed_config betas.json --train-iters 3 --load adamw
says "was trained with betas (SGD: momentum, 0) 0.9, 0.999, this run uses 0.8, 0.95" \
    "was trained with weight_decay 0.1, this run uses 0.2"
expect 0 $gpt --deepspeed_config betas.json --train-iters 3 --load adamw --no-load-optim
case $output in *betas*) complain "betas of states that are not loaded: $output" ;; esac

# ---- LoCo: the errors begin anew, on the same layout and on others; nobody else is told so ----
zero() { # NAME MORE
    echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}},
        \"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true$2}}" >"$1.json"
}
zero plain
zero loco ', "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024}'
line="zeropp_loco_param: a checkpoint does not have LoCo's errors"
told() { # TIMES COMMAND...
    local times=$1
    shift
    expect 0 "$@"
    [ "$(grep -c "$line" <<<"$output")" = "$times" ] || complain "not said $times times: $* $output"
}
told 0 $(ranks 2) $gpt --deepspeed_config loco.json --train-iters 2 --save loco
told 1 $(ranks 2) $gpt --deepspeed_config loco.json --train-iters 3 --load loco
told 1 $(ranks 4) $gpt --deepspeed_config loco.json --train-iters 3 --load loco
told 1 $(ranks 2) $gpt --deepspeed_config loco.json --train-iters 3 --load loco --no-load-optim
told 0 $(ranks 2) $gpt --deepspeed_config plain.json --train-iters 3 --load loco
told 0 $(ranks 2) $gpt --deepspeed_config loco.json --train-iters 1 --load loco --finetune
told 0 $gpt --deepspeed_config loco.json --train-iters 3 --load loco
finish
