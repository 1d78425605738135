#!/usr/bin/env bash
# `shoal top` on a job of this machine and on one of two hosts: found by number, folder and id; shares of time that add up;
# the straggler by its name; what it says when there is nothing to see.
# Usage: top_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
# field NAME: of the last output, its numbers one a line
field() { grep -o "\"$1\": -\{0,1\}[0-9.]*" <<<"$output" | cut -d' ' -f2; }
table() { # JOB
    local until=$(($(now_ms) + 60000))
    expect 0 "$shoal" top --once --json --interval 0.5 $1
    while [ "$(field meetings)" -le 3 ] && [ "$(now_ms)" -lt $until ]; do # boards of hosts come once a second
        expect 0 "$shoal" top --once --json --interval 0.5 $1
    done
    [ "$(field rank | sort -n | tr '\n' ' ')" = "0 1 2 3 " ] || complain "$where: ranks are missing: $output"
    [ "$(field step | sort -n | head -n 1)" -gt 10 ] || complain "$where: a rank has done nothing: $output"
    paste <(field compute) <(field wait) <(field io) | awk '{ s = $1 + $2 + $3; if (s < 0.98 || s > 1.05) exit 1 }' ||
        complain "$where: shares of time do not add up: $output"
    [ "$(field meetings)" -gt 3 ] || complain "$where: no meetings: $output"
}
for where in here ssh openmpi; do
    why=$(cannot $where none)
    [ -z "$why" ] || { echo "$where: not tested: $why" && continue; }
    touch mark
    in_folder >before
    start $where
    await_steps || complain "$where: no steps: $(shown)"
    sleep 2.2 # hosts send their boards once a second
    table "$job"
    [ $where != here ] || table "$(pid_of 2)"
    [ $where != here ] || table "$folder"
    expect 0 "$shoal" top --once --interval 0.2 "$job"
    says "rank  host " "tokens/s" " 1000000 steps in all"
    [ $where = here ] || says "worker-0" "worker-1"
    kill -TERM $job
    await_job "$(now_ms)"
    left=$(gone 60) || complain "$where left: $left"
    expect 2 "$shoal" top --once "$job"
    says "no running job matches \"$job\""
done
# the slow one is named
where=here HURT=slow start here
until=$(($(now_ms) + 60000)) named=
while [ -z "$named" ] && [ "$(now_ms)" -lt $until ]; do
    output=$("$shoal" top --once --interval 0.3 "$job" 2>&1)
    case $output in *"straggler: rank 3 ("*) named=1 ;; esac
done
[ -n "$named" ] || complain "the straggler has no name: $output"
kill -TERM $job
await_job "$(now_ms)"
left=$(gone 60) || complain "a slow rank left: $left"
expect 2 "$shoal" top --interval zero
says "--interval needs a number of seconds, not \"zero\""
expect 2 "$shoal" top --twice
says 'unknown flag "--twice"'
expect 2 "$shoal" top 1 2
says 'only one job can be shown; unexpected "2"'
finish
