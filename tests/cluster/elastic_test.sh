#!/usr/bin/env bash
# The elastic agent on three hosts: ranks are killed, and hosts go and come back, at random; the last checkpoint has every
# byte of an undisturbed run's on one rank.
# Usage: [SHOAL_TEST_FULL=1] [SHOAL_TEST_SEED=N] [SHOAL_TEST_COMM=NAME] elastic_test.sh SHOAL        full: 20 kills instead of 4
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/elastic.sh"
begin_hosts bash "$0" "$@"
begin_elastic_hosts "$1"
begin_elastic
steps=$((1200 * kills / 4))
undisturbed
printf 'worker-%d slots=2\n' 0 1 2 >hosts
run=("$shoal" run -H hosts --elastic_training --restart_backoff 0 --launcher ssh --launcher_args "-F $folder/ssh_config")

# ---- too few hosts ----
stop_sshd 1
stop_sshd 2
expect 1 "${run[@]}" --min_elastic_nodes 2 true --deepspeed_config elastic.json
says "host worker-1 does not answer: left out" "1 of 3 hosts answer, and --min_elastic_nodes is 2"
expect 0 "${run[@]}" sh -c 'echo "<$RANK/$WORLD_SIZE on $(hostname)>"' sh --deepspeed_config elastic.json
says "start: 2 ranks on 1 host" "<1/2 on worker-0>"
start_sshd 1
start_sshd 2
await_sshd 1 && await_sshd 2
expect 0 "${run[@]}" --max_elastic_nodes 2 sh -c 'echo "<$RANK/$WORLD_SIZE on $(hostname)>"' sh --deepspeed_config elastic.json
says "start: 4 ranks on 2 hosts" "<3/4 on worker-1>"

# ---- ranks and hosts go and come ----
: >out
"${run[@]}" $(train disturbed) >out 2>&1 &
job=$!
down=()
for ((hits = 1; hits <= kills; hits++)); do
    await_ranks || break
    if [ ${#down[@]} = 2 ] || { [ ${#down[@]} = 1 ] && { [ "$hits" = 3 ] || [ $((RANDOM % 2)) = 0 ]; }; }; then
        come_back start_sshd "${down[0]}" && down=("${down[@]:1}") && await_ranks || break
    fi
    nap $hits
    if [ $((hits % 2)) = 1 ]; then
        kill_rank
        continue
    fi
    host=$((RANDOM % 3))
    [ "$host" != "${down[0]:-}" ] || host=$(((host + 1) % 3))
    down+=("$host")
    echo "  worker-$host goes"
    seen=$(starts)
    stop_sshd $host
done
ends_equal $job
[ -n "$instead" ] || grep -q 'growing: ' out || complain "no host came back"
finish
