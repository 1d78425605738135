#!/usr/bin/env bash
# Command lines of Megatron-LM and Megatron-DeepSpeed: the argument lists of published scripts, scaled down; flags with a meaning, against
# what they mean; flags without; Megatron's log lines, by the patterns of programs that read them.  Usage: megatron_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 root=$2
forget_job
cd "$folder" || exit 1

# ---- data and tokenizers that scripts name ----
for i in $(seq 120); do
    echo "{\"text\": \"Line $i says that the quick brown fox jumps. The lazy dog sleeps $((i * 7919 % 1000)) hours.\"}"
done >text.jsonl
echo '#version: 0.2' >merges.txt
{
    printf '{"\\u0120": 0, "\\u010a": 1, "<|endoftext|>": 2'
    id=3
    for code in $(seq 33 126); do
        printf ', "\\u%04x": %d' "$code" $((id++))
    done
    echo '}'
} >vocab.json
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' line says that the quick brown fox jumps lazy dog sleeps hours . >vocab.txt
gpt2="--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt"
expect 0 "$shoal" preprocess --input text.jsonl --output-prefix gpt --append-eod $gpt2
expect 0 "$shoal" preprocess --input text.jsonl --output-prefix bert --split-sentences --tokenizer-type BertWordPieceLowerCase \
    --vocab-file vocab.txt
echo '{}' >ds.json
size="--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16"
files="--data-path gpt_text_document --vocab-file vocab.json --merge-file merges.txt --data-cache-path cache"
sentences="--data-path bert_text_sentence --vocab-file vocab.txt --data-cache-path cache"
board="--tensorboard-dir board --tensorboard-queue-size 5 --log-timers-to-tensorboard --log-batch-size-to-tensorboard
       --log-validation-ppl-to-tensorboard"
deepspeed="--deepspeed --deepspeed_config ds.json"
every="--log-interval 1 --save-interval 2 --eval-interval 2 --eval-iters 1"
again="--save run --load run"

# ---- argument lists of published scripts: sizes and paths are this test's ----
# script NAME MODEL WORDS...: trains with them
script() {
    local name=$1 model=$2
    shift 2
    rm -rf run
    expect 0 "$shoal" pretrain "$model" --threads 1 "$@"
    says "on validation set" " iteration        1/"
    [ -e run/latest ] || [ "$name" = azure-175b ] || complain "$name saved nothing"
}
# stops PHRASE MODEL WORDS...: refused with it
stops() {
    local phrase=$1
    shift
    expect 2 "$shoal" pretrain "$@"
    says "$phrase"
}
script megatron-gpt3-175b gpt $size --attention-backend auto --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --weight-decay 0.1 \
    --step-batch-size-schedule "0:2 64:4" --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 \
    --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430 --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 1 $files --split 949,50,1 $every $again --tensorboard-dir board
# its test of 15 billion parameters: the largest batch stands in the schedule alone; 0 turns exits off
script megatron-gpt3-15b gpt $size --micro-batch-size 1 --step-batch-size-schedule "0:2 64:4" --train-samples 12 --lr-decay-samples 12 \
    --lr-warmup-samples 4 --lr 4.5e-4 --min-lr 4.5e-5 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --bf16 --no-load-optim \
    --exit-interval 0 --exit-duration-in-mins 0 --squared-relu --disable-bias-linear --position-embedding-type rope --rotary-percent 0.5 \
    --untie-embeddings-and-output-weights --use-mcore-models --test-mode --tiktoken-num-special-tokens 1000 --hybrid-mlp-ratio 0.0 \
    --encoder-tensor-model-parallel-size 0 $files --split 949,50,1 $every --save run
says "batch: 4 samples" "--no-load-optim has no effect without --load" "--test-mode has no effect"
script megatron-bert-340m bert $size --attention-backend auto --micro-batch-size 1 --global-batch-size 4 --train-iters 3 \
    --weight-decay 1e-2 --clip-grad 1.0 --fp16 --lr 0.0001 --lr-decay-iters 99 --lr-decay-style linear --min-lr 1.0e-5 --weight-decay 1e-2 \
    --lr-warmup-fraction .01 --clip-grad 1.0 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 $sentences --split 949,50,1 \
    $every $again --tensorboard-dir board
