#!/usr/bin/env bash
# `shoal run --autotuning`: what is tried, what it leaves, what is trained with it, and what users do wrong.
# Usage: autotuning_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_FAULT RANK WORLD_SIZE MASTER_PORT MASTER_ADDR SHOAL_JOB_ID DEEPSPEED_ELASTICITY_CONFIG
cd "$folder" || exit 1
folder=$PWD
results=autotuning_results
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
config() { printf '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "seed": 3, %s}\n' "$1" >config.json; }
pretrain=("$shoal" pretrain gpt --deepspeed_config config.json --data-path text --num-layers 1 --hidden-size 32
    --num-attention-heads 4 --seq-length 16 --threads 1 --eval-iters 0 --train-iters 6 --save out --load out)
tune() { "$shoal" run --num_gpus 2 --master_port 0 --autotuning "$@"; }
short='"start_profile_step": 2, "end_profile_step": 3'
is() { # FILE JQ-LESS TEXT: the file has the text, blanks aside
    tr -d ' \n' <"$1" | grep -qF -- "$2" || complain "$1 has no $2: $(cat "$1")"
}
tried() { ls $results | grep '^z' | tr '\n' ' '; }

# ---- micro-batches of a batch that is given, of one stage ----
config '"train_batch_size": 8, "zero_optimization": {"stage": 1},
    "autotuning": {'"$short"', "tuner_early_stopping": 9, "num_tuning_micro_batch_sizes": 0}'
expect 0 tune tune "${pretrain[@]}"
says "experiments on 2 ranks, of 1 host" "autotuning: z_gas4_tmbspg1: " " samples/s" "autotuning: z_gas2_tmbspg2: " "the best is z_gas"
case $output in *tmbspg8*) complain "a micro-batch that the batch cannot be made of: $output" ;; esac
[ ! -e out ] || complain "an experiment saved a checkpoint"
best=$(awk '$1 == "global" {print $4}' $results/summary.txt)
for file in ds_config.json exp.json cmd.txt stdout.log stderr.log metrics.json; do
    [ -e "$results/$best/$file" ] || complain "no $file of $best"
done
[ -s "autotuning_exps/$best.json" ] || complain "no file of $best in autotuning_exps"
is $results/$best/metrics.json '"throughput":'
is $results/$best/metrics.json '"FLOPS_per_gpu":'
is $results/ds_config_optimal.json '"train_batch_size":8'
is $results/ds_config_optimal.json "\"train_micro_batch_size_per_gpu\":${best##*tmbspg}"
! grep -q autotuning $results/ds_config_optimal.json || complain "the result is an experiment: $(cat $results/ds_config_optimal.json)"
grep -q "^$shoal run --num_gpus 2 --master_port 0 $shoal pretrain gpt .*--save out.* --deepspeed_config $folder/$results/ds_config_optimal.json" \
    $results/cmd_optimal.txt || complain "the best command: $(cat $results/cmd_optimal.txt)"
# the fastest is the one that is named
for file in $results/z*/metrics.json; do
    awk -v name="$file" '/throughput/ {gsub(",", ""); print $2, name}' "$file"
done | sort -g | tail -n 1 | grep -q "/$best/" || complain "$best is not the fastest: $(cat $results/summary.txt)"
# what was measured is measured again only when that is asked for
config '"train_batch_size": 8, "zero_optimization": {"stage": 1},
    "autotuning": {'"$short"', "tuner_early_stopping": 9, "num_tuning_micro_batch_sizes": 0, "overwrite": false}'
touch mark
expect 0 tune tune "${pretrain[@]}"
[ -z "$(find $results -name stdout.log -newer mark)" ] || complain "measured again: $(find $results -name stdout.log -newer mark)"

# ---- run: trains with the best ----
rm -rf $results autotuning_exps
config '"train_micro_batch_size_per_gpu": [2, 4], "train_batch_size": 16, "zero_optimization": {"stage": [0, 2]},
    "autotuning": {'"$short"', "results_dir": "found", "exps_dir": "tried"}'
expect 0 tune run "${pretrain[@]}"
says "z0_gas4_tmbspg2" "z0_gas2_tmbspg4" "z2_gas4_tmbspg2" "z2_gas2_tmbspg4" "step 6/6"
[ -s out/latest ] || complain "the training saved nothing: $output"
[ -s found/summary.txt ] && [ -d tried ] && [ ! -e $results ] || complain "not in the folders that were named: $(ls)"
rm -rf out found tried

