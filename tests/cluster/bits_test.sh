#!/usr/bin/env bash
# A GPT on 2 hosts x 2 ranks, each host with a /dev/shm of its own:
#   leaves, in exact mode, the bits of one rank: with ssh, pdsh, Open MPI and MPICH, by two levels (shared memory within a
#   host) and by UCX or MPI alone, ZeRO 0 to 3, hpZ, MiCS within and over hosts;
#   leaves, with messages of few bits (qwZ, qgZ, LoCo), the bits of the same job on one machine that pretends two hosts;
#   sends other hosts what ZeRO++ and MiCS have published, counted by all ranks;
#   finds its network among several interfaces, one of which leads nowhere, and says in a sentence what a closed port does.
# Without SHOAL_TEST_FULL the lines "always". Usage: bits_test.sh SHOAL [PATTERN of lines, as "mpich stage"]
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
pattern=${2:-}
# config NAME REDUCTION MORE-OF-zero_optimization
config() {
    cat >"$1.json" <<JSON
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "reduction": "$2", "steps_per_print": 1000000, "seed": 3,
 "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
 "comms_logger": {"enabled": true, "show_straggler": true},
 "zero_optimization": {$3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0, "overlap_comm": true}}
JSON
}
for stage in 0 1 2 3; do config "stage$stage" exact "\"stage\": $stage"; done
config hpz exact '"stage": 3, "zero_hpz_partition_size": 2'
config mics exact '"stage": 3, "mics_shard_size": 2'
config mics4 exact '"stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": true'
config zeropp fast '"stage": 3, "zero_hpz_partition_size": 2, "zero_quantized_weights": true, "zero_quantized_gradients": true'
config loco fast '"stage": 3, "zero_quantized_gradients": true, "zeropp_loco_param": {"err_beta": 0.5, "reset_T": 4}'
gpt() { # CONFIG FOLDER: the words of the training
    echo "$shoal pretrain gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --threads 1
        --data-path text --tokenizer-type char --eval-iters 0 --train-iters 6 --deepspeed_config $1.json --save $2"
}
# reference CONFIG: the folder with the bits that it has to have
reference() {
    local what=$1 here=("$shoal" run --num_gpus 4)
    case $1 in
    zeropp | loco) here=(env SHOAL_PRETEND_HOSTS=2 "${here[@]}") ;;
    *) what=stage0 here=() ;;
    esac
    # shellcheck disable=SC2046
    [ -d "of_$what" ] || expect 0 "${here[@]}" $(gpt "$what" "of_$what")
    reference=of_$what
}
compare() { # LINE
    local file count=0
    for file in "$reference"/global_step6/*.safetensors; do
        cmp -s "$file" "many/global_step6/${file##*/}" || complain "$1: ${file##*/} differs from that of $reference"
        count=$((count + 1))
    done
    [ $count -gt 0 ] || complain "$reference: nothing was saved that could be compared"
}
# tier | launcher | configuration | SHOAL_HIERARCHICAL | connected by
table='
always | ssh     | stage0 | 1 | hierarchical
always | ssh     | stage3 | 0 | ucx
always | ssh     | hpz    | 1 | hierarchical
always | ssh     | mics4  | 1 | hierarchical
always | ssh     | zeropp | 1 | hierarchical
full   | ssh     | stage1 | 1 | hierarchical
full   | ssh     | stage2 | 1 | hierarchical
full   | ssh     | stage3 | 1 | hierarchical
full   | ssh     | stage0 | 0 | ucx
full   | ssh     | stage1 | 0 | ucx
full   | ssh     | stage2 | 0 | ucx
full   | ssh     | mics   | 1 | hierarchical
full   | ssh     | loco   | 1 | hierarchical
full   | pdsh    | stage0 | 1 | hierarchical
full   | pdsh    | stage1 | 1 | hierarchical
full   | pdsh    | stage2 | 0 | ucx
full   | pdsh    | stage3 | 1 | hierarchical
always | openmpi | stage1 | 1 | hierarchical
always | openmpi | stage2 | 0 | mpi
full   | openmpi | stage0 | 1 | hierarchical
full   | openmpi | stage2 | 1 | hierarchical
full   | openmpi | stage3 | 1 | hierarchical
full   | openmpi | mics4  | 1 | hierarchical
full   | openmpi | zeropp | 1 | hierarchical
always | mpich   | stage3 | 1 | hierarchical
full   | mpich   | stage0 | 0 | mpi
full   | mpich   | stage1 | 1 | hierarchical
full   | mpich   | stage2 | 1 | hierarchical
full   | mpich   | stage3 | 0 | mpi
full   | mpich   | hpz    | 1 | hierarchical
full   | mpich   | zeropp | 1 | hierarchical
'
one_line() { # LAUNCHER CONFIG LEVELS BY
    local line="$1 $2, $4" before=$failures
    reference "$2"
    rm -rf many
    touch mark
    in_folder >before
    export SHOAL_HIERARCHICAL=$3
    PROGRAM=$(gpt "$2" many) start "$1"
    await_job "$(now_ms)" 60
    unset SHOAL_HIERARCHICAL
    [ "$code" = 0 ] || complain "$line: ended with $code: $(shown)"
    grep -qE "^(worker-0: )?ranks: 4.*, connected by $4\$" out || complain "$line: not connected by $4: $(grep '^ranks:' out)"
    compare "$line"
    left=$(gone 60) || complain "$line left: $left"
    sent=$(sed -nE 's/^(worker-0: )?between hosts: ([0-9]*) bytes.*/\2/p' out)
    [ "$3" = 0 ] || [ -n "$sent" ] || complain "$line: does not say what went between hosts: $(shown)"
    [ $failures -ne $before ] || echo "$line: $took ms${sent:+, $sent bytes between hosts}"
    crossed[$2]=${sent:-${crossed[$2]:-}}
}
declare -A crossed
count=0
while IFS='|' read -r tier where what levels by; do
    tier=${tier// /} where=${where// /} what=${what// /} levels=${levels// /} by=${by// /}
    [ -n "$tier" ] || continue
    [ "$tier" = always ] || [ -n "${SHOAL_TEST_FULL:-}" ] || [ -n "$pattern" ] || continue
    case "$where $what $by" in *"$pattern"*) ;; *) continue ;; esac
    why=$(cannot "$where" none)
    [ -z "$why" ] || { echo "$where $what, $by: not tested: $why" && continue; }
    one_line "$where" "$what" "$levels" "$by"
    count=$((count + 1))
