#!/usr/bin/env bash
# A training that continues with other options of its model: those that change the model are refused with both values, the others are
# listed, and what is not given is the checkpoint's. Every option of each model's table has a case here.
# Usage: resume_options_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1
config() { # config FILE BATCH RATE
    echo "{\"train_batch_size\": $2, \"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": $3}}}" >"$1"
}
config ds.json 2 0.1
common="--deepspeed_config ds.json --mock-data --eval-iters 0 --threads 1"
small="--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --max-position-embeddings 16"

# options FOLDER: the names that its manifest has for the model
options() {
    tr '{' '\n' <"$1/global_step2/manifest.json" | grep '^"model_type"' | sed 's/}.*//' | tr ',' '\n' | sed 's/^"\([^"]*\)".*/\1/' |
        grep -v '^model_type$'
}
# cases MODEL FOLDER TABLE: a line of the table is OPTION KIND FLAG..., KIND refused or listed. A first sentence names FLAG and values.
cases() {
    local model=$1 ck=$2 option kind flags name seen=
    while read -r option kind flags; do
        [ -n "$option" ] || continue
        seen="$seen $option "
        name=${flags%% *}
        [ "$name" != "$flags" ] || name=${name/#--no-/--} # a switch that is taken back has the value false
        if [ "$kind" = refused ]; then
            expect 2 "$shoal" pretrain $common --train-iters 2 --load "$ck" $flags
            says "$name " ": the checkpoint $ck/global_step2 has " " out, or give --finetune to change the model"
        else
            expect 0 "$shoal" pretrain $common --train-iters 2 --load "$ck" $flags
            says "options that the checkpoint $ck/global_step2 was not trained with: $name "
        fi
    done
    for option in $(options "$ck"); do
        case $seen in
        *" $option "*) ;;
        *) complain "$model: --$option has no case in this test" ;;
        esac
    done
}

