# Sourced by hosts_soak: what is trained, how a job is started, and what must not be there when it is
# over. All that is chosen at random is chosen by choose_trial, from $RANDOM of the shell itself.
#
#   begin_trials     two hosts, the corpus, the ranks' program; $wheres: where jobs can run
#   one_trial        chooses, starts, hurts, judges; a line in $log, and FAILED lines
#
# A trial:  $where $fault $target (rank) $host (0, 1) $moment (ms after the first step; early: of the
#           start) $point (posted collectives until a fault of the program's own) $layout $words

# No fork for a pause: SECONDS of waiting for what never comes.
pause() { read -r -t "$1" -u "$never" || :; }

begin_trials() {
    # before /tmp is another one
    exec {added}>>"${SOAK_LOG:-/dev/null}"
    mount -t tmpfs -o size=512m,mode=755 none "$folder" || skip "this machine mounts no tmpfs"
    mount -t tmpfs -o mode=1777 none /tmp || skip "this machine mounts no tmpfs"
    mkdir "$folder/disk" "$folder/small"
    mount -t tmpfs -o size=4m none "$folder/disk" # all hosts see this one
    begin_job "$shoal"
    trap 'end_trials' EXIT
    stop_sshd 1 && start_host 1 && await_sshd 1
    exec {never}<> <(:)
    log=$folder/log
    touch "$log"
    local stage split
    for stage in 0 1 2 3; do
        sed "s/\"stage\": 1/\"stage\": $stage/" config.json >stage$stage.json
        for split in 2 4; do sed "s/^{/{\"exact_splits\": {\"tensor\": $split, \"sequence\": $split}, /" stage$stage.json >split$split.$stage.json; done
    done
    write_program
    choose_wheres
}
# start_host I: its sshd; the second host has a small disk of its own
start_host() {
    if [ "$1" = 1 ]; then start_sshd 1 "mount -t tmpfs -o size=64k none '$folder/small'"; else start_sshd "$1"; fi
}
end_trials() {
    [ -z "${job:-}" ] || kill -9 "$job" 2>/dev/null
    end_groups
    cd /
    end_hosts 2>/dev/null
    umount -l "$folder"
    rmdir "$folder"
}
# The ranks' own program. A fault of the program is the rank's that the trial names; then a shell
# stays around it, which writes down when it ended.
write_program() {
    cat >rank.sh <<'SCRIPT'
#!/bin/bash
echo $$ >pid.$RANK.new && mv pid.$RANK.new pid.$RANK
. ./trial
if [ "$RANK" = "$target" ]; then
    case $fault in
    error) export SHOAL_FAULT=comm.post:$point ;;
    exit) export SHOAL_FAULT=comm.post:$point=exit ;;
    collective | count) words=("${others[@]}") ;;
    esac
fi
case $fault in
error | exit | collective | count | disk) ;;
leave)
    trap 'kill -9 $child; exit 3' USR2
    "${words[@]}" & child=$!
    wait $child
    wait $child
    exit
    ;;
