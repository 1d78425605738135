#!/usr/bin/env bash
# /dev/shm is small, full from the start, or becomes full while ranks train: a job trains to the bits of a large one, or
# ends at once with a sentence that names the folder. A rank without memory ends with a sentence, too. No rank dies of a
# signal, nothing is left.
# Usage: [SHOAL_TEST_FULL=1] full_memory_folder_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
if [ "${INSIDE:-}" != 1 ]; then
    unshare --mount --propagation private mount -t tmpfs none /dev/shm 2>/dev/null ||
        { echo "skipped: this machine lets nobody put another /dev/shm in place" && exit 77; }
    rmdir "$folder" # the script begins again, and makes another one
    INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
fi
forget_job
cd "$folder" || exit 1
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "exact", "zero_optimization": {"stage": 1}}' >config.json
train() { # STEPS DIR
    timeout 60 "$shoal" run --num_gpus 4 "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 \
        --data-path text --tokenizer-type char --eval-iters 0 --deepspeed_config config.json --train-iters "$1" --save "$2" --save-interval 1000000
}
same() {
    local file
    for file in plain/global_step4/*.safetensors; do cmp -s "$file" "$1/global_step4/${file##*/}" || complain "$1: other bits in ${file##*/}"; done
}
train 4 plain >out 2>&1 || complain "no plain training: $(tail -n 3 out)"
trained=0 refused=0
judge() { # WHAT DIR CODE
    case $3 in
    0) same "$2" && trained=$((trained + 1)) ;;
    1 | 2)
        refused=$((refused + 1))
        grep -q "/dev/shm" out || complain "$1: no sentence about /dev/shm: $(tail -n 4 out | cut -c1-300)"
        ! grep -q "was killed by signal" out || complain "$1: a rank died: $(grep signal out)"
        ;;
    *) complain "$1: ended with $3: $(tail -n 4 out | cut -c1-300)" ;;
    esac
    [ -z "$(find /dev/shm -type f -name 'shoal-*' 2>/dev/null)" ] || complain "$1 left $(find /dev/shm -type f)"
}
sizes="4k 64k 512k 4m 16m 64m"
[ -z "${SHOAL_TEST_FULL:-}" ] || sizes="4k 8k 16k 32k 64k 128k 256k 512k 1m 2m 4m 8m 12m 16m 20m 24m 28m 32m 40m 48m 64m"
for size in $sizes; do
    mount -t tmpfs -o mode=1777,size=$size none /dev/shm
    code=0
    train 4 small$size >out 2>&1 </dev/null || code=$?
    judge "a /dev/shm of $size" small$size $code
    echo "$size: $code $(grep -m1 -o '[^:]*: [^:]*/dev/shm.*' out | cut -c1-200)"
    umount /dev/shm
done
# no more files can be made, where there is memory
mount -t tmpfs -o mode=1777,size=64m,nr_inodes=2 none /dev/shm
code=0
train 4 inodes >out 2>&1 </dev/null || code=$?
judge "a /dev/shm without inodes" inodes $code
umount /dev/shm
# full while they train
mount -t tmpfs -o mode=1777,size=64m none /dev/shm
(
    for i in $(seq 3000); do grep -q '^step\|step 1/' filled_out 2>/dev/null && break; sleep 0.02; done
    head -c 64M /dev/zero >/dev/shm/filler 2>/dev/null
    touch filled_now
) &
train 4000 filled >filled_out 2>&1 </dev/null || complain "full while they train: ended with $?: $(tail -n 4 filled_out | cut -c1-300)"
wait
[ -e filled_now ] || complain "the folder was not filled in time"
rm -f /dev/shm/filler
left=$(find /dev/shm -type f -name 'shoal-*')
[ -z "$left" ] || complain "full while they train: left $left"
# one rank may have so little address space that its allocations fail, sooner or later
cat >rank.sh <<SCRIPT_
#!/bin/sh
[ \$RANK != 3 ] || ulimit -v \$LIMIT
exec "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text \
    --tokenizer-type char --eval-iters 0 --deepspeed_config config.json --train-iters 4
SCRIPT_
chmod +x rank.sh
limits="12000 18000 22000 26000 32000 48000"
[ -z "${SHOAL_TEST_FULL:-}" ] || limits=$(seq 10000 500 48000)
failed=0
for limit in $limits; do
    code=0
    LIMIT=$limit timeout 60 "$shoal" run --num_gpus 4 --no_local_rank ./rank.sh >out 2>&1 </dev/null || code=$?
    case $code in
    0) ;;
    1 | 2)
        failed=$((failed + 1))
        grep -qE '^shoal: |  why: ' out || complain "ulimit -v $limit: no sentence: $(tail -n 4 out | cut -c1-300)"
        ;;
    127) # the system's loader has no room for the program itself
        failed=$((failed + 1))
        grep -q "error while loading shared libraries" out || complain "ulimit -v $limit: ended with 127: $(tail -n 4 out | cut -c1-300)"
        ;;
    *) complain "ulimit -v $limit: ended with $code: $(tail -n 4 out | cut -c1-300)" ;;
    esac
    [ -z "$(find /dev/shm -type f -name 'shoal-*' 2>/dev/null)" ] || complain "ulimit -v $limit left $(find /dev/shm -type f)"
done
echo "$failed of $(wc -w <<<"$limits") limits of memory were too low"
[ $failed -gt 0 ] || [ -n "$SANITIZE" ] || complain "no limit of memory was too low: this tests nothing"
echo "$trained trained, $refused refused"
[ $trained -gt 0 ] || complain "no job has trained"
finish
