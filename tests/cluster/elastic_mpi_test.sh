#!/usr/bin/env bash
# The elastic agent with mpirun on three hosts: ranks are killed, a host goes and comes back; mpirun is started again with
# the hosts that are left, and the last checkpoint has every byte of an undisturbed run's on one rank.
# Usage: [SHOAL_TEST_FULL=1] [SHOAL_TEST_SEED=N] elastic_mpi_test.sh SHOAL openmpi|mpich
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/elastic.sh"
name=$2
[ -e "$(dirname "$(dirname "$(readlink -f "$1")")")/lib/libshoal_mpi_$name.so" ] || { echo "skipped: this build has no plug-in for $name"; exit 77; }
command -v "mpirun.$name" >/dev/null || { echo "skipped: mpirun.$name is not installed"; exit 77; }
begin_hosts bash "$0" "$@"
begin_elastic_hosts "$1"
mkdir bin
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$folder/ssh_config" >bin/ssh
printf '#!/bin/sh\nexec mpirun.%s "$@"\n' "$name" >bin/mpirun
chmod +x bin/*
export PATH=$folder/bin:$PATH
flags=
[ "$name" != openmpi ] || flags="--allow-run-as-root"
begin_elastic
steps=1200
undisturbed
printf 'worker-%d slots=2\n' 0 1 2 >hosts
: >out
"$shoal" run -H hosts --elastic_training --restart_backoff 0 --no_preflight --launcher "$name" --launcher_args="$flags" \
    $(train disturbed) >out 2>&1 </dev/null &
job=$!
down=
for ((hits = 1; hits <= kills; hits++)); do
    await_ranks || break
    nap $hits
    if [ $((hits % 2)) = 1 ]; then
        kill_rank
    elif [ -z "$down" ]; then
        down=$((RANDOM % 3))
        echo "  worker-$down goes"
        seen=$(starts)
        cut_host $down
        # what ran there is not the job's any more; with its link down nobody can tell it
        for pid in $(rank_pids); do
            [ "$(readlink "/proc/$pid/ns/uts")" != "$(readlink "/proc/${host_pid[down]}/ns/uts")" ] || kill -KILL "$pid"
        done
    else
        come_back mend_host $down
        down=
    fi
done
ends_equal $job $((kills * 3 / 4))
finish