*) exec "${words[@]}" ;;
esac
code=0
"${words[@]}" || code=$?
echo "${EPOCHREALTIME/./}" >ended.$RANK.new && mv ended.$RANK.new ended.$RANK
exit $code
SCRIPT
    chmod +x rank.sh
}
choose_wheres() {
    local name why
    wheres=() absent=()
    # by their share of the trials: those of this machine are over soon
    for name in here here here here here ssh ssh pdsh openmpi mpich; do
        case " ${SOAK_WHERE:-$name} " in *" $name "*) ;; *) continue ;; esac
        why=$(cannot $name none)
        if [ -z "$why" ]; then wheres+=($name); else absent+=("$name is skipped: $why"); fi
    done
    [ ${#wheres[@]} -gt 0 ] || skip "${absent[*]:-SOAK_WHERE=$SOAK_WHERE names none of here, ssh, pdsh, openmpi, mpich}"
}
wheres_said() {
    local name IFS=,
    printf 'jobs run %s' "$(printf '%s\n' "${wheres[@]}" | sort -u | tr '\n' ' ')"
    [ ${#absent[@]} -eq 0 ] || echo "; ${absent[*]}"
}

# among WORD...: $chosen
among() {
    local list=("$@")
    chosen=${list[RANDOM % ${#list[@]}]}
}
choose_trial() {
    local stage config exact i
    RANDOM=$(((SOAK_SEED * 7919 + trial * 104729) % 2147483647))
    for i in 1 2 3; do : $((RANDOM)); done
    among "${wheres[@]}" && where=$chosen
    choose_fault
    target=$((RANDOM % 4)) moment=$((RANDOM % 300)) point=$((RANDOM % 400)) stage=$((RANDOM % 4))
    host=$((target / 2))
    [ $((RANDOM % 6)) -ne 0 ] || moment=early
    among dp4 dp4 tp2 pp2 tp2pp2 tp4 pp4 tp2pp2v pp2v && layout=$chosen
    among exact fast && exact=$chosen
    among none none async async save && saving=$chosen
    unasked= beside=
    rm -rf drive && mkdir drive
    [ $((RANDOM % 2)) -eq 0 ] || unasked=--no_preflight
    [ "$where" = ssh ] || unasked=
    config=stage$stage.json
    layers=2
    case $layout in pp4 | *v) layers=4 ;; esac
    words=("$shoal" pretrain gpt --num-layers $layers --hidden-size 32 --num-attention-heads 4 --seq-length 16
        --threads 1 --data-path text --tokenizer-type char --eval-iters 0 --train-iters 1000000 --log-interval 5)
    case $layout in
    tp2*) words+=(--tensor-model-parallel-size 2) config=split2.$stage.json ;;
    tp4) words+=(--tensor-model-parallel-size 4) config=split4.$stage.json ;;
    esac
    case $layout in
    *pp2*) words+=(--pipeline-model-parallel-size 2) ;;
    pp4) words+=(--pipeline-model-parallel-size 4) ;;
    esac
    case $layout in *v) words+=(--num-virtual-stages-per-pipeline-rank 2) ;; esac
    # positions of a tensor-parallel group are shared in every third trial
    case $layout$((trial % 3)) in tp*0) words+=(--sequence-parallel) ;; esac
    [ $exact = exact ] || { sed 's/"exact"/"fast"/' stage$stage.json >fast.json && config=fast.json; }
    offload_states
    # every other pipeline has its transfers beside its computations
    case $layout$((trial % 2))$fault in
    *pp2*1collective | pp41collective) ;;
    *pp21* | pp41*) beside=$beside,beside && sed 's/^{/{"pipeline": {"overlap_p2p": true}, /' $config >beside.json && config=beside.json ;;
    esac
    words+=(--deepspeed_config $config)
    fit_fault
    case $saving in
    async) words+=(--save "$save" --save-interval 3 --keep-last 2 --async-save) ;;
    save) words+=(--save "$save" --save-interval 3 --keep-last 2) ;;
    esac
    layout=$layout${beside},stage$stage,$exact,$saving,$moment${unasked:+,$unasked}
    others=("${words[@]}")
    other_words
}

# Optimizer states of every other trial, and weights of some with ZeRO's third stage, lie in host memory or in files. A
# disk's fault offloads by itself.
offload_states() {
    local device parameters=
    among none none none cpu nvme nvme && device=$chosen
    [ $fault != disk ] && [ $fault != collective ] && [ "$device" != none ] || return 0
    [ $stage != 0 ] || return 0
    if [ $stage = 3 ] && [ $((trial % 2)) = 0 ]; then parameters=parameters; fi
    sed -E "s|\"stage\": [0-3]|\"stage\": $stage, \"offload_optimizer\": {\"device\": \"$device\", \"nvme_path\": \"drive\"}|" "$config" >offload.json
    [ -z "$parameters" ] ||
        sed -i 's|"offload_optimizer"|"offload_param": {"device": "cpu"}, "offload_optimizer"|' offload.json
    config=offload.json beside=,$device${parameters:+,$parameters}
    # buffers of files belong to the training alone
    [ "$device$saving" != nvmeasync ] || saving=save
}

# Until the rank's process is there, and with `steps` until a step is done and, when the job saves, a
# checkpoint is whole; false: the job is over, or nothing came for 60 s.
await_start() {
    local until=$(($(now_ms) + 60000))
    until [ -s pid.0 ] && [ -s pid.1 ] && [ -s pid.2 ] && [ -s pid.3 ]; do
        pause 0.005
        [ -d "/proc/$job" ] && [ "$(now_ms)" -lt $until ] || return 1
    done
    [ "$1" = steps ] || return 0
    until grep -q 'step [0-9]*[05]/' out && { [ "$saving" = none ] || [ -s "$save/latest" ]; }; do
        pause 0.01
        [ -d "/proc/$job" ] && [ "$(now_ms)" -lt $until ] || return 1
    done
}
# No fork here either: it is asked hundreds of times a second.
alive() {
    local words
    { read -r words <"/proc/$1/stat"; } 2>/dev/null && [[ $words != *") Z "* ]]
}
# await_end SECONDS: $over (ms) and $code of the launcher
await_end() {
    local until=$(($(now_ms) + $1 * 1000))
    while alive "$job" && [ "$(now_ms)" -lt $until ]; do pause 0.005; done
    over=$(now_ms)
    if alive "$job"; then
        code=hang
        "$shoal" top --once "$job" >top 2>&1
        kill -9 "$job"
    else
        wait "$job" 2>/dev/null
        code=$?
    fi
}

