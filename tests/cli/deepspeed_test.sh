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
says "the checkpoint in fp32_2 does not say which model it has"
says "continuing from DeepSpeed 0.19.8's checkpoint fp32_2/global_step3 (ZeRO stage 2, 2 ranks): step 3, of which 3 were applied" \
    "are used from sample 24 on" \
    "the checkpoint was trained with train_batch_size 8, this run uses 4: it continues after the 24 samples that were consumed" "step 5/5" "saved step 5 to a"
expect 2 $gpt --deepspeed_config ds1.json --load fp32_2 --strict-data --train-iters 5
says "--strict-data: the checkpoint in fp32_2 does not say which data it was trained on"
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

# ---- its weights alone: text, a folder of the Hub, comparisons ----
mkdir gpt2
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 31, "n_positions": 8}' >gpt2/config.json
for case in fp32_0 fp32_2 fp32_3 universal_3 fp32_2/global_step3; do
    expect 2 "$shoal" generate --load $case --prompt-tokens 1,2
    says "$case does not say which model it has: give --model-config, a folder with the model's config.json"
    expect 0 "$shoal" generate --load $case --model-config gpt2 --prompt-tokens 1,2 --num-tokens 3 --top-k 1
    text=$output
    expect 2 "$shoal" convert $case hub
    says "$case does not say which model it has: give --model-config"
    expect 0 "$shoal" convert $case hub --model-config gpt2
    expect 0 "$shoal" generate --load hub --prompt-tokens 1,2 --num-tokens 3 --top-k 1
    [ "$output" = "$text" ] || complain "$case: the folder of the Hub writes $output, not $text"
    expect 0 "$shoal" diff $case hub
    says "equal: every bit of every weight as fp32"
    rm -r hub
done
expect 0 "$shoal" convert fp32_2 tagged --load-tag global_step3 --model-config gpt2
expect 0 "$shoal" generate --load fp32_2 --load-tag global_step3 --model-config gpt2 --prompt-tokens 1,2
expect 0 "$shoal" diff universal_3 fp32_3
expect 0 "$shoal" diff three fp32_3
expect 1 "$shoal" diff fp32_2 a
says "weights: first difference in \`"
expect 2 "$shoal" convert fp32_2 x --model-config nowhere
says "--model-config nowhere: there is no config.json"
expect 2 "$shoal" convert a x --model-config gpt2
says "--model-config gpt2 has no effect: the checkpoint a/global_step5 describes its model"
expect 2 "$shoal" generate --load a --model-config gpt2 --prompt-tokens 1
says "--model-config gpt2 has no effect: a is neither a folder of weights nor a checkpoint of DeepSpeed"

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

# ---- another optimizer than DeepSpeed's ----
sed 's/AdamW/Lamb/' ds1.json >lamb.json
sed 's/"AdamW"/"SGD"/; s/, "betas".*]//' ds1.json >sgd.json
sed 's/"AdamW"/"Adam"/; s/"lr"/"adam_w_mode": false, &/' ds1.json >l2.json
for case in fp32_0 fp32_1 fp32_2 fp32_3; do
    for other in lamb sgd l2; do
        expect 2 $gpt --deepspeed_config $other.json --load $case --train-iters 5
        says "$case/global_step3" "another optimizer" "--no-load-optim"
    done
