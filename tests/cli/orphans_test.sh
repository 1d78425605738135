#!/usr/bin/env bash
# Nothing of a job is left when its launcher ends, however it ends and whatever its ranks have started.
# Usage: orphans_test.sh SHOAL
. "$(dirname "$0")/check.sh"
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG MASTER_PORT
# Where another user can read it, too
chmod 755 "$folder"
cp "$1" "$folder/shoal"
shoal=$folder/shoal
mkdir -m 777 "$folder/shared"
pids=$folder/shared/pids
# The promise is a second. The slowest of 20 runs on a busy machine took 0.4 s.
limit_ms=5000
[ -z "$SANITIZE" ] || limit_ms=15000
most_ms=0

# What stands for a rank. It notes its own number and that of a child.
cat >"$folder/rank.sh" <<EOF
echo \$SHOAL_JOB_ID >"$folder/shared/id"
own="/dev/shm/shoal-\$(id -u)"
mkdir -p -m 700 "\$own"
[ -z "\$SHOAL_JOB_ID" ] || : >"\$own/shoal-\$SHOAL_JOB_ID-\$\$"
sleep 300 &
echo \$\$ \$! >>"$pids"
wait
EOF
cat >"$folder/wrap.py" <<EOF
import os, subprocess, sys
if sys.argv[1] == "daemon":
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            subprocess.run(["sh", "$folder/rank.sh"])
        os._exit(0)
subprocess.run(["sh", "$folder/rank.sh"], start_new_session=sys.argv[1] == "session")
EOF
# Ways to start it, a line each: NAME, how many numbers are noted, COMMAND.
ways="direct 2 exec sh $folder/rank.sh
shell 2 sh $folder/rank.sh; true
pipe 2 sh $folder/rank.sh | cat
no_environment 2 env -i PATH=\"\$PATH\" sh $folder/rank.sh; true
session 2 setsid -w sh $folder/rank.sh; true
daemon 2 (setsid sh $folder/rank.sh &); sleep 300
nested 2 $shoal run --num_gpus 1 --no_local_rank sh -c 'sh $folder/rank.sh; true'
deaf 2 trap '' TERM INT HUP; sh $folder/rank.sh; true"
if python3 -c 'import subprocess' 2>/dev/null; then
    ways="$ways
python 2 python3 $folder/wrap.py plain
python_session 2 python3 $folder/wrap.py session
python_daemon 4 python3 $folder/wrap.py daemon"
fi

