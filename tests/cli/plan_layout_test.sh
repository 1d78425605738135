#!/usr/bin/env bash
# shoal plan: pipelines as tables and pictures, every rank of a mesh, the search for a layout.
# Usage: plan_layout_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
cd "$folder" || exit 1

cat >gpt.json <<'CONFIG'
{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CONFIG
gpt="$shoal plan gpt --deepspeed_config gpt.json --num-layers 14 --hidden-size 64 --num-attention-heads 4 --seq-length 32
     --vocab-size 100"

# ---- pipelines ----
# SCHEDULE STAGES CHUNKS BUBBLE_OF_EQUAL_STAGES: (p-1)/m, (p-1)/(v m), (p-1)/(3 m); m is 16
while read -r schedule stages chunks bubble; do
    expect 0 $gpt --pipeline-model-parallel-size "$stages" --num-virtual-stages-per-pipeline-rank "$chunks" \
        --pipeline-schedule "$schedule" --memory-limit 1GiB --draw "$schedule.svg"
    says "pipeline $schedule: $stages stages" "16 micro-batches" "of equal stages $bubble %" "drawn: $schedule.svg" \
        "tp 1, pp $stages, dp 1" "the worst"
    grep -q "</svg>" "$schedule.svg" || complain "$schedule.svg is no picture"
    [ "$(grep -c "stroke=" "$schedule.svg")" -ge $((2 * 16 * stages)) ] || complain "$schedule.svg has too few boxes"
done <<'CASES'
gpipe 4 1 18.75
1f1b 4 1 18.75
1f1b 2 1 6.25
zb-h1 4 1 6.25
interleaved 4 2 9.38
interleaved 4 4 4.69
CASES
# in flight: p - r
expect 0 $gpt --pipeline-model-parallel-size 4 --memory-limit 1GiB
for stage in 0 1 2 3; do
    grep -qE "^ +$stage +[0-9]+ +.* $((4 - stage)) +[0-9.]+ [KMG]?i?B$" <<<"$output" ||
        complain "stage $stage has not $((4 - stage)) in flight: $output"
done
expect 0 $gpt --pipeline-model-parallel-size 4 --memory-limit 1GiB --json
says '"pipeline_stages":4' '"bubble":' '"equal_bubble":0.1875' '"stages":[{'
# with rates the bubble is of seconds
expect 0 $gpt --pipeline-model-parallel-size 4 --memory-limit 1GiB --peak-tflops 0.1 --network-bandwidth 1
says " s); of equal stages 18.75 %"

# ---- mistakes ----
expect 2 $gpt --pipeline-model-parallel-size 4 --draw schedule.png
says "--draw \"schedule.png\"" ".svg"
expect 1 $gpt --pipeline-model-parallel-size 4 --memory-limit 1GiB --draw nowhere/schedule.svg
says "shoal plan gpt: --draw cannot write \"nowhere/schedule.svg\": No such file or directory"
[ "$(grep -c shoal <<<"$output")" = 1 ] || complain "more than a sentence: $output"
expect 2 $gpt --pipeline-model-parallel-size 4 --draw schedule.svg --search
says "--draw and --search exclude each other"
expect 2 $gpt --draw schedule.svg
says "--pipeline-model-parallel-size"
expect 2 $gpt --pipeline-model-parallel-size 4 --world-size 4,8 --draw schedule.svg
says "--draw takes one number of ranks, not 2"
expect 2 $gpt --pipeline-model-parallel-size 4 --pipeline-schedule 1f1f
says "nearest is 1f1b"
expect 2 $gpt --pipeline-model-parallel-size 3 --world-size 4
says "4 ranks"
expect 2 $gpt --search --cluster a10
says "nearest is a100"
expect 2 $gpt --search --world-size 100000 --ranks-per-node 1000
says "--cluster"
[ "$(grep -c shoal <<<"$output")" = 1 ] || complain "more than a sentence: $output"

# ---- search ----
cat >large.json <<'CONFIG'
{"train_batch_size": 1536, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 1, "overlap_comm": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CONFIG
large="$shoal plan gpt --deepspeed_config large.json --num-layers 96 --hidden-size 12288 --num-attention-heads 96
       --seq-length 2048 --vocab-size 50257 --world-size 1024 --cluster a100"
expect 0 $large --search --search-results 3
says "rates of a rank of --cluster a100" "tokens/s" "bubble%" "fastest: --"
[ "$(grep -cE '^ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+ +[0-3] ' <<<"$output")" = 3 ] || complain "not three layouts: $output"
sed 's/1536/16384/' large.json >larger.json
expect 0 $shoal plan gpt --deepspeed_config larger.json --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --seq-length 2048 --vocab-size 50257 --world-size 16384 --cluster h100 --search --search-results 1
says "fastest: --"
expect 0 $large --search --search-results 2 --json
says '"layouts":[{' '"fits":true' '"tokens_per_second":' '"flags":"--'
# sizes that are given stay
expect 0 $large --search --pipeline-model-parallel-size 16 --search-results 4 --json
[ "$(grep -o '"pipeline":16' <<<"$output" | wc -l)" = 4 ] || complain "other than 16 stages: $output"
expect 3 $large --search --memory-limit 1GiB
says "no layout fits; the smallest is"

# ---- networks ----
cat >cluster.json <<'CLUSTER'
{
  "base": "a100",
  "nodes": 2048, "ranks_per_node": 8,
  "links_per_node": 4, "link_bandwidth": 25, "latency": 8,
  "node_latency": 3
}
CLUSTER
fixed="$shoal plan gpt --deepspeed_config large.json --num-layers 96 --hidden-size 12288 --num-attention-heads 96
       --seq-length 2048 --vocab-size 50257 --memory-limit 200GiB --tensor-model-parallel-size 8 --sequence-parallel
       --pipeline-model-parallel-size 8"
step() { sed -n 's/.* predicted step \([0-9.e+]*\) s:.*/\1/p' <<<"$output" | head -1; }
slower() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > a) }' || complain "$3: $1 s, then $2 s"; }
# all ranks of the nodes: 16384
expect 0 $fixed --cluster cluster.json
says "16384 ranks: predicted step" "TFLOP/s of a rank"
quick=$(step)
expect 0 $fixed --cluster cluster.json --link-bandwidth 0.5
slower "$quick" "$(step)" "slower links"
expect 0 $fixed --cluster cluster.json --latency 5000
slower "$quick" "$(step)" "later messages"
expect 0 $fixed --cluster cluster.json --links-per-node 1 --link-bandwidth 4
few=$(step)
slower "$quick" "$few" "fewer links"
expect 0 $fixed --cluster cluster.json --latency 500
late=$(step)
expect 0 $fixed --cluster cluster.json --latency 500 --collective-algorithm ring
slower "$late" "$(step)" "rings of 256 ranks"
expect 0 $fixed --nodes 8 --cluster a100
says "64 ranks: predicted step"
expect 0 $fixed --cluster cluster.json --nodes 16 --json
says '"predicted":{"step_s":' '"exposed_s":'
expect 0 $fixed --cluster cluster.json --search --search-results 1 --world-size 128 --micro-batch-size 1
says "rates of a rank of cluster.json" "4 links of 25 GB/s from node to node"
# mistakes
expect 2 $fixed --cluster clusters.json
says "clusters.json"
expect 2 $fixed --nodes 4 --peak-tflops 100
says "--nodes 4 needs the ranks of each node"
expect 2 $fixed --nodes 4 --ranks-per-node 8 --world-size 64,128 --peak-tflops 100
says "--world-size 64 is more than the 32 ranks of --nodes 4, 8 on each"
expect 2 $fixed --world-size 64 --peak-tflops 100 --links-per-node 4
says "--links-per-node 4 needs the GB/s of a link: give --link-bandwidth"
expect 2 $fixed --world-size 64 --latency 5
says "--latency alone cannot predict the time of a step: give also --peak-tflops and bandwidths"
expect 2 $fixed --world-size 64 --peak-tflops 1e8
says "--peak-tflops: must be from 1e-06 to 1000000, got"
expect 2 $fixed --cluster a100 --collective-algorithm rings
says "--collective-algorithm: must be \"best\", \"ring\""
sed 's/links_per_node/links_per_nodes/' cluster.json >wrong.json
expect 2 $fixed --cluster wrong.json
says "wrong.json:4:" "links_per_nodes" "links_per_node"
sed 's/"a100"/"a10"/' cluster.json >wrong.json
expect 2 $fixed --cluster wrong.json
says "wrong.json:2:" "nearest is a100"
sed 's/25/-25/' cluster.json >wrong.json
expect 2 $fixed --cluster wrong.json
says "wrong.json:4:" "link_bandwidth"
[ "$(grep -c shoal <<<"$output")" = 1 ] || complain "more than a sentence: $output"

# rates of this machine, which are measured
expect 0 $gpt --search --world-size 1 --memory-limit 4GiB --search-results 2
says "measured on this machine" "fastest: --micro-batch-size"
finish
