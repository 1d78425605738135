#!/usr/bin/env bash
# What becomes of checkpoints when folders cannot be read, disks are full, limits are reached, jobs meet or die:
# a sentence each, nothing lost, nothing replaced unasked.  Usage: checkpoint_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT
cd "$folder" || exit 1
chmod 755 "$folder"

for i in $(seq 100); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "reduction": "exact",
 "steps_per_print": 1000000, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
shape="--num-layers 1 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1"
gpt="$shape --data-path text --tokenizer-type char --eval-iters 0 --deepspeed_config ds.json"
train="$shoal pretrain gpt $gpt"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
latest() { [ "$(cat "$1/latest")" = "$2" ] || complain "$1/latest is $(cat "$1/latest"), not $2"; }
silent() { case $output in *"$1"*) complain "says $1: $output" ;; esac; }
whole() { # DIR TAG: it loads, so every byte verifies
    expect 0 $train --train-iters 0 --load "$1" --load-tag "$2"
}

# ---- what cannot be read is not absent ----
expect 0 $train --train-iters 4 --save-interval 2 --save a
for wrong in loop folder empty nonsense gone number nul lines letters; do
    rm -rf b && cp -r a b && rm b/latest
    case $wrong in
    loop) ln -s latest b/latest ;;
    folder) mkdir b/latest ;;
    empty) : >b/latest ;;
    nonsense) echo ../a >b/latest ;;
    gone) echo global_step9 >b/latest ;;
    number) echo 2 >b/latest ;;
    nul) printf 'global_step2\0x\n' >b/latest ;;
    lines) printf 'global_step2\nglobal_step4\n' >b/latest ;;
    letters) printf 'a\nb\n' >b/latest ;;
    esac
    for n in 1 2; do
        code=0
        output=$($(ranks $n) $train --train-iters 6 --load b --save b --save-interval 1 2>&1) || code=$?
        [ "$code" -eq 2 ] || complain "$wrong: ended with $code: $output"
        says "b/latest"
        case $wrong in lines | letters) says "has more than one line" ;; nul) says "has a NUL byte" ;; esac
        silent "step 1/"
        [ "$(grep -c "^shoal:" <<<"$output")" = 1 ] || complain "$wrong: not one sentence: $output"
    done
    [ "$(ls b)" = "$(ls a)" ] || complain "$wrong: changed b: $(ls b)"
    for program in "plan --deepspeed_config ds.json --world-size 1 --load b" "generate --load b" "convert b c" "diff a b" \
        "checkpoint show b" "checkpoint prune b --dry-run"; do
        expect 2 "$shoal" $program
        says "b/latest"
    done
done
for wrong in "" ../a; do
    echo "$wrong" >b/latest
    expect 0 "$shoal" checkpoint list b
    says "latest says \"$wrong\", which names no checkpoint"
done
rm -rf b && cp -r a b && echo '{}' >b/global_step4/manifest.json
expect 1 $train --train-iters 6 --load b --save b
says "b/global_step4/manifest.json" "can be read is global_step2 (step 2)"
expect 0 $train --train-iters 6 --load b --load-tag global_step2 --save c
if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --clear-groups true 2>/dev/null; then
    nobody="env XDG_CACHE_HOME=$folder/cache setpriv --reuid 65534 --regid 65534 --clear-groups"
    mkdir -m 777 cache
    rm -rf b && cp -r a b && chmod 700 b
    expect 2 $nobody $train --train-iters 2 --load b
    says "b: cannot read the folder: Permission denied"
    chmod 777 b && chmod 600 b/latest
    expect 2 $nobody $train --train-iters 2 --load b --save b
    says "b/latest" "Permission denied"
    latest b global_step4
    rm -f b/latest && chmod 700 b/global_step4
    expect 2 $nobody $train --train-iters 2 --load b --save b
    says "b/global_step4/manifest.json" "Permission denied"
    [ ! -e b/latest ] || complain "began anew beside a checkpoint of another user"
    chmod 500 b
    expect 2 $nobody $train --train-iters 2 --save b/new
    says "--save b/new" "Permission denied"
    silent "step 1/"
