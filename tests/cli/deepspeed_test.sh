#!/usr/bin/env bash
# Checkpoints of DeepSpeed through the program: looked into, continued by any number of ranks and stage.
# Usage: deepspeed_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 golden=$2/tests/golden
cd "$folder" || exit 1
xz --version >/dev/null 2>&1 || { echo "skipped: the program xz is not there" && exit 77; }
tar -xJf "$golden/deepspeed.tar.xz" || exit 1

expect 0 "$shoal" inspect fp32_2 --tensor '*ln_f.bias'
says "fp32_2/global_step3: checkpoint of DeepSpeed" 'version: "0.19.8"' "stage: 2" "ranks: 2" "global_steps: 3" "parameters: 16" \
    'kinds: ["master", "exp_avg", "exp_avg_sq"]' 'lm_head.weight: "transformer.wte.weight"' "module.transformer.ln_f.bias  F32    [8]"
expect 0 "$shoal" inspect universal_3
says 'stage: "universal"' "zero/transformer.wte.weight/fp32.pt: torch.save archive, 1 tensor, 248 elements"

# ---- continued: the same bits from every layout that wrote it, and on every layout that reads it ----
for i in $(seq 400); do echo $((i * 7919 % 30)); done | tr '\n' ' ' >text
ds() { # ds STAGE >file
    echo '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "reduction": "exact", "zero_optimization": {"stage": '"$1"'},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95], "weight_decay": 0.1}}}'
}
ds 1 >ds1.json
ds 3 >ds3.json
gpt="$shoal pretrain gpt --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --make-vocab-size-divisible-by 1 --threads 1
    --eval-iters 1 --data-path text --tokenizer-type NullTokenizer --vocab-size 31 --attention-dropout 0 --hidden-dropout 0"
expect 0 $gpt --deepspeed_config ds1.json --load fp32_2 --save a --train-iters 5
says "continuing from DeepSpeed 0.19.8's checkpoint fp32_2/global_step3 (ZeRO stage 2, 2 ranks): step 3, of which 3 were applied" \
    "the checkpoint was trained with 24 samples" "step 5/5" "saved step 5 to a"
for case in fp32_1 universal_2; do
    expect 0 "$shoal" run --num_gpus 2 $gpt --deepspeed_config ds3.json --load $case --save $case.out --train-iters 5
    says "saved step 5 to $case.out"
    expect 0 "$shoal" diff a $case.out
done
expect 0 $gpt --deepspeed_config ds1.json --load fp32_3 --save three --train-iters 3
says "saved step 3 to three"
expect 0 $gpt --deepspeed_config ds1.json --load universal_3 --save universal --train-iters 3
expect 0 "$shoal" diff three universal
expect 0 $gpt --deepspeed_config ds1.json --load fp32_0 --finetune --train-iters 1
says "step 1/1"

# ---- and back: a universal checkpoint of ours is read like DeepSpeed's ----
expect 0 "$shoal" convert a out --to deepspeed-universal
[ "$(cat out/latest_universal)" = global_step5_universal ] || complain "out/latest_universal: $(cat out/latest_universal)"
[ ! -e out.partial ] || complain "out.partial was left behind"
expect 0 "$shoal" inspect out
says "out/global_step5_universal: checkpoint of DeepSpeed" 'stage: "universal"' "global_steps: 5" "optimizer_step: 5" "parameters: 16" \
    "last_batch_iteration: 4"
expect 0 $gpt --deepspeed_config ds1.json --load a --save b --train-iters 8
expect 0 "$shoal" run --num_gpus 2 $gpt --deepspeed_config ds3.json --load out --save c --train-iters 8
says "(universal, 1 rank): step 5, of which 5 were applied"
expect 0 "$shoal" diff b c
# rows of the vocabulary that are no tokens are left out
expect 0 $gpt --deepspeed_config ds1.json --make-vocab-size-divisible-by 8 --train-iters 1 --save wide
expect 0 "$shoal" convert wide narrow --to deepspeed-universal
expect 0 "$shoal" inspect wide --tensor '*wte*'
says "transformer.wte.weight  F32    [32, 8]"
expect 0 "$shoal" inspect narrow/global_step1_universal/zero/transformer.wte.weight/exp_avg.pt
says "param  F32    [31, 8]"
expect 0 $gpt --deepspeed_config ds1.json --load narrow --train-iters 2
says "step 2/2"

# ---- mistakes ----
expect 2 "$shoal" convert a out --to deepspeed-universal
says "out exists: name a folder that does not"
expect 2 "$shoal" convert a other --to deepspeed-universal --dtype bf16
says "--dtype has no meaning"
expect 2 "$shoal" convert a other --to megatron
says "deepspeed-universal"
expect 2 "$shoal" convert nothing other --to deepspeed-universal
says "nothing"
cp -r a hurt
printf 'x' | dd of=hurt/global_step5/exp_avg-00001-of-00001.safetensors bs=1 seek=5000 conv=notrunc status=none
expect 1 "$shoal" convert hurt other --to deepspeed-universal
says "exp_avg-00001-of-00001.safetensors"
[ ! -e other ] && [ ! -e other.partial ] || complain "a failed conversion leaves files"
expect 2 $gpt --deepspeed_config ds1.json --load fp32_2 --train-iters 5 --num-layers 2
says "global_step3: its parameters are not this model's: missing \`transformer.h.1.ln_1.weight\`" "and 4 more"
expect 2 $gpt --deepspeed_config ds1.json --load fp32_2 --load-tag none --train-iters 5
says "there is no checkpoint"
rm fp32_1/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt
expect 2 $gpt --deepspeed_config ds1.json --load fp32_1 --train-iters 5
says "a rank's file is missing"
finish
