#!/usr/bin/env bash
# Two jobs on the same hosts at the same time. What happens to one, by a killed rank, a killed launcher or its own end, is
# nothing to the other: it goes on to the bits that it has alone. Nothing of either is left.
# Usage: [SHOAL_TEST_FULL=1] two_jobs_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
# second WHERE [FLAGS...]: a training into the folder `second` that is not hurt
cat >second.sh <<SCRIPT_
#!/bin/sh
exec "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text \
    --tokenizer-type char --eval-iters 0 --train-iters 600 --deepspeed_config config.json --save \$1 --save-interval 600
SCRIPT_
chmod +x second.sh
expect 0 "$shoal" run --num_gpus 4 --no_local_rank ./second.sh alone
await_second() {
    local until=$(($(now_ms) + 60000))
    until grep -aq "step [0-9]*0/" second_out || ! kill -0 "$other" 2>/dev/null || [ "$(now_ms)" -gt $until ]; do sleep 0.02; done
}
pairs="ssh:pdsh:kill pdsh:ssh:front ssh:ssh:end"
[ -z "${PAIRS:-}" ] || pairs=$PAIRS
[ -z "${SHOAL_TEST_FULL:-}" ] || pairs="$pairs here:ssh:kill here:here:front ssh:openmpi:kill openmpi:openmpi:kill openmpi:mpich:front mpich:openmpi:kill mpich:mpich:kill mpich:mpich:end openmpi:openmpi:end"
for pair in $pairs; do
    IFS=: read -r where beside fault <<<"$pair"
    why=$(cannot $where none)$(cannot $beside none)
    [ -z "$why" ] || { echo "$pair: not tested: $why" && continue; }
    touch mark
    in_folder >before
    rm -rf second
    # another port than the first one's, where the launcher is told one
    PROGRAM="./second.sh second" start $beside
    other=$job
    mv out second_out
    case $beside in openmpi | mpich) sed -i "s/4710/4711/" by_mpi/mpirun ;; esac
    await_second
    if [ $fault = end ]; then STEPS=20 start $where; else start $where; fi
    [ $fault = end ] || await_steps || complain "$pair: no steps: $(shown)"
    begin=$(now_ms)
    case $fault in
    kill) kill -9 "$(pid_of 3)" ;;
    front) kill -9 "$job" ;;
    esac
    await_job "$begin"
    case $fault.$code in kill.137 | front.137 | end.0) ;; *) complain "$pair: ended with $code: $(shown)" ;; esac
    [ $fault != kill ] || grep -q "rank 3 (.*pid .* was killed by signal 9" out || complain "$pair: no failure report: $(shown)"
    code=0
    wait "$other" || code=$?
    [ $code -eq 0 ] || complain "$pair: the other job ended with $code: $(grep -av '^step' second_out | tail -n 6 | cut -c1-300)"
    for file in alone/global_step600/*.safetensors; do
        cmp -s "$file" "second/global_step600/${file##*/}" || complain "$pair: the other job has other bits in ${file##*/}"
    done
    # of a killed launcher the next one removes what is left
    if [ $fault = front ]; then
        STEPS=3 start ssh
        await_job "$(now_ms)"
    fi
    left=$(gone 60) || complain "$pair left $left"
    echo "$pair: done"
done
finish
