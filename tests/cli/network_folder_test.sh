#!/usr/bin/env bash
# A folder as network file systems show it (tests/tools/network_folder.c): files of other ranks come late, a rename onto a
# file leaves a gap, and who has an old file open reads it no more. Training, saves and loads have the bytes of a plain
# folder, and who reads `latest` meanwhile is never told nonsense.
# Usage: [SHOAL_TEST_FULL=1] network_folder_test.sh SHOAL NETWORK      NETWORK: the library to preload
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1") network=$(readlink -f "$2")
forget_job
cd "$folder" || exit 1
folder=$PWD
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
config() { # NAME MORE
    echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "exact", "zero_optimization": {"stage": 2}'"$2}" >"$1"
}
config save.json ''
config beside.json ', "checkpoint": {"writer": {"decoupled": true}}'
by_network() { # CONFIG DIR STEPS [MORE...]
    mkdir -p "$2"
    NETWORK_ROOT=$folder/$2 NETWORK_LATE_MS=$late NETWORK_GAP_MS=$gap LD_PRELOAD=$network \
        "$shoal" run --num_gpus 4 "$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 \
        --data-path text --data-cache-path "$2/cache" --tokenizer-type char --eval-iters 0 --train-iters "$3" --save "$2/saved" \
        --save-interval 2 --keep-last 2 --deepspeed_config "$1" "${@:4}" 2>&1
}
same() { # DIR STEP
    local file
    for file in plain/saved/global_step$2/*.safetensors; do
        cmp -s "$file" "$1/saved/global_step$2/${file##*/}" || complain "$1: global_step$2/${file##*/} has other bytes"
    done
}
# the library does something
mkdir seen && : >seen/file
! NETWORK_ROOT=$folder/seen NETWORK_LATE_MS=10000 LD_PRELOAD=$network cat seen/file 2>/dev/null || complain "the library shows a new file at once"
late=0 gap=0
by_network save.json plain 8 >out || complain "no plain training: $(tail -n 3 out)"
cases="700:0 0:150 1500:100"
[ -z "${SHOAL_TEST_FULL:-}" ] || cases="$cases 200:20 4000:0 4000:300"
for case in $cases; do
    late=${case%:*} gap=${case#*:}
    for config in save.json beside.json; do
        dir=late$late.gap$gap.$config
        by_network $config $dir 4 >out || complain "$dir: ended badly: $(tail -n 4 out)"
        sleep "$(printf '%d.%03d' $((late / 1000)) $((late % 1000)))" # nobody shows them to a new client late
        by_network $config $dir 8 --load $dir/saved >out || complain "$dir: does not go on: $(tail -n 4 out)"
        grep -q "step 5/8" out || complain "$dir: did not begin where it was: $(grep -a -m1 step out)"
        same $dir 8
        ! grep -aE "does not exist: using|which does not exist" out || complain "$dir: says that something is not there"
    done
done
# readers beside a training that saves every other step
late=0 gap=30
by_network save.json beside 400 --log-interval 100 >out &
training=$! reads=0
until [ -e beside/saved/latest ] || ! kill -0 $training 2>/dev/null; do sleep 0.02; done
while kill -0 $training 2>/dev/null; do
    NETWORK_ROOT=$folder/beside LD_PRELOAD=$network "$shoal" checkpoint show beside/saved >said 2>&1 || complain "a reader ended badly: $(tail -n 2 said)"
    ! grep -qi "stale" said || complain "a reader says $(cat said)"
    reads=$((reads + 1))
    [ $failures -lt 5 ] || break
done
wait $training || complain "a training with readers ended badly: $(tail -n 3 out)"
echo "$reads reads"
finish
