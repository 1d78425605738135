#!/usr/bin/env bash
# The clock of half of the ranks, or of the launcher, is set while they train: an hour ahead, a day back. Nobody times out,
# nobody is called slow, the job goes on to the same bits.
# Usage: clock_jump_test.sh SHOAL CLOCK      CLOCK: the library to preload (tests/tools/clock_jump.c)
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1") clock=$(readlink -f "$2")
forget_job
cd "$folder" || exit 1
folder=$PWD
for i in $(seq 100); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "exact", "zero_optimization": {"stage": 2}, "steps_per_print": 1000000}' >config.json
cat >rank.sh <<SCRIPT_
#!/bin/sh
case \$RANK in 2 | 3) [ -z "\$HALF" ] || export LD_PRELOAD=$clock ;; esac
# until the clocks have jumped: one step takes long enough for that
exec "$shoal" pretrain gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --threads 1 --data-path text \
    --tokenizer-type char --eval-iters 0 --train-iters \$STEPS --save \$SAVE --save-interval 1000000 --deepspeed_config config.json
SCRIPT_
chmod +x rank.sh
# the library does something
echo 1000000 >jump
[ "$(CLOCK_JUMP=jump LD_PRELOAD=$clock date +%s)" -gt $(($(date +%s) + 900000)) ] || complain "the library does not set the clock"
export STEPS=1000000 SAVE=none CLOCK_JUMP=$folder/jump
# jumps NAME ENVIRONMENT...: a training whose clocks jump while it runs, ended with SIGTERM
jumps() {
    local name=$1 jump code=0 looks
    shift
    rm -f jump
    env "$@" "$shoal" run --no_local_rank --num_gpus 4 --silent_rank_timeout 30 ./rank.sh >out 2>&1 </dev/null &
    local job=$!
    for looks in $(seq 1200); do grep -aq "step [0-9]*0/" out && break; sleep 0.05; done
    for jump in 3600 -86400 0; do
        echo $jump >jump.new && mv jump.new jump
        sleep 5.2 # a rank is called slow after four looks in a row, one a second
        kill -0 $job 2>/dev/null || break
    done
    kill -0 $job 2>/dev/null || complain "$name: the job ended: $(grep -av '^step' out | tail -n 5 | cut -c1-300)"
    kill -TERM $job
    wait $job || code=$?
    [ $code -eq 143 ] || complain "$name: ended with $code"
    ! grep -aoE "rank . .*(is slow|no progress|did not come).*" out || complain "$name: a jump is taken for a fault"
    echo "$name: $(grep -aoE 'step [0-9]+/' out | tail -n 1)"
}
jumps "half of the ranks" HALF=1
jumps "the launcher and all ranks" LD_PRELOAD="$clock"
# the bits: of a few steps, with a clock that is another one for half of the ranks from the start
export STEPS=4
SAVE=plain expect 0 "$shoal" run --no_local_rank --num_gpus 4 ./rank.sh
echo -1000000 >jump
HALF=1 SAVE=jumped expect 0 "$shoal" run --no_local_rank --num_gpus 4 ./rank.sh
for file in plain/global_step4/*.safetensors; do cmp "$file" "jumped/global_step4/${file##*/}" || complain "other bits"; done
finish
