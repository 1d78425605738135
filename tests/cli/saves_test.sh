#!/usr/bin/env bash
# Saving beside the training, by a signal, and not for ever; loading parts; `shoal checkpoint`.  Usage: saves_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT
cd "$folder" || exit 1
for i in $(seq 100); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "reduction": "exact",
 "steps_per_print": 1000000, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
gpt="--hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text --tokenizer-type char --eval-iters 0"
train="$shoal pretrain gpt --num-layers 1 $gpt --deepspeed_config ds.json"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
holds() { # DIR NAMES: exactly these
    [ "$(ls "$1" | tr '\n' ' ')" = "$2 " ] || complain "$1 holds $(ls "$1" | tr '\n' ' '), not $2"
}

# ---- beside the training: the same bytes ----
expect 0 $(ranks 2) $train --train-iters 6 --save-interval 2 --save plain
says "saved step 2 to plain" "saved step 6 to plain"
expect 0 $(ranks 2) $train --train-iters 6 --save-interval 2 --save beside --async-save
says "saved step 2 to beside in " "saved step 6 to beside in " "; stall " " % of a step"
for tag in global_step2 global_step4 global_step6; do
    diff -r plain/$tag beside/$tag >/dev/null || complain "$tag: another than that of a save that was waited for"
done
cmp plain/latest beside/latest || complain "latest differs"
# DeepSpeed's key, and both at once
sed '$ s/}$/, "checkpoint": {"writer": {"decoupled": true}, "keep_last": 1}}/' ds.json >beside.json
expect 0 $train --deepspeed_config beside.json --train-iters 6 --save-interval 2 --save key
says "saved step 6 to key in "
holds key "global_step6 latest"
cmp plain/global_step6/manifest.json key/global_step6/manifest.json || complain "one rank saves other bytes than two"
expect 2 $train --deepspeed_config beside.json --train-iters 6 --save key --keep-last 3
says "--keep-last is 3 but beside.json has checkpoint.keep_last = 1"
expect 2 $train --train-iters 6 --async-save
says "--async-save without --save"
# a save that fails ends the run as one that is waited for does
code=0
SHOAL_FAULT=ckpt.write@1 $(ranks 2) $train --train-iters 100000 --save-interval 3 --save failed --async-save >out 2>&1 || code=$?
[ $code = 1 ] || complain "a failing save beside the training ended with $code: $(cat out)"
output=$(cat out)
says "the background save of step 3 failed: " "cannot write"
[ ! -e failed/latest ] || complain "latest exists"

# ---- not for ever ----
expect 0 $train --train-iters 9 --save-interval 1 --save kept --keep-last 2 --save-retain-interval 4
says "removed kept/global_step1, which newer ones replace"
holds kept "global_step4 global_step8 global_step9 latest"
expect 2 $train --train-iters 9 --save-interval 2 --save kept --save-retain-interval 3
says "is not a multiple of --save-interval 2"

# ---- at a signal ----
trap_job() { # COMMAND...: in the background, until it has shown a step
    rm -f signal.log
    "$@" >signal.log 2>&1 </dev/null &
    job=$!
    for _ in $(seq 1200); do
        grep -qs "^step 1/" signal.log && break
        sleep 0.05
    done
}
wait_for() { # TEXT
    for _ in $(seq 1200); do
        grep -q "$1" signal.log && return
        sleep 0.05
    done
    complain "\"$1\" did not come: $(cat signal.log)"
}
trap_job $(ranks 2) $train --train-iters 10000000 --save signal --exit-signal-handler --log-interval 1000000
kill -USR1 $job
wait_for "saved step"
kill -TERM $job
code=0
wait $job || code=$?
[ $code = 0 ] || [ $code = 143 ] || complain "after SIGUSR1 and SIGTERM: $code $(cat signal.log)"
expect 0 "$shoal" checkpoint verify signal
says "whole"
trap_job $train --train-iters 10000000 --log-interval 1000000
kill -USR1 $job
wait_for "SIGUSR1 asks for a checkpoint, but there is no --save"
kill -TERM $job
wait $job
printf '#!/bin/sh\ntouch sleeping\nuntil [ -e answered ]; do sleep 0.05; done\n' >sleeper
chmod +x sleeper
$(ranks 1) ./sleeper >signal.log 2>&1 &
job=$!
for _ in $(seq 1200); do
    [ ! -e sleeping ] || break
    sleep 0.05