# What was there before the job: processes of the folder, files, sockets that listen.
remember() {
    in_folder | sort >before
    temporary | sort >before.files
    sockets | sort >before.sockets
}
temporary() { find /tmp /dev/shm "$(memory_of 0)" "$(memory_of 1)" -mindepth 1 ! -path '*/shoal-0' 2>/dev/null; }
# of the three network namespaces: listening ones, connected ones beside ssh's, names of unix sockets
sockets() {
    local pid file
    for pid in self "${host_pid[@]}"; do
        for file in tcp tcp6; do
            awk -v at="$pid" '$4 == "0A" || ($4 == "01" && $2 !~ /:0016$/ && $3 !~ /:0016$/) { print at, $2, $3, $4 }' \
                /proc/$pid/net/$file 2>/dev/null
        done
        awk -v at="$pid" 'NR > 1 && NF > 7 { print at, $8 }' /proc/$pid/net/unix 2>/dev/null
    done
}
# The commands of this soak itself are no leftovers.
left_now() {
    local pid name
    in_folder | sort | comm -13 before - | while read -r pid; do
        read -r name <"/proc/$pid/comm" || continue
        case $name in bash | find | cut | sort | comm | awk | sed | sshd) continue ;; esac
        ! alive "$pid" || echo "process $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-80)"
    done 2>/dev/null
    temporary | sort | comm -13 before.files - | sed 's/^/file /'
    sockets | sort | comm -13 before.sockets - | sed 's/^/socket /'
}
# await_clean SECONDS: nothing is left; $clean ms after the end; else $left
await_clean() {
    local until=$(($(now_ms) + $1 * 1000))
    while clean=$(($(now_ms) - over)) && left=$(left_now) && [ -n "$left" ]; do
        [ "$(now_ms)" -lt $until ] || break
        pause 0.02
    done
    [ -z "$left" ]
}

failed() { # WHAT SENTENCE
    outcome=${outcome:+$outcome+}$1
    echo "FAILED (seed $SOAK_SEED, trial $trial: $where $fault of rank $target, $layout): $2"
}
one_trial() {
    local outcome= name
    choose_trial
    rm -rf pid.* ended.* "$save"
    declare -p words others target fault point >trial
    prepare
    remember
    flags=(--no_local_rank)
    # Elsewhere a second is not enough: ranks that join over a network that is gone, say nothing.
    case $fault in stop | collective) flags+=(--silent_rank_timeout 1) ;; esac
    PROGRAM=./rank.sh start "$where" $unasked
    hurt
    judge
    mend
    await_clean 10 || failed left "after 10 s there is still: $left"
    [ "$saving" = none ] || check_checkpoint
    if [ -n "$outcome" ]; then
        [ "$code" != hang ] || cat top
        echo "  the launcher said: $(grep -v '^step' out | tail -n 25)"
        [ -z "$left" ] || clear_up
    fi
    echo "${outcome:-ok} $where $fault $took $clean $layout $SOAK_SEED $trial" | tee -a "$log" >&"$added"
    [ -z "$outcome" ]
}
# After a failure the next trial begins with what this one should have.
clear_up() {
    local pid
    for pid in $(in_folder | sort | comm -13 before -); do
        [ "$pid" = $$ ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sshd ] || kill -9 "$pid" 2>/dev/null
    done
    pause 0.2
    temporary | sort | comm -13 before.files - | while read -r name; do rm -rf "$name"; done
}
# The newest whole checkpoint, where there is one, is whole and loads: on one rank, whatever wrote it.
check_checkpoint() {
    local code=0 said
    if [ ! -e "$save/latest" ]; then
        [ -z "$trained" ] || failed checkpoint "no checkpoint although some were saved"
        return
    fi
    said=$("$shoal" checkpoint verify "$save" 2>&1) || code=$?
    [ $code -eq 0 ] || failed checkpoint "shoal checkpoint verify ended with $code: $said"
    code=0
    said=$("$shoal" pretrain gpt --num-layers $layers --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 \
        --data-path text --tokenizer-type char --eval-iters 0 --train-iters 1 --deepspeed_config stage0.json \
        --load "$save" --exit-on-missing-checkpoint 2>&1) || code=$?
    [ $code -eq 0 ] || failed checkpoint "the newest checkpoint does not load ($code): $said"
}
