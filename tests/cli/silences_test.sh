#!/usr/bin/env bash
# Nothing is dropped in silence: seeds and other values of 0, NUL bytes, pointers of git-lfs, UTF-16, validation without data, numbers that a narrower
# type does not hold, RoPE's scaling. Usage: silences_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1

sgd='"optimizer": {"type": "SGD", "params": {"lr": 0.1}}'
echo "{\"train_batch_size\": 2, $sgd}" >c.json
seq 3000 >text.txt
shape="--num-layers 1 --hidden-size 16 --num-attention-heads 2 --threads 1"
gpt="$shoal pretrain gpt $shape --seq-length 16 --data-cache-path cache"
quick="$gpt --eval-iters 0 --train-iters 1 --deepspeed_config c.json"

# ---- 0 is a value ----
# loss_of KEYS FLAGS...: the loss of the third step
loss_of() {
    echo "{\"train_batch_size\": 2, $1 $sgd}" >seed.json
    shift
    expect 0 $gpt --eval-iters 0 --train-iters 3 --log-format shoal --log-interval 1 --data-path text.txt --deepspeed_config seed.json "$@"
    loss=$(grep -o 'loss[: ]*[0-9.]*' <<<"$output" | tail -1)
    [ -n "$loss" ] || complain "no loss: $output"
}
loss_of ''; standard=$loss
loss_of '"seed": 1234,'; [ "$loss" = "$standard" ] || complain "the seed is not 1234 unless it is given"
loss_of '"seed": 0,'; zero=$loss; [ "$zero" != "$standard" ] || complain "\"seed\": 0 trains as 1234"
loss_of '"seed": 0.0,'; [ "$loss" = "$zero" ] || complain "\"seed\": 0.0 is not 0"
loss_of '' --seed 0; [ "$loss" = "$zero" ] || complain "--seed 0 is not \"seed\": 0"
loss_of '"seed": 3000000000000000,'; large=$loss
loss_of '"seed": 3000000000000001,'; [ "$loss" != "$large" ] || complain "seeds above 1e15 are one"
# data are drawn with that seed, too: large ones were drawn with 1234
expect 0 $gpt --mock-data --vocab-size 64 --eval-iters 0 --train-iters 1 --log-format shoal --log-interval 1 --deepspeed_config seed.json
mock=$output
sed -i 's/3000000000000001/3000000000000002/' seed.json
expect 0 $gpt --mock-data --vocab-size 64 --eval-iters 0 --train-iters 1 --log-format shoal --log-interval 1 --deepspeed_config seed.json
[ "$mock" != "$output" ] || complain "mock data of two seeds are the same"
# the engine says what is wrong with other seeds
echo "{\"train_batch_size\": 2, \"seed\": -1, $sgd}" >seed.json
expect 2 $quick --data-path text.txt --deepspeed_config seed.json
says "seed.json:1: seed: must be at least 0"

# an empty variable is one that is not set
OMP_NUM_THREADS= SHOAL_NUM_THREADS= LOCAL_RANK= expect 0 $quick --data-path text.txt
# ... and an empty value none that is not given
for flag in split load-tag data-cache-path tokenizer-model lr-decay-style; do
    expect 2 $quick --data-path text.txt --$flag ""
    says "--$flag is empty: give a value, or leave the flag out"
done

plan="$shoal plan gpt $shape --seq-length 16 --vocab-size 64 --deepspeed_config c.json --world-size 2 --cluster v100 --json"
expect 0 $plan --ranks-per-node 1 --latency 1000
slow=$(grep -o '"predicted":{"step_s":[^,]*' <<<"$output")
expect 0 $plan --ranks-per-node 1 --latency 0
none=$(grep -o '"predicted":{"step_s":[^,]*' <<<"$output")
expect 0 $plan --ranks-per-node 1
usual=$(grep -o '"predicted":{"step_s":[^,]*' <<<"$output")
[ -n "$usual" ] && [ "$usual" != "$none" ] && [ "$usual" != "$slow" ] || complain "--latency 0 is the cluster's latency: $usual, $none, $slow"
for flag in peak-tflops memory-bandwidth network-bandwidth nodes; do
    expect 2 $plan --$flag 0
    says "--$flag: must be from"