expect 0 "$shoal" pretrain gpt $small $common --train-iters 2 --save gpt
cases gpt gpt <<'TABLE'
num-layers refused --num-layers 3
hidden-size refused --hidden-size 32
num-attention-heads refused --num-attention-heads 4
seq-length listed --seq-length 12
max-position-embeddings refused --max-position-embeddings 32
ffn-hidden-size refused --ffn-hidden-size 32
vocab-size refused --vocab-size 300
make-vocab-size-divisible-by listed --make-vocab-size-divisible-by 128
attention-dropout listed --attention-dropout 0.2
hidden-dropout listed --hidden-dropout 0
init-method-std listed --init-method-std 0.1
norm-epsilon refused --norm-epsilon 1e-6
add-bias-linear refused --disable-bias-linear
openai-gelu refused --openai-gelu
untie-embeddings-and-output-weights refused --untie-embeddings-and-output-weights
relu refused --relu
scale-attn-by-inverse-layer-idx refused --scale-attn-by-inverse-layer-idx
cross-entropy-loss-fusion listed --cross-entropy-loss-fusion
label-smoothing listed --label-smoothing 0.1
TABLE
expect 0 "$shoal" pretrain llama $small $common --train-iters 2 --save llama --ffn-hidden-size 32 --norm-epsilon 1e-6
cases llama llama <<'TABLE'
num-layers refused --num-layers 1
hidden-size refused --hidden-size 32
num-attention-heads refused --num-attention-heads 4
seq-length listed --seq-length 16
max-position-embeddings listed --max-position-embeddings 32
group-query-attention refused --group-query-attention
num-query-groups refused --num-query-groups 1
kv-channels refused --kv-channels 4
ffn-hidden-size refused --ffn-hidden-size 64
vocab-size refused --vocab-size 300
make-vocab-size-divisible-by listed --make-vocab-size-divisible-by 64
normalization refused --normalization LayerNorm
norm-epsilon refused --norm-epsilon 1e-5
apply-layernorm-1p refused --apply-layernorm-1p
qk-layernorm refused --qk-layernorm
position-embedding-type refused --position-embedding-type none
rotary-base refused --rotary-base 500000
rotary-percent refused --rotary-percent 0.5
rotary-interleaved refused --rotary-interleaved
rotary-seq-len-interpolation-factor refused --rotary-seq-len-interpolation-factor 2
use-rope-scaling refused --use-rope-scaling
rope-scaling-factor refused --rope-scaling-factor 4
rope-scaling-low-freq-factor refused --rope-scaling-low-freq-factor 2
rope-scaling-high-freq-factor refused --rope-scaling-high-freq-factor 8
rope-scaling-original-max-position refused --rope-scaling-original-max-position 4096
window-size refused --window-size 4
window-attn-skip-freq refused --window-attn-skip-freq 2
swiglu refused --no-swiglu
geglu refused --geglu
squared-relu refused --squared-relu
openai-gelu refused --openai-gelu
disable-bias-linear refused --no-disable-bias-linear
add-qkv-bias refused --add-qkv-bias
add-attention-output-bias refused --add-attention-output-bias
untie-embeddings-and-output-weights refused --no-untie-embeddings-and-output-weights
weight-names refused --weight-names phi
use-parallel-residual refused --use-parallel-residual
shared-input-norm refused --use-parallel-residual --shared-input-norm
post-layernorm refused --post-layernorm
disable-norm-bias refused --disable-norm-bias
disable-norm-weight refused --disable-norm-weight
qk-layernorm-whole refused --qk-layernorm-whole
softmax-scale refused --softmax-scale 0.5
residual-multiplier refused --residual-multiplier 2
logits-multiplier refused --logits-multiplier 2
no-rope-freq refused --no-rope-freq 2
add-mlp-bias refused --add-mlp-bias
add-lm-head-bias refused --add-lm-head-bias
relu refused --relu
embedding-multiplier refused --embedding-multiplier 2
attention-dropout listed --attention-dropout 0.2
hidden-dropout listed --hidden-dropout 0.2
init-method-std listed --init-method-std 0.1
cross-entropy-loss-fusion listed --cross-entropy-loss-fusion
label-smoothing listed --label-smoothing 0.1
TABLE
expect 0 "$shoal" pretrain bert $small $common --train-iters 2 --save bert
cases bert bert <<'TABLE'
num-layers refused --num-layers 1
hidden-size refused --hidden-size 32
num-attention-heads refused --num-attention-heads 4
seq-length listed --seq-length 12
max-position-embeddings refused --max-position-embeddings 32
ffn-hidden-size refused --ffn-hidden-size 32
vocab-size refused --vocab-size 300
make-vocab-size-divisible-by listed --make-vocab-size-divisible-by 128
attention-dropout listed --attention-dropout 0.2
hidden-dropout listed --hidden-dropout 0
init-method-std listed --init-method-std 0.1
norm-epsilon refused --norm-epsilon 1e-6
openai-gelu refused --openai-gelu
bert-binary-head refused --bert-no-binary-head
bert-pre-norm refused --bert-pre-norm
TABLE
expect 2 "$shoal" pretrain $common --train-iters 2 --load llama --norm-epsilon 1e-5
says "--norm-epsilon 1e-05: the checkpoint llama/global_step2 has 1e-06; leave the flag out"
expect 2 "$shoal" pretrain $common --train-iters 2 --load gpt --disable-bias-linear
says "--disable-bias-linear true: the checkpoint gpt/global_step2 has false"
expect 2 "$shoal" pretrain $common --train-iters 2 --load llama --normalization LayerNorm
says "--normalization LayerNorm: the checkpoint llama/global_step2 has RMSNorm"
expect 2 "$shoal" pretrain $common --train-iters 2 --load gpt --hidden-size 32
says "--hidden-size 32: the checkpoint gpt/global_step2 has 16"
[ ${#output} -lt 250 ] || complain "another hidden size prints ${#output} characters: $output"
expect 2 "$shoal" pretrain $common --train-iters 2 --load gpt --seq-length 32
says "the checkpoint gpt/global_step2 with these flags: --max-position-embeddings 16 is below --seq-length 32"

expect 2 "$shoal" pretrain $common --train-iters 2 --load llama --rotary-base 5000 --norm-epsilon 1e-5 --window-size 4
says "--norm-epsilon 1e-05: the checkpoint llama/global_step2 has 1e-06" ", and --rotary-base 5000 is 10000 there" ", and --window-size 4 is " \
    "; leave these flags out, or give --finetune to change the model"
# --train-iters counts from step 0
expect 0 "$shoal" pretrain $common --train-iters 2 --load gpt
says "nothing is left to train: the checkpoint in gpt is of step 2, and the training ends at step 2 (--train-iters counts from step 0)"
expect 0 "$shoal" pretrain $common --train-iters 0 --load gpt # only loads
case $output in *"nothing is left"*) complain "--train-iters 0: $output" ;; esac

# ---- what is not given is the checkpoint's ----
for model in gpt llama bert; do
    expect 0 "$shoal" pretrain $common --train-iters 3 --load $model --save $model.3
    says "step 3/3"
    [ "$(options $model | wc -l)" -gt 10 ] || complain "no options of $model were read"
    a=$(grep -o '"model":{[^}]*}' $model/global_step2/manifest.json)
    b=$(grep -o '"model":{[^}]*}' $model.3/global_step3/manifest.json)
    [ "$a" = "$b" ] || complain "$model continued as another model: $a, $b"
    case $output in *"not trained with"*) complain "differences where there are none: $output" ;; esac
