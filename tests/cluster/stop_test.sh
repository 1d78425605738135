#!/usr/bin/env bash
# Ctrl-C ends a training on two hosts of two ranks as it ends one on one machine, by each launcher. With --exit-signal-handler
# the ranks save, the job ends with 0, and the last line is the command that goes on. A second Ctrl-C ends the job at once.
# Without the flag the last line says how many steps are lost.
# Usage: stop_test.sh SHOAL LAUNCHER...
# What began in the background of a shell ignores SIGINT, and so would all that it starts.
[ "${DEFAULT_INT-}" ] || DEFAULT_INT=1 exec env --default-signal=INT bash "$0" "$@"
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
shift
# What is given behind the script reaches `shoal pretrain`; a script may give it flags that the launcher does not see.
cat >stop.sh <<SCRIPT
#!/bin/sh
echo \$\$ >pid.\$RANK.new && mv pid.\$RANK.new pid.\$RANK
exec "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 \\
    --data-path text --tokenizer-type char --eval-iters 0 --train-iters 1000000 --deepspeed_config config.json "\$@"
SCRIPT
sed 's/"\$@"/--load hidden --save hidden --save-interval 1000000/' stop.sh >hidden.sh
chmod +x stop.sh hidden.sh
# The one checkpoint that the hidden flags lead to. A save that is due when Ctrl-C comes would lose no step.
expect 0 "$shoal" pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1 --data-path text \
    --tokenizer-type char --eval-iters 0 --train-iters 30 --deepspeed_config config.json --save hidden
# stop LAUNCHER NAME CODE TEXT PROGRAM FLAGS...: Ctrl-C, and where $again is set another when that stands in the output. The
# second one took at most 4.8 s on a busy machine, with pdsh.
stop() {
    local by=$1 name="$1, $2" wanted=$3 text=$4 begin
    shift 4
    touch mark && in_folder >before
    set -m # else the job ignores SIGINT
    PROGRAM="$*" start "$by"
    set +m
    await_steps || { complain "$name: no steps: $(shown)" && return; }
    begin=$(now_ms)
    kill -${signal:-INT} $job
    if [ -n "$again" ]; then
        until grep -q -- "$again" out || [ $(($(now_ms) - begin)) -gt 60000 ]; do sleep 0.05; done
        sleep 1
        kill -0 $job 2>/dev/null || complain "$name: the first signal ended it: $(shown)"
        begin=$(now_ms)
        kill -INT $job
    fi
    await_job "$begin"
    echo "$name: $took ms"
    [ "$code" = "$wanted" ] || complain "$name: code $code, not $wanted: $(shown)"
    [ -z "$text" ] || tail -n 1 out | grep -q -- "$text" || complain "$name: \"$text\" is not in the last line: $(shown)"
    [ -z "$again" ] || [ "$took" -lt 30000 ] || complain "$name: the second signal took $took ms: $(shown)"
    gone 60 >left || complain "$name: left behind: $(cat left)"
}
lost='nothing is saved: [0-9]* steps are lost; with --exit-signal-handler'
for by in "$@"; do
    why=$(cannot "$by" stop)
    [ -z "$why" ] || { echo "left out: $by: $why" && continue; }
    again=
    stop "$by" saves 0 "to go on: .* --load saved.$by" ./stop.sh --exit-signal-handler --save "saved.$by"
    grep -q "saved: saved.$by/global_step" out || complain "$by: what was saved is not said: $(shown)"
    expect 0 "$shoal" checkpoint verify "saved.$by"
    [ "$by" = ssh ] || signal=TERM stop "$by" terminated 0 "to go on: .* --load term.$by" ./stop.sh --exit-signal-handler --save "term.$by"
    stop "$by" loses 130 "$lost" ./stop.sh --save "lost.$by"
    [ "$by" != ssh ] || stop "$by" hidden 130 "the newest checkpoint is hidden/global_step30: [0-9]* steps* .* lost" ./hidden.sh
    # rank 0 is stopped in its save
    printf '%s\n' 'SHOAL_FAULT=ckpt.write:1@0=stop' >.deepspeed_env
    again='the ranks have\|stopping the job'
    stop "$by" twice 130 "" ./stop.sh --exit-signal-handler --save "twice.$by"
    rm .deepspeed_env
done
finish