done
expect 2 "$shoal" bench gemm --m 0 --n 8 --k 8
says "--m: must be from 1"
expect 2 "$shoal" bench step --model tiny --micro-batch 0
says "--micro-batch: must be from 1"

# ---- text that is not only text ----
tokens() { # DATA: tokens that a run finds
    expect 0 $quick --data-path "$1"
    count=$(grep -o '^data: [0-9]*' <<<"$output" | tr -dc 0-9)
}
mkdir data
cp text.txt data/large.txt
printf 'a\0b\n' >>data/large.txt
seq 300 >data/small.txt
tokens data
[ "$count" -gt 13000 ] || complain "one NUL byte drops a file: $count tokens"
says "data/large.txt has 1 NUL bytes, the first is byte"
tokens data
[ "$count" -gt 13000 ] || complain "one NUL byte drops a file of the cache: $count tokens"
tokens data/large.txt
head -c 3000 /dev/zero >zeros
cat text.txt zeros >data/small.txt # a write that a crash cut short
tokens data
[ "$count" -gt 27000 ] || complain "zeros at its end drop a file: $count tokens"
{ printf 'caf\xe9 au lait, %s\n' {1..60}; printf '\0\n'; } >latin # another encoding
tokens latin
for i in {1..60}; do printf '{"text": "line %s\\u0000 of the data"}\n' $i; done >nul.jsonl
tokens nul.jsonl
[ "$count" -gt 800 ] || complain "an escaped NUL drops the lines: $count tokens"
# what is no text is left out of a folder with a word, and refused by name
head -c 4000 "$shoal" >data/program
tokens data
says "data/program: skipped: it is no text" "1 skipped (1 binary)"
expect 2 $quick --data-path text.txt data/program
says "data/program is no text: byte"
printf '\xff\xfea\0b\0c\0' >wide.txt
expect 2 $quick --data-path wide.txt
says "wide.txt is UTF-16 or UTF-32 (by its byte order mark), and text must be UTF-8"
seq 300 | tr -d '\n' | sed 's/./&\n/g' | tr '\n' '\0' >wide.txt
expect 2 $quick --data-path wide.txt
says "wide.txt is UTF-16 or UTF-32 (every second byte is NUL)"
expect 2 "$shoal" tokenizer train --vocab-size 300 --output no.json <(printf '\xff\xfea\0')
says "is UTF-16 or UTF-32"
printf '\xff\xfe{\0}\0' >wide.json
expect 2 $quick --data-path text.txt --deepspeed_config wide.json
says "wide.json is UTF-16 or UTF-32"
printf '{"train_batch_size": 2,\n \0 "x": 1}' >nul.json
expect 2 $quick --data-path text.txt --deepspeed_config nul.json
says "nul.json:2: byte 26 is NUL"
printf 'text.txt\0 data\n' >words
expect 2 $quick --data-args-path words
says "words:1: byte 9 is NUL"

# ---- a training that is over ----
expect 0 $quick --data-path text.txt --save over
for flags in "" "--train-samples 2"; do
    steps=$quick
    [ -z "$flags" ] || steps=${quick/--train-iters 1/$flags}
    expect 0 $steps --data-path text.txt --load over
    says "nothing is left to train: the checkpoint in over is of step 1, and the training ends at step 1 (--train-iters"
done
for flags in "--train-iters 0" "--skip-train" "--train-iters 2"; do
    expect 0 $quick --data-path text.txt --load over $flags
    case $output in *"nothing is left"*) complain "$flags: $output" ;; esac
done

# ---- validation ----
seq 60 >short.txt
long="$shoal pretrain gpt $shape --seq-length 64 --data-cache-path cache --train-iters 1 --deepspeed_config c.json --data-path short.txt"
for flags in "--eval-interval 1" "--full-validation"; do
    expect 2 $long $flags
    says "the validation part has 17 tokens, and a sample of --seq-length 64 needs 65"