fi

# ---- later steps are not replaced unasked ----
for flags in "--save a" "--load a --finetune --save a" "--load a --ckpt-step 2 --save a"; do
    expect 2 $train --train-iters 6 $flags
    says "--save a" "holds global_step4 of step 4, its latest" "--override-existing-checkpoint"
    silent "step 1/"
done
latest a global_step4
rm -rf b && cp -r a b
expect 0 $train --train-iters 3 --load b --ckpt-step 2 --save b --override-existing-checkpoint
says "b/latest goes back from global_step4 (step 4) to global_step3 (step 3)"
latest b global_step3
expect 0 $train --train-iters 4 --load b --finetune --save fine
expect 2 $train --train-iters 1 --override-existing-checkpoint
says "--override-existing-checkpoint without --save"
# a crash between the rename and latest: an older one is continued, the newer one is made again
rm -rf b && cp -r a b && echo global_step2 >b/latest
expect 0 $train --train-iters 4 --load b --save b --save-interval 1
latest b global_step4
cmp a/global_step4/manifest.json b/global_step4/manifest.json || complain "made again, it differs"

# ---- initial weights ----
expect 0 $train --train-iters 0 --save zero
says "saved step 0 to zero"
expect 0 $train --train-iters 4 --load zero --save zero
cmp a/global_step4/manifest.json zero/global_step4/manifest.json || complain "from step 0 it differs"
expect 0 $train --train-iters 4 --load zero --ckpt-step 0 --save zero4
cmp a/global_step4/manifest.json zero4/global_step4/manifest.json || complain "--ckpt-step 0 differs"
expect 0 $train --train-iters 4 --load zero4 --save copy
cmp a/global_step4/manifest.json copy/global_step4/manifest.json || complain "a copy differs"

