# Sourced by the tests of the elastic agent, after check.sh: a training that is disturbed, and what it must come to. Wants
# $shoal and $folder.
#
#   begin_elastic_hosts SHOAL   three hosts, an environment without a job in it; SHOAL_TEST_COMM names a backend
#   begin_elastic          seed, number of kills, configuration
#   train DIR              the words of the training that continues DIR
#   undisturbed            runs it, which also says how long it takes
#   await_ranks            until the job has been started since the last hit, and has ranks; fails where it is over
#   nap K                  until the training is somewhere in the K-th of as many parts as there are kills
#   kill_rank              one of its ranks, by chance
#   come_back COMMAND...   the command brings a host back while the training stands still, lest it be over;
#                          then the job has to grow, and the training crawls until it does
#   ends_equal PID [N]     the job of the agent ends with 0, and with the bytes of the undisturbed run,
#                          after N restarts at least (one less than there are kills)
steps=300
begin_elastic_hosts() {
    shoal=$(readlink -f "$1")
    unset SHOAL_LOG SHOAL_OPS SHOAL_FAULT RANK WORLD_SIZE MASTER_PORT MASTER_ADDR SHOAL_JOB_ID SHOAL_SECRET SHOAL_SECRET_FILE
    unset DS_ENV_FILE DEEPSPEED_ELASTICITY_CONFIG SHOAL_COMM
    cd "$folder" || exit 1
    folder=$PWD
    start_hosts 3
    export HOME=$folder
    [ -z "${SHOAL_TEST_COMM:-}" ] || export SHOAL_COMM=$SHOAL_TEST_COMM
}
begin_elastic() {
    seed=${SHOAL_TEST_SEED:-$((SRANDOM % 1000000))}
    RANDOM=$seed
    kills=4
    [ "${SHOAL_TEST_FULL:-0}" = 1 ] && kills=20
    echo "seed $seed: SHOAL_TEST_SEED=$seed, $kills kills"
    cat >elastic.json <<'JSON'
{"reduction": "exact", "steps_per_print": 1000000, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
 "zero_optimization": {"stage": 2}, "checkpoint": {"keep_last": 2},
 "elasticity": {"enabled": true, "max_train_batch_size": 30, "micro_batch_sizes": [2, 3], "version": 0.1}}
JSON
    for i in $(seq 300); do echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"; done >text
}
train() {
    echo "$shoal pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1
        --data-path $folder/text --tokenizer-type char --eval-iters 0 --train-iters $steps --save-interval 5
        --deepspeed_config $folder/elastic.json --load $folder/$1 --save $folder/$1"
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
undisturbed() {
    local begun=$(now_ms)
    expect 0 $(train reference)
    echo "undisturbed: $steps steps in $(($(now_ms) - begun)) ms"
}
await_file() {
    local tries
    for tries in $(seq 1200); do
        [ -s "$1" ] && return
        sleep 0.05
    done
    complain "$1 does not come: $(cat out)"
}
# pids of the ranks: programs whose first word but --local_rank is pretrain and that save in this test's folder
rank_pids() {
    local file words
    for file in $(grep -lzx -- "$folder/disturbed" /proc/[0-9]*/cmdline 2>/dev/null); do
        { mapfile -d '' -t words <"$file"; } 2>/dev/null && [[ "${words[1]} ${words[2]}" = --local_rank=?*" pretrain" ]] && echo "$file" | cut -d/ -f3
    done
}
starts() { grep -cE 'start: |restart [0-9]+ of |growing: ' out; }
seen=0
await_ranks() {
    local until=$(($(now_ms) + 60000))
    while [ "$(starts)" -le "$seen" ] || [ -z "$(rank_pids)" ]; do
        kill -0 "$job" 2>/dev/null || { complain "the job was over too early: $(tail -n 5 out)"; return 1; }
        [ "$(now_ms)" -lt $until ] || { complain "no ranks after 60 s: $(tail -n 5 out)"; return 1; }
        sleep 0.02
    done
}
nap() {
    local part=$((steps * 9 / 10 / kills)) step tag=
    step=$((($1 - 1) * part + RANDOM % part))
    while [ "$step" -gt 0 ] && kill -0 "$job" 2>/dev/null; do
        { tag=$(<disturbed/latest); } 2>/dev/null
        [ "${tag#global_step}" -ge "$step" ] 2>/dev/null && break
        sleep 0.02
    done
    sleep "0.0$((RANDOM % 10))"
}
kill_rank() {
    local pids
    seen=$(starts)
    mapfile -t pids < <(rank_pids)
    [ ${#pids[@]} -gt 0 ] && kill -KILL "${pids[RANDOM % ${#pids[@]}]}"
}
# The agent looks for a checkpoint once a second, and what is left of the training may be less: until it has looked, the
# ranks run for a fifth of the time.
await_growth() {
    local pids tries
    mapfile -t pids < <(rank_pids)
    for tries in $(seq 900); do
        kill -CONT "${pids[@]}" 2>/dev/null
        [ "$(grep -c 'growing: ' out)" -gt "$1" ] && return
        restarted_instead "$2" && return
        kill -0 "$job" 2>/dev/null || { complain "the job was over before it grew: $(tail -n 5 out)"; return 1; }
        sleep 0.02
        kill -STOP "${pids[@]}" 2>/dev/null
        sleep 0.08
    done
    kill -CONT "${pids[@]}" 2>/dev/null
    complain "the job does not grow: $(tail -n 5 out)"
    return 1
}
# On a machine so busy that a host's launcher does not run for 4 s the job is restarted, with the host that is back.
silences() { grep -c 'nothing came from it for' out; }
instead=
restarted_instead() {
    [ "$(silences)" -gt "$1" ] && [ "$(starts)" -gt "$seen" ] || return
    echo "  this machine let a host say nothing for too long: restarted instead of grown"
    instead=1
}
come_back() {
    local tries grown asked silent
    grown=$(grep -c 'growing: ' out) asked=$(grep -c 'are available instead' out) silent=$(silences)
    seen=$(starts)
    kill -STOP $(rank_pids) 2>/dev/null
    "$@"
    for tries in $(seq 900); do
        [ "$(grep -c 'are available instead' out)" -gt "$asked" ] && break
        restarted_instead "$silent" && return
        sleep 0.1
    done
    await_growth "$grown" "$silent"
}
ends_equal() {
    local code=0 file
    wait "$1" || code=$?
    [ $code -eq 0 ] || complain "the elastic job ended with $code: $(tail -n 20 out)"
    [ "$(grep -c 'restart [0-9]* of ' out)" -ge "${2:-$((kills - 1))}" ] || complain "not restarted: $(cat out)"
    for file in "reference/global_step$steps"/*; do
        cmp "$file" "disturbed/global_step$steps/${file##*/}" || complain "seed $seed: ${file##*/} is not that of the undisturbed run"
    done
    [ -z "$(rank_pids)" ] || complain "ranks are left: $(rank_pids)"
    grep -E 'start: |restart [0-9]+ of |growing: |does not answer' out | sed 's/^/  /'
}
