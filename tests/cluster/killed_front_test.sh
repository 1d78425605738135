#!/usr/bin/env bash
# SIGKILL for `shoal run` itself: its hosts end their ranks, whatever has started them. What it could not remove from
# memory, the next job removes; and it leaves alone what a running job has there.
# Usage: [SHOAL_TEST_FULL=1] killed_front_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
in_memory() { find /dev/shm "$(memory_of 0)" "$(memory_of 1)" -path '*/shoal-0/shoal-*' 2>/dev/null; }
# no process of a job is left on any host
ended() {
    local begin=$(now_ms) left
    local until=$((begin + 60000))
    while left=$(leftovers | grep -v '^/') && [ -n "$left" ] && [ "$(now_ms)" -lt $until ]; do sleep 0.05; done
    [ -z "$left" ] || complain "$1 left $left"
    echo "$1: no process is left after $(($(now_ms) - begin)) ms"
}
# a training of a few steps, after which nothing may lie in memory but what $1 says
next_job() {
    STEPS=3 start ssh
    await_job "$(now_ms)"
    [ "$code" = 0 ] || complain "the next job ended with $code: $(shown)"
}
wheres="ssh pdsh"
[ -z "${SHOAL_TEST_FULL:-}" ] || wheres="here $wheres openmpi mpich"
for where in $wheres; do
    why=$(cannot $where none)
    [ -z "$why" ] || { echo "$where: not tested: $why" && continue; }
    touch mark
    in_folder >before
    start $where
    await_steps || complain "$where: no steps: $(shown)"
    sleep 1.2 # until there are copies of status pages
    kill -9 "$job"
    wait "$job" 2>/dev/null
    ended "a killed front ($where)"
    echo "$where: files in memory after SIGKILL: $(in_memory | wc -l)"
    next_job
    left=$(in_memory)
    [ -z "$left" ] || complain "$where: the next job has not removed $left"
done
# all launchers of a job at once, and its guards: nobody is left who could remove anything
touch mark
in_folder >before
start ssh
await_steps || complain "no steps: $(shown)"
sleep 1.2
kill -9 $(in_folder | grep -vxFf before | while read -r pid; do
    case $({ tr "\0" " " <"/proc/$pid/cmdline"; } 2>/dev/null) in "$shoal run"* | shoal-guard*) echo "$pid" ;; esac
done)
wait "$job" 2>/dev/null
ended "all launchers and guards, killed"
[ -n "$(in_memory)" ] || complain "killed launchers have left nothing in memory: this test tests nothing"
# a job that runs keeps its files, as long as one of its launchers is there
start pdsh
first=$job
await_steps || complain "no steps: $(shown)"
sleep 1.2
mv out first_out
kept=$(in_memory | grep -F -- "-$first.0." | sort)
next_job
[ -n "$kept" ] && [ "$(in_memory | sort)" = "$kept" ] || complain "of a job that runs there is $(in_memory), and was $kept"
kill -0 "$first" 2>/dev/null || complain "the other job has ended: $(tail -n 5 first_out)"
job=$first
mv first_out out
kill -TERM "$job"
await_job "$(now_ms)"
left=$(gone 60) || complain "the end left $left"
finish
