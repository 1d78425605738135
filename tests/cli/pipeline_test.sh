#!/usr/bin/env bash
# `shoal pretrain` over stages of a pipeline: one rank's bits, who reads data, what the start says, ranks that are
# killed.  Usage: pipeline_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1
before=$(left_segments)

for i in $(seq 100); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "reduction": "exact",
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
flags="--num-layers 6 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text
       --tokenizer-type char --eval-iters 2"
train="$shoal pretrain gpt $flags --deepspeed_config ds.json --train-iters 3"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
final_loss() { grep "on validation set" <<<"$output" | tail -1; }

# ---- one rank's bits, whatever the cut and the schedule ----
expect 0 $train --save one
loss=$(final_loss)
[ -n "$loss" ] || complain "no final loss: $output"
same() { # RANKS FLAGS...
    local n=$1 file
    shift
    rm -rf cut
    expect 0 $(ranks $n) $train --save cut "$@"
    [ "$(final_loss)" = "$loss" ] || complain "$n ranks, $*: $(final_loss), one rank: $loss"
    for file in one/global_step3/*.safetensors; do
        cmp -s "$file" "cut/global_step3/${file##*/}" || complain "$n ranks, $*: ${file##*/} differs from one rank's"
    done
    planned=$(grep -o 'memory: planned [^,]*' <<<"$output")
    [ "${planned#memory: planned }" = "$(sed -n 's/.*memory: planned.*used \([^,]*\),.*/\1/p' <<<"$output")" ] ||
        complain "$*: planned is not used: $output"
}
same 2 --pipeline-model-parallel-size 2
says "mesh: 2 ranks, pp 2; numbered tp-cp-ep-dp-pp" "pipeline: 2 stages, 1f1b, bubble 12.5 % with 8 micro-batches" \
    "stage 0: gpt_embedding, gpt_block 0-" "stage 1: gpt_block " "-5, gpt_head; " "on 1 data-parallel rank"
same 4 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2
says "mesh: 4 ranks, dp 2, pp 2" "2 stages of 2 chunks, interleaved, bubble 12.5 % with 4 micro-batches" " | gpt_block "
same 4 --pipeline-model-parallel-size 4 --pipeline-schedule zb-h1
says "bubble 12.5 % with 8 micro-batches"
same 4 --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping --pipeline-schedule gpipe
says "numbered tp-cp-ep-pp-dp"
same 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et|tt|t|ttL"
says "stage 0: gpt_embedding, gpt_block 0 | gpt_block 3; " "stage 1: gpt_block 1-2 | gpt_block 4-5, gpt_head; "
same 2 --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1
says "stage 0: gpt_embedding, gpt_block 0; "
same 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1
says "2 stages of 3 chunks, interleaved"
sed '2s/^/ "pipeline": {"stages": 2, "partition": "type:block"},\n/' ds.json >keys.json
expect 0 $(ranks 2) ${train/ds.json/keys.json}
[ "$(final_loss)" = "$loss" ] || complain "by keys: $(final_loss), one rank: $loss"
says "stage 0: gpt_embedding, gpt_block 0-2; "
expect 0 $train
[[ $output != *mesh:* ]] || complain "one rank has no mesh to show: $output"

# ---- text from it, by one rank and by ranks that share its matrices ----
expect 0 "$shoal" generate --load one --prompt "line 1" --num-tokens 20 --top-k 1 --threads 1
text=$output
expect 0 $(ranks 2) "$shoal" generate --load one --prompt "line 1" --num-tokens 20 --top-k 1 --threads 1 \
    --tensor-model-parallel-size 2
[ "$output" = "$text" ] || complain "two ranks write: $output, one: $text"
expect 2 $(ranks 2) "$shoal" generate --load one --prompt line --tensor-model-parallel-size 4
says "--tensor-model-parallel-size 4: there are 2 ranks"

# ---- mistakes that are found at the engine's door ----
refuses() {
    local more=$1
    shift
    expect 2 $(ranks 2) $train --pipeline-model-parallel-size 2 $more
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "$more: more than one sentence: $output"
    says "$@"
}
refuses "--partition-method unifrom" "there is no partition method \"unifrom\"; nearest is uniform"
refuses "--pipeline-schedule 1f2b" "there is no pipeline schedule \"1f2b\"; nearest is 1f1b"
refuses "--pipeline-model-parallel-layout Et|tt|tttL" "has 3 stages, which 2 pipeline ranks cannot share evenly"
refuses "--pipeline-model-parallel-layout Etttt|tttL" "has 7 layers t, the model has 6"
refuses "--decoder-first-pipeline-num-layers 7" "7 of the first"
refuses "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 7" \
    "8 micro-batches in groups of 7"

# ---- only the first and the last stage have the text ----
mkdir elsewhere && sed 's/^ "opt/ "seed": 1234, "opt/' ds.json >elsewhere/ds.json && cp elsewhere/ds.json ds.json
cat >rank.sh <<'SCRIPT'
case $RANK in 1 | 2) cd elsewhere || exit 1 ;; esac
exec "$@"
SCRIPT
expect 0 $(ranks 4) --no_local_rank bash rank.sh $train --pipeline-model-parallel-size 4 --full-validation
says "step 3/3" "on validation set"
full=$(final_loss)
expect 0 $train --full-validation
[ "$(final_loss)" = "$full" ] || complain "full validation over 4 stages: $full, one rank: $(final_loss)"
[ "$(ls elsewhere)" = ds.json ] || complain "a stage in the middle made files: $(ls -A elsewhere)"
expect 2 $(ranks 4) --no_local_rank bash rank.sh $train # without stages every rank needs it
says "text"

# ---- tp, dp and pp together; killed in a collective or a message: the verdict says who, where, in what ----
sed 's/"reduction": "exact",//' ds.json >fast.json
cube="${train/ds.json/fast.json} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
expect 0 $(ranks 8) $cube --sequence-parallel
says "mesh: 8 ranks, tp 2, dp 2, pp 2"
# sums over tp have another order: the loss differs in its last figures alone
value() { sed 's/.*loss value: *\([0-9.E+-]*\).*/\1/' <<<"$1"; }
awk -v a="$(value "$loss")" -v b="$(value "$(final_loss)")" 'BEGIN { exit !(a > 1 && b > 1 && (a - b) ^ 2 < 1e-6) }' ||
    complain "a mesh of 8: $(final_loss), one rank: $loss"
for rank in 0 1 2 3 4 5 6 7; do
    SHOAL_FAULT=comm.post:$((60 + 97 * rank))@$rank=kill expect 137 timeout 60 $(ranks 8) $cube --train-iters 200
    says "rank $rank (pid " ", tp $((rank % 2)), dp $((rank / 2 % 2)), pp $((rank / 4))) is gone, last seen in " " of step " \
        "[shoal run] rank $rank (pid " "was killed by signal 9 (Killed); stopping the other 7"
    [ "$(grep -c "is gone" <<<"$output")" = 1 ] || complain "more than one rank says it: $output"
done
nothing_left "$before"
finish