# ---- stages, memory, early end, knobs ----
# four stages where there are ranks to divide among; a trial that fails is told of and left
config '"train_batch_size": 4, "zero_optimization": {"reduce_bucket_size": 5e8},
    "autotuning": {'"$short"', "num_tuning_micro_batch_sizes": 0, "max_train_micro_batch_size_per_gpu": 1}'
SHOAL_FAULT=comm.post:3@1=exit expect 1 tune tune "${pretrain[@]}"
says "z0_gas2_tmbspg1 does not run: " "none of 4 experiments reached step 3; the first one failed: " "z0_gas2_tmbspg1/stderr.log"
rm -rf $results
expect 0 tune tune "${pretrain[@]}"
[ "$(tried)" = "z0_gas2_tmbspg1 z1_gas2_tmbspg1 z2_gas2_tmbspg1 z3_gas2_tmbspg1 " ] || complain "stages: $(tried)"
# a size that its own plan refuses
rm -rf $results
config '"train_batch_size": 64, "train_micro_batch_size_per_gpu": [1, 32], "zero_optimization": {"stage": 0}, "autotuning": {'"$short"'}'
SHOAL_CPU_BYTES=2097152 expect 0 tune tune "${pretrain[@]}"
says "z_gas32_tmbspg1: " "z_gas1_tmbspg32 does not run: " "the plan does not fit: this rank needs" "the best is z_gas32_tmbspg1"
for tuner in gridsearch random model_based; do
    rm -rf $results
    config '"train_batch_size": 4, "zero_optimization": {"stage": 2, "overlap_comm": false, "allgather_bucket_size": [1000, 5e8]},
        "autotuning": {'"$short"', "fast": false, "metric": "latency", "tuner_type": "'$tuner'", "tuner_num_trials": 6,
        "num_tuning_micro_batch_sizes": 0, "max_train_micro_batch_size_per_gpu": 1}'
    expect 0 tune tune "${pretrain[@]}"
    says " ms a step"
    # 3 sizes of one bucket, 2 of the other, reduce_scatter: 12, of which 6; overlap_comm is the user's
    [ "$(ls $results | grep -c '^z_gas2_tmbspg1_rbs')" -le 6 ] && [ "$(ls $results | grep -c '^z_gas2_tmbspg1_rbs')" -ge 5 ] ||
        complain "$tuner tried $(tried)"
    [ $tuner != gridsearch ] || [ -d $results/z_gas2_tmbspg1_rbs5.0e+07_abs1000_rsT ] || complain "the first of the grid: $(tried)"
    ! ls $results | grep -q _oc || complain "a value of the user's was tried: $(tried)"
done
# a batch that nobody gave grows
rm -rf $results
config '"autotuning": {'"$short"', "max_train_batch_size": 8, "num_tuning_micro_batch_sizes": 0}, "zero_optimization": {"stage": 0}'
expect 0 tune tune "${pretrain[@]}"
is $results/z_gas4_tmbspg1/ds_config.json '"train_batch_size":8'

# settings of a disk that the configuration offloads to (gigabytes are written)
if [ "${SHOAL_TEST_FULL:-0}" = 1 ]; then
    rm -rf $results
    mkdir disk
    config '"train_batch_size": 4, "autotuning": {'"$short"', "fast": false, "tuner_num_trials": 1, "num_tuning_micro_batch_sizes": 0,
        "max_train_micro_batch_size_per_gpu": 1}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8,
        "overlap_comm": true, "reduce_scatter": true, "offload_optimizer": {"device": "nvme", "nvme_path": "'"$folder"'/disk"}}'
    expect 0 tune tune "${pretrain[@]}"
    says 'autotuning: {"aio": {"block_size": '
    is $results/ds_config_optimal.json '"aio":{"block_size":'
    is $results/z_gas2_tmbspg1/ds_config.json '"aio":{"block_size":'
fi

# ---- programs of other kinds ----
# flags that say what the configuration says; it is ended when it goes on after it was measured
cat >program.sh <<'SCRIPT'
#!/bin/sh
echo "$*" >>words
[ "$RANK" = 0 ] || exit 0
while [ $# -gt 1 ]; do [ "$1" = --deepspeed_config ] && config=$2; shift; done
echo '{"latency": 5.0, "throughput": 7.0}' >"$(sed -n 's/.*"metric_path": "\(.*\)".*/\1/p' "$config")"
SCRIPT
chmod +x program.sh
rm -rf $results
config '"train_batch_size": 4, "zero_optimization": {"stage": 0}, "autotuning": {"max_train_micro_batch_size_per_gpu": 1,
    "num_tuning_micro_batch_sizes": 0, "arg_mappings": {"train_micro_batch_size_per_gpu": "--per_device", "zero_optimization.stage": "--zero"}}'
