#!/usr/bin/env bash
# `shoal diff`: exact runs leave the same hashes on any layout; other runs are told apart, with the place.
# Usage: diff_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
export SHOAL_SIM_BYTES=268435456
cd "$folder" || exit 1
for i in $(seq 200); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
# config REDUCTION STAGE [MORE]
config() {
    cat <<CONFIG
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "hashes": true, "reduction": "$1",
 "zero_optimization": {"stage": $2}, "steps_per_print": 1000000, $3
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
}
# train NAME RANKS CONFIG [FLAGS]: a run in the folder NAME
train() {
    local name=$1 ranks=$2
    printf '%s\n' "$3" >"$name.json"
    shift 3
    expect 0 "$shoal" run --master_port 0 --num_gpus "$ranks" "$shoal" pretrain gpt --num-layers 2 \
        --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text \
        --tokenizer-type char --eval-iters 0 --train-iters 4 --deepspeed_config "$name.json" --save "$name" "$@"
}

# ---- exact: the files are the same on any layout ----
train one 1 "$(config exact 0)"
[ -s one/hashes.jsonl ] || complain "no one/hashes.jsonl in $(ls -R one)"
for stage in 0 1 2 3; do
    train "two$stage" 2 "$(config exact $stage)"
    cmp one/hashes.jsonl "two$stage/hashes.jsonl" || complain "stage $stage: other hashes"
    expect 0 "$shoal" diff one "two$stage"
    says "equal: every bit of 4 steps"
done
SHOAL_ACCELERATOR=sim SHOAL_SIM_STREAMS=random train sim 2 "$(config exact 3)"
expect 0 "$shoal" diff one/hashes.jsonl sim
expect 0 "$shoal" diff one/global_step4 sim/global_step4
says "equal: every bit of every tensor"

# ---- a resumed run goes on in the same file ----
train parts 2 "$(config exact 2)" --train-iters 2
train parts 1 "$(config exact 2)" --load parts
expect 0 "$shoal" diff one parts
says "equal: every bit of 4 steps"

# ---- also in another type, which is said ----
train mixed 1 "$(config exact 0)" --train-iters 2
train mixed 1 "$(config exact 0 '"bf16": {"enabled": true},')" --load mixed
expect 1 "$shoal" diff one mixed
says "from step 3 on one/hashes.jsonl computes in F32 and mixed/hashes.jsonl in BF16" "first difference: step 3"

# ---- differences ----
train seed 1 "$(config exact 0)" --seed 99
expect 1 "$shoal" diff one seed
says "first difference: before step 1, weight of \`transformer.wte.weight\`" "not rounding"
expect 1 "$shoal" diff --rounding one seed
expect 1 "$shoal" diff one/global_step4 seed/global_step4
says "model: first difference in \`transformer.wte.weight\`, element 0"
train fast1 1 "$(config fast 0)"
train fast2 2 "$(config fast 0)"
expect 1 "$shoal" diff fast1 fast2
says "first difference: step 1, gradient of" ": within rounding" "the runs differ within rounding, from step 1 on"
expect 0 "$shoal" diff --rounding fast1 fast2
train sum 2 "$(config fast 0 '"gradient_allreduce_op": "sum",')"
expect 1 "$shoal" diff --rounding fast1 sum
says "gradient of" "more than rounding"

# ---- usage ----
expect 2 "$shoal" diff one
says "give two runs"
expect 2 "$shoal" diff one nowhere
says "nowhere has no hashes.jsonl"
expect 2 "$shoal" diff nowhere elsewhere
says "there is no checkpoint in nowhere"
expect 2 "$shoal" diff --ronding one one
says "unknown flag --ronding"
expect 2 "$shoal" diff text one
says "is no file of hashes"
expect 2 timeout 60 "$shoal" diff /dev/zero /dev/zero
says "/dev/zero is no file of hashes: it is not a regular file"
finish
