#!/usr/bin/env bash
# Limits of a control group: what counts as a core, for threads, ranks and binding; what counts as memory in use. The group's
# files are pretended in a mount namespace.  Usage: container_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(readlink -f "$1")
unset OMP_NUM_THREADS SHOAL_NUM_THREADS SHOAL_COMM SHOAL_LOG RANK WORLD_SIZE
cd "$folder" || exit 1
if ! unshare -m mount --bind . /sys/fs/cgroup 2>/dev/null; then
    echo "skipped: no mount namespace"
    exit 77
fi
# 256 MiB, of which `used` are in use and `cache` of these are files that were read
mib=1048576
limited() { # VERSION USED INACTIVE ACTIVE COMMAND...
    local version=$1 used=$2 inactive=$3 active=$4
    shift 4
    rm -rf group && mkdir -p group/memory
    if [ "$version" = v2 ]; then
        echo $((256 * mib)) >group/memory.max
        echo $((used * mib)) >group/memory.current
        printf 'anon 1\ninactive_file %d\nactive_file %d\n' $((inactive * mib)) $((active * mib)) >group/memory.stat
    else
        echo $((256 * mib)) >group/memory/memory.limit_in_bytes
        echo $((used * mib)) >group/memory/memory.usage_in_bytes
        printf 'rss 1\ntotal_inactive_file %d\ntotal_active_file %d\n' $((inactive * mib)) $((active * mib)) >group/memory/memory.stat
    fi
    unshare -m bash -c 'mount --bind group /sys/fs/cgroup && exec "$@"' limited "$@"
}
seq 4000 >text
echo '{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' >config.json
train=("$shoal" pretrain gpt --num-layers 1 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --eval-iters 0 --threads 1
    --data-path text --deepspeed_config config.json --train-iters 1)
for version in v2 v1; do
    expect 0 limited $version 255 200 50 "${train[@]}"
    expect 2 limited $version 256 0 0 "${train[@]}"
    expect 0 limited $version 255 200 50 "$shoal" report
    grep -q "memory available *251.0 MiB" <<<"$output" || complain "$version: the memory that is available: $output"
done
# a host of an MPI whose container has no /proc, which sanitizers need, too: nothing could be cleared away there
bare() { unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' bare "$@"; }
if [ -z "$SANITIZE" ]; then
    expect 1 bare env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SHOAL_JOB_ID=1.0.bare SHOAL_SECRET=none "$shoal" run \
        --rank_of=openmpi --world_info=localhost:0 --master_addr 127.0.0.1 --master_port 4710 sh -c 'echo started'
    says "cannot read /proc/self/stat"
    case $output in *started*) complain "a rank without /proc was started: $output" ;; esac
fi
if [ "$(nproc)" -lt 2 ]; then
    finish
    exit
fi
# within LIMIT COMMAND...: cpu.max of version 2, or quota and period of version 1
within() {
    rm -rf group && mkdir -p group/cpu
    case $1 in
    v1:*)
        echo "${1#v1:}" >group/cpu/cpu.cfs_quota_us
        echo 100000 >group/cpu/cpu.cfs_period_us
        ;;
    *) echo "$1 100000" >group/cpu.max ;;
    esac
    shift
    unshare -m bash -c 'mount --bind group /sys/fs/cgroup && exec "$@"' within "$@"
}
cores=$(nproc)
for limit in 100000 150000 20000 v1:150000 v1:1000; do
    expect 0 within $limit "$shoal" report
    says "1 usable of $cores: the control group limits CPU time to "
    expect 0 within $limit "$shoal" run --bind_cores_to_rank --no_local_rank sh -c 'echo "threads $OMP_NUM_THREADS"'
    says "threads 1"
done
for limit in max v1:-1 $((cores * 100000)); do
    expect 0 within $limit "$shoal" report
    says "$cores usable of"
done
echo "localhost slots=2" >hosts
expect 0 within 100000 "$shoal" run -H hosts --no_local_rank sh -c 'echo "threads $SHOAL_NUM_THREADS"'
says "threads 1"
finish