# ---- what a save needs is planned ----
expect 0 "$shoal" plan gpt $gpt --save a --json
planned=$(sed 's/.*"checkpoint_bytes": *\([0-9]*\).*/\1/' <<<"$output")
largest=$(stat -c %s a/global_step4/*.safetensors | sort -n | tail -1)
# two buffers of whole pages, and a page to begin on one
[ "$planned" = $((4096 + 2 * ((largest + 4095) / 4096 * 4096))) ] ||
    complain "planned $planned bytes for saves, the largest file has $largest"
expect 0 "$shoal" plan gpt $gpt --json
says '"checkpoint_bytes":0'

# ---- no room: before the first step, or with the older one whole ----
(ulimit -f 8 && expect 2 $train --train-iters 2 --save small && says "--save small" "(ulimit -f): raise that limit" &&
    silent "step 1/" && exit $failures) || complain "ulimit -f"
if unshare -m mount -t tmpfs -o size=64k tmpfs /mnt 2>/dev/null; then
    mkdir -p disk
    expect 2 unshare -m bash -c "mount -t tmpfs -o size=64k tmpfs disk && $train --train-iters 2 --save disk"
    says "--save disk" "a checkpoint needs" "make room or save elsewhere"
    silent "step 1/"
    expect 1 unshare -m bash -c "mount -t tmpfs -o size=64k tmpfs disk &&
        $train --train-iters 2 --save disk --ignore-plan; code=\$?; ls -A disk; exit \$code"
    says "the disk is full"
    silent ".partial/
"
    # room for two of three
    bytes=$(du -sb a/global_step4 | cut -f1)
    expect 1 unshare -m bash -c "mount -t tmpfs -o size=$((bytes * 5 / 2)) tmpfs disk &&
        $train --train-iters 3 --save disk --save-interval 1; code=\$?; $shoal report --load disk; exit \$code"
    says "the disk is full" "global_step2" "whole, latest"
    silent "global_step3 "
    expect 2 unshare -m bash -c "mount -t tmpfs -o ro tmpfs disk && $train --train-iters 2 --save disk"
    says "--save disk" "Read-only file system"
fi

# ---- jobs that meet, and die ----
# One stops in its save; another waits for it, much longer than its own timeout, and goes on when it dies.
rm -rf b
SHOAL_FAULT=ckpt.manifest=stop $train --train-iters 1 --save b >out 2>&1 </dev/null &
job=$!
for _ in $(seq 1200); do [ -s b/.saving ] && break; sleep 0.05; done
DEEPSPEED_TIMEOUT=0.02 $(ranks 2) $train --train-iters 2 --save b >waits 2>&1 </dev/null &
waiter=$!
for _ in $(seq 1200); do grep -q "waiting for" waits && break; sleep 0.05; done
sleep 2.5 # twice DEEPSPEED_TIMEOUT, in minutes
expect 0 "$shoal" report --load b
says "global_step1.partial" "of a save in progress"
kill -9 "$job"
wait "$job" 2>/dev/null
code=0
wait "$waiter" || code=$?
output=$(cat waits)
[ "$code" = 0 ] || complain "the waiting job ended with $code: $output"
says "waiting for job" "(pid $job, host $(uname -n)), which saves into b" "saved step 2"
[ "$(grep -c "waiting for" waits)" = 1 ] || complain "said more than once: $output"
says "removed b/global_step1.partial, a leftover of a failed save"
[ "$(ls -A b | tr '\n' ' ')" = "global_step2 latest " ] || complain "left in b: $(ls -A b)"
whole b global_step2
# Killed in a save: the older one is whole, the list says what is left, and the next run clears it
for point in ckpt.write:1 ckpt.manifest ckpt.rename ckpt.rename:1; do
    rm -rf b && cp -r a b
    code=0
    SHOAL_FAULT=$point=kill $train --train-iters 5 --load b --save b >out 2>&1 </dev/null || code=$?
    [ "$code" = 137 ] || complain "$point: not killed: $code $(cat out)"
    whole b global_step4
    expect 0 "$shoal" report --load b
    says "global_step4" "whole, latest"
    [ "$point" = ckpt.rename:1 ] || says "global_step5.partial" "left by a failed save"
    expect 0 $train --train-iters 5 --load b --save b
    latest b global_step5
    expect 0 "$shoal" report --load b
    silent "left by"
done
expect 2 "$shoal" report --load nowhere
says "nowhere"
expect 2 "$shoal" report something
says "--load DIR"

# ---- a scale that is too large ----
cat >scale.json <<'CONFIG'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"},
 "fp16": {"enabled": true, "loss_scale": 1e9}}
CONFIG
expect 1 $train --train-iters 5 --deepspeed_config scale.json
says "three steps in a row" "fp16.loss_scale 1e+09 is too large" "or 0 for a dynamic scale"
# ---- the model that a checkpoint has ----
cat >small.json <<'CONFIG'
{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}}
CONFIG
tail_flags="--mock-data --deepspeed_config scale.json --train-iters 5"
expect 0 "$shoal" pretrain gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 \
    --mock-data --deepspeed_config small.json --train-iters 2 --save m
expect 0 "$shoal" pretrain --use-checkpoint-args --load m --mock-data --deepspeed_config small.json --train-iters 3
says "step 3/3"
expect 2 "$shoal" pretrain gpt --use-checkpoint-args --num-layers 3 --load m $tail_flags
says "--num-layers 3: the checkpoint m/global_step2 has 2"
expect 2 "$shoal" pretrain llama --use-checkpoint-args --load m $tail_flags
says "llama is a model \`llama\`, but the checkpoint m/global_step2 describes a \`gpt\`"
expect 2 "$shoal" pretrain --use-checkpoint-args $tail_flags
says "--use-checkpoint-args without --load"
finish