done
for flags in "" "--eval-iters 2"; do
    expect 0 $long $flags
    says "no validation: the validation part has 17 tokens, and a sample needs 65"
done
expect 0 $long --eval-iters 0
case $output in *"no validation"*) complain "what was not asked for is missed: $output" ;; esac
expect 0 $long --eval-iters 2 --split 1
says "no validation: the validation part has 0 tokens"
for part in t v; do
    for i in $(seq $([ $part = t ] && echo 60 || echo 1)); do echo "{\"text\": \"line $i of the data, of some thirty tokens\"}"; done >$part.jsonl
    expect 0 "$shoal" preprocess --input $part.jsonl --output-prefix $part
done
long=${long/--data-path short.txt/--train-data-path t_text_document}
expect 2 $long --valid-data-path v_text_document
says "the validation part has 41 tokens"
expect 0 $long --test-data-path v_text_document
says "no loss is computed on the data of --test-data-path"

# ---- a folder of the Hub ----
"$shoal" tokenizer train text.txt --vocab-size 280 --output tokenizer.json >/dev/null || complain "no tokenizer"
llama="--eval-iters 0 --data-path text.txt --data-cache-path cache --deepspeed_config c.json --train-iters 1 --threads 1"
expect 0 "$shoal" pretrain llama --num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --seq-length 16 $llama \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json --save s
expect 0 "$shoal" convert s hub --dtype fp32

# RoPE's scaling, and keys that nothing here reads, through a training, its continuation and a conversion
cp -r hub scaled
sed -i -e 's/"rope_scaling": null/"rope_scaling": {"type": "dynamic", "factor": 4.0}/' -e 's/^{/{"use_cache": false, "id2label": {"0": "x"},/' scaled/config.json
expect 0 "$shoal" pretrain --load scaled --finetune --seq-length 16 $llama --save once
expect 0 "$shoal" pretrain --load once $llama --save twice --train-iters 2
expect 0 "$shoal" convert twice back
for config in once/global_step1 twice/global_step2 back; do
    flat=$(tr -d ' \n' <$config/config.json)
    for text in '"rope_scaling":{"factor":4.0,"rope_type":"dynamic"}' '"use_cache":false' '"id2label":{"0":"x"}'; do
        case $flat in *"$text"*) ;; *) complain "$config/config.json has no $text" ;; esac
    done
done

# numbers beyond fp16, and beyond bf16
head_bytes=$(od -An -t u8 -N 8 hub/model.safetensors | tr -d ' ')
offset=$(head -c $((8 + head_bytes)) hub/model.safetensors | grep -ao '"model.norm.weight":{[^}]*' | grep -o '\[[0-9]*,[0-9]*\]$' | tr -dc '0-9,' | cut -d, -f1)
cp -r hub outlier
printf '\x00\x24\x74\x49' | dd of=outlier/model.safetensors bs=1 seek=$((8 + head_bytes + offset)) conv=notrunc 2>/dev/null # 1e6
expect 1 "$shoal" convert outlier half --dtype fp16
says "1 number is beyond the range of fp16 (65504): \`model.norm.weight\` (1): give --dtype bf16 or fp32, or --allow-overflow"
[ ! -e half ] && [ ! -e half.partial ] || complain "something is left of a conversion that failed"
expect 0 "$shoal" convert outlier half --dtype fp16 --allow-overflow
says "1 number is beyond the range of fp16"
expect 0 "$shoal" convert outlier brain --dtype bf16
expect 0 "$shoal" convert outlier same
expect 2 "$shoal" generate --load outlier --prompt 12 --num-tokens 2 --dtype fp16
says "1 number is beyond the range of fp16 (65504): \`model.norm.weight\` (1): compute in bf16 or fp32"
echo "{\"train_batch_size\": 2, \"fp16\": {\"enabled\": true}, $sgd}" >fp16.json
expect 2 "$shoal" pretrain --load outlier --finetune $llama --deepspeed_config fp16.json
says "1 number is beyond the range of fp16"
expect 0 "$shoal" generate --load outlier --prompt 12 --num-tokens 2
# ... and in checkpoints, whose numbers are wider than the type of another run
sed 's/"lr": 0.1/"lr": 0/' c.json >still.json
sed 's/"lr": 0.1/"lr": 0/' fp16.json >fp16_still.json
expect 0 "$shoal" pretrain --load outlier --finetune --seq-length 16 $llama --deepspeed_config still.json --save outlier_save
expect 0 "$shoal" convert outlier_save outlier_ds --to deepspeed-universal
for from in outlier_save outlier_ds; do
    for stage in 0 3; do
        sed "s/^{/{\"zero_optimization\": {\"stage\": $stage}, /" fp16_still.json >stage.json
        expect 2 "$shoal" pretrain llama --load $from --finetune --num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 \
            --seq-length 16 --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json $llama --deepspeed_config stage.json
        says "$from: 1 number is beyond the range of fp16 (65504): \`model.norm.weight\` (1): compute in bf16 or fp32"
    done
