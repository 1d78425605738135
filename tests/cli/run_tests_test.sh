#!/usr/bin/env bash
# What the suite says about what its tests leave behind, on a machine where Shoal never ran: with a /dev/shm of its own.
# Usage: run_tests_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1") root=$2
own=/dev/shm/shoal-$(id -u)
if ! unshare --mount --net true 2>/dev/null; then
    echo "SKIPPED: this user may not have a /dev/shm of its own"
    exit 77
fi

# run_suite COMMAND: a suite of one test, which runs the command
run_suite() {
    printf 'add_test(one "sh" "-c" [==[%s]==])\n' "$1" >"$folder/CTestTestfile.cmake"
    # shellcheck disable=SC2016
    unshare --mount --net --propagation private sh -c '
        for place in /dev/shm /var/tmp /run; do mount -t tmpfs none "$place" || exit 2; done
        exec "$@"' alone env LEFT_LOOKS=2 "$root/scripts/run-tests" "$folder"
}
expect 0 run_suite true
expect 8 run_suite false
# The first job of a user makes the secret, which stays for the next one.
expect 0 run_suite "mkdir -m 700 $own && echo 0123456789abcdef >$own/secret"
expect 1 run_suite "mkdir -m 700 $own && echo 0 >$own/secret.1"
says "left behind: file $own/secret.1"
# What a process without a launcher leaves when it is killed, the next job removes.
killed="$own/shoal-999999999.$(printf %x "$(stat -L -c %i /proc/self/ns/pid)").0-0123456789abcdef"
expect 1 run_suite "mkdir -m 700 $own && echo 0 >$killed"
says "left behind: file $killed"
mkdir "$folder/bin" && ln -s "$shoal" "$folder/bin/shoal"
expect 0 run_suite "mkdir -m 700 $own && echo 0 >$killed"
expect 1 run_suite 'echo 0 >$TMPDIR/forgotten'
says "left behind: file " "/forgotten"
expect 1 run_suite "sleep 1000 >/dev/null 2>&1 & echo \$! >$folder/pid"
says "left behind: process $(cat "$folder/pid"): sleep 1000"
kill "$(cat "$folder/pid")"
if unshare --net ip link add left0 type veth peer name left1 2>/dev/null; then
    expect 1 run_suite 'ip link add left0 type veth peer name left1'
    says "left behind: link left0"
fi
finish
