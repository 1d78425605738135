# Sourced by hosts_soak: the faults, and the verdict that each must have.
#
#   kill segv abort bus   the signal, to a rank
#   stop                  SIGSTOP: a rank that says nothing; the limit that is asked for is 1 s
#   exit                  the program leaves with code 7 in the middle of a collective's post
#   leave                 its process is exchanged for exit(3)
#   error                 an error of one rank's own (SHOAL_FAULT=comm.post)
#   collective            a rank that would call other collectives: another ZeRO stage, or it validates
#   count                 that would call the same ones of other sizes: a wider model
#   link                  the veth of a host goes down
#   sshd                  the host's sshd and its sessions are killed, or the sessions alone (not with
#                         MPICH, whose jobs go on without them)
#   disk                  the disk of the checkpoints is full, or that of one host's optimizer states

choose_fault() {
    local kinds=(kill kill segv abort bus stop exit leave error collective count disk)
    case $where in here) ;; mpich) kinds+=(link link) ;; *) kinds+=(link link sshd sshd) ;; esac
    if [ -n "${SOAK_KIND:-}" ]; then
        local wanted=() kind
        for kind in "${kinds[@]}"; do case " $SOAK_KIND " in *" $kind "*) wanted+=("$kind") ;; esac done
        [ ${#wanted[@]} -eq 0 ] || kinds=("${wanted[@]}")
    fi
    among "${kinds[@]}" && fault=$chosen
}
# What the fault wants of the rest of the trial.
fit_fault() {
    variant=$((RANDOM % 2)) save=saved
    case $fault in
    disk)
        [ "$where" = here ] && variant=0
        if [ $variant = 1 ]; then
            saving=none moment=early
            [ $stage != 0 ] || stage=1
            sed -E "s|\"stage\": [0-3]|\"stage\": $stage, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"small\"}|" \
                "${words[-1]}" >offload.json
            words[-1]=offload.json
        else
            [ "$saving" != none ] || saving=async
            [ "$moment" != early ] || moment=0
            save=disk/full
        fi
        ;;
    collective) case $layout in tp2pp2* | tp4 | pp4) variant=1 ;; esac ;;
    esac
}
other_words() {
    local i
    case $fault$variant in
    collective0)
        for i in "${!others[@]}"; do
            case ${others[i]} in
            fast.json)
                sed 's/"stage": '"$stage"'/"stage": '$(((stage + 2) % 4))/ fast.json >other.json
                others[i]=other.json
                ;;
            stage?.json | split?.?.json) others[i]=${others[i]%?.json}$(((stage + 2) % 4)).json ;;
            esac
        done
        ;;
    collective1) others+=(--eval-iters 1 --eval-interval $((1 + point / 8))) ;;
    count?) others+=(--hidden-size 64) ;;
    esac
}
prepare() {
    rm -rf disk/* small/* "/proc/${sshd_pid[1]}/root$folder/small/"*
    mkdir -p "$save"
}

hurt() {
    local late=steps
    begin=$(now_ms) lost= trained=
    case $fault in
    exit | error | collective | count) ;;
    disk) [ $variant = 1 ] || wait_and_do ;;
    *) wait_and_do ;;
    esac
    # a fault of the program's own comes when the rank has started, and has posted so many collectives
    case $fault in exit | error | collective | count | disk) await_end 60 ;; *) await_end 20 ;; esac
    took=$((over - begin))
    # of itself: from the end of the first rank that has failed
    case $fault in
    exit | error | collective | count | disk)
        local first
        first=$(cat ended.* 2>/dev/null | sort -n | head -n 1)
        [ -z "$first" ] || took=$((over - first / 1000))
        ;;
    esac
}
wait_and_do() {
    [ $moment != early ] || late=
    if ! await_start $late; then
        lost=1
        begin=$(now_ms)
        return
    fi
    trained=$late
    [ $moment = early ] || pause "$(printf '0.%03d' $moment)"
    pid=$(cat pid.$target)
    begin=$(now_ms)
    case $fault in
    kill) kill -KILL "$pid" ;;
    segv) kill -SEGV "$pid" ;;
    abort) kill -ABRT "$pid" ;;
    bus) kill -BUS "$pid" ;;
    stop) kill -STOP "$pid" ;;
    leave) kill -USR2 "$pid" ;;
    link) cut_host $host ;;
    sshd) if [ $variant = 0 ]; then stop_sshd $host; else stop_sessions $host; fi ;;
    disk) head -c 8M /dev/zero >disk/filler 2>/dev/null ;;
    esac
}
stop_sessions() {
    local session
    for session in $(sessions_of "${sshd_pid[$1]}"); do kill -9 "$session" 2>/dev/null; done
}
mend() {
    case $fault in
    link) mend_host $host ;;
    sshd) [ $variant = 1 ] || { start_host $host && await_sshd $host; } ;;
    esac
    rm -f disk/filler
}

# wants TEXT...: extended regular expressions, each of a line that the launcher has printed
wants() {
    local text
    for text in "$@"; do
        grep -Eq -- "$text" out || failed verdict "no line of the verdict is \"$text\""
    done
}
# Ranks that were started with other flags say so before the first step, with exit code 2 and without a block. Calls that
# meet are compared at once. A message and a sum never meet: then all ranks wait, which is as good as a rank that says
# nothing, and who is to blame nobody knows.
judge_mismatch() {
    if grep -Eq "the ranks disagree on .*\(.*rank [0-3]: .*, rank [0-3]: " out; then
        wanted=2 named= blocks_wanted=0
        return
    fi
    if grep -q '^\[shoal run\] the ranks wait for each other: none has made progress for [13]\.0 s' out; then
        limit=$((limit + 1000)) named=
        # All in one call: it might have been sending, for three times as long.
        ! grep -q 'none has made progress for 3.0 s' out || limit=$((limit + 2000))
        wants "^\[shoal run\]   rank.* $target[, ].* in "
        return
    fi
    wants "  why: .*rank $target( \([^)]*\))? posted" \
        '^\[shoal run\]   why: .*rank [0-9]+( \([^)]*\))? posted .*rank [0-9]+( \([^)]*\))? posted '
}
judge() {
    local name=worker-$host, wanted limit=5000 blocks blocks_wanted=1 named=1
    [ "$where" != here ] || { name= && limit=1000; }
    if [ "$code" = hang ]; then
        failed hang "the launcher did not end within 20 s"
        return
    fi
    [ -z "$lost" ] || failed lost "the job ended before the fault, with $code"
    local rank="^\[shoal run\] rank $target \(${name:+$name }pid [0-9]+\)"
    case $fault in
    kill) wanted=137 && wants "$rank was killed by signal 9 " ;;
    segv) wanted=139 && wants "$rank was killed by signal 11 " ;;
    abort) wanted=134 && wants "$rank was killed by signal 6 " ;;
    bus) wanted=135 && wants "$rank was killed by signal 7 " ;;
    stop) wanted=1 limit=$((limit + 1000)) && wants "$rank has made no progress for 1.0 s" ;;
    exit) wanted=7 && wants "$rank exited with code 7" ;;
    leave) wanted=3 && wants "$rank exited with code 3" ;;
    error) wanted=1 && wants "$rank exited with code 1" "  why: fault point comm.post: made to fail by SHOAL_FAULT" ;;
    collective | count) wanted=1 && judge_mismatch ;;
    link) wanted=1 && wants "^\[shoal run\] host worker-$host does not answer: nothing came from it for " ;;
    sshd) wanted=1 && wants "^\[shoal run\] host worker-$host: the connection is gone" ;;
    disk) wanted=1 && wants '^\[shoal run\] rank [0-3] \(.*exited with code 1' '  why: .*(No space left on device|the disk is full)' ;;
    esac
    case $named$fault$moment in
    ?link* | ?sshd* | *early | [a-z]*) ;;
    *) wants '^\[shoal run\]   (where|its last call): ' ;;
    esac
    blocks=$(grep -Ec '^\[shoal run\] (rank [0-9]+ \(|host worker-[01](:| does not)|the ranks wait)' out)
    [ "$blocks" -eq $blocks_wanted ] || failed verdict "$blocks verdicts instead of $blocks_wanted"
    [ "$code" = "$wanted" ] || failed code "ended with $code, not $wanted"
    [ "$took" -le $limit ] || failed late "took $took ms, not $limit"
}
