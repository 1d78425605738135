#!/usr/bin/env bash
# Folders of the Hugging Face Hub: generation, training, conversion, and what is said of folders that are not right.
# Usage: hub_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
hub=$2/tests/golden/hub
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1

# ---- generation without a tokenizer ----
text=$(cat "$hub/gpt2/tokens.txt")
prompt=$(cut -d, -f1-9 "$hub/gpt2/tokens.txt")
generate="$shoal generate --threads 1 --num-tokens 200 --top-k 1"
expect 0 $generate --load "$hub/gpt2" --prompt-tokens "$prompt" --print-logits logits.npy
[ "$output" = "$text" ] || complain "other tokens: $output"
[ "$(stat -c %s logits.npy)" = $((128 + 208 * 97 * 4)) ] || complain "logits.npy has $(stat -c %s logits.npy) bytes"
[ "$(head -c 6 logits.npy | tail -c 5)" = NUMPY ] || complain "logits.npy is no file of NumPy"
cut -c 11-127 logits.npy | head -n 1 | grep -q "'shape': (208, 97)" || complain "another shape: $(head -n 1 logits.npy)"
expect 0 $generate --load "$hub/gpt2" --prompt-tokens "$prompt" --print-tokens --dtype fp32
[ "$output" = "$text" ] || complain "other tokens with --print-tokens"
expect 0 $generate --load "$hub/gpt2" --prompt-tokens "$prompt" --dtype fp16
expect 2 $generate --load "$hub/gpt2" --prompt "a"
says "$hub/gpt2 has no tokenizer: give the prompt as numbers, --prompt-tokens 1,5,9"
expect 2 $generate --load "$hub/gpt2" --prompt "a" --prompt-tokens 1
says "--prompt and --prompt-tokens exclude each other"
expect 2 $generate --load "$hub/gpt2" --prompt-tokens 1,97
says "prompt token 1 is 97; the model knows 0 to 96"
expect 2 $generate --load "$hub/gpt2" --prompt-tokens 1,-5
says "--prompt-tokens: -5 is no token's number"
expect 2 $generate --load "$hub/gpt2" --prompt-tokens 1 --print-logits nowhere/logits.npy
says "--print-logits nowhere/logits.npy: cannot write: No such file or directory"
expect 2 $generate --load nowhere --prompt-tokens 1
says "nowhere"

