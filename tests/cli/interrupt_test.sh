#!/usr/bin/env bash
# Ctrl-C in a training: what is saved, what is lost, and what is said of it.  Usage: interrupt_test.sh SHOAL
# What began in the background of a shell ignores SIGINT, and so would all that it starts.
[ "${DEFAULT_INT-}" ] || DEFAULT_INT=1 exec env --default-signal=INT bash "$0" "$@"
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1")
folder=$(realpath "$folder")
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT SHOAL_JOB_ID
cd "$folder" || exit 1
echo '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}' >ds.json
train="$shoal pretrain gpt --deepspeed_config ds.json --mock-data --num-layers 1 --hidden-size 32 --num-attention-heads 4
    --seq-length 16 --threads 1 --eval-iters 0 --train-iters 10000000 --log-interval 1"
two="$shoal run --master_port 0 --num_gpus 2"

# begin STEP COMMAND...: in the background with a process group of its own, where SIGINT is not ignored; waits for the step
begin() {
    local step=$1
    shift
    rm -f out
    set -m
    "$@" >out 2>&1 </dev/null &
    job=$!
    set +m
    for _ in $(seq 1200); do
        grep -qs "^step $step/" out && return
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    complain "step $step did not come: $(cat out)"
}
# ends CODE: the job does, and leaves no process of its own; its output is in $output
ends() {
    local code=0
    wait "$job" || code=$?
    output=$(cat out)
    [ "$code" -eq "$1" ] || complain "ended with $code, not $1: $output"
    for link in /proc/[0-9]*/cwd; do
        [ "$(readlink "$link")" != "$folder" ] || [ "$(readlink "${link%cwd}exe")" != "$shoal" ] || complain "left: $link"
    done
}
# handles PID COUNT: it, or so many ranks that it launched, catch SIGHUP, which a rank does with --exit-signal-handler alone
handles() {
    local count=0 pid caught ranks=$1
    [ "$2" = 1 ] || ranks=$(cat "/proc/$1/task/$1/children")
    for pid in $ranks; do
        caught=$(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$pid/status" 2>/dev/null)
        [ $((0x${caught:-0} & 1)) = 0 ] || count=$((count + 1))
    done
    [ "$count" = "$2" ]
}
saved_step() { sed -n 's/^saved step \([0-9]*\) to .*/\1/p' out | tail -1; }

# ---- with the handler: saved, and the command that is printed continues ----
for target in launcher group; do
    for ranks in 1 2; do
        run=$([ $ranks = 1 ] || echo "$two")
        save="$folder/$target $ranks"
        begin 3 $run $train --exit-signal-handler --save "$save"
        if [ $target = group ]; then kill -INT -- -"$job"; else kill -INT "$job"; fi
        ends 0
        step=$(saved_step)
        [ "$(cat "$save/latest" 2>/dev/null)" = "global_step$step" ] || complain "$target, $ranks ranks: latest is $(cat "$save/latest")"
        says "saved: $save/global_step$step" "to go on: "
        next=$(sed -n 's/.*to go on: //p' out)
        [ "$(grep -o -- '--load' <<<"$next")" = --load ] || complain "the command is: $next"
        expect 0 sh -c "$next --train-iters $((step + 1))"
        says "step $((step + 1))/$((step + 1))"
        # what began elsewhere goes on from its own checkpoints, by one --load
        begin $((step + 2)) $run $train --exit-signal-handler --load "$save" --save "$save.next"
        kill -INT "$job"
        ends 0
        next=$(sed -n 's/.*to go on: //p' out)
        case $next in *"--load '$save.next'") ;; *) complain "continues by: $next" ;; esac
        [ "$(grep -o -- '--load' <<<"$next")" = --load ] || complain "more than one --load: $next"
    done