done
expect 0 "$shoal" pretrain llama $small $common --train-iters 3 --load llama --save typed --ffn-hidden-size 32 --norm-epsilon 1e-6
cmp typed/global_step3/manifest.json llama.3/global_step3/manifest.json || complain "the same flags typed again give another checkpoint"
expect 2 "$shoal" pretrain gpt $common --train-iters 3 --load llama
says "gpt is a model \`gpt\`, but the checkpoint llama/global_step2 describes a \`llama\`"
# a known model: what its name says counts too, unless a flag says otherwise; zeros in it stand for what others give
expect 0 "$shoal" pretrain tiny --num-layers 1 --seq-length 16 $common --train-iters 2 --save tiny
expect 0 "$shoal" pretrain tiny --num-layers 1 $common --train-iters 3 --load tiny
says "of 16 tokens"
expect 2 "$shoal" pretrain tiny $common --train-iters 3 --load tiny
says "tiny: --num-layers 4: the checkpoint tiny/global_step2 has 1; leave the model's name out, or name the right one"
# the tokenizer, and the vocabulary of data files that do not say theirs
for i in $(seq 60); do echo "line $i of a text"; done >text
text="--deepspeed_config ds.json --data-path text --data-cache-path . --eval-iters 0 --threads 1"
expect 0 "$shoal" pretrain gpt $small $text --tokenizer-type char --train-iters 2 --save char
expect 0 "$shoal" pretrain $text --train-iters 3 --load char --save char --strict-data
expect 0 "$shoal" plan --load char --deepspeed_config ds.json --world-size 1 --data-path text
says "model: 2 layers, hidden 16"
expect 2 "$shoal" plan --load char --deepspeed_config ds.json --world-size 1 --data-path text --norm-epsilon 0.1
says "--norm-epsilon 0.1: the checkpoint char/global_step3 has 1e-05"
sed 's/.*/{"text": "&"}/' text >lines.jsonl
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix files
files="--deepspeed_config ds.json --data-path files_text_document --data-cache-path . --eval-iters 0 --threads 1"
expect 0 "$shoal" pretrain gpt $small $files --vocab-size 300 --train-iters 2 --save wide
expect 0 "$shoal" pretrain $files --train-iters 3 --load wide --strict-data
rm -f files_text_document.tokens.json
expect 0 "$shoal" pretrain $files --train-iters 3 --load wide
expect 2 "$shoal" pretrain $text --tokenizer-type byte --train-iters 3 --load narrow --save narrow # a fresh start needs a model
says "--num-layers must be given: transformer layers; instead: a known size as MODEL"

# ---- what may change is said once ----
config other.json 4 0.05
expect 0 "$shoal" pretrain ${common/ds.json/other.json} --train-iters 3 --load gpt --hidden-dropout 0 --seq-length 12
says "options that the checkpoint gpt/global_step2 was not trained with: --seq-length 12 (not 8), --hidden-dropout 0 (not 0.1)" \
    "was trained with train_batch_size 2, this run uses 4" "would continue with learning rate 0.1, this run does with 0.05"

# keys of the configuration that change the training, of every optimizer and schedule; what changes none is not told
# trained JSON: what ds.json becomes, with the rest of a configuration; continued JSON [TEXT...]: one line has each TEXT
keys() {
    echo "{\"train_batch_size\": 2, $1}" >keys.json
}
trained() {
    keys "$1"
    rm -rf keys
    expect 0 "$shoal" pretrain gpt $small ${common/ds.json/keys.json} --train-iters 2 --save keys
}
continued() {
    local flags=
    [ "${1#--}" = "$1" ] || { flags=$1 && shift; }
    keys "$1"
    shift
    expect 0 "$shoal" pretrain ${common/ds.json/keys.json} --train-iters 3 --load keys $flags
    local line text
    line=$(grep "options that the checkpoint was not trained with: " <<<"$output")
    [ $# -gt 0 ] || [ -z "$line" ] || complain "keys that change no training are told: $line"
    for text in "$@"; do
        case ", ${line##*trained with: }, " in
        *", $text, "*) ;;
        *) complain "\"$text\" is missing in: $line" ;;
        esac
    done
    [ "$(grep -o '(not ' <<<"$line" | wc -l)" -eq $# ] || complain "not $# keys: $line"
}
adamw='"optimizer": {"type": "AdamW", "params": {"lr": 0.001'
trained "$adamw, \"eps\": 1e-8}}"
continued "\"gradient_clipping\": 1.0, $adamw}}"
continued "\"gradient_clipping\": 1.0, \"prescale_gradients\": true, \"hashes\": false, \"fp16\": {\"hysteresis\": 4}, $adamw}},
  \"zero_optimization\": {\"stage\": 1, \"reduce_bucket_size\": 100}, \"activation_checkpointing\": {\"number_checkpoints\": 2}"
