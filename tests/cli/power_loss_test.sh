#!/usr/bin/env bash
# The power fails after each call with which a training changes its folder (tests/tools/power.c). Whatever the disk then
# has, the checkpoint that `latest` names has the bytes of an undisturbed run, and none is lost whose save was over.
# Usage: [SHOAL_TEST_FULL=1] [SHOAL_TEST_SEED=N] power_loss_test.sh SHOAL POWER      POWER: the library to preload
# Without SHOAL_TEST_FULL every seventh call, from a random one on (SHOAL_TEST_SEED).
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1") power=$(readlink -f "$2")
forget_job
cd "$folder" || exit 1
folder=$PWD
export SHOAL_IO=posix
seed=${SHOAL_TEST_SEED:-$((SRANDOM % 1000))}
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
config() { # NAME MORE
    echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "exact", "zero_optimization": {"stage": 2}'"$2}" >"$1"
}
config save.json ''
config beside.json ', "checkpoint": {"writer": {"decoupled": true}}'
# train RANKS CONFIG DIR [MORE...]
train() {
    local ranks=$1 config=$2 dir=$3 start=
    shift 3
    [ $ranks = 1 ] || start="$shoal run --num_gpus $ranks"
    $start "$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 \
        --data-path text --data-cache-path cache --tokenizer-type char --eval-iters 0 --train-iters 4 --log-interval 1 \
        --save "$dir" --save-interval 1 --deepspeed_config "$config" "$@"
}
train 1 save.json reference >out 2>&1 || complain "no reference: $(tail -n 3 out)"

# What the disk has: nothing but what was flushed, or all names with the bytes that were flushed.
put_flushed() { # INODE TO
    local type inode name
    mkdir "$2"
    [ -e "store/d.$1" ] || return 0
    while read -r type inode name; do
        if [ "$type" = d ]; then
            put_flushed "$inode" "$2/$name"
        elif [ -e "store/f.$inode" ]; then
            cp "store/f.$inode" "$2/$name"
        else
            : >"$2/$name"
        fi
    done <"store/d.$1"
}
put_names() { # LIVE TO
    local path inode
    mkdir "$2"
    for path in "$1"/*; do
        if [ -d "$path" ]; then
            put_names "$path" "$2/${path##*/}"
            continue
        fi
        inode=$(stat -c '%i.%.9W' "$path")
        if [ -e "store/f.$inode" ]; then cp "store/f.$inode" "$2/${path##*/}"; else : >"$2/${path##*/}"; fi
    done
}
shopt -s dotglob nullglob

# lose NUMBER RANKS CONFIG: the power fails after that call; 1: the training had ended before
lose() {
    rm -rf root store disk.*
    mkdir root store
    # the launcher and its ranks are killed one by one, and nobody is to say that
    { POWER_ROOT=$folder/root POWER_STORE=$folder/store POWER_AT=$1 LD_PRELOAD=$power train $2 $3 root/runs/saved >out 2>&1; } 2>/dev/null
    [ "$(stat -c %s store/calls 2>/dev/null || echo 0)" -ge "$1" ] || return 1
    put_flushed "$(stat -c '%i.%.9W' root)" disk.flushed
    put_names root disk.names
}
# The steps that the training has shown as done, with what that says of saves: the one before the last step is over.
saved_at_least() { grep -aoE '(^|\r)step [0-9]+/' out | tail -n 1 | grep -oE '[0-9]+' || echo 1; }
judge() { # NUMBER RANKS CONFIG
    local kind tag least file step
    least=$(($(saved_at_least) - 1))
    [ $3 != beside.json ] || least=$((least - 1)) # it may still be written
    for kind in flushed names; do
        states=$((states + 1))
        saved=disk.$kind/runs/saved
        if [ ! -e $saved/latest ]; then
            [ $least -le 0 ] || complain "call $1 of $2 ranks, $3, $kind: nothing is left of $least saves ($(tail -n 1 store/names))"
            continue
        fi
        tag=$(cat $saved/latest) step=${tag#global_step}
        [ "$step" -ge "$least" ] 2>/dev/null || complain "call $1 of $2 ranks, $3, $kind: latest is \"$tag\", and step $least was saved ($(tail -n 1 store/names))"
        for file in reference/"$tag"/*.safetensors; do
            cmp -s "$file" "$saved/$tag/${file##*/}" || complain "call $1 of $2 ranks, $3, $kind: $tag/${file##*/} has other bytes ($(tail -n 1 store/names))"
        done
        "$shoal" checkpoint verify $saved >said 2>&1 || complain "call $1 of $2 ranks, $3, $kind: $(tail -n 1 said)"
        [ $((states % 40)) != 1 ] && continue
        train 1 save.json $saved --load $saved --data-cache-path cache >said 2>&1 || complain "call $1 of $2 ranks, $3, $kind: does not load: $(tail -n 2 said)"
        for file in reference/global_step4/*.safetensors; do
            cmp -s "$file" "$saved/global_step4/${file##*/}" || complain "call $1 of $2 ranks, $3, $kind: goes on to other bits in ${file##*/}"
        done
        loads=$((loads + 1))
    done
}
states=0 loads=0 calls=0
stride=7 first=$((1 + seed % 7)) layouts="1:save.json 2:beside.json"
[ -z "${SHOAL_TEST_FULL:-}" ] || stride=1 first=1 layouts="1:save.json 1:beside.json 2:save.json 2:beside.json"
for layout in $layouts; do
    number=$first
    while lose $number ${layout%:*} ${layout#*:}; do
        judge $number ${layout%:*} ${layout#*:}
        number=$((number + stride)) calls=$((calls + 1))
        [ $failures -lt 8 ] || break 2
    done
done
echo "$calls power failures (seed $seed), $states disks, $loads of them trained on"
[ $calls -gt 10 ] || complain "only $calls calls were seen: this test tests nothing"
finish