# ---- folders that are not right ----
copy() { rm -rf "$1" && cp -r "$hub/gpt2" "$1"; }
wrong() { # SED-SCRIPT TEXT...: of config.json
    copy wrong
    sed -i "$1" wrong/config.json
    shift
    expect 2 "$shoal" generate --load wrong --prompt-tokens 1 --num-tokens 1
    says "$@"
}
wrong 's/"n_layer": 2/"n_layer": 3/' "the weights in wrong are not those of this model: missing \`transformer.h.2.ln_1.weight\`, missing" "and 4 more"
wrong 's/"n_layer": 2/"n_layer": 1/' "not those of this model: extra \`h.1.attn.c_attn.bias\`"
wrong 's/"vocab_size": 97/"vocab_size": 96/' "of another shape \`transformer.wte.weight\` (is [97, 15], the model has [96, 15])"
wrong 's/"n_head": 3/"n_head": 2/' "--hidden-size 15 is not divisible by --num-attention-heads 2"
wrong 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "missing \`lm_head.weight\`"
wrong 's/"model_type": "gpt2"/"model_type": "rwkv"/' "wrong/config.json:" "\`model_type\` is \"rwkv\"; models of these types are computed: gpt2, llama, mistral, qwen2, qwen3, gemma, bert, megatron-bert"
wrong 's/"n_layer": 2/"n_layer": 2, "n_layer": 2/' "wrong/config.json:"
wrong 's/"reorder_and_upcast_attn": false/"mlp_shape": "round"/' "\`mlp_shape\` is \"round\", and nothing is known of this key"
copy wrong && rm wrong/model.safetensors
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong has no weights: neither model.safetensors nor pytorch_model.bin"
copy wrong && truncate -s 20000 wrong/model.safetensors
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong/model.safetensors"
copy wrong && truncate -s 4 wrong/model.safetensors
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong/model.safetensors"
rm -rf wrong && cp -r "$hub/gpt2_untied" wrong && rm wrong/model-00002-of-00003.safetensors
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong/model-00002-of-00003.safetensors"
rm -rf wrong && cp -r "$hub/gpt2_untied" wrong
sed -i 's/"lm_head.weight": "model-00001/"lm_head.weight": "model-00003/' wrong/model.safetensors.index.json
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong/model.safetensors.index.json: \`lm_head.weight\` is not in model-00003-of-00003.safetensors, where it should be"
sed -i 's/"lm_head.weight": "model-00003/"lm_head.weight": "\/etc\/model-00003/' wrong/model.safetensors.index.json
expect 2 $generate --load wrong --prompt-tokens 1
says "wrong/model.safetensors.index.json" "the file of \`lm_head.weight\` must be a name in the same folder"
# tied by config.json, and two tensors in the file
rm -rf wrong && cp -r "$hub/gpt2_untied" wrong
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' wrong/config.json
expect 2 $generate --load wrong --prompt-tokens 1
says "differ, but config.json says that they are one: set tie_word_embeddings to false there"

# ---- training ----
cat >ds.json <<'END'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "reduction": "exact", "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
END
train="$shoal pretrain --deepspeed_config ds.json --mock-data --eval-iters 0 --threads 1 --seq-length 16"
from="$train --load $hub/gpt2"
expect 2 $from --train-iters 2
says "--load $hub/gpt2 has weights, and no training to continue: --finetune begins one with them"
expect 2 $from --train-iters 2 --finetune --hidden-size 32
says "--hidden-size is 32, and $hub/gpt2/config.json says 15"
expect 2 $from --train-iters 2 --finetune --disable-bias-linear
says "--disable-bias-linear is given here, and not in $hub/gpt2/config.json"
expect 2 "$shoal" pretrain gpt2-124m --deepspeed_config ds.json --mock-data --load "$hub/gpt2" --finetune --train-iters 1
says "gpt2-124m: --num-layers is 12, and $hub/gpt2/config.json says 2"
expect 2 $from --train-iters 2 --finetune --load-tag global_step1
says "leave --load-tag and --ckpt-step out"
cp -r "$hub/gpt2" own
expect 2 $train --load own --finetune --train-iters 2 --save own
says "--save and --load are one folder, whose weights are no checkpoint"
expect 2 $from --finetune --train-iters 2 --mock-data --vocab-size 50
says "--vocab-size is 50, and $hub/gpt2/config.json says 97"
for i in $(seq 60); do echo "line $i of a text that has bytes"; done >text
expect 2 "$shoal" pretrain --deepspeed_config ds.json --data-path text --seq-length 8 --load "$hub/gpt2" --finetune --train-iters 1
says "the data have 256 kinds of tokens, and the model of --load $hub/gpt2 knows 97"

expect 0 $from --finetune --train-iters 0 --save same
expect 0 $generate --load same --prompt-tokens "$prompt"
[ "$output" = "$text" ] || complain "other tokens from a checkpoint of the same weights"
expect 0 $generate --load same/global_step0 --prompt-tokens "$prompt"
[ "$output" = "$text" ] || complain "other tokens from the checkpoint's folder"
expect 0 $from --finetune --train-iters 4 --save one
expect 0 "$shoal" run --master_port 0 --num_gpus 2 $from --finetune --train-iters 4 --save two
cmp one/global_step4/manifest.json two/global_step4/manifest.json || complain "two ranks saved something else"
expect 0 "$shoal" pretrain gpt --deepspeed_config ds.json --mock-data --eval-iters 0 --threads 1 --seq-length 16 --num-layers 2 \
    --hidden-size 15 --num-attention-heads 3 --max-position-embeddings 256 --vocab-size 97 --openai-gelu --load one --train-iters 5 --save one
cmp one/global_step4/config.json one/global_step5/config.json || complain "config.json changed when training went on"
grep -q '"pad_token_id": 0' one/global_step5/config.json || complain "the source's tokens are lost"
expect 0 "$shoal" plan --load "$hub/gpt2" --deepspeed_config ds.json --world-size 1 --mock-data
says "model: 2 layers, hidden 15"

# ---- a tokenizer in the folder ----
cp -r "$hub/gpt2" spoken
expect 0 "$shoal" tokenizer train --vocab-size 280 --output spoken/tokenizer.json text
expect 0 "$shoal" pretrain gpt --deepspeed_config ds.json --data-path text --eval-iters 0 --threads 1 --seq-length 16 --num-layers 1 \
    --hidden-size 16 --num-attention-heads 2 --tokenizer-type HuggingFaceTokenizer --tokenizer-model spoken --train-iters 2 --save bpe
cmp spoken/tokenizer.json bpe/global_step2/tokenizer.json || complain "the tokenizer was not copied"
grep -q '"files":\[{"name":"config.json"' bpe/global_step2/manifest.json || complain "the manifest does not list its files"
expect 0 "$shoal" generate --load bpe/global_step2 --prompt "line 3" --num-tokens 5 --top-k 1 --threads 1
words=$output
expect 0 "$shoal" generate --load bpe --prompt "line 3" --num-tokens 5 --top-k 1 --threads 1
[ "$output" = "$words" ] || complain "the folder says \"$words\", the checkpoint \"$output\""
expect 0 "$shoal" pretrain --load bpe/global_step2 --finetune --deepspeed_config ds.json --data-path text --eval-iters 0 --threads 1 \
    --train-iters 1 --save bpe2
cmp spoken/tokenizer.json bpe2/global_step1/tokenizer.json || complain "the tokenizer was not copied on"

# ---- conversion ----
expect 0 "$shoal" convert "$hub/gpt2" clean
[ "$(ls clean | tr '\n' ' ')" = "config.json generation_config.json model.safetensors " ] || complain "clean has $(ls clean)"
expect 0 $generate --load clean --prompt-tokens "$prompt" --dtype fp32
[ "$output" = "$text" ] || complain "other tokens from a converted folder"
expect 2 "$shoal" convert "$hub/gpt2" clean
says "clean is there already: name a folder that does not exist"
expect 0 "$shoal" convert one one.hub --dtype bf16 --max-shard-size 8KB
[ -e one.hub/model.safetensors.index.json ] && ! grep -q shoal one.hub/config.json || complain "one.hub has $(ls one.hub)"
expect 0 $generate --load one.hub --prompt-tokens "$prompt"
expect 0 "$shoal" convert bpe bpe.hub --load-tag global_step2
cmp spoken/tokenizer.json bpe.hub/tokenizer.json || complain "the tokenizer was not converted"
expect 2 "$shoal" convert bpe bpe.other --load-tag nothing
says "nothing"
expect 2 "$shoal" convert text out
says "text"
expect 2 "$shoal" convert wrong out
expect 2 "$shoal" convert one out --dtype int8
says "int8"
expect 2 "$shoal" convert one out --max-shard-size none
says "--max-shard-size is none: give a size such as 5GB or 512MiB"
expect 2 "$shoal" convert one
says "name two folders"
# ---- memory: half a gigabyte of zeros, a hole in its file, through a tenth of that ----
large() { # LAYERS HIDDEN
    mkdir large && awk -v layers="$1" -v c="$2" '
        function tensor(name, rows, columns) {
            bytes = 4 * rows * (columns ? columns : 1)
            printf "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d%s],\"data_offsets\":[%d,%d]}", at ? "," : "{", name, rows,
                columns ? "," columns : "", at, at + bytes
            at += bytes
        }
        function pair(name, rows, columns) { tensor(name ".weight", rows, columns); tensor(name ".bias", columns ? columns : rows, 0) }
        BEGIN {
            tensor("wte.weight", 5000, c); tensor("wpe.weight", 16, c); pair("ln_f", c, 0)
            for (i = 0; i < layers; i++) {
                h = "h." i "."
                pair(h "ln_1", c, 0); pair(h "attn.c_attn", c, 3 * c); pair(h "attn.c_proj", c, c)
                pair(h "ln_2", c, 0); pair(h "mlp.c_fc", c, 4 * c); pair(h "mlp.c_proj", 4 * c, c)
            }
            print "}"
            print at >"bytes"
        }' </dev/null >head
    local length
    length=$(stat -c %s head)
    { printf "\\x$(printf %02x $((length % 256)))\\x$(printf %02x $((length / 256)))\\0\\0\\0\\0\\0\\0" && cat head; } >large/model.safetensors
    truncate -s $((8 + length + $(cat bytes))) large/model.safetensors
    echo "{\"model_type\": \"gpt2\", \"n_layer\": $1, \"n_embd\": $2, \"n_head\": 8, \"vocab_size\": 5000, \"n_positions\": 16}" >large/config.json
}
if [ -z "${SANITIZE-}" ]; then
    large 10 1024
    [ "$(stat -c %s large/model.safetensors)" -gt 500000000 ] || complain "the large folder is small"
    expect 0 bash -c 'ulimit -v 120000 && exec "$@"' - "$shoal" convert large small --dtype bf16
    [ "$(stat -c %s small/model.safetensors)" -gt 250000000 ] || complain "the large folder was not converted"
    rm -rf large small
fi
mkdir -p kept.partial && echo "mine" >kept.partial/notes
expect 2 "$shoal" convert one kept
says "kept.partial is there, and holds other things"
code=0
SHOAL_FAULT=ckpt.write:1=kill "$shoal" convert one dead >/dev/null 2>&1 || code=$?
[ "$code" = 137 ] && [ -d dead.partial ] && [ ! -e dead ] || complain "a conversion that died left $(ls -d dead*)"
expect 0 "$shoal" convert one dead
[ -e dead/model.safetensors ] && [ ! -e dead.partial ] || complain "the next conversion left $(ls -d dead*)"
expect 1 env SHOAL_FAULT=ckpt.write:1 "$shoal" convert one failed
[ ! -e failed ] && [ ! -e failed.partial ] || complain "a conversion that failed left something"
[ ! -e out ] && [ ! -e out.partial ] || complain "wrong words left $(ls -d out*)"
finish