continued "$adamw, \"eps\": 1e-6}}" "optimizer.params.eps 1e-06 (not 1e-08)"
continued "$adamw, \"max_grad_norm\": 0.5}}" "gradient_clipping 0.5 (not 1)"
continued "\"gradient_clipping\": 0, \"gradient_allreduce_op\": \"sum\", $adamw, \"eps\": 0, \"bias_correction\": false}, \"no_decay\": [\"1-D\"]}" \
    "gradient_clipping 0 (not 1)" "gradient_allreduce_op sum (not mean)" "optimizer.params.eps 0 (not 1e-08)" \
    "optimizer.params.bias_correction false (not true)" "optimizer.no_decay 1-D (not none)"
continued "\"reduction\": \"exact\", $adamw}}" "reduction exact (not fast)"
continued "$adamw}, \"param_groups\": [{\"params\": [\"*.bias\"], \"lr_mult\": 2}]}" \
    'optimizer.param_groups [{"lr_mult":2,"params":["*.bias"]}] (not none)'
continued "$adamw}}, \"scheduler\": {\"type\": \"WarmupLR\"}" "scheduler.type WarmupLR (not none)"
continued --no-load-optim "\"gradient_clipping\": 0.5, $adamw, \"eps\": 0}}" "gradient_clipping 0.5 (not 1)"
continued --finetune "\"gradient_clipping\": 0.5, $adamw, \"eps\": 0}}"
decay='"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.001, "warmup_num_steps": 10, "total_num_steps"'
trained "$adamw}}, $decay: 100}}"
continued "$adamw}}, $decay: 50}}" "scheduler.params.total_num_steps 50 (not 100)"
trained '"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}'
continued '"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}' "optimizer.params.nesterov true (not false)"
trained '"optimizer": {"type": "Lamb", "params": {"lr": 0.1}}'
continued '"optimizer": {"type": "Lamb", "params": {"lr": 0.1, "max_coeff": 5}}' "optimizer.params.max_coeff 5 (not 10)"
trained '"optimizer": {"type": "Adafactor", "params": {"lr": 0.1}}'
continued '"optimizer": {"type": "Adafactor", "params": {"lr": 0.1, "d": 2}}' "optimizer.params.d 2 (not 1)"
trained "\"fp16\": {\"enabled\": true}, $adamw}}"
continued "\"fp16\": {\"enabled\": true, \"loss_scale_window\": 10}, $adamw}}" "fp16.loss_scale_window 10 (not 1000)"
# flags mean the keys
scheduled="--deepspeed_config bare.json --mock-data --eval-iters 0 --threads 1"
echo '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}' >bare.json
expect 0 "$shoal" pretrain gpt $small $scheduled --lr 1e-3 --lr-decay-style cosine --train-iters 2 --lr-decay-iters 10 --save flags
expect 0 "$shoal" pretrain $scheduled --lr 1e-3 --lr-decay-style cosine --train-iters 3 --lr-decay-iters 12 --load flags --clip-grad 0.5 --adam-eps 1e-6
says "options that the checkpoint was not trained with: gradient_clipping 0.5 (not 1), optimizer.params.eps 1e-06 (not 1e-08)" \
    "scheduler.params.lr_decay_iters 12 (not 10)"

# ---- --finetune may change the model by a flag ----
expect 0 "$shoal" pretrain $common --finetune --norm-epsilon 1e-5 --train-iters 1 --load llama --save fine
says "--finetune changes the model of the checkpoint llama/global_step2: --norm-epsilon 1e-05 (not 1e-06)"
grep -q '"norm-epsilon":1\.*0*e-5\|"norm-epsilon":1.0000000000000001e-5' fine/global_step1/manifest.json ||
    complain "another epsilon was saved: $(grep -o '"norm-epsilon":[^,]*' fine/global_step1/manifest.json)"
