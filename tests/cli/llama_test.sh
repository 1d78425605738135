#!/usr/bin/env bash
# `shoal pretrain llama` and its presets: Megatron's flags, the same bits on any layout, names in files, plans,
# generation, mistakes.  Usage: llama_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
export SHOAL_SIM_BYTES=268435456
cd "$folder" || exit 1
for i in $(seq 200); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "reduction": "exact", "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
cat >stage3.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "reduction": "exact", "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
 "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
CONFIG
# A Llama as Megatron's scripts describe one: what the row has by default may be said.
llama="$shoal pretrain llama --num-layers 2 --hidden-size 40 --num-attention-heads 5 --group-query-attention --num-query-groups 1
       --seq-length 16 --max-position-embeddings 64 --swiglu --normalization RMSNorm --position-embedding-type rope
       --rotary-base 500000 --use-rope-scaling --disable-bias-linear --untie-embeddings-and-output-weights
       --attention-softmax-in-fp32 --attention-dropout 0 --hidden-dropout 0 --threads 1"
data="--data-path text --tokenizer-type char --eval-iters 2"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
final_loss() { grep "on validation set" <<<"$output" | tail -1; }

# ---- training, anywhere ----
expect 0 $llama $data --deepspeed_config ds.json --train-iters 8 --save one
says "model: 2 layers, hidden 40, 5 heads in 1 group" "step 8/8" "saved step 8" "lm loss value"
loss=$(final_loss)
[ -n "$loss" ] || complain "no final loss: $output"
planned=$(grep -o 'memory: planned [^,]*' <<<"$output")
[ "${planned#memory: planned }" = "$(sed -n 's/.*memory: planned.*used \([^,]*\),.*/\1/p' <<<"$output")" ] ||
    complain "planned is not used: $output"
for n in 2 4; do
    expect 0 $(ranks $n) $llama $data --deepspeed_config stage3.json --train-iters 8 --save "ranks$n" --recompute-granularity full
    [ "$(final_loss)" = "$loss" ] || complain "$n ranks: $(final_loss), one rank: $loss"
    expect 0 "$shoal" diff one "ranks$n"
done
expect 0 env SHOAL_ACCELERATOR=sim $(ranks 2) $llama $data --deepspeed_config ds.json --train-iters 5 --save parts
expect 0 $llama $data --deepspeed_config ds.json --train-iters 8 --load parts --save parts
[ "$(final_loss)" = "$loss" ] || complain "continued: $(final_loss), one rank: $loss"
for name in model.embed_tokens.weight model.layers.1.input_layernorm.weight model.layers.1.self_attn.q_proj.weight \
    model.layers.1.self_attn.o_proj.weight model.layers.1.post_attention_layernorm.weight model.layers.1.mlp.gate_proj.weight \
    model.layers.1.mlp.down_proj.weight model.norm.weight lm_head.weight; do
    grep -q "\"$name\"" one/global_step8/model.safetensors.index.json || complain "no $name in the files"
done

# ---- the checkpoint knows its model ----
expect 0 "$shoal" generate --load one --prompt "line" --num-tokens 40 --top-k 1
[ "${#output}" -ge 44 ] || complain "generated \"$output\""
expect 0 "$shoal" generate --load ranks4 --prompt "line" --num-tokens 40 --top-k 1
expect 2 $llama $data --deepspeed_config ds.json --train-iters 9 --load one --qk-layernorm
says "--qk-layernorm true: the checkpoint one/global_step8 has false"

# ---- other models of the row ----
for model in "tiny-llama --seq-length 16" \
    "llama --num-layers 1 --hidden-size 24 --num-attention-heads 3 --kv-channels 6 --seq-length 16 --window-size 5
     --no-swiglu --squared-relu --normalization LayerNorm --apply-layernorm-1p --rotary-percent 0.4 --rotary-interleaved
     --no-disable-bias-linear --cross-entropy-loss-fusion" \
    "llama --num-layers 1 --hidden-size 24 --num-attention-heads 3 --seq-length 16 --position-embedding-type learned_absolute
     --no-swiglu --geglu --openai-gelu --embedding-multiplier 4.9 --qk-layernorm --no-untie-embeddings-and-output-weights"; do
    expect 0 "$shoal" pretrain $model $data --deepspeed_config ds.json --train-iters 2 --threads 1 --save other
    says "step 2/2"
    expect 0 "$shoal" generate --load other --prompt "l" --num-tokens 3 --temperature 0
    rm -rf other
done

# ---- plans ----
echo '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3},
       "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}' >large.json
expect 0 "$shoal" plan llama-3-8b --deepspeed_config large.json --world-size 64 --memory-limit 80GiB --recompute-granularity full
says "8.03 billion parameters" "64 ranks: fits"
expect 0 "$shoal" plan qwen3-0.6b --deepspeed_config large.json --world-size 8 --memory-limit 80GiB --seq-length 4096
says "596.05 million parameters"

# ---- mistakes: a sentence each ----
refused() { # SENTENCE FLAGS
    local sentence=$1
    shift
    expect 2 $llama $data --deepspeed_config ds.json --train-iters 2 "$@"
    says "$sentence"
}
refused "--num-attention-heads 5 is not divisible by --num-query-groups 2" --num-query-groups 2
refused "\"LayerNorm\" or \"RMSNorm\", got \"BatchNorm\"" --normalization BatchNorm
refused "--swiglu and --squared-relu exclude each other: --no-swiglu" --squared-relu
refused "--openai-gelu has no effect with --swiglu" --openai-gelu
refused "an even number up to 256" --rotary-percent 0.2
refused "exclude each other" --rotary-seq-len-interpolation-factor 2
refused "--use-rope-scaling has no effect with --position-embedding-type none" --position-embedding-type none
refused "--window-attn-skip-freq 2 has no effect: give --window-size too" --window-attn-skip-freq 2
refused "--num-experts is not supported, see docs/FEATURES.md" --num-experts 4
refused "--optimizer is sgd but ds.json has optimizer.type = AdamW" --use-rotary-position-embeddings --optimizer sgd
expect 2 "$shoal" pretrain llama --num-layers 2 --hidden-size 40 --num-attention-heads 3 --seq-length 16 $data \
    --deepspeed_config ds.json --train-iters 2
says "--hidden-size 40 is not divisible by --num-attention-heads 3: give the channels of a head with --kv-channels"
finish