script deepspeed-rope gpt --override-opt_param-scheduler --adam-beta1 0.9 --adam-beta2 0.95 --tensor-model-parallel-size 1 \
    --init-method-std 0.013 --lr-decay-tokens 300000 --lr-warmup-tokens 30 --micro-batch-size 1 --exit-duration-in-mins 30000000 \
    --global-batch-size 4 $size --train-tokens 192 --train-samples 30 --lr 2.0e-4 --min-lr 1.0e-6 --lr-decay-style cosine --split 949,50,1 \
    $every --weight-decay 0.1 --clip-grad 1.0 --hysteresis 2 --num-workers 0 --fp16 --seed 1234 $again \
    --no-async-tensor-model-parallel-allreduce --use-rotary-position-embeddings --rotary-percent 0.25 $board --checkpoint-activations \
    --log-optimizer-states-to-tensorboard $files --data-impl mmap $deepspeed --zero-stage 1 --pipeline-model-parallel-size 1 \
    --deepspeed-activation-checkpointing
says "iteration        3/       3"
script deepspeed-llama2 gpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 $size --ffn-hidden-size 64 --micro-batch-size 1 \
    --global-batch-size 4 --train-iters 3 $again $files --data-impl mmap --split 949,50,1 --distributed-backend nccl --lr 3e-4 \
    --lr-decay-style cosine --min-lr 3e-5 --weight-decay 0.1 --clip-grad 1 --lr-warmup-iters 1 --optimizer adam --adam-beta1 0.9 \
    --adam-beta2 0.95 $every --bf16 --no-query-key-layer-scaling --attention-dropout 0 --hidden-dropout 0 --use-rotary-position-embeddings \
    --untie-embeddings-and-output-weights --swiglu --normalization rmsnorm --disable-bias-linear --num-key-value-heads 2 $deepspeed \
    --zero-stage=0
says "4 heads in 2 groups"
script deepspeed-dense gpt --override-opt_param-scheduler --adam-beta1 0.9 --adam-beta2 0.95 --tensor-model-parallel-size 1 \
    --moe-expert-parallel-size 1 --num-experts 1 --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 --moe-eval-capacity-factor 1.0 \
    --moe-min-capacity 4 --init-method-std 0.014 --lr-decay-tokens 260000 --lr-warmup-tokens 375 --micro-batch-size 1 \
    --exit-duration-in-mins 30000000 --rampup-batch-size 2 2 4 --global-batch-size 4 $size --train-tokens 192 --train-samples 30 \
    --lr 2.0e-4 --min-lr 2.0e-5 --lr-decay-style cosine --split 98,2,0 $every --weight-decay 0.1 --clip-grad 1.0 --hysteresis 2 \
    --num-workers 0 --fp16 $again $board --checkpoint-activations --create-moe-param-group $files --data-impl mmap $deepspeed \
    --pipeline-model-parallel-size 1 --no-pipeline-parallel --deepspeed-activation-checkpointing
says "iteration        4/       4"
script deepspeed-bert bert --override-opt_param-scheduler --adam-beta1 0.9 --adam-beta2 0.999 --init-method-std 0.02 \
    --tensor-model-parallel-size 1 --lr-decay-iters 20 --lr-warmup-iters 1 --micro-batch-size 1 --global-batch-size 4 $size \
    --train-iters 3 --lr 1e-4 --min-lr 1e-5 --lr-decay-style linear --split 949,50,1 $every --weight-decay 1e-2 --clip-grad 1.0 \
    --num-workers 4 --fp16 $again $board --log-optimizer-states-to-tensorboard $sentences --data-impl mmap $deepspeed --zero-stage 0 \
    --pipeline-model-parallel-size 1 --no-pipeline-parallel