done
expect 2 "$shoal" generate --load outlier_save --prompt 12 --num-tokens 2 --dtype fp16
says "1 number is beyond the range of fp16"
expect 0 "$shoal" generate --load outlier_save --prompt 12 --num-tokens 2 --dtype bf16
printf '\xff\xff\x7f\x7f' | dd of=outlier/model.safetensors bs=1 seek=$((8 + head_bytes + offset)) conv=notrunc 2>/dev/null # the largest fp32
expect 1 "$shoal" convert outlier large --dtype bf16
says "beyond the range of bf16 (3.39e38)" "give --dtype fp32, or --allow-overflow"
expect 2 "$shoal" convert s universal --to deepspeed-universal --allow-overflow
says "--allow-overflow has no effect"

# pointers of git-lfs
pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 123\n' 0 >"$1"; }
for file in config.json model.safetensors tokenizer.json; do
    rm -rf cloned
    cp -r hub cloned
    pointer cloned/$file
    expect 2 "$shoal" generate --load cloned --prompt 12 --num-tokens 2
    says "cloned/$file is a pointer of git-lfs instead of the file itself"
    expect 2 "$shoal" convert cloned never
    says "cloned/$file is a pointer of git-lfs"
    expect 2 "$shoal" pretrain --load cloned --finetune $llama
    says "cloned/$file is a pointer of git-lfs"
done
cp -r s cloned-save
for file in cloned-save/global_step1/model*.safetensors; do pointer "$file"; done
expect 2 "$shoal" pretrain --load cloned-save $llama --train-iters 2
says "is a pointer of git-lfs"
expect 2 "$shoal" tokenizer encode byte cloned-save/global_step1/model*.safetensors
says "is a pointer of git-lfs"
: >empty.txt
expect 2 "$shoal" tokenizer train empty.txt --vocab-size 300 --output no.json
says "empty.txt is empty: there is no text to learn a vocabulary from"
mkdir -p corpus
pointer corpus/story.txt
cp text.txt corpus
for data in corpus corpus/story.txt; do
    expect 2 $quick --data-path $data
    says "corpus/story.txt is a pointer of git-lfs"
done
pointer lines.jsonl
pointer ranks.model
pointer lines.jsonl.gz
for file in lines.jsonl lines.jsonl.gz; do
    expect 2 $quick --data-path $file
    says "$file is a pointer of git-lfs"
done
expect 2 "$shoal" preprocess --input lines.jsonl --output-prefix x
says "lines.jsonl is a pointer of git-lfs"
expect 2 "$shoal" tokenizer encode ranks.model text.txt
says "ranks.model is a pointer of git-lfs"
expect 2 "$shoal" tokenizer train lines.jsonl --vocab-size 300 --output no.json
says "lines.jsonl is a pointer of git-lfs"
for end in bin idx; do
    cp t_text_document.bin p_text_document.bin
    cp t_text_document.idx p_text_document.idx
    pointer p_text_document.$end
    expect 2 $quick --data-path p_text_document
    says "p_text_document.$end is a pointer of git-lfs"
done
pointer c2.json
expect 2 $quick --data-path text.txt --deepspeed_config c2.json
says "c2.json is a pointer of git-lfs"
finish