expect 0 tune tune --no_local_rank ./program.sh --per_device 9 --deepspeed_config=config.json x
says "z_gas2_tmbspg1: 7 samples/s"
grep -qx "x --deepspeed_config $folder/$results/z_gas2_tmbspg1/ds_config.json --zero 0 --per_device 1" words ||
    grep -qx "x --deepspeed_config $folder/$results/z_gas2_tmbspg1/ds_config.json --per_device 1 --zero 0" words || complain "its words: $(cat words)"

# the first experiment stays the best one when those that follow are slower
cat >slower.sh <<'SCRIPT'
#!/bin/sh
[ "$RANK" = 0 ] || exit 0
case $2 in *_tmbspg1/*) speed=7 ;; *) speed=5 ;; esac
echo '{"latency": 5.0, "throughput": '$speed'}' >"$(sed -n 's/.*"metric_path": "\(.*\)".*/\1/p' "$2")"
SCRIPT
chmod +x slower.sh
rm -rf $results
config '"train_batch_size": 8, "train_micro_batch_size_per_gpu": [1, 2, 4], "zero_optimization": {"stage": 0}'
expect 0 tune tune --no_local_rank ./slower.sh --deepspeed_config config.json
says "z_gas2_tmbspg2: 5 samples/s" "the best is z_gas4_tmbspg1"
is $results/ds_config_optimal.json '"train_micro_batch_size_per_gpu":1,'
grep -q '^global  *3  *7  z_gas4_tmbspg1$' $results/summary.txt || complain "the summary: $(cat $results/summary.txt)"
# a result that cannot be written ends the search
for file in $results/z_gas4_tmbspg1/{ds_config.json,exp.json,cmd.txt} autotuning_exps/z_gas4_tmbspg1.json \
    $results/{ds_config_optimal.json,summary.txt,cmd_optimal.txt}; do
    rm -rf $results autotuning_exps
    mkdir -p $file
    expect 1 tune tune --no_local_rank ./slower.sh --deepspeed_config config.json
    says "$folder/$file: cannot write: Is a directory"
done
rm -rf $results autotuning_exps

# ---- a signal ----
"$shoal" run --num_gpus 2 --autotuning run sh -c 'echo $$ >pid.$RANK; sleep 60' sh --deepspeed_config config.json >out.log 2>&1 &
job=$!
for tries in $(seq 1200); do [ -s pid.0 ] && [ -s pid.1 ] && break; sleep 0.05; done
kill -TERM $job
code=0
wait $job || code=$?
[ $code -eq 143 ] || complain "SIGTERM ended the search with $code: $(cat out.log)"
for tries in $(seq 1200); do [ -d "/proc/$(cat pid.0)" ] || [ -d "/proc/$(cat pid.1)" ] || break; sleep 0.05; done
[ ! -d "/proc/$(cat pid.0)" ] && [ ! -d "/proc/$(cat pid.1)" ] || complain "SIGTERM left ranks"

# ---- mistakes ----
expect 2 tune slowly true
says "--autotuning slowly: give tune, to find the fastest configuration, or run, to train with it, too"
expect 2 tune tune true
says "give it --deepspeed_config FILE"
expect 2 tune tune
says "no program to start"
expect 2 tune tune --elastic_training "${pretrain[@]}"
says "--autotuning starts many jobs one after the other by itself: leave --elastic_training out"
config '"train_batch_size": 7'
expect 2 tune tune "${pretrain[@]}"
says "a batch of 7 on 2 data-parallel ranks cannot be made of micro-batches of 1 to 1024"
config '"autotuning": {"start_profile_step": 6}'
expect 2 tune tune "${pretrain[@]}"
says "config.json:1: autotuning: end_profile_step 5 is before start_profile_step 6"
config '"autotuning": {"tuner": "x"}'
expect 2 tune tune "${pretrain[@]}"
says "autotuning.tuner"
config '"elasticity": {"enabled": true}'
expect 2 tune tune "${pretrain[@]}"
says "the section elasticity does, too: disable it to tune"
config '"zero_optimization": {"stage": [1, 4]}'
expect 2 tune tune "${pretrain[@]}"
says "the stages to try are numbers from 0 to 3"
# a mistake in the command itself is one of every experiment
config '"train_batch_size": 4, "zero_optimization": {"stage": 0}'
expect 2 tune tune "${pretrain[@]}" --num-layrs 2
says "--num-layrs" "none of "
expect 2 "$shoal" run --num_gpus 3 --autotuning tune "${pretrain[@]}" --tensor-model-parallel-size 2
says "3 ranks cannot hold models of 2 ranks each"
finish