script deepspeed-universal gpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --ds-sequence-parallel-size 1 $size \
    --loss-scale 12 --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr 6.0e-3 --min-lr 6.0e-4 --lr-decay-style cosine \
    $every $files --split 949,50,1 --clip-grad 1.0 --weight-decay 0.1 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 \
    --init-method-std 0.006 --bf16 --checkpoint-activations --exit-interval 100 $again --make-vocab-size-divisible-by 256 \
    --universal-checkpoint --tensorboard-dir board $deepspeed --zero-stage=1 --deepspeed-activation-checkpointing
script azure-175b gpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 $size --loss-scale 15 --micro-batch-size 1 \
    --global-batch-size 4 --train-iters 3 --lr 6.0e-5 --min-lr 6.0e-6 --lr-decay-style cosine $every $files --split 98,2,0 --clip-grad 1.0 \
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --fp16 --checkpoint-activations --tensorboard-dir board \
    --deepspeed-activation-checkpointing --zero-stage=3 --deepspeed_config=ds.json --no-pipeline-parallel --deepspeed --exit-interval 5000
says "--save-interval has no effect without --save"
script bigscience-13b gpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 $size --ffn-hidden-size 64 --micro-batch-size 1 \
    --rampup-batch-size 2 2 4 --global-batch-size 4 --train-samples 12 $files --loss-scale 12 --clip-grad 1.0 --fp16 \
    --checkpoint-activations --seed 42 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.999 --adam-eps 1e-8 --lr 1e-4 --min-lr 1e-5 \
    --lr-decay-style cosine --lr-decay-samples 126953 --lr-warmup-samples 216 --clip-grad 1.0 --weight-decay 1e-1 \
    --exit-duration-in-mins 1190 $every --codecarbon-dir carbon $board $again --split 949,50,1 --data-impl mmap \
    --distributed-backend nccl $deepspeed --zero-stage 1 --deepspeed-activation-checkpointing
script bigscience-swiglu gpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 $size --ffn-hidden-size 64 \
    --micro-batch-size 1 --global-batch-size 4 --rampup-batch-size 2 2 4 --no-bias-gelu-fusion --glu-activation swiglu --train-samples 12 \
    $files --loss-scale 12 --clip-grad 1.0 --fp16 --checkpoint-activations --optimizer adam --adam-beta1 0.9 --adam-beta2 0.999 \
    --adam-eps 1e-8 --lr 2e-4 --min-lr 1e-5 --lr-decay-style cosine --lr-decay-samples 73242 --lr-warmup-samples 183 --weight-decay 1e-1 \
    --exit-duration-in-mins 1190 $every $board $again --split 949,50,1 --data-impl mmap --distributed-backend nccl $deepspeed \
    --zero-stage 1 --deepspeed-activation-checkpointing
script bigscience-zero gpt --model-parallel-size 1 $size --batch-size 1 --train-iters 3 --lr-decay-iters 320 --lr 1.5e-4 \
    --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 --warmup 0.01 --fp16 $every $again $files \
    --data-impl mmap --split 949,50,1 --distributed-backend nccl $deepspeed --zero-stage 3 --zero-reduce-bucket-size 50000000 \
    --zero-allgather-bucket-size 5000000000 --zero-contigious-gradients --zero-reduce-scatter --checkpoint-activations \
    --deepspeed-activation-checkpointing --checkpoint-num-layers 1 --partition-activations --checkpoint-in-cpu --synchronize-each-layer \
    --contigious-checkpointing
