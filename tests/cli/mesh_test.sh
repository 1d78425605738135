#!/usr/bin/env bash
# Flags and keys of a mesh: what contradicts is one sentence for all ranks, exit 2.  Usage: mesh_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1

for i in $(seq 60); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "reduction": "exact",
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
# with KEYS...: ds.json and these keys as k.json
with() { sed "2s/^/ $*,\n/" ds.json >k.json; }
flags="--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text
       --tokenizer-type char --eval-iters 2 --train-iters 3"
four="$shoal run --master_port 0 --num_gpus 4 $shoal pretrain gpt $flags --deepspeed_config"
# refuses CONFIG "FLAGS" TEXT...: exit 2, one sentence from four ranks, in which each text stands
refuses() {
    local config=$1 more=$2
    shift 2
    expect 2 $four $config $more
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "$more: more than one sentence: $output"
    says "$@"
}

# ---- sizes ----
refuses ds.json "--tensor-model-parallel-size 3" "4 ranks cannot be divided into replicas of 3 (tensor 3 x"
refuses ds.json "--pipeline-model-parallel-size 8 --num-layers 8" "4 ranks cannot be divided into replicas of 8"
refuses ds.json "--tensor-model-parallel-size 0" "--tensor-model-parallel-size" "1"
refuses ds.json "--tensor-model-parallel-size 8" "4 attention heads are too few for so many ranks"
refuses ds.json "--pipeline-model-parallel-size 7" "4 layers, embedding and head are too few for 7 stages; each"
refuses ds.json "--pipeline-model-parallel-size 4 --num-layers 1" "4: 1 layer, embedding and head are too few for 4 stages"
refuses ds.json "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 9" "too few for 18 chunks of stages"
refuses ds.json "--context-parallel-size 2" "--context-parallel-size above 1 is not supported, see docs/FEATURES.md"
refuses ds.json "--expert-model-parallel-size 2" "--expert-model-parallel-size above 1 is not supported, see docs/FEATURES.md"
# two sources
with '"tensor_parallel": {"autotp_size": 2}'
refuses k.json "--tensor-model-parallel-size 4" \
    "k.json:2: tensor_parallel.autotp_size is 2, but --tensor-model-parallel-size is 4: give one of them"
with '"tensor_parallel": {"tp": {"tp_size": 2}}'
refuses k.json "--tensor-model-parallel-size 4" "k.json:2: tensor_parallel.tp.tp_size is 2, but"
with '"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}'
refuses k.json "" "tensor_parallel.tp.tp_size is 4, but tensor_parallel.autotp_size is 2"
with '"pipeline": {"stages": 2}'
refuses k.json "--pipeline-model-parallel-size 4" "k.json:2: pipeline.stages is 2, but --pipeline-model-parallel-size is 4"
with '"pipeline": {"stages": 3}'
refuses k.json "" "4 ranks cannot be divided into replicas of 3"
with '"data_parallel_size": 2'
refuses k.json "" "k.json:2: data_parallel_size is 2, but the mesh has 4 ranks along that axis"
with '"pipeline": {"partition": "uniform"}'
refuses k.json "--pipeline-model-parallel-size 2 --partition-method parameters" \
    "k.json:2: pipeline.partition is uniform, but --partition-method is parameters"
with '"tensor_parallel": {"tp_overlap_comm": true}'
refuses k.json "--no-async-tensor-model-parallel-allreduce" "k.json:2: tensor_parallel.tp_overlap_comm is true, but"
with '"pipeline": {"overlap_p2p": true}'
refuses k.json "--no-overlap-p2p-communication" "k.json:2: pipeline.overlap_p2p is true, but --no-overlap-p2p-communication is given"
with '"pipeline": {"activation_checkpoint_interval": 2}'
refuses k.json "--recompute-granularity full" "pipeline.activation_checkpoint_interval 2 and --recompute-granularity"

# ---- sequence parallel ----
refuses ds.json "--tensor-model-parallel-size 4 --sequence-parallel --seq-length 18" \
    "--sequence-parallel: --seq-length 18 cannot be shared evenly by 4 tensor-parallel ranks"
expect 0 $four ds.json --sequence-parallel
says "--sequence-parallel is off: it has no effect with one tensor-parallel rank" "step 3/3"
[ "$(grep -c "is off" <<<"$output")" = 1 ] || complain "each rank says it: $output"