done
# a closed terminal is a stop, too
begin 3 $train --exit-signal-handler --save hung
kill -HUP "$job"
ends 0
says "stopped by SIGHUP; saved: hung/global_step"
# a validation is left, in the middle and behind the last step
for ranks in 1 2; do
    run=$([ $ranks = 1 ] || echo "$two")
    for steps in 1000000 3; do
        begin 3 $run $train --train-iters $steps --eval-iters 1000000000 --eval-interval 3 --exit-signal-handler --save "valid$ranks.$steps"
        sleep 0.5
        kill -INT "$job"
        ends 0
        says "validation: not finished, the run stops" "saved: valid$ranks.$steps/global_step3" "to go on: "
        [ "$(cat valid$ranks.$steps/latest)" = global_step3 ] || complain "a step was trained behind the validation: $output"
    done
done
# a folder is missing: the steps are lost, and the line says so
begin 3 $train --exit-signal-handler
kill -INT "$job"
ends 0
says "nothing is saved: " "with --save DIR, too, Ctrl-C finishes the step and saves"
# the time that was asked for counts
begin 3 $two --grace_period 0 $train --exit-signal-handler --save none
kill -INT "$job"
ends 130

# ---- a second one ends at once: a step of a minute is not waited for ----
slow="--num-layers 24 --hidden-size 512 --seq-length 1024"
for ranks in 1 2; do
    run=$([ $ranks = 1 ] || echo "$two")
    echo '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD"}}' >slow.json
    set -m
    $run $train --deepspeed_config slow.json $slow --exit-signal-handler --save "slow$ranks" >out 2>&1 </dev/null &
    job=$!
    set +m
    for _ in $(seq 1200); do
        grep -qs "^batch: " out && handles "$job" $ranks && break
        sleep 0.05
    done
    sleep 1
    kill -INT "$job"
    for _ in $(seq 1200); do
        grep -qE "a second (Ctrl-C|signal) ends" out && break
        sleep 0.05
    done
    sleep 0.3
    kill -0 "$job" || complain "$ranks ranks: the first signal ended it: $(cat out)"
    kill -INT "$job"
    ends 130
    grep -qE "a second (SIGINT|signal)" out || complain "$ranks ranks, twice: $output"
    [ ! -e "slow$ranks/latest" ] || complain "$ranks ranks: a step of a minute was finished"
done

# ---- without the handler: the newest checkpoint, the steps that are lost, the flag ----
for ranks in 1 2; do
    run=$([ $ranks = 1 ] || echo "$two")
    begin 13 $run $train --save "$folder/plain$ranks" --save-interval 10000
    kill -INT "$job"
    ends 130
    says "nothing is saved: " " steps are lost; with --exit-signal-handler Ctrl-C finishes the step and saves"
    rm -rf "$folder/plain$ranks"
    begin 13 $run $train --save "$folder/plain$ranks" --save-interval 10 --train-iters 19
    wait "$job"
    begin 21 $run $train --load "$folder/plain$ranks" --save "$folder/plain$ranks" --save-interval 1000000
    kill -INT "$job"
    ends 130
    says "the newest checkpoint is $folder/plain$ranks/global_step19: " "; with --exit-signal-handler Ctrl-C"
    lost=$(sed -n 's/.*global_step19: \([0-9]*\) steps\? .* lost.*/\1/p' out)
    seen=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' out | tail -1)
    [ "$((19 + ${lost:-0} - seen))" -ge 0 ] && [ "$((19 + ${lost:-0} - seen))" -le 1 ] ||
        complain "$ranks ranks: $lost steps are lost, and the last line is of step $seen: $output"
    begin 3 $run $train
    kill -INT "$job"
    ends 130
    says "nothing is saved: " "with --save DIR --exit-signal-handler Ctrl-C finishes the step and saves"
done
# SIGTERM alone is as Ctrl-C
begin 3 $train
kill -TERM "$job"
ends 143
says "ended by SIGTERM; nothing is saved: "
# before the first step nothing is lost; a job of another program is no training
set -m
$two --no_local_rank sleep 30 >out 2>&1 </dev/null &
job=$!
set +m
sleep 0.5
kill -INT "$job"
ends 130
[ "$(grep -c . out)" = 1 ] || complain "words about a sleep: $output"
finish
