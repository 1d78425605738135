#!/usr/bin/env bash
# Two ranks of this machine where /dev/shm is missing or read-only, started by `shoal run` or by their variables; and under a
# limit of files, which is also one of shared memory.  Usage: shared_memory_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG RANK WORLD_SIZE SHOAL_FAULT SHOAL_JOB_ID MASTER_ADDR MASTER_PORT SHOAL_SECRET SHOAL_SECRET_FILE
cd "$folder" || exit 1
seq 4000 >text
echo '{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' >config.json
train=("$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 --eval-iters 0
    --data-path text --deepspeed_config config.json --train-iters 1)
cat >by_hand <<'SCRIPT'
export WORLD_SIZE=2 LOCAL_SIZE=2 MASTER_PORT=$((20000 + RANDOM % 12000))
RANK=1 LOCAL_RANK=1 "$@" & other=$!
RANK=0 LOCAL_RANK=0 "$@"; code=$?
wait $other || [ $code -ne 0 ] || code=$?
exit $code
SCRIPT

# ---- a limit of files ----
limited() { (ulimit -f "$1" && shift && exec "$@"); }
for blocks in 64 8; do
    expect 2 limited $blocks "$shoal" run --num_gpus 2 "${train[@]}"
    says "cannot share " "shared memory, are limited to $blocks.0 KiB (ulimit -f): raise that limit"
    case $output in *"enlarge"*) complain "a limit of $blocks KiB: /dev/shm is blamed: $output" ;; esac
    expect 2 limited $blocks bash by_hand "${train[@]}"
    says "are limited to $blocks.0 KiB (ulimit -f): raise that limit"
done
SHOAL_SIM_BYTES=33554432 expect 0 limited 100000 "$shoal" run --num_gpus 2 "${train[@]}" # sim's memory is a file, too

# ---- no /dev/shm ----
if [ "$(id -u)" -ne 0 ] || ! unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    [ "$failures" -eq 0 ] && echo "skipped the rest: this user makes no mount namespaces"
    finish
    exit
fi
without() { # HOW COMMAND...: /tmp is the namespace's own
    local how=$1
    shift
    unshare -m bash -c "$how"' && exec "$@"' without "$@"
}
missing='mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9'
cp -r "$folder" /var/tmp/"${folder##*/}" && trap 'rm -rf "$folder" /var/tmp/"${folder##*/}"' EXIT
cd /var/tmp/"${folder##*/}" || exit 1 # the folder of the test may be below /tmp, and so may the program
cp "$shoal" shoal && shoal=$PWD/shoal && train[0]=$shoal
for how in "$missing" 'mount -t tmpfs -o ro none /dev/shm'; do
    how="mount -t tmpfs -o mode=1777 none /tmp && $how"
    expect 0 without "$how" "$shoal" run --num_gpus 2 "${train[@]}"
    says "on 2 ranks" "step 1/1"
    expect 0 without "$how" bash by_hand "${train[@]}"
    says "on 2 ranks" "step 1/1"
    # what ranks say of themselves is found there, too: the failure report knows rank 1's last call
    expect 1 without "$how" env SHOAL_FAULT=comm.post:20@1=error "$shoal" run --num_gpus 2 "${train[@]}" --train-iters 100
    says "rank 1 (pid " "why: fault point comm.post" "its last call: "
    expect 0 without "$how" "$shoal" report
    says "ranks share memory without names"
    expect 0 without "$how" sh -c '"$@" >/dev/null 2>&1; ls -A /tmp/shoal-*/' left "$shoal" run --num_gpus 2 "${train[@]}"
    [ -z "$output" ] || complain "left in /tmp: $output"
done
# no folder at all
none='mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o ro none /tmp'
expect 0 without "$none" "$shoal" run --num_gpus 2 "${train[@]}"
says "step 1/1"
expect 1 without "$none" bash by_hand "${train[@]}"
says "cannot use the folder /tmp/shoal-" "or set SHOAL_SECRET_FILE"
# another user's folder there is not used
taken="mount -t tmpfs -o mode=1777 none /tmp && mount -t tmpfs -o ro none /dev/shm && mkdir /tmp/shoal-$(id -u) && chown 1 /tmp/shoal-$(id -u)"
expect 2 without "$taken" bash by_hand "${train[@]}"
says "/tmp/shoal-$(id -u) is not a folder of this user"
finish
