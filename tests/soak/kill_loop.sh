# The kill loop, sourced by soak: a job of 1 to 4 ranks that saves every few steps is hit by signals at random times,
# up to three times in a row; after each nothing of it runs, and the last run must arrive at the undisturbed bits.

# All random choices are made by the shell itself, never in a $(...), which would draw from another sequence.

# Chooses $ranks, $backend of files and $config: any stage, states in memory or on the drive, saved at once or beside the
# training.
choose_job() {
    ranks=$((1 + RANDOM % 4))
    backend=${backends[RANDOM % ${#backends[@]}]}
    config=memory$((RANDOM % 4)).json
    case $((RANDOM % 8)) in
    0 | 1) config=drive$((1 + RANDOM % 3)).json ;;
    2 | 3 | 4) config=beside$((RANDOM % 4)).json ;;
    5) config=beside_cpu.json ;;
    esac
}

# choose_rank LAUNCHER: $rank becomes the pid of one of its children, empty when there is none yet
choose_rank() {
    local children number=$RANDOM
    read -r -a children <<<"$(cat "/proc/$1/task/$1/children" 2>/dev/null)"
    rank=
    [ ${#children[@]} -eq 0 ] || rank=${children[number % ${#children[@]}]}
}

# hit LAUNCHER: one random disturbance
hit() {
    local rank
    choose_rank "$1"
    case $((RANDOM % 7)) in
    6) kill -USR1 "$1" && sleep 0.05 && kill -KILL "$1" ;;
    0 | 1) [ -z "$rank" ] || kill -KILL "$rank" ;;
    2) kill -KILL "$1" ;;
    3) kill -TERM "$1" ;;
    4) [ -z "$rank" ] || kill -TERM "$rank" ;;
    5)
        [ -z "$rank" ] || kill -STOP "$rank"
        sleep 0.2
        [ -z "$rank" ] || kill -CONT "$rank"
        ;;
    esac 2>/dev/null
    kills=$((kills + 1))
}

# wait_gone SECONDS TEST...: until the test prints nothing
wait_gone() {
    local until=$(($(now) + $1 * 1000))
    shift
    while [ -n "$("$@")" ]; do
        [ "$(now)" -lt $until ] || return 1
        sleep 0.05
    done
}
alive() { kill -0 "$1" 2>/dev/null && echo "$1"; }

# disturb DIR: one job that is hit
disturb() {
    local launcher ranks backend config
    choose_job
    # shellcheck disable=SC2046
    SOAK_TRIAL=$trials SHOAL_IO=$backend setsid "$shoal" run --master_port 0 --num_gpus $ranks \
        $(train $config "$1") >disturbed.log 2>&1 </dev/null &
    launcher=$!
    disown "$launcher" # the shell's own word about a killed job is of no use
    launchers+=("$launcher")
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    hit "$launcher"
    wait_gone 30 alive "$launcher" || {
        failed hangs "the launcher did not end within 30 s after a disturbance"
        kill -KILL "$launcher"
    }
    wait_gone 3 processes || {
        failed orphans "still running: $(processes | tr '\n' ' ')"
        # shellcheck disable=SC2046
        kill -KILL $(processes) 2>/dev/null
    }
}

# segments: what this trial's jobs have left in memory. Names hold the job's id, which begins with its launcher's pid.
segments() {
    local launcher
    for launcher in "${launchers[@]}"; do compgen -G "/dev/shm/shoal-$EUID/*-$launcher.*"; done
}

kill_loop() {
    local deadline=$1 dir=disturbed times delay ranks backend config
    backends=(posix uring)
    SHOAL_IO=uring "$shoal" report | grep -q 'backend .*none' && backends=(posix)
    while [ $SECONDS -lt "$deadline" ]; do
        trials=$((trials + 1))
        launchers=()
        rm -rf $dir
        for ((times = 1 + RANDOM % 3; times > 0; times--)); do
            delay=$((RANDOM % (usual_ms + usual_ms / 2 + 100)))
            disturb $dir
        done
        choose_job
        # shellcheck disable=SC2046
        resume $dir "$shoal" run --master_port 0 --num_gpus $ranks $(train $config $dir)
        # a launcher that was killed cannot remove its segments; the next one does
        [ -z "$(segments)" ] || failed orphans "left in /dev/shm: $(segments | tr '\n' ' ')"
        [ -z "$(ls -A drive 2>/dev/null)" ] || failed orphans "left on the drive: $(ls -A drive)"
    done
}