# ---- stages ----
pp="--pipeline-model-parallel-size 2"
refuses ds.json "--num-layers-per-virtual-pipeline-stage 1" "without a pipeline: give --pipeline-model-parallel-size"
refuses ds.json "--decoder-first-pipeline-num-layers 1" "without a pipeline"
refuses ds.json "$pp --num-layers-per-virtual-pipeline-stage 3" "does not divide the 2 layers of a pipeline stage"
refuses ds.json "--pipeline-model-parallel-size 4 --num-layers 6 --num-layers-per-virtual-pipeline-stage 1" \
    "6 layers cannot be shared evenly by 4 pipeline stages"
refuses ds.json "$pp --num-layers-per-virtual-pipeline-stage 1 --num-virtual-stages-per-pipeline-rank 2" "give one of them"
refuses ds.json "$pp --num-layers-per-virtual-pipeline-stage 1 --decoder-last-pipeline-num-layers 1" \
    "--decoder-last-pipeline-num-layers cannot be combined"
refuses ds.json "$pp --pipeline-model-parallel-layout Ett|ttL --num-virtual-stages-per-pipeline-rank 2" "leave"
refuses ds.json "$pp --pipeline-model-parallel-layout Ett|ttL --partition-method uniform" "give one of them"
refuses ds.json "$pp --partition-method uniform --account-for-loss-in-pipeline-split" "works only with the partition method even"
refuses ds.json "$pp --pipeline-schedule 1f1b --num-virtual-stages-per-pipeline-rank 2" \
    "give --pipeline-schedule interleaved"
refuses ds.json "$pp --microbatch-group-size-per-virtual-pipeline-stage 2" "works only with the interleaved schedule"
refuses ds.json "--pipeline-model-parallel-size 4 --num-layers 8 --num-virtual-stages-per-pipeline-rank 2
    --microbatch-group-size-per-virtual-pipeline-stage 2" "is less than the 4 pipeline stages"

refuses ds.json "$pp --decoder-first-pipeline-num-layers 4" "none remains for the other 1 of 2 stages"
refuses ds.json "$pp --decoder-first-pipeline-num-layers 5" "do not divide among 1 stage of 1 chunk:"
refuses ds.json "$pp --partition-method type:attention" "types of this model are gpt_embedding, gpt_block, gpt_head"
expect 2 "$shoal" pretrain gpt $flags --deepspeed_config ds.json --tensor-model-parallel-size 2
says "1 rank cannot be divided into replicas of 2" "(shoal run --num_gpus N)"

# ---- a save that one rank cannot make ----
with '"exact_splits": {"tensor": 2}'
for rank in 0 2; do
    expect 1 env SHOAL_FAULT=ckpt.write@$rank $four k.json $pp --tensor-model-parallel-size 2 --save failed
    [ "$(grep -c "^shoal: " <<<"$output")" = 1 ] || complain "not one rank says it: $output"
    says "[shoal run] rank $rank (pid "
    [ ! -e failed/latest ] || complain "a failed save counts: $(ls -R failed)"
    rm -rf failed
done

# ---- report ----
expect 0 "$shoal" report --world 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping
says "8 ranks, tp 2, dp 2, pp 2; numbered tp-cp-ep-pp-dp"

# ---- rules of another family; smoothed labels; what a checkpoint says ----
with '"exact_splits": {"tensor": 2}, "tensor_parallel": {"preset_model": "bloom"}'
smooth="--label-smoothing 0.2 --deepspeed_config k.json"
final() { grep "on validation set" <<<"$output" | tail -1; }
expect 0 $shoal run --master_port 0 --num_gpus 2 $shoal pretrain gpt $flags $smooth --tensor-model-parallel-size 2 --save split
says "tensor_parallel.preset_model is \"bloom\", and no tensor of model \`gpt\` matches its rules: the model says itself"
[ "$(grep -c "matches its rules" <<<"$output")" = 1 ] || complain "said by more than one rank: $output"
loss=$(final)
expect 0 $shoal pretrain gpt $flags $smooth
[ "$(final)" = "$loss" ] || complain "one rank: $(final), two: $loss"
expect 0 $shoal pretrain gpt $flags --deepspeed_config k.json
[ "$(final)" != "$loss" ] || complain "smoothing changes nothing: $loss"
expect 0 $shoal report --load split
says "global_step3" "whole, exact_splits.tensor 2, latest"
refuses ds.json "--label-smoothing 1" "--label-smoothing is 1; give a probability in [0, 1)"
finish
