#!/usr/bin/env bash
# How a job of Slurm ends: a rank that fails or is killed, scancel, SIGTERM and Ctrl-C end all ranks of srun and of
# `shoal run --launcher slurm`, and nothing is left.
# Usage: slurm_ends_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/slurm.sh"
begin_here "$@"
run=("$shoal" run --launcher slurm --num_nodes 1 --num_gpus 4)
# the ranks of the files pid.* are gone
gone() {
    local file tries=0
    for file in $(compgen -G 'pid.*'); do
        while [ -d "/proc/$(cat "$file")" ]; do
            [ $((tries += 1)) -gt 1200 ] && complain "$1: process $(cat "$file") ($file) is still there" && break
            sleep 0.05
        done
    done
    rm -f pid.*
    for tries in $(seq 1200); do
        [ -z "$(squeue -h)" ] && return
        sleep 0.05
    done
    complain "$1: Slurm still has $(squeue -h)"
}
cat >wait.sh <<'SCRIPT'
#!/bin/sh
echo $$ >pid.$SLURM_PROCID.new && mv pid.$SLURM_PROCID.new pid.$SLURM_PROCID
[ "$1" != "$SLURM_PROCID" ] && exec sleep 100
until [ -s pid.0 ] && [ -s pid.1 ] && [ -s pid.2 ] && [ -s pid.3 ]; do sleep 0.05; done
exit 7
SCRIPT
chmod +x wait.sh
await_ranks() {
    local rank tries=0
    for rank in 0 1 2 3; do
        until [ -s pid.$rank ]; do
            [ $((tries += 1)) -gt 1200 ] && complain "no rank $rank: $(cat out)" && return
            sleep 0.05
        done
    done
}

# a rank that is killed in a training: the verdict names it
begin=$(now_ms)
code=0
SHOAL_FAULT=comm.post:20@1=kill srun -n 4 --kill-on-bad-exit=1 $(training killed) >out 2>&1 </dev/null || code=$?
[ $code -ne 0 ] && grep -q "rank 1" out || complain "a killed rank: $code: $(cat out)"
within 20 "$begin" "a killed rank"
begin=$(now_ms)
expect 7 "${run[@]}" --no_local_rank ./wait.sh 2
says "[shoal run] rank 2 ($(hostname -s), pid " " exited with code 7"
[ "$(grep -c "exited with code 7" <<<"$output")" = 1 ] || complain "a failing rank is told of more than once: $output"
within 20 "$begin" "a failing rank"
gone "a failing rank"
# scancel, Ctrl-C (SIGINT, and once more as srun wants it) and SIGTERM
for how in scancel TERM; do
    "${run[@]}" ./wait.sh >out 2>&1 </dev/null &
    job=$!
    await_ranks
    if [ $how = scancel ]; then
        scancel "$(squeue -h -o %i)"
    else
        kill -$how $job
    fi
    code=0
    wait $job || code=$?
    [ $code -ne 0 ] || complain "$how: the job ended with 0: $(cat out)"
    grep -qE 'cancelled by Slurm|stopping the job on 1 host' out || complain "$how: no verdict: $(cat out)"
    gone "$how"
done
# Ctrl-C of a training that saves: it reaches the ranks beside srun
set -m # else the job ignores SIGINT
"${run[@]}" --no_local_rank $(training stopped 1000000) --exit-signal-handler >out 2>&1 </dev/null &
job=$!
set +m
for tries in $(seq 1200); do
    grep -q "^step 1/" out && break
    sleep 0.05
done
kill -INT $job
code=0
wait $job || code=$?
[ $code -eq 0 ] && [ -e stopped/latest ] || complain "Ctrl-C with --exit-signal-handler: $code: $(cat out)"
tail -n 1 out | grep -q "to go on: .* --load stopped" || complain "Ctrl-C with --exit-signal-handler: $(cat out)"
gone "a training that saves"
# scancel of a training: every rank ends
srun -n 4 $(training cancelled 100000) >out 2>&1 </dev/null &
job=$!
for tries in $(seq 1200); do
    [ -n "$(squeue -h -t R)" ] && grep -q "ranks: 4" out && break
    sleep 0.05
done
scancel "$(squeue -h -o %i)"
code=0
wait $job || code=$?
[ $code -ne 0 ] || complain "a cancelled training ended with 0"
for tries in $(seq 1200); do
    left=$(grep -lzx -- cancelled /proc/[0-9]*/cmdline 2>/dev/null)
    [ -z "$left" ] && break
    sleep 0.05
done
[ -z "$left" ] || complain "scancel left $left"
finish