done <<<"$table"

# ---- what ZeRO++ and MiCS save between hosts, of the jobs above ----
# times NAME A B LEAST MOST: A / B lies between the two
times() {
    [ -n "$2" ] && [ -n "$3" ] || return
    echo "$1: $2 bytes between hosts are $3: $(awk "BEGIN {printf \"%.2f\", $2 / $3}") times less"
    awk "BEGIN {exit !($2 / $3 >= $4 && $2 / $3 <= $5)}" || complain "$1: not between $4 and $5 times"
}
plain=${crossed[stage3]:-}
if [ -n "$plain" ]; then
    # weights of 4 bytes twice and gradients, integers of 8, once: hpZ spares backward's gathers, (4 + 4 + 8) / (4 + 8)
    times hpZ "$plain" "${crossed[hpz]:-}" 1.28 1.38
    times MiCS "$plain" "${crossed[mics]:-}" 1.4 3
    times "hpZ, qwZ and qgZ" "$plain" "${crossed[zeropp]:-}" 5 8.5
fi
[ -z "${crossed[mics4]:-}" ] || times "MiCS over hosts" "${plain:-${crossed[mics4]}}" "${crossed[mics4]}" 0.97 1.03

# ---- networks ----
# ends LINE CODE TEXT VARIABLE=VALUE...: a job with these variables ends like that
ends() {
    local line=$1 wanted=$2 text=$3
    shift 3
    rm -rf many
    touch mark
    in_folder >before
    PROGRAM="env $* $(gpt stage0 many)" start ssh
    await_job "$(now_ms)" 60
    # UCX 1.13 aborts now and then where a connection is refused to both sides at once: a verdict, but not ours.
    if [ "$wanted" = 1 ] && [ "$code" = 134 ] && grep -q 'tcp_ep\.c:.*Assertion.*CTX_TYPE_TX' out; then
        echo "$line: UCX aborted rank $(sed -n 's/.*\] rank \([0-9]*\) .*killed by signal 6.*/\1/p' out); once more"
        gone 10 >/dev/null
        PROGRAM="env $* $(gpt stage0 many)" start ssh
        await_job "$(now_ms)" 60
    fi
    [ "$code" = "$wanted" ] || complain "$line: ended with $code, not $wanted: $(shown)"
    grep -qF -- "$text" out || complain "$line: \"$text\" is missing in: $(shown)"
    left=$(gone 60) || complain "$line left: $left"
    echo "$line: $took ms, code $code"
}
case networks in *"$pattern"*)
    # every host has one more network, up, with an address that is the same on all and leads nowhere
    for i in 0 1; do
        on_host $i sh -c 'ip link add lab0 type veth peer name lab1 && ip addr add 172.30.0.1/16 dev lab0 &&
            ip link set lab0 up && ip link set lab1 up' || complain "host $i gets no second network"
    done
    one_line ssh stage0 0 ucx
    ends "the network by its number" 0 "connected by hierarchical" SHOAL_NETWORK=10.77.0.0/16
    ends "the network by its name" 0 "connected by hierarchical" SHOAL_NETWORK=eth0
    ends "a network that is not there" 2 'SHOAL_NETWORK="10.9.0.0/16" is neither an interface of this host nor a network' \
        SHOAL_NETWORK=10.9.0.0/16
    if on_host 0 ip rule add ipproto tcp dport 21000-21100 prohibit 2>/dev/null &&
        on_host 1 ip rule add ipproto tcp dport 21000-21100 prohibit 2>/dev/null; then
        ends "a firewall that rejects" 1 "a firewall between the hosts must let UCX's ports through" \
            UCX_TCP_PORT_RANGE=21000-21100 DEEPSPEED_TIMEOUT=0.1
    else
        echo "a firewall: not tested: this machine has no rules for ports (ip rule)"
    fi
    count=$((count + 1))
    ;;
esac
[ $count -gt 0 ] || complain "no line ran"
finish