# heads of another size follow from their number
expect 0 "$shoal" pretrain $common --finetune --num-attention-heads 4 --train-iters 1 --load llama --save heads
grep -q '"num-query-groups":4,"kv-channels":4' heads/global_step1/manifest.json || complain "the size of heads did not follow"
expect 2 "$shoal" pretrain $common --finetune --hidden-size 32 --train-iters 1 --load gpt
says "of another shape"
[ ${#output} -lt 700 ] || complain "another hidden size prints ${#output} characters: $output"
expect 2 "$shoal" pretrain gpt $common --finetune --train-iters 1 --load llama
says "describes a \`llama\`"

# ---- Megatron's two flags of the schedule: the checkpoint's, or that of the flags ----
echo '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}' >bare.json
scheduled="--deepspeed_config bare.json --mock-data --eval-iters 0 --threads 1 --log-interval 1 --lr-decay-iters 8"
old="--lr 6e-4 --min-lr 6e-5 --lr-decay-style cosine --weight-decay 0.1"
new="--lr 1e-4 --min-lr 1e-5 --lr-decay-style constant"
# schedule FOLDER: what its manifest stores
schedule() { sed 's/.*,\("schedule":.*\)},"kinds":.*/\1/' "$1"/global_step*/manifest.json; }
expect 0 "$shoal" pretrain gpt $small $scheduled $old --train-iters 5
rate=$(grep -o '^step 5/.* lr [^ ]*' <<<"$output")
expect 0 "$shoal" pretrain gpt $small $scheduled $old --train-iters 4 --save first
for name in opt_param-scheduler opt-param-scheduler lr-scheduler; do
    rm -rf taken
    expect 0 "$shoal" pretrain $scheduled $new --train-iters 5 --load first --save taken --use-checkpoint-$name
    [ "${rate##* }" = "$(grep '^step 5/' <<<"$output" | grep -o ' lr [^ ]*' | cut -c5-)" ] || complain "not the rate ${rate##* }: $output"
    says "weight decay 0.1: 10 tensors"
    [ "$(schedule taken)" = "$(schedule first)" ] || complain "the schedule became $(schedule taken)"
    expect 0 "$shoal" pretrain $scheduled $new --train-iters 5 --load first --override-$name
    says "lr 1.00e-04"
done
expect 2 "$shoal" pretrain $scheduled $new --train-iters 5 --load first --override-opt_param-scheduler --use-checkpoint-opt_param-scheduler
says "exclude each other: give one of them"
expect 0 "$shoal" pretrain $scheduled $new --train-iters 5 --load first --finetune --use-checkpoint-opt_param-scheduler
says "lr 1.00e-04"
expect 0 "$shoal" pretrain gpt $small $scheduled $new --train-iters 1 --use-checkpoint-opt_param-scheduler # nothing to continue
# a scheduler of the configuration goes on, too
echo '{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 10}}}' >warmup.json
expect 0 "$shoal" pretrain gpt $small ${common/ds.json/warmup.json} --log-interval 1 --train-iters 3
rate=$(grep -o '^step 3/.* lr [^ ]*' <<<"$output")
[ "${rate##* }" = 3.01e-03 ] || complain "the third rate of WarmupLR is ${rate##* }"
expect 0 "$shoal" pretrain gpt $small ${common/ds.json/warmup.json} --train-iters 2 --save warm
expect 0 "$shoal" pretrain $common --log-interval 1 --train-iters 3 --load warm --use-checkpoint-opt_param-scheduler
says "lr ${rate##* }"

# ---- folders without checkpoints ----
mkdir empty
for load in nowhere empty; do
    expect 2 "$shoal" pretrain gpt $small $common --train-iters 1 --load $load
    says "there is no checkpoint in $load: give --load the folder of one, or --save the same folder to start there at step 0"
    expect 2 "$shoal" pretrain gpt $small $common --train-iters 1 --load $load --save elsewhere
    [ ! -e elsewhere ] || complain "a run that did not begin made a folder"
    expect 2 "$shoal" plan gpt $small $common --load $load --world-size 1
    expect 2 "$shoal" pretrain gpt $small $common --train-iters 1 --load $load --save $load --exit-on-missing-checkpoint
    expect 0 "$shoal" pretrain gpt $small $common --train-iters 1 --load ./$load/ --save $load
    says "starting at step 0"
done
expect 0 "$shoal" pretrain --load missing --help
says "usage:"

finish
