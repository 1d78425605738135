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
# a token of eos_token_id ends the text; generation_config.json goes before config.json
cp -r "$hub/gpt2" ends
end=$(cut -d, -f40 <<<"$text")
short=$(tr , '\n' <<<"$text" | awk -v end="$end" '!over { print } NR > 9 && $1 == end { over = 1 }' | paste -sd,)
sed -i "s/\"eos_token_id\": [0-9]*/\"eos_token_id\": $end/" ends/config.json
rm -f ends/generation_config.json
expect 0 $generate --load ends --prompt-tokens "$prompt"
[ "$output" = "$short" ] || complain "token $end does not end the text: $output"
expect 0 $generate --load ends --prompt-tokens "$prompt" --ignore-eos
[ "$output" = "$text" ] || complain "other tokens with --ignore-eos"
echo '{"eos_token_id": [96000, 95000]}' >ends/generation_config.json
expect 0 $generate --load ends --prompt-tokens "$prompt"
[ "$output" = "$text" ] || complain "config.json is taken before generation_config.json: $output"
echo '{"eos_token_id": "</s>"}' >ends/generation_config.json
expect 2 $generate --load ends --prompt-tokens "$prompt"
says "ends/generation_config.json: \`eos_token_id\` should be"
expect 2 $generate --load "$hub/gpt2" --prompt "a"
says "$hub/gpt2 has no tokenizer: give the prompt as numbers, --prompt-tokens 1,5,9"
expect 2 $generate --load "$hub/gpt2" --prompt "a" --prompt-tokens 1
says "--prompt and --prompt-tokens exclude each other"
expect 2 $generate --load "$hub/gpt2" --prompt-tokens 1,97
says "prompt token 1 is 97: give tokens from 0 to 96"
expect 2 $generate --load "$hub/gpt2" --prompt-tokens 1,-5
says "--prompt-tokens: -5 is not a token number"
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
wrong 's/"n_layer": 2/"n_layer": 3/' "the weights in wrong do not match this model: missing \`transformer.h.2.ln_1.weight\`, missing" "and 4 more"
wrong 's/"n_layer": 2/"n_layer": 1/' "do not match this model: extra \`h.1.attn.c_attn.bias\`"
wrong 's/"vocab_size": 97/"vocab_size": 96/' "of another shape \`transformer.wte.weight\` (is [97, 15], the model has [96, 15])"
wrong 's/"n_head": 3/"n_head": 2/' "--hidden-size 15 is not divisible by --num-attention-heads 2"
wrong 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "missing \`lm_head.weight\`"
wrong 's/"model_type": "gpt2"/"model_type": "rwkv"/' "wrong/config.json:" "\`model_type\` is \"rwkv\"; models of these types are computed: gpt2, llama, mistral, qwen2, qwen3, gemma, nemotron, phi,"
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
# keys that change no logits are listed in one line; others only with the flag, which keeps them
cp -r "$hub/gpt2" keys
sed -i 's/"n_layer": 2/"n_layer": 2, "neftune_noise_alpha": 5, "transformers.js_config": {"dtype": "q4"}, "model_max_length": 512/' keys/config.json
expect 0 $generate --load keys --prompt-tokens "$prompt" --print-tokens
says "keys/config.json: keys that change no logits: \`neftune_noise_alpha\`, \`transformers.js_config\`, \`model_max_length\`" "$text"
sed -i 's/"n_layer": 2/"n_layer": 2, "flux": 7/' keys/config.json
expect 2 $generate --load keys --prompt-tokens "$prompt"
says "\`flux\` is 7" "give --allow-unknown-config-keys"
expect 0 $generate --load keys --prompt-tokens "$prompt" --print-tokens --allow-unknown-config-keys
says "keys/config.json: --allow-unknown-config-keys: ignored \`flux\`" "$text"
expect 2 "$shoal" convert keys keys.hub
expect 0 "$shoal" convert keys keys.hub --allow-unknown-config-keys
grep -q '"flux": 7' keys.hub/config.json && grep -q neftune keys.hub/config.json || complain "a conversion loses keys: $(cat keys.hub/config.json)"

