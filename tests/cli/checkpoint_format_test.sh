#!/usr/bin/env bash
# A program made of docs/CHECKPOINT-FORMAT.md reads what Shoal wrote, and Shoal continues what that page alone has written.
# Usage: checkpoint_format_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
page=$root/docs/CHECKPOINT-FORMAT.md
python=$(command -v python3) || { echo "skipped: needs python3" && exit 77; }
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT
cd "$folder" || exit 1
expect 0 "$root/tests/extending/extract" "$page" . read_checkpoint.py
format() { "$python" "$root/tests/cli/checkpoint_format.py" "$@"; }

for i in $(seq 100); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
config() { # NAME OPTIMIZER MORE
    echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, \"reduction\": \"exact\", \"hashes\": true,
 \"steps_per_print\": 1000000, \"optimizer\": {$2}$3}" >"$1.json"
}
shape="--num-layers 1 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1"
gpt="$shape --data-path text --eval-iters 0"
train="$shoal pretrain gpt $gpt"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }

# ---- reading: every kind, dtype and layout of tensors ----
config adamw '"type": "AdamW", "params": {"lr": 0.01}'
config bf16 '"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}' ', "bf16": {"enabled": true}'
config fp16 '"type": "Adam", "params": {"lr": 0.01}' ', "fp16": {"enabled": true}, "zero_optimization": {"stage": 3}'
config adafactor '"type": "Adafactor"' ', "zero_optimization": {"stage": 2}'
config lamb '"type": "Lamb"' ', "bf16": {"enabled": true}'
expect 0 $(ranks 2) $train --deepspeed_config adamw.json --train-iters 2 --tokenizer-type char --save adamw
expect 0 $(ranks 2) $train --deepspeed_config adafactor.json --train-iters 2 --save adafactor
expect 0 $train --deepspeed_config lamb.json --train-iters 2 --save lamb
expect 0 $train --deepspeed_config bf16.json --train-iters 2 --save bf16 --untie-embeddings-and-output-weights
expect 0 $(ranks 2) $train --deepspeed_config fp16.json --train-iters 2 --save fp16 --disable-bias-linear
for run in adamw bf16 fp16 adafactor lamb; do
    expect 0 format read "$page" $run
    says "global_step2 2"
    expect 0 format hashes $run $run/hashes.jsonl
    says "tensors"
done
# a member that the page does not name, and one that it names and that is not there
sed 's/^| `applied_steps`/| `applied`/' "$page" >wrong.md
expect 1 format read wrong.md adamw
says "engine has \`applied_steps\`, which the page does not tell of"

# ---- files of several chunks ----
config plain '"type": "SGD", "params": {"lr": 0.1}'
expect 0 "$shoal" pretrain gpt $shape --mock-data --vocab-size 140000 --eval-iters 0 --deepspeed_config plain.json \
    --train-iters 0 --save large
expect 0 format chunks large
says "2 chunks"

# ---- writing: Shoal continues from it with the same bits ----
for run in adamw fp16 adafactor; do
    flags="--deepspeed_config $run.json --train-iters 4"
    [ $run != fp16 ] || flags="$flags --disable-bias-linear"
    expect 0 format rewrite $run $run.new
    expect 0 format read "$page" $run
    expect 0 "$shoal" report --load $run.new
    says "mine" "step 2" "whole, latest"
    rm -f {$run,$run.new}/hashes.jsonl
    expect 0 $train $flags --load $run --save $run.a
    expect 0 $train $flags --load $run.new --save $run.b
    cmp $run.a/global_step4/manifest.json $run.b/global_step4/manifest.json || complain "$run: continued otherwise"
done
expect 1 format read "$page" adamw.new global_step2
says "there is no checkpoint global_step2 in adamw.new"
expect 0 "$shoal" generate --load adamw.new --prompt "line" --num-tokens 4
cp -r adamw poked
expect 0 format poke poked exp_avg transformer.h.0.mlp.c_fc.bias 77
expect 1 "$shoal" diff adamw/global_step2 poked/global_step2
says "exp_avg: first difference in \`transformer.h.0.mlp.c_fc.bias\`, element 77; 1 of" "1 units in the last place"

