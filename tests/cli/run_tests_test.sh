#!/usr/bin/env bash
# What the suite says about what its tests leave behind, on a machine where Shoal never ran: with a /dev/shm of its own.
# Usage: run_tests_test.sh ROOT
. "$(dirname "$0")/check.sh"
root=$1
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
        exec "$@"' alone "$root/scripts/run-tests" "$folder"
}
expect 0 run_suite true
expect 8 run_suite false
# The first job of a user makes the secret, which stays for the next one.
expect 0 run_suite "mkdir -m 700 $own && echo 0123456789abcdef >$own/secret"
expect 1 run_suite "mkdir -m 700 $own && echo 0 >$own/secret.1"
says "left behind: file $own/secret.1"
expect 1 run_suite 'echo 0 >$TMPDIR/forgotten'
says "left behind: file " "/forgotten"
expect 1 run_suite 'sleep 20 >/dev/null 2>&1 &'
says "left behind: process "
if unshare --net ip link add left0 type veth peer name left1 2>/dev/null; then
    expect 1 run_suite 'ip link add left0 type veth peer name left1'
    says "left behind: link left0"
fi
finish