is_gone() { # also a zombie that nobody has looked at
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    case ${stat##*)} in " Z"* | " X"*) return 0 ;; esac
    return 1
}
has_segments() { [ -n "$1" ] && [ -n "$(find /dev/shm -maxdepth 2 -name "shoal-$1-*")" ]; }
count_pids() { cat "$pids" 2>/dev/null | wc -w; }
await_pids() {
    for _ in $(seq 3000); do
        [ "$(count_pids)" -ge "$1" ] && return
        sleep 0.02
    done
    complain "$2: did not start: $(cat "$folder/out")"
}
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
# gone WHAT: all noted processes are soon gone, and the job's segments, too
gone() {
    local pid begin id
    begin=$(now_ms)
    for pid in $(cat "$pids"); do
        until is_gone "$pid"; do
            if [ $(($(now_ms) - begin)) -gt "$limit_ms" ]; then
                complain "$1: process $pid is still there: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
                kill -KILL "$pid"
                break
            fi
            sleep 0.01
        done
    done
    id=$(cat "$folder/shared/id" 2>/dev/null)
    while has_segments "$id"; do
        if [ $(($(now_ms) - begin)) -gt "$limit_ms" ]; then
            complain "$1: segments are left in /dev/shm"
            rm -f /dev/shm/shoal-*/"shoal-$id-"*
        fi
        sleep 0.01
    done
    took_ms=$(($(now_ms) - begin))
    [ "$took_ms" -le "$most_ms" ] || most_ms=$took_ms
}

# try_signal SIGNAL NAME NUMBERS COMMAND [AS...]: two ranks, started as COMMAND, are gone with the launcher
try_signal() {
    local signal=$1 name=$2 numbers=$3 command=$4 code=0
    shift 4
    rm -f "$pids" "$folder/shared/id"
    # Job control, or the shell would start the job with SIGINT ignored
    set -m
    "$@" "$shoal" run --num_gpus 2 --no_local_rank bash -c "$command" >"$folder/out" 2>&1 </dev/null &
    local job=$!
    set +m
    await_pids $((2 * numbers)) "$signal $name $*"
    kill "-$signal" "$job"
    [ "$signal" = KILL ] || wait "$job" 2>/dev/null || code=$?
    gone "$signal $name $*"
    [ "$signal" != KILL ] || wait "$job" 2>/dev/null || code=$?
    [ "$code" -eq $((128 + $(kill -l "$signal"))) ] || complain "$signal $name ended with $code: $(cat "$folder/out")"
    [ "$signal" != KILL ] || grep -q "the launcher (pid [0-9]*) is gone" "$folder/out" ||
        complain "$name: it said: $(cat "$folder/out")"
    [ -z "${SHOW:-}" ] || echo "$signal $name $*: $took_ms ms: $(cat "$folder/out")"
}

while read -r name numbers command; do
    try_signal KILL "$name" "$numbers" "$command"
    # What the kernel lets another user look at and end is less
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        try_signal KILL "$name" "$numbers" "$command" setpriv --reuid 65534 --regid 65534 --clear-groups
    fi
done <<<"$ways"
for signal in TERM INT HUP; do
    for way in shell daemon deaf nested; do
        read -r name numbers command < <(grep "^$way " <<<"$ways")
        try_signal "$signal" "$name" "$numbers" "$command"
    done
done

# The guard is killed, too: ranks end themselves, although their wrappers closed what they did not know
# (All sizes: how often a message is sent follows from its first time, which on a busy machine may be the long one.)
rm -f "$pids" "$folder/shared/id"
"$shoal" run --num_gpus 2 --no_local_rank bash -c "$shoal bench comm --repeats 1000 --seconds 60 &
    echo \$! >>$pids; wait" >"$folder/out" 2>&1 </dev/null &
job=$!
await_pids 2 "ranks of a job without a guard"
sleep 0.5 # they join
guard=$(ps -o pid=,comm= --ppid "$job" | awk '$2 == "shoal-guard" { print $1 }')
[ "$(tr -d '\0' <"/proc/$guard/cmdline")" = shoal-guard ] || complain "ps shows the guard as a launcher"
kill -KILL "$guard" "$job"
gone "a job without a guard"
wait "$job" 2>/dev/null
# One rank may see the end of the other before the launcher's
grep -q "the launcher (pid $job) is gone; this rank ends, too" "$folder/out" || complain "without a guard no rank missed the launcher"
for rank in 0 1; do
    grep -qE "rank $rank: (the launcher \\(pid $job\\) is gone; this rank ends, too|error: rank $((1 - rank)) .* is gone)" "$folder/out" ||
        complain "without a guard rank $rank said: $(cat "$folder/out")"
done

# A wrapper that dies first: of a signal, with an error, without
run="$shoal run --num_gpus 2 --no_local_rank bash -c"
for way in "137 kill -KILL \$\$" "9 exit 9" "0 exit 0"; do
    read -r code last <<<"$way"
    rm -f "$pids"
    expect "$code" $run "(setsid sh $folder/rank.sh &)
        until [ \$(cat $pids 2>/dev/null | wc -w) = 4 ]; do sleep 0.02; done; $last"
    gone "a wrapper that ends with $code first"
done
says "4 processes outlived the ranks that started them and are ended" "exec"
# Helpers that end by themselves soon after their rank are no news
expect 0 $run "(setsid sleep 0.05 &); true"
[ -z "$output" ] || complain "helpers that ended by themselves: $output"

# What a wrapper started is given the grace period, too
cat >"$folder/saver.sh" <<EOF
trap 'sleep 0.7; echo saved >>"$folder/shared/saved"; exit \${1:-0}' TERM
echo \$\$ >>"$pids"
# Not one long wait: a signal that comes just before it would be taken at its end
for _ in \$(seq 1200); do sleep 0.05; done
EOF
# grace CODE COMMAND
grace() {
    local wanted=$1 code=0
    rm -f "$pids" "$folder/shared/saved"
    "$shoal" run --grace_period 30 --num_gpus 2 --no_local_rank bash -c "$2" >"$folder/out" 2>&1 </dev/null &
    local job=$!
    await_pids 2 "grace: $2"
    kill -TERM "$job"
    wait "$job" || code=$?
    output=$(cat "$folder/out")
    [ "$code" = "$wanted" ] || complain "grace: $2 ended with $code, not $wanted: $output"
    [ "$(grep -c saved "$folder/shared/saved")" = 2 ] || complain "grace: $2: not all ranks could save: $output"
    gone "grace: $2"
}
grace 0 "exec sh $folder/saver.sh"
says "stopped by signal 15 (Terminated): all ranks have ended by themselves with code 0"
grace 143 "exec sh $folder/saver.sh 5"
says "stopped by signal 15 (Terminated); rank " "exited with code 5 instead of 0"
grace 143 "sh $folder/saver.sh; true"
grace 143 "(setsid sh $folder/saver.sh &); sleep 300"
echo "the slowest end: $most_ms ms"
finish
