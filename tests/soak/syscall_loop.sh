# The system-call loop, sourced by soak: strace fails, or kills the process at, one system call of a save after the other,
# with either backend of files; the run that continues must find the older or the newer checkpoint whole.

# The calls that a save can be hurt by.
calls=openat,mkdir,write,pwrite64,pread64,lseek,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat
calls=$calls,rmdir,fcntl,flock,close,fstat,newfstatat,getdents64,io_uring_setup,io_uring_enter,brk,mmap

# save_calls LOG: "NAME K" for each traced call from the first one of the save on, by the thread that saves; K counts its calls
# of that name, as strace's `when` does for each thread
save_calls() {
    awk '{ match($0, /^[0-9]+ +/); pid = substr($0, 1, RLENGTH) + 0; rest = substr($0, RLENGTH + 1)
           if (!match(rest, /^[a-z_0-9]+\(/)) next
           name = substr(rest, 1, RLENGTH - 1); count[pid, name]++
           if (rest ~ /\.partial|\.tmp/) saving[pid] = 1
           if (saving[pid]) print name, count[pid, name] }' "$1" | sort -u
}

# one_call BACKEND CONFIGURATION NAME K ACTION
one_call() {
    local config=$2
    set -- "$1" "${@:3}"
    trials=$((trials + 1))
    faults=$((faults + 1))
    rm -rf hurt drive
    cp -a before hurt
    # the braces keep the shell's own word about a killed process away
    # shellcheck disable=SC2046
    { SOAK_TRIAL=$trials SHOAL_IO=$1 timeout -k 1 60 strace -f -qq -o /dev/null -e trace="$2" -e inject="$2:$4:when=$3" \
        $(train "$config" hurt) >hurt.log 2>&1 </dev/null; } 2>/dev/null
    [ $? -ne 124 ] || failed hangs "$2 number $3 with $4 ($1, $config): did not end"
    rm -rf drive
    local before=$((hangs + lost))
    # shellcheck disable=SC2046
    resume hurt $(train memory0.json hurt)
    [ $((hangs + lost)) -eq $before ] || echo "  after $2 number $3 with $4 ($1, $config)"
}

syscall_loop() {
    local deadline=$1 backend config name k action list=()
    strace -f -o /dev/null true 2>/dev/null || {
        echo "soak: the system-call loop is skipped: strace is missing or may not trace here"
        return
    }
    # one step and its save are left to do
    cp -a reference before
    rm -rf "before/global_step$steps"
    echo "global_step$((steps - 3))" >before/latest
    for backend in "${backends[@]}"; do
        for config in drive1.json beside1.json; do
            rm -rf hurt drive
            cp -a before hurt
            # shellcheck disable=SC2046
            SHOAL_IO=$backend strace -f -qq -o calls.log -e trace=$calls $(train $config hurt) >hurt.log 2>&1 </dev/null ||
                failed lost "a traced run ended badly: $(tail -n 1 hurt.log)"
            while read -r name k; do
                for action in error=EIO error=ENOSPC signal=KILL; do list+=("$backend $config $name $k $action"); done
            done < <(save_calls calls.log)
        done
    done
    [ ${#list[@]} -gt 20 ] || failed lost "only ${#list[@]} system calls of a save were seen: the loop tests nothing"
    local shuffled=$faults
    while [ $SECONDS -lt "$deadline" ] && [ $((faults - shuffled)) -lt ${#list[@]} ]; do
        # a random one of those that are left
        local i=$((faults - shuffled)) j
        j=$((i + (RANDOM * 32768 + RANDOM) % (${#list[@]} - i)))
        local chosen=${list[j]}
        list[j]=${list[i]}
        # shellcheck disable=SC2086
        one_call $chosen
    done
    echo "soak: $((faults - shuffled)) of ${#list[@]} system calls and ways to fail them"
}