script epfl-gpt gpt ${size//-l/_l} --micro_batch_size 1 --global_batch_size 4 --train_iters 3 --lr_decay_iters 320 $again $files \
    --data_impl mmap --split 949,50,1 --distributed_backend nccl --lr 0.00015 --lr_decay_style cosine --min_lr 1.0e-5 --weight_decay 1e-2 \
    --clip_grad 1.0 --lr_warmup_fraction .01 --activations_checkpoint_method uniform ${every//-i/_i} --fp16
# BLOOM, experts, distillation, Ulysses: each names the page
more="$size --micro-batch-size 1 --train-iters 3 --lr 1e-4 --mock-data $deepspeed"
stops "--embed-layernorm is not supported, see docs/MODELS.md" gpt $more --embed-layernorm --position-embedding-type alibi
stops "--position-embedding-type is not supported, see docs/MODELS.md" gpt $more --position-embedding-type alibi
stops "--num-experts is not supported, see docs/FEATURES.md" gpt $more --num-experts 128 --moe-expert-parallel-size 64
stops "--num-experts is not supported" gpt $more --num-experts 64 128
stops "--kd is not supported, see docs/FEATURES.md" gpt $more --kd --kd-beta-ce 1 --num-layers-teacher 24
stops "--ds-sequence-parallel-size is not supported, see docs/PARALLEL.md" gpt $more --ds-sequence-parallel-size 2
stops "--data-efficiency-curriculum-learning is not supported" gpt $more --data-efficiency-curriculum-learning
stops "--optimizer is not supported, see docs/FEATURES.md: the optimizers are" gpt $more --optimizer dist_muon
stops "--moe-router-something is not supported" gpt $more --moe-router-something

# ---- flags that mean something, against what they mean ----
train="$shoal pretrain gpt $size --threads 1 --mock-data --eval-iters 1 --log-interval 1 --log-format megatron"
# losses WORDS...: every loss of the run, learning rates and batches
losses() {
    expect 0 "$@"
    lines=$(grep -oE '(learning rate|global batch size|lm loss|lm loss value): +[0-9.E+-]+' <<<"$output")
    [ "$(grep -c . <<<"$lines")" -gt 6 ] || complain "$* printed no lines of Megatron: $output"
}
# same NAME WORDS...: as $wanted
same() {
    local name=$1
    shift
    losses "$@"
    [ "$lines" = "$wanted" ] || complain "$name is another training: $lines, not $wanted"
}
base="--lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine --deepspeed_config ds.json --micro-batch-size 2 --global-batch-size 4"
losses $train $base --train-iters 6 --lr-decay-iters 6 --lr-warmup-iters 2
wanted=$lines
same "--train-samples" $train $base --train-samples 27 --lr-decay-samples 24 --lr-warmup-samples 8
same "--train-tokens" $train $base --train-samples 1000 --train-tokens 370 --lr-decay-tokens 384 --lr-warmup-tokens 128
same "the decay ends with --train-samples" $train $base --train-samples 24 --lr-warmup-samples 8
same "--optimizer adam, ZeRO 1" $train $base --train-iters 6 --lr-warmup-iters 2 --optimizer adam --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather --sgd-momentum 0.9
says "--sgd-momentum has no effect: the optimizer is AdamW"
same "recomputation" $train $base --train-iters 6 --lr-warmup-iters 2 --recompute-activations
same "the default part of selective recomputation" $train $base --train-iters 6 --lr-warmup-iters 2 --recompute-granularity selective \
    --recompute-modules core_attn
same "and its modules" $train $base --train-iters 6 --lr-warmup-iters 2 --recompute-granularity selective
same "flags of experts that are off" $train $base --train-iters 6 --lr-warmup-iters 2 --num-experts 0 --moe-router-topk 2 \
    --expert-model-parallel-size 1 --context-parallel-size 1 --cp-comm-type p2p --mtp-num-layers 0 --create-moe-param-group
same "Habana's flags that change nothing" $train $base --train-iters 6 --lr-warmup-iters 2 --use-torch-compile=0 --use-fused-sdpa true \
    --use-fast-softmax --mask-tensor-adding --verify-checkpoint --verify-checkpoint-model-type GPT
same "two stages" ${train/"$shoal pretrain"/"$shoal run --master_port 0 --num_gpus 2 $shoal pretrain"} $base --train-iters 6 \
    --lr-warmup-iters 2 --pipe-parallel-size 2 --enable-zbh1-pipeline --enable-zbh1-exact-semantics
same "--no_masked-softmax_fusion" $train ${base//-decay-/_decay_} --train_iters 6 --lr_warmup-iters 2 --no_masked-softmax_fusion
says "--no_masked-softmax_fusion has no effect: there is one kernel."
losses $train $base --train-iters 6 --lr-decay-samples 26 --lr-warmup-samples 8
[ "$lines" != "$wanted" ] || complain "a decay of 6.5 batches is one of 6"
losses $train $base --train-iters 6 --lr-warmup-iters 2 --optimizer sgd --sgd-momentum 0.9
[ "$lines" != "$wanted" ] || complain "--optimizer sgd trains with Adam"
# random tokens are of as many kinds as the tokenizer has, so that the model has its size
expect 0 $train $base --train-iters 1 $gpt2
says "tokens of 97 kinds"
expect 0 $train $base --train-iters 1 $gpt2 --vocab-size 300
says "tokens of 300 kinds"
expect 2 $train $base --train-iters 1 --tokenizer-type GPT2BPETokenizer --vocab-file absent.json --merge-file merges.txt
says "absent.json"
# the order of data files is that of as many samples
mapped=${train/--mock-data/$files --split 949,50,1}
losses $mapped $base --train-iters 40 --lr-decay-iters 40
ordered=$lines
losses $mapped $base --train-samples 160
[ "$lines" = "$ordered" ] || complain "--train-samples has another order than as many --train-iters"
losses $mapped $base --train-iters 40 --lr-decay-iters 40 --dataloader-type cyclic
[ "$lines" != "$ordered" ] || complain "another order has the same losses"
losses $mapped $base --train-samples 1000 --train-tokens $((160 * 16)) --lr-decay-iters 40
[ "$(grep -c 'global batch' <<<"$lines")" = 40 ] || complain "2560 tokens are not 40 steps: $lines"
[ "$lines" != "$ordered" ] || complain "1000 samples have the order of 160"
# gpt with flags of llama is llama, with Megatron's defaults
losses $train $base --train-iters 6 --swiglu --position-embedding-type rope
says "the flags are those of a llama model"
wanted=$lines
losses $train $base --train-iters 6 --no-position-embedding
none=$lines
losses $train $base --train-iters 6 --position-embedding-type none
[ "$lines" = "$none" ] || complain "--no-position-embedding has positions"
losses $train $base --train-iters 6 --window-size 5 --position-embedding-type rope --swiglu
window=$lines
losses $train $base --train-iters 6 --window-size 4,0 --position-embedding-type rope --swiglu
[ "$lines" = "$window" ] && [ "$lines" != "$wanted" ] || complain "--window-size 4,0 is not --window-size 5"
same "rope without learned positions" $train $base --train-iters 6 --swiglu --use-rotary-position-embeddings --no-position-embedding
same "llama by its own flags" ${train/ gpt / llama } $base --train-iters 6 --normalization LayerNorm --no-disable-bias-linear \
    --no-untie-embeddings-and-output-weights --attention-dropout 0.1 --hidden-dropout 0.1
expect 2 $train $base --train-iters 6 --lr-decay-samples 24 --lr-decay-iters 6
says "--lr-decay-samples and --lr-decay-iters set the same length: give one of them"
expect 2 $train $base --train-iters 6 --train-samples 24
says "--train-iters and --train-samples both set the length"
expect 2 $train $base --train-samples 3
says "--train-samples 3 is less than a batch of 4 samples"
expect 2 $train $base --train-iters 6 --bf16 --fp32-residual-connection
says "--fp32-residual-connection is not supported with bf16 or fp16"
echo '{"zero_optimization": {"stage": 2}}' >two.json
expect 2 $train ${base/ds.json/two.json} --train-iters 6 --zero-stage 1
says "--zero-stage is 1 but two.json has zero_optimization.stage = 2"
expect 0 $train ${base/ds.json/two.json} --train-iters 1 --use-distributed-optimizer
# --skip-train, and a file that ends a run
expect 0 $train $base --train-iters 6 --save skip
trained=$(grep 'validation set' <<<"$output" | tail -1)
expect 0 $train $base --train-iters 6 --load skip --skip-train
[ "$(grep 'validation set' <<<"$output")" = "$trained" ] || complain "--skip-train validates otherwise: $output"
grep -q 'iteration        [0-9]/' <<<"$output" && complain "--skip-train trains: $output"
touch stop
expect 0 $train $base --train-iters 6 --save killed --kill-switch-path stop
[ -e killed/global_step2 ] && [ ! -e killed/global_step6 ] || complain "--kill-switch-path: $(ls killed)"

# ---- log lines, by the patterns of programs that read them ----
expect 0 $train $base --train-iters 4 --log-throughput
number='[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?'
# found PROGRAM PATTERN COUNT
found() {
    local count
    count=$(grep -cE "$2" <<<"$output")
    [ "$count" = "$3" ] || complain "what $1 looks for stands in $count lines, not $3: $output"
}
found "DeepSpeed's run_perf_test" "elapsed time per iteration \(ms\): $number" 4
found "Megatron-LM's print_nsys_leaderboard" 'iteration[[:space:]]+[0-9]+/[[:space:]]*[0-9]+.*elapsed time per iteration \(ms\):[[:space:]]*[0-9.]+' 4
found "Slapo's log parser" 'elapsed time per iteration \(ms\): +[0-9.]+' 4
found "readers of throughput" 'throughput per GPU \(TFLOP/s/GPU\): +[0-9.]+ \|' 4
found "readers of losses" "lm loss: +$number \| loss scale: +$number \| grad norm: +$number \|" 4
found "readers of validations" "validation loss at .* \| lm loss value: $number \| lm loss PPL: $number" 1
grep -q '^step ' <<<"$output" && complain "--log-format megatron prints Shoal's lines: $output"
expect 0 ${train/--log-format megatron/} $base --train-iters 2
found "readers of both" '^step 2/2 | iteration +2/ +2 \|' 2
expect 0 ${train/--log-interval 1 --log-format megatron/} $base --train-iters 2
found "readers of Megatron's lines" 'elapsed time per iteration' 0

# ---- every flag is known: Megatron's tables, one row each ----
expect 0 "$shoal" pretrain --help megatron
[ "$(grep -c '^--' <<<"$output")" -gt 400 ] || complain "--help megatron: $output"
says "--use-flash-attn  no effect: " "--checkpoint-activations  stands for --recompute-granularity full --recompute-method uniform" \
    "--kd  not supported, see docs/FEATURES.md: "
while read -r page; do
    [ -f "$root/$page" ] || complain "--help megatron names $page"
done < <(grep -oE 'docs/[A-Z-]+\.md' <<<"$output" | sort -u)
known=$({
    for model in gpt llama bert; do "$shoal" pretrain "$model" --help-all; done | grep -E '^ +--' | sed 's/\[no-\]//' | grep -oE -- '--[A-Za-z0-9_-]+'
    grep -oE '^--[A-Za-z0-9_*-]+' <<<"$output"
    printf '%s\n' --no-position-embedding --fp32-residual-connection --local-rank # hidden ones
} | sed 's/^--//; s/_/-/g' | sort -u)
unknown=$(awk 'NR == FNR { if (sub(/\*$/, "")) starts[$0]; else names[$0]; next }
    /^#/ { next }
    { found = $0 in names
      for (start in starts) found = found || index($0, start) == 1
      if (!found) print }' <(printf '%s\n' "$known") "$root/tests/cli/megatron_flags")
[ "$(grep -vc '^#' "$root/tests/cli/megatron_flags")" -gt 600 ] || complain "too few names in megatron_flags"
[ -z "$unknown" ] || complain "flags that nobody knows: $unknown"
for flag in $(grep -oE '`--[a-zA-Z0-9_-]+`' "$root/docs/MEGATRON.md" | tr -d '`' | sort -u); do
    output=$("$shoal" pretrain llama "$flag" 2>&1)
    case $output in *"unknown flag"*) complain "docs/MEGATRON.md names $flag: $output" ;; esac
done

finish