done
expect 2 $gpt --deepspeed_config sgd.json --load universal_3 --train-iters 5
says "another optimizer"
expect 0 $gpt --deepspeed_config lamb.json --load fp32_2 --train-iters 4 --no-load-optim
# states that no optimizer of Shoal keeps, and groups that name one
cp -r out amsgrad
for param in amsgrad/*/zero/*/; do [ ! -e "$param/exp_avg_sq.pt" ] || cp "$param/exp_avg_sq.pt" "$param/max_exp_avg_sq.pt"; done
expect 2 $gpt --deepspeed_config ds1.json --load amsgrad --train-iters 8
says "has a state \`max_exp_avg_sq\`, which \`adamw\` as configured here does not keep"
# an export of ours says it
expect 2 $gpt --deepspeed_config lamb.json --load out --train-iters 6
says "has optimizer states of \`adamw\`, and this run another optimizer, \`lamb\`"
expect 0 $gpt --deepspeed_config l2.json --train-iters 1 --save l2
expect 0 "$shoal" convert l2 l2.out --to deepspeed-universal
expect 2 $gpt --deepspeed_config ds1.json --load l2.out --train-iters 2
expect 0 $gpt --deepspeed_config l2.json --load l2.out --train-iters 2
if python3 --version >/dev/null 2>&1; then
    groups() { # FOLDER GROUP: optimizer_state.pt with it
        rm -rf "$1" && cp -r out "$1"
        python3 - "$1"/*/zero/optimizer_state.pt "$2" <<'PYTHON'
import pickle, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_STORED) as file:
    file.writestr("optimizer_state/data.pkl", pickle.dumps({"optimizer_state_dict": {"param_groups": [eval(sys.argv[2])]}}, protocol=2))
    file.writestr("optimizer_state/version", "3\n")
PYTHON
    }
    groups l '{"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "max_coeff": 10.0, "min_coeff": 0.01}'
    expect 2 $gpt --deepspeed_config ds1.json --load l --train-iters 6
    says "has optimizer states of \`lamb\`, and this run another optimizer, \`adamw\`"
    expect 0 $gpt --deepspeed_config lamb.json --load l --train-iters 6
    groups none '{"lr": 0.1}'
    expect 0 $gpt --deepspeed_config ds1.json --load none --train-iters 6
    says "global_step5_universal does not say which optimizer made its states: they are taken as those of \`adamw\`"
    groups two '{"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "decoupled_weight_decay": False}'
    expect 2 $gpt --deepspeed_config ds1.json --load two --train-iters 6
    expect 0 $gpt --deepspeed_config l2.json --load two --train-iters 6
    groups zero '{"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0, "decoupled_weight_decay": False}'
    expect 0 $gpt --deepspeed_config ds1.json --load zero --train-iters 6
    expect 0 $gpt --deepspeed_config l2.json --load zero --train-iters 6
    expect 2 $gpt --deepspeed_config lamb.json --load zero --train-iters 6
fi

# ---- mistakes ----
expect 2 "$shoal" convert a out --to deepspeed-universal
says "out exists: name a folder that does not"
expect 2 "$shoal" convert a other --to deepspeed-universal --dtype bf16
says "--dtype has no effect"
expect 2 "$shoal" convert a other --to megatron
says "deepspeed-universal"
expect 2 "$shoal" convert nothing other --to deepspeed-universal
says "nothing"
cp -r a hurt
printf 'x' | dd of=hurt/global_step5/exp_avg-00001-of-00001.safetensors bs=1 seek=5000 conv=notrunc status=none
expect 1 "$shoal" convert hurt other --to deepspeed-universal
says "exp_avg-00001-of-00001.safetensors"
[ ! -e other ] && [ ! -e other.partial ] || complain "a failed conversion leaves files"
# whichever write fails: nothing is left, and without a failure all is the same as before
for ((writes = 0; ; writes += 41)); do
    SHOAL_FAULT=torch_write:$writes "$shoal" convert a other --to deepspeed-universal >failed.log 2>&1 && break
    grep -q "cannot write: No space left" failed.log || complain "write $writes: $(cat failed.log)"
    [ ! -e other ] && [ ! -e other.partial ] || complain "a failed write leaves files"
done
[ "$writes" -gt 100 ] || complain "only $writes writes were made to fail"
diff -r out other >/dev/null || complain "the export after failed writes is not whole"
expect 2 $gpt --deepspeed_config ds1.json --load fp32_2 --train-iters 5 --num-layers 2
says "global_step3: its parameters are not this model's: missing \`transformer.h.1.ln_1.weight\`" "and 4 more"
expect 2 $gpt --deepspeed_config ds1.json --load fp32_2 --load-tag none --train-iters 5
says "there is no checkpoint"
rm fp32_1/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt
expect 2 $gpt --deepspeed_config ds1.json --load fp32_1 --train-iters 5
says "a rank's file is missing"
finish