done
kill -USR1 $job
wait_for "no rank has a handler for it"
touch answered
code=0
wait $job || code=$?
[ $code = 0 ] || complain "SIGUSR1 ended a job that does not take it: $code"

# ---- parts ----
expect 0 $train --train-iters 8 --load plain --no-load-optim --save part
says "saved step 8"
! cmp -s kept/global_step8/manifest.json part/global_step8/manifest.json || complain "the optimizer's states were taken"
expect 0 $train --train-iters 8 --load plain --save full
cmp kept/global_step8/manifest.json full/global_step8/manifest.json || complain "continued otherwise"
two="$shoal pretrain gpt --num-layers 2 $gpt --deepspeed_config ds.json"
expect 2 $two --train-iters 7 --load plain
says "--num-layers 2: the checkpoint plain/global_step6 has 1"
expect 2 $two --train-iters 7 --load plain --finetune
says "missing \`transformer.h.1.ln_1.weight\`" "--dist-ckpt-strictness log_all"
expect 0 $two --train-iters 7 --load plain --dist-ckpt-strictness log_all
says "missing \`transformer.h.1.ln_1.weight\`" "what is missing keeps its values" \
    "--dist-ckpt-strictness log_all changes the model of the checkpoint plain/global_step6: --num-layers 2 (not 1)"
expect 0 $train --train-iters 1 --no-load-optim --dist-ckpt-strictness raise_all
says "--no-load-optim has no effect without --load"
expect 0 $train --train-iters 1 --dist-ckpt-strictness log_all
says "--dist-ckpt-strictness has no effect without --load"
expect 0 $train --train-iters 7 --load plain --no-load-rng
says "no-load-rng"

# ---- shoal checkpoint ----
expect 0 "$shoal" checkpoint verify kept
says "global_step4: whole: " "global_step9: whole: "
expect 0 "$shoal" checkpoint verify kept --load-tag global_step8 --threads 3
case $output in *global_step9*) complain "more than the tag: $output" ;; esac
cp -r kept hurt
printf X | dd of=hurt/global_step8/exp_avg-00001-of-00001.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
rm hurt/global_step4/model-00001-of-00001.safetensors
echo x >>hurt/global_step9/manifest.json
expect 1 "$shoal" checkpoint verify hurt
says "hurt/global_step8/exp_avg-00001-of-00001.safetensors, bytes 0 to" "the manifest says" \
    "model-00001-of-00001.safetensors is missing" "global_step9: damaged" "manifest.json"
rm -r hurt && cp -r kept hurt
echo >>hurt/global_step9/config.json
rm hurt/global_step8/config.json
expect 1 "$shoal" checkpoint verify hurt
says "hurt/global_step9/config.json: hash " "hurt/global_step8/config.json: no such file" "global_step4: whole"
expect 0 "$shoal" checkpoint list kept
says "global_step9" "whole, latest"
expect 0 "$shoal" checkpoint show kept
says "kept/global_step9: step 9" "optimizer adamw" "num-layers 1" "kind        exp_avg_sq" "options     gradient_clipping 1, " "optimizer.no_decay none"
expect 0 "$shoal" checkpoint show --tensors kept --load-tag global_step4
says "step 4" "tensor      transformer.wte.weight [" "tied        lm_head.weight is transformer.wte.weight"
expect 0 "$shoal" checkpoint prune --dry-run kept
says "global_step8                  would be removed" "global_step9                  kept"
holds kept "global_step4 global_step8 global_step9 latest"
expect 0 "$shoal" checkpoint prune kept --keep-last 1 --keep-every 4
says "global_step8                  kept"
expect 0 "$shoal" checkpoint prune kept
says "global_step4                  removed"
holds kept "global_step9 latest"
expect 2 "$shoal" checkpoint
says "usage: shoal checkpoint"
expect 0 "$shoal" checkpoint --help
expect 2 "$shoal" checkpoint prnue kept
says "nearest is \"prune\""
expect 2 "$shoal" checkpoint verify
says "name one folder"
expect 2 "$shoal" checkpoint verify nowhere
says "nowhere"
expect 2 "$shoal" checkpoint show kept --load-tag none
says "none"
expect 2 "$shoal" checkpoint prune kept --keep-lst 2
says "--keep-last"
mkdir empty
expect 2 "$shoal" checkpoint verify empty
says "there is no checkpoint in empty"
finish