# folders of weights are compared; a model that writes no text says so
expect 0 "$shoal" diff "$hub/gpt2" "$hub/gpt2"
says "equal: every bit of every weight as fp32"
expect 1 "$shoal" diff "$hub/gpt2" "$hub/llama"
says "is only in the first" "is only in the second"
mkdir encoder
echo '{"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9}' >encoder/config.json
expect 2 $generate --load encoder --prompt-tokens 1
says "the model \`bert\` writes no text, because it predicts masked words"

# tokens that the tokenizer puts in front of a text; those behind it are left out
cp -r "$hub/gpt2" bos
cat >bos/tokenizer.json <<'END'
{"model": {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "<unk>": 4}, "unk_token": "<unk>"}, "pre_tokenizer": {"type":
"Whitespace"}, "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 1, "content": "</s>", "special": true}], "post_processor":
{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken":
{"id": "</s>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens":
{"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}}
END
expect 0 "$shoal" generate --load bos --prompt "a b a" --num-tokens 0 --print-tokens --threads 1
[ "$output" = 0,2,3,2 ] || complain "a text with <s> in front is $output"
expect 0 "$shoal" generate --load bos --prompt "a b a" --num-tokens 0 --print-tokens --threads 1 --no-bos
[ "$output" = 2,3,2 ] || complain "a text without <s> is $output"

# tied by config.json, and two tensors in the file
rm -rf wrong && cp -r "$hub/gpt2_untied" wrong
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' wrong/config.json
expect 2 $generate --load wrong --prompt-tokens 1
says "differ, but config.json says that they are tied: set tie_word_embeddings to false there"

# ---- training ----
cat >ds.json <<'END'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "reduction": "exact", "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
END
train="$shoal pretrain --deepspeed_config ds.json --mock-data --eval-iters 0 --threads 1 --seq-length 16"
from="$train --load $hub/gpt2"
expect 2 $from --train-iters 2
says "--load $hub/gpt2 has weights and no training to continue: add --finetune to start one"
expect 2 $from --train-iters 2 --finetune --hidden-size 32
says "--hidden-size 32: $hub/gpt2/config.json has 15; leave the flag out, or give the same value"
expect 2 $from --train-iters 2 --finetune --disable-bias-linear
says "--disable-bias-linear true: $hub/gpt2/config.json has false"
expect 2 "$shoal" pretrain gpt2-124m --deepspeed_config ds.json --mock-data --load "$hub/gpt2" --finetune --train-iters 1
says "gpt2-124m: --num-layers 12: $hub/gpt2/config.json has 2"
expect 2 $from --train-iters 2 --finetune --load-tag global_step1
says "leave --load-tag and --ckpt-step out"
cp -r "$hub/gpt2" own
expect 2 $train --load own --finetune --train-iters 2 --save own
says "--save and --load are the same Hugging Face folder"
expect 2 $from --finetune --train-iters 2 --mock-data --vocab-size 50
says "--vocab-size 50: $hub/gpt2/config.json has 97"
for i in $(seq 60); do echo "line $i of a text that has bytes"; done >text
expect 2 "$shoal" pretrain --deepspeed_config ds.json --data-path text --seq-length 8 --load "$hub/gpt2" --finetune --train-iters 1
says "the data have a vocabulary of 256 tokens, and the model of --load $hub/gpt2 knows 97"

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
says "clean exists: name a folder that does not"
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
says "give two folders"
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
says "kept.partial exists and holds other files"
code=0
SHOAL_FAULT=ckpt.write:1=kill "$shoal" convert one dead >/dev/null 2>&1 || code=$?
[ "$code" = 137 ] && [ -d dead.partial ] && [ ! -e dead ] || complain "a conversion that died left $(ls -d dead*)"
expect 0 "$shoal" convert one dead
[ -e dead/model.safetensors ] && [ ! -e dead.partial ] || complain "the next conversion left $(ls -d dead*)"
expect 1 env SHOAL_FAULT=ckpt.write:1 "$shoal" convert one failed
[ ! -e failed ] && [ ! -e failed.partial ] || complain "a conversion that failed left something"
[ ! -e out ] && [ ! -e out.partial ] || complain "wrong words left $(ls -d out*)"
finish