expect 0 "$shoal" diff adafactor adafactor
says "equal: every bit of every tensor"
cp -r adafactor poked_row
expect 0 format poke poked_row exp_avg_sq_row transformer.h.0.mlp.c_fc.weight 3
expect 1 "$shoal" diff adafactor poked_row
says "exp_avg_sq_row: first difference in \`transformer.h.0.mlp.c_fc.weight\`, element 3; 1 of"

# a state that another program took for one of another kind
cp -r adafactor other
sed -i 's/"of":"row"/"of":"column"/' other/global_step2/manifest.json
expect 0 format seal other
expect 2 $train --deepspeed_config adafactor.json --train-iters 4 --load other
says "the checkpoint's \`exp_avg_sq_row\` has a number for each column, this run one for each row"

# ---- members that other programs leave out ----
sed 's/.*/{"text": "&"}/' text >lines.jsonl
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix files
files="$shoal pretrain gpt $shape --data-path files_text_document --eval-iters 0 --deepspeed_config adamw.json"
expect 0 $files --train-iters 4 --exit-interval 2 --save bare
expect 0 format read "$page" bare
sed -i 's/,"train_samples":\[[0-9]*\],"order":{[^}]*}//; s/"optimizer":"adamw",//; s/"dtype":"F32","reduction"/"reduction"/' \
    bare/global_step2/manifest.json
expect 0 format seal bare
expect 0 $files --train-iters 4 --load bare
says "the checkpoint in bare does not say in which order samples of data files came: the run continues in that of --train-iters 4" \
    "the checkpoint bare/global_step2 does not say which optimizer made its states: they are taken as those of \`adamw\`" "step 4/4"
# the name `adam` alone may mean both modes
cp -r adamw named
sed -i 's/"optimizer":"adamw"/"optimizer":"adam"/' named/global_step2/manifest.json
expect 0 format seal named
expect 0 $train --deepspeed_config adamw.json --train-iters 3 --load named
says "was trained with optimizer \`adam\`, this run uses \`adamw\`"
config l2 '"type": "Adam", "params": {"lr": 0.01, "adam_w_mode": false}'
expect 0 $train --deepspeed_config l2.json --train-iters 3 --load named

# ---- damage ----
cp -r adamw cut
expect 0 format cut cut model-00001-of-00001.safetensors 20000
expect 1 format read "$page" cut
says "model-00001-of-00001.safetensors does not verify"
expect 1 $train --deepspeed_config adamw.json --tokenizer-type char --train-iters 4 --load cut
says "model-00001-of-00001.safetensors has 20000 bytes"

# ---- which one is meant after a crash ----
again="--deepspeed_config adamw.json --tokenizer-type char"
expect 0 $train $again --train-iters 3 --load adamw --save adamw
for point in ckpt.write:1 ckpt.manifest ckpt.rename ckpt.rename:1 ckpt.rename:2; do
    rm -rf died && cp -r adamw died
    code=0
    SHOAL_FAULT=$point=kill $train $again --train-iters 3 --load died --load-tag global_step2 --save died \
        --override-existing-checkpoint >out 2>&1 </dev/null || code=$?
    [ "$code" = 137 ] || complain "$point: not killed: $code $(cat out)"
    expect 0 format find died
    meant=$output
    case $point in
    ckpt.rename:1) [ "$meant" = global_step3.partial ] || complain "$point: $meant is meant" ;;
    *) [ "$meant" = global_step3 ] || complain "$point: $meant is meant" ;;
    esac
    expect 0 format read "$page" died
    says "$meant 3"
    expect 0 $train $again --train-iters 3 --load died
    [ $point != ckpt.rename:1 ] || says "using $meant (step 3)"
    expect 0 $train $again --train-iters 4 --load died --save died
    [ "$(ls -A died | grep -v hashes | tr '\n' ' ')" = "global_step2 global_step3 global_step4 latest " ] ||
        complain "$point: left $(ls -A died)"
done
finish
